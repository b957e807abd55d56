# frozen_string_literal: true

require "test_helper"

# The interpreter that the suite runs on reaches the processes that tests start, and samples as it should.
class InterpreterTest < RingProf::TestCase
  ASK = <<~RUBY
    jit = defined?(RubyVM::YJIT) && RubyVM::YJIT.enabled? ? true : false
    $stdout.write(Marshal.dump([RUBY_DESCRIPTION, jit, ENV.fetch("RUBYOPT", "").split.grep(/yjit/)]))
  RUBY

  def test_processes_that_tests_start_are_of_the_same_kind
    assert_equal here, Marshal.load(ruby!(ASK))
  end

  def test_programs_that_are_profiled_are_of_the_same_kind
    Dir.mktmpdir do |dir|
      out, err, status = capture([RbConfig.ruby, *INCLUDES, "#{ROOT}/exe/ringprof", "run", "--out", "#{dir}/dump", "--", RbConfig.ruby, "-e", ASK])
      assert_predicate status, :success?, err
      assert_equal here, Marshal.load(out)
    end
  end

  # bin/test says what it means to run on.
  def test_the_compiler_is_on_where_it_was_asked_for
    asked = ENV.fetch("RINGPROF_JIT") { skip "no compiler was asked for: RINGPROF_JIT is not set" }
    assert_equal asked.split, here.last
    assert_equal !asked.empty?, yjit?
  end

  def test_stacks_are_walked_in_the_handler_where_that_is_safe
    RingProf.run(mode: :wall, interval: 1000) { burn_cpu(0.05) }
    stats = RingProf.stats
    if RUBY_VERSION < "3.3" && yjit?
      assert_equal :postponed, stats[:capture]
      assert_equal "YJIT of Ruby before 3.3 publishes frames before they are whole", stats[:postponed_because]
    else
      assert_equal [:direct, nil], stats.values_at(:capture, :postponed_because)
    end
  end

  private

  def here
    [RUBY_DESCRIPTION, yjit?, ENV.fetch("RUBYOPT", "").split.grep(/yjit/)]
  end

  def yjit?
    defined?(RubyVM::YJIT) && RubyVM::YJIT.enabled? ? true : false
  end
end
