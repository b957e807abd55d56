# frozen_string_literal: true

require "ringprof/report/source"

module RingProf
  module Report
    # Whole files with the samples of their lines.
    class File
      # @param profile [Profile]
      # @param filter [String, Regexp] a part of the path, as it is written, or a Regexp
      def initialize(profile, filter: //)
        @profile = profile
        @filter = filter.is_a?(Regexp) ? filter : Regexp.new(Regexp.escape(filter))
      end

      # @param io [#puts]
      # @return [void]
      def write(io)
        source = Source.new(@profile)
        matching.each { |file, lines| source.write(io, file, lines) }
      end

      private

      def matching
        files = @profile.files.select { |file, _lines| file.match?(@filter) }
        files.each_with_index.sort_by { |(_file, lines), index| [-lines.each_value.sum(&:last), index] }.map(&:first)
      end
    end
  end
end
