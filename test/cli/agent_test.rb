# frozen_string_literal: true

require "socket"
require "test_helper"
require "support/cli_testing"

# Programs that are profiled without a line of their code: by a signal, over a socket, with their children.
class AgentTest < RingProf::TestCase
  include CliTesting

  # Works until it is told to stop by a file.
  WORKER = "def busy(n = 15) = n < 2 ? n : busy(n - 1) + busy(n - 2); busy until File.exist?('stop')"

  def test_ringprof_in_the_environment_decides
    in_directory do |dir|
      autorun("1", chdir: dir, RINGPROF: "0")
      assert_empty Dir.children(dir)
      autorun("1", chdir: dir, RINGPROF: "1", RINGPROF_OUT: "p.dump")
      assert_equal ["p.dump"], Dir.children(dir)
      _, err, status = autorun("1", chdir: dir, RINGPROF_TOGGLE: "USR2", RINGPROF_OUT: "q.dump")
      assert_equal ["", 0], [err, status.exitstatus]
      assert_equal ["p.dump"], Dir.children(dir)
    end
  end

  def test_all_settings_reach_the_profile
    in_directory do |dir|
      settings = { RINGPROF_MODE: "cpu_and_wall", RINGPROF_INTERVAL: "200", RINGPROF_RAW: "1", RINGPROF_THREADS: "current",
                   RINGPROF_MAX_OVERHEAD: "0.5", RINGPROF_MAX_MEMORY: "1048576", RINGPROF_OUT: "p.dump", RINGPROF_TICK: "thread" }
      _, err, = autorun("Thread.new { #{CliTesting.spin("aside")} }.join; #{BUSY}", chdir: dir, **settings)
      assert_equal "RingProf results dumped at: #{File.realpath(dir)}/p.dump\n", err.sub(dir, File.realpath(dir))
      results = load_profile("#{dir}/p.dump")
      assert_equal [:cpu_and_wall, 200, true], [results[:mode], results[:interval], results.key?(:raw)]
      assert_includes names(results), "Object#busy"
      refute_includes names(results), "Object#aside"
      notes = results[:metadata][:ringprof]
      assert_equal :thread, notes[:stats][:tick]
      assert_kind_of Integer, notes[:pid]
    end
  end

  def test_a_signal_starts_and_stops
    in_directory do |dir|
      with_worker(dir, RINGPROF_TOGGLE: "USR2", RINGPROF_OUT: "p.dump") do |pid|
        2.times do |round|
          Process.kill(:USR2, pid)
          until_true { File.read("#{dir}/err").scan("is being profiled").length == round + 1 }
          sleep 0.1
          Process.kill(:USR2, pid)
          until_true { File.exist?(round.zero? ? "#{dir}/p.dump" : "#{dir}/p.dump-2") }
        end
      end
      ["p.dump", "p.dump-2"].each do |name|
        results = load_profile("#{dir}/#{name}")
        assert_valid_results(results)
        assert_includes names(results), "Object#busy"
      end
      assert_equal %w[err p.dump p.dump-2 stop up], Dir.children(dir).sort
    end
  end

  def test_a_signal_stops_what_runs_from_the_start
    in_directory do |dir|
      with_worker(dir, RINGPROF: "1", RINGPROF_TOGGLE: "SIGUSR1", RINGPROF_THREADS: "current", RINGPROF_OUT: "p.dump") do |pid|
        sleep 0.2
        Process.kill(:USR1, pid)
        until_true { File.exist?("#{dir}/p.dump") }
      end
      assert_includes names(load_profile("#{dir}/p.dump")), "Object#busy"
    end
  end

  def test_a_signal_that_the_program_takes_is_the_programs
    _, err, status = autorun("trap(:USR2) { puts :mine }; Process.kill(:USR2, $$); sleep 0.01", RINGPROF_TOGGLE: "USR2", RINGPROF_OUT: File::NULL)
    assert_equal 0, status.exitstatus
    assert_equal "ringprof: RINGPROF_TOGGLE=USR2 is of no use here: the program handles that signal\n", err
    %w[PROF KILL SEGV].each do |name|
      _, err, status = autorun("1", RINGPROF_TOGGLE: name)
      assert_equal 1, status.exitstatus
      assert_match(/\Aringprof: .*#{name}.*\n\z/, err)
    end
  end

  def test_the_socket_starts_stops_and_rotates
    in_directory do |dir|
      with_worker(dir, RINGPROF_SOCKET: "s", RINGPROF_OUT: "p.dump") do |pid|
        socket = until_socket("#{dir}/s")
        assert_equal 0o600, File.stat(socket).mode & 0o777
        status = ask(socket, "status")
        assert_includes status, "recording false"
        assert_includes status, "pid #{pid}"
        assert_match(/\Aerror no profile is being taken$/, raw_ask(socket, "stop"))
        assert_equal [], ask(socket, "start")
        assert_match(/\Aerror a profile is being taken already$/, raw_ask(socket, "start"))
        sleep 0.1
        assert_equal ["#{dir}/first"], ask(socket, "rotate #{dir}/first").map { |path| path.sub(File.realpath(dir), dir) }
        assert_includes ask(socket, "status"), "recording true"
        assert_match(/^ringprof_running 1$/, ask(socket, "stats").join("\n"))
        sleep 0.1
        assert_equal 1, ask(socket, "rotate").length
        sleep 0.1
        assert_equal ["p.dump-2"], ask(socket, "stop").map { |path| File.basename(path) }
        assert_match(/^ringprof_running 0$/, ask(socket, "stats").join("\n"))
      end
      %w[first p.dump p.dump-2].each do |name|
        results = load_profile("#{dir}/#{name}")
        assert_valid_results(results)
        assert_includes names(results), "Object#busy", name
      end
      refute_path_exists "#{dir}/s"
    end
  end

  # The parts that were looked at are the whole, but for the moments in which they were.
  def test_looking_loses_next_to_nothing
    clock = "Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID)"
    script = "from = #{clock}; #{WORKER}; File.write('cpu', (#{clock} - from).to_s)"
    in_directory do |dir|
      with_worker(dir, script: script, RINGPROF: "1", RINGPROF_SOCKET: "s", RINGPROF_OUT: "p.dump", RINGPROF_RAW: "1", RINGPROF_MODE: "cpu", RINGPROF_INTERVAL: "500") do
        socket = until_socket("#{dir}/s")
        10.times do
          sleep 0.1
          assert ask(socket, "top").any? { |line| line.match?(/\Aframe \d+ \d+ \d+ \d+ Object#busy\t-e\t1\z/) }
        end
      end
      results = load_profile("#{dir}/p.dump")
      assert_valid_times(results)
      assert_equal results[:samples], raw_groups(results).sum(&:weight)
      notes = results[:metadata][:ringprof]
      assert_equal 10, notes[:gaps][:count]
      assert_operator notes[:gaps][:max_ns], :<=, notes[:gaps][:total_ns]
      # Each of the living is one thread, however many parts it is in.
      living = results[:threads].reject { |thread| thread[:died] }.map { |thread| thread[:native_id] }
      assert_equal living.uniq, living
      # Ten looks, a few milliseconds each.
      assert_in_delta File.read("#{dir}/cpu").to_f, results[:samples] * 0.0005, 0.2 * File.read("#{dir}/cpu").to_f
      assert_operator notes[:stats][:recorded], :>, 0
    end
  end

  def test_who_looks_is_not_in_the_picture
    in_directory do |dir|
      with_worker(dir, RINGPROF: "1", RINGPROF_SOCKET: "s", RINGPROF_OUT: "p.dump") do
        socket = until_socket("#{dir}/s")
        5.times { sleep(0.05) && ask(socket, "top") }
        5.times { ask(socket, "status") }
      end
      results = load_profile("#{dir}/p.dump")
      assert_empty results[:threads].map { |thread| thread[:name] }.compact
      ours = results[:frames].values.select { |frame| frame[:file].include?("/ringprof/agent") }.sum { |frame| frame[:total_samples] }
      # What a thread that stops and starts the profile for us is seen doing.
      assert_operator ours, :<, results[:samples] / 20 + 5
    end
  end

  def test_a_wrong_request_is_answered_and_does_no_harm
    in_directory do |dir|
      with_worker(dir, RINGPROF_SOCKET: "s", RINGPROF_OUT: "p.dump") do
        socket = until_socket("#{dir}/s")
        assert_match(/\Aerror no such request: nonsense/, raw_ask(socket, "nonsense"))
        assert_match(/\Aerror invalid value/, raw_ask(socket, "top many"))
        ask(socket, "start")
        assert_match(/\Aerror .*No such file or directory/, raw_ask(socket, "rotate /nonexistent/x"))
        assert_empty raw_ask(socket, "x" * 10_000)
        UNIXSocket.new(socket).close
        UNIXSocket.new(socket).tap { |half| half.write("sta") }.close
        assert_includes ask(socket, "status"), "recording true"
      end
      assert_path_exists "#{dir}/p.dump"
    end
  end

  def test_a_socket_that_is_in_the_way
    in_directory do |dir|
      File.write("#{dir}/file", "")
      _, err, status = autorun("print :ran", chdir: dir, RINGPROF_SOCKET: "file", RINGPROF: "1")
      assert_equal 0, status.exitstatus
      assert_match(%r{\Aringprof: no profile: .*/file is there already and no socket\n\z}, err)
      UNIXServer.open("#{dir}/taken") do
        _, err, = autorun("print :ran", chdir: dir, RINGPROF_SOCKET: "taken", RINGPROF: "1")
        assert_match(%r{\Aringprof: no profile: another process answers at .*/taken\n\z}, err)
      end
      # It is closed, and its file is left.
      assert File.socket?("#{dir}/taken")
      autorun("exit 3", chdir: dir, RINGPROF_SOCKET: "taken", RINGPROF: "1", RINGPROF_OUT: "p.dump")
      assert_path_exists "#{dir}/p.dump"
      refute_path_exists "#{dir}/taken"
      _, err, status = autorun("1", chdir: dir, RINGPROF_SOCKET: "taken", RINGPROF_THREADS: "current")
      assert_equal [1, "ringprof: RINGPROF_THREADS=current does not go with RINGPROF_SOCKET\n"], [status.exitstatus, err]
    end
  end

  # A master that forks its workers and knows nothing of us.
  def test_a_preforking_master
    master = <<~RUBY
      def serve(n = 15) = n < 2 ? n : serve(n - 1) + serve(n - 2)
      trap(:TERM) { exit }
      workers = Array.new(3) { |number| fork { trap(:TERM) { number.zero? ? exit!(0) : exit }; File.write("up.\#{$$}", ""); serve while true } }
      at_exit { workers.each { |pid| Process.kill(:TERM, pid) }.each { |pid| Process.wait(pid) } if Process.pid == #{"$master"} }
      sleep
    RUBY
    in_directory do |dir|
      with_worker(dir, script: "$master = $$; #{master}", stop: :TERM, RINGPROF: "1", RINGPROF_SOCKET: "s", RINGPROF_OUT: "p.dump") do |pid|
        until_true { Dir.glob("#{dir}/up.*").length == 3 }
        sleep 0.2
        workers = Dir.glob("#{dir}/up.*").map { |path| path[/\d+\z/].to_i }
        workers.each do |worker|
          socket = until_socket("#{dir}/s.#{worker}")
          assert_includes ask(socket, "status"), "pid #{worker}"
          assert_includes ask(socket, "status"), "recording true"
        end
        assert_includes ask("#{dir}/s", "status"), "pid #{pid}"
      end
      files = Dir.glob("#{dir}/p.dump*").sort
      assert_equal 4, files.length
      own, *others = files.map { |path| load_profile(path) }
      [own, *others].each { |results| assert_valid_results(results) }
      refute_includes names(own), "Object#serve"
      others.each { |results| assert_includes names(results), "Object#serve" }
      assert_equal others.map { |results| results[:metadata][:ringprof][:pid] }.sort, files.drop(1).map { |path| path[/\d+\z/].to_i }.sort
      assert_empty Dir.glob("#{dir}/s*")
    end
  end

  def test_a_child_of_one_that_waits_can_be_started_by_itself
    script = "pid = fork { #{WORKER} }; Process.wait(pid)"
    in_directory do |dir|
      with_worker(dir, script: script, RINGPROF_SOCKET: "%p.s", RINGPROF_OUT: "p.dump") do |pid|
        child = until_true { Dir.glob("#{dir}/*.s").find { |path| !path.end_with?("/#{pid}.s") } }
        until_true { ask(until_socket(child), "start") }
        sleep 0.1
      end
      assert_equal 1, Dir.glob("#{dir}/p.dump*").length
      assert_includes names(load_profile(Dir.glob("#{dir}/p.dump.*").first)), "Object#busy"
    end
  end

  # The program that was started is gone, and the daemon is what is left of it.
  def test_a_daemon_has_the_file_that_was_named
    in_directory do |dir|
      autorun("Process.daemon(true); #{BUSY}", chdir: dir, RINGPROF: "1", RINGPROF_OUT: "p.dump", RINGPROF_MODE: "cpu")
      until_true { File.size?("#{dir}/p.dump") }
      sleep 0.05
      assert_includes names(load_profile("#{dir}/p.dump")), "Object#busy"
    end
  end

  # Without ringprof run there is no session: who is first is in the environment.
  def test_a_ruby_that_another_starts_does_not_write_over_its_file
    in_directory do |dir|
      script = "#{CliTesting.spin("outer")}; Dir.chdir('/') { system(#{RbConfig.ruby.inspect}, '-e', #{CliTesting.spin("inner").inspect}) }"
      env = { RUBYOPT: "-rringprof/autorun", RUBYLIB: Subprocess::INCLUDES.each_slice(2).map(&:last).join(":"), RINGPROF: "1", RINGPROF_OUT: "p.dump" }
      _, err, status = capture([RbConfig.ruby, "-e", script], env: env.transform_keys(&:to_s), chdir: dir)
      assert_equal 0, status.exitstatus, err
      assert_includes names(load_profile("#{dir}/p.dump")), "Object#outer"
      assert_includes names(load_profile(Dir.glob("#{dir}/p.dump.*").first)), "Object#inner"
    end
  end

  def test_exits_of_every_kind_write_the_profile
    ["exit", "exit!", "exit!(true)", "Process.exit!(3)", "Kernel.exit!", "abort", "raise 'x'", "throw :x", "Process.kill(:TERM, $$); sleep",
     "Process.kill(:HUP, $$); sleep", "Thread.new { exit }.join", "at_exit { exit! }", "trap(:USR1) { exit! }; Process.kill(:USR1, $$); sleep",
     "Thread.main.raise(Interrupt); sleep"].each do |ending|
      in_directory do |dir|
        autorun("#{BUSY}; #{ending}", chdir: dir, RINGPROF: "1", RINGPROF_OUT: "p.dump")
        assert_includes names(load_profile("#{dir}/p.dump")), "Object#busy", ending
      end
    end
  end

  def test_a_program_with_a_profile_of_its_own
    in_directory do |dir|
      script = "require 'ringprof'; RingProf.start(mode: :custom); RingProf.sample; #{WORKER}; RingProf.stop; RingProf.results('own.dump')"
      with_worker(dir, script: script, RINGPROF_SOCKET: "s", RINGPROF_OUT: "p.dump") do
        socket = until_socket("#{dir}/s")
        until_true { ask(socket, "stats").include?("ringprof_running 1") }
        assert_match(/\Aerror the program has a profile of its own running$/, raw_ask(socket, "start"))
      end
      assert_equal 1, load_profile("#{dir}/own.dump")[:samples]
      refute_path_exists "#{dir}/p.dump"
    end
  end

  private

  # Runs a program until the block is through.
  def with_worker(dir, script: WORKER, stop: nil, **env)
    command = [RbConfig.ruby, *Subprocess::INCLUDES, "-rringprof/autorun", "-e", "File.write('up', ''); #{script}"]
    pid = Process.spawn(env.transform_keys(&:to_s), *command, chdir: dir, err: "#{dir}/err", pgroup: true)
    until_true { File.exist?("#{dir}/up") }
    yield pid
    stop ? Process.kill(stop, pid) : File.write("#{dir}/stop", "")
    status = wait_for(pid, 60) || flunk("still running")
    assert_predicate status, :success?, File.read("#{dir}/err")
  ensure
    kill_group(pid)
  end

  def kill_group(pid)
    Process.kill(:KILL, -pid) if pid
  rescue Errno::ESRCH
    nil
  end

  def until_socket(path)
    until_true { File.socket?(path) }
    path
  end

  def raw_ask(path, request)
    UNIXSocket.open(path) do |socket|
      socket.puts(request)
      socket.read
    rescue Errno::ECONNRESET, Errno::EPIPE
      ""
    end
  end

  def ask(path, request)
    answer = raw_ask(path, request)
    assert_match(/\Aok\n(.*\n)?\.\n\z/m, answer)
    answer.lines(chomp: true)[1..-2]
  end
end
