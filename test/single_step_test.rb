# frozen_string_literal: true

require "test_helper"

# The real handler after every single instruction of a script (the processor's trap flag): whatever state the VM passes
# through, it is met. Each script runs in a process of its own.
class SingleStepTest < RingProf::TestCase
  RUNNER = File.join(__dir__, "single_step/runner.rb")
  # Each holds windows in which a walk without the pre-flight dies.
  DEADLY = %w[escape_in_method escape_in_method_with_block escape_at_top_level escape_in_class_body].freeze
  HARMLESS = %w[fibers exceptions calls drains].freeze
  # Those that YJIT compiles again and again as they define methods would take minutes.
  COMPILED = %w[escape_in_method escape_at_top_level escape_in_class_body fibers].freeze
  # Fewer instructions than any of the scripts takes: the trap flag was not set, or the script ended early.
  FLOOR = 20_000

  def setup
    super
    skip "single stepping needs the trap flag of x86-64, and this is #{RbConfig::CONFIG["host_cpu"]}" unless
      RbConfig::CONFIG["host_cpu"] == "x86_64"
  end

  (DEADLY + HARMLESS).each do |script|
    define_method(:"test_#{script}_survives_a_tick_after_each_instruction") do
      assert_survives(script)
    end
  end

  DEADLY.each do |script|
    define_method(:"test_#{script}_dies_without_the_preflight") do
      _, report, status = step(script, "bare")
      assert_predicate status, :signaled?, "walked unharmed without the pre-flight: #{status}\n#{report}"
      assert_includes %w[SEGV BUS ABRT ILL], Signal.signame(status.termsig), report
    end
  end

  def test_compiled_code_survives_a_tick_after_each_instruction
    skip "YJIT of Ruby #{RUBY_VERSION} is sampled at safepoints" if RUBY_VERSION < "3.3"
    skip "this Ruby is built without YJIT" unless defined?(RubyVM::YJIT)

    COMPILED.each do |script|
      assert_survives(script, "warm", switches: %w[--yjit --yjit-call-threshold=1])
    end
  end

  def test_continuations
    skip "callcc copies a stack over the live one, which no check before the walk can see through; Ruby calls it obsolete"
  end

  private

  def assert_survives(script, *arguments, switches: [])
    out, report, status = step(script, *arguments, switches: switches)
    assert_predicate status, :success?, "#{status}\n#{report}"
    instructions, stats, results = Marshal.load(out)
    skip "stacks are not walked in the handler here: #{stats[:postponed_because]}" if stats[:capture] != :direct

    assert_accounted(instructions, stats)
    assert_valid_results(results)
    assert_equal stats[:missed_samples], results[:missed_samples]
    tell(script, switches, instructions, stats)
  end

  def assert_accounted(instructions, stats)
    lost = stats[:lost]
    assert_operator instructions, :>, FLOOR
    assert_equal instructions, stats[:received], "the handler ran once for each instruction"
    assert_equal stats[:received], stats[:recorded] + stats[:coalesced][:total] + lost[:total]
    # A drain needs no seat, `sample` does.
    assert_equal lost[:total], lost[:torn] + lost[:seat_taken], "ticks are lost to nothing but a stack in the middle of a change: #{lost}"
    assert_equal 0, stats[:coalesced][:early], "every instruction's stack is walked"
    assert_equal 0, stats[:drains][:corrupt]
    assert_equal 0, stats[:missed_samples]
  end

  def tell(script, switches, instructions, stats)
    puts format("single step, %-30s %8d instructions, %7d recorded, %4d torn",
                [script, *switches.first].join(" "), instructions, stats[:recorded], stats[:lost][:torn])
  end

  def step(script, *arguments, switches: [])
    capture([RbConfig.ruby, *switches, *INCLUDES, RUNNER, script, *arguments], timeout: 300)
  end
end
