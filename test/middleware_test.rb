# frozen_string_literal: true

require "test_helper"
require "support/directory"

# RingProf::Middleware by itself; test/compat/servers_test.rb has it under Rack and Puma.
class MiddlewareTest < RingProf::TestCase
  include Directory

  def test_nothing_is_profiled_unless_it_is_asked_for
    one = middleware
    [{}, { "HTTP_X_RINGPROF" => "" }, { "HTTP_X_RINGPROF" => "x" }, { "QUERY_STRING" => "ringprof=" }].each do |env|
      assert_equal answer, one.call(env)
    end
    assert_equal answer, middleware(secret: "").call("HTTP_X_RINGPROF" => "")
    assert_empty files
  end

  def test_every_nth_request
    one = middleware(every: 3)
    7.times { assert_equal answer, one.call("REQUEST_METHOD" => "GET", "SCRIPT_NAME" => "/app", "PATH_INFO" => "/x") }
    assert_equal 2, files.size
    results = load(files.first)
    assert_equal [1, { method: "GET", path: "/app/x" }, :custom], results.values_at(:samples, :metadata, :mode)
    assert results.key?(:raw)
    assert_equal 0o600, File.stat(File.join(@directory, files.first)).mode & 0o777
  end

  def test_every_is_a_number_of_requests
    [0, -1, "3", 1.5].each { |every| assert_raises(ArgumentError) { middleware(every: every) } }
  end

  def test_who_knows_the_secret
    one = middleware(secret: "s3cret & more")
    [{ "HTTP_X_RINGPROF" => "s3cret & more" }, { "QUERY_STRING" => "a=1&ringprof=s3cret+%26%20more" }].each_with_index do |env, index|
      status, headers, body = one.call(env)
      assert_equal [200, ["body"]], [status, body]
      assert_includes files, headers["x-ringprof-file"]
      assert_equal index + 1, files.size
    end
    ["s3cret", "s3cret & more ", "", "S3CRET & MORE", "\xFF"].each { |wrong| assert_equal answer, one.call("HTTP_X_RINGPROF" => wrong) }
    assert_equal 2, files.size
  end

  def test_a_report_for_an_answer
    one = middleware(secret: "x", raw: true)
    closed = []
    { "text" => "text/plain", "json" => "application/json", "d3-flamegraph" => "text/html", "nonsense" => "text/plain", "stackcollapse" => "text/plain" }.each do |format, type|
      status, headers, body = ask(one, format)
      assert_equal [200, "#{type}; charset=utf-8", "no-store"], [status, *headers.values_at("content-type", "cache-control")], format
      assert_equal headers["content-length"].to_i, body.join.bytesize
      assert_match(/RingProf\.sample/, body.join)
    end
    status, headers, body = ask(one, "dump")
    assert_equal [200, "application/octet-stream", 1], [status, headers["content-type"], RingProf::Profile.parse(body.join).samples]
    with_body = Struct.new(:closed) { define_method(:close) { closed << true } }
    ask(middleware(proc { [200, {}, with_body.new(closed)] }, secret: "x"), "text")
    assert_equal [true], closed
    assert_empty files
  end

  def test_a_report_that_cannot_be
    _status, _headers, body = ask(middleware(secret: "x", raw: false), "stackcollapse")
    assert_match(/does not include raw samples/, body.join)
  end

  def test_an_exception_goes_through_and_its_profile_is_kept
    one = middleware(proc { raise IndexError }, every: 1)
    assert_raises(IndexError) { one.call({}) }
    refute_predicate RingProf, :running?
    assert_equal 1, files.size
    assert_equal answer, middleware(every: 1).call({})
  end

  def test_one_at_a_time
    inside = Queue.new
    go_on = Queue.new
    slow = proc do |env|
      RingProf.sample
      if env[:slow]
        inside << true
        go_on.pop
      end
      [200, {}, ["body"]]
    end
    one = middleware(slow, secret: "x", every: 1)
    first = Thread.new { one.call("HTTP_X_RINGPROF" => "x", slow: true) }
    inside.pop
    assert_equal "1", one.call("HTTP_X_RINGPROF" => "x")[1]["x-ringprof-busy"]
    assert_equal [200, {}, ["body"]], one.call({})
    assert_predicate RingProf, :running?
    go_on << true
    assert first.value[1]["x-ringprof-file"]
    assert_equal 1, files.size
  end

  # Within a request that is profiled, the same middleware, mounted once more.
  def test_a_request_inside_of_a_request
    inner = middleware(every: 1)
    outer = middleware(proc { |env| inner.call(env) }, every: 1)
    assert_equal answer, outer.call({})
    assert_equal 1, files.size
  end

  def test_a_profile_of_somebody_else_goes_on
    RingProf.start(mode: :custom)
    _, headers, = middleware(secret: "x").call("HTTP_X_RINGPROF" => "x")
    assert_equal "1", headers["x-ringprof-busy"]
    assert_predicate RingProf, :running?
    assert_empty files
  end

  def test_many_threads_write_one_file_each
    one = middleware(every: 1)
    Array.new(6) { Thread.new { 20.times { assert_equal answer, one.call({}) } } }.each(&:join)
    assert_includes 1..120, files.size
    # In custom mode the calls of other threads count too, and one who holds the profile may have to wait for its turn.
    files.each { |file| assert_operator load(file)[:samples], :>, 0 }
    refute_predicate RingProf, :running?
  end

  def test_its_thread_alone
    noise = Thread.new { loop { burn_slice } }
    one = middleware(proc { burn_cpu(0.1) || [200, {}, []] }, every: 1, mode: :wall, interval: 500)
    one.call({})
    results = load(files.first)
    assert_equal 1, results[:threads].size
    assert_operator results[:samples], :>, 0
  ensure
    noise&.kill&.join
  end

  def test_a_directory_that_cannot_be
    one = middleware(every: 1, path: "/dev/null/x")
    _, err = capture_io { assert_equal answer, one.call({}) }
    assert_match(/\Aringprof: /, err)
  end

  def test_enabled
    assert_equal answer, middleware(every: 1, enabled: false).call({})
    one = middleware(every: 1, enabled: proc { |env| env["ON"] })
    one.call({})
    assert_empty files
    one.call("ON" => "1")
    assert_equal 1, files.size
  end

  private

  def answer
    [200, { "a" => "b" }.freeze, ["body"]]
  end

  def middleware(called = nil, **options)
    result = answer.freeze
    called ||= proc do
      RingProf.sample
      result
    end
    RingProf::Middleware.new(called, path: @directory, mode: :custom, **options)
  end

  def ask(middleware, format)
    middleware.call("HTTP_X_RINGPROF" => "x", "HTTP_X_RINGPROF_REPORT" => format)
  end

  def files
    Dir.children(@directory).sort
  end

  def load(file)
    Marshal.load(File.binread(File.join(@directory, file)))
  end
end
