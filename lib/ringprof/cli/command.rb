# frozen_string_literal: true

require "optparse"
require "ringprof/cli/progress"

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

      # @return [Array<String>] how it is called, a line each
      def synopsis
        paragraphs.first.map { |line| line.delete_prefix("Usage:").strip }
      end

      # @return [Array<Array<String>>] what it does: paragraphs of lines
      def prose
        paragraphs.drop(1).reject { |paragraph| paragraph.first.match?(/\A(Examples|Options):/) }
      end

      # @return [Array<String>]
      def examples
        (paragraphs.find { |paragraph| paragraph.first.start_with?("Examples:") } || []).drop(1).map(&:strip)
      end

      # @return [Array<Switch>]
      def switches
        parser.top.list.grep(OptionParser::Switch).map do |switch|
          choices = switch.pattern.is_a?(Hash) && switch.arg ? switch.pattern.keys : nil
          Switch.new(switch.long.first, switch.short.first, switch.arg&.strip, switch.desc.join(" "), choices)
        end
      end

      # An option, for those who write about it: `--long`, `-s`, its argument, what it does, and the values
      # that it may have where they are few.
      Switch = Struct.new(:long, :short, :argument, :text, :choices) do
        # @return [String] as it is typed
        def title
          [short, long].compact.join(", ") + (argument.nil? || argument.start_with?("[") ? argument.to_s : " #{argument}")
        end
      end

      private

      def paragraphs
        banner.split(/\n{2,}/).map { |paragraph| paragraph.lines(chomp: true) }
      end

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

      # Several profiles as one.
      #
      # @yieldparam profile [Profile] each of them, as it was read
      # @return [Profile]
      def sum(paths)
        progress = Progress.new
        paths.each_with_index.reduce(nil) do |whole, (path, index)|
          progress.tell("reading #{path} (#{index + 1} of #{paths.length})", bytes: File.size?(path).to_i)
          profile = read(path)
          yield profile if block_given?
          whole ? add_profile(whole, profile, path) : profile
        end
      ensure
        progress&.done
      end

      def add_profile(whole, profile, path)
        whole + profile
      rescue Error, ArgumentError => e
        raise Failure, "cannot add #{path}: #{e.message}"
      end

      # Writes a file whole or not at all: what was there before stays until all is written.
      #
      # @param path [String] `-` for stdout
      def save(path)
        return $stdout.binmode && yield($stdout) if path == "-"
        raise Failure, "cannot write #{path}: Is a directory" if File.directory?(path)

        special = File.exist?(path) && !File.file?(path)
        partial = special ? path : "#{path}.#{Process.pid}.part"
        File.open(partial, "wb") { |file| yield file }
        File.rename(partial, path) unless special
      rescue Errno::EPIPE
        raise
      rescue SystemCallError => e
        raise Failure, "cannot write #{path}: #{e.class.new.message}"
      ensure
        File.unlink(partial) if partial && !special && File.exist?(partial)
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
