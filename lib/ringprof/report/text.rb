# frozen_string_literal: true

require "ringprof/report/printing"

module RingProf
  module Report
    # The flat report: one line per frame, as StackProf prints it.
    #
    #     ==================================
    #       Mode: wall(1000)
    #       Samples: 1982 (0.00% miss rate)
    #       GC: 92 (4.64%)
    #       Running: 1200 (60.54%)
    #       Waiting for the GVL: 90 (4.54%)
    #       Blocked: 600 (30.27%)
    #       Elapsed: 1.98 s, capture: direct, tick: thread
    #     ==================================
    #          TOTAL    (pct)     SAMPLES    (pct)     FRAME
    #           1890  (95.4%)        1204  (60.7%)     Object#fib
    class Text
      include Printing

      RULE = ("=" * 34).freeze
      HEADER = "     TOTAL    (pct)     SAMPLES    (pct)     "
      STATE_HEADER = "   RUNNING   WAITING   BLOCKED     "
      STATES = { running: "Running", waiting: "Waiting for the GVL", blocked: "Blocked" }.freeze
      private_constant :RULE, :HEADER, :STATE_HEADER, :STATES

      # @param profile [Profile]
      # @param limit [Integer, nil] number of frames; 0 or nil for all
      # @param sort_total [Boolean] order by total samples and not by samples on top
      # @param states [Boolean] tell for each frame what its threads were doing in its total samples
      # @param modeline [String, nil] what is said of the mode, if not its name and interval
      def initialize(profile, limit: 30, sort_total: false, states: false, modeline: nil)
        @profile = profile
        @limit = limit
        @sort_total = sort_total
        @states = states
        @modeline = modeline || default_modeline
      end

      # @param io [#puts]
      # @return [void]
      def write(io)
        io.puts RULE, *head, RULE, "#{HEADER}#{STATE_HEADER if @states}FRAME"
        rows.each { |frame| io.puts row(frame) }
      end

      private

      def head
        [
          "  Mode: #{line(@modeline)}",
          format("  Samples: %d (%.2f%% miss rate)", @profile.samples, 100 * @profile.miss_rate),
          format("  GC: %d (%.2f%%)", @profile.gc_samples, 100 * @profile.share(@profile.gc_samples)),
          *states,
          *folded,
          session
        ].compact
      end

      # What threads were doing, where not all of them ran all of the time.
      def states
        states = @profile.states
        return [] if states[:waiting].zero? && states[:blocked].zero?

        STATES.map { |state, name| format("  %s: %d (%.2f%%)", name, states[state], 100 * @profile.share(states[state])) }
      end

      # What the bound on memory has cost.
      def folded
        { "Folded into their callers (max_memory)": @profile.folded_samples,
          "Not in raw (max_memory)": @profile.raw_omitted_samples }.filter_map do |name, samples|
          format("  %s: %d (%.2f%%)", name, samples, 100 * @profile.share(samples)) if samples.positive?
        end
      end

      def default_modeline
        @profile.interval ? "#{@profile.mode}(#{@profile.interval})" : @profile.mode.to_s
      end

      # How the profile came about: only where `ringprof run` noted it in the metadata.
      def session
        noted = @profile.metadata[:ringprof]
        stats = noted.is_a?(Hash) && noted[:stats]
        return nil unless stats.is_a?(Hash) && stats[:elapsed_ns].is_a?(Integer)

        parts = [format("Elapsed: %.2f s", stats[:elapsed_ns] / 1e9), "capture: #{stats[:capture]}"]
        parts << "tick: #{stats[:tick]}" if stats[:tick]
        "  #{parts.join(", ")}"
      end

      def rows
        first(@profile.frames(sort: @sort_total ? :total : :self), @limit)
      end

      def row(frame)
        format("%10d %8s  %10d %8s     %s%s", frame.total_samples, percent(frame.total_samples),
               frame.samples, percent(frame.samples), (states_of(frame) if @states), line(frame.name))
      end

      def states_of(frame)
        totals = STATES.keys.map { |state| frame.states&.dig(state, 0) }
        # Where nothing is said, all of them ran.
        totals = [frame.total_samples, 0, 0] unless totals.any?
        format("%10d%10d%10d     ", *totals.map(&:to_i))
      end
    end
  end
end
