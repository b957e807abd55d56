# frozen_string_literal: true

require "test_helper"

# Targets that cannot be written: the profile survives, and whoever wanted it is told where it is.
class OutputFaultTest < RingProf::TestCase
  EXE = "#{Subprocess::ROOT}/exe/ringprof".freeze

  def test_every_target_that_cannot_be_written_keeps_the_profile
    in_directory do |directory|
      gone = File.join(directory, "gone")
      Dir.mkdir(gone)
      RingProf.start(mode: :custom, out: File.join(gone, "profile.dump"))
      sample_here
      RingProf.stop
      Dir.rmdir(gone)
      assert_raises(Errno::ENOENT) { RingProf.results }
      assert_raises(Errno::EISDIR) { RingProf.results(directory) }
      assert_raises(Errno::ENOSPC) { RingProf.results("/dev/full") }
      assert_raises(Errno::EIO) { RingProf.results("/proc/self/mem") }
      assert_raises(Errno::ENOTDIR) { RingProf.results("/dev/null/profile.dump") }
      assert_raises(Errno::ENAMETOOLONG) { RingProf.results(File.join(directory, "x" * 300)) }
      assert_raises(Errno::EPIPE) { RingProf.results(broken_pipe) }
      path = File.join(directory, "profile.dump")
      RingProf.results(path).close
      assert_equal 1, Marshal.load(File.binread(path))[:samples]
    end
  end

  def test_a_path_that_is_not_ours_to_write_keeps_the_profile
    in_directory do |directory|
      File.chmod(0o555, directory)
      out = ruby!(<<~RUBY, File.join(directory, "profile.dump"))
        require "ringprof"
        # Nothing is denied to root.
        Process::UID.change_privilege(65_534) if Process.uid.zero?
        RingProf.start(mode: :custom)
        RingProf.sample
        RingProf.stop
        begin
          RingProf.results(ARGV.fetch(0))
        rescue Errno::EACCES
          print RingProf.results[:samples]
        end
      RUBY
      assert_equal "1", out
    end
  end

  # A profile that could not be written waits, whatever else goes wrong.
  def test_a_failed_start_and_failed_results_lose_nothing
    out, err, status = capture_ruby(<<~RUBY)
      require "ringprof"
      def refused
        yield
        abort "not refused"
      rescue RingProf::Error, SystemCallError
        nil
      ensure
        RingProf::Testing.fail_allocation = 0
      end
      RingProf.start(mode: :custom)
      3.times { RingProf.sample }
      RingProf.stop
      # The Hash is half built then.
      class String
        alias real_to_sym to_sym
        def to_sym
          $spoilt ? raise(Errno::EIO) : real_to_sym
        end
      end
      refused { $spoilt = true; RingProf.results }
      $spoilt = false
      RingProf::Testing.small_allocation = 1024
      refused { RingProf::Testing.fail_allocation = 1; RingProf.results }
      refused { RingProf::Testing.fail_allocation = 1; RingProf.start(mode: :wall) }
      RingProf::Testing.deny("timer_create")
      refused { RingProf.start(mode: :wall, tick: :timer) }
      refused { RingProf.results("/dev/full") }
      refused { RingProf.start(mode: :wall, tick: :timer) }
      refused { RingProf.results("/dev/full") }
      refused { RingProf::Testing.fail_allocation = 1; RingProf.results }
      print RingProf.results.values_at(:samples, :mode).inspect
    RUBY
    assert_predicate status, :success?, "#{status}\n#{out}\n#{err}"
    assert_equal "[3, :custom]", out
  end

  def test_at_exit_another_place_is_found
    in_directory do |directory|
      { "/dev/full" => "No space left on device", "#{directory}/gone/x" => "No such file or directory", directory => "Is a directory" }.each do |target, why|
        _, err, status = autorun("exit 3", "RINGPROF_OUT" => target, "TMPDIR" => directory)
        assert_equal 3, status.exitstatus
        first, second = err.lines(chomp: true)
        assert err.lines.length == 2 && first.start_with?("ringprof: cannot write the profile: #{why}"), err
        written = second[/\Aringprof: the profile is in (.*)\z/, 1]
        assert_equal directory, File.dirname(written)
        assert_equal 0o600, File.stat(written).mode & 0o777
        assert_equal :wall, Marshal.load(File.binread(written))[:mode]
        File.delete(written)
      end
    end
  end

  # Someone may have put a link there, to have a file of ours overwritten.
  def test_at_exit_no_file_of_others_is_written_over
    in_directory do |directory|
      _, err, status = autorun(<<~RUBY, "RINGPROF_OUT" => "/dev/full", "TMPDIR" => directory, chdir: directory)
        File.write("precious", "precious")
        File.symlink(File.expand_path("precious"), "ringprof-\#{Process.pid}.dump")
      RUBY
      assert_predicate status, :success?
      assert_equal "precious", File.read(File.join(directory, "precious"))
      written = err[/^ringprof: the profile is in (.*)$/, 1]
      refute_equal directory, File.dirname(written)
      assert_equal :wall, Marshal.load(File.binread(written))[:mode]
      File.delete(written)
    end
  end

  def test_at_exit_a_closed_stream_does_not_matter
    in_directory do |directory|
      ["$stderr.close", "$stderr = Class.new { def write(*) = raise('no') }.new", "def warn(*) = raise('no')"].each do |spoil|
        path = File.join(directory, "profile.dump")
        _, err, status = autorun("#{spoil}; exit 3", "RINGPROF_OUT" => path)
        assert_equal 3, status.exitstatus, "#{spoil}\n#{err}"
        assert_equal :wall, Marshal.load(File.binread(path))[:mode]
        File.delete(path)
        _, err, status = autorun("#{spoil}; exit 3", "RINGPROF_OUT" => "/dev/full", "TMPDIR" => directory)
        assert_equal 3, status.exitstatus, "#{spoil}\n#{err}"
        assert_equal 1, Dir.children(directory).length, err
        File.delete(*Dir.glob("#{directory}/*"))
      end
    end
  end

  def test_at_exit_a_start_that_the_system_refused_lets_the_program_run
    in_directory do |directory|
      preload = File.join(directory, "preload.rb")
      File.write(preload, "require 'ringprof'; RingProf::Testing.deny('timer_create')")
      out, err, status = capture([RbConfig.ruby, *Subprocess::INCLUDES, "-r", preload, "-rringprof/autorun", "-e", "print :ran; exit 3"],
                                 env: { "RINGPROF_TICK" => "timer" }, chdir: directory)
      assert_equal [3, "ran"], [status.exitstatus, out]
      assert_match(/\Aringprof: no profile: cannot make a timer .*\n\z/, err)
      assert_equal ["preload.rb"], Dir.children(directory)
    end
  end

  def test_at_exit_a_profile_that_has_failed_is_written
    in_directory do |directory|
      path = File.join(directory, "profile.dump")
      _, err, status = autorun(<<~RUBY, "RINGPROF_OUT" => path, "RINGPROF_TICK" => "thread")
        Thread.pass until RingProf.stats[:recorded] >= 3
        RingProf::Testing.deny("rt_tgsigqueueinfo")
        Thread.pass while RingProf.running?
        exit 3
      RUBY
      assert_equal 3, status.exitstatus
      assert_equal ["ringprof: the profile has ended", "RingProf results dumped at"], err.lines.map { |line| line[/\A.*?: [a-z ]*ended|\A[^:]*/] }
      results = Marshal.load(File.binread(path))
      assert_operator results[:samples], :>=, 3
      assert_match(/refuses to send ticks/, results[:metadata][:ringprof][:stats][:failure])
    end
  end

  def test_the_command_reports_from_where_the_profile_is
    in_directory do |directory|
      target = File.join(directory, "there")
      Dir.mkdir(target)
      { "/dev/full" => "", File.join(target, "x") => "Dir.rmdir(#{target.inspect})" }.each do |out_path, spoil|
        command = [RbConfig.ruby, *Subprocess::INCLUDES, EXE, "run", "--report", "--out", out_path, "--", RbConfig.ruby, "-e", "#{spoil}; 300_000.times { |n| n.to_s }; exit 4"]
        out, err, status = capture(command, env: { "TMPDIR" => directory })
        assert_equal 4, status.exitstatus, err
        assert_match(/^ringprof: cannot write the profile: No /, err)
        written = err[/^ringprof: the profile is in (.*)$/, 1]
        assert_equal :wall, Marshal.load(File.binread(written))[:mode]
        assert_match(/^ *TOTAL .*|Integer#times/, out)
      end
    end
  end

  private

  def broken_pipe
    reader, writer = IO.pipe
    reader.close
    writer
  end

  def autorun(script, env = {}, chdir: nil, **more)
    capture([RbConfig.ruby, *Subprocess::INCLUDES, "-rringprof/autorun", "-e", script], env: env.merge(more.transform_keys(&:to_s)), chdir: chdir)
  end

  def in_directory(&block)
    Dir.mktmpdir("ringprof-test") { |directory| block.call(File.realpath(directory)) }
  end
end
