# frozen_string_literal: true

require "minitest/autorun"
require "json"
require "tmpdir"
require "support/example_profiles"

# What holds for every format.
class FormatsTest < Minitest::Test
  include ExampleProfiles

  # Names that have met a format's own marks, and bytes that are no text.
  HOSTILE = {
    "semicolon" => "A#;b; 3", "newline" => "A#x\ny 7", "quote" => %(A#"q"\\), "tag" => "</script><!--", "escape" => "A#\e[31mred",
    "line separator" => "A#\u2028b", "umlaut" => "Ünïcode#日本", "invalid" => "A#\xFF\xFEb", "binary" => "A#\xC3\x28".b,
    "latin" => "Stra\xDFe".dup.force_encoding("ISO-8859-1"), "utf16" => "wide".encode("UTF-16LE"), "empty" => "", "short form" => "(12) A#b",
    "interpolation" => 'A##{b}', "percent" => "A#%s%d", "tab" => "A#\tt"
  }.freeze

  def test_every_format_is_registered_and_writes
    formats = RingProf::Report.formats
    assert_equal %w[text lines files method file callgrind graphviz stackcollapse timeline-flamegraph alphabetical-flamegraph
                    d3-flamegraph json dump debug], formats.keys
    formats.each_value do |format|
      io = StringIO.new
      format.new(RingProf::Profile.new(example)).write(io)
      refute_empty io.string, format.name
    end
  end

  def test_one_more_format
    RingProf::Report.register("names", "FormatsTest::OnlyNames", "names", separator: "+")
    io = StringIO.new
    RingProf::Report.fetch(:names).new(RingProf::Profile.new(example)).write(io)
    assert_equal "Integer#times+App#work+(marking)+(garbage collection)+<main>", io.string
  ensure
    RingProf::Report.instance_variable_get(:@formats).delete("names")
  end

  class OnlyNames
    def initialize(profile, separator:)
      @names = profile.frames.map(&:name)
      @separator = separator
    end

    def write(io)
      io.write(@names.join(@separator))
    end
  end

  def test_a_format_that_is_none
    error = assert_raises(RingProf::Error) { RingProf::Report.fetch("pdf") }
    assert_match(/\Ano such format: pdf \(text, lines, /, error.message)
  end

  def test_nothing_is_changed
    data = frozen(random(1))
    profile = RingProf::Profile.new(data)
    each_report(profile) { |_format, text| refute_empty text }
    profile.filter(files: "/app", threads: 1, states: :running, time: 0..0.1)
    assert_equal profile.data[:samples] * 2, (profile + profile).samples
    assert_same data, profile.data
  end

  def test_names_are_kept_apart_in_every_format
    results = hostile
    names = HOSTILE.values.map { |name| RingProf::Profile::Names.utf8(name) }
    assert_equal names.size, names.uniq.size
    assert(names.all?(&:valid_encoding?))
    each_report(RingProf::Profile.new(results)) do |format, text|
      next if format.binary

      assert text.dup.force_encoding(Encoding::UTF_8).valid_encoding?, format.name
      refute_includes text, "\e", format.name
    end
  end

  def test_text_has_a_line_for_each
    text = report(:Text, hostile, limit: 0)
    assert_equal HOSTILE.size + 1, text.lines.drop(6).size
    ["A#;b; 3", 'A#x\ny 7', '</script><!--', 'A#\e[31mred', 'A#\xFF\xFEb', 'A#\xC3(', "Straße", "wide", "Ünïcode#日本", "A#%s%d"].each do |name|
      assert text.lines(chomp: true).one? { |line| line.end_with?("     #{name}") }, name
    end
  end

  def test_stackcollapse_has_as_many_names_as_frames
    lines = report(:Stackcollapse, hostile).lines(chomp: true)
    assert_equal HOSTILE.size, lines.size
    lines.each do |line|
      stack, _, weight = line.rpartition(" ")
      assert_equal "2", weight
      assert_equal 2, stack.split(";", -1).size, line
    end
  end

  def test_json_is_json
    results = hostile.merge(metadata: { "at" => Time.at(0).utc, nan: Float::NAN, 1 => :symbol, deep: { list: [nil, true, 1.5, "\xFF"] } })
    read = JSON.parse(report(:JSON, results))
    assert_equal HOSTILE.values.map { |name| RingProf::Profile::Names.utf8(name) }, read["frames"].values.drop(1).map { |frame| frame["name"] }
    assert_equal({ "at" => "1970-01-01 00:00:00 UTC", "nan" => nil, "1" => "symbol", "deep" => { "list" => [nil, true, 1.5, "\\xFF"] } }, read["metadata"])
    again = RingProf::Profile.parse(report(:JSON, results))
    assert_equal results[:raw], again.data[:raw]
    assert_equal results[:frames].keys, again.data[:frames].keys
  end

  def test_metadata_without_an_end_is_an_error
    deep = (1..200).reduce({}) { |inner, _| { inner: inner } }
    error = assert_raises(RingProf::Error) { report(:JSON, example.merge(metadata: deep)) }
    assert_match(/nested too deeply/, error.message)
  end

  def test_flame_graphs_are_javascript_and_no_more
    rows = JSON.parse(report(:Flamegraph, hostile).delete_prefix("flamegraph(").delete_suffix(")\n"))
    assert_equal HOSTILE.values.map { |name| RingProf::Profile::Names.utf8(name) }, rows.map { |row| row["frame"] }
    page = report(:FlamegraphPage, hostile)
    assert_equal page.scan("<script>").size, page.scan("</script>").size
    refute_match(%r{https?:|//cdn|src="}, page)
    title, cells, frames = shown(page)
    assert_equal "custom", title
    assert_equal HOSTILE.size, cells.each_slice(4).count { |_x, depth,| depth == 1 }
    assert_equal ["root", *HOSTILE.values.map { |name| RingProf::Profile::Names.utf8(name) }].sort, frames.map(&:first).sort
  end

  # A tree, counted by another way: one rectangle for each path from the root that has samples.
  def test_rectangles_of_the_page_stand_on_one_another
    results = random(3)
    paths = Hash.new(0)
    RingProf::Profile.new(results).stacks.each { |run| run.ids.each_index { |depth| paths[run.ids[0..depth]] += run.weight } }
    _title, cells, frames = shown(report(:FlamegraphPage, results))
    rectangles = cells.each_slice(4).map { |_x, depth, width, number| [depth, width, frames[number][0]] }
    assert_equal paths.map { |ids, weight| [ids.size - 1, weight, results[:frames][ids.last][:name]] }.sort, rectangles.sort
    cells.each_slice(4) do |x, depth, width,|
      next if depth.zero?

      assert(cells.each_slice(4).any? { |left, under, wide,| under == depth - 1 && left <= x && left + wide >= x + width })
    end
  end

  def test_graphviz_quotes
    text = report(:Graphviz, hostile)
    assert_includes text, '[label="A#\\"q\\"\\\\\n2 '
    # Every quote that is not escaped opens or closes.
    text.lines.each { |line| assert_predicate line.gsub(/\\./, "").count('"'), :even?, line }
  end

  def test_callgrind_names_are_no_short_forms
    text = report(:Callgrind, hostile)
    assert_includes text, "fn=[12] A#b\n"
    assert_equal HOSTILE.size + 1, text.scan(/^fn=/).size
  end

  # Four times as deep as a stack can be, on the small stack of a thread.
  def test_stacks_that_no_recursion_would_survive
    profile = RingProf::Profile.new(deep(8_000))
    Thread.new do
      each_report(profile) { |format, text| refute_empty text, format.name }
      both = (profile + profile).filter(reject_names: "f1", time: 0..)
      assert_equal [7999, 2], both.stacks.map { |run| [run.ids.size, run.weight] }.first
    end.join
  end

  def test_stacks_of_1500
    results = deep(1500)
    assert_equal 1500, report(:Stackcollapse, results).lines.first.count(";") + 1
    assert_equal 1500, report(:Flamegraph, results, skip_common: false).lines.size - 2
    _title, cells, frames = shown(report(:FlamegraphPage, results))
    assert_equal [1500, 1499], [frames.size, cells.each_slice(4).map { |cell| cell[1] }.max]
  end

  private

  # The arguments of `show(title, [numbers], [frames])`, which JavaScript may end with a comma, and JSON may not.
  def shown(page)
    JSON.parse("[#{page[/^show\((".*?)\);$/m, 1].gsub(/,\s*\]/, "]")}]")
  end

  def each_report(profile)
    RingProf::Report.formats.each_value do |format|
      io = StringIO.new
      format.new(profile).write(io)
      yield format, io.string
    end
  end

  # A root that calls every name once, for two samples.
  def hostile
    ids = HOSTILE.keys.each_with_index.to_h { |key, index| [key, 100 + index] }
    frames = { 50 => { name: "root", file: "/a.rb", line: 1, samples: 0, total_samples: ids.size * 2, edges: ids.values.to_h { |id| [id, 2] }, lines: { 1 => [ids.size * 2, 0] } } }
    ids.each { |key, id| frames[id] = { name: HOSTILE[key].dup, file: HOSTILE[key].dup, line: 3, samples: 2, total_samples: 2, lines: { 3 => [2, 2] } } }
    raw = ids.values.flat_map { |id| [2, 50, id, 2] }
    { version: 1.2, mode: :custom, interval: nil, samples: ids.size * 2, gc_samples: 0, missed_samples: 0, metadata: {}, frames: frames, raw: raw,
      raw_lines: ids.values.flat_map { [2, 1, 3, 2] }, raw_sample_timestamps: Array.new(ids.size * 2) { |index| index }, raw_timestamp_deltas: [1] * (ids.size * 2) }
  end

  # Two stacks of that depth, of different methods each.
  def deep(depth)
    ids = (1..depth).map { |number| number * 8 }
    frames = ids.each_with_index.to_h do |id, index|
      frame = { name: "f#{index}", file: "/deep.rb", line: index + 1, samples: id == ids.last ? 1 : 0, total_samples: 1, lines: { index + 1 => [1, 0] } }
      frame[:edges] = { ids[index + 1] => 1 } if ids[index + 1]
      [id, frame]
    end
    { version: 1.2, mode: :wall, interval: 1000, samples: 1, gc_samples: 0, missed_samples: 0, metadata: {}, frames: frames,
      raw: [depth, *ids, 1], raw_lines: [depth, *(1..depth), 1], raw_sample_timestamps: [1], raw_timestamp_deltas: [1] }
  end
end
