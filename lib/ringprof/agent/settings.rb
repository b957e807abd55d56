# frozen_string_literal: true

module RingProf
  module Agent
    # What the environment says, checked. Names and defaults are in `ringprof/autorun`.
    class Settings
      MODES = %w[wall cpu cpu_and_wall object custom].freeze
      THREADS = %w[all current].freeze
      TICKS = %w[auto thread timer].freeze
      private_constant :MODES, :THREADS, :TICKS

      # @param environment [#fetch]
      def initialize(environment)
        @environment = environment
      end

      # @return [Boolean] nothing is to be done
      def off?
        @environment.fetch("RINGPROF", nil) == "0"
      end

      # @return [Boolean] the profile is started later, by a signal or over the socket
      def waits?
        setting("").nil? && (toggle || socket) ? true : false
      end

      # @return [Boolean] children are not profiled
      def alone?
        setting("CHILDREN") == "0"
      end

      # @return [Hash] for `RingProf.start`
      # @raise [ArgumentError]
      def options
        {
          mode: one_of("MODE", MODES), threads: threads, interval: number("INTERVAL") { |text| Integer(text, 10) },
          raw: flag("RAW"), ignore_gc: flag("IGNORE_GC"), tick: one_of("TICK", TICKS),
          max_overhead: number("MAX_OVERHEAD") { |text| Float(text) },
          max_memory: number("MAX_MEMORY") { |text| Integer(text, 10) }, on_failure: :warn
        }.compact
      end

      # @return [String, nil] the path that was asked for
      def out
        setting("OUT")
      end

      # @return [String, nil] the directory of `ringprof run`
      def session
        setting("SESSION")
      end

      # @return [String, nil] a signal's name
      def toggle
        setting("TOGGLE")
      end

      # @return [String, nil]
      def socket
        setting("SOCKET")
      end

      private

      # A thread of ours starts the profile then, and is not the one that was meant.
      def threads
        threads = one_of("THREADS", THREADS)
        return threads unless threads == :current && socket

        raise ArgumentError, "RINGPROF_THREADS=current does not go with RINGPROF_SOCKET"
      end

      def one_of(name, choices)
        value = setting(name) || choices.first
        return value.to_sym if choices.include?(value)

        raise ArgumentError, "RINGPROF_#{name}=#{value}: must be #{choices[0..-2].join(", ")} or #{choices.last}"
      end

      def number(name)
        value = setting(name)
        value && yield(value)
      rescue ArgumentError
        raise ArgumentError, "RINGPROF_#{name}=#{value}: must be a number"
      end

      def flag(name)
        ![nil, "0"].include?(setting(name))
      end

      def setting(name)
        value = @environment.fetch(name.empty? ? "RINGPROF" : "RINGPROF_#{name}", "")
        value unless value.empty?
      end
    end
  end
end
