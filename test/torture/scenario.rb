# frozen_string_literal: true

module Torture
  # Name => one round of it, to be run by a Stage.
  SCENARIOS = {}

  # What a profile says is not true, or a process did not end as it should.
  class Broken < StandardError; end

  def self.scenario(name, &round)
    SCENARIOS[name] = round
  end
end

Dir.glob("scenarios/*.rb", base: __dir__).sort.each { |file| require "torture/#{file}" }
