# frozen_string_literal: true

require "json"
require "shellwords"
require "test_helper"
require "support/directory"
require "ringprof/cli"
require "support/example_profiles"
require "zlib"

# What is no profile, cannot be read, or cannot be written: one line that says so, a status, and no backtrace.
class BadInputTest < RingProf::TestCase
  include ExampleProfiles
  include Directory

  EXE = File.expand_path("../../exe/ringprof", __dir__)

  def test_files_that_are_no_profiles
    bad_files.each do |name, (bytes, pattern)|
      path = file(name.tr(" ", "_"), bytes)
      assert_refused(/\Aringprof: #{Regexp.escape(path)} is not a profile: #{pattern}/, name, path)
      error = assert_raises(RingProf::Error, name) { RingProf::Profile.parse(bytes) }
      assert_match(/\A#{pattern}/, error.message, name)
    end
  end

  def test_files_that_are_damaged
    shapes.each do |name, (changes, pattern)|
      { "dump" => Marshal.dump(example.merge(changes)), "json" => JSON.generate(example.merge(changes)) }.each do |kind, bytes|
        assert_refused(/ is not a profile: #{pattern}/, "#{name} as #{kind}", file("x.#{kind}", bytes))
      end
    end
  end

  # Nothing but an Error comes out, wherever a byte is changed or the end is missing.
  def test_noise
    chance = Random.new(1)
    good = [Marshal.dump(example), JSON.generate(example), Zlib.gzip(Marshal.dump(example))]
    500.times do
      bytes = good.sample(random: chance).b
      case chance.rand(3)
      when 0 then bytes = bytes[0, chance.rand(bytes.size)]
      when 1 then 3.times { bytes.setbyte(chance.rand(bytes.size), chance.rand(256)) }
      else bytes = bytes[0, 2] + chance.bytes(chance.rand(200))
      end
      profile = RingProf::Profile.parse(bytes)
      RingProf::Report.formats.each_value { |format| format.new(profile).write(StringIO.new) }
    rescue RingProf::Error
      next
    end
  end

  # A file of zeros is as long as it says, and takes no room; it must not be read, either.
  def test_huge_files
    { "zeros" => "", "JSON" => "{", "gzip" => "\x1F\x8B", "array" => "\x04\b[\x04\xFF\xFF\xFF\x3F", "string" => "\x04\b\"\x04\xFF\xFF\xFF\x3F" }.each do |name, start|
      path = file("huge", start)
      File.truncate(path, 20 << 30) if %w[zeros JSON].include?(name)
      # What is too long is found out by reading 4 GiB of it.
      assert_refused(/ is not a profile: (?!it is bigger)/, name, path)
    end
  end

  def test_what_cannot_be_read
    assert_refused(/\Aringprof: cannot read #{@directory}: Is a directory/, "directory", @directory)
    assert_refused(%r{\Aringprof: cannot read /nonexistent: No such file or directory}, "missing", "/nonexistent")
    path = file("secret", Marshal.dump(example))
    File.chmod(0, path)
    File.chmod(0o755, @directory)
    out, err, status = as_nobody { RingProf::CLI.start(["report", path]) }
    assert_equal ["", "ringprof: cannot read #{path}: Permission denied\n", 1], [out, err, status]
  end

  def test_where_nothing_can_be_written
    path = file("good", Marshal.dump(example))
    assert_refused(/\Aringprof: cannot write #{@directory}: Is a directory/, "directory", path, "--out", @directory)
    assert_refused(%r{\Aringprof: cannot write /nonexistent/x: No such file}, "missing", path, "--out", "/nonexistent/x")
    assert_refused(%r{\Aringprof: cannot write /dev/full: No space left}, "full", path, "--json", "--out", "/dev/full")
    File.chmod(0o755, @directory)
    _, err, status = as_nobody { RingProf::CLI.start(["report", path, "--out", "#{@directory}/x"]) }
    assert_equal ["ringprof: cannot write #{@directory}/x: Permission denied\n", 1], [err, status]
  end

  def test_profiles_that_do_not_go_together
    one = file("one", Marshal.dump(example))
    other = file("other", Marshal.dump(example.merge(mode: :cpu)))
    assert_refused(/\Aringprof: cannot combine mode wall with mode cpu/, "modes", one, other)
  end

  def test_reports_that_need_what_is_not_there
    path = file("flat", Marshal.dump(example.reject { |key| key.start_with?("raw") }))
    %w[--stackcollapse --flamegraph --alphabetical-flamegraph --d3-flamegraph].each do |switch|
      assert_refused(/\Aringprof: profile does not include raw samples/, switch, path, switch)
    end
    assert_refused(/\Aringprof: the profile does not tell the states/, "states", file("old", Marshal.dump(example)), "--select-states", "running")
  end

  def test_command_lines_that_make_no_sense
    path = file("good", Marshal.dump(example))
    { ["--format", "pdf"] => [1, /no such format: pdf/], ["--walk"] => [2, /--walk goes with --method/],
      ["--select-time", "x"] => [2, /--select-time takes FROM..TO/], ["--select-time", ".."] => [2, /--select-time takes/],
      ["--method", "["] => [2, /--method: premature end/], ["--select-names", "["] => [2, /premature end of char-class/],
      ["--limit", "x"] => [2, /invalid argument: --limit x/], ["--node-fraction", "x"] => [2, /invalid argument/],
      ["--select-states", "asleep"] => [2, /invalid argument/] }.each do |switches, (expected, pattern)|
      out, err, status = command("report", path, *switches)
      assert_equal [expected, ""], [status, out], switches
      assert_equal 1, err.lines.size, err
      assert_match pattern, err
    end
  end

  def test_a_reader_that_goes_away
    path = file("big", Marshal.dump(random(1, runs: 4000)))
    %w[--text --stackcollapse --json --debug --d3-flamegraph].each do |switch|
      script = "#{[RbConfig.ruby, *Subprocess::INCLUDES, EXE, "report", path, switch, "--limit", "0"].shelljoin} | head -c 10; exit ${PIPESTATUS[0]}"
      out, err, status = capture(["bash", "-c", script])
      assert_equal [10, "", 0], [out.size, err, status.exitstatus], switch
    end
  end

  # Ruby opens /dev/null in its place.
  def test_no_stdout_at_all
    path = file("good", Marshal.dump(example))
    out, err, status = capture(["bash", "-c", "#{[RbConfig.ruby, *Subprocess::INCLUDES, EXE, "report", path].shelljoin} >&-"])
    assert_equal [0, "", ""], [status.exitstatus, out, err]
  end

  def test_ctrl_c
    reader, writer = IO.pipe
    err = File.join(@directory, "err")
    # It reads from a terminal that says nothing: what has been read is told by the pipe's being empty.
    pid = Process.spawn(RbConfig.ruby, *Subprocess::INCLUDES, EXE, "report", "-", in: reader, err: err, pgroup: true)
    reader.close
    writer.write(Marshal.dump(example)[0, 100])
    wait_until { unread(writer).zero? }
    Process.kill(:INT, pid)
    status = wait_for(pid, 60)
    assert_equal [130, ""], [status.exitstatus, File.read(err)]
  ensure
    writer&.close
  end

  private

  # FIONREAD of Linux.
  def unread(pipe)
    number = [0].pack("i")
    pipe.ioctl(0x541B, number)
    number.unpack1("i")
  end

  def wait_until
    deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 60
    until yield
      flunk "too long" if Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline
      sleep 0.01
    end
  end

  def bad_files
    dump = Marshal.dump(example)
    neither = "neither Marshal nor JSON"
    {
      "empty" => ["", "it is empty"], "space" => ["  \n", neither], "a letter" => ["x", neither],
      "cut dump" => [dump[0..-10], "marshal data too short"], "cut early" => [dump[0, 2], "(?:marshal data too short|end of file reached)"],
      "cut JSON" => [JSON.generate(example)[0..-10], neither], "cut gzip" => [Zlib.gzip(dump)[0..-20], "its gzip is damaged"],
      "gzip of nothing" => [Zlib.gzip(""), "(?:it is empty|neither Marshal nor JSON)"], "gzip of text" => [Zlib.gzip("text"), "#{neither}, under its gzip"],
      "gzip of gzip" => [Zlib.gzip(Zlib.gzip(dump)), "#{neither}, under its gzip"], "half a gzip" => ["\x1F\x8Bxyz".b, "its gzip is damaged"],
      "a program" => [File.binread("/bin/true"), neither], "source" => [File.binread(__FILE__), neither],
      "an array" => [Marshal.dump([1]), "no results Hash"], "other Hash" => [Marshal.dump({ frames: {} }), "no results Hash"],
      "a class that is not there" => ["\x04\bo:\vNope\0".b, "(?:undefined class|marshal data too short)"], "JSON array" => ["[1]", neither],
      "other JSON" => ["{\"shared\":{}}", "no results Hash"], "JSON null" => ["null", neither],
      "deep JSON" => ["{\"a\":" * 5000, neither], "UTF-16" => ["{}".encode("UTF-16").b, neither],
      "bad UTF-8" => ["{\"mode\":\"\xFF\"}".b, neither], "old Marshal" => ["\x04\x09\x30".b, neither]
    }
  end

  def shapes
    frame = { name: "a", samples: 1, total_samples: 1 }
    damaged = "its frames are damaged"
    {
      "future" => [{ version: 2.0 }, "its format is 2.0, and 1.2 is the newest that is known here"],
      "next" => [{ version: 1.3 }, "its format is 1.3"], "a word for a version" => [{ version: "x" }, "its format is x"],
      "frames" => [{ frames: [] }, "no results Hash"], "samples" => [{ samples: "1" }, "no results Hash"],
      "a number for a frame" => [{ frames: { 1 => 5 } }, damaged], "a number for a name" => [{ frames: { 1 => frame.merge(name: 5) } }, damaged],
      "words for samples" => [{ frames: { 1 => frame.merge(samples: "x") } }, damaged],
      "edges" => [{ frames: { 1 => frame.merge(edges: [1]) } }, damaged], "weights" => [{ frames: { 1 => frame.merge(edges: { 1 => "x" }) } }, damaged],
      "lines" => [{ frames: { 1 => frame.merge(lines: { 1 => [1] }) } }, damaged], "a path for a line" => [{ frames: { 1 => frame.merge(line: "/x") } }, damaged],
      "raw" => [{ raw: {} }, "no results Hash"], "metadata" => [{ metadata: 5 }, "no results Hash"], "gc" => [{ gc_samples: [] }, "no results Hash"]
    }
  end

  def file(name, bytes)
    File.join(@directory, name).tap { |path| File.binwrite(path, bytes) }
  end

  def assert_refused(pattern, message, *arguments)
    out, err, status = command("report", *arguments)
    assert_equal [1, ""], [status, out], message
    assert_match pattern, err, message
    assert_equal 1, err.lines.size, message
  end

  # In this process: a hundred starts of Ruby take minutes.
  def command(*arguments)
    status = nil
    out, err = capture_io { status = RingProf::CLI.start(arguments) }
    [out, err, status]
  end

  # Root may read everything.
  def as_nobody
    pipes = [IO.pipe, IO.pipe]
    pid = fork do
      $stdout.reopen(pipes[0][1])
      $stderr.reopen(pipes[1][1])
      Process::Sys.setuid(65_534) if Process.uid.zero?
      exit!(yield)
    end
    pipes.each { |_reader, writer| writer.close }
    status = wait_for(pid, 60)
    [*pipes.map { |reader, _writer| reader.read }, status.exitstatus]
  end
end
