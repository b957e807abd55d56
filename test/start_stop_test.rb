# frozen_string_literal: true

require "test_helper"
require "etc"

class StartStopTest < RingProf::TestCase
  stress_gc

  # Falling asleep and waking up takes a thread about as long as the shortest intervals.
  def test_where_ticks_come_from_when_nothing_is_asked
    skip "one processor: everything ticks by timer" if Etc.nprocessors < 2
    {
      { interval: 50 } => :thread, { interval: 49 } => :timer, { interval: 49, threads: :all } => :thread,
      { interval: 49, max_overhead: 0.5 } => :thread, { interval: 49, mode: :cpu } => :thread, { interval: 49, tick: :thread } => :thread
    }.each do |options, tick|
      RingProf.start(mode: :wall, **options)
      assert_equal tick, RingProf.stats[:tick], options.inspect
      RingProf.stop
      RingProf.results
    end
  end

  def test_start_and_stop_tell_whether_they_did_something
    refute_predicate RingProf, :running?
    assert_equal true, RingProf.start(mode: :custom)
    assert_predicate RingProf, :running?
    assert_equal false, RingProf.start(mode: :custom)
    assert_equal true, RingProf.stop
    refute_predicate RingProf, :running?
    assert_equal false, RingProf.stop
  end

  def test_start_looks_at_no_option_while_running
    RingProf.start(mode: :custom)
    assert_equal false, RingProf.start(mode: :nonsense, interval: "x", metadata: 3, out: Object.new)
  end

  def test_options_are_keywords
    error = assert_raises(ArgumentError) { RingProf.start({ mode: :custom }) }
    assert_equal "wrong number of arguments (given 1, expected 0)", error.message
    refute_predicate RingProf, :running?
  end

  def test_stop_and_sample_take_no_arguments
    assert_raises(ArgumentError) { RingProf.stop(1) }
    assert_raises(ArgumentError) { RingProf.sample(1) }
    assert_raises(ArgumentError) { RingProf.running?(1) }
  end

  def test_sample_only_counts_while_running
    assert_equal false, RingProf.sample
    RingProf.start(mode: :custom)
    assert_equal true, RingProf.sample
    RingProf.stop
    assert_equal false, RingProf.sample
    assert_equal 1, RingProf.results[:samples]
  end

  def test_run_returns_the_results_and_discards_the_value_of_the_block
    results = RingProf.run(mode: :custom) do
      sample_here
      :value
    end
    assert_equal 1, results[:samples]
    assert_valid_results(results)
  end

  def test_run_needs_a_block
    assert_raises(LocalJumpError) { RingProf.run(mode: :custom) }
    refute_predicate RingProf, :running?
  end

  def test_run_refuses_what_start_refuses_and_does_not_call_the_block
    assert_raises(ArgumentError) { RingProf.run(mode: :nonsense) { flunk } }
    refute_predicate RingProf, :running?
  end

  def test_an_exception_passes_through_run_and_leaves_the_profile
    error = assert_raises(RuntimeError) do
      RingProf.run(mode: :custom) do
        sample_here
        raise "passing through"
      end
    end
    assert_equal "passing through", error.message
    refute_predicate RingProf, :running?
    assert_equal 1, RingProf.results[:samples]
  end

  def test_every_way_out_of_the_block_stops
    catch(:out) { RingProf.run(mode: :custom) { throw :out } }
    refute_predicate RingProf, :running?
    run_and_return
    refute_predicate RingProf, :running?
    [1].each { RingProf.run(mode: :custom) { break } }
    refute_predicate RingProf, :running?
  end

  def test_a_nested_run_leaves_the_outer_one_alone
    inner = :unset
    outer = RingProf.run(mode: :custom) do
      sample_here
      inner = RingProf.run(mode: :cpu) { sample_here }
      assert_predicate RingProf, :running?
      sample_here
    end
    assert_nil inner
    assert_equal :custom, outer[:mode]
    assert_equal 3, outer[:samples]
  end

  def test_an_exception_in_a_nested_run_leaves_the_outer_one_alone
    outer = RingProf.run(mode: :custom) do
      assert_raises(RuntimeError) { RingProf.run { raise "inner" } }
      assert_predicate RingProf, :running?
      sample_here
    end
    assert_equal 1, outer[:samples]
  end

  def test_sessions_accumulate_until_they_are_read
    2.times do |round|
      RingProf.start(mode: :custom, metadata: { round: round })
      sample_here
      RingProf.stop
    end
    results = RingProf.results
    assert_equal 2, results[:samples]
    assert_equal({ round: 1 }, results[:metadata])
    assert_valid_results(results)
  end

  def test_a_read_profile_leaves_nothing_to_the_next
    2.times do
      results = RingProf.run(mode: :custom, raw: true) { sample_here }
      assert_equal 1, results[:samples]
      assert_valid_results(results)
    end
  end

  def test_any_thread_may_stop
    RingProf.start(mode: :custom)
    sample_here
    assert_equal true, Thread.new { RingProf.stop }.value
    assert_equal 1, RingProf.results[:samples]
  end

  def test_starting_and_stopping_many_times
    (GC.stress ? 8 : 200).times do |round|
      mode = %i[wall cpu object custom][round % 4]
      assert_equal true, RingProf.start(mode: mode, interval: 100), "round #{round}"
      assert_equal true, RingProf.stop, "round #{round}"
    end
    assert_instance_of Hash, RingProf.results
  end

  def test_results_are_nil_before_any_start
    assert_equal "nil", ruby!("require 'ringprof'; print RingProf.results.inspect")
  end

  def test_a_refused_start_leaves_no_results
    script = <<~RUBY
      require "ringprof"
      begin
        RingProf.start(mode: :nonsense)
      rescue ArgumentError
        print RingProf.results.inspect
      end
    RUBY
    assert_equal "nil", ruby!(script)
  end

  def test_postponed_job_can_be_asked_for
    script = <<~RUBY
      require "ringprof"
      require "support/work"
      print RingProf.use_postponed_job!.inspect
      results = RingProf.run(mode: :cpu, interval: 1000) { Work.burn_cpu(0.3) }
      print " ", results[:samples].positive?
    RUBY
    assert_equal "nil true", ruby!(script)
  end

  def test_still_running_at_exit_is_harmless
    %w[wall cpu object custom].each do |mode|
      script = <<~RUBY
        require "ringprof"
        RingProf.start(mode: :#{mode}, interval: 100)
        20_000.times { |number| number.to_s }
        print "done"
      RUBY
      assert_equal "done", ruby!(script)
    end
  end

  private

  def run_and_return
    RingProf.run(mode: :custom) { return }
  end
end
