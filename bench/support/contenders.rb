# frozen_string_literal: true

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
    def initialize(mode, tick, interval: INTERVAL_US, empty: false, **options)
      Contenders.load_ringprof
      @options = { mode: mode, tick: tick, interval: interval, **options }
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

  # Any profiler that is started and stopped, and tells nothing of itself.
  class Other
    def initialize(library, start, stop)
      require library
      @start = start
      @stop = stop
    end

    def start
      @start.call
    end

    def stop
      @stop.call
      {}
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

  # Vernier hands its result to who stops it.
  def self.vernier
    collector = nil
    Other.new("vernier", -> { (collector = Vernier::Collector.new(:wall, interval: INTERVAL_US)).start }, -> { collector.stop })
  end

  MAKERS = {
    "none" => -> { None.new },
    "empty thread" => -> { Ring.new(:wall, :thread, empty: true) },
    "empty timer" => -> { Ring.new(:wall, :timer, empty: true) },
    "ringprof wall thread" => -> { Ring.new(:wall, :thread) },
    "ringprof all thread" => -> { Ring.new(:wall, :thread, threads: :all) },
    "ringprof both thread" => -> { Ring.new(:cpu_and_wall, :thread) },
    "ringprof wall timer" => -> { Ring.new(:wall, :timer) },
    "ringprof cpu thread" => -> { Ring.new(:cpu, :thread) },
    "ringprof cpu timer" => -> { Ring.new(:cpu, :timer) },
    "empty itimer" => -> { EmptyItimer.new },
    "stackprof wall" => -> { Stack.new },
    "vernier wall" => -> { vernier },
    "rperf wall" => -> { Other.new("rperf", -> { Rperf.start(frequency: 1_000_000 / INTERVAL_US, mode: :wall) }, -> { Rperf.stop }) },
    "pf2 wall" => lambda {
      Other.new("pf2", -> { Pf2.start(interval_ms: INTERVAL_US / 1000.0, time_mode: :wall) }, -> { Pf2.stop })
    },
    "ringprof played" => -> { Ring.new(:wall, :none, interval: 1) },
    "walk" => -> { load_ringprof || None.new }
  }.freeze
end
