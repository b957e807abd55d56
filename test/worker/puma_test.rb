# frozen_string_literal: true

require "test_helper"
require "support/serving"

# A real server under load, profiled from the master on: Puma in cluster mode with an application that computes, sleeps and asks
# PostgreSQL. The profile of each worker is held against the application's own account of its time.
#
# bench/puma.rb is the long form, and measures what it costs.
class WorkerPumaTest < RingProf::TestCase
  INTERVAL = 1000
  SECONDS = 6
  CONNECTIONS = 6
  # Part of the time by which sums may be off, and number of intervals.
  TOLERANCE = 0.02
  INTERVALS = 4

  class << self
    def missing
      @missing ||= Serving.missing
    end

    # Making one takes a while, so all tests share it.
    def database
      @database ||= Serving::Database.new.start.tap { |database| Minitest.after_run { database.stop } }
    end
  end

  def setup
    super
    skip self.class.missing.join("; ") unless self.class.missing.empty?
  end

  def test_the_profile_of_each_worker_is_its_elapsed_time
    skip_at_safepoints
    serve(mode: :wall) do |server|
      loaded = load(server)
      assert_predicate server.stop(:TERM), :signaled?
      assert_served(server, loaded)
      server.ever.each do |pid|
        assert_elapsed(server, pid)
        assert_methods(server.profile(pid), server.account(pid))
        assert_states(server.profile(pid))
      end
      assert_master(server)
    end
  end

  def test_the_profile_of_each_worker_is_its_cpu_time
    skip_at_safepoints
    serve(mode: :cpu, raw: true) do |server|
      loaded = load(server)
      assert_predicate server.stop(:INT), :success?
      assert_served(server, loaded)
      server.ever.each { |pid| assert_cpu(server, pid) }
      assert_master(server)
    end
  end

  def test_a_worker_that_is_killed_harms_nobody_and_its_successor_is_profiled
    serve(mode: :cpu_and_wall) do |server|
      load(server, seconds: 1)
      killed, other = server.ever
      Process.kill(:KILL, killed)
      server.booted(3)
      successor = server.ever.last
      loaded = load(server, seconds: 3)
      assert_equal 0, loaded.failed, loaded.errors
      server.stop(:TERM)
      assert_equal profiles(server, server.pid, other, successor), dumps(server)
      [other, successor].each do |pid|
        assert_operator server.account(pid)[:requests], :>, 0
        assert_elapsed(server, pid) unless at_safepoints?
      end
    end
  end

  # The application is loaded by each worker, and the master starts the profiler in Puma's own configuration.
  def test_workers_that_are_replaced_in_phases_leave_their_profiles
    skip_at_safepoints
    serve(mode: :wall, preload: false) do |server|
      clients = Thread.new { load(server, seconds: 5) }
      sleep 1
      Process.kill(:USR1, server.pid)
      server.booted(4)
      loaded = clients.value
      server.stop(:TERM)
      assert_equal 4, server.ever.uniq.size
      assert_served(server, loaded)
      server.ever.each { |pid| assert_elapsed(server, pid) }
    end
  end

  private

  def serve(preload: true, **profile)
    server = Serving::Server.new(database: self.class.database, includes: [RingProf::Native.directory, "#{Subprocess::ROOT}/lib"],
                                 profile: { interval: INTERVAL, **profile }, preload: preload)
    yield server.start
    assert_empty server.log.lines.grep(/ringprof: |warning: /)
  ensure
    server&.close
  end

  def load(server, seconds: SECONDS)
    Serving::Load.new(server.url, connections: CONNECTIONS, seconds: seconds).run
  end

  # No request has failed, all were served by workers, each of which served some, and each has a file.
  def assert_served(server, loaded)
    assert_equal 0, loaded.failed, loaded.errors
    served = server.ever.map { |pid| server.account(pid)[:requests] }
    assert_operator served.min, :>, 0, served
    # When the clients leave, each may have a request under way.
    assert_includes loaded.requests..(loaded.requests + CONNECTIONS), served.sum
    assert_equal profiles(server, server.pid, *server.ever), dumps(server)
  end

  def profiles(server, *pids)
    pids.map { |pid| server.profile_name(pid) }.sort
  end

  def dumps(server)
    Dir.children(server.directory).grep(/\Aprofile\.dump/).sort
  end

  # Each thread's weights are its life.
  def assert_elapsed(server, pid)
    results = server.profile(pid)
    assert_valid_results(results)
    assert_equal 0, results[:missed_samples]
    threads = results[:threads]
    assert_equal (1..5).map { |number| format("%03d", number) }, threads.filter_map { |thread| thread[:name]&.slice(/tp (\d+)\z/, 1) }.sort
    main = threads.select { |thread| thread[:main] }
    assert_equal 1, main.size
    # The thread that forked is there from the start on.
    stopped = main.first[:born] + (server.stats(pid)[:elapsed_ns] / 1000)
    threads.each do |thread|
      life = ((thread[:died] || stopped) - thread[:born]).fdiv(INTERVAL)
      assert_in_delta life, thread[:samples], (TOLERANCE * life) + INTERVALS, thread.inspect
    end
  end

  # All of the process's CPU time, but for the tick thread's.
  def assert_cpu(server, pid)
    results = server.profile(pid)
    assert_valid_results(results)
    assert_equal 0, results[:missed_samples]
    cpu = server.account(pid)[:cpu] - (server.stats(pid)[:tick_thread][:cpu_ns] / 1e9)
    told = results[:samples] * INTERVAL / 1e6
    assert_in_delta cpu, told, TOLERANCE * cpu, results[:threads].map { |thread| thread.slice(:name, :samples) }
  end

  # Time in each of the application's methods, as it was told by its own clocks. Samples are few, and what a time is spent on
  # changes between two of them.
  def assert_methods(results, account)
    %i[compute rest query].each do |part|
      told = frame_named(results, "Application##{part}")[:total_samples] * INTERVAL / 1e6
      assert_in_delta 1.0, told / account[part], 0.3, "#{part}: #{told} s of #{account[part]} s"
    end
  end

  def assert_states(results)
    shares = %i[compute rest query].to_h { |part| [part, shares_of(frame_named(results, "Application##{part}"))] }
    %i[rest query].each do |part|
      # Then it waits for the GVL.
      assert_operator shares[part][:blocked], :>, 0.2, shares
      assert_operator shares[part][:running], :<, 0.2, shares
    end
    assert_operator shares[:compute][:running], :>, 0.3, shares
    # Before 3.2 waiting is not told from blocked.
    assert_operator shares[:compute][:blocked], :<, 0.2, shares if RUBY_VERSION >= "3.2"
  end

  def shares_of(frame)
    total = frame[:total_samples].to_f
    frame.fetch(:states) { { running: [total], blocked: [0] } }.transform_values { |(whole, _own)| whole / total }
  end

  # It has done no work but its own.
  def assert_master(server)
    results = server.profile(server.pid)
    assert_valid_results(results)
    names = results[:frames].each_value.map { |frame| frame[:name] }
    assert_includes names, "Puma::Cluster#run"
    assert_empty names.grep(/\AApplication#(compute|rest|query)/)
  end
end
