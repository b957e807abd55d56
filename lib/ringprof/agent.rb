# frozen_string_literal: true

require "ringprof/agent/settings"

module RingProf
  # Profiles a process whose program knows nothing of it: the work of `require "ringprof/autorun"`.
  #
  # Law of the room: it lives inside of other people's programs. Nothing but RingProf itself is loaded,
  # so that the program keeps its choice of gem versions; nothing is raised into the program; what goes
  # wrong is one line on stderr.
  module Agent
    # Writes the profile before a process ends past its `at_exit`.
    module Exit
      # The arguments are those of `Kernel#exit!`.
      def exit!(...)
        Agent.finish
        super
      end
    end

    class << self
      # Starts the profiler, or what will start it, and leaves the rest to the end of the process; ends the
      # process when the settings make no sense.
      #
      # @return [void]
      def arm
        settings = Settings.new(ENV)
        return if @recorder || settings.off?

        load_profiler
        start(settings)
      rescue ArgumentError, LoadError => e
        abort "ringprof: #{e.message}"
      rescue Error, SystemCallError => e
        say "no profile: #{e.message}"
      end

      # Writes what there is. At the end of the process, once.
      #
      # @return [void]
      def finish
        @control&.close
        @recorder&.finish
        @toggle&.close
      rescue Error, SystemCallError, NoMemoryError => e
        say "no profile: #{e.message}"
      end

      # @param text [String]
      # @return [void]
      def say(text)
        report("ringprof: #{text}")
      end

      # The program may have closed its stderr, or put anything in its place.
      #
      # @param line [String]
      # @return [void]
      def report(line)
        warn(line)
      rescue StandardError
        nil
      end

      private

      # Before this Ruby is known to be able to, nothing else of ours is loaded.
      def load_profiler
        require "ringprof"
        require "ringprof/agent/files"
        require "ringprof/agent/recorder"
      end

      def start(settings)
        files = Files.claim(settings) or return
        recorder = Recorder.new(settings.options, files)
        # First of all: its thread is not to be sampled.
        open_control(settings, recorder)
        open_toggle(settings, recorder)
        @recorder = recorder
        follow_children(settings)
        watch_exits
        # Last of all: what we do ourselves is nothing to look at.
        recorder.start unless settings.waits?
      rescue StandardError
        @control&.close
        raise
      end

      def open_control(settings, recorder)
        return unless settings.socket

        require "ringprof/agent/control"
        @control = Control.new(settings.socket, recorder, own: recorder.first?)
        @control.open
      end

      def open_toggle(settings, recorder)
        return unless settings.toggle

        require "ringprof/agent/toggle"
        @toggle = Toggle.new(settings.toggle, recorder)
        @toggle.open
      end

      # The control thread goes first here too.
      def follow_children(settings)
        Restart.in_child do |heir|
          @recorder.forked(heir: heir)
          attempt { @control&.forked }
          attempt { @recorder.start_over }
        end
        RingProf.restart_after_fork = true unless settings.alone?
      end

      def attempt
        yield
      rescue StandardError => e
        say "process #{Process.pid}: #{e.message}"
      end

      def watch_exits
        at_exit { finish }
        Kernel.prepend(Exit.clone.module_eval { private(:exit!) and self })
        [Kernel, Process].each { |owner| owner.singleton_class.prepend(Exit) }
      end
    end
  end
  private_constant :Agent
end
