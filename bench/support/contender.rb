# frozen_string_literal: true

require "json"
require "rbconfig"

# A worker process at the other end of two pipes.
class Contender
  attr_reader :name

  # @param ruby [Array<String>] the interpreter and its options
  # @return [Contender, nil] nil when the worker does not start: its profiler is not installed
  def self.open(name, load_path, ruby: [RbConfig.ruby])
    contender = new(name, load_path, ruby)
    contender if contender.ready?
  end

  def initialize(name, load_path, ruby)
    @name = name
    includes = load_path.flat_map { |directory| ["-I", directory] }
    @pipe = IO.popen([*ruby, *includes, File.expand_path("../worker.rb", __dir__), name], "r+")
  end

  def ready?
    @pipe.gets == "ready\n"
  end

  # @return [Hash{Symbol => Numeric}] what the round was like
  def ask(*command)
    @pipe.puts command.join(" ")
    JSON.parse(@pipe.gets || abort("bench: the worker #{name.inspect} died"), symbolize_names: true)
  end

  def close
    @pipe.close
  end
end

# Rounds of one contender at one depth.
class Rounds
  # Low, because noise only ever adds; not the lowest, which would be luck.
  QUANTILE = 0.2

  def initialize
    @rounds = []
  end

  def <<(round)
    @rounds << round
    self
  end

  # @return [Array<Hash>]
  def to_a
    @rounds
  end

  # @yieldparam round [Hash]
  # @return [Float] the low quantile of what the block makes of each round
  def low(&block)
    sorted = @rounds.map(&block).sort
    sorted[(sorted.size * QUANTILE).floor].to_f
  end

  def sum(key)
    @rounds.sum { |round| round.fetch(key, 0) }
  end
end
