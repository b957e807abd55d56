# frozen_string_literal: true

require "test_helper"
require "support/cli_testing"

class CliDoctorTest < RingProf::TestCase
  include CliTesting

  def test_what_works_here
    findings = examine
    %w[Ruby compiler capture tick signal samples states threads children StackProf].each { |subject| assert findings.key?(subject), subject }
    assert_equal ["ok", RUBY_DESCRIPTION], findings["Ruby"]
    assert_equal RUBY_VERSION >= "3.2" ? "ok" : "limited", findings["states"].first
    assert_match(/\A\d+ samples for 100 ms of CPU time, \d+ missed; a sample costs [\d.]+ µs\z/, findings["samples"].last)
    assert_equal at_safepoints? ? "limited" : "ok", findings["capture"].first
  end

  def test_a_compiler
    skip "this Ruby has no YJIT" unless defined?(RubyVM::YJIT)

    findings = examine(env: { "RUBYOPT" => "--yjit" })
    assert_includes findings["Ruby"].last, "+YJIT"
    if RUBY_VERSION < "3.3"
      assert_equal ["limited", "at safepoints: YJIT of Ruby before 3.3 publishes frames before they are whole"], findings["capture"]
      assert_equal "limited", findings["compiler"].first
    else
      assert_equal ["ok", "in the signal handler, where the tick finds the thread"], findings["capture"]
      assert_match(/\AYJIT/, findings["compiler"].last)
    end
  end

  def test_one_core
    skip "taskset is not installed" unless system("taskset", "-V", out: File::NULL, err: File::NULL)

    out, err, status = capture(["taskset", "-c", Process.pid.then { available_core.to_s }, RbConfig.ruby, *Subprocess::INCLUDES, EXE, "doctor"])
    assert_equal 0, status.exitstatus, err
    assert_match(/^limited  tick +a kernel timer for each thread, for there is one core\n +-> .*second core helps$/, out)
  end

  def test_somebody_else_has_the_signal
    findings = examine(env: { "RUBYOPT" => "-r#{preload("trap(:PROF) {}")}" })
    assert_match(/\ARTMIN\+?\d*.*, for somebody else handles SIGPROF\z|\A.*RT.*, for somebody else handles SIGPROF\z/, findings["signal"].last)
  end

  def test_shared_native_threads
    skip "this Ruby has none" if RUBY_VERSION < "3.3"

    assert_equal "limited", examine(env: { "RUBY_MN_THREADS" => "1" })["threads"].first
  end

  def test_what_the_system_refuses_is_told
    out, err, status = ringprof("doctor", env: { "RUBYOPT" => "-r#{preload("require 'ringprof'; RingProf::Testing.deny('rt_tgsigqueueinfo')")}" })
    assert_equal 1, status.exitstatus, err
    assert_match(/^broken   profile +\S.*refuses to signal a thread.*\n +-> \S.*\n\z/, out)
    findings = examine(env: { "RUBYOPT" => "-r#{preload("require 'ringprof'; RingProf::Testing.deny('sched_setscheduler')")}" })
    assert_equal "limited", findings["priority"].first
  end

  def test_without_the_extension
    in_directory do |dir|
      %w[lib exe].each { |part| FileUtils.cp_r(File.join(Subprocess::ROOT, part), dir) }
      FileUtils.rm_f(Dir.glob("#{dir}/lib/**/*.so"))
      out, err, status = capture([RbConfig.ruby, "-I", "#{dir}/lib", "#{dir}/exe/ringprof", "doctor"])
      assert_equal [1, ""], [status.exitstatus, err]
      assert_match(/^broken   profile +RingProf's extension is not built for Ruby .*\n +-> run bin\/setup/, out)
    end
  end

  def test_the_environment_is_told
    # But those of whoever runs the tests.
    env = ENV.keys.grep(/\ARINGPROF/).to_h { |name| [name, nil] }
    told = examine(env: env.merge("RINGPROF_MODE" => "cpu", "RINGPROF_OUT" => ""))["environment"]
    assert_equal ["ok", "RINGPROF_MODE=cpu"], told
    assert_refused(2, /takes no arguments/, "doctor", "now")
  end

  private

  # @return [Hash{String => Array}] state and text, by subject
  def examine(**options)
    out, err, status = ringprof("doctor", **options)
    assert_equal [0, ""], [status.exitstatus, err], out
    findings = out.lines(chomp: true).reject { |line| line.start_with?(" ") }
    # What does not work has a line on what to do.
    assert_equal findings.grep(/\A(limited|broken)/).length, out.scan(/^ {22}-> \S/).length, out
    findings.to_h { |line| [line[9, 12].rstrip, [line[0, 8].rstrip, line[22..]]] }
  end

  def preload(code)
    @directory ||= Dir.mktmpdir("ringprof-test")
    File.join(@directory, "preload.rb").tap { |path| File.write(path, code) }
  end

  def teardown
    FileUtils.rm_rf(@directory) if @directory
    super
  end

  def available_core
    File.read("/proc/self/status")[/^Cpus_allowed_list:\s*(\d+)/, 1].to_i
  end
end
