# frozen_string_literal: true

# How true a profile of a real program is: Ruby's own RDoc on parts of the standard library, every 100 µs of wall time,
# without a profiler, under RingProf and under StackProf in turn. See README.md for the columns.
#
#     ruby bench/rdoc.rb [options]

require "json"
require "optparse"
require "rbconfig"
require "tmpdir"
require_relative "support/sheet"

# The profiled program, in a process of its own: `ruby rdoc.rb --child PROFILER OUTPUT_FOLDER`.
module Child
  INTERVAL_US = 100
  FILES = %w[optparse.rb set.rb fileutils.rb csv.rb csv uri net json].freeze
  OPTIONS = { mode: :wall, interval: INTERVAL_US, raw: true }.freeze

  module_function

  def run(profiler, folder)
    profiler = { "ringprof" => Ring, "stackprof" => Stack, "none" => nil }.fetch(profiler)
    profiler&.load
    require "rdoc"
    files = FILES.map { |file| File.join(RbConfig::CONFIG["rubylibdir"], file) }.select { |file| File.exist?(file) }
    profiler&.start
    began = now
    RDoc::RDoc.new.document(["--quiet", "--op", folder, *files])
    elapsed = now - began
    { elapsed_ns: elapsed, **(profiler ? profiler.stop : {}) }
  end

  def now
    Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
  end

  # Σ of the counts that follow each stack of a raw profile (length, frames, count).
  def raw_weights(raw)
    total = 0
    position = 0
    while position < raw.size
      position += raw[position] + 1
      total += raw[position]
      position += 1
    end
    total
  end

  # RingProf as it is installed, or as `--extension` says.
  module Ring
    module_function

    def load
      require "ringprof"
    end

    def start
      RingProf.start(**OPTIONS)
    end

    def stop
      RingProf.stop
      stats = RingProf.stats
      results = RingProf.results
      { ticks: stats[:received], samples: results[:samples], missed: results[:missed_samples],
        weights: Child.raw_weights(results[:raw]), recorded: stats[:recorded], coalesced: stats[:coalesced][:total],
        lost: stats[:lost][:total], handler_ns: stats[:handler][:total_ns], drain_ns: stats[:drains][:total_ns],
        drains: stats[:drains][:count], longest_drain_ns: stats[:drains][:max_ns], short_drains: short(stats[:drains][:histogram]) }
    end

    # Drains of at most the longest time in the histogram that is below 300 µs.
    def short(histogram)
      histogram.select { |ns, _count| ns <= 300_000 }.values.last || 0
    end
  end

  # The stackprof gem.
  module Stack
    module_function

    def load
      require "stackprof"
    end

    def start
      StackProf.start(**OPTIONS)
    end

    def stop
      StackProf.stop
      results = StackProf.results
      { ticks: results[:samples] + results[:missed_samples], samples: results[:samples],
        missed: results[:missed_samples], weights: Child.raw_weights(results[:raw]) }
    end
  end
end

