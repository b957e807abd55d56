# frozen_string_literal: true

require "io/console"
require "pty"
require "socket"
require "test_helper"
require "support/cli_testing"

class CliTopTest < RingProf::TestCase
  include CliTesting

  WORK = "def busy(n = 15) = n < 2 ? n : busy(n - 1) + busy(n - 2); busy until File.exist?(ARGV[0])"

  def test_a_running_process_in_a_terminal
    with_live do |dir, pid|
      screen = +""
      in_terminal(["top", "--every", "0.2"], dir) do |reader, writer, top|
        until_true { read(reader, screen) && screen.scan("Object#busy").length >= 3 }
        writer.write("q")
        read(reader, screen) until Process.wait(top, Process::WNOHANG)
        read(reader, screen)
        assert_equal 0, $?.exitstatus, screen
      end
      assert screen.start_with?("\e[?25l\e[H\e[2J"), screen[0, 40].inspect
      assert screen.include?("\e[1m-e (#{pid})\e[0m"), screen
      assert_match(/wall, 1 threads, last \d+\.\d s/, screen)
      assert_match(/SELF    TOTAL  BLOCKED  FRAME/, screen)
      assert_match(/running \d+\.\d %/, screen)
      # The cursor is given back.
      assert screen.rstrip.end_with?("\e[?25h"), screen[-40..].inspect
      screen.split("\e[H").drop(2).each { |page| assert_operator page.lines.length, :<=, 24 }
    end
  end

  def test_no_colour_where_it_is_not_wanted
    with_live do |dir, _pid|
      screen = +""
      in_terminal(["top", "--rounds", "2", "--every", "0.1"], dir, "NO_COLOR" => "1") do |reader, _writer, top|
        read(reader, screen) until Process.wait(top, Process::WNOHANG)
        read(reader, screen)
      end
      assert_match(/Object#busy/, screen)
      refute_match(/\e\[[\d;]*m/, screen)
    end
  end

  def test_control_c_ends_it_in_order
    with_live do |dir, _pid|
      screen = +""
      in_terminal(["top", "--every", "30"], dir) do |reader, writer, top|
        until_true { read(reader, screen) && screen.include?("Object#busy") }
        writer.write("\x03")
        read(reader, screen) until Process.wait(top, Process::WNOHANG)
        assert_equal 0, $?.exitstatus, screen
      end
      refute_match(/Interrupt|\.rb:\d+:in/, screen)
    end
  end

  def test_into_a_pipe
    with_live do |dir, pid|
      [[], [pid.to_s], [Dir.glob("#{dir}/ringprof-*/#{pid}.sock").first]].each do |names|
        out, err, status = ringprof("top", "--rounds", "2", "--every", "0.1", "--limit", "3", *names, env: { "TMPDIR" => dir, "XDG_RUNTIME_DIR" => dir })
        assert_equal [0, ""], [status.exitstatus, err]
        refute_match(/\e/, out)
        assert_equal 2, out.scan(/Object#busy  -e:1$/).length, out
      end
      reader, writer = IO.pipe
      reader.close
      assert_equal [0, ""], spawned(writer, dir, "top", "--rounds", "5", "--every", "0.1")
    end
  end

  # A preforking server is looked at as one.
  def test_several_processes_are_added_up
    with_live("fork { #{WORK} }; sleep 0.01 until File.exist?(ARGV[0]); Process.waitall") do |dir, _pid|
      env = { "TMPDIR" => dir, "XDG_RUNTIME_DIR" => dir }
      until_true { Dir.glob("#{dir}/ringprof-*/*.sock").length == 2 }
      out, err, status = ringprof("top", "--rounds", "2", "--every", "0.2", env: env)
      assert_equal [0, ""], [status.exitstatus, err]
      assert_match(/^2 processes  wall, 2 threads/, out)
      own, = ringprof("top", "--rounds", "1", "--busy", env: env)
      assert_match(/^ +\d+\.\d % .* Object#busy/, own)
      refute_match(/BLOCKED/, own)
      _, err, status = ringprof("ask", "status", env: env)
      assert_equal 2, status.exitstatus
      assert_match(/\Aringprof: name one of the processes: \d+, \d+\n\z/, err)
    end
  end

  def test_keys
    with_live("Thread.new { sleep }; #{WORK}") do |dir, _pid|
      screen = +""
      in_terminal(["top", "--every", "0.2"], dir) do |reader, writer, top|
        until_true { read(reader, screen) && screen.include?("BLOCKED") }
        writer.write("b")
        until_true { read(reader, screen) && screen.split("\e[H").last[/SELF .*/]&.match?(/SELF    TOTAL           /) }
        writer.write("t")
        until_true { read(reader, screen) && screen.split("\e[H").last.match?(/FRAME.*\n.*<main>/) }
        writer.write("q")
        read(reader, screen) until Process.wait(top, Process::WNOHANG)
        assert_equal 0, $?.exitstatus, screen
      end
    end
  end

  def test_the_end_of_the_process_is_no_error
    with_live do |dir, _pid|
      reader, writer = IO.pipe
      watcher = Thread.new { spawned(writer, dir, "top", "--every", "0.1") }
      until_true { reader.gets.include?("Object#busy") }
      File.write("#{dir}/stop", "")
      assert_equal [0, "ringprof: the process has ended\n"], watcher.value
    end
  end

  def test_ask
    with_live do |dir, pid|
      env = { "TMPDIR" => dir, "XDG_RUNTIME_DIR" => dir }
      out, err, status = ringprof("ask", "status", env: env)
      assert_equal [0, ""], [status.exitstatus, err]
      assert_match(/^recording true$/, out)
      out, = ringprof("ask", pid.to_s, "rotate", "mine.dump", env: env, chdir: dir)
      assert_equal "#{File.realpath(dir)}/mine.dump\n", out.sub(dir, File.realpath(dir))
      assert_includes names(load_profile("#{dir}/mine.dump")), "Object#busy"
      assert_match(/^ringprof_running 1$/, ringprof("ask", "stats", env: env).first)
      out, err, status = ringprof("ask", "start", env: env)
      assert_equal [1, "", "ringprof: a profile is being taken already\n"], [status.exitstatus, out, err]
      assert_equal 0, ringprof("ask", pid.to_s, "stop", env: env).last.exitstatus
      assert_match(/^recording false$/, ringprof("ask", "status", env: env).first)
    end
  end

  def test_bad_input
    in_directory do |dir|
      env = { "TMPDIR" => dir, "XDG_RUNTIME_DIR" => dir }
      refuse = ->(status, pattern, *arguments) { assert_refused(status, pattern, *arguments, env: env) }
      %w[top ask].each do |command|
        rest = command == "ask" ? ["status"] : []
        refuse.call(1, /nobody answers: start something/, command, *rest)
        refuse.call(1, /process 1 does not answer/, command, "1", *rest)
        refuse.call(1, %r{/nonexistent: nobody answers \(No such file}, command, "/nonexistent", *rest)
        refuse.call(1, /nobody answers \(Connection refused\)/, command, __FILE__, *rest)
        refuse.call(1, /too long unix socket path/, command, "/tmp/#{"x" * 200}", *rest)
        with_stranger("#{dir}/stranger", "HTTP/1.0 400 Bad Request\r\n") { refuse.call(1, /that is no socket of RingProf's/, command, "#{dir}/stranger", *rest) }
        with_stranger("#{dir}/short", "ok\npid 1\n") { refuse.call(1, /the answer was cut short/, command, "#{dir}/short", *rest) }
      end
      with_stranger("#{dir}/old", "ok\npid 1\n.\n") { refuse.call(1, /answers in a way that this version does not understand/, "top", "#{dir}/old") }
      refuse.call(2, /name a request/, "ask")
      refuse.call(2, /name a request/, "ask", "1", "nonsense")
      refuse.call(2, /too many arguments/, "ask", "status", "more")
      refuse.call(2, /--every must be more than 0/, "top", "--every", "0")
    end
  end

  # Anybody may make a directory of that name in /tmp.
  def test_a_directory_of_others_is_not_used
    in_directory do |dir|
      mine = "#{dir}/ringprof-#{Process.uid}"
      Dir.mkdir(mine, 0o777)
      File.chmod(0o777, mine)
      assert_refused(1, /is not ours alone/, "run", "--live", "--", "true", env: { "TMPDIR" => dir, "XDG_RUNTIME_DIR" => dir })
    end
  end

  private

  # A process under `ringprof run --live`.
  def with_live(script = WORK)
    in_directory do |dir|
      command = [RbConfig.ruby, *Subprocess::INCLUDES, EXE, "run", "--quiet", "--live", "--", RbConfig.ruby, "-e", script, "#{dir}/stop"]
      pid = Process.spawn({ "TMPDIR" => dir, "XDG_RUNTIME_DIR" => dir }, *command, err: "#{dir}/err", pgroup: true)
      socket = until_true { Dir.glob("#{dir}/ringprof-*/*.sock").first }
      yield dir, File.basename(socket, ".sock").to_i
      File.write("#{dir}/stop", "")
      status = wait_for(pid, 60) || flunk("still running")
      assert_predicate status, :success?, File.read("#{dir}/err")
      assert_empty Dir.children(File.dirname(socket))
    ensure
      begin
        Process.kill(:KILL, -pid)
      rescue Errno::ESRCH
        nil
      end
    end
  end

  def in_terminal(arguments, dir, env = {})
    command = [RbConfig.ruby, "-w", *Subprocess::INCLUDES, EXE, *arguments]
    PTY.spawn({ "TMPDIR" => dir, "XDG_RUNTIME_DIR" => dir, "TERM" => "xterm", "NO_COLOR" => nil, **env }, *command) do |reader, writer, pid|
      reader.winsize = [24, 80]
      yield reader, writer, pid
    end
  end

  # What there is by now; true also at the end.
  def read(reader, screen)
    screen << reader.read_nonblock(65_536, exception: false).then { |text| text.is_a?(String) ? text : (sleep(0.01) && "") }
  rescue Errno::EIO, EOFError
    screen
  end

  def spawned(out, dir, *arguments)
    Tempfile.create("ringprof-test") do |err|
      pid = Process.spawn({ "TMPDIR" => dir, "XDG_RUNTIME_DIR" => dir }, RbConfig.ruby, *Subprocess::INCLUDES, EXE, *arguments, out: out, err: err)
      [wait_for(pid, 60)&.exitstatus, File.read(err.path)]
    end
  end

  # Somebody else's socket.
  def with_stranger(path, answer)
    server = UNIXServer.new(path)
    thread = Thread.new do
      connection = server.accept
      connection.gets
      connection.write(answer)
      connection.close
    end
    yield
  ensure
    thread&.kill
    server&.close
    FileUtils.rm_f(path)
  end
end
