# frozen_string_literal: true

require "test_helper"
require "support/accounting_assertions"

# Threads that come, go, wait and wake in great numbers, under ticks as dense as there are.
class ThreadStormsTest < RingProf::TestCase
  include AccountingAssertions

  SETTINGS = %i[wall cpu].product(%i[thread timer]).freeze

  SETTINGS.each do |mode, tick|
    options = { mode: mode, tick: tick, interval: 20, raw: true }.freeze

    define_method(:"test_births_and_deaths_#{mode}_#{tick}") do
      sums = nil
      profile_accounted(options) do
        sums = Array.new(8) { |number| Thread.new { 40.times.sum { Thread.new { ended(number) }.value } } }.map(&:value)
      end
      assert_equal Array.new(8) { |number| 40 * number }, sums
      assert_equal 0, RingProf.stats[:threads], "every thread's place was given back"
    end

    define_method(:"test_queues_#{mode}_#{tick}") do
      received = nil
      profile_accounted(options) { received = through_queues(4, 500) }
      assert_equal (0...2000).to_a, received.sort, "each item came once"
    end

    define_method(:"test_mutexes_and_conditions_#{mode}_#{tick}") do
      count = nil
      profile_accounted(options) { count = by_turns(6, 60) }
      assert_equal 360, count
    end

    define_method(:"test_wakeups_#{mode}_#{tick}") do
      woken = nil
      profile_accounted(options) { woken = wake(4, 200) }
      assert_equal [200] * 4, woken
    end
  end

  def test_threads_that_die_of_everything
    profile_accounted({ mode: :cpu, interval: 20, raw: true }) do
      50.times do
        threads = [
          Thread.new { raise "fails" },
          Thread.new { throw :nowhere },
          Thread.new { Thread.exit },
          Thread.new { sleep },
          Thread.new { loop { burn_slice } }
        ]
        threads.each { |thread| thread.report_on_exception = false }
        threads.last(2).each(&:kill)
        threads.each { |thread| assert_raises(RuntimeError, UncaughtThrowError) { thread.join && raise("ended well") } }
      end
    end
    assert_equal 0, RingProf.stats[:threads]
  end

  private

  def ended(number)
    [number].each { |one| return one if one == number }
  end

  def through_queues(threads, items)
    first = Queue.new
    second = SizedQueue.new(3)
    movers = Array.new(threads) { Thread.new { nil while (item = first.pop) && second.push(item) } }
    writers = Array.new(threads) { |number| Thread.new { items.times { |item| first << number * items + item } } }
    received = Array.new(threads * items) { second.pop }
    writers.each(&:join)
    first.close
    movers.each(&:join)
    received
  end

  # Each waits for its turn.
  def by_turns(threads, rounds)
    lock = Mutex.new
    changed = ConditionVariable.new
    turn = 0
    players = Array.new(threads) do |number|
      Thread.new do
        rounds.times do
          lock.synchronize do
            changed.wait(lock) until turn % threads == number
            turn += 1
            changed.broadcast
          end
        end
      end
    end
    players.each(&:join)
    turn
  end

  def wake(threads, times)
    counts = Array.new(threads, 0)
    sleepers = Array.new(threads) do |number|
      Thread.new do
        while counts[number] < times
          Thread.stop
          counts[number] += 1
        end
      end
    end
    while sleepers.any?(&:alive?)
      sleepers.each { |sleeper| sleeper.wakeup if sleeper.stop? && sleeper.alive? }
      Thread.pass
    end
    counts
  rescue ThreadError
    # It ended between the question and the call.
    retry
  end
end
