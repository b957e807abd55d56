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
        RingProf.stop
        @metadata[:ringprof] = { version: VERSION, ruby: RUBY_DESCRIPTION, program: $PROGRAM_NAME, stats: RingProf.stats }
        write
      end

      def write
        file = RingProf.results(@out)
        return warn("ringprof: no profile: the program read the results itself") unless file

        file.close
        @session ? File.write(File.join(@session, "done"), "") : warn("RingProf results dumped at: #{@out}")
      rescue SystemCallError => e
        warn "ringprof: cannot write the profile: #{e.message}"
      end
    end
  end
  private_constant :Autorun

  Autorun.arm
end
