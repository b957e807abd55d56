# frozen_string_literal: true

# What a profiler costs the program, at stacks of several depths, every 100 µs. See README.md for the columns.
#
#     ruby bench/overhead.rb [options]
#
# Each contender is a process of its own (worker.rb), started once; all of them do short rounds of the same work, in
# random order, so that what else the machine does falls on all alike.

require "etc"
require "json"
require "optparse"
require "rbconfig"
require_relative "support/contender"
require_relative "support/sheet"

# A table line: one contender at one depth.
class Line
  COLUMNS = ["contender", "slowdown", "CPU", "ticks", "samples", "missed", "handler µs", "drain µs", "own µs",
             "by time µs", "÷ warm walk", "÷ cold walk"].freeze

  # Whose rounds a contender's cost by time is counted from.
  FLOORS = { "ringprof wall thread" => "empty thread", "ringprof cpu thread" => "empty thread",
             "ringprof wall timer" => "empty timer", "ringprof cpu timer" => "empty timer",
             "stackprof wall" => "empty itimer" }.freeze

  def initialize(name, rounds)
    @name = name
    @rounds = rounds.fetch(name)
    @base = rounds.fetch("none")
    @floor = rounds[FLOORS[name]]
    @walk = rounds.fetch("walk")
    @worked = @rounds.to_a.all? { |round| round.key?(:wall_ns) }
  end

  # @return [Hash] times in µs; nil where a column does not apply
  def to_h
    { name: @name, slowdown: ratio(:wall_ns), slowdown_cpu: ratio(:cpu_ns), **counts, handler: handler, drain: drain,
      own: own, by_time: by_time, per_warm_walk: in_walks(:warm_ns), per_cold_walk: in_walks(:cold_ns) }
  end

  # @return [Array<String>]
  def cells
    to_h.values.map { |value| value.is_a?(Float) ? format("%.2f", value) : (value || "").to_s }
  end

  private

  def counts
    %i[ticks samples missed].to_h { |key| [key, (@rounds.sum(key) if @floor || !@worked)] }
  end

  def ratio(key)
    return unless @worked

    @rounds.low { |round| whole(round, key) } / @base.low { |round| round[key] }
  end

  # A round's time, with the draining that it left to be done.
  def whole(round, key)
    round[key] + round.fetch(:late_ns, 0)
  end

  def per(round, time, count)
    round[count].zero? ? Float::INFINITY : round[time].fdiv(round[count]) / 1000
  end

  def measures_itself?
    @rounds.sum(:handler_ns).positive?
  end

  def handler
    @rounds.low { |round| per(round, :handler_ns, :ticks) } if measures_itself?
  end

  def drain
    @rounds.low { |round| per(round, :drain_ns, :records) } if measures_itself?
  end

  # Cost of one sample by the profiler's own clock.
  def own
    handler + drain if measures_itself?
  end

  # Cost of one tick by the time that the work took, over that of the same ticks with a handler that does nothing.
  def by_time
    return unless @floor

    beyond = @rounds.low { |round| whole(round, :cpu_ns) } - @floor.low { |round| round[:cpu_ns] }
    ticks = @rounds.to_a.map { |round| round[:ticks] }.sort[@rounds.to_a.size / 2]
    beyond / ticks / 1000
  end

  def in_walks(kind)
    cost = own || by_time
    cost && (cost * 1000 / @walk.low { |round| round[kind] })
  end
end

