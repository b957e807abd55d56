# frozen_string_literal: true

require "rbconfig"
require "ringprof"
require "torture/accounting"

module Torture
  # Where scenarios play: what they use of the profiler and of other processes, and what is counted of it.
  class Stage
    # How a child says that a check of its own failed.
    UNHAPPY = 70
    # Smallest ring.
    SMALL_BUFFER = 131_072
    # How the load path of a Ruby that we start begins.
    INCLUDES = $LOAD_PATH.first(3).flat_map { |path| ["-I", path] }.freeze

    attr_reader :random, :tally, :interval

    def initialize(seed, interval:, compact:)
      @random = Random.new(seed)
      @interval = interval
      @compact = compact
      @tally = Hash.new(0)
    end

    # Plays rounds of a scenario until the time is over.
    #
    # @return [String, nil] what failed
    def play(round, seconds)
      deadline = now + seconds
      gcs = GC.count
      compactions = GC.stat[:compact_count].to_i
      loop do
        instance_exec(&round)
        break if now >= deadline
      end
      tally[:GCs] += GC.count - gcs
      tally[:compactions] += GC.stat[:compact_count].to_i - compactions
      GC.verify_internal_consistency
      nil
    rescue StandardError, SystemStackError => error
      RingProf.stop
      RingProf.results
      error.full_message(highlight: false)
    end

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    def compact? = @compact
    def chance?(part) = random.rand < part
    def pick(list) = list[random.rand(list.length)]

    def options(mode: pick(%i[wall cpu]), **given)
      chosen = { mode: mode, interval: interval, raw: chance?(0.7), ignore_gc: chance?(0.2), aggregate: chance?(0.8) }
      chosen[:tick] = pick(%i[thread timer auto])
      chosen[:buffer] = SMALL_BUFFER if chance?(0.5)
      chosen.merge(given)
    end

    # Profiles the block and checks the result.
    def profile(options = self.options, whole: true)
      RingProf.start(**options) or raise Broken, "start says that a profile is running"
      begin
        yield
      ensure
        RingProf.stop
      end
      check(options, whole: whole)
    end

    # Checks and counts the profile that was stopped.
    def check(options, whole: true)
      stats = Accounting.settled_stats
      results = RingProf.results
      tally[:profiles] += 1
      tally[:samples] += results[:samples]
      tally[:ticks] += stats[:received]
      stats[:lost].each { |cause, count| tally[:"ticks lost: #{cause}"] += count unless cause == :total || count.zero? }
      Accounting.new(options, stats, results, whole: whole).check
      results
    end

    def thread(&block)
      tally[:threads] += 1
      Thread.new(&block)
    end

    # Runs the block in a forked child, which must end as expected: 0, an exit status, or the name of a signal.
    def child(expected = 0, &block)
      wait(fork_child(&block), expected)
    end

    # @return [Integer] pid
    def fork_child
      tally[:forks] += 1
      fork do
        yield
        exit!(0)
      rescue Broken => error
        warn error.full_message(highlight: false)
        exit!(UNHAPPY)
      end
    end

    def wait(pid, expected = 0)
      _, status = Process.wait2(pid)
      ended = status.signaled? ? Signal.signame(status.termsig) : status.exitstatus
      raise Broken, "a child that should end with #{expected} ended with #{ended} (#{status})" unless ended == expected
    end

    # Work of some milliseconds.
    def work(milliseconds = 2)
      deadline = now + milliseconds / 1000.0
      spin(random.rand(1..30)) while now < deadline
    end

    def spin(depth)
      return spin(depth - 1) if depth.positive?

      "abc #{depth}".sub(/b/) { |match| match.upcase }.hash
      [3, 1, 2].sort_by { |number| -number }.each { |number| number.to_s }
    end
  end
end
