# frozen_string_literal: true

require "test_helper"

# What the kernel refuses, before a profile or in the midst of it. Each in a process of its own, because
# a system call that is denied stays denied.
class SystemFaultTest < RingProf::TestCase
  # Work is counted in ticks; no clock is read that may be denied.
  SETTING = <<~RUBY
    require "ringprof"
    FAULTS = RingProf::Testing

    def check(truth, *why)
      truth or abort [*why, caller(1..1), RingProf.stats].inspect
    end

    def deadline
      Process.clock_gettime(Process::CLOCK_MONOTONIC) + 60
    end

    def busy_until
      last = deadline
      until yield
        abort "too long: \#{RingProf.stats}" if Process.clock_gettime(Process::CLOCK_MONOTONIC) > last
        1000.times { |number| number.to_s }
      end
    end

    def recorded(more = 20)
      before = RingProf.stats[:recorded]
      busy_until { RingProf.stats[:recorded] >= before + more }
    end

    def profiles(**options)
      RingProf.start(mode: :wall, interval: 500, **options)
      recorded
      check RingProf.stop == true
      check RingProf.stats[:failure].nil?
      check_accounted
      results = RingProf.results
      check results[:samples] >= 20
      results
    end

    def check_accounted
      stats = RingProf.stats
      check stats[:received] == stats[:recorded] + stats[:coalesced][:total] + stats[:lost][:total]
    end

    def threads
      Dir.children("/proc/self/task").length
    end

    # Signals with a handler, as a bit mask.
    def caught
      File.read("/proc/self/status")[/^SigCgt:\\s+(\\h+)/, 1]
    end

    # The message of a start that leaves nothing behind.
    def refused(**options)
      before = [threads, caught]
      RingProf.start(mode: :wall, **options)
      abort "not refused"
    rescue RingProf::Error => e
      check !RingProf.running?
      check RingProf.stop == false
      check RingProf.results.nil?
      check RingProf.stats[:threads].zero?
      # A thread that was joined is gone from the process a moment later.
      busy_until { threads <= before[0] }
      check caught == before[1], before[1], caught
      puts e.message
    end

    def soft_limit(name, number)
      _, hard = Process.getrlimit(name)
      Process.setrlimit(name, number || hard, hard)
    end

    # The profile ends by itself; what was recorded before is all there.
    def fails_while_profiling(mode: :wall, tick: :thread, on_failure: nil)
      RingProf.start(mode: mode, interval: 500, tick: tick, raw: true, on_failure: on_failure)
      recorded
      yield
      busy_until { !RingProf.running? }
      check RingProf.results[:samples] >= 20
    end
  RUBY

  def test_no_timer
    assert_equal ["cannot make a timer (try tick: :thread, or see ulimit -i): Resource temporarily unavailable (os error 11)"], run_lines(<<~RUBY)
      soft_limit(:SIGPENDING, 0)
      refused(tick: :timer)
      soft_limit(:SIGPENDING, nil)
      profiles(tick: :timer)
    RUBY
    %w[timer_create timer_settime].each do |call|
      said = "cannot make a timer (try tick: :thread, or see ulimit -i): Operation not permitted (os error 1)"
      assert_equal [said, said], run_lines(<<~RUBY), call
        FAULTS.deny("#{call}")
        refused(tick: :timer)
        refused(tick: :timer)
        profiles(tick: :thread)
      RUBY
    end
  end

  def test_a_timer_that_some_threads_get
    out = run_lines(<<~RUBY)
      others = Array.new(4) { Thread.new { sleep } }
      Thread.pass until others.all?(&:stop?)
      before = threads
      pending = Integer(File.read("/proc/self/status")[%r{^SigQ:\\s+(\\d+)/}, 1])
      soft_limit(:SIGPENDING, pending + 2)
      begin
        RingProf.start(mode: :cpu, tick: :timer, interval: 500)
      rescue RingProf::Error => e
        puts e.message[/cannot make a timer/]
      end
      check !RingProf.running?
      check RingProf.stats[:threads].zero?
      soft_limit(:SIGPENDING, nil)
      profiles(tick: :timer)
    RUBY
    assert_equal ["cannot make a timer"], out
  end

  # The kernel then sends the signal without the value that says whose tick it is.
  def test_no_room_in_the_queue_of_signals
    assert_empty run_lines(<<~RUBY)
      soft_limit(:SIGPENDING, 0)
      profiles(tick: :thread)
      check RingProf.stats[:foreign].zero?
    RUBY
  end

  # A real-time signal is not sent at all then. It may be for a moment; a second of it ends the profile.
  def test_no_room_for_real_time_signals
    out, err, status = capture_ruby(<<~RUBY)
      #{SETTING}
      trap("PROF") {}
      fails_while_profiling(on_failure: :warn) { soft_limit(:SIGPENDING, 0) }
      check RingProf.stats[:signal] == "RTMAX-0"
      puts RingProf.stats[:failure]
    RUBY
    assert_predicate status, :success?, "#{status}\n#{out}\n#{err}"
    assert_equal "the kernel refuses to send ticks: Resource temporarily unavailable (os error 11)\n", out
  end

  def test_no_thread
    out = run_lines(<<~RUBY)
      # The C library takes a signal for itself with the first thread.
      Thread.new {}.join
      %w[clone3 clone].each { |call| FAULTS.deny(call) }
      refused(tick: :thread)
      profiles(tick: :timer)
    RUBY
    assert_equal ["cannot make the tick thread (try tick: :timer, or see ulimit -u): Operation not permitted (os error 1)"], out
  end

  def test_no_thread_for_this_user
    out = run_lines(<<~RUBY)
      # The C library takes a signal for itself with the first thread.
      Thread.new {}.join
      # The limit does not hold for root.
      Process::UID.change_privilege(65_534) if Process.uid.zero?
      soft_limit(:NPROC, 0)
      refused(tick: :thread)
      soft_limit(:NPROC, nil)
      profiles(tick: :thread)
    RUBY
    assert_equal ["cannot make the tick thread (try tick: :timer, or see ulimit -u): Resource temporarily unavailable (os error 11)"], out
  end

  def test_no_signal_to_a_thread
    out = run_lines(<<~RUBY)
      FAULTS.deny("rt_tgsigqueueinfo")
      refused(tick: :thread)
      profiles(tick: :timer)
    RUBY
    assert_equal ["the kernel refuses to signal a thread (try tick: :timer): Operation not permitted (os error 1)"], out
  end

  def test_no_cpu_clock
    out = run_lines(<<~RUBY)
      FAULTS.deny("clock_gettime")
      %i[thread timer].each { |tick| refused(tick: tick) }
      RingProf.start(mode: :custom)
      RingProf.sample
      RingProf.stop
      check RingProf.results[:samples] == 1
    RUBY
    assert_equal ["the kernel refuses to tell the CPU time of threads: Operation not permitted (os error 1)"] * 2, out
  end

  def test_no_handler
    out = run_lines(<<~RUBY)
      FAULTS.deny("rt_sigaction")
      refused
    RUBY
    assert_equal ["the kernel refuses to tell who handles signals: Operation not permitted (os error 1)"], out
  end

  def test_no_priority
    assert_empty run_lines(<<~RUBY)
      FAULTS.deny("sched_setscheduler")
      profiles(tick: :thread)
      check RingProf.stats[:tick_realtime] == false
    RUBY
  end

  def test_every_signal_is_taken
    out = run_lines(<<~RUBY)
      # 32 and 33 are the C library's own.
      taken = ["PROF", *34..64]
      taken.each { |signal| trap(signal) {} }
      refused
      trap(64, "DEFAULT")
      profiles
      check RingProf.stats[:signal] == "RTMAX-0"
    RUBY
    assert_equal ["every signal that ringprof could use (SIGPROF, SIGRTMIN to SIGRTMAX) has a handler already"], out
  end

  def test_signals_are_denied_while_profiling
    out, err, status = capture_ruby(<<~RUBY)
      #{SETTING}
      other = Thread.new { 1 + 1 while true }
      RingProf.start(mode: :wall, interval: 500, tick: :thread, raw: true)
      recorded
      before = RingProf.stats[:recorded]
      FAULTS.deny("rt_tgsigqueueinfo")
      busy_until { !RingProf.running? }
      stats = RingProf.stats
      check stats[:failure] == "the kernel refuses to send ticks: Operation not permitted (os error 1)"
      check stats[:unsent] >= 1
      check stats[:recorded] >= before
      check RingProf.sample == false
      begin
        RingProf.stop
        abort "stop did not raise"
      rescue RingProf::Error => e
        puts e.message
      end
      check RingProf.stop == false
      check_accounted
      results = RingProf.results
      check results[:samples] >= 20
      # What nobody saw is credited to no stack, and all the time is there.
      stats = RingProf.stats
      check results[:missed_samples] == stats[:missed_samples]
      elapsed = stats[:elapsed_ns] / 500_000
      check (elapsed - results[:samples] - results[:missed_samples]).between?(-1, 2), elapsed, results[:samples]
      check other.alive?
      begin
        RingProf.start(mode: :wall, tick: :thread)
        abort "not refused"
      rescue RingProf::Error
        profiles(tick: :timer)
      end
    RUBY
    assert_predicate status, :success?, "#{status}\n#{out}\n#{err}"
    reason = "the kernel refuses to send ticks: Operation not permitted (os error 1)"
    assert_equal "the profile has ended before stop: #{reason}; what was recorded is kept, see results\n", out
    assert_equal "ringprof: the profile has ended: #{reason}; what was recorded is kept\n", err
  end

  def test_clocks_are_denied_while_profiling
    [%i[wall thread], %i[cpu thread], %i[cpu timer]].each do |mode, tick|
      out, err, status = capture_ruby(<<~RUBY)
        #{SETTING}
        fails_while_profiling(mode: :#{mode}, tick: :#{tick}) { FAULTS.deny("clock_gettime") }
        begin
          RingProf.stop
        rescue RingProf::Error
          puts RingProf.stats[:failure]
        end
      RUBY
      assert_predicate status, :success?, "#{mode} #{tick} #{status}\n#{out}\n#{err}"
      assert_equal "the kernel refuses to tell the CPU time of threads: Operation not permitted (os error 1)\n", out
      assert_equal 1, err.lines.length, err
    end
  end

  def test_whoever_wants_no_exception_gets_none
    [["on_failure: :warn", {}], ["on_failure: nil", { "RINGPROF_ON_FAILURE" => "warn" }]].each do |option, env|
      out, err, status = capture_ruby(<<~RUBY, env: env)
        #{SETTING}
        fails_while_profiling(#{option}) { FAULTS.deny("rt_tgsigqueueinfo") }
        print RingProf.stop, RingProf.stop, RingProf.stats[:failure].nil?
      RUBY
      assert_predicate status, :success?, "#{status}\n#{out}\n#{err}"
      assert_equal "truefalsefalse", out
      assert_equal 1, err.lines.length, err
    end
    error = assert_raises(ArgumentError) { RingProf.start(on_failure: :cry) }
    assert_equal "on_failure is :raise or :warn", error.message
  end

  # An exception of the program's own is not replaced by ours.
  def test_a_failure_inside_of_run
    out, err, status = capture_ruby(<<~RUBY)
      #{SETTING}
      [-> {}, -> { raise "mine" }, -> { throw :mine }].each do |leave|
        caught = catch(:mine) do
          RingProf.run(mode: :custom) do
            RingProf.sample
            FAULTS.fail_allocation = 1
            FAULTS.drain
            FAULTS.fail_allocation = 0
            check !RingProf.running?
            leave.call
          end
          abort "run did not raise"
        rescue RingProf::Error, RuntimeError => e
          e.message[/no memory|mine/]
        end
        puts caught.inspect
        results = RingProf.results
        check results[:samples] + results[:missed_samples] == 1, results
      end
    RUBY
    assert_predicate status, :success?, "#{status}\n#{out}\n#{err}"
    assert_equal "\"no memory\"\n\"mine\"\nnil\n", out
  end

  def test_a_panic_in_a_call_is_an_error_and_ends_the_profile
    out, err, status = capture_ruby(<<~RUBY)
      #{SETTING}
      RingProf.start(mode: :custom)
      RingProf.sample
      FAULTS.plant_panic = true
      begin
        FAULTS.drain
      rescue RingProf::Error => e
        puts e.message
      end
      check !RingProf.running?
      begin
        RingProf.stop
      rescue RingProf::Error => e
        puts e.message[/ended before stop: internal error/]
      end
      check RingProf.results[:missed_samples] == 1
      profiles
      check RingProf.stats[:failure].nil?
    RUBY
    assert_predicate status, :success?, "#{status}\n#{out}\n#{err}"
    assert_equal "internal error: planted\nended before stop: internal error\n", out
  end

  # In a job that the VM runs for us, where nothing may be raised.
  def test_a_panic_in_a_job_ends_the_profile_and_not_the_program
    out, err, status = capture_ruby(<<~RUBY)
      #{SETTING}
      def deep(depth, &block)
        depth.zero? ? block.call : deep(depth - 1, &block)
      end
      RingProf.start(mode: :wall, interval: 100, buffer: 131_072)
      FAULTS.plant_panic = true
      last = deadline
      depth = 0
      while RingProf.running?
        abort "no drain" if Process.clock_gettime(Process::CLOCK_MONOTONIC) > last
        deep(depth = (depth + 1) % 300) { 200.times { |number| number.to_s } }
      end
      begin
        RingProf.stop
      rescue RingProf::Error => e
        puts e.message[/internal error/]
      end
      results = RingProf.results
      check results[:missed_samples] >= 1
      profiles
    RUBY
    assert_predicate status, :success?, "#{status}\n#{out}\n#{err}"
    assert_equal "internal error\n", out
    assert_equal ["ringprof: the profile has ended: internal error: a panic, whose message was printed; what was recorded is kept\n"],
                 err.lines.grep(/^ringprof/)
  end

  def test_no_descriptor_is_free
    in_directory do |directory|
      assert_empty run_lines(<<~RUBY, directory)
        require "tmpdir"
        soft_limit(:NOFILE, 64)
        files = []
        begin
          loop { files << File.open(File::NULL) }
        rescue Errno::EMFILE
          nil
        end
        RingProf.start(mode: :wall, interval: 500)
        busy_until { RingProf.stats[:recorded] >= 20 }
        RingProf.stop
        path = File.join(ARGV.fetch(0), "profile.dump")
        begin
          RingProf.results(path)
          abort "it was opened"
        rescue Errno::EMFILE
          files.each(&:close)
        end
        RingProf.results(path).close
        check Marshal.load(File.binread(path))[:samples] >= 20
      RUBY
    end
  end

  def test_no_proc
    script = "#{SETTING}\ncheck !File.exist?('/proc/self')\nprofiles(tick: :auto)\nprofiles(mode: :cpu)\nprint :done"
    command = [RbConfig.ruby, "-w", *Subprocess::INCLUDES, "-e", script]
    hide = ["unshare", *("--map-root-user" unless Process.uid.zero?), "--mount", "sh", "-c", "mount -t tmpfs none /proc && exec \"$@\"", "sh"]
    skip "this system lets nobody make a mount namespace" unless system(*hide, "true", err: File::NULL)
    out, err, status = capture([*hide, *command])
    assert_predicate status, :success?, "#{status}\n#{out}\n#{err}"
    assert_equal "done", out
  end

  def test_closed_streams
    in_directory do |directory|
      path = File.join(directory, "profile.dump")
      script = <<~RUBY
        #{SETTING}
        [$stdin, $stdout, $stderr].each(&:close) if ARGV.delete("close")
        fails_while_profiling(on_failure: :warn) { FAULTS.deny("rt_tgsigqueueinfo") }
        RingProf.start(mode: :custom, out: ARGV.fetch(0))
        RingProf.sample
        RingProf.stop
        RingProf.results.close
      RUBY
      { ["close"] => { err: File::NULL }, [] => { out: :close, err: :close } }.each do |arguments, streams|
        pid = Process.spawn(RbConfig.ruby, *Subprocess::INCLUDES, "-e", script, path, *arguments, streams)
        status = wait_for(pid, 120) || flunk("still running")
        assert_predicate status, :success?, "#{arguments} #{streams} #{status}"
        assert_equal 1, Marshal.load(File.binread(path))[:samples]
        File.delete(path)
      end
    end
  end

  private

  # The lines that a script prints, which must succeed and say nothing on stderr.
  def run_lines(script, *arguments)
    out, err, status = capture_ruby("#{SETTING}\n#{script}", *arguments)
    assert_predicate status, :success?, "#{status}\n#{out}\n#{err}"
    assert_empty err
    out.lines(chomp: true)
  end

  def in_directory(&block)
    Dir.mktmpdir("ringprof-test", &block)
  end
end
