# frozen_string_literal: true

require "optparse"

module RingProf
  module CLI
    # What the subcommands share. One declares itself with {.command} and writes `banner`,
    # `define(parser)` and `perform(arguments)`.
    class Command
      class << self
        # @return [String]
        attr_reader :command_name

        # @return [String] the line of `ringprof --help`
        attr_reader :summary

        private

        def command(name, summary)
          @command_name = name
          @summary = summary
          CLI.register(self)
        end
      end

      # @param argv [Array<String>] the command line after the command's name
      # @return [Integer] the exit status
      def call(argv)
        arguments = parse(argv)
        return puts(help) || 0 if @help

        perform(arguments)
      rescue OptionParser::ParseError => e
        usage e.message
      end

      # @return [String] the command's help text
      def help
        parser.help
      end

      private

      def parse(argv)
        parser.permute(argv)
      end

      def parser
        OptionParser.new do |parser|
          parser.banner = banner
          define(parser)
          parser.on("-h", "--help", "show this") { @help = true }
        end
      end

      # The options of every command that prints the text report.
      def define_report(parser)
        parser.on("--limit N", NonNegative, "frames to print, 0 for all (default 30)") { |limit| report_options[:limit] = limit }
        parser.on("--sort-total", "order by TOTAL: time in the frame and in what it calls") { report_options[:sort_total] = true }
      end

      def report_options
        @report_options ||= {}
      end

      def print_report(path)
        Report::Text.new(read(path), **report_options).write($stdout)
      end

      def read(path)
        Profile.load(path)
      rescue SystemCallError => e
        raise Failure, "cannot read #{path}: #{e.class.new.message}"
      end

      def usage(message)
        name = self.class.command_name
        raise Failure.new("#{name}: #{message} (see ringprof #{name} --help)", 2)
      end
    end

    # A number of things, from 0.
    NonNegative = Class.new
    private_constant :NonNegative
    OptionParser.accept(NonNegative, /\A\d+\z/) { |text| Integer(text, 10) }
  end
end
