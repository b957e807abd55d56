# frozen_string_literal: true

require "fileutils"
require "ringprof/cli/live"
require "ringprof/cli/session"
require "ringprof/cli/summary"
require "ringprof/native"
require "ringprof/profile"
require "ringprof/report"
require "tmpdir"

module RingProf
  module CLI
    # `ringprof run -- command`: profiles the Rubies of a command through `ringprof/autorun`.
    class RunCommand < Command
      command "run", "profile a command and tell what it came to"

      MODES = %w[wall cpu cpu_and_wall object custom].freeze
      THREADS = %w[all current].freeze
      TICKS = %w[auto thread timer].freeze
      # Sent to us alone, meant for the command. The keyboard's signals reach the command by themselves.
      FORWARDED = %w[TERM HUP USR1 USR2].freeze
      KEYBOARD = %w[INT QUIT].freeze
      # Frames of the summary.
      TOP = 5
      private_constant :MODES, :THREADS, :TICKS, :FORWARDED, :KEYBOARD, :TOP

      def initialize
        super
        @settings = {}
      end

      private

      def banner
        <<~TEXT
          Usage: ringprof run [options] -- command [arguments]

          Runs the command with every Ruby in it profiled, forked children and Rubies that it starts
          included. When it ends, a summary goes to stderr; stdout is the command's own. The exit status
          is the command's (128 + n when signal n killed it). Only exec, SIGKILL and a crash lose a profile.

          Examples:
            ringprof run -- ruby script.rb
            ringprof run --report -- ruby script.rb                      the whole list of frames, on stdout
            ringprof run --mode cpu --interval 100 -- bundle exec rake
            ringprof run --raw --out prof.dump -- bin/rails runner Job.perform_now
            ringprof run --live --out prof.dump -- bundle exec puma      and elsewhere: ringprof top
            ringprof run --mode object --interval 10 -- ruby script.rb   every tenth allocation

          Options:
        TEXT
      end

      def define(parser)
        define_sampling(parser)
        parser.on("--out FILE", "keep the profile in FILE, those of children in FILE.PID") { |file| @out = file }
        parser.on("--live[=SOCKET]", "answer `ringprof top` and `ringprof ask` while it runs") { |path| @live = path || :default }
        parser.on("--toggle SIGNAL", "do not start until the process gets SIGNAL (USR2); stop at the next") { |name| @settings["TOGGLE"] = name }
        parser.on("--no-children", "leave out forked children and Rubies that the command starts") { @settings["CHILDREN"] = "0" }
        parser.on("--report", "print the whole report on stdout in the end") { @report = true }
        parser.on("--quiet", "no summary") { @quiet = true }
        define_report(parser)
      end

      def define_sampling(parser)
        parser.on("--mode MODE", MODES, "wall (default): time, waiting included; cpu: time on the CPU;", "cpu_and_wall: both;",
                  "object: allocations; custom: calls of RingProf.sample") { |mode| @settings["MODE"] = mode }
        parser.on("--interval N", NonNegative, "microseconds between samples (default 1000);",
                  "object mode: allocations (default 1)") { |interval| @settings["INTERVAL"] = checked(interval) }
        parser.on("--threads WHICH", THREADS, "all (default), or current: the main thread alone") { |threads| @settings["THREADS"] = threads }
        parser.on("--raw", "keep every single stack, with its time, for flame graphs") { @settings["RAW"] = "1" }
        parser.on("--ignore-gc", "credit garbage collection to the code that it interrupts") { @settings["IGNORE_GC"] = "1" }
        parser.on("--max-overhead SHARE", Float, "of the time that profiling may take, as 0.02") { |share| @settings["MAX_OVERHEAD"] = share.to_s }
        parser.on("--max-memory BYTES", Integer, "that the tables may take; then new stacks are folded into",
                  "their callers") { |bytes| @settings["MAX_MEMORY"] = bytes.to_s }
        parser.on("--tick SOURCE", TICKS, "auto (default), thread, or timer: what keeps the time") { |tick| @settings["TICK"] = tick }
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
        usage "--threads current does not go with --live" if @live && @settings["THREADS"] == "current"

        check_target
        Dir.mktmpdir("ringprof") do |directory|
          from = now
          status = execute(environment(directory), command)
          @elapsed = now - from
          conclude(Session.new(directory), status)
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

      # RUBYLIB may hold paths with spaces, RUBYOPT may not. A session that we are in ourselves is not the
      # command's.
      def environment(directory)
        Native.load
        paths = [Native.directory, File.expand_path("../..", __dir__), ENV.fetch("RUBYLIB", nil)].compact.uniq
        given = @settings.transform_keys { |name| "RINGPROF_#{name}" }
        {
          "RINGPROF" => @settings.key?("TOGGLE") ? nil : "1", "RINGPROF_OWNER" => nil, "RINGPROF_TOGGLE" => nil,
          "RINGPROF_SOCKET" => socket, **given,
          "RUBYLIB" => paths.join(File::PATH_SEPARATOR),
          "RUBYOPT" => ["-rringprof/autorun", ENV.fetch("RUBYOPT", nil)].compact.join(" "),
          "RINGPROF_OUT" => @out ? File.expand_path(@out) : File.join(directory, "profile.dump"),
          "RINGPROF_SESSION" => directory
        }
      end

      def socket
        return nil unless @live
        return File.expand_path(@live) unless @live == :default

        File.join(Live.make_directory, "%p.sock")
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

      # We outlive the command, whatever ends it, to tell what it came to. What is ignored (nohup) stays
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

      # The session says which files are of this run: they may have been there before.
      def conclude(session, status)
        files = session.files
        if files.any?
          profile, runs = add_up(files)
          summarize(profile, runs, files) unless @quiet
          Report::Text.new(profile, **report_options).write($stdout) if @report
          status
        else
          warn "ringprof: no profile: #{@settings.key?("TOGGLE") ? "nobody started one" : "the command ran no Ruby, or its Ruby ended by exec or SIGKILL"}"
          status.zero? ? 1 : status
        end
      end

      # @return [Array(Profile, Array<Hash>)]
      def add_up(files)
        runs = []
        profile = sum(files) { |part| runs << (part.metadata[:ringprof] || {}) }
        [profile, runs.uniq { |run| run[:pid] || run.object_id }]
      end

      def summarize(profile, runs, files)
        times = Process.times
        limit = report_options.fetch(:limit, TOP)
        Summary.new(profile, runs: runs, elapsed: @elapsed, cpu: [times.cutime, times.cstime], limit: limit,
                             sort_total: report_options[:sort_total]).write($stderr)
        $stderr.puts "", *closing(files), ""
      rescue Errno::EPIPE
        nil
      end

      def closing(files)
        return " --out FILE would have kept the profile, --report printed it" unless @out || @report
        return [] unless @out

        more = files.length > 1 ? " and #{files.length - 1} more beside it (ringprof merge adds them up)" : ""
        " the profile is in #{files.first}#{more}: ringprof report #{files.first}"
      end

      def now
        Process.clock_gettime(Process::CLOCK_MONOTONIC)
      end
    end
  end
end
