# frozen_string_literal: true

Torture.scenario("gc") do
  profile do
    20.times do |turn|
      kept = Array.new(2000) { |number| { number => "#{turn} #{number}" } }
      GC.start(full_mark: turn.odd?, immediate_sweep: chance?(0.5))
      ObjectSpace.define_finalizer(kept.last.values.last.dup, proc { spin(1) })
      work(1)
    end
  end
end

Torture.scenario("gc-stress") do
  profile do
    GC.stress = true
    spin(3)
    [1].each { |number| lambda { number } }
    thread { spin(1) }.join
  ensure
    GC.stress = false
  end
end

Torture.scenario("gc-compact") do
  profile do
    5.times do |turn|
      fresh = Class.new { class_eval("def fresh(depth) = depth.zero? ? 'a' * 50 : fresh(depth - 1)") }
      50.times { fresh.new.fresh(20) }
      kept = Array.new(3000) { |number| "#{turn} #{number}" if number % 3 == turn % 3 }
      GC.compact
      fresh.new.fresh(10)
      kept.compact
    end
  end
  GC.verify_compaction_references(toward: :empty) if compact? && RUBY_VERSION >= "3.2"
end
