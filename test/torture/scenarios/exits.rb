# frozen_string_literal: true

require "torture/leave"

Torture.scenario("exits") do
  Torture::Leave::WAYS.each do |way, expected|
    given = options
    tally[:exits] += 1
    if chance?(0.9)
      child(expected) { Torture::Leave.by(way, given) }
    else
      script = "Torture::Leave.by(#{way.inspect}, #{given.inspect})"
      wait(Process.spawn(RbConfig.ruby, *Torture::Stage::INCLUDES, "-r", "torture/leave", "-e", script), expected)
    end
  end
end
