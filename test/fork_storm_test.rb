# frozen_string_literal: true

require "test_helper"
require "support/accounting_assertions"

# Forks and commands by the dozen while ticks are dense: all of them come through, and each profile is its own process's.
class ForkStormTest < RingProf::TestCase
  include AccountingAssertions

  # Pages that a fork has to copy the tables of; bin/torture takes 2 GB.
  BALLAST = 200 << 20
  TICKS = %i[thread timer].freeze

  TICKS.each do |tick|
    define_method(:"test_a_big_process_forks_#{tick}") do
      assert_equal "15\n", ruby!(PRELUDE + <<~RUBY, tick.to_s)
        ballast = "x" * #{BALLAST}
        puts storm(15, 100) { |number| child { exit!(ballast.length == #{BALLAST} ? 0 : 1) } }
      RUBY
    end

    define_method(:"test_commands_#{tick}") do
      assert_equal "60\n", ruby!(PRELUDE + <<~RUBY, tick.to_s)
        ways = [
          -> { system("true") },
          -> { `echo heard` == "heard\\n" },
          -> { !system("exit 3") && $?.exitstatus == 3 },
          -> { Process.wait2(Process.spawn("sleep", "0.001")).last.success? },
          -> { IO.popen(["cat"], "r+") { |cat| cat.write("through") && cat.close_write || cat.read == "through" } },
          -> { !system("no-such-program-anywhere") }
        ]
        puts storm(60, 20) { |number| ways[number % ways.length].call }
      RUBY
    end

    define_method(:"test_children_profile_themselves_alone_#{tick}") do
      assert_equal "10\n", ruby!(PRELUDE + <<~RUBY, tick.to_s)
        def only_in_the_parent = Work.burn_cpu(0.001)
        def only_in_the_child = Work.burn_cpu(0.005)
        puts(storm(10, 20) do
          only_in_the_parent
          child do
            RingProf.start(**OPTIONS, interval: 20)
            only_in_the_child
            only_in_the_child until RingProf.stats[:recorded] > 20
            RingProf.stop
            names = RingProf.results[:frames].each_value.map { |frame| frame[:name] }
            exit!(names.include?("Object#only_in_the_child") && !names.include?("Object#only_in_the_parent") ? 0 : 1)
          end
        end)
      RUBY
    end
  end

  def test_threads_fork
    assert_equal "24\n", ruby!(PRELUDE + <<~RUBY, "thread")
      puts(storm(6, 20) do
        Array.new(4) { Thread.new { child { exit!(RingProf.running? || RingProf.results || RingProf.run(mode: :custom) { RingProf.sample }[:samples] != 1 ? 1 : 0) } } }
          .count(&:value) == 4
      end * 4)
    RUBY
  end

  def test_daemons
    assert_equal "5\n", ruby!(PRELUDE + <<~RUBY, "thread")
      puts(storm(5, 20) do
        reader, writer = IO.pipe
        child do
          reader.close
          RingProf.start(**OPTIONS, interval: 20)
          Process.daemon(true, true)
          before = RingProf.running?
          RingProf.start(**OPTIONS, interval: 20)
          Work.burn_slice until RingProf.stats[:recorded] > 5
          RingProf.stop
          writer.print(before, RingProf.results[:samples].positive?)
          exit!(0)
        end
        writer.close
        reader.read == "falsetrue"
      end)
    RUBY
  end

  # storm: how often the block was happy, in a profile that adds up.
  PRELUDE = <<~RUBY
    require "ringprof"
    require "support/work"
    require "torture/scenario"
    require "torture/accounting"
    OPTIONS = { mode: :wall, raw: true, tick: ARGV.first.to_sym }.freeze

    # A child with a process of its own; whether it ended well.
    def child(&block)
      Process.wait2(fork(&block)).last.then { |status| status.success? || warn(status.inspect) }
    end

    # In a child the profile is another one's.
    def storm(count, interval)
      options = { **OPTIONS, interval: interval }
      RingProf.start(**options)
      happy = count.times.count { |number| yield number }
      RingProf.stop
      Torture::Accounting.new(options, Torture::Accounting.settled_stats, RingProf.results).check
      happy
    end
  RUBY
  private_constant :PRELUDE
end
