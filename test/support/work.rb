# frozen_string_literal: true

# Work to profile, by kind.
module Work
  module_function

  # Spins for that much CPU time of this thread, without allocating.
  def burn_cpu(seconds)
    deadline = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) + seconds
    burn_slice while Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) < deadline
  end

  # A call comes first: under YJIT a method that calls nothing may have no program counter, and then the VM's walk leaves
  # its frame out.
  def burn_slice
    index = Process.pid & 0
    index += 1 while index < 500
  end

  # @return [Float] seconds of elapsed time that the block took
  def clocked
    before = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    yield
    Process.clock_gettime(Process::CLOCK_MONOTONIC) - before
  end

  # Takes a while to mark while it is kept, and to sweep when it is not.
  def garbage
    Array.new(100_000) { |number| number.to_s * 20 }
  end

  def recurse(depth, &block)
    depth.zero? ? block.call : recurse(depth - 1, &block)
  end
end
