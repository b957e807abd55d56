# frozen_string_literal: true

require "ringprof/version"
require "ringprof/errors"
require "ringprof/native"
require "ringprof/restart"
require "ringprof/results"
require "ringprof/stats"

# A sampling profiler whose signal handler captures the stack itself, into a preallocated ring.
# The API and the results are StackProf's.
#
# @example Profile a block
#   profile = RingProf.run(mode: :cpu, interval: 1000, raw: true) { work }
#
# @example Profile between two points, into a file that `ringprof report` and `stackprof` read
#   RingProf.start(mode: :wall)
#   work
#   RingProf.stop
#   RingProf.results("profile.dump")
#
# The extension defines, in this module:
#
# * `start(**options)` → true, or false when running already (then no option is looked at).
#   Options: `mode:` (`:wall`, `:cpu`, `:cpu_and_wall`, `:object`, `:custom`), `interval:`
#   (microseconds; in object mode every how many-th allocation), `raw:`, `aggregate:`, `ignore_gc:`,
#   `metadata:`, `out:`, `threads:` (`:all`; `:current` for the thread that calls start),
#   `max_overhead:` (0.02 for two percent of the time), `max_memory:` (bytes of the tables), `tick:` (`:auto`, `:thread`, `:timer`),
#   `buffer:`, `on_failure:`. Unknown ones are ignored.
#   Raises {Error} when the system refuses what a profile needs; nothing is left running then.
# * `stop` → true, or false when not running. A profile that could not go on (no memory for more, ticks
#   that the kernel refuses) has ended by itself, with one line on stderr, and `stats[:failure]` says why.
#   What was recorded is there to be read; the first `stop` after it raises {Error}, or returns true with
#   `on_failure: :warn` (the default is `:raise`, or `RINGPROF_ON_FAILURE`).
# * `running?` → true or false.
# * `sample` → true, or false when not running: records the calling stack, in every mode.
# * `use_postponed_job!` → nil: captures at safepoints from the next start on.
module RingProf
  autoload :Middleware, "ringprof/middleware"
  autoload :Profile, "ringprof/profile"
  autoload :Report, "ringprof/report"

  Native.load
  require "ringprof/exec"

  class << self
    # Profiles the block. An exception goes through and stops the profiler; the profile can then
    # still be read with {results}.
    #
    # Inside a session that runs already the block is called unprofiled by itself: the running
    # session goes on and keeps the samples.
    #
    # @param options [Hash] the options of `start`
    # @yield the code to profile; its value is discarded
    # @return [Hash, IO, nil] the profile, or the IO that it was written to when `out:` is given;
    #   nil inside a session that runs already
    # @raise [LocalJumpError] without a block
    # @raise [Error] when the profiler could not start, or when the profile has ended before the block;
    #   in the latter case {results} has what was recorded
    def run(**options)
      raise LocalJumpError, "no block given" unless block_given?

      unless start(**options)
        yield
        return nil
      end

      through = false
      begin
        yield
        through = true
      ensure
        through ? stop : stop_quietly
      end
      results
    end

    # How the last session captured, what became of every tick, and what it cost.
    #
    # @return [Stats] a Hash
    def stats
      Stats[Native.stats]
    end

    # Whether forked children are profiled like their parent. They start anew, empty, with the same
    # options; `out:` is a file of their own, with the child's process id after the name, and is written
    # when the child ends by `exit`, or at the end of its program.
    #
    # @return [Boolean]
    def restart_after_fork
      Restart.enabled
    end

    # @param on [Boolean]
    # @return [void]
    def restart_after_fork=(on)
      Restart.enabled = on
    end

    # Hands out the finished profile and forgets it. Several sessions accumulate until they are read.
    #
    # @param out [String, Pathname, #to_io, nil] file to write to, in Marshal's format; nil: the
    #   `out:` of the last start, if any
    # @return [Hash, IO, nil] the profile; the open, flushed IO when it was written; nil while
    #   running, before any start, and when it was read already
    # @raise [SystemCallError] when the file cannot be opened or written; the profile is kept and
    #   can be read again, until a newer one is finished
    # @raise [TypeError] when `out` is neither a path nor an IO; the profile is kept
    def results(out = nil)
      Results.read(out)
    end

    private

    # For a block that is left by an exception or a throw, which goes on.
    def stop_quietly
      stop
    rescue Error
      nil
    end
  end
end
