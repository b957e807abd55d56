# frozen_string_literal: true

require "ringprof/profile"

module RingProf
  module Report
    # The profile as `RingProf.results(path)` writes it: to keep what was merged or filtered.
    class Dump
      # @param profile [Profile]
      def initialize(profile)
        @profile = profile
      end

      # @param io [#write]
      # @return [void]
      def write(io)
        @profile.dump(io)
      end
    end
  end
end
