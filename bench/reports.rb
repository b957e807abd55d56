# frozen_string_literal: true

# How long reports of big profiles take, and what memory.
#
#     ruby -I lib bench/reports.rb [--samples 6000000] [--runs 200000] [--depth 30] [--frames 4000]
#
# Prints a table: for each format the CPU seconds after loading, and the peak of the process against what it held with the
# profile loaded.

require "optparse"
require "tempfile"
require "ringprof/profile"
require "ringprof/report"
require_relative "support/sheet"

# A profile of the size that is asked for, written as a dump.
class BigProfile
  # @param size [Hash] `samples:`, `runs:`, `depth:` (mean), `frames:`; ids are addresses unless they begin elsewhere
  def initialize(samples:, runs:, depth:, frames:, first_id: 94_000_000_000_000)
    @weight = samples / runs
    @runs = runs
    @depth = depth
    @ids = Array.new(frames) { |number| first_id + number * 40 }
    @chance = Random.new(1)
  end

  # @param io [IO]
  # @return [void]
  def dump(io)
    results = { version: 1.2, mode: :wall, interval: 100, samples: @runs * @weight, gc_samples: 0, missed_samples: 0, metadata: {} }
    raw, lines = stacks
    samples = results[:samples]
    RingProf::Profile.new(results.merge(frames: frames(raw), raw: raw, raw_lines: lines,
                               raw_sample_timestamps: (0...samples).map { |number| 5_000_000 + number * 100 },
                               raw_timestamp_deltas: Array.new(samples, 100))).dump(io)
    io.flush
  end

  private

  # Neighbours share most of their frames, and a method calls six others, as in a program.
  def stacks
    raw = []
    lines = []
    stack = []
    @runs.times do
      stack = stack.first(@chance.rand(stack.size + 1))
      depth = @depth / 2 + @chance.rand(@depth)
      stack << (stack.empty? ? 0 : (stack.last * 7 + 1 + @chance.rand(6)) % @ids.size) while stack.size < depth
      raw.push(stack.size, *stack.map { |index| @ids[index] }, @weight)
      lines.push(stack.size, *stack.map { |index| index % 400 + 1 }, @weight)
    end
    [raw, lines]
  end

  # Counted by the library: here they are only to be many.
  def frames(raw)
    require "ringprof/profile/tally"
    tally = RingProf::Profile.const_get(:Tally).new
    RingProf::Profile::Stacks.new(raw).each_ids { |ids, weight| tally.add(ids, nil, weight) }
    names = @ids.each_with_index.to_h { |id, number| [id, { name: "Module#{number % 90}::Class#{number % 700}#method_#{number}", file: "/app/lib/file_#{number % 700}.rb", line: number % 400 + 1 }] }
    tally.frames(names)
  end
end

# What Linux says of this process.
module Memory
  module_function

  def now
    status[/^VmRSS:\s+(\d+)/, 1].to_i / 1024
  end

  def peak
    status[/^VmHWM:\s+(\d+)/, 1].to_i / 1024
  end

  # The peak is counted from here on.
  def forget_peak
    File.write("/proc/self/clear_refs", "5")
  end

  def status
    File.read("/proc/self/status")
  end
end

# Runs of equal weight in the process that prints the table.
class ReportsBench
  def initialize(path)
    @path = path
    @sheet = Sheet.new("reports")
  end

  def run
    loading, profile = timed { RingProf::Profile.load(@path) }
    GC.start
    held = Memory.now
    puts format("dump %d MB, loaded in %.1f s of CPU time, %d MB held", File.size(@path) >> 20, loading, held)
    puts "format                    CPU seconds   peak MB   of held"
    $stdout.flush
    # Each from the same start: what one leaves behind is not the next one's.
    RingProf::Report.formats.each_value do |format|
      seconds, peak = measured { measure(format, profile, held) }
      @sheet.add("#{format.name}: CPU seconds", seconds, "s", **(format.name == "text" ? { most: 3 } : {}))
      @sheet.add("#{format.name}: peak ÷ what is held", peak, "", most: 1.5)
    end
    @sheet
  end

  private

  def measure(format, profile, held)
    Memory.forget_peak
    seconds, = timed { File.open(File::NULL, "w") { |io| format.new(profile).write(io) } }
    puts format("%-28s %8.2f  %8d  %8.2f", format.name, seconds, Memory.peak, Memory.peak.fdiv(held))
    $stdout.flush
    [seconds, Memory.peak.fdiv(held)]
  end

  # What the block comes to in a process of its own.
  def measured
    reader, writer = IO.pipe
    pid = fork { writer.write(Marshal.dump(yield)) }
    writer.close
    Process.wait(pid)
    Marshal.load(reader.read)
  end

  def timed
    start = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)
    value = yield
    [Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) - start, value]
  end
end

if $PROGRAM_NAME == __FILE__
  json = nil
  size = { samples: 6_000_000, runs: 200_000, depth: 30, frames: 4000 }
  OptionParser.new do |parser|
    size.each_key { |name| parser.on("--#{name} N", Integer) { |number| size[name] = number } }
    parser.on("--json FILE", "adds the measures to this file") { |path| json = path }
  end.parse!
  Tempfile.create("ringprof-bench") do |file|
    # In a process of its own, whose memory is not counted.
    Process.wait(fork { BigProfile.new(**size).dump(file.binmode) })
    sheet = ReportsBench.new(file.path).run
    puts "", *sheet.table
    sheet.write(json) if json
  end
end
