# frozen_string_literal: true

require "test_helper"

# Frames whose methods are gone live on from the ring to the result, whatever kind of GC comes in between.
class MarkingTest < RingProf::TestCase
  # Samples methods that nobody can reach any more when GC comes, then asks for their names. A drain held back keeps
  # them in the ring alone.
  PROGRAM = <<~RUBY
    require "ringprof"

    METHODS = 300

    def ephemeral(number)
      Class.new { class_eval("def gone_\#{number} = RingProf.sample") }.new.public_send(:"gone_\#{number}")
    end

    # The stack below is overwritten, or the conservative scan would find frames there.
    def wipe(depth = 200) = depth.zero? ? nil : wipe(depth - 1)

    def fill = Array.new(50_000) { Object.new }

    def collect(kind)
      case kind
      when "minor" then 4.times { GC.start(full_mark: false, immediate_sweep: true) }
      when "major" then 2.times { GC.start }
      when "compacting" then 2.times { GC.compact }
      end
    end

    # The wrapper gets old, so that a minor GC would pass over it.
    4.times { GC.start }
    kind = ARGV.fetch(0)
    RingProf.start(mode: :custom, raw: true)
    # Marking begins, and goes on in steps as objects are made.
    fill and GC.start(full_mark: true, immediate_mark: false, immediate_sweep: false) if kind == "incremental"
    METHODS.times { |number| ephemeral(number) }
    wipe
    if kind == "incremental"
      fill until GC.latest_gc_info(:state) == :none
    end
    3.times do
      collect(kind)
      fill
    end
    RingProf.stop
    frames = RingProf.results[:frames]
    names = frames.each_value.filter_map { |frame| frame[:name][/gone_\\d+/] }
    abort "lost: \#{METHODS - names.uniq.length} of \#{METHODS}" if names.uniq.length != METHODS
    fill
    GC.start
    print "all named"
  RUBY

  %w[minor major incremental compacting].each do |kind|
    define_method(:"test_frames_live_through_#{kind}_collections") do
      skip "no compaction here" if kind == "compacting" && !GC.respond_to?(:compact)
      assert_equal "all named", ruby!(PROGRAM, kind)
    end
  end
end
