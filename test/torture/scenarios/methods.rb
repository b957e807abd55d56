# frozen_string_literal: true

Torture.scenario("redefinition") do
  profile do
    target = Class.new do
      def first(depth) = depth.zero? ? second : first(depth - 1)
      def second = 1
    end
    100.times do |turn|
      object = target.new
      target.class_eval("def second = #{turn}.to_s", __FILE__, __LINE__)
      target.define_method(:third) { |depth| first(depth) }
      target.alias_method(:fourth, :third)
      object.fourth(turn % 20)
      target.undef_method(:third)
      target.remove_method(:fourth)
      target.class_eval { public :first }
      object.singleton_class.define_method(:first) { |depth| super(depth) }
      object.first(3)
    end
  end
end

Torture.scenario("fresh-methods") do
  profile do
    100.times do |turn|
      fresh = Class.new
      fresh.class_eval("def fresh_#{turn}(depth) = depth.zero? ? [1].map { |one| one.to_s * 10 } : fresh_#{turn}(depth - 1)")
      object = fresh.new
      20.times { object.public_send(:"fresh_#{turn}", 10) }
      fresh.send(:undef_method, :"fresh_#{turn}")
      eval("[#{turn}].each { |number| number.to_s.sub(/1/) { |match| match } }")
      GC.start(full_mark: turn % 20 == 0) if (turn % 10).zero?
    end
  end
end

Torture.scenario("anonymous-classes") do
  profile do
    200.times do
      outer = Module.new { def mixed = [1].each { yield } }
      inner = Class.new(Struct.new(:one)) do
        include outer
        define_method(:defined) { mixed { one.to_s } }
      end
      inner.new(1).defined
      Object.new.instance_eval { define_singleton_method(:single) { 1.to_s } }
    end
    GC.start
  end
end

Torture.scenario("allocations") do
  given = options(mode: :object, interval: pick([1, 2, 7, 100]))
  given.delete(:tick)
  profile(given) do
    2000.times do |turn|
      [turn.to_s, { turn => [turn] }, Object.new]
      lambda { turn } if (turn % 50).zero?
    end
    GC.start if chance?(0.3)
    Array.new(3) { thread { 300.times { |turn| "#{turn} of many" } } }.each(&:join)
  end
end

Torture.scenario("custom-samples") do
  given = options(mode: :custom)
  given.delete(:tick)
  given.delete(:interval)
  below = lambda { |depth| depth.zero? ? RingProf.sample : [1].each { below.call(depth - 1) } }
  results = profile(given) { 200.times { |turn| below.call(turn % 60) } }
  raise Torture::Broken, "200 calls of sample made #{results[:samples]}" unless results[:samples] == 200
end
