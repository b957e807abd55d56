# frozen_string_literal: true

require "ringprof/errors"
require "ringprof/version"

module RingProf
  # The `ringprof` command: finds the subcommand, turns errors into one line and an exit status.
  module CLI
    # Ends the command with one line on stderr and an exit status.
    class Failure < Error
      # @return [Integer]
      attr_reader :status

      # @param message [String]
      # @param status [Integer] 1 for what went wrong, 2 for a command line that makes no sense
      def initialize(message, status = 1)
        super(message)
        @status = status
      end
    end

    # Subcommands by name, in the order of the help text. Each file under `cli/` adds its own.
    @commands = {}

    class << self
      # @return [Hash{String => Class}] subcommands by name
      attr_reader :commands

      # @param command [Class] a {Command} that has declared its name
      # @return [void]
      def register(command)
        @commands[command.command_name] = command
      end

      # Runs one command line.
      #
      # @param argv [Array<String>]
      # @return [Integer] the exit status
      def start(argv)
        status = run(argv)
        # Here and not at exit, where nobody would be told that the disk is full.
        $stdout.flush
        status
      rescue Failure => e
        complain(e.message, e.status)
      rescue Errno::EPIPE
        # The reader of our output went away, as in `ringprof report FILE | head`: nothing to say.
        status || 0
      rescue Error, SystemCallError, LoadError => e
        complain(e.message, 1)
      rescue Interrupt
        130
      end

      private

      def run(argv)
        case argv.first
        when nil, "-h", "--help", "help" then help(argv[1])
        when "-v", "--version" then puts("ringprof #{VERSION}") || 0
        else dispatch(argv)
        end
      end

      # `ringprof FILE` is `ringprof report FILE`.
      def dispatch(argv)
        name, *rest = argv
        return @commands[name].new.call(rest) if @commands.key?(name)
        return @commands["report"].new.call(argv) if name.start_with?("-") || File.exist?(name)

        raise Failure.new("no such command or file: #{name} (see ringprof --help)", 2)
      end

      def help(name)
        raise Failure.new("no such command: #{name} (see ringprof --help)", 2) if name && !@commands.key?(name)

        puts name ? @commands[name].new.help : overview
        0
      end

      def overview
        width = @commands.keys.map(&:length).max
        lines = @commands.map { |name, command| "  ringprof #{name.ljust(width)}  #{command.summary}" }
        <<~TEXT
          ringprof #{VERSION}: a sampling profiler for Ruby. Results are in StackProf's format.

          Commands:
          #{lines.join("\n")}
            ringprof FILE#{" " * (width - 4)}  the same as ringprof report FILE

          Examples:
            ringprof run -- ruby script.rb                  where does the time go?
            ringprof run --mode cpu -- rake test            the same, without waiting
            ringprof run --out prof.dump -- bin/rails r Job.perform   keep the profile
            ringprof prof.dump --sort-total                 look at it again

          ringprof COMMAND --help tells the options. In a program:
            require "ringprof"
            profile = RingProf.run(mode: :wall) { work }
        TEXT
      end

      def complain(message, status)
        warn "ringprof: #{message.lines.first.to_s.chomp}"
        status
      end
    end
  end
end

require "ringprof/cli/command"
require "ringprof/cli/run"
require "ringprof/cli/report"
require "ringprof/cli/diff"
require "ringprof/cli/merge"
require "ringprof/cli/convert"
require "ringprof/cli/top"
require "ringprof/cli/ask"
require "ringprof/cli/doctor"
require "ringprof/cli/completion"
