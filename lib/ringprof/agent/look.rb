# frozen_string_literal: true

module RingProf
  module Agent
    # What the control socket tells, in lines.
    module Look
      class << self
        # @param recorder [Recorder]
        # @return [Array<String>] `name value`
        def status(recorder)
          options = recorder.options
          values = {
            ringprof: VERSION, ruby: RUBY_DESCRIPTION, pid: Process.pid, program: $PROGRAM_NAME,
            recording: recorder.recording ? true : false, mode: options[:mode], threads: options[:threads], raw: options[:raw]
          }
          values.map { |name, value| "#{name} #{clean(value)}" }
        end

        # @param recorder [Recorder]
        # @return [Array<String>]
        def stats(recorder)
          gaps = recorder.gaps
          RingProf.stats.to_prometheus.lines(chomp: true) + [
            "# HELP ringprof_gaps_total Looks at the running profile",
            "# TYPE ringprof_gaps_total counter",
            "ringprof_gaps_total #{gaps[:count]}",
            "# HELP ringprof_gap_seconds_total Time that was not sampled while the profile was looked at",
            "# TYPE ringprof_gap_seconds_total counter",
            "ringprof_gap_seconds_total #{gaps[:total_ns] / 1e9}"
          ]
        end

        # Those with the most samples on top of the stack, those with the most anywhere in it, and those that are
        # not blocked most.
        #
        # @param recorder [Recorder]
        # @param count [Integer]
        # @return [Array<String>] `name value`; `frame SELF TOTAL BLOCKED-SELF BLOCKED-TOTAL NAME`, tab, file, tab, line
        def top(recorder, count)
          part, stats = recorder.look
          head(part, stats, recorder).map { |name, value| "#{name} #{clean(value)}" } + frames(part, count)
        end

        private

        def head(part, stats, recorder)
          states = (part[:states] || {}).transform_keys { |state| "state_#{state}" }
          {
            pid: Process.pid, program: $PROGRAM_NAME, mode: part[:mode], interval: part[:interval], elapsed_ns: stats[:elapsed_ns],
            cost_ns: stats[:cost_ns], gap_ns: recorder.gaps[:total_ns], threads: (part[:threads] || []).length,
            **part.slice(:samples, :gc_samples, :missed_samples), **states
          }
        end

        def frames(part, count)
          frames = part[:frames].values.map { |frame| [frame, numbers(frame)] }
          orders = [0, 1].flat_map { |index| [->((_frame, counts)) { counts[index] }, ->((_frame, counts)) { counts[index] - counts[index + 2] }] }
          chosen = orders.flat_map { |order| frames.max_by(count, &order) }.uniq(&:object_id)
          chosen.map do |frame, numbers|
            "frame #{numbers.join(" ")} #{[frame[:name], frame[:file], frame[:line]].map { |value| clean(value) }.join("\t")}"
          end
        end

        def numbers(frame)
          blocked_total, blocked = frame.dig(:states, :blocked) || [0, 0]
          [frame[:samples], frame[:total_samples], blocked, blocked_total]
        end

        # A line is a line, and a tab stands between two things.
        def clean(value)
          value.to_s.gsub(/[\t\r\n]/, " ")
        end
      end
    end
  end
end
