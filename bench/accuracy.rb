# frozen_string_literal: true

# Whether shares of samples are shares of time: a program that knows by its own clocks how long it was in each of its
# methods, under RingProf and StackProf. See README.md for the columns.
#
#     ruby bench/accuracy.rb [options]

require "json"
require "optparse"
require "rbconfig"

# The profiled program, in a process of its own: `ruby accuracy.rb --child PROFILER MODE SECONDS SEED`.
module Child
  INTERVAL_US = 100
  # Shares of turns, and of the time that turns of equal length take.
  TURNS = { often: 12, sometimes: 6, seldom: 2, asleep: 4 }.freeze
  TURN_NS = (50_000..2_000_000).freeze
  CLOCKS = { "wall" => Process::CLOCK_MONOTONIC, "cpu" => Process::CLOCK_THREAD_CPUTIME_ID }.freeze

  module_function

  def run(profiler, mode, seconds, seed)
    library, tick = profiler.split
    require library
    profiler = library == "ringprof" ? RingProf : StackProf
    options = { mode: mode.to_sym, interval: INTERVAL_US }
    options[:tick] = tick.to_sym if tick
    random = Random.new(seed.to_i)
    clock = CLOCKS.fetch(mode)
    truth = TURNS.transform_values { 0 }
    profiler.start(**options)
    ends = now(Process::CLOCK_MONOTONIC) + (seconds.to_f * 1e9)
    while now(Process::CLOCK_MONOTONIC) < ends
      TURNS.flat_map { |name, count| [name] * count }.shuffle(random: random).each do |name|
        before = now(clock)
        send(name, random.rand(TURN_NS))
        truth[name] += now(clock) - before
      end
    end
    profiler.stop
    shares(truth, profiler.results)
  end

  def often(length) = spin(length)
  def sometimes(length) = spin(length)
  def seldom(length) = spin(length)
  def asleep(length) = sleep(length / 1e9)

  def spin(length)
    ends = now(Process::CLOCK_MONOTONIC) + length
    nil while now(Process::CLOCK_MONOTONIC) < ends
  end

  def now(clock)
    Process.clock_gettime(clock, :nanosecond)
  end

  # Shares of the time in all four methods, by the program and by the profile.
  def shares(truth, results)
    counts = TURNS.to_h do |name, _|
      frames = results[:frames].values.select { |frame| frame[:name].end_with?("Child.#{name}", "Child##{name}") }
      [name, frames.sum { |frame| frame[:total_samples] }]
    end
    { truth: fractions(truth), profile: fractions(counts), samples: results[:samples], truth_ns: truth, counts: counts,
      covered: counts.values.sum * INTERVAL_US * 1000.0 / truth.values.sum }
  end

  def fractions(numbers)
    numbers.transform_values { |number| number.fdiv(numbers.values.sum) }
  end
end

# Runs the children in turn and prints a table.
class Accuracy
  COLUMNS = ["profiler", "samples", "samples ÷ time", *Child::TURNS.keys.map(&:to_s), "largest error"].freeze
  PROFILERS = ["ringprof thread", "ringprof timer", "stackprof"].freeze
  ROOT = File.expand_path("..", __dir__)

  def initialize(arguments)
    @seconds = 10
    @seed = 1
    @extension = File.join(ROOT, "lib")
    options.parse!(arguments)
    refuse("no such argument: #{arguments.first}") unless arguments.empty?
    return if File.exist?(File.join(@extension, "ringprof/ringprof.so"))

    refuse("the extension is missing in #{@extension}: run bin/setup")
  rescue OptionParser::ParseError => e
    refuse(e.message)
  end

  def call
    runs = PROFILERS.product(Child::CLOCKS.keys).filter_map { |profiler, mode| run(profiler, mode) }
    puts format("%s, Linux %s, load %s\n%s\n\n", Time.now.strftime("%F"), File.read("/proc/sys/kernel/osrelease").chomp,
                File.read("/proc/loadavg")[/\S+ \S+ \S+/], RUBY_DESCRIPTION)
    print_table(runs.map { |name, answer| row(name, answer) })
    File.write(@json, JSON.generate(runs.to_h)) if @json
  end

  private

  def options
    OptionParser.new do |parser|
      parser.banner = "Usage: ruby bench/accuracy.rb [options]"
      parser.on("--seconds N", Float, "length of each run (default #{@seconds})") { |value| @seconds = value }
      parser.on("--seed N", Integer, "for the order of the turns (default #{@seed})") { |seed| @seed = seed }
      parser.on("--json FILE", "what each run said") { |path| @json = path }
      parser.on("--markdown", "print the table as README.md has it") { @markdown = true }
      parser.on("--extension DIR", "where the build to measure is (default lib)") do |directory|
        @extension = File.expand_path(directory)
      end
    end
  end

  def refuse(message)
    abort "bench/accuracy.rb: #{message} (see --help)"
  end

  # @return [Array(String, Hash), nil] nil when the profiler is not installed
  def run(profiler, mode)
    command = [RbConfig.ruby, "-W0", "-I", @extension, "-I", File.join(ROOT, "lib"), __FILE__, "--child", profiler, mode,
               @seconds.to_s, @seed.to_s]
    answer = IO.popen(command, &:read)
    return ["#{profiler} #{mode}", JSON.parse(answer, symbolize_names: true)] if $?.success?

    warn "bench/accuracy.rb: without #{profiler}: its process ended with #{$?.exitstatus || $?.termsig}"
  end

  # Each method's share by the profile, and by the program itself in brackets.
  def row(name, answer)
    pairs = answer[:truth].map { |method, truth| [answer[:profile][method] * 100, truth * 100] }
    error = pairs.map { |profile, truth| (profile - truth).abs }.max
    [name, answer[:samples].to_s, format("%.4f", answer[:covered]),
     *pairs.map { |pair| format("%.2f (%.2f)", *pair) }, format("%.2f", error)]
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
  Accuracy.new(ARGV).call
end
