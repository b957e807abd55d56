# frozen_string_literal: true

require "test_helper"

class CustomModeTest < RingProf::TestCase
  stress_gc

  def test_counts_lines_and_raw_of_ten_samples
    line = nil
    results = RingProf.run(mode: :custom, raw: true) do
      10.times do
        line = __LINE__ + 1
        sample_here
      end
    end
    assert_valid_results(results)
    assert_equal 10, results[:samples]
    assert_equal 0, results[:missed_samples]
    assert_nil results[:interval]

    # A block in a method goes by the method's name.
    method = frame_named(results, "CustomModeTest##{name}")
    assert_equal [10, 0], method[:lines][line]
    assert_equal [10, 0], [method[:total_samples], method[:samples]]

    assert_equal results[:raw][0] + 2, results[:raw].size
    assert_equal 10, results[:raw].last
    assert_equal 10, results[:raw_lines].last
    assert_equal [line, sample_line, 0], results[:raw_lines][-4..-2]
  end

  def test_raw_stacks_are_root_first
    results = RingProf.run(mode: :custom, raw: true) { sample_here }
    assert_equal ["RingProf.run", "CustomModeTest##{name}",
                  "RingProf::TestCase#sample_here", "RingProf.sample"], stack_names(results).first.last(4)
  end

  def test_different_lines_make_different_groups
    results = RingProf.run(mode: :custom, raw: true) do
      sample_here
      sample_here
      2.times { sample_here }
    end
    assert_equal [1, 1, 2], raw_groups(results).map(&:weight)
    assert_valid_results(results)
  end

  def test_times_lie_in_the_run_and_go_forward
    before = microseconds
    results = RingProf.run(mode: :custom, raw: true) do
      10.times do
        sample_here
        sleep 0.0001
      end
    end
    after = microseconds
    assert_equal 10, results[:raw_sample_timestamps].length
    assert_operator results[:raw_sample_timestamps].first, :>, before - 1
    assert_operator results[:raw_sample_timestamps].last, :<, after + 1
    assert_operator results[:raw_timestamp_deltas].sum, :<=, after - before
    assert(results[:raw_timestamp_deltas].drop(1).all?(&:positive?), results[:raw_timestamp_deltas].inspect)
    assert_valid_results(results)
  end

  def test_recursion_counts_once_in_the_total
    results = RingProf.run(mode: :custom, raw: true) { 10.times { recurse(5) { sample_here } } }
    frame = frame_named(results, "Work#recurse")
    assert_equal 10, frame[:total_samples]
    assert_equal 0, frame[:samples]
    id = results[:frames].key(frame)
    assert_equal 50, frame[:edges][id], "five calls of itself, ten times"
    assert_equal 60, frame[:lines].each_value.sum(&:first), "each occurrence"
    assert_valid_results(results)
  end

  def test_deep_stacks_keep_their_leaf_side
    results = RingProf.run(mode: :custom, raw: true) { dig(3000) }
    stack = raw_groups(results).first
    assert_equal 2048, stack.ids.length
    assert_equal "RingProf.sample", results[:frames][stack.ids.last][:name]
    assert_equal 1, results[:samples]
    assert_valid_results(results)
  end

  def test_lines_are_not_cut_to_sixteen_bits
    source = "#{"\n" * 69_999}def self.far_down = RingProf.sample"
    eval(source, binding, "far.rb", 1)
    results = RingProf.run(mode: :custom, raw: true) { far_down }
    assert_includes raw_groups(results).first.lines, 70_000
    frame = frame_named(results, /\.far_down\z/)
    assert_equal [1, 0], frame[:lines][70_000]
    assert_valid_results(results)
  end

  def test_names_of_every_kind_of_code
    results = RingProf.run(mode: :custom, raw: true) { Kinds.all }
    names = results[:frames].each_value.map { |frame| frame[:name] }
    expected = ["CustomModeTest::Kinds.all", "CustomModeTest::Kinds.singleton", "CustomModeTest::Kinds#instance",
                "block in <class:Kinds>", "Array#each", "RingProf.sample"]
    assert_empty expected - names
    assert_valid_results(results)
  end

  def test_code_that_was_thrown_away_keeps_its_name
    RingProf.start(mode: :custom, raw: true)
    5.times do |number|
      Object.new.instance_eval("def gone_#{number}; RingProf.sample; end; gone_#{number}", "gone.rb", 7)
    end
    RingProf.stop
    GC.start
    GC.compact if GC.respond_to?(:compact)
    results = RingProf.results
    5.times { |number| assert_equal "gone.rb", frame_named(results, /\.gone_#{number}\z/)[:file] }
    assert_valid_results(results)
  end

  class Kinds
    def self.all
      singleton
      new.instance
    end

    def self.singleton
      RingProf.sample
    end

    def instance
      [1].each { RingProf.sample }
      defined
    end

    define_method(:defined) { RingProf.sample }
  end

  private

  def sample_line
    RingProf::TestCase.instance_method(:sample_here).source_location.last + 1
  end

  def dig(depth)
    depth.zero? ? sample_here : dig(depth - 1)
  end

  def microseconds
    Process.clock_gettime(Process::CLOCK_MONOTONIC, :microsecond)
  end
end

class ObjectModeTest < RingProf::TestCase
  def test_every_allocation_is_a_sample
    allocate_two
    results = RingProf.run(mode: :object) { allocate_two }
    assert_valid_results(results)
    assert_equal :object, results[:mode]
    assert_equal 1, results[:interval]
    assert_equal 0, results[:missed_samples]
    frame = frame_named(results, "ObjectModeTest#allocate_two")
    assert_equal 2, frame[:total_samples]
    assert_equal [1, 1], frame[:lines].values_at(allocating_line, allocating_line + 1).map(&:first)
  end

  def test_allocations_are_counted_where_they_are_made
    allocate_two
    results = RingProf.run(mode: :object, raw: true) { 50.times { allocate_two } }
    assert_equal 100, frame_named(results, "ObjectModeTest#allocate_two")[:total_samples]
    assert_valid_results(results)
  end

  def test_the_interval_counts_allocations
    work = -> { 1000.times { Object.new } }
    work.call
    one = RingProf.run(mode: :object, &work)[:samples]
    ten = RingProf.run(mode: :object, interval: 10, &work)[:samples]
    assert_includes 1000..1050, one
    assert_includes 100..105, ten
  end

  def test_nothing_is_missed_in_a_small_ring
    work = -> { 20_000.times { Object.new } }
    work.call
    results = RingProf.run(mode: :object, raw: true, buffer: 131_072, &work)
    assert_includes 20_000..20_100, results[:samples]
    assert_equal 0, results[:missed_samples]
    assert_valid_results(results)
  end

  def test_samples_can_be_added_by_hand
    results = RingProf.run(mode: :object) { 7.times { sample_here } }
    assert_equal 7, frame_named(results, "RingProf.sample")[:samples]
  end

  private

  def allocate_two
    Object.new
    Object.new
  end

  def allocating_line
    method(:allocate_two).source_location.last + 1
  end
end

class TimeModesTest < RingProf::TestCase
  # The separator depends on the version of Ruby.
  SLEEP = /\AKernel[#.]sleep\z/

  def test_wall_sees_waiting
    skip_at_safepoints
    results = RingProf.run(mode: :wall, interval: 1000, raw: true) { sleep 0.3 }
    assert_valid_results(results)
    assert_equal :wall, results[:mode]
    sleeping = frame_named(results, SLEEP)
    assert_operator sleeping[:samples], :>, results[:samples] / 2
  end

  def test_cpu_does_not_see_waiting
    results = RingProf.run(mode: :cpu, interval: 1000, raw: true) do
      sleep 0.4
      burn_cpu(0.2)
    end
    assert_valid_results(results)
    waiting = results[:frames].each_value.select { |frame| SLEEP === frame[:name] }.sum { |frame| frame[:samples] }
    assert_operator waiting, :<, 50
    assert_operator frame_named(results, "Work#burn_cpu")[:total_samples], :>, 50
  end

  def test_work_is_seen_where_it_is_done
    results = RingProf.run(mode: :cpu, interval: 500, raw: true) do
      # Many slices to a look at the clock: compiled, one alone takes little more than the look.
      ends = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) + 0.3
      100.times { burn_slice } while Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) < ends
    end
    assert_valid_results(results)
    assert_operator frame_named(results, "Work#burn_slice")[:total_samples], :>, results[:samples] / 2
  end

  def test_a_hundred_microseconds_are_a_hundred_microseconds_in_cpu_mode
    results = RingProf.run(mode: :cpu, interval: 100) { burn_cpu(0.5) }
    # 5,000 at least were burnt; a timer that goes by the kernel's clock tick gives 125.
    assert_operator results[:samples] + results[:missed_samples], :>, 4000
  end

  def test_samples_are_time
    started = Process.clock_gettime(Process::CLOCK_MONOTONIC, :microsecond)
    RingProf.start(mode: :wall, interval: 1000)
    before = Process.clock_gettime(Process::CLOCK_MONOTONIC, :microsecond)
    burn_cpu(0.2)
    sleep 0.1
    after = Process.clock_gettime(Process::CLOCK_MONOTONIC, :microsecond)
    RingProf.stop
    stopped = Process.clock_gettime(Process::CLOCK_MONOTONIC, :microsecond)
    results = RingProf.results
    # Each end may miss an interval and a late last tick.
    assert_includes (after - before) / 1000 - 100..(stopped - started) / 1000 + 2, results[:samples] + results[:missed_samples]
  end

  def test_deltas_sum_up_to_the_time
    started = Process.clock_gettime(Process::CLOCK_MONOTONIC, :microsecond)
    results = RingProf.run(mode: :wall, interval: 1000, raw: true) { burn_cpu(0.2) }
    elapsed = Process.clock_gettime(Process::CLOCK_MONOTONIC, :microsecond) - started
    sum = results[:raw_timestamp_deltas].sum
    assert_operator sum, :<=, elapsed
    assert_operator sum, :>, elapsed / 2
    assert_valid_results(results)
  end

  def test_both_tick_sources_sample_both_modes
    %i[thread timer].product(%i[wall cpu]).each do |tick, mode|
      results = RingProf.run(mode: mode, tick: tick, interval: 1000, raw: true) { burn_cpu(0.2) }
      assert_valid_results(results)
      assert_operator results[:samples], :>, 50, "#{tick} #{mode}"
    end
  end

  def test_samples_by_hand_work_in_time_modes
    %i[wall cpu].each do |mode|
      results = RingProf.run(mode: mode, interval: 900_000) { 10.times { recurse(3) { sample_here } } }
      assert_equal 10, frame_named(results, "Work#recurse")[:total_samples]
      assert_valid_results(results)
    end
  end

  def test_a_full_ring_counts_what_it_misses
    results = RingProf.run(mode: :wall, interval: 50, raw: true, buffer: 131_072) { recurse(1500) { burn_cpu(0.08) } }
    assert_valid_results(results)
    assert_operator results[:samples], :>, 0
  end

  def test_system_calls_are_not_disturbed
    RingProf.start(mode: :wall, interval: 100)
    reader, writer = IO.pipe
    child = Thread.new do
      200.times do |number|
        sleep 0.0005
        writer.puts number
      end
      writer.close
    end
    lines = reader.each_line.map(&:to_i)
    child.join
    assert_equal 200.times.to_a, lines
    RingProf.stop
    assert_valid_results(RingProf.results)
  end

  def test_the_signal_handler_of_the_program_is_put_back
    script = <<~'RUBY'
      require "ringprof"
      require "support/work"
      received = 0
      %w[PROF ALRM].each { |name| trap(name) { received += 1 } }
      RingProf.run(mode: :cpu, interval: 1000) { Work.burn_cpu(0.1) }
      RingProf.run(mode: :wall, interval: 1000) { Work.burn_cpu(0.1) }
      Process.kill(:ALRM, Process.pid)
      sleep 0.001 until received == 1
      Process.kill(:PROF, Process.pid)
      sleep 0.001 until received == 2
      print received
    RUBY
    assert_equal "2", ruby!(script)
  end
end
