# frozen_string_literal: true

require "ringprof/report/printing"

module RingProf
  module Report
    # One line for each file: the samples of its lines, total and self.
    #
    #        30  (150.0%) /     3  ( 15.0%)   /app/main.rb
    #
    # A total may be more than all: a sample counts for each line of the file that is on its stack.
    class Files
      include Printing

      # @param profile [Profile]
      # @param limit [Integer, nil] number of files; 0 or nil for all
      # @param sort_total [Boolean] order by total samples and not by samples on top
      def initialize(profile, limit: 30, sort_total: false)
        @profile = profile
        @limit = limit
        @sort_total = sort_total
      end

      # @param io [#puts]
      # @return [void]
      def write(io)
        first(sorted, @limit).each do |file, total, own|
          io.puts format("%5d  (%5.1f%%) / %5d  (%5.1f%%)   %s", total, 100 * @profile.share(total), own, 100 * @profile.share(own), line(file))
        end
      end

      private

      def sorted
        sums = @profile.files.map { |file, lines| [file, *lines.each_value.reduce([0, 0]) { |sum, counts| [sum[0] + counts[0], sum[1] + counts[1]] }] }
        sums.each_with_index.sort_by { |(_file, total, own), index| [-(@sort_total ? total : own), index] }.map(&:first)
      end
    end
  end
end
