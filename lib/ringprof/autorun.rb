# frozen_string_literal: true

# Profiles this process from here to its end: `ruby -rringprof/autorun script.rb`. The command
# `ringprof run` loads it into the command's Ruby through RUBYOPT.
#
# | variable | meaning |
# | --- | --- |
# | `RINGPROF_MODE` | `wall` (default), `cpu`, `object`, `custom` |
# | `RINGPROF_INTERVAL` | microseconds, or allocations in object mode |
# | `RINGPROF_RAW`, `RINGPROF_IGNORE_GC` | on when set and neither empty nor `0` |
# | `RINGPROF_TICK` | `auto` (default), `thread`, `timer` |
# | `RINGPROF_OUT` | file to write; default `ringprof-PID.dump` in the current directory |
#
# A file that cannot be written is replaced by one in the directory for temporary files, and a line on
# stderr says so. Where the system refuses what a profile needs, the program runs without one.
#
# The profile is written by `at_exit`: also after `exit 3`, an uncaught exception, or a signal that
# Ruby turns into an exception. `exit!`, `exec` and SIGKILL lose it. Forked children write nothing.

module RingProf
  # The work of `require "ringprof/autorun"`. Nothing but RingProf itself is loaded, so that the
  # program keeps its choice of gem versions.
  module Autorun
    class << self
      # Starts the profiler and leaves the rest to `at_exit`; ends the process when that fails.
      #
      # @return [void]
      def arm
        @session = ENV.fetch("RINGPROF_SESSION", nil)
        return if @session && !claim

        require "ringprof"
        start
      rescue ArgumentError, LoadError => e
        abort "ringprof: #{e.message}"
      rescue Error, SystemCallError => e
        say "no profile: #{e.message}"
      end

      private

      # `ringprof run` profiles one process: whoever creates the file first is it, and remains it
      # after an exec. Every other Ruby of the command loads this file too and goes its way.
      def claim
        path = File.join(@session, "claim")
        File.open(path, File::WRONLY | File::CREAT | File::EXCL) { |file| file.write(Process.pid) }
        true
      rescue Errno::EEXIST
        File.read(path).to_i == Process.pid
      rescue SystemCallError
        # The session is over: we are what the command left running.
        false
      end

      def start
        @out = File.expand_path(setting("OUT") || "ringprof-#{Process.pid}.dump")
        @metadata = {}
        RingProf.start(**options)
        pid = Process.pid
        at_exit { finish if Process.pid == pid }
      end

      def options
        interval = setting("INTERVAL")
        {
          mode: (setting("MODE") || "wall").to_sym,
          interval: interval && Integer(interval, 10),
          raw: flag("RAW"),
          ignore_gc: flag("IGNORE_GC"),
          tick: (setting("TICK") || "auto").to_sym,
          on_failure: :warn,
          metadata: @metadata
        }
      end

      def setting(name)
        value = ENV.fetch("RINGPROF_#{name}", "")
        value unless value.empty?
      end

      def flag(name)
        ![nil, "0"].include?(setting(name))
      end

      def finish
        keep
      rescue Error, NoMemoryError => e
        say "no profile: #{e.message}"
      end

      def keep
        RingProf.stop
        @metadata[:ringprof] = { version: VERSION, ruby: RUBY_DESCRIPTION, program: $PROGRAM_NAME, stats: RingProf.stats.to_h }
        write
      end

      def write
        [@out, *substitutes].each do |path|
          return say("no profile: the program read the results itself") unless dump(path)

          return path == @out ? written : written_elsewhere(path)
        rescue SystemCallError, IOError, NoMemoryError, Error => e
          say "cannot write the profile: #{e.message}"
        end
      end

      # The disk is full, or the directory is gone: anywhere else is better than nowhere.
      def substitutes
        [ENV.fetch("TMPDIR", "/tmp"), "/var/tmp", "."].map { |directory| File.join(directory, "ringprof-#{Process.pid}.dump") }
      end

      # Another's file is written over only where the user named it.
      def dump(path)
        target = path == @out ? path : File.open(path, File::WRONLY | File::CREAT | File::EXCL | File::BINARY, 0o600)
        file = RingProf.results(target)
        file&.close
        file
      end

      def written
        @session ? done("") : report("RingProf results dumped at: #{@out}")
      end

      def written_elsewhere(path)
        path = File.expand_path(path)
        say "the profile is in #{path}"
        done(path) if @session
      end

      # Tells `ringprof run` that there is a profile, and where, if it is not where it was to be.
      def done(path)
        File.write(File.join(@session, "done"), path)
      rescue SystemCallError => e
        say "cannot tell the command: #{e.message}"
      end

      def say(text)
        report("ringprof: #{text}")
      end

      # The program may have closed its stderr, or put anything in its place.
      def report(line)
        warn(line)
      rescue StandardError
        nil
      end
    end
  end
  private_constant :Autorun

  Autorun.arm
end
