# frozen_string_literal: true

require "test_helper"
require "support/accounting_assertions"
require "support/native_calls"

# Somebody else wants the signal: before us, in the middle of a profile, or another profiler beside us.
class OtherHandlersTest < RingProf::TestCase
  include AccountingAssertions

  PRELUDE = <<~RUBY
    require "ringprof"
    require "support/work"
    require "support/native_calls"
    PROF = Signal.list.fetch("PROF")
    def samples(**options)
      RingProf.start(mode: :wall, interval: 100, **options)
      Work.burn_cpu(0.02) until RingProf.stats[:received] > 20
      yield if block_given?
      RingProf.stop
      [RingProf.stats[:signal], RingProf.results[:samples].positive?]
    end
  RUBY

  def test_a_trap_that_was_there_first_keeps_its_signal
    assert_equal <<~TEXT, ruby!(PRELUDE + <<~RUBY)
      ["RTMAX-0", true]
      [:caught, :caught]
    TEXT
      caught = Queue.new
      trap("PROF") { caught << :caught }
      p samples { Process.kill(:PROF, Process.pid) }
      Process.kill(:PROF, Process.pid)
      p [caught.pop, caught.pop]
    RUBY
  end

  def test_a_trap_set_in_the_middle_stays
    assert_equal <<~TEXT, ruby!(PRELUDE + <<~RUBY)
      ["PROF", true]
      :caught
      ["RTMAX-0", true]
      true
    TEXT
      caught = Queue.new
      p samples { trap("PROF") { caught << :caught } }
      caught.clear
      Process.kill(:PROF, Process.pid)
      p caught.pop
      p samples
      p trap("PROF", "DEFAULT").is_a?(Proc)
    RUBY
  end

  def test_an_action_that_c_code_sets_in_the_middle_stays
    assert_equal <<~TEXT, ruby!(PRELUDE + <<~RUBY)
      ["PROF", true]
      [true, true]
      ["RTMAX-0", true]
      [true, false]
    TEXT
      p samples { NativeCalls.seize(PROF) }
      before = NativeCalls.calls
      Process.kill(:PROF, Process.pid)
      sleep 0.001 until NativeCalls.calls > before
      p [NativeCalls.seized?(PROF), true]
      p samples
      p [NativeCalls.seized?(PROF), RingProf.running?]
    RUBY
  end

  def test_taken_signals_are_passed_over
    assert_equal <<~TEXT, ruby!(PRELUDE + <<~RUBY)
      ["RTMAX-2", true]
      [true, true, true]
    TEXT
      taken = [PROF, 64, 63]
      taken.each { |signal| NativeCalls.seize(signal) }
      p samples
      p taken.map { |signal| NativeCalls.seized?(signal) }
    RUBY
  end

  # Modes of StackProf, and who starts and stops first.
  %i[wall cpu].product([true, false], [true, false]).each do |mode, starts_first, stops_first|
    order = "#{starts_first ? "starts" : "starts_last"}_and_#{stops_first ? "stops" : "stops_last"}"
    define_method(:"test_beside_stackprof_in_#{mode}_mode_that_#{order}") do
      skip "StackProf is not installed for this Ruby" unless stackprof?

      ours, theirs, signal, after = Marshal.load(ruby!(PRELUDE + BESIDE, mode.to_s, starts_first.to_s, stops_first.to_s))
      # Who comes second to SIGPROF: we look for another signal, StackProf takes it. Its SIGALRM of wall mode is not ours.
      assert_equal(mode == :cpu && starts_first ? "RTMAX-0" : "PROF", signal)
      assert_operator theirs, :>, 0, "StackProf's samples"
      assert_operator ours, :>, 0, "our samples"
      assert after, "and another profile afterwards"
    end
  end

  BESIDE = <<~RUBY
    require "stackprof"
    mode, starts_first, stops_first = ARGV[0].to_sym, *ARGV.drop(1).map { |text| text == "true" }
    steps = { theirs: -> { StackProf.start(mode: mode, interval: 1000) }, ours: -> { RingProf.start(mode: :wall, interval: 100, raw: true) } }
    steps = steps.to_a.reverse.to_h unless starts_first
    steps.each do |who, start|
      start.call
      Work.burn_cpu(0.05)
    end
    # StackProf's clock ticks a few times only in that many.
    Work.burn_cpu(0.1)
    signal = RingProf.stats[:signal]
    steps = [-> { StackProf.stop }, -> { RingProf.stop }]
    steps.reverse! unless stops_first
    steps.each do |stop|
      stop.call
      Work.burn_cpu(0.05)
    end
    stats = RingProf.stats
    abort "ticks are unaccounted for: \#{stats}" if
      stats[:received] != stats[:recorded] + stats[:coalesced][:total] + stats[:lost][:total]
    ours, theirs = RingProf.results[:samples], StackProf.results[:samples]
    $stdout.binmode.write(Marshal.dump([ours, theirs, signal, samples.last]))
  RUBY
  private_constant :BESIDE

  private

  def stackprof?
    @@stackprof ||= capture_ruby('require "stackprof"').last.success? ? :yes : :no
    @@stackprof == :yes
  end
end
