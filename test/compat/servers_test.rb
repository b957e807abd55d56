# frozen_string_literal: true

require "test_helper"
require "net/http"
require "socket"

# Both middlewares in a Puma of several threads, as Rack calls them.
class ServersTest < RingProf::TestCase
  CONFIG = <<~'RUBY'
    require "ringprof/stackprof"
    require "stackprof/middleware"
    require "rack/lint"
    module Served
      def self.burn(seconds)
        deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + seconds
        nil while Process.clock_gettime(Process::CLOCK_MONOTONIC) < deadline
      end
      def self.fast = burn(0.02)
      def self.slow = burn(0.4)
    end
    use Rack::Lint
    MIDDLEWARE
    use Rack::Lint
    run(proc do |env|
      env["PATH_INFO"] == "/slow" ? Served.slow : Served.fast
      raise "on purpose" if env["PATH_INFO"] == "/raise"
      [200, { "content-type" => "text/plain" }, ["served"]]
    end)
  RUBY

  def setup
    super
    skip "puma and rack are not installed for this Ruby" unless system(RbConfig.ruby, "-e", "require 'puma'; require 'rack'", err: File::NULL)
    @directory = Dir.mktmpdir("ringprof-test")
  end

  def teardown
    stop if @pid
    FileUtils.rm_rf(@directory) if @directory
    super
  end

  def test_requests_with_a_secret
    serve(%(use RingProf::Middleware, secret: "s3cret", path: "#{@directory}/profiles", interval: 500))
    assert_equal "served", get("/fast").body
    refute_path_exists "#{@directory}/profiles"

    answer = get("/slow", "x-ringprof" => "s3cret")
    assert_equal "served", answer.body
    profile = RingProf::Profile.load("#{@directory}/profiles/#{answer["x-ringprof-file"]}")
    assert_equal "/slow", profile.metadata[:path]
    assert(profile.frames.any? { |frame| frame.name == "Served.slow" })

    report = get("/slow?ringprof=s3cret&ringprof_report=text")
    assert_equal "text/plain; charset=utf-8", report["content-type"]
    assert_match(/Mode: wall\(500\).*Served.slow/m, report.body)
    assert_match(/<!DOCTYPE html>.*Served.slow/m, get("/slow", "x-ringprof" => "s3cret", "x-ringprof-report" => "d3-flamegraph").body.force_encoding("UTF-8"))
    assert_equal "served", get("/fast", "x-ringprof" => "wrong").body
  end

  # One slow request is profiled, twenty others come and go meanwhile: it has its own thread, and its whole time.
  def test_requests_at_the_same_time
    serve(%(use RingProf::Middleware, secret: "s3cret", path: "#{@directory}/profiles", interval: 1000))
    slow = Thread.new { get("/slow", "x-ringprof" => "s3cret", "x-ringprof-report" => "dump") }
    sleep 0.05
    others = Array.new(4) { Thread.new { Array.new(5) { get("/fast", "x-ringprof" => "s3cret") } } }.flat_map(&:value)
    profile = RingProf::Profile.parse(slow.value.body)
    assert_equal ["served"], others.map(&:body).uniq
    assert_operator others.count { |answer| answer["x-ringprof-busy"] }, :>, 0
    assert_equal 1, profile.threads.size
    names = profile.frames.map(&:name)
    assert_includes names, "Served.slow"
    refute_includes names, "Served.fast"
    # Its 0.4 s, or more where it had to share the processor.
    assert_operator profile.samples + profile.missed_samples, :>, 300
  end

  def test_every_third_request_and_a_failure
    serve(%(use RingProf::Middleware, every: 3, path: "#{@directory}/profiles"))
    5.times { get("/fast") }
    assert_equal "500", get("/raise").code
    assert_equal 2, Dir.children("#{@directory}/profiles").size
  end

  def test_stackprofs_middleware
    serve(%(use StackProf::Middleware, enabled: proc { |env| env["PATH_INFO"] != "/raise" }, mode: :wall, interval: 500, raw: true, save_every: 3, path: "#{@directory}/profiles/"))
    Array.new(3) { Thread.new { 6.times { get("/fast") } } }.each(&:join)
    files = Dir.children("#{@directory}/profiles")
    assert_includes 2..6, files.size
    files.each do |file|
      assert_match(/\Astackprof-wall-\d+-\d+(-\d+)?\.dump\z/, file)
      profile = RingProf::Profile.load("#{@directory}/profiles/#{file}")
      assert_includes profile.frames.map(&:name), "Served.fast"
    end
  end

  private

  def serve(middleware)
    config = File.join(@directory, "config.ru")
    File.write(config, CONFIG.sub("MIDDLEWARE", middleware))
    @port = TCPServer.open("127.0.0.1", 0) { |server| server.addr[1] }
    @log = File.join(@directory, "log")
    @pid = Process.spawn(RbConfig.ruby, *Subprocess::INCLUDES, `which puma`.chomp, "-e", "production", "-t", "5:5", "-b", "tcp://127.0.0.1:#{@port}", config,
                         out: @log, err: @log, pgroup: true)
    deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 60
    begin
      TCPSocket.open("127.0.0.1", @port, &:close)
    rescue SystemCallError
      flunk File.read(@log) if Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline
      sleep 0.05
      retry
    end
  end

  def stop
    Process.kill(:TERM, @pid)
    wait_for(@pid, 30)
  end

  def get(path, headers = {})
    Net::HTTP.start("127.0.0.1", @port, read_timeout: 60) { |http| http.get(path, headers) }
  end
end
