# frozen_string_literal: true

require "rbconfig"
require "ringprof"
require "tempfile"

# Rubies of their own, for what must not happen in the process of the tests.
module Subprocess
  ROOT = File.expand_path("../..", __dir__)
  # Where a Ruby that we start finds the extension under test, and the rest.
  INCLUDES = [RingProf::Native.directory, "#{ROOT}/lib", "#{ROOT}/test"].flat_map { |path| ["-I", path] }.freeze

  # Runs a script in a fresh Ruby.
  #
  # @return [Array(String, String, Process::Status)] stdout, stderr, status
  def capture_ruby(script, *arguments, env: {}, chdir: nil, timeout: 120)
    capture([RbConfig.ruby, "-w", *INCLUDES, "-e", script, *arguments], env: env, chdir: chdir, timeout: timeout)
  end

  # Runs a script that must succeed, and returns its stdout.
  def ruby!(script, *arguments, **options)
    out, err, status = capture_ruby(script, *arguments, **options)
    assert_predicate status, :success?, "#{status}\n#{out}\n#{err}"
    out
  end

  # Runs a command in a process group of its own, which is killed when it takes too long.
  def capture(command, env: {}, chdir: nil, timeout: 120, input: File::NULL)
    stress = GC.stress
    GC.stress = false
    files = %w[out err].map { |name| Tempfile.new(name) }
    options = { in: input, out: files[0].path, err: files[1].path, pgroup: true }
    options[:chdir] = chdir if chdir
    pid = Process.spawn(env, *command, **options)
    status = wait_for(pid, timeout) || flunk("still running after #{timeout} s: #{command.inspect}\n#{files.map { |file| File.read(file.path) }}")
    [*files.map { |file| File.read(file.path) }, status]
  ensure
    files&.each(&:close!)
    GC.stress = stress
  end

  def wait_for(pid, timeout)
    waiter = Process.detach(pid)
    return waiter.value if waiter.join(timeout)

    Process.kill(:KILL, -pid)
    waiter.join
    nil
  end
end
