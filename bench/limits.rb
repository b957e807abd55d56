# frozen_string_literal: true

# What holds whatever the program does: nothing lost in a long call, ticks that are worth a record each, memory that stays.
#
#     ruby -I DIRECTORY_OF_THE_EXTENSION -I lib bench/limits.rb [--json FILE]

require "rbconfig"
require_relative "support/sheet"
require_relative "support/work"

# One measure after the other; those of memory in processes of their own.
class Limits
  MEGABYTE = 1024.0 * 1024
  LONG_CALL_SECONDS = 10
  STACKS = 10_000
  # Samples of a day at 1 ms.
  DAY = 86_400_000

  def initialize
    @sheet = Sheet.new("limits")
  end

  def call(json)
    puts Sheet.introduction, ""
    at_rest
    require "ringprof"
    long_call
    dense_ticks
    a_day
    puts @sheet.table
    @sheet.write(json) if json
  end

  private

  # So many numbers that sorting them takes ten seconds in C, without a look at what else there is to do.
  def long_call
    count = 2_000_000
    numbers = Array.new(count) { rand(1 << 40) }
    seconds = time { numbers.dup.sort! }
    numbers = Array.new((count * LONG_CALL_SECONDS / seconds).to_i) { rand(1 << 40) }
    RingProf.start(mode: :wall, interval: 100)
    taken = time { numbers.sort! }
    RingProf.stop
    stats = RingProf.stats
    samples = RingProf.results[:samples]
    @sheet.add("a call into C of", taken, "s").add("samples of it × interval", samples * 1e-4, "s")
    @sheet.add("lost or missed in it, 100 µs", stats[:lost][:total] + stats[:missed_samples], "ticks", most: 0)
    @sheet.add("ring used at most", 100.0 * stats[:ring][:high_water_words] / stats[:ring][:words], "%")
  end

  def dense_ticks
    work = Work.new
    RingProf.start(mode: :wall, interval: 20)
    time { work.level_0(Work.levels(50), 3_000_000) }
    RingProf.stop
    stats = RingProf.stats
    results = RingProf.results
    ticks = stats[:elapsed_ns] / 20_000
    @sheet.add("20 µs, depth 50: captures ÷ ticks due", stats[:recorded].fdiv(ticks), "", least: 0.6)
    @sheet.add("20 µs, depth 50: weights × interval ÷ elapsed", (results[:samples] + results[:missed_samples]) * 20e-6 / (stats[:elapsed_ns] / 1e9), "",
               least: 0.99, most: 1.01)
    rest = stats[:received] - stats[:recorded] - stats[:coalesced][:total] - stats[:lost][:total]
    @sheet.add("20 µs, depth 50: ticks unaccounted for", rest, "ticks", least: 0, most: 0)
  end

  # Resident memory of a Ruby that profiles, beyond that of one that does not.
  def at_rest
    own = $LOAD_PATH.first(2).flat_map { |path| ["-I", path] }
    resident = "print File.read('/proc/self/status')[/^VmRSS:\\s+(\\d+)/, 1]"
    plain, profiled = ["", "require 'ringprof'; RingProf.start(mode: :wall); sleep 0.3;"].map do |before|
      Array.new(5) { IO.popen([RbConfig.ruby, *own, "-e", "#{before}#{resident}"], &:read).to_i }.sort[2]
    end
    @sheet.add("memory at rest", (profiled - plain) / 1024.0, "MB", most: 8)
  end

  # As many samples as a day has at 1 ms, of stacks that come back.
  def a_day
    stacks = STACKS
    source = Array.new(100) { |one| "def day_#{one}(n) = n.zero? ? RingProf.sample : case n % 100\n#{Array.new(100) { |line| "when #{line} then RingProf.sample\n" }.join}end" }
    self.class.class_eval(source.join("\n"), "day.rb", 1)
    passes = DAY / stacks / 20
    # From one line, or each stack would be two.
    first, last = [2, passes].map do |times|
      RingProf.start(mode: :custom, raw: false)
      times.times { 100.times { |one| 100.times { |line| public_send(:"day_#{one}", line) } } }
      # What is still in the ring comes into the tables, which the next start goes on with.
      RingProf.stop
      tables
    end
    @sheet.add("distinct contexts of #{stacks} stacks, each met #{passes} times", last[:nodes])
    @sheet.add("memory of the tables after that ÷ after 2 times", last[:bytes].fdiv(first[:bytes]), "", most: 1.0)
    @sheet.add("memory of the tables", last[:bytes] / MEGABYTE, "MB")
    RingProf.results
  end

  def tables
    RingProf.stats[:tables]
  end

  def time
    began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    yield
    Process.clock_gettime(Process::CLOCK_MONOTONIC) - began
  end
end

Limits.new.call(ARGV.first == "--json" ? ARGV[1] : nil)
