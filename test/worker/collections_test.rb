# frozen_string_literal: true

require "test_helper"

# Who started garbage collection, and why.
class WorkerCollectionsTest < RingProf::TestCase
  def test_the_stack_that_started_a_collection_is_kept
    kept = garbage
    results = RingProf.run(mode: :wall, interval: 100) { 5.times { collect_by_hand } }
    kept.clear
    assert_valid_results(results)
    assert_operator results[:gc_samples], :>, 20
    callers = results[:gc_callers].each_value.to_h { |frame| [frame[:name], frame] }
    mine = callers.fetch("WorkerCollectionsTest#collect_by_hand")
    method = results[:gc_causes][:method]
    assert_operator method[:collections], :>=, 5
    assert_operator method[:samples], :>, 0.5 * results[:gc_samples]
    assert_in_delta method[:samples], mine[:total_samples], 0.2 * results[:gc_samples]
    # StackProf's shape is what it was: GC's frames have no callers.
    gc = frame_named(results, "(garbage collection)")
    assert_equal gc[:total_samples], results[:gc_samples]
  end

  def test_allocation_is_told_from_a_request
    results = RingProf.run(mode: :wall, interval: 100) { 10.times { allocate } }
    causes = results[:gc_causes]
    assert_operator causes.slice(:newobj, :malloc).values.sum { |cause| cause[:collections] }, :>, 0
    names = results[:gc_callers].each_value.map { |frame| frame[:name] }
    assert_includes names, "WorkerCollectionsTest#allocate" if results[:gc_callers].any?
  end

  def test_ignored_gc_has_no_samples
    results = RingProf.run(mode: :wall, interval: 100, ignore_gc: true) { 5.times { collect_by_hand } }
    assert_equal 0, results[:gc_samples]
    assert_equal 0, results[:states][:gc]
    assert_empty results[:gc_callers]
  end

  # Marking walks a stack: it must not when somebody else looks at what objects refer to.
  def test_marking_outside_of_gc_records_nothing
    require "objspace"
    results = RingProf.run(mode: :wall, interval: 100) do
      # Asked of Kernel: the heap may hold classes that refuse to tell.
      class_of = Kernel.instance_method(:class)
      ObjectSpace.each_object(Object) do |object|
        ObjectSpace.reachable_objects_from(object) if class_of.bind_call(object).equal?(Object)
      end
      GC.verify_internal_consistency if GC.respond_to?(:verify_internal_consistency)
      burn_cpu(0.05)
    end
    assert_valid_results(results)
  end

  private

  def collect_by_hand
    GC.start
  end

  def allocate
    garbage
  end
end
