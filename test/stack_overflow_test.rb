# frozen_string_literal: true

require "test_helper"

# Recursion without end raises what it raises without a profile, whatever stack it ends, and the ticks come as before.
class StackOverflowTest < RingProf::TestCase
  # Each way prints its outcome; the profile of the second run ticks every 20 µs.
  PROGRAM = <<~RUBY
    require "ringprof"
    require "support/work"
    require "support/native_calls"
    require "torture/accounting"
    PROF = Signal.list.fetch("PROF")

    module Bottomless
      module_function

      def in_ruby = in_ruby
      def in_blocks = [1].each { in_blocks }
      def in_sort = [2, 1].sort_by { in_sort }
      def in_comparison = [2, 1].sort { in_comparison }
      def in_substitution = "a".gsub(/a/) { in_substitution }
      def in_missing(object = Class.new { def method_missing(*) = nothing }.new) = object.nothing
      def in_inspection = nested.inspect
      def in_hash = nested.hash
      def in_equality = nested == nested
      def nested = Array.new(20_000).inject([]) { |inner, _| [inner] }
    end

    def outcome(way)
      result = Bottomless.public_send(way)
      result.class
    rescue SystemStackError => error
      error.message
    end

    def there(place, &block)
      case place
      when :here then block.call
      when :fiber then Fiber.new(&block).resume
      when :thread then Thread.new(&block).value
      end
    end

    profiled, *ways = ARGV
    ways.map(&:to_sym).product(%i[here fiber thread]) do |way, place|
      # Each thread profiles itself, for it is its stack that ends.
      there(place) do
        RingProf.start(mode: :wall, interval: 20) unless profiled == "plain"
        NativeCalls.change_flags(PROF, NativeCalls::SA_ONSTACK) if profiled == "on_its_own_stack"
        puts [way, place, outcome(way), outcome(way), NativeCalls.blocked?(PROF)].join(" ")
        # Not only received: where stacks are walked at safepoints the stop may come before the next one.
        recorded = RingProf.stats[:recorded]
        Work.burn_slice until profiled == "plain" || NativeCalls.blocked?(PROF) || RingProf.stats[:recorded] > recorded
        RingProf.stop
      end
      stats = Torture::Accounting.settled_stats
      abort "unaccounted for: \#{stats}" unless Torture::Accounting.balanced?(stats)
      abort "no result" unless profiled == "plain" || RingProf.results[:samples].positive?
    end
  RUBY
  # The least that Ruby takes for fibers.
  SMALL = {
    "RUBY_THREAD_VM_STACK_SIZE" => "131072", "RUBY_THREAD_MACHINE_STACK_SIZE" => "1048576",
    "RUBY_FIBER_VM_STACK_SIZE" => "16384", "RUBY_FIBER_MACHINE_STACK_SIZE" => "131072"
  }.freeze
  # The main thread's machine stack: a megabyte, as any other thread's.
  SHORT_STACK = ["sh", "-c", 'ulimit -s 1024 && exec "$0" "$@"'].freeze
  WAYS = {
    vm: %w[in_ruby in_blocks in_missing],
    callbacks: %w[in_sort in_comparison in_substitution],
    c: %w[in_inspection in_hash in_equality]
  }.freeze

  WAYS.each do |kind, ways|
    define_method(:"test_recursion_in_#{kind}_ends_as_without_a_profile") { assert_same_ends(ways) }
    define_method(:"test_recursion_in_#{kind}_on_small_stacks_ends_as_without_a_profile") { assert_same_ends(ways, SMALL) }
  end

  # What the tests above are worth: a handler on the stack that is about to end crashes, is left with the signal
  # blocked, or is left for good with what others wait for.
  def test_without_the_alternate_stack_it_would_be_noticed
    harmed = (1..5).any? do
      out, _, status = run_to_the_end("on_its_own_stack", WAYS[:c], limit: %w[timeout --signal=KILL 10])
      !status.success? || out.match?(/true$/)
    end
    assert harmed, "SA_ONSTACK makes no difference"
  end

  private

  def assert_same_ends(ways, env = {})
    plain, profiled = %w[plain profiled].map do |how|
      out, err, status = run_to_the_end(how, ways, env)
      assert_predicate status, :success?, err
      out
    end
    assert_equal plain, profiled
    assert_equal ways.length * 3, plain.lines.length
    assert_operator plain.scan("stack level too deep").length, :>=, ways.length, plain
    refute_match(/true$/, profiled, "SIGPROF stays blocked")
  end

  def run_to_the_end(how, ways, env = {}, limit: [])
    capture([*limit, *SHORT_STACK, RbConfig.ruby, "-w", *INCLUDES, "-e", PROGRAM, how, *ways], env: env)
  end
end
