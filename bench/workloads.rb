# frozen_string_literal: true

# How much slower programs of several kinds are under each profiler, every 100 µs. See README.md for the columns.
#
#     ruby bench/workloads.rb [options]
#
# The contenders are processes of their own (worker.rb) that do short rounds of the same work. Each lap has a round of every
# contender at one work, in random order between two rounds without a profiler, whose mean they are divided by: what the
# machine does for longer than a lap falls on all. A slowdown is the median of the laps.

require "optparse"
require_relative "support/contender"
require_relative "support/sheet"

# Reads the command line, runs the rounds, prints the table.
class Workloads
  CONTENDERS = ["none", "empty thread", "empty timer", "empty itimer", "ringprof wall thread", "ringprof all thread", "ringprof cpu thread",
                "ringprof both thread", "ringprof wall timer", "stackprof wall", "vernier wall", "rperf wall", "pf2 wall"].freeze
  # Command and first argument of the worker, by name.
  WORK = {
    "loop" => %w[load loop], "calls" => %w[round 8], "blocks" => %w[load blocks], "objects" => %w[load objects],
    "parser" => %w[load parser], "depth 50" => %w[round 50], "depth 200" => %w[round 200], "depth 1500" => %w[round 1500]
  }.freeze
  # What RingProf's slowdown ÷ that of an empty handler with the same tick source is held to.
  BOUNDS = Hash.new(1.2).merge("depth 200" => 1.35, "depth 1500" => nil).freeze
  ROOT = File.expand_path("..", __dir__)
  TRIAL = { "load" => 2_000, "round" => 20_000 }.freeze

  def initialize(arguments)
    @seconds = 120
    @round_ms = 40
    @names = WORK.keys
    @contenders = CONTENDERS
    @extension = File.join(ROOT, "build/testing-#{RUBY_VERSION[/\A\d+\.\d+/]}")
    @options = []
    parser.parse!(arguments)
    refuse("no such argument: #{arguments.first}") unless arguments.empty?
    refuse("the test build is missing in #{@extension}: run bin/setup test") unless File.exist?("#{@extension}/ringprof/ringprof.so")
  rescue OptionParser::ParseError => e
    refuse(e.message)
  end

  def call
    @open = @contenders.filter_map do |name|
      Contender.open(name, [@extension, File.join(ROOT, "lib")], ruby: [RbConfig.ruby, *@options]) || warn("bench/workloads.rb: without #{name}")
    end
    @plain, *@others = @open
    refuse("none must be the first contender") unless @plain.name == "none"
    @ratios = @names.to_h { |work| [work, @others.to_h { |contender| [contender.name, []] }] }
    introduction = Sheet.introduction
    run
    @open.each(&:close)
    puts introduction, "", *slowdowns, "", *sheet.table
    sheet.write(@json) if @json
  end

  private

  def parser
    OptionParser.new do |parser|
      parser.banner = "Usage: ruby bench/workloads.rb [options]"
      parser.on("--seconds N", Float, "how long to measure (default #{@seconds})") { |value| @seconds = value }
      parser.on("--round MS", Integer, "length of a round without a profiler (default #{@round_ms})") { |ms| @round_ms = ms }
      parser.on("--work LIST", Array, "of #{WORK.keys.join(",")}") { |list| @names = list.each { |name| WORK.fetch(name) { refuse("no such work: #{name}") } } }
      parser.on("--contenders LIST", Array, "of #{CONTENDERS.join(",")}") { |list| @contenders = list }
      parser.on("--yjit", "the work runs with --yjit") { @options << "--yjit" }
      parser.on("--json FILE", "adds the measures to this file") { |path| @json = path }
    end
  end

  def refuse(message)
    abort "bench/workloads.rb: #{message} (see --help)"
  end

  def run
    amounts = @names.to_h { |work| [work, calibrate(work)] }
    ends = Process.clock_gettime(Process::CLOCK_MONOTONIC) + @seconds
    laps = 0
    while Process.clock_gettime(Process::CLOCK_MONOTONIC) < ends || laps < 5
      @names.shuffle.each { |work| lap(work, amounts[work]) }
      laps += 1
    end
  end

  def lap(work, amount)
    times = [@plain, *@others.shuffle, @plain].map { |contender| [contender.name, time(contender.ask(*WORK.fetch(work), amount))] }
    plain = (times.first.last + times.last.last) / 2.0
    times[1..-2].each { |name, time| @ratios[work][name] << (time / plain) }
  end

  # A round's time with the draining that it left to be done.
  def time(round)
    round[:wall_ns] + round.fetch(:late_ns, 0)
  end

  # The amount of work that takes a round's time without a profiler. What compiles code does so meanwhile.
  def calibrate(work)
    command = WORK.fetch(work)
    amount = TRIAL.fetch(command.first)
    fastest = Array.new(8) { @plain.ask(*command, amount)[:cpu_ns] }.last(5).min
    [amount * @round_ms * 1_000_000 / [fastest, 1].max, 1].max
  end

  def slowdown(work, name)
    sorted = @ratios[work].fetch(name).sort
    sorted[sorted.size / 2]
  end

  def slowdowns
    names = @others.map(&:name)
    rows = [["contender", *@names], *names.map { |name| [name, *@names.map { |work| format("%.3f", slowdown(work, name)) }] }]
    widths = rows.transpose.map { |column| column.map(&:length).max }
    lines = rows.map { |row| "| #{row.each_with_index.map { |cell, at| cell.ljust(widths[at]) }.join(" | ")} |" }
    lines.insert(1, "| #{widths.map { |width| "-" * width }.join(" | ")} |")
  end

  def sheet
    @sheet ||= Sheet.new(["workloads", *@options].join(" ")).tap do |sheet|
      @names.each do |work|
        ours = slowdown(work, "ringprof wall thread")
        sheet.add("#{work}: ringprof wall thread ÷ empty thread", ours / slowdown(work, "empty thread"), most: BOUNDS[work])
        next unless @ratios[work].key?("stackprof wall")

        # What each adds to the time of the program, ticks included.
        theirs = slowdown(work, "stackprof wall")
        sheet.add("#{work}: stackprof's share on top ÷ ringprof's", (theirs - 1) / (ours - 1)) if ours > 1
      end
    end
  end
end

Workloads.new(ARGV).call
