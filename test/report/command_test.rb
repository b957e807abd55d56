# frozen_string_literal: true

require "test_helper"
require "ringprof/cli"
require "support/example_profiles"
require "zlib"

# `ringprof report`: every switch of the stackprof command, and those of its own.
class ReportCommandTest < Minitest::Test
  include ExampleProfiles

  def setup
    @directory = Dir.mktmpdir("ringprof-test")
    @data = random(1, file: __FILE__)
    @path = file("p.dump", Marshal.dump(@data))
  end

  def teardown
    FileUtils.rm_rf(@directory)
  end

  def test_reports
    { [] => [:Text, {}], ["--text", "--limit", "3"] => [:Text, { limit: 3 }], ["--sort-total"] => [:Text, { sort_total: true }],
      ["--states", "--limit", "0"] => [:Text, { states: true, limit: 0 }], ["--lines"] => [:Lines, {}], ["--files"] => [:Files, {}],
      ["--files", "--limit", "1", "--sort-total"] => [:Files, { limit: 1, sort_total: true }], ["--method", "m[12]"] => [:Method, { filter: /m[12]/ }],
      ["--file", "command_test"] => [:File, { filter: "command_test" }], ["--callgrind"] => [:Callgrind, {}],
      ["--graphviz"] => [:Graphviz, { limit: 120, node_fraction: 0.005 }], ["--graphviz", "--node-fraction", "0.1"] => [:Graphviz, { limit: 120, node_fraction: 0.1 }],
      ["--graphviz", "--limit", "0"] => [:Graphviz, { node_fraction: 0.005 }], ["--stackcollapse"] => [:Stackcollapse, {}],
      ["--timeline-flamegraph"] => [:Flamegraph, {}], ["--flamegraph"] => [:Flamegraph, {}],
      ["--alphabetical-flamegraph"] => [:Flamegraph, { alphabetical: true }], ["--d3-flamegraph"] => [:FlamegraphPage, {}],
      ["--json"] => [:JSON, {}], ["--debug"] => [:Debug, {}], ["--format", "files"] => [:Files, {}],
      ["--format", "timeline_flamegraph"] => [:Flamegraph, {}] }.each do |switches, (name, options)|
      assert_equal report(name, @data, **options), run!(@path, *switches), switches
    end
  end

  def test_formats_that_are_registered_are_formats_of_the_command
    RingProf::Report.formats.each_key { |name| refute_empty run!(@path, "--format", name) }
  end

  def test_filters
    profile = RingProf::Profile.new(@data)
    Dir.chdir(File.dirname(__FILE__)) do
      { %w[--select-files command_test.rb] => { files: File.expand_path(__FILE__) }, %w[--reject-files <cfunc>] => { reject_files: "<cfunc>" },
        %w[--select-names m1 --select-names m2] => { names: [/m1/, /m2/] }, %w[--reject-names m\\d] => { reject_names: /m\d/ },
        ["--select-threads", "worker 1"] => { threads: "worker 1" }, %w[--select-threads 2] => { threads: 2 }, %w[--select-threads main] => { threads: "main" },
        %w[--select-states running --select-states gc] => { states: %i[running gc] }, %w[--select-time 0.01..0.05] => { time: 0.01..0.05 },
        %w[--select-time ..0.05] => { time: ..0.05 }, %w[--select-time 0.1..] => { time: 0.1.. } }.each do |switches, filter|
        part = profile.filter(**filter)
        assert_equal report(:Text, part), run!(@path, *switches), switches
        refute_equal report(:Text, profile), report(:Text, part)
        assert_equal report(:Stackcollapse, part), run!(@path, "--stackcollapse", *switches), switches
      end
    end
  end

  def test_files_of_every_kind
    bytes = Marshal.dump(@data)
    json = JSON.generate(@data)
    { "gz" => Zlib.gzip(bytes), "json" => json, "json.gz" => Zlib.gzip(json), "marked" => "\uFEFF#{json}", "spaced" => "\n  #{json}" }.each do |ending, content|
      assert_equal run!(@path, "--limit", "0"), run!(file("x.#{ending}", content), "--limit", "0"), ending
    end
  end

  def test_several_are_added_up_and_kept
    sum = File.join(@directory, "sum.dump")
    assert_empty run!(@path, file("q.dump", Marshal.dump(random(2, file: __FILE__))), "--dump", "--out", sum)
    whole = RingProf::Profile.new(@data) + RingProf::Profile.new(random(2, file: __FILE__))
    assert_equal report(:Text, whole), run!(sum)
    assert_equal whole.data, RingProf::Profile.load(sum).data
  end

  def test_stdin
    File.open(@path) do |input|
      previous = $stdin
      $stdin = input
      assert_equal report(:Text, @data), run!("-")
    ensure
      $stdin = previous
    end
  end

  def test_a_walk
    previous = $stdin
    $stdin = StringIO.new("9999\n")
    assert_match(/Select next method:\n 1\)  .*Invalid choice/m, run!(@path, "--method", "App#m1", "--walk"))
  ensure
    $stdin = previous
  end

  def test_the_viewer
    out = run!("--flamegraph-viewer", "my graph.js")
    viewer, data = out.match(%r{\Aopen file://(.*)\?data=(.*)\n\z}).captures
    assert_path_exists viewer
    assert_equal "#{Dir.pwd}/my%20graph.js", data
    assert_includes File.read(viewer), "function flamegraph("
  end

  private

  def run!(*arguments)
    status = nil
    out, err = capture_io { status = RingProf::CLI.start(["report", *arguments]) }
    assert_equal ["", 0], [err, status], arguments
    out
  end

  def file(name, bytes)
    File.join(@directory, name).tap { |path| File.binwrite(path, bytes) }
  end
end
