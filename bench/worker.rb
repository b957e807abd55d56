# frozen_string_literal: true

# One contender of overhead.rb in a process of its own: reads a command a line, answers with one line of JSON.
#
#     ruby -I DIRECTORY_OF_THE_EXTENSION -I lib bench/worker.rb CONTENDER
#
#     round DEPTH ITERATIONS   a round of work at that depth under the contender's profiler
#     walk DEPTH               the bare rb_profile_frames at that depth
#     play DEPTH               the handler at that depth, called by hand

require "json"

# Work of a fixed amount at the bottom of a recursion. It allocates nothing, so GC stays out of it.
class Work
  MAX_LEVELS = 500

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

# What is measured. Each has `start`, and `stop`, which returns what the contender says of the round.
module Contenders
  INTERVAL_US = 100

  # Loads RingProf's test build.
  def self.load_ringprof
    require "ringprof"
    raise LoadError, "this is no test build of RingProf: run bin/setup test" unless defined?(RingProf::Testing)
  end

  # No profiler.
  class None
    def start; end

    def stop
      {}
    end
  end

  # RingProf, of the test build; `empty` makes its handler return at once.
  class Ring
    def initialize(mode, tick, interval: INTERVAL_US, empty: false)
      Contenders.load_ringprof
      @options = { mode: mode, tick: tick, interval: interval }
      RingProf::Testing.empty_handler = empty
    end

    def start
      RingProf.start(**@options)
    end

    def stop
      drained = RingProf.stats[:drains][:total_ns]
      RingProf.stop
      stats = RingProf.stats
      RingProf.results
      { ticks: [stats[:received], stats[:sent]].max, samples: stats[:tables][:samples], missed: stats[:missed_samples],
        records: stats[:drains][:records], handler_ns: stats[:handler][:total_ns], drain_ns: stats[:drains][:total_ns],
        # Stop drains what a running profiler would have drained during the round.
        late_ns: stats[:drains][:total_ns] - drained }
    end
  end

  # StackProf in wall mode.
  class Stack
    def initialize
      require "stackprof"
    end

    def start
      StackProf.start(mode: :wall, interval: INTERVAL_US)
    end

    def stop
      StackProf.stop
      results = StackProf.results
      samples = results[:samples]
      { ticks: samples + results[:missed_samples], samples: samples, missed: results[:missed_samples] }
    end
  end

  # StackProf's timer with a handler that does nothing: the floor that StackProf is measured against.
  class EmptyItimer
    SIGALRM = Signal.list.fetch("ALRM")
    ITIMER_REAL = 0

    def initialize
      require "fiddle"
      libc = Fiddle.dlopen(nil)
      @setitimer = Fiddle::Function.new(libc["setitimer"], [Fiddle::TYPE_INT, Fiddle::TYPE_VOIDP, Fiddle::TYPE_VOIDP],
                                        Fiddle::TYPE_INT)
      signal = Fiddle::Function.new(libc["signal"], [Fiddle::TYPE_INT, Fiddle::TYPE_VOIDP], Fiddle::TYPE_VOIDP)
      # abs takes an int, as a handler does, and touches nothing else.
      signal.call(SIGALRM, libc["abs"])
    end

    def start
      tick_every(INTERVAL_US)
    end

    def stop
      tick_every(0)
      {}
    end

    private

    def tick_every(microseconds)
      timer = [0, microseconds, 0, microseconds].pack("q4")
      @setitimer.call(ITIMER_REAL, timer, nil)
    end
  end

  MAKERS = {
    "none" => -> { None.new },
    "empty thread" => -> { Ring.new(:wall, :thread, empty: true) },
    "empty timer" => -> { Ring.new(:wall, :timer, empty: true) },
    "ringprof wall thread" => -> { Ring.new(:wall, :thread) },
    "ringprof wall timer" => -> { Ring.new(:wall, :timer) },
    "ringprof cpu thread" => -> { Ring.new(:cpu, :thread) },
    "ringprof cpu timer" => -> { Ring.new(:cpu, :timer) },
    "empty itimer" => -> { EmptyItimer.new },
    "stackprof wall" => -> { Stack.new },
    "ringprof played" => -> { Ring.new(:wall, :none, interval: 1) },
    "walk" => -> { load_ringprof || None.new }
  }.freeze
end

# The commands. No method more than necessary: each is a frame below the work.
class Worker
  def initialize(contender)
    @contender = contender
    @work = Work.new
  end

  def round(depth, amount)
    levels = Work.levels(depth)
    @contender.start
    wall = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
    cpu = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID, :nanosecond)
    @work.level_0(levels, amount)
    cpu = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID, :nanosecond) - cpu
    wall = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond) - wall
    { wall_ns: wall, cpu_ns: cpu, **@contender.stop }
  end

  # Warm: call after call. Cold: each after as much work as lies between two ticks.
  def walk(depth)
    walk = Walk.new
    walk.level_0(Work.levels(depth), 0)
    { warm_ns: walk.warm_ns, cold_ns: walk.cold_ns }
  end

  # No work and no time of it: only what the profiler says of itself.
  def play(depth)
    levels = Work.levels(depth)
    play = Play.new
    @contender.start
    play.level_0(levels, 0)
    @contender.stop
  end
end

begin
  worker = Worker.new(Contenders::MAKERS.fetch(ARGV.fetch(0)).call)
rescue LoadError => e
  abort "bench/worker.rb: #{e.message}"
end
$stdout.sync = true
$stdout.puts "ready"
while (line = $stdin.gets)
  command, *numbers = line.split
  numbers.map!(&:to_i)
  # Called by name: `public_send` would be a frame.
  answer =
    case command
    when "round" then worker.round(*numbers)
    when "walk" then worker.walk(*numbers)
    when "play" then worker.play(*numbers)
    end
  $stdout.puts JSON.generate(answer)
end
