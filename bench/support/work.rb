# frozen_string_literal: true

# Work of a fixed amount at the bottom of a recursion. It allocates nothing, so GC stays out of it.
class Work
  MAX_LEVELS = 1600

  # Methods of their own, each on a line of its own: a stack of one method alone would be in the cache with its
  # first frame, and cheaper than any that programs have.
  levels = Array.new(MAX_LEVELS) do |i|
    "def level_#{i}(left, amount) = left > 0 ? level_#{i + 1}(left - 1, amount) : spin(amount)"
  end
  class_eval((levels << "def level_#{MAX_LEVELS}(*) = raise(ArgumentError, 'too deep')").join("\n"), "levels.rb", 1)

  # What stands above the caller of `levels`: level_0, spin, and a leaf.
  OWN_FRAMES = 3

  # The levels below level_0 that make a stack of `depth` frames, counted from the program's first to the leaf.
  def self.levels(depth)
    levels = depth - caller.size - OWN_FRAMES
    raise ArgumentError, "depth #{depth} is less than the worker itself needs" if levels.negative?

    levels
  end

  # Several methods and lines, so that two ticks in a row seldom meet the very same stack.
  def spin(amount)
    value = 1
    while amount.positive?
      value = shuffle(value)
      value = fold(value)
      value = turn(value)
      value = count(value)
      amount -= 1
    end
    value
  end

  private

  def shuffle(value)
    value ^= (value << 7) & 0xffff_ffff
    value ^= value >> 9
    value & 0xffff_ffff
  end

  def fold(value)
    high = value >> 16
    low = value & 0xffff
    (high + low) & 0xffff_ffff
  end

  def turn(value)
    value *= 5
    value += 3
    value & 0xffff_ffff
  end

  def count(value)
    odd = value & 1
    value += 1 if odd.zero?
    value
  end
end

# The bare walk, measured where the work would be.
class Walk < Work
  WARM_CALLS = 300
  COLD_CALLS = 100
  # About an interval's worth of work between two cold walks.
  COLD_AMOUNT = 150

  # Average of the warm calls and median of the cold ones, in ns.
  attr_reader :warm_ns, :cold_ns

  def initialize
    super
    @other = Work.new
  end

  def spin(_amount)
    @warm_ns = RingProf::Testing.walk_ns(WARM_CALLS)
    cold = []
    while cold.size < COLD_CALLS
      @other.spin(COLD_AMOUNT)
      cold << RingProf::Testing.walk_ns(1)
    end
    @cold_ns = cold.sort[COLD_CALLS / 2]
  end
end

# Ticks played by hand where the work would be.
class Play < Work
  # Few, so that most batches are over before another program gets its turn.
  TICKS = 24

  # Three places in turn, so that no two ticks in a row meet the very same stack.
  def spin(_amount)
    ticks = 0
    while ticks < TICKS
      RingProf::Testing.tick
      RingProf::Testing.tick
      RingProf::Testing.tick
      ticks += 3
    end
  end
end

# Work of other kinds, each with an amount that says how long it goes on.
class Loads
  # Nothing but arithmetic in one frame: what interrupts cost where there is least to walk.
  def loop(amount)
    value = 1
    while amount.positive?
      value = ((value * 5) + amount) & 0xffff_ffff
      amount -= 1
    end
    value
  end

  # Blocks in blocks, called from C.
  def blocks(amount)
    amount.times { |number| [number, 1, 2].each { |one| [one].map { |other| other + 1 } } }
  end

  # Strings, Arrays and Hashes that are garbage at once.
  def objects(amount)
    amount.times { |number| { "key" => Array.new(8) { |one| "text #{one}" }, number => [number] } }
  end

  # A recursive descent through expressions of random shape: hardly a stack is met twice.
  def parser(amount)
    @parser ||= Expressions.new(Random.new(7))
    amount.times { @parser.parse_one }
  end
end

# Random expressions, and a parser for them with a method for each rule.
class Expressions
  TEXTS = 50
  DEPTH = 9

  def initialize(random)
    @random = random
    @texts = Array.new(TEXTS) { write(DEPTH) }
    @next = 0
  end

  def parse_one
    @tokens = @texts[@next = (@next + 1) % TEXTS]
    @at = 0
    sum
  end

  private

  def write(depth)
    return [@random.rand(100)] if depth.zero? || @random.rand(6).zero?

    case @random.rand(4)
    when 0 then [*write(depth - 1), :+, *write(depth - 1)]
    when 1 then [*write(depth - 1), :*, *write(depth - 1)]
    when 2 then [:-, *write(depth - 1)]
    else [:"(", *write(depth - 1), :")"]
    end
  end

  def sum
    value = product
    while accept(:+)
      value += product
    end
    value & 0xffff_ffff
  end

  def product
    value = sign
    while accept(:*)
      value *= sign
    end
    value & 0xffff_ffff
  end

  def sign
    accept(:-) ? -sign : primary
  end

  def primary
    return number unless accept(:"(")

    value = sum
    accept(:")")
    value
  end

  def number
    value = @tokens[@at]
    @at += 1
    value
  end

  def accept(token)
    return false unless @tokens[@at] == token

    @at += 1
    true
  end
end
