# frozen_string_literal: true

require "ringprof/profile"
require "ringprof/report"

module RingProf
  module CLI
    # `ringprof report FILE`: prints a profile that was kept.
    class ReportCommand < Command
      command "report", "print the report of a profile"

      private

      def banner
        <<~TEXT
          Usage: ringprof report FILE [options]
                 ringprof FILE [options]

          Prints where the samples fell: SAMPLES with the frame on top of the stack, TOTAL with the
          frame anywhere in it. FILE is what `ringprof run --out FILE` or RingProf.results("FILE")
          wrote, or a dump of StackProf's, in Marshal's format or JSON.
          Open only files that you trust: Marshal runs code of their choosing.

          Examples:
            ringprof report prof.dump
            ringprof prof.dump --sort-total --limit 10

          Options:
        TEXT
      end

      def define(parser)
        define_report(parser)
      end

      def perform(arguments)
        usage "name one profile file" unless arguments.length == 1

        print_report(arguments.first)
        0
      end
    end
  end
end
