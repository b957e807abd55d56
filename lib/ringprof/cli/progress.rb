# frozen_string_literal: true

module RingProf
  module CLI
    # Tells somebody at a terminal what takes so long: on one line of stderr that is gone in the end.
    class Progress
      # Seconds without a word.
      SILENCE = 1.0
      # Bytes of a profile that take about so long to read.
      MUCH = 16 * 1024 * 1024
      private_constant :SILENCE, :MUCH

      # @param io [IO]
      def initialize(io = $stderr)
        @io = io
        @since = now
        @shown = false
      end

      # @param what [String]
      # @param bytes [Integer] so many are about to be read at once
      # @return [void]
      def tell(what, bytes: 0)
        return unless @io.tty? && (now - @since > SILENCE || bytes > MUCH)

        @shown = true
        @io.write("\r\e[K#{what} ...")
      end

      # @return [void]
      def done
        @io.write("\r\e[K") if @shown
        @shown = false
      end

      private

      def now
        Process.clock_gettime(Process::CLOCK_MONOTONIC)
      end
    end
  end
end
