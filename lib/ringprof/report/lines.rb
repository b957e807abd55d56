# frozen_string_literal: true

require "ringprof/report/printing"

module RingProf
  module Report
    # The flat report by line: where in a method its samples fell.
    #
    #          TOTAL    (pct)     SAMPLES    (pct)     LINE
    #             15  (75.0%)           3  (15.0%)     App#work /app/main.rb:11
    class Lines
      include Printing

      HEADER = "     TOTAL    (pct)     SAMPLES    (pct)     LINE"
      Row = Struct.new(:frame, :line, :total, :own)
      private_constant :HEADER, :Row

      # @param profile [Profile]
      # @param limit [Integer, nil] number of lines; 0 or nil for all
      # @param sort_total [Boolean] order by total samples and not by samples on top
      def initialize(profile, limit: 30, sort_total: false)
        @profile = profile
        @limit = limit
        @sort_total = sort_total
      end

      # @param io [#puts]
      # @return [void]
      def write(io)
        io.puts HEADER
        first(sorted, @limit).each { |row| io.puts text(row) }
      end

      private

      def sorted
        rows.each_with_index.sort_by { |row, index| [-(@sort_total ? row.total : row.own), index] }.map(&:first)
      end

      # A frame without lines (a C function, garbage collection) is a line of its own.
      def rows
        @profile.frames.flat_map do |frame|
          next [Row.new(frame, nil, frame.total_samples, frame.samples)] unless frame.lines

          frame.lines.map do |line, (total, own)|
            # Format 1.0 has one number: samples on top.
            Row.new(frame, line, own ? total : 0, own || total)
          end
        end
      end

      def text(row)
        place = [line(row.frame.file), row.line].reject { |part| part.to_s.empty? }.join(":")
        format("%10d %8s  %10d %8s     %s", row.total, percent(row.total), row.own, percent(row.own),
               [line(row.frame.name), place].reject(&:empty?).join(" "))
      end
    end
  end
end
