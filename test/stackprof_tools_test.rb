# frozen_string_literal: true

require "test_helper"

# Our dumps, read by the `stackprof` command that is installed.
class StackprofToolsTest < RingProf::TestCase
  def setup
    super
    skip "stackprof is not installed" unless system("which stackprof", out: File::NULL)
  end

  def test_text
    with_dump do |path, results|
      out = stackprof("--text", path)
      assert_match(/Mode: custom\(\)/, out)
      assert_match(/Samples: #{results[:samples]} \(0\.00% miss rate\)/, out)
      assert_match(/^ +12 +\(100\.0%\) +12 +\(100\.0%\) +RingProf\.sample$/, out)
      assert_match(/^ +2 +\(16\.7%\) +0 +\(0\.0%\) +StackprofToolsTest#other_work$/, out)
    end
  end

  def test_method
    with_dump do |path|
      out = stackprof("--method", "sampled_work", path)
      assert_match(/StackprofToolsTest#sampled_work \(#{Regexp.escape(File.expand_path(__FILE__))}:\d+\)/, out)
      assert_match(/samples: +0 self \(0\.0%\) +\/ +10 total \(83\.3%\)/, out)
      assert_match(/callers:\n +10 +\( +100\.0%\) +StackprofToolsTest#with_dump/, out)
      assert_match(/10 +\(83\.3%\) +\| +\d+ +\| +sample_here # sampled/, out)
    end
  end

  def test_files_and_file
    with_dump do |path|
      assert_match(/#{Regexp.escape(File.expand_path(__FILE__))}$/, stackprof("--files", path))
      assert_match(/10 +\(83\.3%\) +\| +\d+ +\| +sample_here # sampled/, stackprof("--file", "stackprof_tools_test", path))
    end
  end

  def test_callgrind
    with_dump do |path|
      out = stackprof("--callgrind", path)
      assert_match(/^summary: 12$/, out)
      assert_match(/^fn=StackprofToolsTest#sampled_work$/, out)
      assert_match(/^calls=10 \d+$/, out)
    end
  end

  def test_graphviz
    with_dump do |path|
      out = stackprof("--graphviz", path)
      assert_match(/\Adigraph profile \{/, out)
      assert_match(/label="sampled_work\\n0 \(0\.0%\)\\rof 10 \(83\.3%\)\\r"|label="StackprofToolsTest.*sampled_work.*10 \(83\.3%\)/, out)
      assert_match(/^ *"\d+" -> "\d+" \[label="10"/, out)
    end
  end

  def test_stackcollapse
    with_dump do |path|
      lines = stackprof("--stackcollapse", path).lines
      assert_equal 12, lines.sum { |line| line[/ (\d+)$/, 1].to_i }
      assert_equal 1, lines.count { |line| line.end_with?("StackprofToolsTest#sampled_work;RingProf::TestCase#sample_here;RingProf.sample 10\n") }, lines.join
    end
  end

  def test_flamegraphs
    with_dump do |path|
      %w[--flamegraph --timeline-flamegraph --alphabetical-flamegraph].each do |switch|
        assert_match(/"width":10,.*"frame":"StackprofToolsTest#sampled_work"/, stackprof(switch, path), switch)
      end
      out = stackprof("--d3-flamegraph", path)
      assert_match(/<html/, out)
      assert_match(/StackprofToolsTest#sampled_work/, out)
    end
  end

  def test_json
    with_dump do |path, results|
      read = JSON.parse(stackprof("--json", path))
      assert_equal results[:samples], read["samples"]
      assert_equal results[:raw], read["raw"]
      assert_equal JSON.parse(JSON.generate(results))["frames"], read["frames"]
    end
  end

  def test_walk
    with_dump do |path|
      answer = "#{path}.answer"
      File.write(answer, "3\n")
      out = stackprof("--walk", "--method", "sampled_work", path, input: answer)
      assert_match(/StackprofToolsTest#sampled_work/, out)
      assert_match(/Select next method:\n 1\)  StackprofToolsTest#with_dump\n 2\)  RingProf::TestCase#sample_here\n 3\)  exit$/, out)
    end
  end

  def test_dump_and_debug
    with_dump do |path, results|
      assert_equal results[:frames], Marshal.load(stackprof("--dump", path).b)[:frames]
      assert_match(/samples=>12|samples: 12/, stackprof("--debug", path))
    end
  end

  def test_several_dumps_are_added_up
    with_dump do |path|
      copy = "#{path}.copy"
      File.binwrite(copy, File.binread(path))
      assert_match(/Samples: 24/, stackprof("--text", path, copy))
    end
  end

  def test_time_profiles_with_garbage_collection
    %i[wall cpu].each do |mode|
      Dir.mktmpdir("ringprof-test") do |dir|
        path = File.join(dir, "profile.dump")
        RingProf.run(mode: mode, interval: 200, raw: true, out: path) do
          burn_cpu(0.1)
          3.times { GC.start }
        end.close
        assert_match(/Mode: #{mode}\(200\)/, stackprof("--text", path))
        assert_match(/\(garbage collection\)/, stackprof("--stackcollapse", path))
        assert_match(/burn_slice/, stackprof("--d3-flamegraph", path))
      end
    end
  end

  def test_profiles_of_allocations
    Dir.mktmpdir("ringprof-test") do |dir|
      path = File.join(dir, "profile.dump")
      RingProf.run(mode: :object, out: path) { 100.times { Object.new } }.close
      assert_match(/Mode: object\(1\)/, stackprof("--text", path))
    end
  end

  private

  def with_dump
    Dir.mktmpdir("ringprof-test") do |dir|
      path = File.join(dir, "profile.dump")
      RingProf.run(mode: :custom, raw: true, out: path) do
        10.times { sampled_work }
        2.times { other_work }
      end.close
      yield path, Marshal.load(File.binread(path))
    end
  end

  def sampled_work
    sample_here # sampled
  end

  def other_work
    sample_here
  end

  def stackprof(*arguments, **options)
    out, err, status = capture(["stackprof", *arguments], **options)
    assert_predicate status, :success?, err
    assert_empty err
    refute_empty out
    out
  end
end
