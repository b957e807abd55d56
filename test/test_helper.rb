# frozen_string_literal: true

# RINGPROF_HARD makes the same tests harder:
#   compact  the heap is compacted by every major GC, so that a frame that is not pinned moves away
#   stress   GC at every allocation, in the tests of classes that say `stress_gc`; takes minutes

require "minitest/autorun"
require "tmpdir"
require "ringprof"
require "support/result_assertions"
require "support/subprocess"
require "support/work"

GC.auto_compact = true if ENV["RINGPROF_HARD"] == "compact"

module RingProf
  # A test of the extension, which leaves the profiler stopped and empty.
  class TestCase < Minitest::Test
    include ResultAssertions
    include Subprocess
    include Work

    class << self
      attr_reader :stressed

      # The class's tests allocate little enough for a GC at each allocation.
      def stress_gc
        @stressed = true
      end
    end

    def setup
      super
      GC.stress = true if ENV["RINGPROF_HARD"] == "stress" && self.class.stressed
    end

    def teardown
      GC.stress = false
      RingProf.stop
      RingProf.results(File::NULL)
      super
    end

    # Whether this Ruby's stacks are walked at safepoints alone, where no thread is off the GVL.
    def at_safepoints?
      RUBY_VERSION < "3.3" && defined?(RubyVM::YJIT) && RubyVM::YJIT.enabled? ? true : false
    end

    def skip_at_safepoints
      skip "stacks are walked at safepoints here, and a thread off the GVL comes to none" if at_safepoints?
    end

    # Calls of `sample` make results that are known to the last count.
    def sample_here
      RingProf.sample
    end
  end
end
