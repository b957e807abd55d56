# frozen_string_literal: true

require "test_helper"

# Threads that sleep here and there, and run a little in between: what a server's threads do.
class WorkerSleepersTest < RingProf::TestCase
  TURNS = 150

  def setup
    super
    skip_at_safepoints
  end

  # By their own clocks. Hardly anything lies between two sleeps, and yet nearly every one is seen.
  def test_sleeps_in_a_row_are_told_apart
    slept = nil
    results = RingProf.run(mode: :wall, interval: 1000, threads: :all, raw: true) { slept = Thread.new { sleep_in_turns(TURNS) }.value }
    assert_valid_results(results)
    seen = stack_names(results).filter_map { |names| names.grep(/#(short|long)_sleep\z/).first }.chunk { |name| name }.count
    assert_operator seen, :>, TURNS, "sleeps, of #{2 * TURNS}"
    told = slept.to_h { |way, _| [way, frame_named(results, "WorkerSleepersTest##{way}")[:total_samples] * 1e-3] }
    slept.each { |way, seconds| assert_in_delta 1.0, told[way] / seconds, 0.2, "#{told} of #{slept}" }
  end

  # No tick finds a thread that surely has the GVL, so that before 3.3 none may ask for a drain: collections do. From 3.3
  # on those ask that come back. Each thread's frames have a line of their own, or little of a stack would be news.
  def test_a_ring_that_sleepers_fill_is_drained
    RingProf.run(mode: :wall, interval: 1000, threads: :all, buffer: 131_072) do
      sleepers = Array.new(10) do |number|
        recurse = eval("recurse = ->(depth, work) { depth.zero? ? work.call : recurse.call(depth - 1, work) }", binding, "recurse.rb", 1 + number)
        Thread.new { recurse.call(100, -> { 150.times { sleep 0.01 } }) }
      end
      while RUBY_VERSION < "3.3" && sleepers.any?(&:alive?)
        GC.start(full_mark: false, immediate_sweep: false)
        sleep 0.02
      end
      sleepers.each(&:join)
    end
    stats = RingProf.stats
    assert_operator stats[:drains][:requested], :>, 0, "nobody has asked for a drain"
    assert_operator stats[:drains][:count], :>, 1
    assert_operator stats[:drains][:records], :>, 1000
  end

  private

  def sleep_in_turns(times)
    slept = { short_sleep: 0.0, long_sleep: 0.0 }
    times.times do
      slept.each_key { |way| slept[way] += clocked { send(way) } }
    end
    slept
  end

  def short_sleep
    sleep 0.003
  end

  def long_sleep
    sleep 0.005
  end
end
