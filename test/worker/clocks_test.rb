# frozen_string_literal: true

require "test_helper"

# CPU time beside elapsed time, the budget, ticks without drift.
class WorkerClocksTest < RingProf::TestCase
  def test_both_clocks_in_one_recording
    skip_at_safepoints
    cpu = nil
    results = RingProf.run(mode: :cpu_and_wall, interval: 200, raw: true) do
      before = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID)
      sleep 0.2
      burn_cpu(0.2)
      cpu = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) - before
    end
    assert_valid_results(results)
    assert_equal :cpu_and_wall, results[:mode]
    elapsed = RingProf.stats[:elapsed_ns] / 200_000
    main = results[:threads].find { |thread| thread[:main] }
    assert_in_delta elapsed, main[:samples] + results[:missed_samples], 3
    assert_in_delta cpu / 200e-6, main[:cpu_samples], 0.02 * main[:cpu_samples] + 3
    sleeping = results[:frames].each_value.find { |frame| frame[:name].match?(/\AKernel[.#]sleep\z/) }
    burning = frame_named(results, "Work#burn_cpu")
    assert_operator sleeping[:samples], :>, 900
    assert_operator sleeping[:cpu_samples], :<, 100
    assert_operator burning[:cpu_total_samples], :>, 900
    assert_equal results[:cpu_samples], results[:frames].each_value.sum { |frame| frame[:cpu_samples] }
    assert_equal results[:cpu_samples], results[:raw_cpu_weights].sum
  end

  def test_both_clocks_of_every_thread
    skip_at_safepoints
    results = RingProf.run(mode: :cpu_and_wall, interval: 500) do
      sleeper = Thread.new do
        Thread.current.name = "sleeper"
        sleep 0.1
      end
      burner = Thread.new do
        Thread.current.name = "burner"
        burn_cpu(0.1)
      end
      [sleeper, burner].each(&:join)
    end
    cpu = results[:threads].to_h { |thread| [thread[:name], thread[:cpu_samples]] }
    assert_in_delta 200, cpu["burner"], 8
    assert_operator cpu["sleeper"], :<, 20
    assert_equal results[:cpu_samples], (results[:threads].sum { |thread| thread[:cpu_samples] })
  end

  def test_a_budget_stretches_the_interval_and_keeps_the_time
    results = RingProf.run(mode: :wall, interval: 20, max_overhead: 0.02) do
      recurse(200) { burn_cpu(1.5) }
    end
    stats = RingProf.stats
    assert_operator stats[:intervals].size, :>, 1
    assert_operator stats[:intervals].last[:interval_ns], :>, 60_000
    assert_equal stats[:intervals].map { |pace| pace[:since_ns] }.sort, (stats[:intervals].map { |pace| pace[:since_ns] })
    credited = results[:samples] + results[:missed_samples]
    assert_in_delta 1.0, credited * 20_000.0 / stats[:elapsed_ns], 0.01
  end

  def test_a_budget_that_suffices_changes_nothing
    RingProf.run(mode: :wall, interval: 100_000, max_overhead: 0.5) { burn_cpu(0.3) }
    assert_equal [100_000_000], (RingProf.stats[:intervals].map { |pace| pace[:interval_ns] })
  end

  def test_options_that_are_refused
    {
      { max_overhead: 0 } => /max_overhead/, { max_overhead: 2 } => /max_overhead/, { max_overhead: -0.1 } => /max_overhead/,
      { max_overhead: 0.02, tick: :timer } => /tick thread/, { threads: :some } => /threads is :all or :current/,
      { max_memory: 1 } => /max_memory is a number of bytes/, { max_memory: -5 } => /max_memory/
    }.each do |options, message|
      error = assert_raises(ArgumentError, options.inspect) { RingProf.start(**options) }
      assert_match message, error.message
    end
    assert_raises(TypeError) { RingProf.start(max_overhead: "much") }
    refute_predicate RingProf, :running?
  end

  # Deadlines are absolute: lateness does not add up. Late ones are counted, not forgotten.
  def test_ticks_do_not_drift
    RingProf.run(mode: :wall, interval: 1000, tick: :thread) { burn_cpu(1.0) }
    stats = RingProf.stats
    due = stats[:elapsed_ns] / 1_000_000
    assert_in_delta due, stats[:rounds] + stats[:late], 2 + (0.01 * due)
  end
end
