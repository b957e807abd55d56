# frozen_string_literal: true

require "ringprof/report/printing"

module RingProf
  module Report
    # Source code with the samples of its lines beside it.
    #
    #        15   (75.0%) /     3  (15.0%)  |    11  | work_harder
    #                                       |    12  | end
    class Source
      include Printing

      UNAVAILABLE = "        SOURCE UNAVAILABLE"
      private_constant :UNAVAILABLE

      # @param profile [Profile]
      def initialize(profile)
        @profile = profile
        @old = profile.version == 1.0
      end

      # @param io [#puts]
      # @param file [String]
      # @param lines [Hash{Integer => Array(Integer, Integer)}, nil] samples, total and self
      # @param range [Range<Integer>, nil] of lines; nil for all
      # @return [void]
      def write(io, file, lines, range = nil)
        # A dump may name anything: what is no file, such as a terminal, is not waited for.
        return io.puts(UNAVAILABLE) unless ::File.file?(file)

        ::File.foreach(file, mode: "rb").with_index(1) do |code, number|
          break if range&.end && number > range.end
          next if range && !range.cover?(number)

          io.puts "#{counts(*lines&.[](number))}  | #{format("%5d", number)}  | #{line(code.chomp)}"
        end
      rescue SystemCallError, ArgumentError
        io.puts UNAVAILABLE
      end

      private

      def counts(total = nil, own = nil)
        return old_counts(own || total) if @old
        return " " * 32 unless total
        return format("%5d  %8s", total, percent(total)).ljust(32) if own.nil? || own.zero?

        format("%5d  %8s / %5d  %7s", total, percent(total), own, percent(own))
      end

      # Format 1.0 knows samples on top alone.
      def old_counts(own)
        own ? format("%5d %7s", own, percent(own)) : " " * 13
      end

      # Tabs are part of the code.
      def line(code)
        code.split("\t", -1).map { |part| super(part) }.join("\t")
      end
    end
  end
end
