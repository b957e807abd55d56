# frozen_string_literal: true

require "test_helper"
require "support/accounting_assertions"

# Other ractors, and threads that share native threads, are left alone; the main ractor's are sampled as ever.
class RactorsTest < RingProf::TestCase
  # Ractors that compute and collect, while the main one does its own work; small rings, so that drains come.
  RACTORS = <<~RUBY
    mode, tick = ARGV.map(&:to_sym)
    def in_a_ractor(turns) = turns.times { |turn| Array.new(2000) { |number| [number, turn].to_s } && (turn % 10).zero? && GC.start(full_mark: false) }
    def in_the_main_one = [3, 1, 2].sort_by { |number| -number }.map { |number| number.to_s }
    def dig(depth) = depth.zero? ? in_the_main_one : dig(depth - 1)
    options = { mode: mode, interval: 50, raw: true, tick: tick, buffer: 131_072 }.freeze
    RingProf.start(**options)
    ractors = Array.new(2) { Ractor.new { in_a_ractor(15) && Thread.new { in_a_ractor(5) }.value } }
    thread = Thread.new { dig(20) until Thread.current[:done] }
    # Stacks that differ, until the ring was half full once.
    dig(rand(60)) until RingProf.stats[:drains][:count].positive? && RingProf.stats[:recorded] > 500
    sums = ractors.map { |ractor| ractor.respond_to?(:take) ? ractor.take : ractor.value }
    thread[:done] = true
    thread.join
    RingProf.stop
    finish(options)
  RUBY

  # Threads without a native thread of their own.
  SHARED_THREADS = <<~RUBY
    mode, tick = ARGV.map(&:to_sym)
    def in_a_shared_thread(turns) = turns.times { |turn| Array.new(2000) { |number| [number, turn].to_s } && (turn % 10).zero? && Thread.pass }
    def in_the_main_one = [3, 1, 2].sort_by { |number| -number }.map { |number| number.to_s }
    options = { mode: mode, interval: 50, raw: true, tick: tick, buffer: 131_072 }.freeze
    RingProf.start(**options)
    threads = Array.new(6) { Thread.new { in_a_shared_thread(10) && sleep(0.001) } }
    queue = Thread::Queue.new
    threads << Thread.new { queue.pop }
    in_the_main_one until RingProf.stats[:recorded] > 500
    queue << 1
    threads.each(&:join)
    RingProf.stop
    finish(options)
  RUBY

  PRELUDE = <<~RUBY
    require "ringprof"
    require "torture/scenario"
    require "torture/accounting"
    # Everything but the time: on a machine with few cores the main thread may wait for the VM's lock.
    def finish(options)
      stats, results = Torture::Accounting.settled_stats, RingProf.results
      Torture::Accounting.new(options, stats, results).check
      $stdout.binmode.write(Marshal.dump([stats, results]))
    end
  RUBY
  private_constant :PRELUDE
  SETTINGS = %w[wall cpu].product(%w[thread timer]).freeze

  SETTINGS.each do |mode, tick|
    define_method(:"test_other_ractors_#{mode}_#{tick}") do
      stats, results = profile(RACTORS, mode, tick)
      assert_only_the_main_one(results, /in_a_ractor/)
      assert_operator stats[:drains][:count], :>, 1
    end

    define_method(:"test_threads_that_share_native_threads_#{mode}_#{tick}") do
      skip "Ruby #{RUBY_VERSION} has a native thread for each thread" if RUBY_VERSION < "3.3"

      stats, results = profile(SHARED_THREADS, mode, tick, env: { "RUBY_MN_THREADS" => "1" })
      assert_only_the_main_one(results, /in_a_shared_thread/)
      assert_equal 7, stats[:threads_skipped]
    end
  end

  private

  def profile(script, mode, tick, env: {})
    out, err, status = capture([RbConfig.ruby, *INCLUDES, "-e", PRELUDE + script, mode, tick], env: env)
    assert_predicate status, :success?, err
    Marshal.load(out).tap { |_, results| assert_valid_results(results) }
  end

  def assert_only_the_main_one(results, other)
    names = results[:frames].each_value.map { |frame| frame[:name] }
    assert_includes names, "Object#in_the_main_one"
    assert_empty names.grep(other)
  end
end
