# frozen_string_literal: true

require "test_helper"
require "torture/leave"

# A process that is being profiled ends as it would without a profile, whichever way it goes. bin/torture repeats these by the thousand.
class ExitsTest < RingProf::TestCase
  TIMES = 10
  # Forks children that profile every 20 µs and leave; tells how they ended.
  PROGRAM = <<~RUBY
    require "torture/leave"
    way, mode, tick = ARGV.map(&:to_sym)
    # Not to be told of each exception.
    $stderr.reopen(File::NULL)
    Thread.report_on_exception = false
    endings = Array.new(#{TIMES}) do
      pid = fork { Torture::Leave.by(way, mode: mode, interval: 20, tick: tick, raw: true) }
      status = Process.wait2(pid).last
      status.signaled? ? Signal.signame(status.termsig) : status.exitstatus
    end
    print Marshal.dump(endings.tally)
  RUBY
  SETTINGS = %w[wall cpu].product(%w[thread timer]).freeze

  Torture::Leave::WAYS.each_with_index do |(way, expected), index|
    define_method(:"test_#{way}") do
      assert_equal({ expected => TIMES }, endings(way, *SETTINGS[index % 4]))
    end
  end

  def test_a_vm_that_frees_everything_at_its_exit
    skip "Ruby #{RUBY_VERSION} does not know RUBY_FREE_AT_EXIT" if RUBY_VERSION < "3.3"

    # Not with finalizers: without a profile, too, Ruby 3.3.8 dies of them then.
    %i[end_of_block exit uncaught_exception threads_still_running stop_in_at_exit].each_with_index do |way, index|
      ended = endings(way, *SETTINGS[index % 4], env: { "RUBY_FREE_AT_EXIT" => "1" })
      assert_equal({ Torture::Leave::WAYS.fetch(way) => TIMES }, ended, way)
    end
  end

  def test_blocks_at_exit_run_in_the_same_order_and_before_the_end_of_the_profile
    script = <<~RUBY
      require "ringprof"
      at_exit { puts "first, \#{RingProf.running?}" }
      RingProf.start(mode: :wall, interval: 20) if ARGV.first == "profiled"
      at_exit { puts "second, \#{RingProf.running?}" }
      END { puts "third, \#{RingProf.running?}" }
    RUBY
    assert_equal %w[third second first].map { |name| "#{name}, true\n" }.join, ruby!(script, "profiled")
    assert_equal %w[third second first].map { |name| "#{name}, false\n" }.join, ruby!(script, "plain")
  end

  private

  def endings(way, mode, tick, env: {})
    Marshal.load(ruby!(PROGRAM, way.to_s, mode, tick, env: env))
  end
end
