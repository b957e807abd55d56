# frozen_string_literal: true

require "ringprof/report/printing"

module RingProf
  module Report
    # The single stacks, one line for each run: names from the root to the leaf, `;` between them, and the number of
    # samples. What flamegraph.pl, inferno and Speedscope read.
    #
    # A `;` in a name becomes `:`, as the collapsers of other profilers have it, and a newline `\n`.
    class Stackcollapse
      include Printing

      # @param profile [Profile]
      def initialize(profile)
        @profile = profile
      end

      # @param io [#puts]
      # @return [void]
      # @raise [Error] when the profile holds no single stacks
      def write(io)
        names = Hash.new { |hash, id| hash[id] = line(@profile.frame(id).name).tr(";", ":") }
        @profile.stacks.each_ids { |ids, weight| io.puts "#{ids.map { |id| names[id] }.join(";")} #{weight}" }
      end
    end
  end
end
