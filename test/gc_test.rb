# frozen_string_literal: true

require "test_helper"

class GcTest < RingProf::TestCase
  def setup
    super
    @ballast = garbage
  end

  def test_garbage_collection_is_told_apart
    results = RingProf.run(mode: :wall, interval: 100, raw: true) { collect }
    assert_valid_results(results)
    assert_operator results[:gc_samples], :>, 0
    assert_operator results[:samples], :>=, results[:gc_samples]

    frames = results[:frames]
    assert_equal ["(garbage collection)", "(marking)", "(sweeping)"], [1, 3, 5].map { |id| frames.fetch(id)[:name] }
    assert_equal results[:gc_samples], frames[1][:total_samples]
    assert_equal results[:gc_samples], [1, 3, 5].sum { |id| frames[id][:samples] }
    [1, 3, 5].each do |id|
      assert_equal "", frames[id][:file]
      refute frames[id].key?(:line)
      refute frames[id].key?(:lines)
    end
    assert_operator results[:missed_samples], :<=, 25
  end

  def test_phases_stand_under_the_collection_and_alone
    results = RingProf.run(mode: :wall, interval: 100, raw: true) { collect }
    stacks = raw_groups(results).map(&:ids).select { |ids| ids.first == 1 }
    assert_empty stacks.uniq - [[1], [1, 3], [1, 5]]
    assert_empty(raw_groups(results).reject { |group| group.ids.first == 1 }.select { |group| (group.ids & [1, 3, 5]).any? })
    raw_groups(results).select { |group| group.ids.first == 1 }.each { |group| assert_equal [0], group.lines.uniq }
  end

  def test_ignore_gc_credits_the_code_that_was_interrupted
    results = RingProf.run(mode: :wall, interval: 100, raw: true, ignore_gc: true) { collect }
    assert_valid_results(results)
    assert_equal 0, results[:gc_samples]
    assert_empty results[:frames].keys & [1, 3, 5]
    assert_operator frame_named(results, "GcTest#collect")[:total_samples], :>, results[:samples] / 2
  end

  def test_time_in_gc_is_not_lost
    started = Process.clock_gettime(Process::CLOCK_MONOTONIC, :microsecond)
    results = RingProf.run(mode: :wall, interval: 200, raw: true) { collect }
    elapsed = Process.clock_gettime(Process::CLOCK_MONOTONIC, :microsecond) - started
    assert_operator results[:raw_timestamp_deltas].sum, :>, elapsed / 2
    assert_operator results[:raw_timestamp_deltas].sum, :<=, elapsed
  end

  def test_garbage_under_way_is_harmless
    results = RingProf.run(mode: :cpu, interval: 100, raw: true) do
      20.times { |number| Class.new { define_method(:"m#{number}") { 200.times { "#{number}" * 3 } } }.new.public_send(:"m#{number}") }
      GC.start
    end
    assert_valid_results(results)
  end

  def test_compaction_moves_nothing_that_is_sampled
    skip "no compaction here" unless GC.respond_to?(:compact)
    RingProf.start(mode: :custom, raw: true)
    3.times do |number|
      singleton_class.class_eval("def moved_#{number}; RingProf.sample; end", __FILE__, __LINE__)
      public_send(:"moved_#{number}")
      GC.compact
    end
    RingProf.stop
    GC.compact
    results = RingProf.results
    3.times { |number| frame_named(results, /\.moved_#{number}\z/) }
    assert_valid_results(results)
  end

  private

  # Marks the ballast and sweeps as much again, so that ticks fall into every phase.
  def collect
    5.times do
      garbage
      GC.start
    end
  end
end
