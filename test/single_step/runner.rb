# frozen_string_literal: true

# Runs one script with the handler after each of its instructions, and writes what came of it to stdout.
# Arguments: the script; `bare` to walk without the pre-flight, `warm` to run the script a few times before.

require "ringprof"

# A script names the part of it that is stepped through; one that names none is stepped through as a whole.
def stepped(&body) = $stepped = body

# What scripts give their blocks to.
def kept(&block) = block

script, *how = ARGV
file = File.join(__dir__, "scripts/#{script}.rb")
# The parser takes a million instructions, which say nothing of frames.
code = RubyVM::InstructionSequence.compile_file(file)
part = File.read(file).match?(/^stepped do$/)
code.eval if part
body = part ? $stepped : code.method(:eval)
# So that what is stepped through is compiled code, and not the compiler.
3.times { body.call } if how.include?("warm")
# A GC would be stepped through as well, which takes minutes.
GC.start
GC.disable
RingProf::Testing.skip_preflight = how.include?("bare")
# Each walk that is cut short is held against a whole one.
RingProf::Testing.check_walks = true
RingProf::Testing.walks
# Every instruction takes longer than the interval, so each one's stack is walked. The ring has room for all of them: a
# drain job would be stepped through as well, a slice of 200 µs at a time, and never catch up. The
# script that starts the compiler is the longest. CPU mode samples threads.
RingProf.start(mode: script == "threads" ? :cpu : :wall, interval: 1, tick: :none, buffer: (script == "enabling" ? 512 : 64) << 20)
instructions = RingProf::Testing.single_step { body.call }
RingProf.stop
stats = RingProf.stats
walks = RingProf::Testing.walks
GC.enable
$stdout.binmode.write(Marshal.dump([instructions, stats, RingProf.results, walks]))
