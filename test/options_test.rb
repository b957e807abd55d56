# frozen_string_literal: true

require "test_helper"

class OptionsTest < RingProf::TestCase
  def test_the_mode_is_wall_by_default
    [{}, { mode: nil }, { mode: false }].each do |options|
      RingProf.start(**options)
      RingProf.stop
      assert_equal :wall, RingProf.results[:mode]
    end
  end

  def test_modes_are_these_symbols
    %i[wall cpu object custom].each do |mode|
      assert_equal mode, RingProf.run(mode: mode) { nil }[:mode]
    end
    [:walls, "wall", 1, :""].each do |mode|
      error = assert_raises(ArgumentError, mode.inspect) { RingProf.start(mode: mode) }
      assert_equal "unknown profiler mode", error.message
      refute_predicate RingProf, :running?
    end
  end

  def test_default_intervals
    { wall: 1000, cpu: 1000, object: 1, custom: nil }.each do |mode, interval|
      results = RingProf.run(mode: mode) { nil }
      interval.nil? ? assert_nil(results[:interval]) : assert_equal(interval, results[:interval])
    end
  end

  def test_the_interval_is_kept_as_it_was_passed
    assert_equal 2000, RingProf.run(interval: 2000) { nil }[:interval]
    assert_equal 2, RingProf.run(mode: :object, interval: 2) { nil }[:interval]
    assert_equal 999_999, RingProf.run(interval: 999_999) { nil }[:interval]
    float = RingProf.run(interval: 1e6 / 101) { nil }[:interval]
    assert_instance_of Float, float
    assert_equal 1e6 / 101, float
    assert_nil RingProf.run(mode: :custom, interval: 5) { nil }[:interval]
    assert_equal 1000, RingProf.run(interval: nil) { nil }[:interval]
  end

  def test_intervals_out_of_range_are_refused_in_every_mode
    %i[wall cpu object custom].each do |mode|
      [-1, 0, 0.5, 1_000_000, 1_000_001].each do |interval|
        error = assert_raises(ArgumentError, "#{mode} #{interval}") { RingProf.start(mode: mode, interval: interval) }
        assert_equal "interval is a number of microseconds between 1 and 1 million", error.message
      end
    end
  end

  def test_intervals_that_are_no_numbers_are_refused
    assert_raises(TypeError) { RingProf.start(interval: "1000") }
    assert_raises(TypeError) { RingProf.start(interval: :often) }
    assert_raises(RangeError) { RingProf.start(interval: 2**70) }
    refute_predicate RingProf, :running?
  end

  def test_metadata_is_the_very_hash_that_was_passed
    metadata = { path: "/", time: 123 }
    assert_same metadata, RingProf.run(mode: :custom, metadata: metadata) { nil }[:metadata]
  end

  def test_metadata_is_an_empty_hash_by_default
    [{}, { metadata: nil }, { metadata: false }].each do |options|
      assert_equal({}, RingProf.run(mode: :custom, **options) { nil }[:metadata])
    end
  end

  def test_metadata_must_be_a_hash
    ["text", 1, [[1, 2]]].each do |metadata|
      error = assert_raises(ArgumentError) { RingProf.start(metadata: metadata) }
      assert_equal "metadata should be a hash", error.message
      refute_predicate RingProf, :running?
    end
  end

  def test_metadata_is_checked_first_then_the_interval_then_the_mode
    error = assert_raises(ArgumentError) { RingProf.start(mode: :bad, interval: 0, metadata: 3) }
    assert_equal "metadata should be a hash", error.message
    error = assert_raises(ArgumentError) { RingProf.start(mode: :bad, interval: 0) }
    assert_match(/microseconds/, error.message)
  end

  def test_unknown_options_are_ignored
    assert_equal 1, RingProf.run(mode: :custom, debug: true, threads: :all) { sample_here }[:samples]
  end

  def test_raw_keys_are_there_only_when_asked_for_and_filled
    refute(RingProf.run(mode: :custom) { sample_here }.key?(:raw))
    refute(RingProf.run(mode: :custom, raw: nil) { sample_here }.key?(:raw))
    refute(RingProf.run(mode: :custom, raw: true) { nil }.key?(:raw))
    results = RingProf.run(mode: :custom, raw: true) { sample_here }
    assert_equal ResultAssertions::RAW_KEYS, results.keys.last(4)
  end

  def test_only_a_literal_false_turns_aggregation_off
    [{}, { aggregate: nil }, { aggregate: true }].each do |options|
      frame = frame_named(RingProf.run(mode: :custom, **options) { sample_here }, "RingProf::TestCase#sample_here")
      assert frame.key?(:edges)
      assert frame.key?(:lines)
    end
    results = RingProf.run(mode: :custom, aggregate: false) { sample_here }
    results[:frames].each_value { |frame| assert_empty frame.keys & %i[edges lines] }
    assert_equal 1, frame_named(results, "RingProf::TestCase#sample_here")[:total_samples]
    assert_valid_results(results)
  end

  def test_raw_without_aggregation
    results = RingProf.run(mode: :custom, raw: true, aggregate: false) { sample_here }
    assert_valid_results(results)
    assert_equal 1, results[:raw].last
  end

  def test_ticks_have_three_sources
    %i[auto thread timer].each do |tick|
      results = RingProf.run(mode: :wall, tick: tick) { nil }
      assert_equal :wall, results[:mode]
    end
    error = assert_raises(ArgumentError) { RingProf.start(tick: :clock) }
    assert_equal "tick is :auto, :thread or :timer", error.message
    refute_predicate RingProf, :running?
  end

  def test_the_ring_has_a_size_in_bytes
    results = RingProf.run(mode: :custom, buffer: 131_072) { sample_here }
    assert_equal 1, results[:samples]
    [0, 131_071, -1, 2**30 + 1].each do |bytes|
      error = assert_raises(ArgumentError) { RingProf.start(buffer: bytes) }
      assert_match(/\Abuffer is a number of bytes between /, error.message)
      refute_predicate RingProf, :running?
    end
    assert_raises(TypeError) { RingProf.start(buffer: "big") }
  end

  def test_a_refused_start_leaves_the_former_profile
    RingProf.start(mode: :custom)
    sample_here
    RingProf.stop
    assert_raises(ArgumentError) { RingProf.start(mode: :nonsense) }
    results = RingProf.results
    assert_equal :custom, results[:mode]
    assert_equal 1, results[:samples]
  end
end
