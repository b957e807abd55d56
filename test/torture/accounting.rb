# frozen_string_literal: true

module Torture
  # What every profile must hold, whatever was profiled.
  class Accounting
    # Part of the time, and number of intervals, by which sums may be off.
    TOLERANCE = 0.01
    INTERVALS = 3
    # Seconds that a busy machine may take between two statements of `start`.
    SLACK = 0.005

    # How many ticks became something.
    def self.told(stats) = stats[:recorded] + stats[:coalesced][:total] + stats[:lost][:total]

    # Every tick that was received is told of.
    def self.balanced?(stats) = stats[:received] == told(stats)

    # What RingProf says of itself once that is settled: a handler on another thread, which has lost the CPU, may be between
    # two counters.
    def self.settled_stats
      stats = RingProf.stats
      1000.times do
        break if balanced?(stats)

        sleep 0.01
        stats = RingProf.stats
      end
      stats
    end

    # @param options [Hash] of the start
    # @param whole [Boolean] nothing but the clock made samples, and no tick was kept from its thread
    def initialize(options, stats, results, whole: true)
      @options = options
      @stats = stats
      @results = results
      @whole = whole
    end

    # @raise [Broken]
    def check
      check_ticks
      check_samples
      check_raw if @results.key?(:raw)
      check_time if @whole && @options[:mode] == :wall
    end

    private

    def check_ticks
      equal @stats[:received], self.class.told(@stats), "recorded, coalesced and lost ticks add up to those received"
      equal 0, @stats[:lost][:invalid], "every VALUE is a frame"
      equal 0, @stats[:drains][:corrupt], "every record is one of ours"
      equal @stats[:missed_samples], @results[:missed_samples], "missed samples"
    end

    def check_samples
      frames = @results[:frames]
      equal @results[:samples], frames.each_value.sum { |frame| frame[:samples] }, "each sample has one leaf"
      broken "a frame without a name" unless frames.each_value.all? { |frame| frame[:name].is_a?(String) && frame[:file].is_a?(String) }
      broken "gc_samples" unless (0..@results[:samples]).cover?(@results[:gc_samples])
    end

    def check_raw
      raw = @results[:raw]
      weights = 0
      position = 0
      while position < raw.length
        depth = raw[position]
        stack = raw[position + 1, depth]
        broken "raw names an unknown frame" unless stack.all? { |id| @results[:frames].key?(id) }
        weights += raw[position + 1 + depth]
        position += depth + 2
      end
      equal @results[:samples], weights, "the weights in raw"
      equal @results[:samples], @results[:raw_sample_timestamps].length, "timestamps"
      equal @results[:samples], @results[:raw_timestamp_deltas].length, "deltas"
    end

    # In wall mode weights are the time of the thread that started the profile, up to its last tick. When that was, only
    # raw tells: on a busy machine the tick thread may not get its turn before the profile ends.
    def check_time
      told = @results[:samples] + @results[:missed_samples]
      last = @results.key?(:raw) ? @results[:raw_timestamp_deltas].sum / 1e6 : 0
      least = intervals(last * (1 - TOLERANCE) - SLACK) - INTERVALS
      most = intervals(@stats[:elapsed_ns] / 1e9 * (1 + TOLERANCE)) + INTERVALS
      return if (least..most).cover?(told)

      broken "#{told} intervals were told of, but the time makes #{least.round} to #{most.round}"
    end

    def intervals(seconds) = seconds * 1e6 / @options[:interval]

    def equal(expected, actual, what)
      broken "#{what}: #{actual} instead of #{expected}" unless expected == actual
    end

    def broken(text)
      raise Broken, "#{text}\n#{@options}\n#{@stats}"
    end
  end
end
