# frozen_string_literal: true

require "test_helper"
require "digest"
require "ringprof/stackprof"
require "support/example_profiles"

# StackProf::Report, method by method.
class ReportCompatTest < Minitest::Test
  include ExampleProfiles

  PUBLIC = %i[
    + add_lines convert_to_d3_flame_graph_format data files flamegraph_row flamegraph_stacks frames max_samples modeline
    normalized_frames overall_samples print_alphabetical_flamegraph print_callgrind print_d3_flamegraph print_debug print_dump
    print_file print_files print_flamegraph print_graphviz print_json print_method print_stackcollapse print_text
    print_timeline_flamegraph version walk_method
  ].freeze

  def test_every_public_method
    assert_equal PUBLIC, StackProf::Report.public_instance_methods(false).sort
    assert_equal %i[from_file from_json parse_json], StackProf::Report.singleton_methods(false).sort
    assert_equal 3, (StackProf::Report.private_instance_methods(false) & %i[callers_for root_frames source_display]).size
    assert_equal "\x04\x08", StackProf::Report::MARSHAL_SIGNATURE
  end

  def test_from_file_reads_both_formats
    { Marshal.dump(example) => example, JSON.generate(example) => example.merge(metadata: { path: "/" }) }.each do |bytes, expected|
      with_file(bytes) { |path| assert_equal expected, StackProf::Report.from_file(path).data }
    end
  end

  def test_from_json_leaves_what_it_is_given
    json = JSON.parse(JSON.generate(example))
    copy = Marshal.load(Marshal.dump(json))
    report = StackProf::Report.from_json(json)
    assert_equal copy, json
    assert_equal example[:frames], report.data[:frames]
    assert_equal({ 12 => { a: 1 }, b: [{ c: 2 }] }, StackProf::Report.parse_json({ "12" => { "a" => 1 }, "b" => [{ "c" => 2 }] }))
  end

  def test_what_it_says
    assert_equal [1.2, "wall(1000)", 20, 12], [report.version, report.modeline, report.overall_samples, report.max_samples]
    assert_equal "custom()", StackProf::Report.new(example.merge(mode: :custom, interval: nil)).modeline
    assert_equal({ "/app/main.rb" => { 3 => [15, 0], 11 => [15, 3] } }, report.files)
    assert_equal [12_288, 8192, 3, 1, 4096], report.frames.keys
    assert_equal [4096, 8192, 12_288, 1, 3], report.frames(true).keys
    assert_equal [[5, 0], 3, [3, 1], [4, 6]], [report.add_lines(nil, [5, 0]), report.add_lines(1, 2), report.add_lines([3, 0], 1), report.add_lines([1, 2], [3, 4])]
  end

  # Singed rewrites paths in place, through the frames that it is handed.
  def test_frames_are_those_of_the_data
    made = report
    made.frames(true).each_value { |frame| frame[:file] = "short" }
    assert_equal ["short"], made.data[:frames].values.map { |frame| frame[:file] }.uniq
    assert_equal ["short"], JSON.parse(printed(made, :print_json))["frames"].values.map { |frame| frame["file"] }.uniq
  end

  def test_nothing_is_written_into_the_data
    made = StackProf::Report.new(frozen(random(1)))
    keys = made.data.keys
    made.frames
    made.files
    made.max_samples
    made.normalized_frames
    %i[print_text print_json print_debug print_dump print_callgrind print_stackcollapse print_timeline_flamegraph
       print_alphabetical_flamegraph print_flamegraph print_d3_flamegraph print_files].each { |name| refute_empty printed(made, name), name }
    refute_empty printed(made, :print_graphviz, { filter: /m1/ })
    refute_empty printed(made, :print_method, "m1")
    printed(made, :print_file, "lib")
    refute_same made, made + made
    assert_equal keys, made.data.keys
  end

  def test_stdout_is_where_it_prints_without_an_io
    %i[print_text print_json print_debug print_dump print_callgrind print_graphviz print_stackcollapse print_timeline_flamegraph
       print_alphabetical_flamegraph print_flamegraph print_d3_flamegraph print_files].each do |name|
      out, = capture_io { report.public_send(name) }
      refute_empty out, name
    end
    out, = capture_io { report.print_method("work") }
    assert_match(/\AApp#work/, out)
    out, = capture_io { report.print_file("main") }
    assert_equal "        SOURCE UNAVAILABLE\n", out
  end

  def test_print_text_has_seven_parameters
    rows = ->(*arguments) { printed(report, :print_text, *arguments).lines.drop(6).map { |line| line.split.last } }
    assert_equal %w[Integer#times App#work (marking) collection) <main>], rows.call
    assert_equal %w[<main> App#work], rows.call(true, 2)
    assert_equal %w[App#work <main>], rows.call(false, nil, ["/app"])
    assert_equal %w[Integer#times (marking) collection)], rows.call(false, nil, nil, ["/app"])
    assert_equal %w[App#work], rows.call(false, nil, nil, nil, [/App/, /nothing/])
    assert_equal %w[App#work <main>], rows.call(false, nil, nil, nil, nil, [/\(/, /times/])
  end

  def test_print_graphviz_options
    assert_equal 1, printed(report, :print_graphviz, { limit: 1 }).scan("shape=box] ").size
    assert_equal 3, printed(report, :print_graphviz, { node_fraction: 0.5 }).scan("shape=box] ").size
    assert_equal 2, printed(report, :print_graphviz, { filter: /#work|work$/, format: :graphviz }).scan("shape=box] ").size
  end

  def test_without_raw_stacks
    flat = StackProf::Report.new(example.reject { |key| key.start_with?("raw") })
    %i[print_stackcollapse print_timeline_flamegraph print_alphabetical_flamegraph print_flamegraph print_d3_flamegraph].each do |name|
      error = assert_raises(RuntimeError, name) { printed(flat, name) }
      assert_equal "profile does not include raw samples (add `raw: true` to collecting StackProf.run)", error.message
    end
  end

  def test_pieces_of_flame_graphs
    stacks, samples, depth = report.flamegraph_stacks(example[:raw])
    assert_equal [[[4096, 8192, 12_288, 12], [4096, 8192, 3], [1, 3, 3], [1, 2]], 20, 3], [stacks, samples, depth]
    io = StringIO.new
    made = report
    2.times { |x| made.flamegraph_row(io, x, 1, 3, 8192) }
    assert_equal %({"x":0,"y":1,"width":3,"frame_id":8192,"frame":"App#work","file":"/app/main.rb"}\n,), io.string.lines.first + io.string.lines.last[0]
    tree = made.convert_to_d3_flame_graph_format("<root>", stacks, 0)
    assert_equal ["<root>", 20], tree.values_at("name", "value")
    assert_equal [["<main> : /app/main.rb : ", 15], ["(garbage collection) :  : ", 5]], tree["children"].map { |child| child.values_at("name", "value") }
    work = tree["children"][0]["children"][0]
    assert_equal ["App#work : /app/main.rb : 10", 15, ["Integer#times : <cfunc> : "]], [*work.values_at("name", "value"), work["children"].map { |child| child["name"] }]
  end

  def test_normalized_frames
    normal = report.normalized_frames
    id = Digest::SHA256.hexdigest("App#work/app/main.rb10")
    assert_equal({ Digest::SHA256.hexdigest("Integer#times<cfunc>") => 12 }, normal[id][:edges])
    assert_equal id, normal[id][:hash]
    refute example[:frames][8192].key?(:hash)
  end

  def test_a_walk
    out = StringIO.new
    report.walk_method("App", StringIO.new("2\n9\n2\n"), out)
    assert_match(/\AApp#work .*Select next method:\n 1\)  <main>\n 2\)  Integer#times\n 3\)  exit\n> \n\n\nInteger#times .*Invalid choice/m, out.string.gsub(/\n\n\n+/, "\n\n\n").sub("> \n\n\n\n", "> \n\n\n"))
  end

  def test_a_sum
    sum = report + report
    assert_instance_of StackProf::Report, sum
    assert_equal [40, 10, 10], sum.data.values_at(:samples, :gc_samples, :missed_samples)
    assert_equal [30, 6], sum.data[:frames][8192].values_at(:total_samples, :samples)
    assert_equal example[:raw] * 2, sum.data[:raw]
    assert_equal example[:metadata], sum.data[:metadata]
    { [Object.new, ""] => "cannot combine Object", [other(mode: :cpu)] => "cannot combine wall(1000) with cpu(1000)",
      [other(interval: 5)] => "cannot combine wall(1000) with wall(5)", [other(version: 1.1)] => "cannot combine v1.2 with v1.1",
      [Class.new(StackProf::Report).new(example)] => "cannot combine #<Class" }.each do |(operand, _), message|
      error = assert_raises(ArgumentError) { report + operand }
      assert error.message.start_with?(message), error.message
    end
  end

  # A subclass with a constructor, a modeline and a merge of its own, as estackprof and test-prof-autopilot have them.
  class Subclass < StackProf::Report
    attr_reader :type

    def initialize(data)
      @type = :mine
      super(data)
    end

    def modeline
      "mine: #{super}"
    end

    def print_text(*arguments)
      $stdout.puts "mine"
      super
    end

    def merge(other)
      frames = data[:frames].merge(other.data[:frames]) do |_id, one, two|
        one.merge(samples: one[:samples] + two[:samples], lines: one[:lines]&.merge(two[:lines]) { |_line, a, b| add_lines(a, b) })
      end
      self.class.new(@data.merge(frames: frames, version: version, samples: @data[:samples] * 2))
    end
  end

  def test_a_subclass
    out, = capture_io { Subclass.new(example).print_text }
    assert_equal "mine\n", out.lines.first
    assert_includes out, "  Mode: mine: wall(1000)\n"
    assert_equal :mine, (Subclass.new(example) + Subclass.new(example)).type
    merged = Subclass.new(example).merge(Subclass.new(example))
    assert_equal [24, 40], [merged.max_samples, merged.overall_samples]
    assert_includes printed(merged, :print_files), "   60  (150.0%) /     6  ( 15.0%)   /app/main.rb"
  end

  def test_a_subclass_that_writes_into_its_data
    made = report
    made.data[:frames][8192][:name] = "Renamed#work"
    made.data[:raw] = [1, 8192, 20]
    assert_equal "Renamed#work 20\n", printed(made, :print_stackcollapse)
  end

  # Ways to require it.
  def test_by_itself_where_the_drop_in_is_first_on_the_path
    extend Subprocess
    dropin = File.expand_path("../../lib/ringprof/dropin", __dir__)
    { "stackprof/report" => "StackProf::Report.name", "stackprof/middleware" => "StackProf::Middleware.name", "stackprof" => "StackProf.name" }.each do |feature, expression|
      script = "require #{feature.inspect}; #{expression}; print StackProf.run(mode: :custom) { StackProf.sample }[:samples], require('stackprof/report')"
      out, err, status = capture([RbConfig.ruby, "-w", "-I", dropin, *Subprocess::INCLUDES, "-e", script])
      assert_equal ["", 0], [err, status.exitstatus]
      assert_match(/\A1(true|false)\z/, out)
    end
    script = "require 'ringprof/stackprof'; require 'stackprof/report'; print $LOADED_FEATURES.grep(/stackprof-|gems\\/stackprof/)"
    out, err, = capture([RbConfig.ruby, "-w", *Subprocess::INCLUDES, "-e", script])
    assert_equal ["[]", ""], [out, err]
  end

  # Every file can be the first one.
  def test_each_file_by_itself
    extend Subprocess
    features = Dir.glob("ringprof/{{report,stackprof}/*,profile,report,middleware,stackprof}.rb", base: File.expand_path("../../lib", __dir__))
    assert_operator features.size, :>, 18
    script = <<~RUBY
      ARGV.each do |feature|
        pid = fork do
          require feature
          require "ringprof/report"
          RingProf::Report.constants.each { |name| RingProf::Report.const_get(name) }
        end
        Process.wait(pid)
        abort "\#{feature} does not load" unless $?.success?
      end
    RUBY
    out, err, status = capture([RbConfig.ruby, "-w", *Subprocess::INCLUDES, "-e", script, *features])
    assert_equal ["", "", 0], [out, err, status.exitstatus]
  end

  private

  def report
    StackProf::Report.new(example)
  end

  def other(changes)
    StackProf::Report.new(example.merge(changes))
  end

  def printed(report, name, *arguments)
    io = StringIO.new
    # The IO is the last one of print_text, behind six others; the second one of the flame graphs is none.
    io_at = { print_text: 6, print_files: 2 }.fetch(name, arguments.size)
    arguments[io_at] = io
    arguments[0] = false if arguments[0].nil?
    report.public_send(name, *arguments)
    io.string
  end

  def with_file(bytes)
    Tempfile.create("ringprof-test") do |file|
      file.binmode
      file.write(bytes)
      file.flush
      yield file.path
    end
  end
end
