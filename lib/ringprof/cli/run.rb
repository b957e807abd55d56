# frozen_string_literal: true

require "fileutils"
require "ringprof/native"
require "ringprof/profile"
require "ringprof/report"
require "tmpdir"

module RingProf
  module CLI
    # `ringprof run -- command`: profiles the first Ruby of a command through `ringprof/autorun`.
    class RunCommand < Command
      command "run", "profile a command and print the report"

      MODES = %w[wall cpu object custom].freeze
      TICKS = %w[auto thread timer].freeze
      # Sent to us alone, meant for the command. The keyboard's signals reach the command by themselves.
      FORWARDED = %w[TERM HUP USR1 USR2].freeze
      KEYBOARD = %w[INT QUIT].freeze
      private_constant :MODES, :TICKS, :FORWARDED, :KEYBOARD

      def initialize
        super
        @settings = {}
      end

      private

      def banner
        <<~TEXT
          Usage: ringprof run [options] -- command [arguments]

          Runs the command, profiles the first Ruby in it, and prints a report when it ends. The
          exit status is the command's (128 + n when signal n killed it). Child processes of that
          Ruby are not profiled; exit! and SIGKILL lose the profile.

          Examples:
            ringprof run -- ruby script.rb
            ringprof run --mode cpu --interval 100 -- bundle exec rake
            ringprof run --raw --out prof.dump -- bin/rails runner Job.perform_now
            ringprof run --mode object --interval 10 -- ruby script.rb    every tenth allocation

          Options:
        TEXT
      end

      def define(parser)
        parser.on("--mode MODE", MODES, "wall (default): time, waiting included; cpu: time on the CPU;",
                  "object: allocations; custom: calls of RingProf.sample") { |mode| @settings["MODE"] = mode }
        parser.on("--interval N", NonNegative, "microseconds between samples (default 1000);",
                  "object mode: allocations (default 1)") { |interval| @settings["INTERVAL"] = checked(interval) }
        parser.on("--raw", "keep every single stack, with its time, for flame graphs") { @settings["RAW"] = "1" }
        parser.on("--ignore-gc", "credit garbage collection to the code that it interrupts") { @settings["IGNORE_GC"] = "1" }
        parser.on("--tick SOURCE", TICKS, "auto (default), thread, or timer: what keeps the time") { |tick| @settings["TICK"] = tick }
        parser.on("--out FILE", "keep the profile in FILE") { |file| @out = file }
        define_report(parser)
      end

      def checked(interval)
        return interval.to_s if interval.between?(1, 999_999)

        usage "--interval must be between 1 and 999999"
      end

      # What comes after the command's name is the command's.
      def parse(argv)
        parser.order(argv)
      end

      def perform(command)
        usage "name the command to profile after --" if command.empty?

        check_target
        Dir.mktmpdir("ringprof") do |session|
          dump = @out ? File.expand_path(@out) : File.join(session, "profile.dump")
          status = execute(environment(session, dump), command)
          report(session, dump, status)
        end
      end

      # Before the command has run for an hour.
      def check_target
        return unless @out

        directory = File.dirname(File.expand_path(@out))
        raise Error, "cannot write #{@out}: no directory #{directory}" unless File.directory?(directory)
        raise Error, "cannot write #{@out}: it is a directory" if File.directory?(@out)

        writable = File.exist?(@out) ? File.writable?(@out) : File.writable?(directory)
        raise Error, "cannot write #{@out}: permission denied" unless writable
      end

      # RUBYLIB may hold paths with spaces, RUBYOPT may not.
      def environment(session, dump)
        Native.load
        paths = [Native.directory, File.expand_path("../..", __dir__), ENV.fetch("RUBYLIB", nil)].compact.uniq
        @settings.transform_keys { |name| "RINGPROF_#{name}" }.merge(
          "RUBYLIB" => paths.join(File::PATH_SEPARATOR),
          "RUBYOPT" => ["-rringprof/autorun", ENV.fetch("RUBYOPT", nil)].compact.join(" "),
          "RINGPROF_OUT" => dump,
          "RINGPROF_SESSION" => session
        )
      end

      def execute(environment, command)
        program, *arguments = command
        pid = nil
        traps = trap_signals { |signal| Process.kill(signal, pid) if pid }
        # The pair keeps a lone command with spaces in its name away from the shell.
        pid = Process.spawn(environment, [program, program], *arguments)
        _pid, status = Process.wait2(pid)
        status.signaled? ? 128 + status.termsig : status.exitstatus
      rescue Errno::ENOENT, Errno::EACCES => e
        raise Failure.new("cannot run #{program}: #{e.class.new.message}", e.is_a?(Errno::ENOENT) ? 127 : 126)
      ensure
        traps&.each { |signal, handler| trap(signal, handler) }
      end

      # We outlive the command, whatever ends it, to print its report. What is ignored (nohup) stays
      # so: the command inherits that, but not a handler.
      def trap_signals
        handlers = FORWARDED.to_h { |signal| [signal, proc { yield signal }] }
        handlers.merge!(KEYBOARD.to_h { |signal| [signal, proc {}] })
        handlers.to_h do |signal, handler|
          previous = trap(signal, handler)
          trap(signal, previous) if previous == "IGNORE"
          [signal, previous]
        end
      end

      # The session says whether FILE is of this run: it may have been there before.
      def report(session, dump, status)
        done = File.join(session, "done")
        if File.exist?(done)
          elsewhere = File.read(done)
          print_report(elsewhere.empty? ? dump : elsewhere)
          status
        else
          warn "ringprof: no profile: the command ran no Ruby, or its Ruby ended by exit! or SIGKILL"
          status.zero? ? 1 : status
        end
      end
    end
  end
end
