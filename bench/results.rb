# frozen_string_literal: true

# What building the results of a big profile takes: 6 million samples in 2 million runs, 20 frames deep on average, raw and not.
#
#     ruby -I DIRECTORY_OF_THE_EXTENSION -I lib bench/results.rb [RUNS]

require "ringprof"
require_relative "support/sheet"

# Takes the samples one by one, by call: the tables are those of ten minutes at 100 µs.
class ResultsBench
  SAMPLES_A_RUN = 3
  # Frames beyond the twelve of the program itself.
  DEPTHS = (0..16).freeze
  PATHS = 20_000
  MEGABYTE = 1024.0 * 1024

  def initialize(runs)
    @runs = runs
    @random = Random.new(5)
    @paths = Array.new(PATHS) { [@random.rand(DEPTHS), @random.rand(1 << 30)] }
    @sheet = Sheet.new("results")
  end

  def call(json)
    puts Sheet.introduction, ""
    plain
    raw
    puts @sheet.table
    @sheet.write(json) if json
  end

  # Bit by bit another method, so that paths part where their numbers do.
  def one(left, path, samples) = go_on(left, path, samples)

  def two(left, path, samples) = go_on(left, path, samples)

  private

  def go_on(left, path, samples)
    if left.zero?
      samples.times { RingProf.sample }
    elsif path.odd?
      one(left - 1, path >> 1, samples)
    else
      two(left - 1, path >> 1, samples)
    end
  end

  def record(runs, **options)
    RingProf.start(mode: :custom, buffer: 64 << 20, **options)
    runs.times { |number| @paths[number % PATHS].then { |depth, path| go_on(depth / 2, path, SAMPLES_A_RUN) } }
    RingProf.stop
  end

  def plain
    record(@runs / 4)
    seconds, = timed { RingProf.results }
    @sheet.add("results without raw", seconds * 1000, "ms", most: 100)
  end

  def raw
    GC.start
    before = memory("VmRSS")
    record(@runs, raw: true)
    tables = RingProf.stats[:tables][:bytes]
    # The peak from here on.
    File.write("/proc/self/clear_refs", "5")
    seconds, results = timed { RingProf.results }
    keys = %i[raw raw_lines raw_sample_timestamps raw_timestamp_deltas]
    peak = memory("VmHWM")
    demanded = keys.sum { |key| results[key].size * 8 }
    depth = (results[:raw].size.fdiv(@runs) - 2)
    @sheet.add("samples", results[:samples]).add("mean depth", depth)
    @sheet.add("results with raw", seconds, "s", most: 3)
    @sheet.add("memory of the tables before", tables / MEGABYTE, "MB")
    @sheet.add("what StackProf's format demands", demanded / MEGABYTE, "MB")
    @sheet.add("peak of all, the tables too, beyond that", (peak - before - demanded) / MEGABYTE, "MB", most: 300)
  end

  def timed
    began = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)
    value = yield
    [Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) - began, value]
  end

  def memory(which)
    File.read("/proc/self/status")[/^#{which}:\s+(\d+)/, 1].to_i * 1024
  end
end

json = ARGV.include?("--json") ? ARGV.slice!(ARGV.index("--json"), 2).last : nil
ResultsBench.new(Integer(ARGV.first || "2000000", 10)).call(json)
