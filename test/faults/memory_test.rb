# frozen_string_literal: true

require "test_helper"

# Memory that the system refuses: no process of ours ends of it, what was recorded stays, what was not
# is counted.
class MemoryFaultTest < RingProf::TestCase
  # A profile with a known part, and then as many new stacks as make every table grow.
  PROFILE = <<~RUBY
    require "ringprof"
    FAULTS = RingProf::Testing
    STACKS = Array.new(40) do |number|
      eval "proc { |depth| depth.zero? ? RingProf.sample : STACKS[\#{number}].(depth - 1) }", nil, "stack_\#{number}.rb"
    end

    def known
      RingProf.sample or abort "not running"
    end

    # The number of samples that were taken.
    def new_stacks
      STACKS.count { |stack| stack.call(20) }
    end

    def check(truth, *why)
      truth or abort [*why, RingProf.stats].inspect
    end

    def check_profile(taken, results, stats)
      check results[:samples] + results[:missed_samples] == taken, taken, results.slice(:samples, :missed_samples)
      check results[:missed_samples] == stats[:missed_samples]
      leaves = results[:frames].values.sum { |frame| frame[:samples] }
      check leaves == results[:samples], leaves
      raw = results.fetch(:raw_timestamp_deltas).length
      check raw == results[:samples], raw
      own = results[:frames].values.find { |frame| frame[:name] == "Object#known" }
      check own && own[:total_samples] == 1, own
    end
  RUBY

  # The nth allocation in a drain is refused, for every n there is; then that one and all after it.
  DRAINS = <<~RUBY
    #{PROFILE}
    refuse = FAULTS.method(ARGV.fetch(0))
    rounds = (1..10_000).find do |number|
      RingProf.start(mode: :custom, raw: true, buffer: 131_072, on_failure: :warn)
      known
      FAULTS.drain
      taken = 1 + new_stacks
      refuse.call(number)
      # More than the ring takes; each asks for memory anew.
      50.times { FAULTS.drain }
      allocations = FAULTS.allocations
      FAULTS.fail_allocation = 0
      failed = RingProf.stats
      check failed[:running] == (allocations < number), allocations, number
      check RingProf.sample == failed[:running]
      taken += 1 if failed[:running]
      check RingProf.stop == true
      check RingProf.stop == false
      stats = RingProf.stats
      check_profile(taken, RingProf.results, stats)
      next true if allocations < number

      check stats[:failure].match?(/no memory/), number
      check stats[:drains][:no_memory] >= 1
      check stats[:drains][:corrupt].zero?
      check stats[:missed_samples] >= 1
      false
    end
    # And as if nothing had been.
    RingProf.run(mode: :custom) { known }
    check RingProf.stats[:failure].nil?
    print rounds
  RUBY

  def test_every_allocation_of_a_drain
    %w[fail_allocation= fail_allocations_from=].each do |refuse|
      out, err, status = capture_ruby(DRAINS, refuse)
      assert_predicate status, :success?, "#{refuse}: #{status}\n#{out}\n#{err}"
      assert_operator out.to_i, :>, 8, "tables have more to grow than that"
      said = "ringprof: the profile has ended: the system has no memory for more samples; what was recorded is kept\n"
      assert_equal [said], err.lines.uniq
      assert_equal out.to_i - 1, err.lines.length, "once for each"
    end
  end

  def test_every_larger_allocation_of_a_start
    out, err, status = capture_ruby(<<~RUBY)
      #{PROFILE}
      RingProf.start(mode: :custom)
      known
      RingProf.stop
      FAULTS.small_allocation = 1024
      threads = Dir.children("/proc/self/task").length
      refusals = []
      %i[fail_allocation= fail_allocations_from=].each do |refuse|
        (1..100).find do |number|
          FAULTS.send(refuse, number)
          RingProf.start(mode: :wall, tick: :thread)
        rescue RingProf::Error => e
          refusals << e.message
          check !RingProf.running?
          check RingProf.stop == false
          # The kernel takes a thread that has ended and was waited for off its list a moment later.
          patience = 200
          sleep 0.005 until Dir.children("/proc/self/task").length == threads || (patience -= 1).zero?
          check patience.positive?, "a thread was left"
          false
        ensure
          FAULTS.fail_allocation = 0
        end
        check RingProf.stop == true
      end
      check RingProf.results[:frames].values.any? { |frame| frame[:name] == "Object#known" }, "the former profile"
      puts refusals
    RUBY
    assert_predicate status, :success?, "#{status}\n#{out}\n#{err}"
    assert_empty err
    assert_includes out.lines, "no memory for a ring of 1048576 bytes (buffer: sets its size)\n"
    assert_includes out.lines, "no memory for the tick thread\n"
    assert_operator out.lines.length, :>=, 14
  end

  def test_every_larger_allocation_of_the_results
    out, err, status = capture_ruby(<<~RUBY)
      #{PROFILE}
      FAULTS.small_allocation = 256
      refused = 0
      %i[fail_allocation= fail_allocations_from=].each do |refuse|
        RingProf.start(mode: :custom, raw: true)
        known
        taken = 1 + new_stacks
        RingProf.stop
        results = (1..1000).each do |number|
          FAULTS.send(refuse, number)
          break RingProf.results
        rescue RingProf::Error => e
          refused += 1
          check e.message.match?(/no memory.*ask again/), e
        ensure
          FAULTS.fail_allocation = 0
        end
        check_profile(taken, results, RingProf.stats)
      end
      print refused
    RUBY
    assert_predicate status, :success?, "#{status}\n#{out}\n#{err}"
    assert_operator out.to_i, :>=, 12
  end

  # No hook of ours: the address space of the process really ends.
  LIMIT = <<~RUBY
    #{PROFILE}
    PAGE = 4096
    def limit(bytes)
      size = Integer(File.read("/proc/self/statm").split.first) * PAGE
      _, hard = Process.getrlimit(:AS)
      Process.setrlimit(:AS, bytes ? size + bytes : hard, hard)
    end
  RUBY

  def test_the_address_space_ends_while_profiling
    out, err, status = capture_ruby(<<~RUBY)
      #{LIMIT}
      RingProf.start(mode: :custom, raw: true)
      known
      taken = 1
      limit(6 << 20)
      taken += 1 while RingProf.sample && taken < 50_000_000
      limit(nil)
      check !RingProf.running?
      begin
        RingProf.stop
        abort "stop did not raise"
      rescue RingProf::Error => e
        check e.message.match?(/ended before stop: the system has no memory/), e
      end
      check RingProf.stop == false
      limit(64 << 10)
      begin
        RingProf.results
        abort "results found memory"
      rescue RingProf::Error, NoMemoryError
        limit(nil)
      end
      check_profile(taken, RingProf.results, RingProf.stats)
      check RingProf.results.nil?
      print taken
    RUBY
    assert_predicate status, :success?, "#{status}\n#{out}\n#{err}"
    assert_operator out.to_i, :>, 10_000
    assert_equal 1, err.lines.length, err
  end

  def test_a_ring_that_the_address_space_has_no_room_for
    out, err, status = capture_ruby(<<~RUBY)
      #{LIMIT}
      limit(64 << 20)
      begin
        RingProf.start(mode: :wall, buffer: 1 << 30)
      rescue RingProf::Error => e
        puts e.message
      end
      check !RingProf.running?
      RingProf.start(mode: :custom)
      known
      RingProf.stop
      print RingProf.results[:samples]
    RUBY
    assert_predicate status, :success?, "#{status}\n#{out}\n#{err}"
    assert_equal "no memory for a ring of 1073741824 bytes (buffer: sets its size)\n1", out
    assert_empty err
  end
end
