# frozen_string_literal: true

require "test_helper"

# What a thread was doing: running, waiting for the GVL, blocked, in GC.
class WorkerStatesTest < RingProf::TestCase
  TOLD = RUBY_VERSION >= "3.2"

  def test_sleeping_waiting_and_running
    skip "Ruby #{RUBY_VERSION} does not tell when a thread gives the GVL up: blocked and waiting are one" unless TOLD

    times = nil
    results = RingProf.run(mode: :wall, interval: 1000, threads: :all, raw: true) do
      times = sleep_wait_and_burn
    end
    assert_valid_results(results)
    states = results[:threads].find { |thread| thread[:name] == "subject" }[:states]
    seconds = states.transform_values { |count| count * 1e-3 }
    assert_in_delta times[:blocked], seconds[:blocked], 0.04, "#{states}, #{times}"
    # What another process takes from a thread that has the GVL is not told from its own work.
    assert_in_delta times[:running] + times[:waiting], seconds[:running] + seconds[:waiting], 0.04, "#{states}, #{times}"
    assert_operator seconds[:running], :>, times[:running] - 0.04, "#{states}, #{times}"
    assert_operator seconds[:waiting], :>, 0.2, "#{states}, #{times}"
  end

  def test_a_sleeper_is_blocked_on_its_stack
    skip_at_safepoints
    results = RingProf.run(mode: :wall, interval: 1000, raw: true) { sleep 0.3 }
    assert_valid_results(results)
    frame = results[:frames].each_value.find { |one| one[:name].match?(/\AKernel[.#]sleep\z/) }
    # The whole of it, but for an interval at either end.
    assert_in_delta 300, frame[:samples], 30
    assert_operator frame[:states][:blocked].first, :>=, 0.9 * frame[:samples]
    assert_operator results[:states][:blocked], :>=, frame[:states][:blocked].first
  end

  def test_a_blocked_thread_gets_no_signal
    skip "Ruby #{RUBY_VERSION} does not tell when a thread gives the GVL up" unless TOLD

    RingProf.run(mode: :wall, interval: 100, threads: :all, tick: :thread) do
      sleepers = Array.new(10) { Thread.new { sleep 0.5 } }
      sleep 0.5
      sleepers.each(&:join)
    end
    stats = RingProf.stats
    # 11 threads for 5,000 ticks each, had they been signalled.
    assert_operator stats[:sent], :<, 3000
    assert_operator stats[:tick_thread][:parked], :>, 0
    assert_equal true, stats[:pauses][:told]
    assert_operator stats[:pauses][:credited], :>=, 10
  end

  def test_without_events_a_sleeper_is_left_alone_too
    skip_at_safepoints
    skip "Ruby #{RUBY_VERSION} has the events" if TOLD

    results = RingProf.run(mode: :wall, interval: 100, threads: :all, tick: :thread) do
      sleepers = Array.new(10) { Thread.new { nap } }
      nap
      sleepers.each(&:join)
    end
    # 55,000, had they been signalled at each tick.
    assert_operator RingProf.stats[:sent], :<, 2000
    napping = frame_named(results, "WorkerStatesTest#nap")
    assert_operator napping[:states][:blocked].first, :>, 0.8 * napping[:total_samples]
    assert_in_delta 11 * 5000, napping[:total_samples], 5000
  end

  def test_waits_end_on_time_and_right
    reader, writer = IO.pipe
    queue = Queue.new
    RingProf.start(mode: :wall, interval: 200, threads: :all)
    assert_equal 0, sleep(0.05).clamp(0, 0)
    assert_nil IO.select([reader], nil, nil, 0.05)
    waiter = Thread.new { queue.pop }
    queue << :value
    assert_equal :value, waiter.value
    writer << "x"
    assert_equal [[reader], [], []], IO.select([reader], nil, nil, 5)
    mutex = Mutex.new
    mutex.synchronize { ConditionVariable.new.wait(mutex, 0.05) }
    require "timeout"
    assert_raises(Timeout::Error) { Timeout.timeout(0.05) { sleep 5 } }
    RingProf.stop
    assert_valid_results(RingProf.results)
  ensure
    [reader, writer].compact.each(&:close)
  end

  # A storm of every way to give the GVL up and take it: no thread's state gets stuck, so no time is
  # lost: each thread's samples are its life.
  def test_states_converge_in_a_storm
    skip_at_safepoints
    results = RingProf.run(mode: :wall, interval: 500, threads: :all, raw: true) do
      queue = Queue.new
      mutex = Mutex.new
      sleepers = Array.new(2) { Thread.new { 100.times { sleep 0.001 } } }
      passers = Array.new(2) { Thread.new { 2000.times { Thread.pass } } }
      consumer = Thread.new { nil while queue.pop }
      lockers = Array.new(2) { Thread.new { 500.times { mutex.synchronize { Thread.pass } } } }
      500.times { |number| queue << number }
      queue << nil
      20.times do
        sleepers.each { |thread| thread.wakeup if thread.status == "sleep" }
        Thread.pass
      end
      [*sleepers, *passers, *lockers, consumer].each(&:join)
      burn_cpu(0.1)
    end
    assert_valid_results(results)
    stats = RingProf.stats
    assert_equal stats[:received], stats[:recorded] + stats[:coalesced][:total] + stats[:lost][:total]
    last = results[:raw_sample_timestamps].last
    results[:threads].each do |thread|
      life = ((thread[:died] || last) - thread[:born]) / 500.0
      assert_in_delta life, thread[:samples], 4 + (0.1 * life), thread.inspect
    end
    main = results[:threads].find { |thread| thread[:main] }
    assert_operator main[:states][:running], :>, 100, "it has burnt 200 intervals at the end"
  end

  def test_the_report_has_a_line_for_each_state
    skip_at_safepoints
    results = RingProf.run(mode: :wall, interval: 1000) { sleep 0.05 }
    text = StringIO.new
    RingProf::Report::Text.new(RingProf::Profile.new(results)).write(text)
    assert_match(/^  Blocked: \d+ \(\d+\.\d+%\)$/, text.string)
    assert_match(/^  Waiting for the GVL: \d+/, text.string)
    assert_match(/^  Running: \d+/, text.string)
  end

  private

  def nap
    sleep 0.5
  end

  # Sleeps, waits for the GVL while another thread keeps it, burns; the seconds of each by its clocks.
  def sleep_wait_and_burn
    times = { blocked: 0.0, waiting: 0.0, running: 0.0 }
    hog = nil
    subject = Thread.new do
      Thread.current.name = "subject"
      times[:blocked] = clocked { sleep 1 }
      # Burning against a thread that burns too: whatever is not its own CPU time was waited for.
      hog = Thread.new { burn_slice until subject_done? }
      cpu = 0.0
      wall = clocked { cpu = burnt { burn_cpu(0.5) } }
      @subject_done = true
      times[:running] = cpu
      times[:waiting] = wall - cpu
    end
    subject.join
    hog.join
    times
  ensure
    @subject_done = nil
  end

  def subject_done?
    @subject_done
  end

  def burnt
    before = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID)
    yield
    Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) - before
  end
end
