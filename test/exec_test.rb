# frozen_string_literal: true

require "test_helper"

# A tick that is pending when the process becomes another program would kill that program.
class ExecTest < RingProf::TestCase
  RUNS = 100

  # Forks children that profile and then become another program; prints how many died of a signal.
  PROGRAM = <<~RUBY
    require "ringprof"
    if ARGV.first == "unheld"
      module RingProf::Native
        def self.hold = nil
        def self.release = nil
      end
    end
    deaths = (1..#{RUNS}).count do
      pid = fork do
        RingProf.start(mode: :wall, interval: 20, tick: :thread)
        ends = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 0.003
        nil while Process.clock_gettime(Process::CLOCK_MONOTONIC) < ends
        exec("/bin/true")
      end
      !Process.wait2(pid).last.success?
    end
    print deaths
  RUBY

  def test_the_new_program_is_not_hit_by_a_tick
    assert_equal 0, deaths("held")
  end

  # What the test above is worth: without the hold, about one in seven dies.
  def test_without_the_hold_new_programs_die
    assert_operator deaths("unheld"), :>, 0
  end

  def test_a_failed_exec_leaves_the_profile_running
    RingProf.start(mode: :wall, interval: 100)
    attempts = [-> { exec("/nonexistent/program") }, -> { Process.exec("/nonexistent/program") },
                -> { Kernel.exec("/nonexistent/program") }]
    attempts.each { |attempt| assert_raises(Errno::ENOENT, &attempt) }
    before = RingProf.stats[:sent]
    burn_cpu(0.05)
    assert_operator RingProf.stats[:sent], :>, before
    assert RingProf.stop
    assert_valid_results(RingProf.results)
  end

  def test_exec_stays_private
    assert_raises(NoMethodError) { Object.new.exec("/bin/true") }
  end

  private

  def deaths(how)
    Integer(ruby!(PROGRAM, how))
  end
end
