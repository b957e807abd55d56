# frozen_string_literal: true

require "ringprof"

module Torture
  # Ends this process while a profile is being taken, one way or another.
  module Leave
    # Way => exit status, or the signal that ends the process.
    WAYS = {
      end_of_block: 0,
      exit: 3,
      exit!: 4,
      abort: 1,
      uncaught_exception: 1,
      exit_in_at_exit: 5,
      stop_in_at_exit: 0,
      exit_in_thread: 6,
      exit_bang_in_thread: 7,
      abort_on_exception: 1,
      exit_in_fiber: 8,
      exit_in_ensure: 9,
      threads_still_running: 0,
      trapped_term: 10,
      term: "TERM",
      interrupt: "INT",
      kill: "KILL",
      finalizers: 0
    }.freeze

    module_function

    def by(way, options)
      RingProf.start(**options)
      busy
      public_send(way)
      Kernel.exit(0)
    end

    def busy
      300.times { |number| number.to_s.sub(/1/) { |match| match } }
    end

    def end_of_block; end
    def exit = Kernel.exit(3)
    def exit! = Kernel.exit!(4)
    def abort = Kernel.abort("the way is abort")
    def uncaught_exception = raise("the way is an uncaught exception")

    def exit_in_at_exit
      at_exit do
        busy
        Kernel.exit(5)
      end
      Kernel.exit(3)
    end

    def stop_in_at_exit
      at_exit do
        busy
        RingProf.stop
        Kernel.exit!(11) unless RingProf.results[:samples].is_a?(Integer)
      end
      Kernel.exit(0)
    end

    def exit_in_thread
      Thread.new { Kernel.exit(6) }.join
    end

    def exit_bang_in_thread
      Thread.new { Kernel.exit!(7) }.join
    end

    def abort_on_exception
      Thread.report_on_exception = false
      Thread.abort_on_exception = true
      Thread.new { raise "the way is abort_on_exception" }
      sleep
    end

    def exit_in_fiber
      Fiber.new { Kernel.exit(8) }.resume
    end

    def exit_in_ensure
      raise "cleared away by exit"
    ensure
      Kernel.exit(9)
    end

    def threads_still_running
      5.times { Thread.new { loop { busy } } }
      3.times { Thread.new { sleep } }
      sleep 0.005
      Kernel.exit(0)
    end

    def trapped_term
      trap("TERM") { Kernel.exit(10) }
      Process.kill(:TERM, Process.pid)
      sleep
    end

    def term
      trap("TERM", "DEFAULT")
      Process.kill(:TERM, Process.pid)
      sleep
    end

    def interrupt
      trap("INT", "DEFAULT")
      Process.kill(:INT, Process.pid)
      sleep
    end

    def kill
      Process.kill(:KILL, Process.pid)
      sleep
    end

    def finalizers
      50.times { ObjectSpace.define_finalizer(Object.new, proc { busy }) }
      Kernel.exit(0)
    end
  end
end
