# frozen_string_literal: true

require "torture/accounting"
require "torture/scenario"

# What every profile must hold, as bin/torture checks it, in tests.
module AccountingAssertions
  # Profiles the block.
  #
  # @param whole [Boolean] nothing but the clock made samples, and every tick reached the profiler
  # @return [Array(Hash, Hash)] results and stats
  def profile_accounted(options, whole: true)
    RingProf.start(**options) or flunk("a profile is running")
    begin
      yield
    ensure
      RingProf.stop
    end
    stats = Torture::Accounting.settled_stats
    results = RingProf.results
    assert_accounted(options, stats, results, whole: whole)
    [results, stats]
  end

  def assert_accounted(options, stats, results, whole: true)
    Torture::Accounting.new(options, stats, results, whole: whole).check
    assert_valid_results(results)
  rescue Torture::Broken => error
    flunk(error.message)
  end

  # Until that many more ticks have come. A machine that is busy elsewhere may take its time.
  def until_ticks(count, patience: 60)
    wanted = RingProf.stats[:received] + count
    deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + patience
    until RingProf.stats[:received] >= wanted
      flunk("no ticks: #{RingProf.stats}") if Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline
      yield
    end
  end
end
