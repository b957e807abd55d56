# frozen_string_literal: true

# Profiles this process without a line of its code: `ruby -rringprof/autorun script.rb`. The command
# `ringprof run` loads it into every Ruby of a command through RUBYOPT.
#
# | variable | meaning |
# | --- | --- |
# | `RINGPROF` | `1`: from here to the end; `0`: not at all; unset: as `1`, or waiting where there is a signal or a socket to start it by |
# | `RINGPROF_MODE` | `wall` (default), `cpu`, `cpu_and_wall`, `object`, `custom` |
# | `RINGPROF_INTERVAL` | microseconds, or allocations in object mode |
# | `RINGPROF_THREADS` | `all` (default); `current`: the main thread alone |
# | `RINGPROF_RAW`, `RINGPROF_IGNORE_GC` | on when set and neither empty nor `0` |
# | `RINGPROF_MAX_OVERHEAD` | share of the time that profiling may take: `0.02` |
# | `RINGPROF_MAX_MEMORY` | bytes that the tables may take: `33554432` |
# | `RINGPROF_TICK` | `auto` (default), `thread`, `timer` |
# | `RINGPROF_OUT` | file to write; default `ringprof-PID.dump` in the current directory |
# | `RINGPROF_CHILDREN` | `0`: forked children, and Rubies that this one starts, are left out |
# | `RINGPROF_TOGGLE` | a signal, as `USR2`: starts the profile, stops and writes it, starts the next |
# | `RINGPROF_SOCKET` | path of a control socket (start, stop, rotate, stats, top); `%p` is the process id |
#
# Forked children and Rubies that are started by this one are profiled too, each into `OUT.PID`, with a
# socket of its own. A second profile of the same process goes to `OUT-2`, and so on.
#
# A file that cannot be written is replaced by one in the directory for temporary files, and a line on
# stderr says so. Where the system refuses what a profile needs, the program runs without one.
#
# The profile is written at exit: also after `exit 3`, `exit!`, an uncaught exception, or a signal that
# Ruby turns into an exception. `exec`, SIGKILL and a crash lose it.

require "ringprof/agent"

module RingProf
  Agent.arm
end
