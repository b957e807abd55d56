# frozen_string_literal: true

require "test_helper"
require "rbconfig"

# The handler in a real Ruby neither allocates nor locks: a preloaded library ends the process that does.
class MallocGuardTest < RingProf::TestCase
  SOURCE = "#{__dir__}/support/malloc_guard/malloc_guard.c".freeze

  # Threads, GC, raw stacks, both clocks, both tick sources.
  PROGRAM = <<~RUBY
    require "ringprof"

    plant = ARGV.delete("plant")
    RingProf::Testing.plant_allocation = true if plant

    def work
      [3, 1, 2].sort_by { |number| -number }.map { |number| "number \#{number}" }
      Regexp.new("n(.)").match("number")
    end

    # Until that many ticks have come; what they became is counted.
    def busy_until(ticks)
      deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 60
      until RingProf.stats[:received] >= ticks
        abort "no ticks: \#{RingProf.stats}" if Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline
        500.times { work }
        GC.start(full_mark: false)
        Thread.new { work }.join
      end
    end

    %i[wall cpu].product(%i[thread timer], [131_072, 1_048_576]) do |mode, tick, buffer|
      done = false
      threads = Array.new(2) { Thread.new { work until done } }
      RingProf.start(mode: mode, interval: 50, raw: true, tick: tick, buffer: buffer)
      busy_until(400)
      RingProf.stop
      done = true
      threads.each(&:join)
      results = RingProf.results
      abort "no samples: \#{RingProf.stats}" if results[:samples].zero?
      puts "\#{mode} \#{tick}: \#{results[:frames].size} frames"
    end
  RUBY

  def test_the_handler_neither_allocates_nor_locks
    out, err, status = run_guarded
    assert_predicate status, :success?, "#{status}\n#{out}\n#{err}"
    assert_equal 8, out.lines.length
    assert_operator err[/^malloc_guard: (\d+) handler runs$/, 1].to_i, :>, 1000
  end

  def test_a_planted_allocation_is_seen
    _, err, status = run_guarded("plant")
    refute_predicate status, :success?
    assert_match(/^malloc_guard: malloc was called inside a signal handler$/, err)
  end

  private

  def run_guarded(*arguments)
    Dir.mktmpdir do |directory|
      guard = "#{directory}/malloc_guard.so"
      command = [*compiler, "-O2", "-Wall", "-Werror", "-fPIC", "-shared", "-o", guard, SOURCE, "-ldl", "-pthread"]
      out, err, status = capture(command)
      assert_predicate status, :success?, "#{command.join(" ")}\n#{out}\n#{err}"
      capture_ruby(PROGRAM, *arguments, env: { "LD_PRELOAD" => guard })
    end
  end

  def compiler
    RbConfig::CONFIG.fetch("CC", "cc").split
  end
end
