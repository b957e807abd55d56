# frozen_string_literal: true

require "test_helper"
require "support/cli_testing"

class CliDiffTest < RingProf::TestCase
  include CliTesting

  # Allocations are the same in every run, so that what is different is known to the last one: here ten methods
  # allocate equally much, and the first of them a given number of times more.
  PROGRAM = <<~'RUBY'
    10.times { |number| eval "def work_#{number}(count) = (index = 0; (Object.new; index += 1) while index < count)" }
    10.times { |number| send("work_#{number}", number.zero? ? ARGV[0].to_i : 20_000) }
  RUBY

  def test_a_regression_of_ten_percent_in_one_method_is_found
    in_directory do |dir|
      profile(dir, "before", 20_000)
      profile(dir, "again", 20_000)
      profile(dir, "after", 22_000)

      out, err, status = ringprof("diff", "#{dir}/before", "#{dir}/again")
      assert_equal [0, ""], [status.exitstatus, err]
      assert_match(/^No difference that the number of samples does not explain\./, out)
      refute_match(/\*/, out)

      out, err, status = ringprof("diff", "#{dir}/before", "#{dir}/after")
      assert_equal [0, ""], [status.exitstatus, err]
      marked = out.lines.grep(/\d\*/)
      assert_equal 1, marked.length, out
      assert_match(/ 10\.0 +10\.9 +\+0\.9\*.*Object#work_0$/, marked.first)
      assert_match(/^samples: 200\d\d\d before, 202\d\d\d after \(\+1\.0 %\)$/, out)

      out, = ringprof("diff", "--all", "--limit", "0", "#{dir}/before", "#{dir}/after")
      assert_equal 1, out.lines.grep(/\d\*/).length
      (1..9).each { |number| assert_match(/10\.0 +9\.9 +-0\.1 .*Object#work_#{number}$/, out) }
    end
  end

  def test_a_gate_for_continuous_integration
    with_dumps({ "Foo#slow" => 3000, "Foo#other" => 7000 }, { "Foo#slow" => 4500, "Foo#other" => 7000 }) do |before, after|
      { "Foo#slow > +5%" => 1, "Foo#slow > +20%" => 0, "Foo#slow > 9.2 %" => 0, "Foo#slow > 9.0 %" => 1, "self Foo#slow > +5%" => 1,
        "/slow|other/ > +5%" => 1, "/^Foo/ > +5%" => 1, "Foo#other > +1%" => 0, "Foo#other < -20%" => 0, "<main> > +1%" => 0 }.each do |rule, expected|
        _, err, status = ringprof("diff", "--fail-if", rule, before, after)
        assert_equal expected, status.exitstatus, "#{rule}: #{err}"
        assert_equal(expected, err.lines.grep(/\Aringprof: Foo#slow: \+9\.1 points/).length, rule) unless err.include?("explains")
      end
      _, err, status = ringprof("diff", "--fail-if", "Foo#gone > +5%", before, after)
      assert_equal [0, "ringprof: --fail-if Foo#gone > +5%: neither profile has such a frame\n"], [status.exitstatus, err]
      _, _, status = ringprof("diff", "--fail-if", "Foo#other > +5%", "--fail-if", "Foo#slow > +5%", before, after)
      assert_equal 1, status.exitstatus
    end
  end

  def test_few_samples_are_no_proof
    with_dumps({ "Foo#slow" => 3, "Foo#other" => 7 }, { "Foo#slow" => 5, "Foo#other" => 7 }) do |before, after|
      out, err, status = ringprof("diff", "--all", "--fail-if", "Foo#slow > +5%", before, after)
      assert_equal 0, status.exitstatus
      refute_match(/\d\*/, out)
      assert_match(/Foo#slow: \+11\.7 points .*, but within what the number of samples explains/, err)
    end
  end

  def test_frames_that_come_and_go
    with_dumps({ "Foo#gone" => 500, "Foo#stays" => 5000 }, { "Foo#new" => 500, "Foo#stays" => 5000 }) do |before, after|
      out, = ringprof("diff", before, after)
      assert_match(/ 9\.1 +0\.0 +-9\.1\*.*Foo#gone$/, out)
      assert_match(/ 0\.0 +9\.1 +\+9\.1\*.*Foo#new$/, out)
      refute_match(/Foo#stays/, out)
    end
  end

  # Where nothing is scattered the limit is that of a normal variable, however few frames there are to tell.
  def test_few_frames_that_stay_are_no_scatter
    others = (1..4).to_h { |number| ["Foo#other_#{number}", 20_000] }
    with_dumps({ "Foo#slow" => 20_000, **others }, { "Foo#slow" => 22_000, **others }) do |before, after|
      out, = ringprof("diff", before, after)
      assert_equal ["Foo#slow"], out.lines.grep(/\d\*/).map { |line| line.split.last }
    end
  end

  # One method grew; that it left smaller shares to all others is not their doing.
  def test_who_is_pushed_aside_is_not_marked
    others = (1..8).to_h { |number| ["Foo#other_#{number}", 2000] }
    with_dumps({ "Foo#slow" => 20_000, **others }, { "Foo#slow" => 40_000, **others }) do |before, after|
      out, = ringprof("diff", before, after)
      assert_equal ["Foo#slow"], out.lines.grep(/\d\*/).map { |line| line.split.last }
    end
  end

  # Two runs of one program on a busy machine: everything is a little different.
  def test_scatter_is_not_taken_for_a_difference
    random = Random.new(1)
    before = (1..12).to_h { |number| ["Foo#work_#{number}", 20_000] }
    after = before.transform_values { |count| (count * (0.9 + 0.2 * random.rand)).round }
    with_dumps(before, after) do |one, other|
      out, = ringprof("diff", one, other)
      refute_match(/\d\*/, out)
    end
    with_dumps(before, { **after, "Foo#work_1" => 40_000 }) do |one, other|
      out, = ringprof("diff", one, other)
      assert_equal ["Foo#work_1"], out.lines.grep(/\d\*/).map { |line| line.split.last }
    end
  end

  # Equal programs, drawn at random a thousand times: stars are as rare as they are said to be.
  def test_stars_are_as_rare_as_they_are_said_to_be
    require "ringprof/cli"
    random = Random.new(2)
    starred = Array.new(1000) do
      pair = Array.new(2) { profile_of((1..20).to_h { |number| ["Foo##{number}", draw(random, 400)] }) }
      RingProf::CLI::Comparison.new(*pair).rows.any?(&:significant?)
    end
    assert_operator starred.count(true), :<=, 25
  end

  def test_bad_input
    with_dumps({ "a" => 1 }, { "a" => 1 }) do |before, after|
      assert_refused(2, /name two profiles/, "diff", before)
      assert_refused(2, /name two profiles/, "diff", before, after, after)
      assert_refused(2, /must be as 'Name > \+5%'/, "diff", "--fail-if", "Name", before, after)
      assert_refused(2, %r{--fail-if /\(/ > 5%: end pattern}, "diff", "--fail-if", "/(/ > 5%", before, after)
      assert_refused(1, /cannot read .*nonexistent: No such file/, "diff", before, "/nonexistent")
      assert_refused(1, /cannot read .*: Is a directory/, "diff", Dir.tmpdir, after)
      assert_refused(1, /is not a profile/, "diff", __FILE__, after)
      cpu = File.join(File.dirname(before), "cpu")
      File.binwrite(cpu, Marshal.dump({ mode: :cpu, frames: {}, samples: 0 }))
      assert_refused(1, /cannot compare wall with cpu/, "diff", before, cpu)
    end
  end

  def test_empty_profiles
    with_dumps({}, {}) do |before, after|
      out, err, status = ringprof("diff", "--all", before, after)
      assert_equal [0, ""], [status.exitstatus, err]
      assert_match(/^seconds sampled: 0\.000 before, 0\.000 after$/, out)
    end
  end

  private

  def profile(dir, name, count)
    _, err, status = ringprof("run", "--quiet", "--mode", "object", "--out", "#{dir}/#{name}", "--", RbConfig.ruby, "-e", PROGRAM, count.to_s)
    assert_equal [0, ""], [status.exitstatus, err]
  end

  def with_dumps(*counts)
    in_directory do |dir|
      paths = counts.each_with_index.map do |frames, number|
        File.join(dir, "p#{number}").tap { |path| File.binwrite(path, Marshal.dump(results_of(frames))) }
      end
      yield(*paths)
    end
  end

  # All of them are called by <main>.
  def results_of(counts)
    frames = counts.each_with_index.to_h do |(name, count), index|
      [index + 2, { name: name, file: "foo.rb", line: index + 1, samples: count, total_samples: count }]
    end
    whole = counts.values.sum
    frames[1] = { name: "<main>", file: "main.rb", line: nil, samples: 0, total_samples: whole }
    { version: 1.2, mode: :wall, interval: 1000, samples: whole, gc_samples: 0, missed_samples: 0, metadata: {}, frames: frames }
  end

  def profile_of(counts)
    RingProf::Profile.new(results_of(counts))
  end

  # Nearly as Poisson's.
  def draw(random, mean)
    (mean + Math.sqrt(mean) * Math.sqrt(-2 * Math.log(1 - random.rand)) * Math.cos(2 * Math::PI * random.rand)).round
  end
end
