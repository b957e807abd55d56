# frozen_string_literal: true

require "test_helper"
require "support/accounting_assertions"
require "support/native_calls"

# The VM's postponed jobs: drains are asked for when the ring fills up, not at every sample, and no other job suffers.
class JobsTest < RingProf::TestCase
  include AccountingAssertions

  # The VM takes 1000; one past that is written outside of its array, by its own doing, so one place is left.
  PLACES = 999

  # Samples that differ, for equal ones take no room.
  %i[thread timer].each do |tick|
    define_method(:"test_drains_are_few_beside_samples_#{tick}") do
      _, stats = profile_accounted({ mode: :wall, interval: 50, raw: true, buffer: 131_072, tick: tick }) do
        until_ticks(3000) { recurse(rand(60)) { burn_slice } }
      end
      assert_operator stats[:drains][:requested] * 10, :<=, stats[:recorded]
      # One at the stop; one that was cut off at the end of its slice is asked for again.
      assert_operator stats[:drains][:count], :<=, stats[:drains][:requested] + 1
      assert_equal 0, stats[:missed_samples]
      assert_equal stats[:written], stats[:drains][:records]
    end
  end

  # Each interrupt throws compiled code back to the interpreter; a sample is none.
  def test_samples_do_not_interrupt_compiled_loops
    skip "YJIT of Ruby #{RUBY_VERSION} is sampled at safepoints" if RUBY_VERSION < "3.3"
    skip "this Ruby is built without YJIT" unless defined?(RubyVM::YJIT)

    command = [RbConfig.ruby, "--yjit", "--yjit-call-threshold=2", "--yjit-stats=quiet", *INCLUDES, "-e", COMPILED]
    out, err, status = capture(command)
    assert_predicate status, :success?, err
    exits, plain_exits, stats = Marshal.load(out)
    assert_equal :direct, stats[:capture]
    assert_operator stats[:recorded], :>=, 100
    # So few records do not fill the ring.
    assert_equal 0, stats[:drains][:requested]
    # The VM may have reasons of its own.
    assert_operator exits, :<=, plain_exits + 5
  end

  COMPILED = <<~RUBY
    require "ringprof"
    def turn(count)
      index = 0
      index += 1 while index < count
    end
    def interrupted = RubyVM::YJIT.runtime_stats.select { |key, _| key.end_with?("interrupted", "interrupt") }.each_value.sum
    10.times { turn(1000) }
    before = interrupted
    500.times { turn(20_000) }
    plain = interrupted - before
    RingProf.start(mode: :wall, interval: 100, raw: true)
    before = interrupted
    turn(20_000) until RingProf.stats[:recorded] >= 100
    exits = interrupted - before
    RingProf.stop
    $stdout.binmode.write(Marshal.dump([exits, plain, RingProf.stats]))
  RUBY
  private_constant :COMPILED

  def test_a_full_job_buffer_delays_drains_and_loses_no_job
    skip "from Ruby 3.3 on a job has a place of its own" if RUBY_VERSION >= "3.3"

    before = NativeCalls.jobs_run
    asked = 0
    _, stats = profile_accounted({ mode: :wall, interval: 20, raw: true, buffer: 131_072 }) do
      5.times do
        asked += NativeCalls.fill_jobs(PLACES, 20)
        until_ticks(200) { recurse(rand(60)) { burn_slice } }
      end
    end
    assert_operator asked, :>=, PLACES
    assert_equal asked, NativeCalls.jobs_run - before, "each job that was taken ran"
    assert_operator stats[:drains][:count], :>, 0
  end

  # Before 3.3 finalizers are such jobs too.
  def test_finalizers_all_run
    finished = 0
    count = 0
    options = { mode: :wall, interval: 20, raw: true, buffer: 131_072 }
    profile_accounted(options) do
      until_ticks(2000) do
        100.times { ObjectSpace.define_finalizer(Object.new, proc { finished += 1 }) }
        count += 100
        recurse(rand(60)) { GC.start(full_mark: false) }
      end
    end
    100.times do
      # What a stack still refers to is left over.
      break if finished >= count - 100

      GC.start
      Array.new(100) { Object.new }
    end
    assert_operator finished, :>=, count - 100
    assert_operator finished, :<=, count
  end
end
