# frozen_string_literal: true

require "test_helper"

# The handler enters the kernel to read a CPU clock and to set the pace of a timer; for nothing else.
class HandlerSystemCallsTest < RingProf::TestCase
  ALLOWED = %w[clock_gettime timer_settime rt_sigreturn].freeze

  PROGRAM = <<~RUBY
    require "ringprof"
    require "support/native_calls"
    mode, tick, spoiled = ARGV
    RingProf.start(mode: mode.to_sym, tick: tick.to_sym, interval: 500, raw: true, buffer: 131_072)
    NativeCalls.spoil(Signal.list.fetch("PROF")) if spoiled
    thread = Thread.new { Array.new(300) { |number| number.to_s.sub(/1/) { |match| match } } until Thread.current[:done] }
    until RingProf.stats[:recorded] >= 120
      Array.new(300) { |number| [number].map(&:to_s) }
      sleep 0.001
      GC.start(full_mark: false)
    end
    thread[:done] = true
    thread.join
    RingProf.stop
  RUBY

  def setup
    super
    skip "strace is not installed" unless system("which strace", out: File::NULL)
    skip "this process may trace no other" unless system("strace", "-o", File::NULL, "true", err: File::NULL)
  end

  %w[wall cpu].product(%w[thread timer]).each do |mode, tick|
    define_method(:"test_in_#{mode}_mode_by_the_#{tick}") do
      handlers, calls = trace(mode, tick)
      assert_operator handlers, :>=, 100
      assert_empty calls.keys - ALLOWED, calls
    end
  end

  # What the tests above are worth.
  def test_another_call_would_be_seen
    _, calls = trace("wall", "thread", "spoiled")
    assert_includes calls.keys, "getppid"
  end

  private

  # @return [Array(Integer, Hash)] handlers that ran, and the system calls in them with their numbers
  def trace(*arguments)
    Dir.mktmpdir do |directory|
      log = "#{directory}/log"
      command = ["strace", "-f", "-qq", "-o", log, RbConfig.ruby, *INCLUDES, "-e", PROGRAM, *arguments]
      _, err, status = capture(command)
      assert_predicate status, :success?, err
      handled(File.foreach(log))
    end
  end

  # Each line begins with the thread's id; a handler's calls stand between its signal and its return.
  def handled(lines)
    inside = {}
    handlers = 0
    calls = Hash.new(0)
    lines.each do |line|
      thread, text = line.split(" ", 2)
      if text.start_with?("--- SIGPROF ")
        inside[thread] = true
        handlers += 1
      elsif inside[thread] && (call = text[/\A(\w+)\(/, 1])
        calls[call] += 1
        inside.delete(thread) if call == "rt_sigreturn"
      end
    end
    [handlers, calls]
  end
end
