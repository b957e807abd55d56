# frozen_string_literal: true

# One contender of overhead.rb or workloads.rb in a process of its own: reads a command a line, answers with one line of JSON.
#
#     ruby -I DIRECTORY_OF_THE_EXTENSION -I lib bench/worker.rb CONTENDER
#
#     round DEPTH ITERATIONS   a round of work at that depth under the contender's profiler
#     load NAME AMOUNT         a round of another kind of work (see Loads)
#     walk DEPTH               the bare rb_profile_frames at that depth
#     play DEPTH               the handler at that depth, called by hand

require "json"
require_relative "support/contenders"
require_relative "support/work"

# The commands. No method more than necessary: each is a frame below the work.
class Worker
  def initialize(contender)
    @contender = contender
    @work = Work.new
    @loads = Loads.new
  end

  def round(depth, amount)
    levels = Work.levels(depth)
    timed { @work.level_0(levels, amount) }
  end

  def load(name, amount)
    timed { @loads.public_send(name, amount) }
  end

  def timed
    # What an earlier round left to be collected is not this one's.
    GC.start
    @contender.start
    wall = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
    cpu = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID, :nanosecond)
    yield
    cpu = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID, :nanosecond) - cpu
    wall = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond) - wall
    { wall_ns: wall, cpu_ns: cpu, **@contender.stop }
  end

  # Warm: call after call. Cold: each after as much work as lies between two ticks.
  def walk(depth)
    walk = Walk.new
    walk.level_0(Work.levels(depth), 0)
    { warm_ns: walk.warm_ns, cold_ns: walk.cold_ns }
  end

  # No work and no time of it: only what the profiler says of itself.
  def play(depth)
    levels = Work.levels(depth)
    play = Play.new
    @contender.start
    play.level_0(levels, 0)
    @contender.stop
  end
end

begin
  worker = Worker.new(Contenders::MAKERS.fetch(ARGV.fetch(0)).call)
rescue LoadError => e
  abort "bench/worker.rb: #{e.message}"
end
$stdout.sync = true
$stdout.puts "ready"
while (line = $stdin.gets)
  command, *numbers = line.split
  name = numbers.shift if command == "load"
  numbers.map!(&:to_i)
  # Called by name: `public_send` would be a frame.
  answer =
    case command
    when "round" then worker.round(*numbers)
    when "load" then worker.load(name, *numbers)
    when "walk" then worker.walk(*numbers)
    when "play" then worker.play(*numbers)
    end
  $stdout.puts JSON.generate(answer)
end
