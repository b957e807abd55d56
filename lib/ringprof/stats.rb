# frozen_string_literal: true

module RingProf
  # What the profiler knows of itself: the Hash of `RingProf.stats`, which can be scraped.
  #
  # Every tick is accounted for: `received == recorded + coalesced[:total] + lost[:total]`.
  class Stats < Hash
    # Single numbers: name, kind, path in the Hash, what divides it, help.
    NUMBERS = [
      ["running", "gauge", %i[running], nil, "1 while a profile is being taken"],
      ["elapsed_seconds", "counter", %i[elapsed_ns], 1e9, "Time profiled"],
      ["cost_seconds_total", "counter", %i[cost_ns], 1e9, "Time that profiling has cost: handlers, pauses, drains, tick thread"],
      ["interval_seconds", "gauge", %i[interval_ns], 1e9, "Time between two ticks in force"],
      ["threads", "gauge", %i[threads], nil, "Threads being sampled"],
      ["threads_skipped_total", "counter", %i[threads_skipped], nil, "Threads that could not be sampled"],
      ["ticks_sent_total", "counter", %i[sent], nil, "Ticks sent by the tick thread"],
      ["ticks_late_total", "counter", %i[late], nil, "Deadlines that the tick thread slept through"],
      ["ticks_received_total", "counter", %i[received], nil, "Ticks that reached a handler"],
      ["ticks_recorded_total", "counter", %i[recorded], nil, "Ticks that became a record of their own"],
      ["missed_samples_total", "counter", %i[missed_samples], nil, "Intervals that were credited to no stack"],
      ["pauses_credited_total", "counter", %i[pauses credited], nil, "Pauses off the GVL credited when the thread came back"],
      ["tick_thread_cpu_seconds_total", "counter", %i[tick_thread cpu_ns], 1e9, "CPU time of the tick thread"],
      ["ring_words", "gauge", %i[ring words], nil, "Words that the ring holds"],
      ["ring_high_water_words", "gauge", %i[ring high_water_words], nil, "Most words that the ring ever held"],
      ["tables_bytes", "gauge", %i[tables bytes], nil, "Memory of the tables"],
      ["tables_nodes", "gauge", %i[tables nodes], nil, "Distinct calling contexts"],
      ["folded_samples_total", "counter", %i[tables folded], nil, "Samples folded into their callers, for max_memory was reached"]
    ].freeze
    # Counts by reason: name, key, help.
    REASONS = [
      ["ticks_coalesced_total", :coalesced, "Ticks whose time went to the thread's next record"],
      ["ticks_lost_total", :lost, "Ticks without a record for a reason that one would rather not see"]
    ].freeze
    # Times: name, key, help.
    TIMES = [
      ["handler_seconds", :handler, "Time in the signal handler"],
      ["drain_seconds", :drains, "Time in drains"]
    ].freeze
    private_constant :NUMBERS, :REASONS, :TIMES

    # The stats in Prometheus' text exposition format, version 0.0.4.
    #
    # @example In a Rack application
    #   [200, { "content-type" => "text/plain; version=0.0.4" }, [RingProf.stats.to_prometheus]]
    #
    # @return [String]
    def to_prometheus
      [*numbers, *reasons, *times].join
    end

    private

    def numbers
      NUMBERS.map do |name, kind, path, divisor, help|
        value = dig(*path)
        value = value ? 1 : 0 if [true, false, nil].include?(value)
        metric(name, kind, help, [["", {}, divisor ? value / divisor : value]])
      end
    end

    def reasons
      REASONS.map do |name, key, help|
        counts = self[key].reject { |reason, _count| reason == :total }
        metric(name, "counter", help, counts.map { |reason, count| ["", { reason: reason }, count] })
      end
    end

    def times
      TIMES.map do |name, key, help|
        times = self[key]
        buckets = times[:histogram].map { |ns, count| ["_bucket", { le: ns / 1e9 }, count] }
        count = times[:histogram].values.last || 0
        metric(name, "histogram", help,
               [*buckets, ["_bucket", { le: "+Inf" }, count], ["_sum", {}, times[:total_ns] / 1e9], ["_count", {}, count]])
      end
    end

    def metric(name, kind, help, samples)
      lines = ["# HELP ringprof_#{name} #{help}", "# TYPE ringprof_#{name} #{kind}"]
      samples.each do |suffix, labels, value|
        labels = labels.map { |key, label| "#{key}=\"#{label}\"" }.join(",")
        lines << "ringprof_#{name}#{suffix}#{"{#{labels}}" unless labels.empty?} #{value}"
      end
      lines.map { |line| "#{line}\n" }.join
    end
  end
end