# Runs the children in turn and prints a table.
class RDocBench
  PROFILERS = %w[none ringprof stackprof].freeze
  COLUMNS = ["profiler", "seconds", "slowdown", "ticks", "samples", "missed %", "weights ÷ time", "own µs",
             "longest drain ms"].freeze
  ROOT = File.expand_path("..", __dir__)

  def initialize(arguments)
    @rounds = 3
    @extension = File.join(ROOT, "lib")
    options.parse!(arguments)
    refuse("no such argument: #{arguments.first}") unless arguments.empty?
    return if File.exist?(File.join(@extension, "ringprof/ringprof.so"))

    refuse("the extension is missing in #{@extension}: run bin/setup")
  rescue OptionParser::ParseError => e
    refuse(e.message)
  end

  def call
    runs = PROFILERS.to_h { |profiler| [profiler, []] }
    @rounds.times do
      PROFILERS.each { |profiler| run(profiler)&.then { |answer| runs[profiler] << answer } }
    end
    fastest = runs["none"].map { |answer| answer[:elapsed_ns] }.min
    rows = runs.flat_map { |profiler, answers| answers.map { |answer| row(profiler, answer, fastest) } }
    puts format("%s, Linux %s, load %s\n%s\n\n", Time.now.strftime("%F"), File.read("/proc/sys/kernel/osrelease").chomp,
                File.read("/proc/loadavg")[/\S+ \S+ \S+/], RUBY_DESCRIPTION)
    print_table(rows)
    puts "", *sheet(runs, fastest).table
    sheet(runs, fastest).write(@json) if @json
  end

  private

  # Of all runs of RingProf together; times by their medians.
  def sheet(runs, fastest)
    ours = runs["ringprof"]
    sheet = Sheet.new("rdoc")
    sum = ->(key) { ours.sum { |answer| answer[key] } }
    slowdown = ->(answers) { answers.map { |answer| answer[:elapsed_ns].fdiv(fastest) }.sort[answers.size / 2] }
    sheet.add("drains of at most 300 µs", 100.0 * sum[:short_drains] / sum[:drains], "%", least: 99.9)
    sheet.add("missed", 100.0 * sum[:missed] / (sum[:samples] + sum[:missed]), "%")
    sheet.add("weights × interval ÷ elapsed", sum[:weights].fdiv(sum[:elapsed_ns]) * Child::INTERVAL_US * 1000, "", least: 0.99, most: 1.01)
    sheet.add("slowdown", slowdown[ours])
    sheet.add("slowdown under StackProf", slowdown[runs["stackprof"]]) unless runs["stackprof"].empty?
    sheet
  end

  def options
    OptionParser.new do |parser|
      parser.banner = "Usage: ruby bench/rdoc.rb [options]"
      parser.on("--rounds N", Integer, "runs of each (default #{@rounds})") { |value| @rounds = value }
      parser.on("--json FILE", "adds the measures to this file") { |path| @json = path }
      parser.on("--markdown", "print the table as README.md has it") { @markdown = true }
      parser.on("--extension DIR", "where the build to measure is (default lib)") do |directory|
        @extension = File.expand_path(directory)
      end
    end
  end

  def refuse(message)
    abort "bench/rdoc.rb: #{message} (see --help)"
  end

  # @return [Hash, nil] nil when the profiler is not installed
  def run(profiler)
    Dir.mktmpdir do |folder|
      # RDoc refuses a folder that it did not make, hence the one below.
      command = [RbConfig.ruby, "-W0", "-I", @extension, "-I", File.join(ROOT, "lib"), __FILE__, "--child", profiler,
                 File.join(folder, "doc")]
      answer = IO.popen(command, &:read)
      next JSON.parse(answer, symbolize_names: true) if $?.success?

      warn "bench/rdoc.rb: without #{profiler}: its process ended with #{$?.exitstatus || $?.termsig}"
    end
  end

  def row(profiler, answer, fastest)
    elapsed = answer[:elapsed_ns]
    cells = [profiler, format("%.2f", elapsed / 1e9), format("%.3f", elapsed.fdiv(fastest))]
    return cells + [""] * (COLUMNS.size - cells.size) unless answer[:samples]

    missed = answer[:missed].fdiv(answer[:samples] + answer[:missed]) * 100
    time = answer[:weights].fdiv(elapsed) * Child::INTERVAL_US * 1000
    cells + [answer[:ticks].to_s, answer[:samples].to_s, format("%.2f", missed), format("%.4f", time), *own(answer)]
  end

  # What RingProf's own clocks say: cost of a tick in handler and drain, and the longest pause.
  def own(answer)
    return ["", ""] unless answer[:handler_ns]

    [format("%.2f", (answer[:handler_ns] + answer[:drain_ns]).fdiv(answer[:ticks]) / 1000),
     format("%.2f", answer[:longest_drain_ns] / 1e6)]
  end

  def print_table(rows)
    widths = [COLUMNS, *rows].transpose.map { |column| column.map(&:length).max }
    rule = widths.each_with_index.map { |width, i| i.zero? ? "-" * width : "#{"-" * (width - 1)}:" }
    [COLUMNS, (rule if @markdown), *rows].compact.each do |line|
      cells = line.each_with_index.map { |cell, i| i.zero? ? cell.ljust(widths[i]) : cell.rjust(widths[i]) }
      puts @markdown ? "| #{cells.join(" | ")} |" : cells.join("  ").rstrip
    end
  end
end

if ARGV.first == "--child"
  puts JSON.generate(Child.run(*ARGV.drop(1)))
else
  RDocBench.new(ARGV).call
end
