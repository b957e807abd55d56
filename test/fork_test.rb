# frozen_string_literal: true

require "test_helper"

class ForkTest < RingProf::TestCase
  PRELUDE = <<~RUBY
    require "ringprof"
    require "support/work"
    def in_child
      reader, writer = IO.pipe
      pid = fork do
        reader.close
        writer.write(Marshal.dump(yield))
        writer.close
        exit! 0
      end
      writer.close
      value = reader.read
      Process.wait(pid)
      raise "the child died: \#{$?}" unless $?.success?
      Marshal.load(value)
    end
  RUBY

  def test_the_child_is_not_profiled_and_the_parent_goes_on
    %w[wall cpu object custom].each do |mode|
      script = <<~RUBY
        RingProf.start(mode: :#{mode}, interval: 100, raw: true)
        Work.burn_cpu(0.05)
        p in_child { [RingProf.running?, RingProf.stop, RingProf.results, RingProf.sample] }
        p RingProf.running?
        5.times { RingProf.sample }
        Work.burn_cpu(0.05)
        p RingProf.stop
        p RingProf.results[:samples] >= 5
      RUBY
      assert_equal "[false, false, nil, false]\ntrue\ntrue\ntrue\n", ruby!(PRELUDE + script), mode
    end
  end

  def test_the_parents_profile_goes_on_after_a_fork
    script = <<~RUBY
      RingProf.start(mode: :cpu, interval: 1000)
      Process.wait(fork { exit! 0 })
      def after_the_fork = Work.burn_cpu(0.3)
      after_the_fork
      RingProf.stop
      frame = RingProf.results[:frames].each_value.find { |one| one[:name].end_with?("after_the_fork") }
      p frame && frame[:total_samples] > 50
    RUBY
    assert_equal "true\n", ruby!(PRELUDE + script)
  end

  # Before Ruby 3.2 the VM goes on telling the id that the main thread had in the parent.
  def test_a_thread_of_the_child_finds_the_main_thread
    script = <<~RUBY
      p(in_child do
        busy = true
        profile = Thread.new do
          results = RingProf.run(mode: :wall, interval: 1000, threads: :all) { sleep 0.2 }
          busy = false
          results
        end
        Work.burn_slice while busy
        main = profile.value[:threads].find { |thread| thread[:main] }
        [main && main[:native_id] == Process.pid, main && main[:samples] > 50]
      end)
    RUBY
    assert_equal "[true, true]\n", ruby!(PRELUDE + script)
  end

  def test_the_child_can_profile_itself
    %w[thread timer].each do |tick|
      script = <<~RUBY
        RingProf.start(mode: :wall, interval: 1000, tick: :#{tick})
        def in_parent = Work.burn_cpu(0.1)
        def below = Work.burn_cpu(0.2)
        in_parent
        names = in_child do
          RingProf.run(mode: :cpu, interval: 1000, tick: :#{tick}) { below }[:frames].each_value.map { |frame| frame[:name] }
        end
        p names.include?("Object#below"), names.include?("Object#in_parent")
        p RingProf.stop
      RUBY
      assert_equal "true\nfalse\ntrue\n", ruby!(PRELUDE + script), tick
    end
  end

  def test_samples_of_the_parent_are_not_the_childs
    script = <<~RUBY
      RingProf.start(mode: :custom)
      10.times { RingProf.sample }
      RingProf.stop
      p in_child { [RingProf.results, RingProf.run(mode: :custom) { RingProf.sample }[:samples]] }
      p RingProf.results[:samples]
    RUBY
    assert_equal "[nil, 1]\n10\n", ruby!(PRELUDE + script)
  end

  def test_children_of_children_and_of_threads
    script = <<~RUBY
      RingProf.start(mode: :cpu, interval: 100)
      values = 10.times.map { Thread.new { in_child { [RingProf.running?, in_child { RingProf.running? }] } }.value }
      p values.uniq, RingProf.stop
    RUBY
    assert_equal "[[false, false]]\ntrue\n", ruby!(PRELUDE + script)
  end

  def test_commands_are_started_with_clean_signals
    script = <<~RUBY
      RingProf.start(mode: :wall, interval: 100)
      Work.burn_cpu(0.02)
      status = "exec ruby -e 'Process.setproctitle(%q(x)); print File.read(%q(/proc/self/status))[/^SigIgn.*/], File.read(%q(/proc/self/status))[/^SigBlk.*/]'"
      during = IO.popen(["sh", "-c", status], &:read)
      system("exit 3")
      p $?.exitstatus
      p `sleep 0.1; echo slept`
      20.times { raise unless system("true") }
      RingProf.stop
      p during == IO.popen(["sh", "-c", status], &:read)
      p during[/SigIgn:\\s*(\\h+)/, 1].to_i(16)[26], during[/SigIgn:\\s*(\\h+)/, 1].to_i(16)[13]
    RUBY
    assert_equal "3\n\"slept\\n\"\ntrue\n0\n0\n", ruby!(PRELUDE + script)
  end

  def test_exec_while_profiling_does_not_kill_the_new_program
    %w[wall cpu].product(%w[thread timer]).each do |mode, tick|
      script = <<~RUBY
        RingProf.start(mode: :#{mode}, interval: 100, tick: :#{tick})
        Work.burn_cpu(0.02)
        exec("sh", "-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; echo survived")
      RUBY
      assert_equal "survived\n", ruby!(PRELUDE + script), "#{mode} #{tick}"
    end
  end

  def test_a_daemon_is_a_clean_child
    script = <<~RUBY
      reader, writer = IO.pipe
      RingProf.start(mode: :wall, interval: 100)
      fork do
        Process.daemon(true, true)
        Work.burn_cpu(0.05)
        writer.print RingProf.running?.inspect, " ", RingProf.run(mode: :custom) { RingProf.sample }[:samples]
        exit! 0
      end
      writer.close
      print reader.read
    RUBY
    assert_equal "false 1", ruby!(PRELUDE + script)
  end
end
