# frozen_string_literal: true

# The command, and programs that are profiled without their knowledge, as processes of their own.
module CliTesting
  EXE = File.expand_path("../../exe/ringprof", __dir__)

  # A method of that name, and a call that takes some CPU time: enough for samples on a busy machine.
  def self.spin(name, call = "%s")
    "def #{name}(n = 15) = n < 2 ? n : #{name}(n - 1) + #{name}(n - 2); " \
      "clock = -> { Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) }; " \
      "#{format(call, "limit = clock.call + 0.2; #{name} until clock.call > limit")}"
  end

  BUSY = spin("busy")

  def ringprof(*arguments, **options)
    capture([RbConfig.ruby, "-w", *Subprocess::INCLUDES, EXE, *arguments], **options)
  end

  # A run that prints the report on stdout and no summary.
  def ringprof_run(*arguments, **options)
    ringprof("run", "--report", "--quiet", *arguments, **options)
  end

  def ruby_busy(more = "")
    [RbConfig.ruby, "-e", "#{BUSY}; #{more}"]
  end

  def in_directory(&block)
    Dir.mktmpdir("ringprof test", &block)
  end

  def load_profile(path)
    Marshal.load(File.binread(path))
  end

  def names(results)
    results[:frames].each_value.map { |frame| frame[:name] }
  end

  # A Ruby under autorun.
  def autorun(script, chdir: nil, **env)
    capture([RbConfig.ruby, *Subprocess::INCLUDES, "-rringprof/autorun", "-e", script], env: env.transform_keys(&:to_s), chdir: chdir)
  end

  def until_true(patience = 30)
    deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + patience
    until (value = yield)
      flunk("waited in vain") if Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline
      sleep 0.01
    end
    value
  end

  def assert_refused(expected_status, pattern, *arguments, **options)
    out, err, status = ringprof(*arguments, **options)
    assert_equal expected_status, status.exitstatus, err
    assert_empty out
    assert_equal 1, err.lines.length, "one line and no backtrace:\n#{err}"
    assert_match(/\Aringprof: /, err)
    assert_match pattern, err
  end
end
