# frozen_string_literal: true

# The contract of StackProf, behaviour by behaviour, as asserted against RingProf. Where it holds
# for StackProf itself too, the same assertions run against the installed one, in a process of its own
# (RINGPROF_CONTRACT=stackprof); so neither a drift of ours nor a misreading of theirs stays unseen.

require "pathname"
require "stringio"
require "test_helper"

# What holds for both. `profiler` is the module under test.
module SharedContract
  def setup
    super
    reset
  end

  def teardown
    reset
    super
  end

  # Module functions.

  def test_start_stop_and_running
    assert_equal false, profiler.running?
    assert_equal true, profiler.start
    assert_equal true, profiler.running?
    assert_equal false, profiler.start
    assert_equal false, profiler.start(mode: :nonsense, interval: -1, metadata: 1)
    assert_equal true, profiler.stop
    assert_equal false, profiler.stop
    assert_equal false, profiler.running?
  end

  def test_start_takes_keywords_only
    error = assert_raises(ArgumentError) { profiler.start({ mode: :custom }) }
    assert_equal "wrong number of arguments (given 1, expected 0)", error.message
  end

  def test_run_wants_a_block_and_returns_the_results
    assert_raises(LocalJumpError) { profiler.run(mode: :custom) }
    assert_instance_of(Hash, profiler.run(mode: :custom) { :discarded })
  end

  def test_run_lets_an_exception_through_and_keeps_the_data
    assert_raises(IndexError) do
      profiler.run(mode: :custom) do
        take_sample
        raise IndexError
      end
    end
    assert_equal false, profiler.running?
    assert_equal 1, profiler.results[:samples]
  end

  def test_results_are_there_once_and_not_while_running
    profiler.start(mode: :custom)
    assert_nil profiler.results
    profiler.stop
    assert_instance_of Hash, profiler.results
    assert_nil profiler.results
    profiler.start(mode: :custom)
    profiler.stop
    assert_instance_of Hash, profiler.results(nil)
  end

  def test_sample_works_in_every_mode_while_running
    assert_equal false, profiler.sample
    %i[wall cpu object custom].each do |mode|
      profiler.start(mode: mode, interval: 999_999)
      assert_equal true, profiler.sample
      profiler.stop
      assert_equal 1, sampled(profiler.results), mode
    end
  end

  def test_sessions_accumulate_and_the_last_start_names_them
    profiler.start(mode: :wall, interval: 900_000, metadata: { round: 1 })
    take_sample
    profiler.stop
    profiler.start(mode: :cpu, interval: 800_000, metadata: { round: 2 })
    take_sample
    profiler.stop
    results = profiler.results
    assert_equal [:cpu, 800_000, { round: 2 }], results.values_at(:mode, :interval, :metadata)
    assert_equal 2, sampled(results)
  end

  # Options.

  def test_mode_and_interval_defaults
    { wall: 1000, cpu: 1000, object: 1 }.each { |mode, interval| assert_equal [mode, interval], run_with(mode: mode).values_at(:mode, :interval) }
    assert_nil run_with(mode: :custom, interval: 50)[:interval]
    [{}, { mode: nil }, { mode: false }].each { |options| assert_equal :wall, run_with(**options)[:mode] }
  end

  def test_the_interval_stays_what_it_was
    assert_equal 1e6 / 101, run_with(mode: :wall, interval: 1e6 / 101)[:interval]
    assert_equal 2, run_with(mode: :object, interval: 2)[:interval]
  end

  def test_refusals
    %i[wall cpu object custom].product([-1, 0, 0.5, 1_000_000, 1_000_001]).each do |mode, interval|
      assert_refusal("interval is a number of microseconds between 1 and 1 million", mode: mode, interval: interval)
    end
    assert_refusal("unknown profiler mode", mode: :unsupported)
    assert_refusal("unknown profiler mode", mode: "wall")
    assert_refusal("metadata should be a hash", metadata: "foobar")
    assert_refusal("metadata should be a hash", metadata: 1, interval: 0, mode: :nonsense)
    assert_refusal("interval is a number of microseconds between 1 and 1 million", interval: 0, mode: :nonsense)
    assert_raises(TypeError) { profiler.start(interval: "1000") }
    assert_equal false, profiler.running?
  end

  def test_unknown_options_are_ignored
    assert_equal 0, run_with(mode: :custom, debug: true)[:samples]
  end

  def test_metadata
    metadata = { path: "/foo/bar", revision: "5c0b01f1522ae8c194510977ae29377296dd236b" }
    assert_same metadata, run_with(mode: :custom, metadata: metadata)[:metadata]
    [{}, { metadata: nil }, { metadata: false }].each { |options| assert_equal({}, run_with(mode: :custom, **options)[:metadata]) }
  end

  def test_aggregate
    assert frames_of(aggregate: nil).all? { |frame| frame.key?(:edges) || frame.key?(:lines) || frame[:file] == "<cfunc>" }
    without = frames_of(aggregate: false)
    assert_empty(without.flat_map(&:keys) & %i[edges lines])
    assert(without.all? { |frame| frame[:total_samples] == 1 })
  end

  def test_out
    Dir.mktmpdir("ringprof-test") do |dir|
      path = File.join(dir, "x.dump")
      tempfile = Tempfile.new("x", dir)
      [path, Pathname.new(path), tempfile].each do |out|
        file = profiler.run(mode: :custom, out: out) { take_sample }
        assert_kind_of IO, file
        refute_predicate file, :closed?
        assert_equal 1, Marshal.load(File.binread(file.path))[:samples]
        assert_nil profiler.results
        file.close
      end
      assert_raises(TypeError) do
        profiler.start(mode: :custom)
        profiler.stop
        profiler.results(StringIO.new)
      end
      assert_raises(Errno::ENOENT) { profiler.run(mode: :custom, out: "/nonexistent/x") { nil } }
    end
  end

  # Results.

  def test_keys_in_order
    keys = profiler.run(mode: :custom, raw: true) { take_sample }.keys
    assert_equal %i[version mode interval samples gc_samples missed_samples metadata frames], keys.first(8)
    assert_empty %i[raw raw_sample_timestamps raw_timestamp_deltas] - keys
    assert_empty run_with(mode: :custom, raw: true).keys - keys.first(8)
    assert_empty profiler.run(mode: :custom) { take_sample }.keys - keys.first(8)
  end

  def test_version_is_a_float
    assert_equal 1.2, run_with(mode: :custom)[:version]
    assert_instance_of Float, run_with(mode: :custom)[:version]
  end

  def test_frames
    results = profiler.run(mode: :custom) { 10.times { take_sample } }
    native, sampler = results[:frames].values
    assert_equal "#{profiler}.sample", native[:name]
    assert_equal ["<cfunc>", nil, 10, 10], native.values_at(:file, :line, :total_samples, :samples)
    assert native.key?(:line)
    assert_empty native.keys & %i[edges lines]
    assert_equal "SharedContract#take_sample", sampler[:name]
    assert_equal [File.expand_path(__FILE__), method(:take_sample).source_location.last, 10, 0], sampler.values_at(:file, :line, :total_samples, :samples)
    assert_equal({ results[:frames].key(native) => 10 }, sampler[:edges])
    assert_equal({ sampler[:line] + 1 => [10, 0] }, sampler[:lines])
  end

  def test_files_have_no_first_line
    Tempfile.create(["loaded", ".rb"]) do |file|
      file.write("#{profiler}.sample")
      file.flush
      results = profiler.run(mode: :custom) { load file.path }
      frame = results[:frames].each_value.find { |one| one[:file] == File.realpath(file.path) }
      assert_equal "<top (required)>", frame[:name]
      refute frame.key?(:line)
      assert_equal({ 1 => [1, 0] }, frame[:lines])
    end
  end

  def test_recursion_counts_once
    results = profiler.run(mode: :cpu, interval: 999_999) { 10.times { dig(4) } }
    frame = results[:frames].each_value.find { |one| one[:name].end_with?("#dig") }
    assert_equal [10, 0], frame.values_at(:total_samples, :samples)
    assert_equal 40, frame[:edges][results[:frames].key(frame)]
    assert_equal 50, frame[:lines].each_value.sum(&:first)
  end

  def test_raw
    line = nil
    results = profiler.run(mode: :custom, raw: true) do
      10.times do
        line = __LINE__ + 1
        profiler.sample
      end
    end
    raw = results[:raw]
    assert_equal 10, raw.last
    assert_equal raw[0] + 2, raw.size
    names = raw[1..-2].map { |id| results[:frames].fetch(id)[:name] }
    assert_equal "#{profiler}.sample", names.last, "root first"
    assert_equal 10, results[:raw_sample_timestamps].size
    assert_equal 10, results[:raw_timestamp_deltas].size
    return unless results.key?(:raw_lines)

    assert_equal [line, 0, 10], results[:raw_lines].last(3)
  end

  def test_times
    before = Process.clock_gettime(Process::CLOCK_MONOTONIC, :microsecond)
    results = profiler.run(mode: :custom, raw: true) do
      10.times do
        profiler.sample
        sleep 0.001
      end
    end
    after = Process.clock_gettime(Process::CLOCK_MONOTONIC, :microsecond)
    times = results[:raw_sample_timestamps]
    assert_equal times.sort, times
    assert_operator times.first, :>=, before
    assert_operator times.last, :<=, after
    assert(results[:raw_timestamp_deltas].drop(1).all?(&:positive?))
    assert_operator results[:raw_timestamp_deltas].sum, :<, after - before
  end

  def test_objects
    allocate
    results = profiler.run(mode: :object) { allocate }
    frame = results[:frames].each_value.find { |one| one[:name].end_with?("#allocate") }
    assert_equal 2, frame[:total_samples]
    first = method(:allocate).source_location.last
    assert_equal [1, 1], frame[:lines].values_at(first + 1, first + 2).map(&:first)
    assert_equal 0, results[:missed_samples]
  end

  def test_json_and_marshal
    results = profiler.run(mode: :custom, raw: true) { take_sample }
    assert_equal results[:samples], JSON.parse(JSON.generate(results))["samples"]
    assert_equal results, Marshal.load(Marshal.dump(results))
    results[:frames].each_value { |frame| refute_predicate frame, :frozen? }
  end

  def test_garbage_collection
    ballast = Work.garbage
    results = profiler.run(mode: :wall, interval: 100) { collect_garbage }
    refute_empty ballast
    frames = results[:frames]
    assert_equal ["(garbage collection)", "(marking)", "(sweeping)"], frames.values_at(1, 3, 5).map { |frame| frame[:name] }
    # StackProf's own counts differ by a few where ticks were missed.
    tolerance = [2, results[:gc_samples] / 50].max
    assert_in_delta results[:gc_samples], frames[1][:total_samples], tolerance
    assert_in_delta results[:gc_samples], frames.values_at(1, 3, 5).sum { |frame| frame[:samples] }, tolerance
    frames.values_at(1, 3, 5).each { |frame| assert_equal "", frame[:file] }
  end

  def test_garbage_collection_ignored
    results = profiler.run(mode: :wall, interval: 100, ignore_gc: true) { collect_garbage }
    assert_equal 0, results[:gc_samples]
    assert_empty results[:frames].keys & [1, 3, 5]
  end

  # Process.

  def test_a_forked_child_does_not_run
    profiler.start(mode: :cpu)
    child = fork { exit!(profiler.running? ? 1 : 0) }
    Process.wait(child)
    assert_equal 0, $?.exitstatus
    assert_equal true, profiler.running?
  end

  def test_use_postponed_job_returns_nil
    script = "require '#{profiler.name.downcase}'; p #{profiler}.use_postponed_job!"
    assert_equal "nil\n", ruby!(script)
  end

  private

  def reset
    profiler.stop
    profiler.results(File::NULL)
  end

  def take_sample
    profiler.sample
  end

  def dig(depth)
    depth.zero? ? profiler.sample : dig(depth - 1)
  end

  def allocate
    Object.new
    Object.new
  end

  def collect_garbage
    5.times do
      Work.garbage
      GC.start
    end
  end

  def run_with(**options)
    profiler.run(**options) { nil }
  end

  def frames_of(**options)
    profiler.run(mode: :custom, **options) { take_sample }[:frames].values
  end

  def sampled(results)
    results[:frames].each_value.find { |frame| frame[:name] == "#{profiler}.sample" }[:samples]
  end

  def assert_refusal(message, **options)
    error = assert_raises(ArgumentError, options.inspect) { profiler.start(**options) }
    assert_equal message, error.message
  end
