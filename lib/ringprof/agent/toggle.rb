# frozen_string_literal: true

module RingProf
  module Agent
    # Starts and ends the profile by a signal.
    #
    # The trap runs on the main thread. A signal that the program handles, now or later, is the program's.
    class Toggle
      # @param name [String] `USR2` or `SIGUSR2`
      # @param recorder [Recorder]
      def initialize(name, recorder)
        @name = name.delete_prefix("SIG")
        @recorder = recorder
      end

      # @return [void]
      # @raise [ArgumentError] when there is no such signal, or somebody has it
      def open
        raise ArgumentError, "RINGPROF_TOGGLE=#{@name}: is the profiler's own" if @name == "PROF"

        @handler = proc { toggle }
        previous = trap(@name, @handler)
        return if [nil, "DEFAULT", "SYSTEM_DEFAULT"].include?(previous)

        trap(@name, previous)
        raise ArgumentError, "is handled already"
      rescue ArgumentError, SystemCallError => e
        raise ArgumentError, e.message.start_with?("RINGPROF") ? e.message : "RINGPROF_TOGGLE=#{@name}: #{e.message}"
      end

      # Tells whoever wondered why nothing happened.
      #
      # @return [void]
      def close
        current = trap(@name, @handler)
        return if current.equal?(@handler)

        trap(@name, current)
        Agent.say "RINGPROF_TOGGLE=#{@name} is of no use here: the program handles that signal"
      rescue ArgumentError
        nil
      end

      private

      def toggle
        return if @recorder.toggle

        # The control thread is at it, and cannot be waited for in here.
        Thread.new do
          sleep 0.05
          Process.kill(@name, Process.pid)
        end
      end
    end
  end
end
