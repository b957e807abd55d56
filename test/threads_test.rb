# frozen_string_literal: true

require "test_helper"

class ThreadsTest < RingProf::TestCase
  def test_cpu_mode_samples_every_thread
    results = RingProf.run(mode: :cpu, interval: 1000, raw: true) do
      [Thread.new { first_worker }, Thread.new { second_worker }].each(&:join)
    end
    assert_valid_results(results)
    %w[first_worker second_worker].each do |name|
      assert_operator frame_named(results, "ThreadsTest##{name}")[:total_samples], :>, 20
    end
  end

  def test_threads_that_ran_before_the_start_are_sampled_too
    go = Queue.new
    worker = Thread.new do
      go.pop
      first_worker
    end
    results = RingProf.run(mode: :cpu, interval: 1000, raw: true) do
      go << true
      worker.join
    end
    assert_operator frame_named(results, "ThreadsTest#first_worker")[:total_samples], :>, 20
    assert_valid_results(results)
  end

  def test_wall_mode_samples_the_thread_that_called_start
    results = RingProf.run(mode: :wall, interval: 1000, raw: true) do
      other = Thread.new { first_worker }
      second_worker
      other.join
    end
    assert_valid_results(results)
    refute_includes(results[:frames].each_value.map { |frame| frame[:name] }, "ThreadsTest#first_worker")
    assert_operator frame_named(results, "ThreadsTest#second_worker")[:total_samples], :>, 20
  end

  def test_a_thread_may_start_and_profile_itself
    results = Thread.new { RingProf.run(mode: :wall, interval: 1000, raw: true) { first_worker } }.value
    assert_valid_results(results)
    assert_operator frame_named(results, "ThreadsTest#first_worker")[:total_samples], :>, 20
  end

  def test_the_thread_that_started_may_end
    %i[wall cpu].each do |mode|
      Thread.new { RingProf.start(mode: mode, interval: 200) }.join
      burn_cpu(0.05)
      assert_equal true, RingProf.stop
      assert_valid_results(RingProf.results)
    end
  end

  def test_many_short_threads
    %i[wall cpu].product(%i[thread timer]).each do |mode, tick|
      results = RingProf.run(mode: mode, tick: tick, interval: 100, raw: true) do
        30.times { Array.new(10) { |number| Thread.new { number.to_s * 10 } }.each(&:join) }
      end
      assert_valid_results(results)
    end
  end

  def test_samples_of_many_threads_by_hand
    results = RingProf.run(mode: :custom, raw: true) do
      Array.new(8) { Thread.new { 50.times { sample_here } } }.each(&:join)
    end
    assert_equal 400, results[:samples]
    assert_valid_results(results)
  end

  def test_threads_that_start_and_stop_at_once
    starts = Array.new(8) { Thread.new { RingProf.start(mode: :cpu, interval: 500) } }.map(&:value)
    assert_equal 1, starts.count(true)
    stops = Array.new(8) { Thread.new { RingProf.stop } }.map(&:value)
    assert_equal 1, stops.count(true)
    reads = Array.new(8) { Thread.new { RingProf.results } }.map(&:value)
    assert_equal 1, reads.compact.length
  end

  def test_fibers_and_enumerators
    results = RingProf.run(mode: :wall, interval: 100, raw: true) do
      numbers = Enumerator.new { |yielder| 3000.times { |number| yielder << number } }
      fiber = Fiber.new { loop { Fiber.yield burn_slice } }
      2000.times do
        numbers.next
        fiber.resume
      end
    end
    assert_valid_results(results)
  end

  private

  def first_worker
    burn_cpu(0.2)
  end

  def second_worker
    burn_cpu(0.2)
  end
end
