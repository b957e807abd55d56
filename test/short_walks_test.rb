# frozen_string_literal: true

require "test_helper"
require "json"
require "set"

# Walks that stop where nothing has changed since the last record: each is held against a whole one, in the handler.
# The single-step tests do that at every instruction; here ticks are far apart, and much happens between two of them.
class ShortWalksTest < RingProf::TestCase
  def setup
    super
    skip_at_safepoints
    RingProf::Testing.check_walks = true
    RingProf::Testing.walks
  end

  def teardown
    RingProf::Testing.check_walks = false
    super
  end

  # Callers go on to their next line while what they call stays the same, and the other way round.
  def test_callers_that_go_on
    assert_short_walks_right do
      first(6) { second(4) { burn_slice } }
      first(6) { burn_slice }
      second(8) { first(2) { burn_slice } }
    end
  end

  # One iseq by several names, blocks that are methods, C functions that call back, and what the VM gives no frame for.
  def test_frames_of_every_kind
    assert_short_walks_right do
      named_first(3) { named_second(3) { burn_slice } }
      [3, 1, 2].sort_by { |number| burn_slice || number }.each_slice(2).map { |slice| defined_by_block { slice } }
      [1, 2].each_with_index.inject(0) { |sum, (number, _index)| (burn_slice || sum) + number }
      Set.new([1, 2]).to_h { |number| [number, instance_eval { burn_slice }] }
      begin
        JSON.parse(JSON.generate({ a: [1] * 50 })) && raise(ArgumentError)
      rescue ArgumentError
        ensured { burn_slice }
      end
      Fiber.new { second(3) { burn_slice } }.resume
      Struct.new(:one).new(1).then { |struct| struct.each { burn_slice } }
    end
  end

  # Environments leave the stack, and frames go on with those on the heap.
  def test_environments_that_escape
    assert_short_walks_right do
      kept = Array.new(20) { |number| kept_block(number) { burn_slice } }
      kept.each(&:call)
      binding.local_variable_set(:kept, nil)
    end
  end

  def test_threads_in_turns
    assert_short_walks_right(mode: :cpu) do
      threads = Array.new(3) { |depth| Thread.new { first(3 * depth) { second(2) { burn_cpu(0.02) } } } }
      threads.each(&:join)
    end
  end

  private

  def assert_short_walks_right(mode: :wall, &block)
    results = RingProf.run(mode: mode, interval: 50, raw: true) do
      ends = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) + 0.6
      block.call while Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) < ends
    end
    assert_valid_results(results)
    _whole, short, wrong = RingProf::Testing.walks
    assert_equal 0, wrong, "walks that were cut short wrongly, beside #{short}"
    assert_operator short, :>, 500
  end

  def first(depth, &block)
    return block.call if depth.zero?

    first(depth - 1, &block)
    second(depth / 2, &block)
    second(0, &block)
  end

  def second(depth, &block)
    depth.zero? ? block.call : second(depth - 1, &block)
    burn_slice
  end

  alias named_first second
  alias named_second second

  define_method(:defined_by_block) { |&block| second(2) { burn_slice } || block.call }

  def ensured
    yield
  ensure
    burn_slice
  end

  def kept_block(number, &block)
    block.call
    -> { number.times { block.call } }
  end
end
