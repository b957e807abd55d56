# frozen_string_literal: true

require "test_helper"

# What fails inside an entry point comes out as an exception, and nothing that it owned is left behind.
class GuardTest < RingProf::TestCase
  PROGRAM = <<~RUBY
    require "ringprof"
    before = RingProf::Testing.dropped
    begin
      RingProf::Testing.fail_inside(eval(ARGV.first))
    rescue Exception => error
      print error.class, ": ", error.message, ", ", RingProf::Testing.dropped - before
    end
    RingProf.run(mode: :custom) { RingProf.sample }.fetch(:samples) == 1 or abort "not usable any more"
  RUBY

  def test_a_panic_in_an_entry_point_is_an_error
    assert_equal "RingProf::Error: internal error: planted, 1", fails("nil")
  end

  def test_a_panic_inside_protect_is_an_error
    assert_equal "RingProf::Error: internal error: planted in protect, 1", fails("true")
  end

  def test_a_raise_inside_protect_goes_on_after_all_is_dropped
    assert_equal "KeyError: of ours, 1", fails("KeyError.new('of ours')")
    assert_equal "Interrupt: now, 1", fails("Interrupt.new('now')")
  end

  private

  # In a process of its own: a panic tells of itself on stderr.
  def fails(how)
    ruby!(PROGRAM, how)
  end
end
