# frozen_string_literal: true

require "minitest/autorun"
require "json"
require "tmpdir"
require "support/example_profiles"
require "support/stackprof_command"

# The installed stackprof and our reports read the same dumps: what it prints, we print. Lines are compared as they
# are, sorted, since neither promises an order of equals.
class StackprofNumbersTest < Minitest::Test
  include ExampleProfiles

  # Kept for all tests: starting the command takes longer than anything else here.
  def self.directory
    @directory ||= Dir.mktmpdir("ringprof-test").tap { |path| Minitest.after_run { FileUtils.rm_rf(path) } }
  end

  def setup
    skip "stackprof is not installed" unless StackprofCommand.installed?
    @source = File.join(self.class.directory, "source.rb")
    File.write(@source, (1..60).map { |number| "\tline_#{number} # ä\n" }.join)
    @dumps = [example, *Array.new(2) { |seed| random(seed, file: @source) }, old(random(9, file: @source)), older(random(10, file: @source))]
  end

  def test_text
    each_dump do |path, results|
      [[], ["--sort-total"]].each do |switches|
        theirs = stackprof("--text", "--limit", "0", *switches, path).lines
        ours = report(:Text, without_states(results), limit: 0, sort_total: switches.any?).lines
        assert_equal theirs.first(6), ours.first(6)
        assert_alike theirs.drop(6), ours.drop(6)
        column = switches.any? ? 0 : 2
        assert_equal numbers(theirs, column), numbers(ours, column), "order"
      end
    end
  end

  def test_filters
    each_dump do |path, results|
      { ["--select-files", @source] => { files: @source }, ["--reject-files", @source] => { reject_files: @source },
        ["--select-names", "m[1-5]"] => { names: /m[1-5]/ }, ["--reject-names", "m1|\\("] => { reject_names: /m1|\(/ } }.each do |switches, filter|
        theirs = stackprof("--text", "--limit", "0", *switches, path).lines
        ours = report(:Text, RingProf::Profile.new(without_states(results)).filter(**filter), limit: 0).lines
        assert_alike theirs, ours, switches
      end
    end
  end

  def test_method
    each_dump do |path, results|
      theirs = stackprof("--method", "m[0-9]|work", path)
      # A method that calls itself alone has no time in others, and stackprof divides by that.
      assert_alike blocks(theirs.gsub(/ *(Inf|NaN)%/, "    0.0%")), blocks(report(:Method, results, filter: "m[0-9]|work"))
      assert_operator blocks(theirs).size, :>, 0
    end
  end

  def test_files_and_file
    each_dump do |path, results|
      assert_alike stackprof("--files", "--limit", "0", path).lines, report(:Files, results, limit: 0).lines
      assert_equal stackprof("--file", "source.rb", path), report(:File, results, filter: "source.rb")
    end
  end

  def test_callgrind
    each_dump do |path, results|
      theirs = costs(stackprof("--callgrind", path))
      ours = costs(report(:Callgrind, results))
      assert_equal theirs[:head], ours[:head]
      theirs[:functions].each do |name, function|
        assert_equal function[:calls].sort, ours[:functions].fetch(name)[:calls].sort, name
        assert_equal function[:lines], ours[:functions][name][:lines].reject { |line,| line.zero? }, name
      end
      assert_equal theirs[:functions].keys.sort, ours[:functions].keys.sort
      # What it leaves out is not lost here.
      assert_equal results[:samples], ours[:functions].each_value.sum { |function| function[:lines].sum(&:last) } unless results[:version] < 1.1
    end
  end

  def test_graphviz
    each_dump do |path, results|
      { [] => { limit: 120, node_fraction: 0.005 }, ["--limit", "5"] => { limit: 5, node_fraction: 0.005 },
        ["--limit", "0", "--node-fraction", "0.1"] => { node_fraction: 0.1 } }.each do |switches, options|
        theirs = graph(stackprof("--graphviz", *switches, path))
        ours = graph(report(:Graphviz, results, **options))
        assert_equal theirs.size, ours.size
        # Which of equals are among the first five is anybody's choice.
        assert_alike theirs, ours unless switches == ["--limit", "5"]
        refute_empty ours.grep(/->/)
      end
    end
  end

  def test_stackcollapse
    each_dump do |path, results|
      assert_equal stackprof("--stackcollapse", path), report(:Stackcollapse, results)
    end
  end

  def test_flamegraphs
    each_dump do |path, results|
      assert_alike rows(stackprof("--timeline-flamegraph", path)), rows(report(:Flamegraph, results))
      # It sorts by address where we sort by name, so equal frames meet elsewhere: together they are as wide.
      widths = lambda do |text|
        rows(text).group_by { |row| row.values_at("y", "frame_id", "frame", "file") }.transform_values { |list| list.sum { |row| row["width"] } }
      end
      assert_alike widths.call(stackprof("--alphabetical-flamegraph", path)).to_a, widths.call(report(:Flamegraph, results, alphabetical: true)).to_a
    end
  end

  def test_json_and_dump
    each_dump do |path, results|
      assert_equal JSON.parse(stackprof("--json", path)), JSON.parse(report(:JSON, results))
      assert_equal Marshal.load(stackprof("--dump", path).b), Marshal.load(report(:Dump, results))
    end
  end

  def test_a_walk
    each_dump do |path, results|
      # One that is none, then the last one, which is `exit`.
      first = report(:Walk, results, filter: "m3", input: StringIO.new(""))
      steps = "99999\n#{first.lines.grep(/\A *\d+\)  /).size}\n"
      theirs = stackprof("--walk", "--method", "m3", path, input: steps)
      assert_alike theirs.gsub(/ *(Inf|NaN)%/, "    0.0%").lines.map { |line| line.sub(/\A(> )? *\d+\)/, "") },
                   report(:Walk, results, filter: "m3", input: StringIO.new(steps)).lines.map { |line| line.sub(/\A(> )? *\d+\)/, "") }
    end
  end

  def test_several_are_added_up
    paths = @dumps[1, 2].map.with_index { |results, index| dump(results, "sum#{index}") }
    sum = @dumps[1, 2].map { |results| RingProf::Profile.new(results) }.reduce(:+)
    theirs = stackprof("--text", "--limit", "0", *paths).lines
    assert_alike theirs, report(:Text, without_states(sum.data), limit: 0).lines
    assert_alike stackprof("--files", "--limit", "0", *paths).lines, report(:Files, sum, limit: 0).lines
    assert_alike blocks(stackprof("--method", "m1", *paths).gsub(/ *(Inf|NaN)%/, "    0.0%")), blocks(report(:Method, sum, filter: "m1"))
  end

  # What it recorded itself, its way of noting garbage collection included.
  def test_a_dump_that_it_made
    path = File.join(self.class.directory, "made.dump")
    script = <<~'RUBY'
      require "stackprof"
      def work(depth) = depth.zero? ? Array.new(200) { |number| number.to_s * 9 } : work(depth - 1)
      StackProf.run(mode: :wall, interval: 500, raw: true, out: ARGV[0]) { 600.times { work(5) }; 5.times { GC.start } }
    RUBY
    assert system(*StackprofCommand.ruby, "-e", script, path)
    profile = RingProf::Profile.load(path)
    assert_operator profile.samples, :>, 10
    assert_equal 1.2, profile.version
    theirs = stackprof("--text", "--limit", "0", path).lines
    assert_alike theirs, report(:Text, profile, limit: 0).lines
    assert_equal stackprof("--stackcollapse", path), report(:Stackcollapse, profile)
    assert_alike rows(stackprof("--timeline-flamegraph", path)), rows(report(:Flamegraph, profile))
  end

  private

  # The same, in any order; says what is not.
  def assert_alike(theirs, ours, message = nil)
    assert_equal [[], []], [(theirs - ours).first(3), (ours - theirs).first(3)], message
    assert_equal theirs.tally, ours.tally, message
  end

  def each_dump
    @dumps.each_with_index { |results, index| yield dump(results, "dump#{index}"), results }
  end

  def dump(results, name)
    File.join(self.class.directory, "#{name}.dump").tap { |path| File.binwrite(path, Marshal.dump(results)) }
  end

  # Format 1.1 has neither threads nor lines of stacks.
  def old(results)
    results.reject { |key, _| %i[states threads raw_threads raw_states raw_lines metadata raw_sample_timestamps].include?(key) }
           .merge(version: 1.1, frames: results[:frames].transform_values { |frame| frame.reject { |key,| key == :states } })
  end

  # In 1.0 a line has samples on top alone.
  def older(results)
    frames = old(results)[:frames].transform_values do |frame|
      frame[:lines] ? frame.merge(lines: frame[:lines].transform_values(&:last)) : frame
    end
    old(results).merge(version: 1.0, frames: frames)
  end

  # Three lines that it does not print.
  def without_states(results)
    results.reject { |key,| key == :states }
  end

  def stackprof(...)
    StackprofCommand.run(...)
  end

  def numbers(lines, column)
    lines.drop(6).map { |line| line.split[column] }
  end

  # A method's lines, but for the order of equals.
  def blocks(text)
    text.lines.slice_before(/\A\S/).flat_map { |title, *lines| lines.map { |line| title + line } }
  end

  def graph(text)
    text.lines.grep(/\A  "/).sort
  end

  def rows(text)
    JSON.parse(text.delete_prefix("flamegraph(").delete_suffix(")\n"))
  end

  # Whom a function calls and what its lines cost.
  def costs(text)
    functions = Hash.new { |hash, name| hash[name] = { lines: [], calls: [] } }
    function = callee = weight = nil
    text.each_line(chomp: true) do |line|
      case line
      when /\Afn=(.*)/ then function = functions[$1]
      when /\Acfn=(.*)/ then callee = $1
      when /\Acalls=(\d+) / then weight = $1.to_i
      when /\A(\d+) (\d+)\z/
        callee ? function[:calls] << [callee, weight, $2.to_i] : function[:lines] << [$1.to_i, $2.to_i]
        callee = nil
      end
    end
    { head: text.scan(/^(?:summary|totals|events): .*/), functions: functions }
  end
end
