# frozen_string_literal: true

require "test_helper"
require "objspace"
require "support/accounting_assertions"

# Code that is gone by the time its samples are read. Between a tick and its drain nothing but the ring holds it.
class LivenessTest < RingProf::TestCase
  include AccountingAssertions

  # Ticks by hand; so few that no drain is asked for.
  HELD_BACK = { mode: :wall, interval: 1, tick: :none, raw: true }.freeze
  COUNT = 100
  CLASS_OF = Kernel.instance_method(:class)

  # A tick right after another one is not worth a record.
  def self.record
    before = RingProf.stats[:recorded]
    RingProf::Testing.tick until RingProf.stats[:recorded] > before
  end

  # Here the tests say when the heap is compacted; each time takes long, and once is enough to move what is not pinned.
  def setup
    super
    @compacting = GC.auto_compact
    GC.auto_compact = false
  end

  def teardown
    GC.auto_compact = @compacting
    super
  end

  def test_evaluated_undefined_and_collected_code_before_any_drain
    RingProf.start(**HELD_BACK)
    COUNT.times { |number| run_and_forget(number) }
    assert_equal 0, RingProf.stats[:drains][:count], "nothing but the ring has them"
    collect
    RingProf.stop
    collect
    assert_all_known(RingProf.results, COUNT)
  end

  def test_the_same_after_a_drain
    RingProf.start(**HELD_BACK)
    COUNT.times do |number|
      run_and_forget(number)
      RingProf::Testing.drain if (number % 40).zero?
      collect if number == COUNT / 2
    end
    RingProf.stop
    assert_all_known(RingProf.results, COUNT)
  end

  # What is captured between two steps of one marking, after this marking has seen the profiler.
  def test_code_that_lives_between_two_steps_of_a_marking
    kept = Array.new(400_000) { |number| [number] }
    steps = 0
    # A marking may be over before it is looked at, when something else wants a whole one; and how many steps
    # one takes is the VM's matter.
    20.times do
      RingProf.start(**HELD_BACK)
      count = forget_while_marking
      sweep_to_the_end
      RingProf.stop
      assert_all_known(RingProf.results, count)
      steps += count
      break if steps >= 10
    end
    assert_operator steps, :>=, 10, "markings went on for some steps"
    assert_equal 400_000, kept.length
  end

  def test_whoever_asks_the_profiler_what_it_holds_gets_all_of_it
    RingProf.start(**HELD_BACK)
    run_and_forget(0)
    in_ring = held
    assert_operator in_ring, :>=, 3, "an evaluated method, its class body and what calls them"
    50.times { |number| run_and_forget(number + 1) }
    assert_operator held, :>=, in_ring + 50
    RingProf::Testing.drain
    assert_operator held, :>=, in_ring + 50, "in the tables"
    GC.verify_internal_consistency
    RingProf.stop
    assert_operator held, :>=, in_ring + 50, "stopped"
    assert_all_known(RingProf.results, 51)
    assert_operator held, :<, in_ring, "read, and given up"
  end

  %i[thread timer].each do |tick|
    define_method(:"test_gc_at_every_allocation_and_compaction_#{tick}") do
      results, stats = profile_accounted({ mode: :wall, interval: 50, raw: true, tick: tick }) do
        GC.stress = true
        run_and_forget(0) { nil }
        GC.stress = false
        GC.auto_compact = true
        4.times do |number|
          run_and_forget(number) { nil }
          number.even? ? GC.start : GC.compact
        end
      ensure
        GC.stress = false
        GC.auto_compact = false
      end
      GC.verify_internal_consistency
      assert_operator results[:gc_samples], :>, 0
      phases = [1, 3, 5].sum { |id| results[:frames].dig(id, :samples).to_i }
      assert_equal results[:gc_samples], phases, "phases add up"
      assert_equal 0, stats[:lost][:invalid]
    end
  end

  private

  # One sample (or what the block does) in a method of a class, and one in an evaluated line; then neither exists.
  def run_and_forget(number, &instead)
    body = instead || LivenessTest.method(:record).to_proc
    owner = Class.new { class_eval("def gone_#{number}(body) = body.call", "gone.rb", number + 1) }
    owner.new.public_send(:"gone_#{number}", body)
    number.even? ? owner.undef_method(:"gone_#{number}") : owner.remove_method(:"gone_#{number}")
    TOPLEVEL_BINDING.dup.eval("proc { |body| body.call }", "evaluated_#{number}.rb").call(body)
    nil
  end

  def forget_while_marking
    count = 0
    GC.start(full_mark: true, immediate_mark: false, immediate_sweep: false)
    while GC.latest_gc_info(:state) == :marking
      # A step comes when slots run out, of which there may be many.
      fill_slots(count < COUNT ? 20 : 1000)
      next if count >= COUNT

      run_and_forget(count)
      count += 1
    end
    count
  end

  def fill_slots(number)
    number.times { +"a string that takes a slot" }
  end

  def sweep_to_the_end
    fill_slots(1000) until GC.latest_gc_info(:state) == :none
    # New objects in the places of those that were swept.
    Array.new(50_000) { |number| number.to_s }
  end

  def collect
    GC.start
    GC.compact if GC.respond_to?(:compact)
    Array.new(20_000) { |number| number.to_s }
  end

  def assert_all_known(results, count)
    assert_valid_results(results)
    frames = results[:frames].each_value.to_a
    gone = frames.select { |frame| frame[:file] == "gone.rb" }
    assert_equal Array.new(count) { |number| [number + 1, "gone_#{number}"] },
                 gone.map { |frame| [frame[:line], frame[:name][/gone_\d+\z/]] }.sort
    evaluated = frames.map { |frame| frame[:file][/\Aevaluated_(\d+)\.rb\z/, 1] }.compact.map(&:to_i)
    assert_equal (0...count).to_a, evaluated.sort.uniq
  end

  # Objects of the VM's own that the profiler keeps alive.
  def held
    # Itself a bare object that nothing in Ruby refers to.
    @profiler ||= ObjectSpace.each_object(Object).find do |object|
      CLASS_OF.bind_call(object).equal?(Object) && ObjectSpace.dump(object).include?('"struct":"RingProf"')
    end
    refute_nil @profiler
    ObjectSpace.reachable_objects_from(@profiler).count { |object| object.is_a?(ObjectSpace::InternalObjectWrapper) }
  end
end
