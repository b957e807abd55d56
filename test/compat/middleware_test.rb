# frozen_string_literal: true

require "test_helper"
require "support/directory"
require "ringprof/stackprof"

# StackProf::Middleware: its options, its files, and what was wrong with it.
class MiddlewareCompatTest < RingProf::TestCase
  include Directory

  def test_defaults
    StackProf::Middleware.new(app)
    assert_equal [:cpu, 1000, false, "tmp/", {}, nil], accessors
    StackProf::Middleware.new(app, path: "")
    assert_equal "tmp/", StackProf::Middleware.path
  end

  def test_options_are_class_accessors
    StackProf::Middleware.new(app, enabled: true, mode: :wall, interval: 500, raw: true, path: "/foo/", metadata: { a: 1 })
    assert_equal [:wall, 500, true, "/foo/", { a: 1 }, true], accessors
    StackProf::Middleware.enabled = false
    refute StackProf::Middleware.enabled?({})
  end

  def test_enabled_may_be_a_proc_that_sees_the_request
    StackProf::Middleware.new(app, enabled: proc { |env| env["FOO"] == "BAR" })
    assert StackProf::Middleware.enabled?("FOO" => "BAR")
    refute StackProf::Middleware.enabled?({})
  end

  def test_the_answer_is_the_applications
    assert_equal [200, {}, ["body"]], middleware.call({})
    assert_equal [200, {}, ["body"]], middleware(enabled: false).call({})
    refute_predicate RingProf, :running?
  end

  def test_a_file_for_every_so_many_requests
    one = middleware(save_every: 2, mode: :custom)
    one.call({})
    assert_empty files
    one.call({})
    assert_equal 1, files.size
    assert_match(/\Astackprof-custom-#{Process.pid}-\d+\.dump\z/, files.first)
    assert_equal 2, Marshal.load(File.binread(File.join(@directory, files.first)))[:samples]
  end

  def test_many_within_a_second
    one = middleware(save_every: 1, mode: :custom)
    5.times { one.call({}) }
    assert_equal 5, files.size
    files.each { |file| assert_equal %W[stackprof custom #{Process.pid}], file.split("-").first(3) }
  end

  def test_a_path_without_a_slash_is_a_file
    path = File.join(@directory, "deep/er/mine.dump")
    one = middleware(path: path, mode: :custom)
    one.call({})
    assert_equal "mine.dump", StackProf::Middleware.save
    assert_equal 1, StackProf::Report.from_file(path).overall_samples
    assert_nil StackProf::Middleware.save
  end

  def test_every_option_of_start_arrives
    one = middleware(mode: :custom, raw: true, metadata: { "a" => 1 }, aggregate: false, ignore_gc: true, buffer: 1 << 17, save_every: 1)
    one.call({})
    results = Marshal.load(File.binread(File.join(@directory, files.first)))
    assert_equal({ "a" => 1 }, results[:metadata])
    assert results.key?(:raw)
    results[:frames].each_value { |frame| refute frame.key?(:edges) }
  end

  def test_an_exception_goes_through_and_counts
    one = middleware(proc { raise IndexError }, mode: :custom, save_every: 1)
    assert_raises(IndexError) { one.call({}) }
    refute_predicate RingProf, :running?
    assert_equal 1, files.size
  end

  # The first one that is finished ends nobody's profile, and none of the counts is lost.
  def test_requests_at_the_same_time
    inside = Queue.new
    go_on = Queue.new
    slow = proc do |env|
      if env[:slow]
        inside << true
        go_on.pop
      end
      RingProf.sample
      [200, {}, []]
    end
    one = middleware(slow, mode: :custom, save_every: 3)
    first = Thread.new { one.call(slow: true) }
    inside.pop
    3.times { one.call({}) }
    assert_predicate RingProf, :running?
    # It was due, and cannot be written while the first is being profiled.
    assert_empty files
    go_on << true
    first.join
    assert_equal 1, files.size
    assert_equal 4, Marshal.load(File.binread(File.join(@directory, files.first)))[:samples]
  end

  def test_a_count_under_many_threads
    one = middleware(mode: :custom, save_every: 10)
    threads = Array.new(8) { Thread.new { 50.times { one.call({}) } } }
    threads.each(&:join)
    written = files.map { |file| Marshal.load(File.binread(File.join(@directory, file)))[:samples] }
    # Two that are due while a third is profiled are written as one.
    assert_includes 1..40, written.size
    assert_operator written.min, :>=, 1
    assert_operator written.sum, :<=, 400
    refute_predicate RingProf, :running?
  end

  def test_a_profile_of_somebody_else_goes_on
    RingProf.start(mode: :custom)
    middleware(save_every: 1).call({})
    assert_predicate RingProf, :running?
    assert_empty files
  end

  def test_save_at_exit
    script = <<~RUBY
      require "ringprof/stackprof"
      StackProf::Middleware.new(proc { StackProf.sample; [200, {}, []] }, enabled: true, mode: :custom, save_at_exit: true, path: ARGV[0]).call({})
    RUBY
    ruby!(script, "#{@directory}/")
    assert_match(/\Astackprof-custom-\d+-\d+\.dump\z/, files.first)
  end

  private

  def accessors
    %i[mode interval raw path metadata enabled].map { |name| StackProf::Middleware.public_send(name) }
  end

  def app
    proc do
      RingProf.sample
      [200, {}, ["body"]]
    end
  end

  def middleware(called = app, **options)
    StackProf::Middleware.new(called, { enabled: true, path: "#{@directory}/" }.merge(options))
  end

  def files
    Dir.children(@directory).sort
  end
end
