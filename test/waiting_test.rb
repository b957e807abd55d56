# frozen_string_literal: true

require "test_helper"
require "support/accounting_assertions"
require "support/native_calls"

# A thread that waits, or that is in C for long: its time is counted, nothing is lost, and the wait is as long as it was asked to be.
class WaitingTest < RingProf::TestCase
  include AccountingAssertions

  SECONDS = 0.2
  OPTIONS = { mode: :wall, interval: 100, raw: true }.freeze
  # No drain comes while the thread waits, so what it may fill is bounded: the same stack again takes two words.
  WORDS_PER_TICK = 2

  # Each ends by itself after SECONDS, by the clock that the wait itself has.
  WAYS = {
    sleep: -> { sleep SECONDS },
    select: -> { IO.pipe.then { |ends| raise "readable" if IO.select(ends.take(1), nil, nil, SECONDS) } },
    queue: lambda do
      queue = Queue.new
      Thread.new { sleep(SECONDS) && queue << :item }
      raise "another item" unless queue.pop == :item
    end,
    join: -> { Thread.new { sleep SECONDS }.join },
    join_with_limit: -> { raise "ended" if Thread.new { sleep }.join(SECONDS) },
    condition: lambda do
      lock = Mutex.new
      condition = ConditionVariable.new
      lock.synchronize { condition.wait(lock, SECONDS) }
    end,
    process: -> { Process.wait(Process.spawn("sleep", SECONDS.to_s)) },
    read: -> { IO.popen(["sleep", SECONDS.to_s], &:read) },
    c_code: -> { NativeCalls.spin((SECONDS * 1000).to_i) },
    regexp: lambda do
      ends = Process.clock_gettime(Process::CLOCK_MONOTONIC) + SECONDS
      /(a?){26}a{26}/.match?("a" * 26) while Process.clock_gettime(Process::CLOCK_MONOTONIC) < ends
    end
  }.freeze

  WAYS.each do |way, wait|
    %i[thread timer].each do |tick|
      define_method(:"test_#{way}_is_counted_by_the_#{tick}") do
        elapsed = nil
        results, stats = profile_accounted({ **OPTIONS, tick: tick }) { elapsed = measure(&wait) }
        assert_operator elapsed, :>=, SECONDS, "the wait is not cut short"
        # Where no safepoint came before the wait there is no stack to credit, and the profile says so.
        missed = at_safepoints? ? results[:missed_samples] : 0
        assert_equal missed, results[:missed_samples]
        assert_nothing_lost(stats)
        assert_operator (results[:samples] + missed) * 1e-4, :>=, SECONDS * 0.95, "the time of the wait is in the profile"
      end
    end
  end

  def test_cpu_mode_counts_no_waiting
    results, stats = profile_accounted({ mode: :cpu, interval: 100, raw: true }) { sleep SECONDS }
    assert_operator results[:samples] * 1e-4, :<, SECONDS / 2
    assert_nothing_lost(stats)
  end

  def test_memory_stays_flat
    RingProf.start(**OPTIONS)
    # What is allocated at first is allocated.
    sleep SECONDS
    before = RingProf.stats
    sleep SECONDS
    after = RingProf.stats
    RingProf.stop
    assert_operator after[:received], :>, before[:received]
    assert_equal before[:ring][:words], after[:ring][:words]
    assert_operator after[:ring][:high_water_words], :<=, 1000 + WORDS_PER_TICK * after[:received], "a record of a sleeper is a repetition"
    assert_operator after[:tables][:nodes] - before[:tables][:nodes], :<, 200, "one stack, one context"
  end

  # A ring that fills up while nobody drains it folds equal stacks and stays exact.
  def test_a_wait_longer_than_the_ring_loses_nothing
    spin = -> { NativeCalls.spin(500) }
    results, stats = profile_accounted({ mode: :wall, interval: 20, raw: true, buffer: 131_072, tick: :timer }, &spin)
    assert_equal 0, results[:missed_samples], stats
  end

  private

  def measure
    began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    yield
    Process.clock_gettime(Process::CLOCK_MONOTONIC) - began
  end

  # A stack that is torn, or being written, passes its time on to the next tick.
  def assert_nothing_lost(stats)
    lost = stats[:lost].reject { |cause, _| %i[total torn seat_taken].include?(cause) }
    # The tick that waits for a safepoint when the profile ends.
    lost[:closed] -= 1 if at_safepoints? && lost[:closed] == 1
    assert_empty lost.select { |_, count| count.positive? }
  end
end
