# frozen_string_literal: true

require "test_helper"

# Programs made at random, whose stacks are known because they were asked for one by one: raw must say exactly what was
# run, and everything that frames say must follow from raw (assert_valid_results counts it again).
class RecountTest < RingProf::TestCase
  PROGRAMS = 12
  STEPS = 60
  METHODS = 6
  # Around every edge of how a line is written: 16 bits, 31 bits.
  LINES = [1, 2, 70, 65_533, 65_534, 65_535, 65_536, 131_072 + 70, 2**20, 2**30].freeze

  # The methods of one program: each has a line of its own and calls the rest of the path, or samples.
  class Program
    attr_reader :lines

    def initialize(random)
      @lines = Array.new(METHODS) { LINES.sample(random: random) }
      @lines.each_with_index do |line, number|
        instance_eval(<<~RUBY, "generated_#{number}.rb", line)
          def self.m#{number}(path) = path.empty? ? RingProf.sample : public_send(path[0], path[1..])
        RUBY
      end
    end
  end

  def setup
    super
    @random = Random.new(Minitest.seed)
  end

  def test_raw_is_what_was_run_and_frames_are_what_raw_says
    PROGRAMS.times do
      program = Program.new(@random)
      paths = Array.new(STEPS) { [random_path, @random.rand(1..5)] }
      results = RingProf.run(mode: :custom, raw: true) do
        paths.each { |(first, *rest), weight| weight.times { program.public_send(first, rest) } }
      end
      assert_valid_results(results)
      assert_equal paths.sum { |_, weight| weight }, results[:samples]
      merged(paths, program).zip(seen(results)) { |ran, found| assert_equal ran, found }
    end
  end

  # Deeper than is kept: the leaf side stays, and is counted as if it were all.
  def test_truncated_stacks_are_counted_by_what_is_left
    results = RingProf.run(mode: :custom, raw: true) do
      [10, 1_500, 3_000].each { |depth| recurse(depth) { 3.times { RingProf.sample } } }
      recurse(4_000) { RingProf.sample }
    end
    assert_valid_results(results)
    groups = raw_groups(results)
    assert_equal 10, results[:samples]
    assert_equal [2048, 2048], groups.last(2).map { |group| group.ids.length }
    recursive = frame_named(results, "Work#recurse")
    assert_equal 10, recursive[:total_samples]
    groups.last(2).each { |group| assert_equal ["Work#recurse"], names(results, group.ids.first(2000)).uniq }
  end

  # Ticks by hand, some time apart: one record stands for many samples.
  def test_weights_above_one_are_counted_as_so_many_samples
    skip "stacks are not walked in the handler here" unless direct?

    results = RingProf.run(mode: :wall, interval: 100, raw: true, tick: :none) do
      20.times do |number|
        wait(0.002)
        number.even? ? recurse(number) { RingProf::Testing.tick } : RingProf::Testing.tick
      end
    end
    assert_valid_results(results)
    weights = raw_groups(results).map(&:weight)
    assert_operator weights.max, :>, 1
    assert_operator results[:samples], :>=, 20 * 10
    assert_equal results[:samples], weights.sum
  end

  private

  def random_path
    Array.new(@random.rand(1..12)) { :"m#{@random.rand(METHODS)}" }
  end

  # Runs of equal stacks below the test: names of the generated methods, and their lines.
  def merged(paths, program)
    stacks = paths.map { |path, weight| [path.map { |name| [name.to_s, program.lines[name[1..].to_i]] }, weight] }
    stacks.chunk_while { |one, other| one.first == other.first }.map { |run| [run.first.first, run.sum(&:last)] }
  end

  def seen(results)
    stacks = raw_groups(results).map do |group|
      generated = group.ids.zip(group.lines).select { |id, _| results[:frames][id][:file].start_with?("generated_") }
      [generated.map { |id, line| [results[:frames][id][:name][/m\d+\z/], line] }, group.weight]
    end
    stacks.chunk_while { |one, other| one.first == other.first }.map { |run| [run.first.first, run.sum(&:last)] }
  end

  def names(results, ids)
    ids.map { |id| results[:frames][id][:name] }
  end

  def direct?
    RingProf.run(mode: :custom) { nil }
    RingProf.stats[:capture] == :direct
  end

  def wait(seconds)
    deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + seconds
    nil while Process.clock_gettime(Process::CLOCK_MONOTONIC) < deadline
  end
end
