# frozen_string_literal: true

require "test_helper"

# `max_memory:`: beyond it new stacks are folded into their callers, counted, and no weight is lost.
class MemoryBoundTest < RingProf::TestCase
  BOUND = 1 << 20
  STACKS = 1 << 14

  # Every number below 2^14 is a stack of its own, that starts with `left` or `right` for its lowest bit.
  def left(number, depth) = go_on(number, depth)

  def right(number, depth) = go_on(number, depth)

  def go_on(number, depth)
    return RingProf.sample if depth.zero?

    number.odd? ? right(number >> 1, depth - 1) : left(number >> 1, depth - 1)
  end

  def each_stack
    STACKS.times { |number| go_on(number, 14) }
  end

  def test_without_a_bound_every_stack_has_its_place
    results, tables = profile { each_stack }
    assert_equal STACKS, results[:samples]
    refute results.key?(:folded_samples)
    assert_equal 0, tables[:folded]
    assert_operator tables[:bytes], :>, 2 * BOUND, "the bound below would bind nothing"
  end

  def test_beyond_the_bound_stacks_are_folded_into_their_callers
    results, tables, metrics = profile(max_memory: BOUND) { each_stack }
    assert_equal :folded_samples, results.keys.last
    assert_valid_results(results.reject { |key, _value| key == :folded_samples })
    assert_equal [STACKS, 0], results.values_at(:samples, :missed_samples)
    # Beside the stacks: two of the deepest stacks that there are.
    assert_operator tables[:bytes], :<=, BOUND + 100_000
    assert_operator results[:folded_samples], :>, STACKS / 4
    assert_equal results[:folded_samples], tables[:folded]
    # Nobody's own has gone, and the callers that all stacks share have all of them.
    assert_equal STACKS, results[:frames].values.sum { |frame| frame[:samples] }
    assert_equal STACKS, frame_named(results, "MemoryBoundTest#each_stack")[:total_samples]
    folded = %w[left right go_on].sum { |name| frame_named(results, "MemoryBoundTest##{name}")[:samples] }
    assert_operator folded, :>=, results[:folded_samples]
    text = RingProf::Report::Text.new(RingProf::Profile.new(results))
    assert_match(/^  Folded into their callers \(max_memory\): #{results[:folded_samples]} \(\d/, printed(text))
    assert_match(/^ringprof_folded_samples_total #{tables[:folded]}$/, metrics)
  end

  def test_raw_says_what_it_lacks
    results, tables = profile(raw: true, max_memory: BOUND) { 8.times { each_stack } }
    assert_equal 8 * STACKS, results[:samples]
    profile = RingProf::Profile.new(results)
    assert_operator profile.raw_omitted_samples, :>, 0
    assert_equal 8 * STACKS, profile.stacks.sum(&:weight) + profile.raw_omitted_samples
    assert_operator tables[:bytes], :<=, BOUND + 100_000
    assert_equal 2 * profile.folded_samples, (profile + profile).folded_samples
  end

  private

  # Results, and what the tables were before those took them.
  def profile(**options)
    RingProf.start(mode: :custom, **options)
    yield
    RingProf.stop
    stats = RingProf.stats
    [RingProf.results, stats[:tables], stats.to_prometheus]
  end

  def printed(report)
    io = StringIO.new
    report.write(io)
    io.string
  end
end
