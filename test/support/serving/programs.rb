# frozen_string_literal: true

module Serving
  # Programs that are started beside a test, and do not outlive it.
  module Programs
    # Where administrators' programs are, which not everybody has on the path.
    MORE_DIRECTORIES = %w[/usr/bin /bin /usr/sbin /sbin].freeze

    module_function

    # @return [String, nil]
    def find(name)
      directories = ENV.fetch("PATH", "").split(File::PATH_SEPARATOR) + MORE_DIRECTORIES
      directories.map { |directory| File.join(directory, name) }.find { |path| File.file?(path) && File.executable?(path) }
    end

    # What to put before a command, so that it gets that signal when its parent is gone.
    def bound(signal)
      [find("setpriv"), "--pdeathsig", signal]
    end

    # Waits until the block says something true.
    #
    # @return what it says
    def until(what, patience: 60)
      deadline = now + patience
      loop do
        answer = yield
        return answer if answer
        raise "#{what}: not within #{patience} s" if now > deadline

        sleep 0.02
      end
    end

    # @return [Process::Status, nil] nil when it has not ended by then
    def wait(pid, patience)
      deadline = now + patience
      while now < deadline
        _pid, status = Process.wait2(pid, Process::WNOHANG)
        return status if status

        sleep 0.02
      end
      nil
    end

    def now
      Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end
