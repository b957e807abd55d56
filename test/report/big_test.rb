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
    bare = Memory.now
    file = Tempfile.create("ringprof-test").binmode
    # In a process of its own, whose memory is not counted.
    Process.wait(fork { BigProfile.new(samples: 600_000, runs: 20_000, depth: 30, frames: 1000).dump(file) })
    profile = RingProf::Profile.load(file.path)
    File.unlink(file.path)
    GC.start
    held = Memory.now
    puts bare, held, profile.samples, profile.data[:raw].size
    $stdout.flush
    # Each from the same start: what one leaves behind is not the next one's.
    RingProf::Report.formats.each_value do |format|
      Process.wait(fork do
        Memory.forget_peak
        File.open(File::NULL, "w") { |null| format.new(profile).write(null) }
        puts "#{format.name} #{Memory.peak - held}"
      end)
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
