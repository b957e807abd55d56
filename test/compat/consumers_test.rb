# frozen_string_literal: true

require "pathname"
require "test_helper"
require "support/directory"
require "ringprof/stackprof"

# What the gems that know StackProf call, and what they read of what they get, as their sources have it. Each test
# is one consumer's way through the API; none of their code is here.
class ConsumersTest < RingProf::TestCase
  include Directory

  # StackProf's README: out:, start and stop over several spans, and reports of what was kept.
  def test_documented_uses
    path = File.join(@directory, "stackprof-cpu-myapp.dump")
    file = StackProf.run(mode: :cpu, out: path, raw: true) { burn_cpu(0.1) }
    assert_equal path, file.path
    file.close
    assert_match(/burn_slice/, printed(StackProf::Report.from_file(path), :print_method, "burn"))

    StackProf.start(mode: :custom)
    StackProf.sample
    StackProf.stop
    StackProf.start(mode: :custom)
    StackProf.sample
    StackProf.stop
    StackProf.results(path).close
    report = StackProf::Report.new(Marshal.load(File.binread(path)))
    assert_equal 2, report.overall_samples
    assert_match(/2 \(100\.0%\) .*sample/, text_of(report))
    assert_nil StackProf.results
    assert_operator StackProf.run(mode: :object, interval: 1) { 3.times { Object.new } }[:samples], :>=, 3
  end

  # sentry-ruby: a Float for an interval; frames by name, file and line; stacks expanded with their deltas.
  def test_sentry
    assert_equal true, StackProf.start(interval: 1e6 / 101, mode: :wall, raw: true, aggregate: false)
    assert_equal false, StackProf.start(interval: 1e6 / 101, mode: :wall, raw: true, aggregate: false)
    burn_cpu(0.2)
    StackProf.stop
    results = StackProf.results
    assert_operator results[:samples], :>, 2
    frames = results[:frames].map do |id, frame|
      assert frame[:line].nil? || frame[:line].is_a?(Integer)
      assert_kind_of String, frame[:file]
      [id, frame[:name].rpartition(/::|[.#]/)]
    end.to_h
    expanded = 0
    position = 0
    while (depth = results[:raw][position])
      results[:raw][position + 1, depth].each { |id| assert frames.key?(id) }
      expanded += results[:raw][position + 1 + depth]
      position += depth + 2
    end
    assert_equal [results[:samples]] * 2, [expanded, results[:raw_timestamp_deltas].size]
  end

  # app_profiler: clears, starts with defaults of its own, changes the metadata, writes JSON for Speedscope.
  def test_app_profiler
    assert_nil StackProf.results
    assert_equal true, StackProf.start(mode: :cpu, raw: true, interval: 2000, metadata: { id: "foo", context: "bar" })
    assert_nil StackProf.results
    assert_equal [true, true, false], [StackProf.running?, StackProf.stop, StackProf.stop]
    data = StackProf.results
    assert_equal [:cpu, 2000], data.values_at(:mode, :interval)
    assert_equal %w[foo bar], [data[:metadata].delete(:id), data[:metadata].delete(:context)]
    data[:metadata][:profile_id] = "foo"
    path = File.join(@directory, "x.stackprof.json")
    File.write(path, JSON.dump(data))
    assert_equal({ profile_id: "foo" }, StackProf::Report.from_file(path).data[:metadata])
    assert_raises(ArgumentError) { StackProf.start(mode: :unsupported) }
    StackProf.start(mode: :object, interval: 2)
    StackProf.stop
    assert_equal 2, StackProf.results[:interval]
  end

  # rack-mini-profiler: the Hash of `run` as JSON inside of a page.
  def test_rack_mini_profiler
    assert_respond_to StackProf, :run
    results = StackProf.run(mode: :wall, raw: true, aggregate: false, interval: (0.5 * 1000).to_i, ignore_gc: true) { burn_cpu(0.1) }
    read = JSON.parse(JSON.generate(results))
    assert_equal ["wall", 500], read.values_at("mode", "interval")
    assert_empty %w[mode frames raw raw_timestamp_deltas interval] - read.keys
    results[:frames].each_value { |frame| refute frame.key?(:edges) }
  end

  # test-prof: a version, a dump at the end, the dump once more as JSON.
  def test_test_prof
    assert_operator Gem::Version.new(StackProf::VERSION), :>=, Gem::Version.new("0.2.9")
    path = File.join(@directory, "stack-prof-report-wall-raw-total.dump")
    StackProf.start(mode: :wall, raw: true)
    burn_cpu(0.05)
    StackProf.stop
    StackProf.results(path)&.close
    report = StackProf::Report.new(Marshal.load(IO.binread(path)))
    assert_equal report.data[:samples], JSON.parse(JSON.generate(report.data))["samples"]
    StackProf.run(mode: :wall, out: path, raw: true) { burn_cpu(0.05) }
    assert_equal :wall, Marshal.load(IO.binread(path))[:mode]
  end

  # derailed_benchmarks: a file in CPU mode, then the command.
  def test_derailed_benchmarks
    path = Pathname(@directory).join("stackprof-cpu-#{Time.now.to_i}.dump")
    StackProf.run(mode: :cpu, out: path) { burn_cpu(0.1) }
    out, err, status = ringprof(path.to_s)
    assert_equal ["", 0], [err, status.exitstatus]
    assert_match(/Mode: cpu\(1000\).*Work#burn_slice/m, out)
  end

  # stackprof-webnav: every report of a dump into a StringIO, and frames by their keys.
  def test_webnav
    StackProf.run(mode: :wall, raw: true, out: path = File.join(@directory, "x.dump")) { burn_cpu(0.1) }
    report = StackProf::Report.new(Marshal.load(File.open(path).read))
    frames = report.frames(true).each_value.map do |frame|
      [frame[:samples], frame[:total_samples] * 100.0 / report.overall_samples, frame[:name]]
    end
    assert(frames.any? { |own, percent, name| own.positive? && percent.positive? && name.include?("burn") })
    assert_match(/index \+= 1/, printed(report, :print_file, File.expand_path("../support/work.rb", __dir__)))
    assert_match(/\Aflamegraph\(\[/, printed(report, :print_flamegraph, nil, true, true))
    assert_match(/\Adigraph profile/, printed(report, :print_graphviz, {}))
    report.data[:frames].each { |id, frame| (frame[:edges] || {}).each_key { |callee| assert report.data[:frames].key?(callee), id } }
  end

  # singed: a subclass that shortens paths in place, then JSON for Speedscope.
  def test_singed
    subclass = Class.new(StackProf::Report) do
      def shorten!
        frames(true).each_value { |frame| frame[:file] = frame[:file].delete_prefix("/") }
      end
    end
    StackProf.start(mode: :wall, raw: true, ignore_gc: true, interval: 500)
    burn_cpu(0.1)
    StackProf.stop
    report = subclass.new(StackProf.results)
    report.shorten!
    path = File.join(@directory, "speedscope.json")
    File.open(path, "w") { |file| report.print_json(file) }
    assert(JSON.parse(File.read(path))["frames"].each_value.none? { |frame| frame["file"].start_with?("/") })
  end

  # Speedscope takes a file for StackProf's by these keys, weighs stacks by deltas, and wants ids that JavaScript holds.
  def test_speedscope
    results = StackProf.run(mode: :wall, raw: true, interval: 500) do
      burn_cpu(0.1)
      3.times { GC.start }
    end
    io = StringIO.new
    StackProf::Report.new(results).print_json(io)
    read = JSON.parse(io.string)
    assert_empty %w[mode frames raw raw_timestamp_deltas] - read.keys
    deltas = read["raw_timestamp_deltas"].each
    position = 0
    while (depth = read["raw"][position])
      read["raw"][position + 1, depth].each do |id|
        assert read["frames"].key?(id.to_s)
        assert_operator id, :<, 2**53
      end
      read["raw"][position + 1 + depth].times { assert_operator deltas.next, :>=, 0 }
      position += depth + 2
    end
    assert_raises(StopIteration) { deltas.next }
  end

  # GitLab toggles from a thread of its own; New Relic stops, reads and starts again at every harvest.
  def test_start_and_stop_from_elsewhere
    Thread.new { StackProf.start(mode: :cpu, raw: true, interval: 10_000) }.join
    assert_predicate StackProf, :running?
    harvests = Array.new(2) do
      burn_cpu(0.15)
      StackProf.stop
      results = StackProf.results
      StackProf.start(mode: :cpu, raw: true, interval: 10_000)
      results
    end
    Thread.new { StackProf.stop }.join
    harvests.each do |results|
      assert_operator results[:samples], :>, 0
      assert_equal results[:samples], results[:raw_sample_timestamps].size
      assert_equal results[:raw].size, results[:raw_lines].size
    end
  end

  # RuboCop's --profile: a relative path, in a folder that is there. Its own command does it where it can.
  def test_rubocop
    skip "rubocop is not installed for this Ruby" unless system(RbConfig.ruby, "-e", "require 'rubocop'", err: File::NULL)
    source = File.join(@directory, "source.rb")
    FileUtils.mkdir_p(File.join(@directory, "tmp"))
    File.write(source, "def a\n  if b then c end\nend\n" * 20)
    out, err, status = profiled_rubocop("--cache", "false", source)
    assert_includes [0, 1], status.exitstatus, err
    assert_match(/inspected/, out)
    dump = File.join(@directory, "tmp/rubocop-stackprof.dump")
    report, err, status = ringprof(dump, "--limit", "400")
    assert_equal ["", 0], [err, status.exitstatus]
    assert_match(/RuboCop::/, report)
  end

  private

  def profiled_rubocop(*arguments)
    command = `which rubocop`.chomp
    setup = [RbConfig.ruby, *Subprocess::INCLUDES, "-rringprof/stackprof"]
    help, = capture([*setup, command, "--help"])
    return capture([*setup, command, "--profile", *arguments], chdir: @directory) if help.match?(/^\s+--profile\b/)

    # Before it had the switch: what the switch does.
    script = "require 'stackprof'; StackProf.run(out: 'tmp/rubocop-stackprof.dump') { begin; load ARGV.shift; rescue SystemExit; end }"
    capture([*setup, "-e", script, command, *arguments], chdir: @directory)
  end

  def ringprof(*arguments)
    capture([RbConfig.ruby, *Subprocess::INCLUDES, File.expand_path("../../exe/ringprof", __dir__), *arguments])
  end

  def text_of(report)
    capture_io { report.print_text }.first
  end

  def printed(report, name, *arguments)
    io = StringIO.new
    arguments[0] = io if name == :print_flamegraph
    report.public_send(name, *arguments, *([io] unless name == :print_flamegraph))
    io.string
  end
end
