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
      # Without a profile, too, Ruby 3.3.8 dies of finalizers then.
      env = chance?(0.5) && way != :finalizers ? { "RUBY_FREE_AT_EXIT" => "1" } : {}
      wait(Process.spawn(env, RbConfig.ruby, *Torture::Stage::INCLUDES, "-r", "torture/leave", "-e", script), expected)
    end
  end
end
