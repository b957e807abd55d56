# frozen_string_literal: true

module Torture
  # Memory to carry along: 2 GB, or a quarter of what there is.
  BALLAST = [2 << 30, File.read("/proc/meminfo")[/^MemAvailable:\s*(\d+)/, 1].to_i * 1024 / 4].min
end

# Copying the page tables takes longer than an interval; ticks are held back, or no fork would ever end.
Torture.scenario("fork-of-a-big-process") do
  tally[:"forks of a big process"] += 4
  child do
    ballast = "x" * Torture::BALLAST
    profile(options(interval: 100)) do
      4.times do |turn|
        child { raise Torture::Broken, "not its memory" unless ballast.getbyte(turn * (Torture::BALLAST / 4)) == 120 }
        raise Torture::Broken, "true ended with #{$?}" if turn.odd? && !system("true")
      end
    end
  end
end
