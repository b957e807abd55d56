# frozen_string_literal: true

require "minitest/autorun"
require "rbconfig"
require "support/example_profiles"

# A big profile, in every format: bench/reports.rb has the times, and ten times the size.
class BigTest < Minitest::Test
  ROOT = File.expand_path("../..", __dir__)
  # What the collector leaves lying about before it runs, whatever the size of the profile.
  SLACK = 48

  SCRIPT = <<~'RUBY'
    $LOAD_PATH.unshift("bench")
    require "reports"
    require "stringio"
    bare = Memory.now
    io = StringIO.new(String.new(encoding: Encoding::BINARY))
    BigProfile.new(samples: 600_000, runs: 20_000, depth: 30, frames: 1000).dump(io)
    io.rewind
    profile = RingProf::Profile.load(io)
    io.string.clear
    io = nil
    GC.start
    held = Memory.now
    puts bare, held, profile.samples, profile.data[:raw].size
    RingProf::Report.formats.each_value do |format|
      GC.start
      before = Memory.now
      Memory.forget_peak
      File.open(File::NULL, "w") { |null| format.new(RingProf::Profile.new(profile.data)).write(null) }
      puts "#{format.name} #{Memory.peak - before}"
    end
  RUBY

  def test_memory
    skip "/proc/self/clear_refs cannot be written" unless File.writable?("/proc/self/clear_refs")
    out = IO.popen([RbConfig.ruby, "-w", "-I", "#{ROOT}/lib", "-e", SCRIPT], chdir: ROOT, err: %i[child out], &:read)
    bare, held, samples, raw, *formats = out.lines(chomp: true)
    assert_equal [600_000, true], [samples.to_i, raw.to_i > 600_000], out
    assert_equal RingProf::Report.formats.keys, formats.map { |line| line.split.first }, out
    bound = (held.to_i - bare.to_i) / 2 + SLACK
    formats.each { |line| assert_operator line.split.last.to_i, :<, bound, "#{line}: more than half of what is held\n#{out}" }
  end
end
