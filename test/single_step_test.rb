# frozen_string_literal: true

require "test_helper"
require "single_step/stepper"

# The real handler after every single instruction of a script (the processor's trap flag): whatever state the VM passes
# through, it is met. Each script runs in a process of its own; where this process runs under YJIT with a call threshold
# of 1, the scripts are compiled. `bin/single-step` makes a table of it.
class SingleStepTest < RingProf::TestCase
  # Fewer instructions than any of the scripts takes: the trap flag was not set, or the script ended early.
  FLOOR = 20_000

  def setup
    super
    reason = Stepper.refusal || self.class.elsewhere
    skip reason if reason
  end

  class << self
    # Why this run of the suite leaves the scripts to another, or nil.
    def elsewhere
      return "GC is off while a script is stepped through, so compaction changes nothing" if ENV["RINGPROF_HARD"] == "compact"
      return unless compiled?
      return "YJIT of Ruby #{RUBY_VERSION} is sampled at safepoints" unless Stepper.compiles?

      "only with a call threshold of 1 is every method compiled" unless ENV["RUBYOPT"].to_s.include?("--yjit-call-threshold=1")
    end

    def compiled?
      defined?(RubyVM::YJIT) && RubyVM::YJIT.enabled?
    end
  end

  (Stepper::DEADLY + Stepper::HARMLESS).each do |script|
    define_method(:"test_#{script}_survives_a_tick_after_each_instruction") do
      assert_survives(script)
    end
  end

  Stepper.deadly.each do |script|
    define_method(:"test_#{script}_dies_without_the_preflight") do
      Stepper.open do |stepper|
        outcome = stepper.step(script, "bare", *warm, switches: switches)
        assert_includes %w[SEGV BUS ABRT ILL], outcome.died, "walked unharmed without the pre-flight: #{outcome.stats}\n#{outcome.report}"
      end
    end
  end

  def test_turning_yjit_on_survives_a_tick_after_each_instruction
    skip "YJIT cannot be turned on at run time before Ruby 3.3" if RUBY_VERSION < "3.3"
    skip "this Ruby is built without YJIT" unless defined?(RubyVM::YJIT)
    skip "YJIT is on from the beginning in this run" if self.class.compiled?

    assert_survives(Stepper::ENABLING, switches: Stepper::LATER_COMPILED)
  end

  def test_continuations
    skip "callcc copies a stack over the live one, which no check before the walk can see through; Ruby calls it obsolete"
  end

  private

  def switches
    self.class.compiled? ? Stepper::COMPILED : []
  end

  # What is stepped through is compiled code, and not the compiler.
  def warm
    self.class.compiled? ? ["warm"] : []
  end

  def assert_survives(script, switches: self.switches)
    Stepper.open do |stepper|
      outcome = stepper.step(script, *warm, switches: switches)
      assert_nil outcome.died, "SIG#{outcome.died}\n#{outcome.report}"
      skip "stacks are not walked in the handler here: #{outcome.stats[:postponed_because]}" if outcome.stats[:capture] != :direct

      assert_accounted(outcome.instructions, outcome.stats, threads: script == "threads")
      assert_walks(outcome.walks)
      assert_valid_results(outcome.results)
      assert_equal outcome.stats[:missed_samples], outcome.results[:missed_samples]
      tell(script, outcome)
    end
  end

  # Between two instructions little changes, so most walks are short; and each is what a whole one is.
  def assert_walks(walks)
    whole, short, wrong = walks
    assert_equal 0, wrong, "walks that were cut short wrongly, of #{short}"
    assert_operator short, :>, whole
  end

  def assert_accounted(instructions, stats, threads:)
    lost = stats[:lost]
    assert_operator instructions, :>, FLOOR
    assert_equal stats[:received], stats[:recorded] + stats[:coalesced][:total] + lost[:total]
    assert_equal 0, stats[:drains][:corrupt]
    assert_equal 0, stats[:missed_samples]
    return assert_accounted_by_threads(instructions, stats) if threads

    assert_equal instructions, stats[:received], "the handler ran once for each instruction"
    # A drain needs no seat, `sample` does.
    assert_equal lost[:total], lost[:torn] + lost[:seat_taken] + lost[:loader],
                 "ticks are lost to nothing but a stack, or the loader, in the middle of a change: #{lost}"
    assert_equal 0, stats[:coalesced][:early], "every instruction's stack is walked"
  end

  # A thread is sampled from its birth to its death, and stepped through before and after as well.
  def assert_accounted_by_threads(instructions, stats)
    lost = stats[:lost]
    assert_equal instructions, stats[:received] + stats[:foreign], "the handler ran once for each instruction"
    assert_operator stats[:foreign], :>, 1000, "threads were stepped through before their birth"
    assert_equal lost[:total], lost[:torn] + lost[:seat_taken] + lost[:not_ruby] + lost[:loader], lost
    # Before Ruby 3.3 nothing tells that a thread is ending by an exception.
    RUBY_VERSION < "3.3" ? assert_operator(lost[:torn], :>, 0) : assert_equal(0, lost[:torn])
  end

  def tell(script, outcome)
    puts format("single step, %-28s %8d instructions, %7d recorded, %4d torn",
                script, outcome.instructions, outcome.stats[:recorded], outcome.stats[:lost][:torn])
  end
end
