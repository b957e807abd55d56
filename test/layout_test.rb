# frozen_string_literal: true

require "test_helper"

# A Ruby whose structures are not what the pre-flight takes them to be: the self-test at load sees it, and samples are
# taken at safepoints.
class LayoutTest < RingProf::TestCase
  # Each is put through the self-test as if the library had been loaded with it, in a process of its own: nothing that a
  # wrong layout points at may be trusted to be readable.
  PROGRAM = <<~'RUBY'
    require "ringprof"
    require "support/work"

    def busy = Work.recurse(5) { Work.burn_cpu(0.1) }

    layout = Marshal.load(ARGV.fetch(0).unpack1("m"))
    believed = RingProf::Testing.try_layout(layout)
    threads = Array.new(2) { Thread.new { busy } }
    results = %i[cpu wall].map { |mode| RingProf.run(mode: mode, interval: 500, raw: true) { busy } }
    threads.each(&:join)
    $stdout.binmode.write(Marshal.dump([believed, RingProf.stats, results]))
  RUBY
  MESSAGE = "RingProf does not know this Ruby's stacks: samples are taken at safepoints"
  FIELDS = %i[thread_ec frame_size frame_ep local_flag].freeze
  # Offsets on and beside every field near the right one; sizes of frames and flags that other versions might have.
  WRONG = {
    thread_ec: [0, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 128, 200, 4096, 1 << 20, 1 << 40, (1 << 63) - 8],
    frame_size: [8, 16, 32, 40, 48, 56, 64, 72, 80, 128],
    frame_ep: [0, 8, 16, 24, 32, 40, 48, 56, 1 << 30],
    local_flag: [1 << 2, 1 << 3, 1 << 4, 1 << 8, 1 << 20, 1 << 62]
  }.freeze

  def setup
    super
    @right = RingProf::Testing.layout
  end

  def test_the_layout_of_this_ruby_is_believed
    skip "nobody has read the structures of Ruby #{RUBY_VERSION}" unless @right
    assert_equal true, RingProf::Testing.try_layout(@right)
  end

  FIELDS.each_with_index do |field, index|
    define_method(:"test_no_wrong_#{field}_is_believed") do
      skip "nobody has read the structures of Ruby #{RUBY_VERSION}" unless @right
      wrong = WRONG.fetch(field) - [@right[index]]
      refute_empty wrong
      script = "require 'ringprof'; puts Marshal.load(ARGV.fetch(0).unpack1('m')).map { |layout| RingProf::Testing.try_layout(layout) }"
      layouts = wrong.map { |number| @right.dup.tap { |layout| layout[index] = number } }
      believed = ruby!(script, pack(layouts)).split
      assert_equal wrong.to_h { |number| [number, "false"] }, wrong.zip(believed).to_h
    end

    define_method(:"test_a_wrong_#{field}_samples_at_safepoints") do
      skip "nobody has read the structures of Ruby #{RUBY_VERSION}" unless @right
      assert_samples_at_safepoints(@right.dup.tap { |layout| layout[index] = (WRONG.fetch(field) - [layout[index]]).first })
    end
  end

  def test_an_unknown_version_samples_at_safepoints
    assert_samples_at_safepoints(nil)
  end

  def test_nothing_is_said_where_safepoints_were_asked_for
    out, err, = capture_ruby(<<~RUBY)
      require "ringprof"
      RingProf::Testing.try_layout(nil)
      RingProf.use_postponed_job!
      RingProf.run(mode: :wall) { 1 }
      print RingProf.stats[:postponed_because]
    RUBY
    assert_equal ["asked for", ""], [out, err]
  end

  private

  def assert_samples_at_safepoints(layout)
    out, err, status = capture_ruby(PROGRAM, pack(layout))
    assert_predicate status, :success?, "#{status}\n#{err}"
    believed, stats, results = Marshal.load(out)
    assert_equal false, believed
    assert_equal :postponed, stats[:capture]
    assert_said(stats[:postponed_because], err)
    assert_equal 0, stats[:lost][:torn]
    results.each do |result|
      assert_valid_results(result)
      assert_operator frame_named(result, "Work.burn_cpu")[:total_samples], :>, result[:samples] / 2
      assert(stack_names(result).any? { |names| names.count("Work.recurse") == 6 }, "whole stacks")
    end
  end

  # Once, on stderr; where YJIT postpones anyway, that is the reason, and nothing is said.
  def assert_said(reason, err)
    if RUBY_VERSION < "3.3" && defined?(RubyVM::YJIT) && RubyVM::YJIT.enabled?
      assert_match(/\AYJIT of Ruby before 3.3/, reason)
      assert_empty err
    else
      assert_equal "the layout of this Ruby's stacks is unknown", reason
      assert_equal 1, err.lines.length, err
      assert_includes err, MESSAGE
    end
  end

  def pack(object) = [Marshal.dump(object)].pack("m0")
end
