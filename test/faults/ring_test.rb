# frozen_string_literal: true

require "test_helper"

# A ring that nobody empties for a while: what finds no room is counted, and later all is well.
class RingFaultTest < RingProf::TestCase
  def teardown
    RingProf::Testing.hold_drains = false
    super
  end

  def test_a_ring_that_is_full_counts_what_it_has_no_room_for
    %i[wall cpu].each do |mode|
      RingProf::Testing.hold_drains = true
      RingProf.start(mode: mode, interval: 100, buffer: 131_072, raw: true)
      busy_until { |stats| stats[:lost][:ring_full] >= 50 }
      held = RingProf.stats
      assert_operator held[:missed_samples], :>=, 50
      assert_operator held[:ring][:high_water_words], :<=, held[:ring][:words]
      assert_equal 0, held[:drains][:records]

      RingProf::Testing.hold_drains = false
      # Several times what the ring takes: it is emptied and filled again.
      busy_until { |stats| stats[:recorded] >= held[:recorded] + 150 }
      stop_and_read
    end
  end

  def test_a_ring_that_is_full_at_the_stop
    RingProf::Testing.hold_drains = true
    RingProf.start(mode: :wall, interval: 100, buffer: 131_072, raw: true)
    busy_until { |stats| stats[:lost][:ring_full] >= 20 }
    stop_and_read
  end

  private

  # On deep stacks, of which none has much in common with the one before, so that the ring fills.
  def busy_until
    deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 60
    ways = Array.new(2) do |number|
      eval("recurse = ->(depth, work) { depth.zero? ? work.call : recurse.call(depth - 1, work) }", binding, "recurse.rb", 1 + number)
    end
    until yield(stats = RingProf.stats)
      flunk "too long: #{stats}" if Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline
      ways.each { |recurse| recurse.call(150, -> { 4.times { burn_slice } }) }
    end
  end

  def stop_and_read
    assert RingProf.stop
    stats = RingProf.stats
    results = RingProf.results
    assert_valid_results(results)
    assert_equal 0, stats[:drains][:corrupt]
    # What was owed to a folded stack has records of its own.
    assert_operator stats[:drains][:records], :>=, stats[:recorded]
    assert_equal stats[:received], stats[:recorded] + stats[:coalesced][:total] + stats[:lost][:total]
    assert_equal stats[:missed_samples], results[:missed_samples]
    assert_time_is_whole(results, stats) if results[:mode] == :wall
    stats
  end

  # Each interval of the profile is a sample or missed, those after the last sample too.
  def assert_time_is_whole(results, stats)
    credited = results[:samples] + results[:missed_samples]
    assert_in_delta stats[:elapsed_ns] / 1000.0 / results[:interval], credited, 2
  end
end
