# frozen_string_literal: true

require "json"
require "torture/scenario"
require "torture/stage"

# Arguments: file for reports, seconds for each scenario, interval, compact or not, then `scenario:seed`...
reports, seconds, interval, compact, *deal = ARGV
GC.auto_compact = true if compact == "true"
Thread.report_on_exception = false
deal.each do |entry|
  name, seed = entry.split(":")
  stage = Torture::Stage.new(Integer(seed), interval: Integer(interval), compact: compact == "true")
  warn "== #{name}, seed #{seed}"
  failure = stage.play(Torture::SCENARIOS.fetch(name), Float(seconds))
  File.write(reports, "#{JSON.generate(failure: failure, tally: stage.tally)}\n", mode: "a")
end
