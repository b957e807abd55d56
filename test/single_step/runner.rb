# frozen_string_literal: true

# Runs one script with the handler after each of its instructions, and writes what came of it to stdout.
# Arguments: the script; `bare` to walk without the pre-flight, `warm` to run the script a few times before.

require "ringprof"

script, how = ARGV
# The parser takes a million instructions, which say nothing of frames.
code = RubyVM::InstructionSequence.compile_file(File.join(__dir__, "#{script}.rb"))
# So that what is stepped through is compiled code, and not the compiler.
3.times { code.eval } if how == "warm"
# A GC would be stepped through as well, which takes minutes.
GC.start
GC.disable
RingProf::Testing.skip_preflight = how == "bare"
# Every instruction takes longer than the interval, so each one's stack is walked. The ring has room for all of them: a
# drain job would be stepped through as well, a slice of 200 µs at a time, and never catch up.
RingProf.start(mode: :wall, interval: 1, tick: :none, buffer: 64 << 20)
instructions = RingProf::Testing.single_step { code.eval }
RingProf.stop
stats = RingProf.stats
GC.enable
$stdout.binmode.write(Marshal.dump([instructions, stats, RingProf.results]))
