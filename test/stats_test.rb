# frozen_string_literal: true

require "test_helper"

# What RingProf says of itself: every tick is accounted for.
class StatsTest < RingProf::TestCase
  def test_every_tick_is_accounted_for
    %i[wall cpu].product(%i[thread timer], [100, 2000]).each do |mode, tick, interval|
      RingProf.run(mode: mode, tick: tick, interval: interval) do
        burn_cpu(0.1)
        3.times { GC.start }
        Array.new(4) { Thread.new { burn_cpu(0.02) } }.each(&:join)
      end
      stats = RingProf.stats
      assert_operator stats[:received], :>, 0
      assert_accounted(stats)
      assert_equal tick, stats[:tick]
    end
  end

  def test_parts_sum_up_to_their_totals
    RingProf.run(mode: :cpu, interval: 100) { burn_cpu(0.1) }
    %i[coalesced lost].each do |part|
      counts = RingProf.stats[part]
      assert_equal counts[:total], counts.reject { |key, _| key == :total }.values.sum, part
    end
  end

  def test_samples_and_missed_samples_are_the_time
    { {} => 100, { buffer: 131_072 } => 50 }.each do |options, interval|
      results = RingProf.run(mode: :wall, interval: interval, raw: true, **options) do
        recurse(200) { burn_cpu(0.2) }
      end
      stats = RingProf.stats
      assert_equal stats[:missed_samples], results[:missed_samples]
      credited = results[:samples] + results[:missed_samples]
      assert_operator credited, :<=, stats[:elapsed_ns] / 1000 / interval + 1
      # From the first sample to the last: less than one interval off, at each of them.
      times = results[:raw_sample_timestamps]
      assert_in_delta (times.last - times.first).fdiv(interval), credited - 1, 2
    end
  end

  def test_drains_are_few
    RingProf.run(mode: :wall, interval: 100) { burn_cpu(0.5) }
    stats = RingProf.stats
    assert_operator stats[:drains][:count] * 10, :<, stats[:recorded]
    assert_equal 0, stats[:drains][:corrupt]
    assert_operator stats[:ring][:high_water_words], :<=, stats[:ring][:words]
  end

  def test_nothing_is_said_before_the_first_start
    script = <<~RUBY
      require "ringprof"
      stats = RingProf.stats
      p stats[:running], stats[:received], stats[:recorded], stats[:elapsed_ns], stats[:missed_samples]
    RUBY
    assert_equal "false\n0\n0\n0\n0\n", ruby!(script)
  end

  def test_they_can_be_read_while_running
    RingProf.start(mode: :cpu, interval: 500)
    burn_cpu(0.05)
    first = RingProf.stats
    burn_cpu(0.05)
    second = RingProf.stats
    assert_equal [true, :cpu], [first[:running], RingProf.stop && RingProf.results[:mode]]
    assert_operator second[:received], :>, first[:received]
    assert_operator second[:elapsed_ns], :>, first[:elapsed_ns]
    assert_equal RingProf.stats[:elapsed_ns], RingProf.stats[:elapsed_ns], "time stands still after the stop"
  end

  def test_a_start_begins_anew
    RingProf.run(mode: :wall, interval: 100) { burn_cpu(0.1) }
    RingProf.run(mode: :custom) { sample_here }
    stats = RingProf.stats
    assert_equal [0, nil], stats.values_at(:received, :tick)
    assert_equal 0, stats[:lost][:total]
  end

  def test_they_are_plain_data
    RingProf.run(mode: :wall) { nil }
    stats = RingProf.stats
    assert_equal stats, Marshal.load(Marshal.dump(stats))
    refute_empty JSON.generate(stats)
  end

  private

  def assert_accounted(stats)
    assert_equal stats[:received], stats[:recorded] + stats[:coalesced][:total] + stats[:lost][:total], stats.inspect
  end
end
