# frozen_string_literal: true

require "test_helper"
require "zlib"

# Every thread, each with its own time.
class WorkerThreadsTest < RingProf::TestCase
  INTERVAL = 100

  def test_each_thread_is_credited_with_its_own_cpu_time
    spent = {}
    results = without_collections do
      RingProf.run(mode: :cpu, interval: INTERVAL, raw: true) do
        workers = { "first" => :first_job, "second" => :second_job }.map do |name, job|
          Thread.new { spent[name] = named(name) { send(job, 1.0) } }
        end
        workers.each(&:join)
      end
    end
    assert_valid_results(results)
    assert_times(results, spent, 0.02)
    refute_mixed(results, %w[first_job second_job])
  end

  def test_work_off_the_gvl_is_cpu_time_of_its_thread
    skip_at_safepoints
    text = Random.new(1).bytes(4 << 20)
    spent = {}
    results = without_collections do
      RingProf.run(mode: :cpu, interval: INTERVAL, raw: true) do
        workers = %w[first second].map { |name| Thread.new { spent[name] = named(name) { send("#{name}_job", 0.5) } } }
        workers += %w[third fourth].map do |name|
          Thread.new { spent[name] = named(name) { 4.times { Zlib::Deflate.deflate(text) } } }
        end
        workers.each(&:join)
      end
    end
    assert_valid_results(results)
    assert_times(results, spent, 0.02)
    deflate = frame_named(results, "Zlib::Deflate.deflate")
    zlib = time_of(results, "third") + time_of(results, "fourth")
    assert_operator deflate[:total_samples] * INTERVAL * 1e-6, :>, 0.8 * zlib
  end

  def test_wall_mode_takes_every_thread_when_asked
    skip_at_safepoints
    results = RingProf.run(mode: :wall, interval: 1000, threads: :all, raw: true) do
      workers = Array.new(3) { |number| Thread.new { named("w#{number}") { sleep 0.2 } } }
      burn_cpu(0.1)
      workers.each(&:join)
    end
    assert_valid_results(results)
    assert_equal 1, (results[:threads].count { |thread| thread[:main] })
    assert_equal %w[w0 w1 w2], results[:threads].filter_map { |thread| thread[:name] }.grep(/\Aw\d\z/).sort
    # Each has its life's time, to the interval at either end.
    results[:threads].each do |thread|
      ended = thread[:died] || results[:raw_sample_timestamps].last
      assert_in_delta (ended - thread[:born]) / 1000.0, thread[:samples], 12, thread.inspect
    end
  end

  def test_wall_mode_takes_the_starter_alone_when_not
    skip_at_safepoints
    results = RingProf.run(mode: :wall, interval: 1000) do
      worker = Thread.new { burn_cpu(0.05) }
      worker.join
    end
    assert_equal [true], (results[:threads].map { |thread| thread[:main] })
  end

  def test_threads_have_names_and_dates
    results = RingProf.run(mode: :cpu, interval: INTERVAL, raw: true) do
      Thread.new do
        Thread.current.name = "before"
        burn_cpu(0.05)
        Thread.current.name = "after"
      end.join
      burn_cpu(0.05)
    end
    main, worker = results[:threads].partition { |thread| thread[:main] }.map(&:first)
    assert_equal "after", worker[:name]
    assert_operator worker[:born], :<, worker[:died]
    assert_nil main[:died]
    assert_operator main[:born], :<=, worker[:born]
    [main, worker].each do |thread|
      assert_instance_of Integer, thread[:native_id]
      assert_instance_of Integer, thread[:id]
    end
  end

  def test_a_sample_belongs_to_a_thread
    results = RingProf.run(mode: :cpu, interval: INTERVAL, raw: true) do
      Thread.new { first_job(0.1) }.join
      second_job(0.1)
    end
    by_thread = results[:raw_threads].tally
    results[:threads].each_with_index { |thread, index| assert_equal thread[:samples], by_thread[index] }
  end

  # More threads than there are control blocks, one after the other: slots are used again, and no
  # thread's samples become another's.
  def test_a_slot_that_is_used_again_keeps_the_samples_apart
    results = RingProf.run(mode: :cpu, interval: INTERVAL, raw: true) do
      40.times { |number| Thread.new { named("t#{number}") { burn_cpu(0.002) } }.join }
    end
    assert_valid_results(results)
    names = results[:threads].filter_map { |thread| thread[:name] }
    assert_equal names.uniq, names
    results[:threads].reject { |thread| thread[:main] }.each do |thread|
      assert_operator thread[:samples] * INTERVAL * 1e-6, :<, 0.02, thread.inspect
    end
  end

  def test_the_thread_that_started_dies_first
    Thread.new { RingProf.start(mode: :wall, interval: 1000, threads: :all) }.join
    first_job(0.1)
    assert_equal true, RingProf.stop
    results = RingProf.results
    assert_valid_results(results)
    assert_operator frame_named(results, "WorkerThreadsTest#first_job")[:total_samples], :>, 20
  end

  # What serves the profiler itself: it starts a profile, works, and is born while one runs.
  def test_a_thread_that_tells_of_no_native_thread_is_left_out
    quiet = Class.new(Thread) { def native_thread_id = nil }
    own_id = -> { Thread.instance_method(:native_thread_id).bind_call(Thread.current) }
    ids = []
    quiet.new { RingProf.start(mode: :wall, interval: 1000, threads: :all) && first_job(0.1) && ids << own_id.call }.join
    quiet.new { first_job(0.1) && ids << own_id.call }.join
    second_job(0.1)
    RingProf.stop
    results = RingProf.results
    assert_valid_results(results)
    assert_equal [Integer, Integer], ids.map(&:class)
    assert_empty ids & results[:threads].map { |thread| thread[:native_id] }
    refute(results[:frames].any? { |_id, frame| frame[:name].end_with?("#first_job") })
    assert(results[:frames].any? { |_id, frame| frame[:name].end_with?("#second_job") })
  end

  private

  def first_job(seconds)
    burn_cpu(seconds)
    true
  end

  def second_job(seconds)
    burn_cpu(seconds)
  end

  # A collection that a worker meets before or after its clocked block is its time too, and the block's clock does not see it.
  def without_collections
    GC.start
    GC.disable
    yield
  ensure
    GC.enable
  end

  # The CPU time that the block took by the thread's own clock.
  def named(name)
    Thread.current.name = name
    before = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID)
    yield
    Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) - before
  end

  def time_of(results, name)
    thread = results[:threads].find { |one| one[:name] == name }
    thread ? thread[:samples] * INTERVAL * 1e-6 : 0.0
  end

  def assert_times(results, spent, tolerance)
    spent.each do |name, seconds|
      assert_in_delta 1.0, time_of(results, name) / seconds, tolerance, "#{name}: #{seconds} s of CPU time"
    end
  end

  def refute_mixed(results, methods)
    names = results[:frames].transform_values { |frame| frame[:name] }
    each_stack(results) do |ids|
      found = methods.select { |method| ids.any? { |id| names[id].end_with?("##{method}") } }
      assert_operator found.size, :<=, 1, "a stack of two threads"
    end
  end

  def each_stack(results)
    raw = results[:raw].dup
    until raw.empty?
      ids = raw.shift(raw.shift)
      raw.shift
      yield ids
    end
  end
end
