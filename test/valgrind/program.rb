# frozen_string_literal: true

# What bin/sanitize runs under memcheck: a profile of each kind, from start to result, with ticks of both sources and GC
# in between. Prints how many samples there were. Argument: `plant`, to read past the end of an allocation.

require "ringprof"

def work(depth, &block)
  depth.zero? ? block.call : [depth].each { work(depth - 1, &block) }
end

# Everything takes twenty to fifty times as long under memcheck, so the pace is slow.
def profile(**options)
  RingProf.start(interval: 5_000, raw: true, **options)
  4.times do
    work(20) { Array.new(50) { |number| number.to_s } }
    RingProf.sample
  end
  Thread.new { work(20) { nil } }.join
  yield if block_given?
  RingProf.stop
  RingProf.results
end

samples = [
  profile(mode: :wall, tick: :thread) { GC.start },
  profile(mode: :cpu, tick: :timer),
  profile(mode: :object, interval: 50)
].sum { |results| results[:samples] }
RingProf::Testing.read_past_the_end if ARGV.first == "plant"
print samples
