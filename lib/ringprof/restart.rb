# frozen_string_literal: true

module RingProf
  # Profiles forked children like their parent: each starts anew, empty, with the options of the parent's
  # start, and its own file. What has an `out:` path is written there when the process ends, unless
  # somebody has read it before.
  module Restart
    # Seen by every fork that Ruby offers: fork, IO.popen("-"), Kernel#fork with a block.
    module Fork
      def _fork
        options = Restart.options
        pid = super
        Restart.begin(options, heir: false) if pid.zero?
        pid
      end

      # Not done by way of _fork. Only the child returns.
      def daemon(...)
        options = Restart.options
        result = super
        Restart.begin(options, heir: true)
        result
      end
    end

    @enabled = false
    @installed = false
    @in_child = nil
    # The path that the first of a family of processes was given, and that which this one has.
    @first = @own = nil

    class << self
      # @return [Boolean]
      attr_reader :enabled

      # @param on [Boolean]
      # @return [void]
      def enabled=(on)
        @enabled = on ? true : false
        install if @enabled && !@installed
      end

      # The options that a child is to start with; nil when it is not to start.
      #
      # @return [Hash, nil]
      def options
        Native.options if @enabled && RingProf.running?
      end

      # Has something done in every child before its profile starts, whether or not one is.
      #
      # @yieldparam heir [Boolean] the child takes the parent's place, which is gone
      # @return [void]
      def in_child(&block)
        @in_child = block
        install unless @installed
      end

      # In the child.
      #
      # @param options [Hash, nil] the parent's, if it is to start
      # @param heir [Boolean]
      # @return [void]
      def begin(options, heir:)
        @in_child&.call(heir)
        start(options) if options
      end

      # At the end of the process.
      #
      # @return [void]
      def finish
        return unless @enabled && own?(Native.out)

        RingProf.stop
        RingProf.results&.close
      rescue StandardError => e
        warn "ringprof: cannot write the profile of process #{Process.pid}: #{e.message}"
      end

      private

      def start(options)
        out = options[:out]
        metadata = options[:metadata]
        RingProf.start(**options, out: out && own(out), metadata: metadata && metadata.dup)
      rescue StandardError => e
        # The child's own business goes on.
        warn "ringprof: process #{Process.pid} is not profiled: #{e.message}"
      end

      def install
        @installed = true
        Process.singleton_class.prepend(Fork)
        at_exit { finish }
      end

      # The path that the first of the family was given, with the child's id. An IO is shared with the parent;
      # two profiles in it would be none.
      def own(out)
        return nil unless own?(out)

        @first = File.path(out) unless out.equal?(@own)
        @own = "#{@first}.#{Process.pid}"
      end

      def own?(out)
        out && !out.respond_to?(:to_io)
      end
    end
  end
  private_constant :Restart
end
