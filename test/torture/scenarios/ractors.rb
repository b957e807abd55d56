# frozen_string_literal: true

# Prints what a profile of other ractors, or of threads that share native threads, must not hold.
module Torture
  module Elsewhere
    WORK = <<~RUBY
      def elsewhere(turns) = turns.times { |turn| Array.new(1000) { |number| [number, turn].to_s } && (turn % 10).zero? && GC.start(full_mark: false) }
      def here(depth) = depth.zero? ? [3, 1, 2].sort_by { |number| -number }.map { |number| number.to_s } : here(depth - 1)
      stage = Torture::Stage.new(Integer(ARGV[0]), interval: Integer(ARGV[1]), compact: false)
    RUBY
    CHECK = <<~RUBY
      names = results[:frames].each_value.map { |frame| frame[:name] }
      abort "elsewhere is in the profile" if names.include?("Object#elsewhere")
    RUBY
    RACTORS = <<~RUBY
      Warning[:experimental] = false
      results = stage.profile do
        ractors = Array.new(3) { Ractor.new { elsewhere(15) && Thread.new { elsewhere(3) }.value } }
        stage.work(20) && 200.times { |turn| here(turn % 60) }
        ractors.each { |ractor| ractor.respond_to?(:take) ? ractor.take : ractor.value }
      end
    RUBY
    SHARED_THREADS = <<~RUBY
      results = stage.profile do
        threads = Array.new(10) { Thread.new { elsewhere(5) && sleep(0.001) } }
        queue = Thread::Queue.new
        threads << Thread.new { queue.pop }
        stage.work(20) && 200.times { |turn| here(turn % 60) }
        queue << 1
        threads.each(&:join)
      end
    RUBY
  end
end

Torture.scenario("ractors") do
  script = Torture::Elsewhere::WORK + Torture::Elsewhere::RACTORS + Torture::Elsewhere::CHECK
  wait(Process.spawn(RbConfig.ruby, *Torture::Stage::INCLUDES, "-r", "torture/scenario", "-r", "torture/stage", "-e", script,
                     random.rand(1000).to_s, interval.to_s))
end

Torture.scenario("shared-native-threads") do
  script = Torture::Elsewhere::WORK + Torture::Elsewhere::SHARED_THREADS + Torture::Elsewhere::CHECK
  wait(Process.spawn({ "RUBY_MN_THREADS" => "1" }, RbConfig.ruby, *Torture::Stage::INCLUDES, "-r", "torture/scenario",
                     "-r", "torture/stage", "-e", script, random.rand(1000).to_s, interval.to_s))
end
