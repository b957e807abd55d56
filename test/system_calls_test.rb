# frozen_string_literal: true

require "test_helper"
require "support/accounting_assertions"
require "support/native_calls"

# What C extensions see of the ticks: nothing but the EINTR of those system calls that the kernel restarts after no handler.
class SystemCallsTest < RingProf::TestCase
  include AccountingAssertions

  # What a call comes to when nothing interrupts it.
  RESTARTED = { read: :done, recv: :done, send: :done, connect: :done, flock: :done, sem_wait: :done, waitpid: :done }.freeze
  NOT_RESTARTED = {
    nanosleep: :done, clock_nanosleep: :done, usleep: :done, poll: :timeout, select: :timeout, epoll_wait: :timeout,
    sigtimedwait: :timeout, semtimedop: :timeout, recv_with_timeout: :timeout, send_with_timeout: :timeout,
    connect_with_timeout: :timeout
  }.freeze
  # Ticks in 30 ms: many.
  OPTIONS = { mode: :wall, interval: 500, raw: true }.freeze
  TICKS = %i[thread timer].freeze
  # Calls until one of them meets a tick: one is enough, except on a machine where no tick is sent for so long.
  TRIES = 50

  def test_without_a_profile_nothing_is_interrupted
    RESTARTED.merge(NOT_RESTARTED).each { |call, plain| assert_equal plain, NativeCalls.public_send(call), call }
  end

  TICKS.each do |tick|
    define_method(:"test_calls_that_are_restarted_notice_nothing_of_the_#{tick}") do
      profile_accounted({ **OPTIONS, tick: tick }) do
        RESTARTED.each do |call, plain|
          until_ticks(10) { assert_equal plain, NativeCalls.public_send(call), call }
        end
      end
    end

    define_method(:"test_calls_that_are_not_restarted_are_interrupted_by_the_#{tick}") do
      profile_accounted({ **OPTIONS, tick: tick }) do
        NOT_RESTARTED.each do |call, plain|
          outcomes = outcomes_until_interrupted(call)
          assert_includes outcomes, :EINTR, call
          assert_empty outcomes - [plain, :EINTR], call
        end
      end
    end

    define_method(:"test_errno_is_kept_by_the_#{tick}") do
      wrong = 0
      profile_accounted({ **OPTIONS, interval: 20, tick: tick }) { until_ticks(1000) { wrong += NativeCalls.canary(1000) } }
      assert_equal 0, wrong
    end
  end

  def test_other_threads_than_the_sampled_one_are_not_interrupted
    profile_accounted(OPTIONS) do
      thread = Thread.new { NOT_RESTARTED.each { |call, plain| assert_equal plain, NativeCalls.public_send(call), call } }
      until_ticks(10) { burn_slice }
      thread.join
    end
  end

  # What the tests above are worth: without SA_RESTART every call is interrupted ...
  def test_a_handler_without_sa_restart_would_be_noticed
    RingProf.start(**OPTIONS)
    NativeCalls.change_flags(Signal.list.fetch("PROF"), NativeCalls::SA_RESTART)
    RESTARTED.each_key { |call| assert_includes outcomes_until_interrupted(call), :EINTR, call }
  end

  # ... and a handler that spoils errno is seen.
  def test_a_handler_that_spoils_errno_would_be_noticed
    assert_operator Integer(ruby!(<<~RUBY)), :>, 0
      require "ringprof"
      require "support/native_calls"
      RingProf.start(mode: :wall, interval: 20)
      NativeCalls.spoil(Signal.list.fetch("PROF"))
      wrong = 0
      60_000.times { break if (wrong += NativeCalls.canary(1000)).positive? }
      print wrong
    RUBY
  end

  private

  def outcomes_until_interrupted(call)
    outcomes = []
    TRIES.times do
      outcomes << NativeCalls.public_send(call)
      break if outcomes.last == :EINTR
    end
    outcomes
  end
end
