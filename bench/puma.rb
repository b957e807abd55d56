# frozen_string_literal: true

# What staying on costs the clients of a real server: Puma in cluster mode with an application that computes, sleeps and asks
# PostgreSQL, without a profiler, and with all of its processes under RingProf. See README.md for the columns.
#
#     ruby bench/puma.rb [options]

$LOAD_PATH.unshift(File.expand_path("../test", __dir__))

require "optparse"
require "support/serving"
require_relative "support/sheet"

# The measure, and its table.
class PumaBench
  ROOT = File.expand_path("..", __dir__)
  # Interval in µs by contender. The same without a profiler twice: what differs there is the machine's.
  CONTENDERS = { "none" => nil, "none again" => nil, "1 ms" => 1000, "100 µs" => 100 }.freeze
  QUANTILES = Serving::Load::QUANTILES

  # What one round said. `off` is the largest part by which a thread's weights differ from its life.
  Round = Struct.new(:rate, :latency, :failed, :off, :cost, keyword_init: true)

  def initialize(seconds:, rounds:, connections:, json: nil)
    @json = json
    @seconds = seconds
    @rounds = rounds
    @connections = connections
  end

  def run
    puts heading
    @database = Serving::Database.new.start
    round("none", 1)
    rounds = CONTENDERS.keys.to_h { |name| [name, []] }
    # In turns, and each time in another order: what else the machine does falls on all.
    @rounds.times do |number|
      CONTENDERS.keys.rotate(number).each { |name| rounds[name] << round(name, @seconds) }
    end
    puts "", table(rounds), "", *sheet(rounds).table, "", "load at the end #{load}"
    sheet(rounds).write(@json) if @json
  ensure
    @database&.stop
  end

  private

  def heading
    "#{Time.now.strftime("%F")}, #{Etc.nprocessors} CPUs, load #{load}, #{RUBY_DESCRIPTION}; " \
      "#{@rounds} rounds of #{@seconds} s, #{@connections} clients, 2 workers of 5 threads"
  end

  def load
    File.read("/proc/loadavg").split.first(3).join(" ")
  end

  def round(name, seconds)
    interval = CONTENDERS.fetch(name)
    profile = interval && { mode: :wall, interval: interval }
    server = Serving::Server.new(database: @database, includes: ["#{ROOT}/lib"], profile: profile).start
    loaded = Serving::Load.new(server.url, connections: @connections, seconds: seconds).run
    server.stop(:TERM)
    Round.new(rate: loaded.requests / loaded.seconds, latency: loaded.latency, failed: loaded.failed,
              off: interval && off(server, interval), cost: interval && cost(server))
  ensure
    server&.close
  end

  def off(server, interval)
    server.ever.flat_map { |pid|
      threads = server.profile(pid)[:threads]
      stopped = threads.find { |thread| thread[:main] }[:born] + (server.stats(pid)[:elapsed_ns] / 1000)
      threads.map { |thread| ((thread[:samples] * interval).fdiv((thread[:died] || stopped) - thread[:born]) - 1).abs }
    }.max
  end

  # Part of a core that the profiler of one worker took, by its own account.
  def cost(server)
    server.ever.map { |pid| server.stats(pid).then { |stats| stats[:cost_ns].fdiv(stats[:elapsed_ns]) } }.max
  end

  def sheet(rounds)
    sheet = Sheet.new("puma, #{@connections} clients")
    again = ratio(rounds, "none again", "none", 99)
    sheet.add("p99 without a profiler ÷ the same again", again)
    sheet.add("p99 at 1 ms ÷ without", ratio(rounds, "1 ms", "none", 99), "", most: 1.1)
    sheet.add("p99 at 100 µs ÷ without", ratio(rounds, "100 µs", "none", 99))
    sheet.add("p99.9 at 100 µs ÷ without", ratio(rounds, "100 µs", "none", 99.9))
    sheet.add("requests failed", rounds.values.flatten.sum(&:failed), "", most: 0)
    sheet.add("largest error of a thread's time", 100 * rounds.values.flatten.filter_map(&:off).max, "%", most: 2)
  end

  # Median of the rounds, each against the one that was run next to it.
  def ratio(rounds, one, other, quantile)
    median(rounds.fetch(one).zip(rounds.fetch(other)).map { |round, base| round.latency[quantile] / base.latency[quantile] })
  end

  def table(rounds)
    titles = ["contender", "requests a second", *QUANTILES.map { |quantile| "p#{quantile} ms" },
              *QUANTILES.map { |quantile| "÷ p#{quantile}" }, "failed", "largest error %", "cost %"]
    aligned([titles, *rounds.map { |name, those| row(name, those, rounds.fetch("none")) }])
  end

  def row(name, those, plain)
    latencies = QUANTILES.map { |quantile| median(those.map { |one| one.latency[quantile] }) }
    # Each against the round without a profiler that was run next to it.
    ratios = QUANTILES.map { |quantile| median(those.zip(plain).map { |one, other| one.latency[quantile] / other.latency[quantile] }) }
    [name, format("%.0f", median(those.map(&:rate))), *latencies.map { |seconds| format("%.2f", seconds * 1e3) },
     *ratios.map { |ratio| format("%.3f", ratio) }, those.sum(&:failed).to_s, percent(those.filter_map(&:off).max), percent(those.filter_map(&:cost).max)]
  end

  def percent(part)
    part ? format("%.2f", 100 * part) : ""
  end

  def median(values)
    sorted = values.sort
    (sorted[(sorted.size - 1) / 2] + sorted[sorted.size / 2]) / 2.0
  end

  def aligned(rows)
    widths = rows.transpose.map { |cells| cells.map(&:size).max }
    lines = rows.map { |row| "| #{row.each_with_index.map { |cell, i| i.zero? ? cell.ljust(widths[i]) : cell.rjust(widths[i]) }.join(" | ")} |" }
    rule = "| #{widths.each_with_index.map { |width, i| i.zero? ? "-" * width : "#{"-" * (width - 1)}:" }.join(" | ")} |"
    [lines.first, rule, *lines.drop(1)]
  end
end

options = { seconds: 10, rounds: 6, connections: 4 }
OptionParser.new do |parser|
  parser.banner = "Usage: ruby bench/puma.rb [options]"
  parser.on("--seconds N", Integer, "of load in a round (#{options[:seconds]})")
  parser.on("--rounds N", Integer, "of each contender (#{options[:rounds]})")
  parser.on("--connections N", Integer, "clients at a time (#{options[:connections]})")
  parser.on("--json FILE", "adds the measures to this file")
end.parse!(into: options)
missing = Serving.missing
abort "bench/puma.rb: #{missing.join("; ")} (bin/setup test installs it)" unless missing.empty?
$stdout.sync = true
PumaBench.new(**options).run
