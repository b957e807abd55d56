# frozen_string_literal: true

require "pathname"
require "stringio"
require "test_helper"

class ResultsTest < RingProf::TestCase
  stress_gc

  def test_reading_consumes
    profile_once
    assert_equal 1, RingProf.results[:samples]
    assert_nil RingProf.results
  end

  def test_results_of_nil_are_those_of_nothing
    profile_once
    assert_equal 1, RingProf.results(nil)[:samples]
  end

  def test_nil_while_running_and_nothing_is_consumed
    RingProf.start(mode: :custom)
    sample_here
    assert_nil RingProf.results
    assert_nil RingProf.results("/nonexistent/never/opened")
    RingProf.stop
    assert_equal 1, RingProf.results[:samples]
  end

  def test_keys_and_values
    results = RingProf.run(mode: :custom, raw: true) { sample_here }
    assert_equal ResultAssertions::RESULT_KEYS, results.keys
    assert_valid_results(results)
    frame = frame_named(results, "RingProf::TestCase#sample_here")
    assert_equal File.expand_path("test_helper.rb", __dir__), frame[:file]
    assert_equal RingProf::TestCase.instance_method(:sample_here).source_location.last, frame[:line]
    native = frame_named(results, "RingProf.sample")
    assert_equal "<cfunc>", native[:file]
    assert native.key?(:line)
    assert_nil native[:line]
    refute native.key?(:lines)
    refute native.key?(:edges)
  end

  def test_frames_are_in_the_order_of_first_sight_leaf_first
    results = RingProf.run(mode: :custom) { sample_here }
    names = results[:frames].each_value.map { |frame| frame[:name] }
    assert_equal ["RingProf.sample", "RingProf::TestCase#sample_here"], names.first(2)
  end

  def test_results_can_be_changed_by_their_owner
    results = RingProf.run(mode: :custom, raw: true) { sample_here }
    results[:extra] = 1
    results[:frames].each_value { |frame| frame[:file] = "elsewhere" }
    results[:metadata][:id] = 1
    results[:raw] << 1
  end

  def test_out_takes_paths_and_ios
    in_directory do |dir|
      path = File.join(dir, "profile.dump")
      tempfile = Tempfile.new("ringprof", dir)
      { path => path, Pathname(path) => path, tempfile => tempfile.path }.each do |out, written|
        file = RingProf.run(mode: :custom, out: out) { sample_here }
        assert_kind_of IO, file
        assert_predicate file, :binmode?
        assert_equal 1, Marshal.load(File.binread(written))[:samples], out.class.name
        assert_nil RingProf.results
        file.close
      end
    end
  end

  def test_results_take_a_target_themselves
    in_directory do |dir|
      path = File.join(dir, "profile.dump")
      profile_once
      file = RingProf.results(path)
      refute_predicate file, :closed?
      assert_predicate file, :binmode?
      assert_equal 1, Marshal.load(File.binread(path))[:samples], "it is flushed"
      file.close
    end
  end

  def test_the_target_of_results_goes_before_that_of_start
    in_directory do |dir|
      RingProf.start(mode: :custom, out: File.join(dir, "of-start"))
      sample_here
      RingProf.stop
      RingProf.results(File.join(dir, "of-results")).close
      assert_equal ["of-results"], Dir.children(dir)
    end
  end

  def test_an_exception_in_run_leaves_out_unwritten_until_results
    in_directory do |dir|
      path = File.join(dir, "profile.dump")
      assert_raises(RuntimeError) do
        RingProf.run(mode: :custom, out: path) do
          sample_here
          raise "no"
        end
      end
      refute_path_exists path
      RingProf.results.close
      assert_equal 1, Marshal.load(File.binread(path))[:samples]
    end
  end

  def test_a_directory_that_is_not_there_keeps_the_profile
    profile_once
    assert_raises(Errno::ENOENT) { RingProf.results("/nonexistent/directory/profile.dump") }
    assert_equal 1, RingProf.results[:samples]
  end

  def test_a_bad_out_of_run_keeps_the_profile
    in_directory do |dir|
      path = File.join(dir, "profile.dump")
      assert_raises(Errno::ENOENT) { RingProf.run(mode: :custom, out: "/nonexistent/directory/x") { sample_here } }
      RingProf.results(path).close
      assert_equal 1, Marshal.load(File.binread(path))[:samples]
    end
  end

  def test_what_is_neither_path_nor_io_keeps_the_profile
    profile_once
    [StringIO.new, 3, Object.new, []].each do |target|
      assert_raises(TypeError, target.class.name) { RingProf.results(target) }
    end
    assert_equal 1, RingProf.results[:samples]
  end

  def test_a_full_disk_keeps_the_profile
    profile_once
    assert_raises(Errno::ENOSPC) { RingProf.results("/dev/full") }
    assert_raises(Errno::ENOSPC) { RingProf.results("/dev/full") }
    assert_equal 1, RingProf.results[:samples]
    assert_nil RingProf.results
  end

  def test_a_closed_pipe_keeps_the_profile
    profile_once
    reader, writer = IO.pipe
    reader.close
    assert_raises(Errno::EPIPE) { RingProf.results(writer) }
    assert_equal 1, RingProf.results[:samples]
  ensure
    writer.close
  end

  def test_an_io_that_cannot_be_written_keeps_the_profile
    profile_once
    File.open(__FILE__) { |file| assert_raises(IOError) { RingProf.results(file) } }
    assert_raises(IOError) { RingProf.results(File.open(__FILE__).tap(&:close)) }
    assert_equal 1, RingProf.results[:samples]
  end

  def test_metadata_that_cannot_be_dumped_keeps_the_profile
    in_directory do |dir|
      metadata = { callback: proc {} }
      RingProf.start(mode: :custom, metadata: metadata)
      sample_here
      RingProf.stop
      assert_raises(TypeError) { RingProf.results(File.join(dir, "profile.dump")) }
      results = RingProf.results
      assert_equal 1, results[:samples]
      assert_same metadata, results[:metadata]
    end
  end

  def test_a_file_that_failed_is_closed
    in_directory do |dir|
      path = File.join(dir, "profile.dump")
      metadata = { callback: proc {} }
      RingProf.start(mode: :custom, metadata: metadata)
      sample_here
      RingProf.stop
      assert_raises(TypeError) { RingProf.results(path) }
      # What is left in its buffer would be written some day, into the file of the next try.
      assert_empty(ObjectSpace.each_object(File).reject(&:closed?).select { |file| file.path == path })
      metadata.delete(:callback)
      RingProf.results(path).close
      assert_equal 1, Marshal.load(File.binread(path))[:samples]
    end
  end

  def test_a_newer_profile_replaces_one_that_could_not_be_written
    profile_once
    assert_raises(Errno::ENOSPC) { RingProf.results("/dev/full") }
    RingProf.start(mode: :custom)
    assert_nil RingProf.results
    2.times { sample_here }
    RingProf.stop
    assert_equal 2, RingProf.results[:samples]
    assert_nil RingProf.results
  end

  private

  def profile_once
    RingProf.start(mode: :custom)
    sample_here
    RingProf.stop
  end

  def in_directory(&block)
    Dir.mktmpdir("ringprof-test", &block)
  end
end
