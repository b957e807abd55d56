# frozen_string_literal: true

# Writes the corpus that fuzzing begins with: one of each kind of record, whole and broken, as the first words of
# fuzz/decoder.rs steer them. Run it after a change of the format: ruby fuzz/seeds.rb

require "fileutils"

# What the first word says.
def steer(chunk: 0x1FFF, repeats: 0, raw: true, monotone: false, credit: 1)
  chunk | (repeats << 13) | ((raw ? 1 : 0) << 26) | ((monotone ? 1 : 0) << 27) | (credit << 28)
end

# A record's first word.
def header(kind, words: 2, phase: 0, truncated: 0, state: 0, cpu: 0, slot: 3, weight: 1)
  kind | (phase << 3) | (truncated << 5) | (state << 6) | (words << 8) | (cpu << 21) | (slot << 24) | (weight << 40)
end

def frame(value, line) = value | (line << 48)

# A line or a frame that takes two words.
def escaped(value, line) = [(value & 0xFFFF_FFFF_FFFF) | (0xFFFF << 48), (line & 0xFFFF_FFFF) | (value >> 48 << 32)]

STACK = 1
AGAIN = 2
GC_KIND = 3
CAUSE = 4
REST = 5
DELTA = 6
LEAF = frame(8, 1)
ROOT = frame(16, 7)

SEEDS = {
  stack: [steer, header(STACK, words: 4), 1000, LEAF, ROOT],
  again: [steer, header(STACK, words: 4, weight: 7), 1000, LEAF, ROOT, header(AGAIN, weight: 3), 2000],
  recursion: [steer, header(STACK, words: 6), 1000, LEAF, ROOT, LEAF, ROOT],
  escapes: [steer, header(STACK, words: 6), 1000, *escaped(8, 70_000), *escaped(8 << 48, -1)],
  truncated: [steer, header(STACK, words: 3, truncated: 1), 1000, LEAF],
  no_frames: [steer, header(STACK), 1000],
  nobodys: [steer(credit: 5), header(STACK, words: 3, slot: 0xFFFF), 1000, LEAF],
  gc: [steer(monotone: true), *(0..2).flat_map { |phase| [header(GC_KIND, phase: phase, weight: 2), 1000 + phase] }],
  gc_between: [steer, header(STACK, words: 3), 1000, LEAF, header(GC_KIND, phase: 1), 2000, header(AGAIN), 3000],
  rest: [steer, header(STACK, words: 3), 1000, LEAF, header(STACK, words: 3, slot: 4), 1001, ROOT, header(REST, weight: 9, state: 2), 2000],
  cause: [steer, header(GC_KIND, words: 3, phase: 1), 1000, 77, header(CAUSE, words: 5, weight: 3), 1001, 77, LEAF, ROOT, header(GC_KIND, words: 3, phase: 2), 1002, 77],
  both_clocks: [steer | (1 << 63), header(STACK, words: 4, cpu: 1), 1000, 2, LEAF, header(AGAIN, words: 3, cpu: 1, state: 1), 1001, 1],
  shared_roots: [steer, header(STACK, words: 4), 1000, LEAF, ROOT, header(STACK, words: 4), 900, frame(8, 2), ROOT],
  delta: [steer, header(STACK, words: 5), 1000, LEAF, ROOT, ROOT, header(DELTA, words: 4), 1001, 2, frame(8, 2), header(DELTA, words: 3), 1002, 1],
  delta_of_nothing: [steer, header(DELTA, words: 4), 1000, 1, LEAF],
  delta_of_more: [steer, header(STACK, words: 3), 1000, LEAF, header(DELTA, words: 4), 1001, 2, LEAF],
  in_small_parts: [steer(chunk: 2), header(STACK), 1000, header(AGAIN, weight: 2), 1001, header(AGAIN), 1002],
  deepest: [steer(repeats: 2047), header(STACK, words: 2050), 1000, LEAF],
  too_deep: [steer(repeats: 2048), header(STACK, words: 2051), 1000, LEAF],
  no_kind: [steer, header(0, words: 2), 1000],
  long_again: [steer, header(STACK, words: 3), 1000, LEAF, header(AGAIN, words: 3), 1000, LEAF],
  length_beyond: [steer, header(STACK, words: 9), 1000, LEAF],
  no_length: [steer, header(STACK, words: 0), 1000],
  lonely_again: [steer, header(AGAIN), 1000]
}.freeze

corpus = File.join(__dir__, "corpus")
FileUtils.mkdir_p(corpus)
SEEDS.each { |name, words| File.binwrite(File.join(corpus, name.to_s), words.pack("Q<*")) }
