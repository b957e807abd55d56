# frozen_string_literal: true

require "test_helper"

# The stats in full, and as a page to scrape.
class WorkerReportItselfTest < RingProf::TestCase
  LINE = /\Aringprof_[a-z_]+(\{[a-z]+="[^"]*"\})? -?(\d+(\.\d+)?(e[-+]?\d+)?|NaN)\n\z/

  def test_times_are_in_histograms
    RingProf.run(mode: :wall, interval: 100) { burn_cpu(0.2) }
    stats = RingProf.stats
    [stats[:handler], stats[:drains]].each do |times|
      assert_operator times[:histogram].size, :>, 0
      assert_equal times[:histogram].sort.to_h, times[:histogram]
      assert_equal times[:count], times[:histogram].values.last
      assert_operator times[:p50_ns], :<=, times[:p99_ns]
      assert_operator times[:p99_ns], :<=, times[:max_ns] * 5 / 4 + 1
      assert_operator times[:total_ns], :<=, times[:max_ns] * times[:count]
    end
    parts = stats[:handler][:total_ns] + stats[:drains][:total_ns] + stats[:pauses][:total_ns] + stats[:tick_thread][:cpu_ns]
    assert_equal parts, stats[:cost_ns]
  end

  def test_the_page_is_what_prometheus_reads
    RingProf.run(mode: :wall, interval: 100) { burn_cpu(0.1) }
    stats = RingProf.stats
    page = stats.to_prometheus
    samples, comments = page.lines.partition { |line| !line.start_with?("#") }
    samples.each { |line| assert_match LINE, line }
    comments.each { |line| assert_match(/\A# (HELP|TYPE) ringprof_[a-z_]+ \S/, line) }
    helped = comments.grep(/HELP/).map { |line| line.split[2] }
    assert_equal helped.uniq, helped
    assert_includes samples, "ringprof_ticks_received_total #{stats[:received]}\n"
    lost = samples.grep(/\Aringprof_ticks_lost_total/).sum { |line| line.split.last.to_i }
    coalesced = samples.grep(/\Aringprof_ticks_coalesced_total/).sum { |line| line.split.last.to_i }
    assert_equal stats[:received], stats[:recorded] + coalesced + lost
    assert_includes samples, "ringprof_handler_seconds_count #{stats[:handler][:count]}\n"
  end

  def test_it_can_be_scraped_at_any_time
    assert_kind_of String, RingProf.stats.to_prometheus
    RingProf.start(mode: :cpu, interval: 100)
    assert_includes RingProf.stats.to_prometheus, "ringprof_running 1\n"
    RingProf.stop
    assert_includes RingProf.stats.to_prometheus, "ringprof_running 0\n"
  end
end
