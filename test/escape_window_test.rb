# frozen_string_literal: true

require "test_helper"
require "support/native_calls"

# The one moment in which every released Ruby dies of a walk: an environment that escapes to the heap has its flags word
# replaced before its child points to the copy. A true tick is taken right after that store.
class EscapeWindowTest < RingProf::TestCase
  PROGRAM = <<~RUBY
    require "ringprof"
    require "support/native_calls"
    RingProf::Testing.skip_preflight = ARGV.first == "bare"

    # The match leaves something in the environment that no walk expects when the flags word is gone.
    def escape(text)
      text =~ /b/
      NativeCalls.tick_in_escape { [1].each { lambda { text } } }
    end

    RingProf.start(mode: :wall, interval: 1000, tick: :thread)
    before = RingProf.stats
    met = escape("abc")
    RingProf.stop
    stats = RingProf.stats
    print Marshal.dump([met, stats[:lost][:torn] - before[:lost][:torn], stats[:capture], stats[:received], RingProf.results[:samples]])
  RUBY

  def setup
    super
    skip "stopping at a store needs the trap flag of x86-64" unless NativeCalls.respond_to?(:tick_in_escape)
  end

  def test_a_tick_in_the_window_is_torn_and_nothing_else
    out, err, status = capture_ruby(PROGRAM)
    assert_predicate status, :success?, err
    met, torn, capture, received, samples = Marshal.load(out)
    skip "stacks are not walked in the handler here" if capture != :direct

    assert met, "the environment escaped, and a tick came"
    assert_equal 1, torn
    assert_operator received, :>=, 1
    assert_operator samples, :>, 0, "the time of the torn tick went to the next one"
  end

  def test_without_the_preflight_it_is_deadly
    skip_at_safepoints
    _, err, status = capture_ruby(PROGRAM, "bare")
    assert_predicate status, :signaled?, "walked unharmed: #{status} #{err}"
    assert_includes %w[SEGV BUS ABRT ILL], Signal.signame(status.termsig)
  end
end