# Reads the command line, runs the rounds, prints the tables.
class Overhead
  CONTENDERS = ["none", "empty thread", "empty timer", "empty itimer", "ringprof wall thread", "ringprof wall timer",
                "ringprof cpu thread", "ringprof cpu timer", "stackprof wall", "ringprof played", "walk"].freeze
  # The rest do rounds of work. A command's work is short, and so is done more often in a lap.
  COMMANDS = { "walk" => "walk", "ringprof played" => "play" }.freeze
  COMMANDS_PER_LAP = 10
  ROOT = File.expand_path("..", __dir__)
  LEAST_LAPS = 5
  # What own cost ÷ cold walk is held to, by depth.
  BOUNDS = { 50 => 1.5, 200 => 1.3 }.freeze

  def initialize(arguments)
    @seconds = 120
    @depths = [5, 50, 200]
    @extension = File.join(ROOT, "build/testing")
    @round_ms = 40
    @seed = Random.new_seed % 1_000_000
    options.parse!(arguments)
    refuse("no such argument: #{arguments.first}") unless arguments.empty?
    return if File.exist?(File.join(@extension, "ringprof/ringprof.so"))

    refuse("the test build is missing in #{@extension}: run bin/setup test")
  rescue OptionParser::ParseError, ArgumentError => e
    refuse(e.message)
  end

  def call
    @machine = machine
    @contenders = CONTENDERS.filter_map do |name|
      Contender.open(name, [@extension, File.join(ROOT, "lib")]) || warn("bench/overhead.rb: without #{name}")
    end
    refuse("no RingProf to measure") if @contenders.none? { |contender| contender.name == "walk" }
    @rounds = @depths.to_h { |depth| [depth, @contenders.to_h { |contender| [contender.name, Rounds.new] }] }
    run
    @contenders.each(&:close)
    report
  end

  private

  def options
    OptionParser.new do |parser|
      parser.banner = "Usage: ruby bench/overhead.rb [options]"
      parser.on("--seconds N", Float, "how long to measure (default #{@seconds})") { |value| @seconds = value }
      parser.on("--depths LIST", Array, "frames on the stack (default 5,50,200)") do |list|
        @depths = list.map { |depth| Integer(depth, 10) }
      end
      parser.on("--round MS", Integer, "length of a round without a profiler (default #{@round_ms})") do |ms|
        @round_ms = ms
      end
      parser.on("--json FILE", "adds the measures to this file") { |path| @json = path }
      parser.on("--markdown", "print the tables as README.md has them") { @markdown = true }
      parser.on("--extension DIR", "where the test build is (default build/testing)") do |directory|
        @extension = File.expand_path(directory)
      end
      parser.on("--seed N", Integer, "for the order of the rounds") { |seed| @seed = seed }
    end
  end

  def refuse(message)
    abort "bench/overhead.rb: #{message} (see --help)"
  end

  def machine
    { date: Time.now.strftime("%F"), cpus: Etc.nprocessors, cpu: File.read("/proc/cpuinfo")[/^model name\s*: (.*)/, 1],
      kernel: Etc.uname[:release], ruby: RUBY_DESCRIPTION, load: File.read("/proc/loadavg").split.first(3) }
  end

  def run
    amounts = @depths.to_h { |depth| [depth, calibrate(depth)] }
    pairs = @contenders.product(@depths)
    random = Random.new(@seed)
    ends = now + @seconds
    @laps = 0
    while now < ends || @laps < LEAST_LAPS
      pairs.shuffle(random: random).each do |contender, depth|
        ask(contender, depth, amounts[depth])
      end
      @laps += 1
    end
  end

  def ask(contender, depth, amount)
    rounds = @rounds[depth][contender.name]
    command = COMMANDS[contender.name]
    return rounds << contender.ask("round", depth, amount) unless command

    COMMANDS_PER_LAP.times { rounds << contender.ask(command, depth) }
  end

  # The amount of work that takes a round's time without a profiler.
  def calibrate(depth)
    trial = 20_000
    plain = @contenders.find { |contender| contender.name == "none" }
    fastest = Array.new(5) { plain.ask("round", depth, trial)[:cpu_ns] }.min
    trial * @round_ms * 1_000_000 / fastest
  end

  def now
    Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end

  def report
    puts introduction
    @depths.each do |depth|
      walk = @rounds[depth]["walk"]
      puts "", format("Depth %d: the bare walk takes %.2f µs warm, %.2f µs cold.", depth,
                      walk.low { |round| round[:warm_ns] } / 1000, walk.low { |round| round[:cold_ns] } / 1000), ""
      print_table(lines(depth).map(&:cells))
    end
    puts "", *sheet.table
    sheet.write(@json) if @json
  end

  def introduction
    format("%<date>s, %<cpus>d CPUs (%<cpu>s), Linux %<kernel>s, load %<load>s,\n" \
           "%<ruby>s; %<laps>d rounds of %<ms>d ms, seed %<seed>d.",
           **@machine, load: @machine[:load].join(" "), laps: @laps, ms: @round_ms, seed: @seed)
  end

  def lines(depth)
    (@rounds[depth].keys - ["walk"]).map { |name| Line.new(name, @rounds[depth]) }
  end

  def print_table(rows)
    widths = [Line::COLUMNS, *rows].transpose.map { |column| column.map(&:length).max }
    rule = widths.each_with_index.map { |width, i| i.zero? ? "-" * width : "#{"-" * (width - 1)}:" }
    [Line::COLUMNS, (rule if @markdown), *rows].compact.each do |row|
      cells = row.each_with_index.map { |cell, i| i.zero? ? cell.ljust(widths[i]) : cell.rjust(widths[i]) }
      puts @markdown ? "| #{cells.join(" | ")} |" : cells.join("  ").rstrip
    end
  end

  # What one sample costs, in bare walks of the same stack: what is held to a bound is compared with a walk that, like a
  # handler, comes after an interval of other work.
  def sheet
    @sheet ||= Sheet.new("overhead").tap do |sheet|
      @depths.each do |depth|
        wall, cpu = ["ringprof wall thread", "ringprof cpu thread"].map { |name| Line.new(name, @rounds[depth]).to_h }
        sheet.add("depth #{depth}: own cost ÷ cold walk, wall", wall[:per_cold_walk], most: BOUNDS[depth])
        sheet.add("depth #{depth}: the same in CPU mode, less that", cpu[:per_cold_walk] - wall[:per_cold_walk], most: 0.1)
        sheet.add("depth #{depth}: own cost ÷ warm walk, wall", wall[:per_warm_walk])
      end
    end
  end
end

Overhead.new(ARGV).call
