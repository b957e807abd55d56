# frozen_string_literal: true

require "minitest/autorun"
require "json"
require "stringio"
require "tempfile"
require "ringprof/profile"
require "ringprof/report"
require "support/example_profiles"

# The profile that the tests of reports read.
module ExampleProfile
  include ExampleProfiles

  def profile(changes = {})
    RingProf::Profile.new(example.merge(changes))
  end

  def frozen(value)
    case value
    when Hash then value.to_h { |key, inner| [key, frozen(inner)] }.freeze
    when Array then value.map { |inner| frozen(inner) }.freeze
    else value.freeze
    end
  end
end

class ProfileTest < Minitest::Test
  include ExampleProfile

  def test_reads_what_the_results_say
    assert_equal :wall, profile.mode
    assert_equal 1000, profile.interval
    assert_equal 20, profile.samples
    assert_equal 5, profile.gc_samples
    assert_equal 5, profile.missed_samples
    assert_equal({ "path" => "/" }, profile.metadata)
    assert_in_delta 0.2, profile.miss_rate
    assert_predicate profile, :raw?
    refute_predicate RingProf::Profile.new(example.reject { |key| key == :raw }), :raw?
  end

  def test_frames_are_ordered_by_samples_on_top_or_in_all
    assert_equal ["Integer#times", "App#work", "(marking)", "(garbage collection)", "<main>"], profile.frames.map(&:name)
    assert_equal ["<main>", "App#work", "Integer#times", "(garbage collection)", "(marking)"], profile.frames(sort: :total).map(&:name)
    assert_raises(KeyError) { profile.frames(sort: :name) }
  end

  def test_frames_carry_everything
    frame = profile.frames.find { |one| one.name == "App#work" }
    assert_equal [8192, "/app/main.rb", 10, 3, 15, { 12_288 => 12 }, { 11 => [15, 3] }],
                 frame.to_h.values_at(:id, :file, :line, :samples, :total_samples, :edges, :lines)
  end

  def test_loads_marshal_and_json_alike
    { marshal: Marshal.dump(example), json: JSON.generate(example) }.each do |format, bytes|
      Tempfile.create("ringprof") do |file|
        file.binmode
        file.write(bytes)
        file.flush
        loaded = RingProf::Profile.load(file.path)
        expected = format == :json ? example.merge(metadata: { path: "/" }) : example
        assert_equal expected, loaded.data, format
      end
    end
  end

  def test_names_in_any_script_survive_json
    data = example
    data[:frames][8192][:name] = "Ünïcode#日本"
    assert_equal data[:frames], RingProf::Profile.parse(JSON.generate(data).b).data[:frames]
  end

  def test_refuses_what_is_no_profile
    ["", "x", "{", "[1]", "3", "null", "{\"a\":1}", "\x04\b", Marshal.dump([1]), Marshal.dump({ frames: {} }), "\x04\bo:\vNope\0",
     Marshal.dump(example)[0..-10], "\xFF\xFE".b].each do |bytes|
      assert_raises(RingProf::Error, bytes.inspect) { RingProf::Profile.parse(bytes) }
    end
    error = assert_raises(RingProf::Error) { RingProf::Profile.load(__FILE__) }
    assert_match(/\A#{Regexp.escape(__FILE__)} is not a profile: /, error.message)
    assert_raises(Errno::ENOENT) { RingProf::Profile.load("/nonexistent/profile.dump") }
  end

  def test_never_changes_what_it_was_given
    data = frozen(example)
    profile = RingProf::Profile.new(data)
    RingProf::Report::Text.new(profile).write(StringIO.new)
    assert_same data, profile.data
  end

  def test_lives_without_the_keys_of_later_formats
    old = RingProf::Profile.new({ version: 1.0, mode: "cpu", interval: 1000, samples: 1, frames: { 1 => { name: "a", lines: { 3 => 1 } } } })
    assert_equal [0, 0, {}], [old.gc_samples, old.missed_samples, old.metadata]
    assert_equal 0, old.frames.first.samples
  end
end

class TextReportTest < Minitest::Test
  include ExampleProfile

  def test_is_stackprofs_flat_report
    assert_equal <<~TEXT, text
      ==================================
        Mode: wall(1000)
        Samples: 20 (20.00% miss rate)
        GC: 5 (25.00%)
      ==================================
           TOTAL    (pct)     SAMPLES    (pct)     FRAME
              12  (60.0%)          12  (60.0%)     Integer#times
              15  (75.0%)           3  (15.0%)     App#work
               3  (15.0%)           3  (15.0%)     (marking)
               5  (25.0%)           2  (10.0%)     (garbage collection)
              15  (75.0%)           0   (0.0%)     <main>
    TEXT
  end

  def test_columns_hold_a_hundred_percent
    only = { 1 => { name: "a", file: "", total_samples: 20, samples: 20 } }
    assert_equal "        20 (100.0%)          20 (100.0%)     a", text(frames: only).lines.last.chomp
  end

  def test_limit
    assert_equal 2, rows(limit: 2).length
    assert_equal 5, rows(limit: 0).length
    assert_equal 30, rows(frames: many_frames).length
  end

  def test_sort_total
    assert_match(/<main>$/, rows(sort_total: true).first)
  end

  def test_nothing_sampled
    assert_includes text(samples: 0, gc_samples: 0, missed_samples: 0, frames: {}), "Samples: 0 (0.00% miss rate)\n  GC: 0 (0.00%)"
  end

  def test_modes_without_an_interval
    assert_includes text(mode: :custom, interval: nil), "Mode: custom\n"
    assert_includes text(mode: :object, interval: 1), "Mode: object(1)\n"
  end

  def test_the_session_is_told_where_it_was_noted
    stats = { elapsed_ns: 1_500_000_000, capture: :direct, tick: :thread }
    assert_includes text(metadata: { ringprof: { stats: stats } }), "  Elapsed: 1.50 s, capture: direct, tick: thread\n==="
    assert_includes text(metadata: { ringprof: { stats: stats.merge(tick: nil) } }), "  Elapsed: 1.50 s, capture: direct\n==="
    ["mine", {}, nil, { stats: 1 }, { stats: {} }].each { |other| assert_equal text, text(metadata: { ringprof: other }) }
  end

  def test_looks_like_the_report_of_stackprof
    skip "stackprof is not installed" unless system("which stackprof", out: File::NULL)
    Tempfile.create("ringprof") do |file|
      file.binmode
      file.write(Marshal.dump(example))
      file.flush
      assert_equal IO.popen(["stackprof", file.path], &:read), text
      assert_equal IO.popen(["stackprof", "--sort-total", "--limit", "2", file.path], &:read), text(sort_total: true, limit: 2)
    end
  end

  private

  def text(limit: 30, sort_total: false, **changes)
    io = StringIO.new
    RingProf::Report::Text.new(profile(changes), limit: limit, sort_total: sort_total).write(io)
    io.string
  end

  def rows(**options)
    text(**options).lines.drop(6)
  end

  def many_frames
    (1..40).to_h { |number| [number * 2, { name: "f#{number}", file: "", total_samples: 1, samples: 1 }] }
  end
end