end

if ENV["RINGPROF_CONTRACT"] == "stackprof"
  require "stackprof"

  class StackProfContractTest < Minitest::Test
    include Subprocess
    include SharedContract

    def profiler
      StackProf
    end
  end
else
  class RingProfContractTest < RingProf::TestCase
    include SharedContract

    def profiler
      RingProf
    end

    # Where StackProf's behaviour is a quirk, or came after the version that is installed.

    def test_a_nested_run_leaves_the_outer_profile
      outer = RingProf.run(mode: :custom) do
        assert_nil(RingProf.run(mode: :cpu) { take_sample })
        take_sample
      end
      assert_equal [:custom, 2], outer.values_at(:mode, :samples)
    end

    def test_a_failed_start_leaves_no_half_results
      assert_raises(ArgumentError) { RingProf.start(mode: :nonsense) }
      assert_nil RingProf.results
    end

    def test_a_failed_write_loses_nothing
      assert_raises(Errno::ENOENT) { RingProf.run(mode: :custom, out: "/nonexistent/x") { take_sample } }
      Dir.mktmpdir("ringprof-test") do |dir|
        path = File.join(dir, "x")
        RingProf.results(path).close
        assert_equal 1, Marshal.load(File.binread(path))[:samples]
      end
    end

    def test_raw_has_lines
      results = run_with_samples
      assert_equal %i[raw raw_lines raw_sample_timestamps raw_timestamp_deltas], results.keys.last(4)
      assert_equal results[:raw].length, results[:raw_lines].length
    end

    def test_garbage_collection_misses_little
      results = RingProf.run(mode: :wall, interval: 100) { collect_garbage }
      assert_operator results[:missed_samples], :<=, 25
    end

    def test_objects_that_are_not_sampled_are_not_missed
      results = RingProf.run(mode: :object, interval: 10) { 1000.times { Object.new } }
      assert_equal 0, results[:missed_samples]
    end

    def test_a_forked_child_has_no_samples_of_its_parent
      RingProf.run(mode: :custom, out: nil) { nil }
      RingProf.start(mode: :custom)
      take_sample
      child = fork { exit!(RingProf.results.nil? ? 0 : 1) }
      Process.wait(child)
      assert_equal 0, $?.exitstatus
    end

    private

    def run_with_samples
      RingProf.run(mode: :custom, raw: true) { 3.times { take_sample } }
    end
  end

  class StackProfItselfTest < Minitest::Test
    include Subprocess

    def test_the_shared_contract_is_stackprofs
      skip "stackprof is not installed" unless system(RbConfig.ruby, "-e", "require 'stackprof'", err: File::NULL)

      # Without -w: the warnings would be its own.
      out, err, status = capture([RbConfig.ruby, *Subprocess::INCLUDES, __FILE__], env: { "RINGPROF_CONTRACT" => "stackprof", "RINGPROF_HARD" => nil })
      assert_predicate status, :success?, "#{out}\n#{err}"
      assert_match(/^#{SharedContract.instance_methods(false).grep(/\Atest_/).length} runs, \d+ assertions, 0 failures, 0 errors, 0 skips$/, out)
    end
  end
end
