# frozen_string_literal: true

# What staying on costs in a threaded server, and whether states are told true: four short programs, each beside itself
# without the profiler where that is the measure. Wants a machine that is otherwise idle.
#
#     ruby -I lib bench/server.rb [states] [idle] [switches] [budget] [--json FILE]

require "rbconfig"
require "ringprof"
require_relative "support/sheet"

# Each measure is a method that prints its lines.
module Server
  ROUNDS = 7
  EXCHANGES = 20_000
  # Switches a second.
  RATE = 100_000
  MEASURES = %w[states idle switches budget].freeze

  module_function

  def main(names, json)
    @sheet = Sheet.new("server")
    puts Sheet.introduction
    (names.empty? ? MEASURES : names).each { |name| public_send(name) }
    puts "", *@sheet.table
    @sheet.write(json) if json
  end

  # From Ruby 3.2 on, which tells when threads give the GVL up.
  def told
    RUBY_VERSION >= "3.3"
  end

  # One thread that sleeps 1 s, waits 0.5 s for the GVL and burns 0.5 s, all threads, wall, 1 ms.
  def states
    results = RingProf.run(mode: :wall, interval: 1000, threads: :all) { sleep_wait_and_burn }
    counts = results[:threads].find { |thread| thread[:name] == "subject" }[:states]
    sum = counts.values.sum
    { running: 25, waiting: 25, blocked: 50 }.each do |state, percent|
      bounds = told ? { least: percent - 2, most: percent + 2 } : {}
      @sheet.add("sleeps 1 s, waits 0.5 s, runs 0.5 s: #{state}", 100.0 * counts[state] / sum, "%", **bounds)
    end
    puts "states: #{counts.map { |state, count| format("%s %.1f %%", state, 100.0 * count / sum) }.join(", ")} of #{sum} ms"
  end

  # Two threads that burn in turns of a time slice: each waits for the GVL for as long as it runs.
  def sleep_wait_and_burn
    done = false
    subject = Thread.new do
      Thread.current.name = "subject"
      sleep 1
      hog = Thread.new { nil until done }
      burn(0.5)
      done = true
      hog.join
    end
    subject.join
  end

  # 100 threads asleep: CPU seconds a second of the process, with the profiler at 1 ms and without.
  def idle
    sleepers = Array.new(100) { Thread.new { sleep } }
    sleep 0.2
    plain = cpu_share
    RingProf.start(mode: :wall, interval: 1000, threads: :all)
    profiled = cpu_share
    RingProf.stop
    RingProf.results
    sleepers.each(&:kill)
    @sheet.add("100 threads asleep at 1 ms, of a core", 100 * (profiled - plain), "%", **(told ? { most: 1 } : {}))
    puts format("idle: %.3f %% of a core, %.3f %% without", 100 * profiled, 100 * plain)
  end

  def cpu_share
    before = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)
    sleep 3
    (Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) - before) / 3
  end

  # Pipe writes and reads of one byte, each of which gives the GVL up and takes it, with so much work between them that
  # they come to RATE a second; then with none, as fast as they go. Lower quartiles of rounds, interleaved.
  def switches
    ends = IO.pipe
    [work_between(ends), 0].each do |work|
      plain = []
      profiled = []
      ROUNDS.times do
        plain << exchange(ends, work)
        RingProf.start(mode: :wall, interval: 1000, threads: :all)
        profiled << exchange(ends, work)
        RingProf.stop
        RingProf.results
      end
      low = ->(times) { times.sort[times.size / 4] }
      rate = 2 * EXCHANGES / low[plain]
      ratio = low[profiled] / low[plain]
      bounds = work.positive? && told ? { most: 1.05 } : {}
      @sheet.add("#{rate.round(-3)} switches a second at 1 ms ÷ without", ratio, "", **bounds)
      puts format("switches: %.0f a second, %.3f times the time without", rate, ratio)
    end
  end

  # Turns of an empty loop for each exchange that make RATE switches a second of them.
  def work_between(ends)
    bare = Array.new(3) { exchange(ends, 0) }.min
    full = Array.new(3) { exchange(ends, 1000) }.min
    wanted = 2.0 * EXCHANGES / RATE
    [(wanted - bare) / (full - bare) * 1000, 0].max.to_i
  end

  def exchange((reader, writer), work)
    before = now
    EXCHANGES.times do
      writer.syswrite("x")
      reader.sysread(1)
      index = 0
      index += 1 while index < work
    end
    now - before
  end

  # max_overhead: 0.02 at 20 µs, 200 frames deep: the cost in the second second, and the weight.
  def budget
    RingProf.start(mode: :wall, interval: 20, max_overhead: 0.02)
    share = deep(200) do
      burn(1.0)
      before = RingProf.stats
      burn(1.0)
      after = RingProf.stats
      (after[:cost_ns] - before[:cost_ns]).fdiv(after[:elapsed_ns] - before[:elapsed_ns])
    end
    RingProf.stop
    stats = RingProf.stats
    results = RingProf.results
    weight = (results[:samples] + results[:missed_samples]) * 20_000.0 / stats[:elapsed_ns]
    @sheet.add("max_overhead 0.02 at 20 µs, depth 200, settles at", 100 * share, "%", least: 1.5, most: 2.5)
    @sheet.add("weights × interval ÷ elapsed meanwhile", weight, "", least: 0.99, most: 1.01)
    puts format("budget: %.2f %% in the second second, interval %d µs, weight %.4f of elapsed",
                100 * share, stats[:intervals].last[:interval_ns] / 1000, weight)
  end

  def deep(depth, &block)
    depth.zero? ? block.call : deep(depth - 1, &block)
  end

  def burn(seconds)
    ends = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) + seconds
    spin while Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) < ends
  end

  def spin
    index = 0
    index += 1 while index < 1000
  end

  def now
    Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end

json = ARGV.include?("--json") ? ARGV.slice!(ARGV.index("--json"), 2).last : nil
unknown = ARGV - Server::MEASURES
abort "no such measure: #{unknown.join(" ")} (#{Server::MEASURES.join(", ")})" unless unknown.empty?
Server.main(ARGV, json)
