# frozen_string_literal: true

require "fileutils"
require "test_helper"
require "support/cli_testing"

class CliRunTest < RingProf::TestCase
  include CliTesting

  def test_prints_the_report_after_the_output_of_the_command
    out, err, status = ringprof_run("--", *ruby_busy("puts 'from the command'"))
    assert_equal 0, status.exitstatus, err
    assert_empty err
    assert_equal "from the command\n", out.lines.first
    assert_match(/^  Mode: wall\(1000\)$/, out)
    assert_match(/^  Elapsed: \d+\.\d\d s, capture: \w+, tick: \w+$/, out)
    assert_match(/\d+ +\(.*%\) +Object#busy$/, out)
  end

  def test_options_reach_the_profile
    in_directory do |dir|
      dump = File.join(dir, "my profile.dump")
      out, err, = ringprof_run("--mode", "cpu", "--interval", "500", "--raw", "--ignore-gc", "--tick", "timer",
                           "--out", dump, "--limit", "1", "--sort-total", "--", *ruby_busy)
      assert_empty err
      results = Marshal.load(File.binread(dump))
      assert_equal [:cpu, 500], results.values_at(:mode, :interval)
      assert results.key?(:raw)
      assert_valid_results(results)
      assert_equal 1, out.lines.drop_while { |line| !line.include?("FRAME") }.drop(1).length
      assert_match(/tick: timer/, out)
    end
  end

  def test_the_dashes_before_the_command_may_be_left_out
    out, err, status = ringprof_run("--limit", "1", *ruby_busy("exit 3"))
    assert_equal 3, status.exitstatus, err
    assert_match(/Object#busy/, out)
  end

  def test_object_and_custom_mode
    out, = ringprof_run("--mode", "object", "--", RbConfig.ruby, "-e", "def make = Object.new; 100.times { make }")
    assert_match(/Mode: object\(1\)/, out)
    assert_match(/Object#make/, out)
    out, = ringprof_run("--mode", "custom", "--", RbConfig.ruby, "-e", "def here = RingProf.sample; 3.times { here }")
    assert_match(/Mode: custom$/, out)
    assert_match(/^ +3 \(100.0%\) +3 \(100.0%\) +RingProf.sample$/, out)
  end

  def test_a_relative_out_is_where_ringprof_was_called
    in_directory do |dir|
      Dir.mkdir(File.join(dir, "elsewhere"))
      _, err, status = ringprof_run("--out", "p.dump", "--", *ruby_busy("Dir.chdir 'elsewhere'"), chdir: dir)
      assert_equal 0, status.exitstatus, err
      assert_path_exists File.join(dir, "p.dump")
    end
  end

  def test_the_exit_status_is_the_commands
    { "exit 3" => 3, "exit" => 0, "raise 'boom'" => 1, "abort" => 1, "exit false" => 1, "exit!" => 1, "exit! 7" => 7, "Process.exit!(8)" => 8, "Process.kill(:TERM, $$); sleep" => 143,
      "Process.kill(:INT, $$); sleep" => 130 }.each do |ending, expected|
      out, err, status = ringprof_run("--", *ruby_busy(ending))
      assert_equal expected, status.exitstatus, "#{ending}: #{err}"
      assert_match(/Object#busy/, out, ending)
    end
  end

  def test_a_profile_that_was_lost_is_said_to_be
    { "Process.kill(:KILL, $$)" => 137, "trap(:TERM, 'SYSTEM_DEFAULT'); Process.kill(:TERM, $$); sleep" => 143, "exec('true')" => 1 }.each do |ending, expected|
      out, err, status = ringprof_run("--", *ruby_busy(ending))
      assert_equal expected, status.exitstatus, "#{ending}: #{err}"
      assert_match(/\Aringprof: no profile: /, err)
      assert_empty out
    end
  end

  def test_a_former_file_is_not_taken_for_the_profile
    in_directory do |dir|
      path = File.join(dir, "old.dump")
      File.binwrite(path, Marshal.dump({ frames: {}, samples: 77 }))
      out, err, status = ringprof_run("--out", path, "--", "true")
      assert_equal 1, status.exitstatus
      assert_match(/no profile/, err)
      refute_match(/77/, out)
    end
  end

  def test_commands_that_cannot_be_run
    assert_refused(127, /cannot run \S*nonesuch: No such file or directory/, "run", "--", "/nonexistent/nonesuch")
    assert_refused(127, /cannot run nonesuch command: /, "run", "nonesuch command")
    assert_refused(126, /cannot run .*: Permission denied/, "run", "--", __FILE__)
  end

  def test_a_command_of_one_word_is_no_shell_script
    in_directory do |dir|
      program = File.join(dir, "my command")
      File.write(program, "#!#{RbConfig.ruby}\n#{BUSY}")
      File.chmod(0o755, program)
      out, err, status = ringprof_run("--", program)
      assert_equal 0, status.exitstatus, err
      assert_match(/Object#busy/, out)
    end
  end

  def test_a_summary_goes_to_stderr
    in_directory do |dir|
      path = File.join(dir, "p.dump")
      out, err, status = ringprof("run", "--out", path, "--", *ruby_busy("puts 'from the command'; Thread.new { sleep 0.3 }.join; exit 3"))
      assert_equal [3, "from the command\n"], [status.exitstatus, out]
      lines = err.lines(chomp: true)
      assert_includes lines, " ringprof: wall, every 1000 µs"
      ["elapsed", "CPU +[\\d.]+ % of elapsed \\([\\d.]+ user, [\\d.]+ system\\)", "running +[\\d.]+ % of the samples", *("blocked +[\\d.]+ % of the samples" unless at_safepoints?),
       "garbage collection +[\\d.]+ % of the samples", "profiling itself +[\\d.]+ % of elapsed"].each { |line| assert_match(/^ +\d+\.\d{3} s  #{line}$/, err) }
      assert_match(/^ +[\d,]+    samples +[\d,]+ missed \([\d.]+ %\)$/, err)
      assert_match(/^    top [2-5] by samples on top of the stack:\n( +[\d.]+ % +[\d.]+ s  \S.*\n){2,5}\n/, err)
      assert_match(/ % +0\.\d+ s  Object#busy  -e:1$/, err)
      assert_includes err, "ringprof report #{path}"
      refute_match(/\e\[/, err)
      samples = load_profile(path)[:samples]
      assert_equal samples, err[/([\d,]+)    samples/, 1].delete(",").to_i
    end
  end

  def test_the_summary_says_how_to_keep_more
    _, err, = ringprof("run", "--limit", "1", "--", *ruby_busy)
    assert_match(/--out FILE would have kept the profile/, err)
    assert_match(/top 1 by/, err)
    # Of two that are on every stack either may come first.
    _, err, = ringprof("run", "--sort-total", "--limit", "2", "--", *ruby_busy)
    top = err[/top 2 by samples anywhere in the stack:\n((?:.+\n){2})/, 1]
    assert_match(/ <main>  /, top)
    assert_match(/ Object#busy  /, top)
    _, err, = ringprof("run", "--quiet", "--", *ruby_busy)
    assert_empty err
  end

  def test_every_ruby_under_a_shell_is_profiled
    script = %(#{RbConfig.ruby} -e "$1"; echo between; #{RbConfig.ruby} -e '#{CliTesting.spin("second")}')
    out, err, status = ringprof_run("--", "sh", "-c", script, "sh", BUSY)
    assert_equal 0, status.exitstatus, err
    assert_empty err
    assert_match(/Object#busy/, out)
    assert_match(/Object#second/, out)
    in_directory do |dir|
      path = File.join(dir, "p.dump")
      ringprof_run("--out", path, "--", "sh", "-c", script, "sh", BUSY)
      assert_includes names(load_profile(path)), "Object#busy"
      others = Dir.children(dir) - ["p.dump"]
      assert_equal 1, others.length
      assert_match(/\Ap\.dump\.\d+\z/, others.first)
      assert_includes names(load_profile(File.join(dir, others.first))), "Object#second"
    end
  end

  def test_a_ruby_that_execs_another_is_profiled_on
    out, err, status = ringprof_run("--", RbConfig.ruby, "-e", "exec(*ARGV)", *ruby_busy)
    assert_equal 0, status.exitstatus, err
    assert_match(/Object#busy/, out)
  end

  def test_children_have_files_of_their_own
    clock = "Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID)"
    more = "def forked = (limit = #{clock} + 0.1; busy until #{clock} > limit); system(#{RbConfig.ruby.inspect}, '-e', '#{CliTesting.spin("inner")}'); Process.wait(fork { forked; exit!(0) }); Process.wait(fork { forked })"
    in_directory do |dir|
      path = File.join(dir, "my p.dump")
      out, err, status = ringprof("run", "--out", path, "--report", "--", *ruby_busy(more))
      assert_equal 0, status.exitstatus, err
      own, *others = Dir.children(dir).sort
      assert_equal ["my p.dump", 3], [own, others.length]
      others.each { |name| assert_match(/\Amy p\.dump\.\d+\z/, name) }
      profiles = others.map { |name| load_profile(File.join(dir, name)) }
      profiles.each { |profile| assert_valid_results(profile) }
      assert_equal 1, profiles.count { |profile| names(profile).include?("Object#inner") }
      assert_equal 2, profiles.count { |profile| names(profile).include?("Object#forked") }
      assert_empty names(load_profile(path)) & %w[Object#inner Object#forked]
      # What the command tells is the sum.
      assert_match(/^ +4 +processes/, err)
      assert_match(/^  Samples: #{[load_profile(path), *profiles].sum { |profile| profile[:samples] }} /, out)
      %w[busy inner forked].each { |name| assert_match(/Object##{name}$/, out) }
    end
  end

  # A big program with gems of its own, under ruby -S.
  def test_rdoc
    in_directory do |dir|
      File.write("#{dir}/source.rb", "# A class.\nclass Source\n  # A method.\n  def method = 1\nend\n" * 50)
      command = [RbConfig.ruby, "-S", "rdoc", "--quiet", "--op", "#{dir}/doc", "#{dir}/source.rb"]
      skip "this Ruby has no rdoc" unless system(*command.first(3), "--version", out: File::NULL, err: File::NULL)
      out, err, status = ringprof("run", "--interval", "500", "--out", "#{dir}/p.dump", "--", *command)
      assert_equal 0, status.exitstatus, err
      assert_empty out
      assert_path_exists "#{dir}/doc"
      assert_match(/^ ringprof: wall, every 500 µs$/, err)
      results = load_profile("#{dir}/p.dump")
      assert_valid_results(results)
      assert(names(results).any? { |name| name.start_with?("RDoc::RDoc#") })
    end
  end

  # Bundler is in charge of which gems are activated, and finds nothing that we have taken before it.
  def test_under_bundler
    in_directory do |dir|
      File.write("#{dir}/Gemfile", "")
      script = "puts Gem.loaded_specs.keys.sort.join(' '); #{BUSY}"
      bundled = [RbConfig.ruby, "-e", "load Gem.bin_path('bundler', 'bundle')", "--", "exec", RbConfig.ruby, "-e", script]
      bare, _, status = capture(bundled, chdir: dir)
      skip "this Ruby has no bundler" unless status.success?
      out, err, status = ringprof("run", "--live=#{dir}/s", "--out", "#{dir}/p.dump", "--", *bundled, chdir: dir)
      assert_equal 0, status.exitstatus, err
      assert_equal bare, out
      assert_includes Dir.glob("#{dir}/p.dump*").flat_map { |path| names(load_profile(path)) }, "Object#busy"
    end
  end

  def test_children_can_be_left_out
    more = "system(#{RbConfig.ruby.inspect}, '-e', '#{CliTesting.spin("inner")}'); Process.wait(fork { busy(20) })"
    in_directory do |dir|
      out, err, status = ringprof_run("--no-children", "--out", File.join(dir, "p.dump"), "--", *ruby_busy(more))
      assert_equal 0, status.exitstatus, err
      assert_equal ["p.dump"], Dir.children(dir)
      refute_match(/inner/, out)
    end
  end

  def test_all_threads_by_default
    script = "#{CliTesting.spin("aside", "Thread.new { %s }.join")}; #{BUSY}"
    out, = ringprof_run("--", RbConfig.ruby, "-e", script)
    assert_match(/Object#aside$/, out)
    out, = ringprof_run("--threads", "current", "--", RbConfig.ruby, "-e", script)
    refute_match(/Object#aside$/, out)
    assert_match(/Object#busy$/, out)
  end

  def test_a_program_that_profiles_itself_keeps_running
    out, err, status = ringprof_run("--", *ruby_busy("require 'ringprof'; p RingProf.run { busy(5) }"))
    assert_equal 0, status.exitstatus, err
    assert_match(/^nil$/, out)
    assert_match(/Object#busy/, out)
    _, err, status = ringprof_run("--", *ruby_busy("RingProf.stop; RingProf.results"))
    assert_equal 1, status.exitstatus
    assert_match(/the program read the results itself/, err)
  end

  def test_nothing_but_ringprof_is_loaded_into_the_program
    script = "mine, other = $LOADED_FEATURES.reject { |f| f.start_with?('#{RbConfig::CONFIG["prefix"]}/') }.partition { |f| f.include?('ringprof') }; " \
             "puts mine.map { |f| File.basename(f) }.sort.join(' '); puts other.grep(%r{/})"
    out, = ringprof_run("--", RbConfig.ruby, "--disable-gems", "-e", script)
    assert_equal "agent.rb autorun.rb errors.rb exec.rb files.rb native.rb recorder.rb restart.rb results.rb ringprof.rb ringprof.so settings.rb stats.rb tally.rb version.rb\n", out.lines.first
    assert_equal "#{"=" * 34}\n", out.lines[1]
  end

  def test_the_environment_of_the_user_is_kept
    in_directory do |dir|
      File.write(File.join(dir, "mine.rb"), "MINE = 1")
      out, err, = ringprof_run("--", RbConfig.ruby, "-e", "p MINE, $VERBOSE; #{BUSY}", env: { "RUBYLIB" => dir, "RUBYOPT" => "-W0 -rmine" })
      assert_empty err
      assert_equal %W[1\n nil\n], out.lines.first(2)
    end
  end

  def test_paths_with_spaces
    in_directory do |dir|
      checkout = File.join(dir, "a checkout")
      Dir.mkdir(checkout)
      %w[lib exe].each { |part| FileUtils.cp_r(File.join(Subprocess::ROOT, part), checkout) }
      FileUtils.cp(File.join(RingProf::Native.directory, "ringprof/ringprof.so"), File.join(checkout, "lib/ringprof"))
      program = File.join(dir, "my program.rb")
      File.write(program, "#{BUSY}; p ARGV, $LOADED_FEATURES.grep(/exec.rb|ringprof.so/).map { |f| f[/a checkout/] }")
      command = [RbConfig.ruby, File.join(checkout, "exe/ringprof"), "run", "--report", "--quiet", "--", RbConfig.ruby, program, "an argument", "--out"]
      out, err, status = capture(command, env: { "TMPDIR" => dir, "RUBYLIB" => nil })
      assert_equal 0, status.exitstatus, err
      assert_equal ["[\"an argument\", \"--out\"]\n", "[\"a checkout\", \"a checkout\"]\n"], out.lines.first(2)
      assert_match(/Object#busy/, out)
      assert_equal ["a checkout", "my program.rb"], Dir.children(dir).sort, "temporary files are gone"
    end
  end

  def test_signals_meant_for_the_command_reach_it
    in_directory do |dir|
      ready = File.join(dir, "ready")
      script = "trap(:TERM) { puts 'terminated in order'; exit 5 }; File.write(#{ready.inspect}, ''); #{BUSY}; sleep"
      out = File.join(dir, "out")
      pid = Process.spawn(RbConfig.ruby, *Subprocess::INCLUDES, EXE, "run", "--report", "--quiet", "--", RbConfig.ruby, "-e", script, out: out, pgroup: true)
      sleep 0.01 until File.exist?(ready)
      Process.kill(:INT, pid)
      Process.kill(:TERM, pid)
      assert_equal 5, wait_for_status(pid)
      assert_match(/\Aterminated in order\n=+\n/, File.read(out))
    end
  end

  def test_bad_options
    assert_refused(2, /name the command to profile/, "run")
    assert_refused(2, /name the command to profile/, "run", "--raw", "--")
    assert_refused(2, /invalid argument: --mode walls/, "run", "--mode", "walls", "--", "true")
    assert_refused(2, /invalid argument: --tick sun/, "run", "--tick", "sun", "--", "true")
    assert_refused(2, /invalid argument: --interval often/, "run", "--interval", "often", "--", "true")
    %w[0 1000000].each { |interval| assert_refused(2, /between 1 and 999999/, "run", "--interval", interval, "--", "true") }
    assert_refused(2, /invalid argument: --limit=-1/, "run", "--limit=-1", "--", "true")
    assert_refused(2, /invalid option: --nonsense/, "run", "--nonsense", "--", "true")
    assert_refused(2, /missing argument: --out/, "run", "--out")
  end

  def test_a_target_that_cannot_be_written_is_told_before_the_command_runs
    assert_refused(1, %r{cannot write /nonexistent/x: no directory /nonexistent}, "run", "--out", "/nonexistent/x", "--", "echo", "ran")
    assert_refused(1, /cannot write .*: it is a directory/, "run", "--out", Dir.tmpdir, "--", "echo", "ran")
  end

  def test_bad_combinations
    assert_refused(2, /--threads current does not go with --live/, "run", "--threads", "current", "--live", "--", "true")
    assert_refused(2, /invalid argument: --max-overhead much/, "run", "--max-overhead", "much", "--", "true")
  end

  private

  def wait_for_status(pid)
    status = wait_for(pid, 60) || flunk("still running")
    status.exitstatus
  end
end

class CliReportTest < RingProf::TestCase
  include CliTesting

  def test_reports_a_file
    with_dump do |path|
      out, err, status = ringprof("report", path)
      assert_equal [0, ""], [status.exitstatus, err]
      assert_match(/Mode: custom\n  Samples: 3 /, out)
      assert_equal out, ringprof(path).first
      assert_equal 1, ringprof(path, "--limit", "1").first.lines.length - 6
      assert_equal 1, ringprof("--limit", "1", path).first.lines.length - 6
      assert_match(/RingProf.sample$/, out.lines[6])
      refute_match(/RingProf.sample$/, ringprof("report", "--sort-total", path).first.lines.last)
    end
  end

  def test_reports_json
    with_dump do |path|
      json = "#{path}.json"
      File.write(json, JSON.generate(Marshal.load(File.binread(path))))
      assert_equal ringprof(path).first, ringprof(json).first
    end
  end

  def test_bad_input
    assert_refused(2, /name one profile file/, "report")
    assert_refused(1, /cannot read a: No such file or directory/, "report", "a", "b")
    assert_refused(1, %r{cannot read /nonexistent: No such file or directory}, "report", "/nonexistent")
    assert_refused(1, /cannot read .*: Is a directory/, "report", Dir.tmpdir)
    assert_refused(1, /is not a profile/, "report", __FILE__)
    assert_refused(1, /is not a profile/, __FILE__)
    assert_refused(2, /no such command or file: nonsense/, "nonsense")
    assert_refused(2, /invalid option/, "--nonsense")
  end

  def test_help_and_version
    %w[-h --help help].each do |argument|
      out, err, status = ringprof(argument)
      assert_equal [0, ""], [status.exitstatus, err]
      ["ringprof run ", "ringprof report ", "Examples:"].each { |text| assert_includes out, text }
    end
    assert_equal ringprof("--help").first, ringprof.first
    assert_equal "ringprof #{RingProf::VERSION}\n", ringprof("--version").first
    %w[run report].each do |command|
      out, err, status = ringprof(command, "--help")
      assert_equal [0, ""], [status.exitstatus, err]
      assert_match(/\AUsage: ringprof #{command} .*Examples:.*Options:.*--limit N/m, out)
      assert_equal out, ringprof("help", command).first
    end
    assert_refused(2, /no such command: nonsense/, "help", "nonsense")
  end

  def test_a_reader_that_goes_away
    with_dump do |path|
      reader, writer = IO.pipe
      reader.close
      err, status = report_into(writer, path)
      assert_equal [0, ""], [status.exitstatus, err]
    end
  end

  def test_a_full_disk
    with_dump do |path|
      err, status = File.open("/dev/full", "w") { |full| report_into(full, path) }
      assert_equal 1, status.exitstatus
      assert_match(/\Aringprof: No space left on device/, err)
      assert_equal 1, err.lines.length, err
    end
  end

  private

  def report_into(io, path)
    Tempfile.create("ringprof-test") do |err|
      pid = Process.spawn(RbConfig.ruby, *Subprocess::INCLUDES, EXE, "report", path, out: io, err: err)
      status = wait_for(pid, 60)
      [File.read(err.path), status]
    end
  end

  def with_dump
    in_directory do |dir|
      path = File.join(dir, "profile.dump")
      RingProf.run(mode: :custom, out: path) { 3.times { sample_here } }.close
      yield path
    end
  end
end

class AutorunTest < RingProf::TestCase
  include CliTesting

  def test_dumps_at_exit_and_says_so
    in_directory do |dir|
      path = File.join(dir, "profile.dump")
      _, err, status = autorun("#{BUSY}; exit 4", "RINGPROF_OUT" => path, "RINGPROF_MODE" => "cpu", "RINGPROF_INTERVAL" => "500",
                                                  "RINGPROF_RAW" => "1", "RINGPROF_IGNORE_GC" => "0")
      assert_equal 4, status.exitstatus
      assert_equal "RingProf results dumped at: #{path}\n", err
      results = Marshal.load(File.binread(path))
      assert_equal [:cpu, 500], results.values_at(:mode, :interval)
      assert_operator frame_named(results, "Object#busy")[:total_samples], :>, 0
      assert_valid_results(results)
      noted = results[:metadata][:ringprof]
      assert_equal RingProf::VERSION, noted[:version]
      assert_kind_of Hash, noted[:stats]
    end
  end

  def test_the_file_has_a_default_name
    in_directory do |dir|
      out, = autorun("print Process.pid; Dir.chdir('/')", chdir: dir)
      assert_equal ["ringprof-#{out}.dump"], Dir.children(dir)
    end
  end

  def test_an_exception_is_reported_as_ever
    in_directory do |dir|
      _, err, status = autorun("raise 'boom'", chdir: dir)
      assert_equal 1, status.exitstatus
      assert_match(/boom \(RuntimeError\)/, err)
      assert_equal 1, Dir.children(dir).length
    end
  end

  def test_what_the_program_does_at_exit_is_profiled_too
    in_directory do |dir|
      autorun(CliTesting.spin("at_the_end", "at_exit { %s }"), chdir: dir)
      results = Marshal.load(File.binread(Dir.glob("#{dir}/*").first))
      assert_operator frame_named(results, "Object#at_the_end")[:total_samples], :>, 0
    end
  end

  def test_bad_settings_end_the_program_with_one_line
    { "RINGPROF_MODE" => "walls", "RINGPROF_INTERVAL" => "often", "RINGPROF_TICK" => "sun", "RINGPROF_THREADS" => "some", "RINGPROF_MAX_OVERHEAD" => "little",
      "RINGPROF_TOGGLE" => "NONSENSE", "RINGPROF_SOCKET" => "/nonexistent/#{"x" * 200}" }.each do |name, value|
      out, err, status = autorun("print 'ran'", name => value)
      assert_equal 1, status.exitstatus
      assert_empty out
      assert_equal 1, err.lines.length, err
      assert_match(/\Aringprof: /, err)
    end
  end

  def test_a_target_that_cannot_be_written_does_not_change_the_exit_status
    in_directory do |dir|
      _, err, status = autorun("exit 3", "RINGPROF_OUT" => "/nonexistent/x", "TMPDIR" => dir)
      assert_equal 3, status.exitstatus
      assert_match(/\Aringprof: cannot write the profile: No such file or directory/, err)
      _, err, status = autorun("exit 3", "RINGPROF_OUT" => "/dev/full", "TMPDIR" => dir)
      assert_equal 3, status.exitstatus
      assert_match(/\Aringprof: cannot write the profile: No space left/, err)
    end
  end

end
