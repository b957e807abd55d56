# frozen_string_literal: true

require "etc"
require "ringprof/cli/style"

module RingProf
  module CLI
    # `ringprof doctor`: what will work here and what will not, and what to do about it.
    #
    # It does not guess: a profile is taken, and asked how it came about.
    class DoctorCommand < Command
      command "doctor", "tell what works on this machine and in this Ruby"

      # `state` is `:ok`, `:limited` or `:broken`; `remedy` is a line.
      Finding = Struct.new(:state, :subject, :text, :remedy)
      MARKS = { ok: ["ok", :green], limited: ["limited", :yellow], broken: ["broken", :red] }.freeze
      # Seconds of CPU time that the trial takes, and its interval in µs.
      TRIAL = 0.1
      INTERVAL = 1000
      private_constant :Finding, :MARKS, :TRIAL, :INTERVAL

      private

      def banner
        <<~TEXT
          Usage: ringprof doctor

          Takes a profile of a tenth of a second and tells how that went: the Ruby, its compiler, where
          samples are taken, what keeps the time, whose signal it is, what will and will not work here, and for
          each thing that does not a line on what to do. The Ruby is the one that runs ringprof, with the
          options in RUBYOPT. The exit status is 1 when no profile can be taken.

          Examples:
            ringprof doctor
            RUBYOPT=--yjit ringprof doctor
            ~/.rubies/3.4/bin/ruby -S ringprof doctor

          Options:
        TEXT
      end

      def define(_parser); end

      def perform(arguments)
        usage "takes no arguments" unless arguments.empty?

        style = Style.new($stdout)
        findings = examine
        findings.each { |finding| tell(finding, style) }
        findings.any? { |finding| finding.state == :broken } ? 1 : 0
      end

      def tell(finding, style)
        mark, look = MARKS.fetch(finding.state)
        puts "#{style.paint(format("%-8s", mark), look)} #{format("%-12s", finding.subject)} #{finding.text}"
        puts "#{" " * 22}#{style.paint("-> #{finding.remedy}", :bold)}" if finding.remedy
      end

      def examine
        findings = [ruby, compiler]
        load_profiler
        stats = trial
        [*findings, *trial_findings(stats), states, *threads, children, stackprof, *settings]
      rescue Error, LoadError, SystemCallError => e
        remedy = e.is_a?(LoadError) ? "run bin/setup in a checkout, or gem pristine ringprof" : "the system refuses what a profile needs: see the message, and the limits of the container"
        [*findings, Finding.new(:broken, "profile", e.message.lines.first.chomp, remedy)]
      end

      def load_profiler
        require "ringprof"
      end

      # @return [Hash] stats, and with them the samples
      def trial
        RingProf.start(mode: :cpu, interval: INTERVAL)
        deadline = cpu_time + TRIAL
        nil while cpu_time < deadline
        RingProf.stop
        { **RingProf.stats, samples: RingProf.results[:samples] }
      end

      def cpu_time
        Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID)
      end

      def trial_findings(stats)
        [capture(stats), tick(stats), priority(stats), signal(stats), accuracy(stats)].compact
      end

      def ruby
        return Finding.new(:ok, "Ruby", RUBY_DESCRIPTION) unless RUBY_VERSION == "3.2.0"

        Finding.new(:limited, "Ruby", RUBY_DESCRIPTION, "3.2.0 samples at safepoints alone: 3.2.1 or newer does not")
      end

      def compiler
        return Finding.new(:ok, "compiler", "none: the interpreter alone") unless yjit?
        return Finding.new(:ok, "compiler", "YJIT") if RUBY_VERSION >= "3.5"
        return Finding.new(:ok, "compiler", "YJIT; a compiled frame on top of the stack has no line number") if RUBY_VERSION >= "3.3"

        Finding.new(:limited, "compiler", "YJIT, which publishes frames before they are whole in this Ruby",
                    "samples come from safepoints; Ruby 3.3 or newer, or no --yjit, for exact ones")
      end

      def yjit?
        defined?(RubyVM::YJIT) && RubyVM::YJIT.enabled? ? true : false
      end

      def capture(stats)
        return Finding.new(:ok, "capture", "in the signal handler, where the tick finds the thread") if stats[:capture] == :direct

        Finding.new(:limited, "capture", "at safepoints: #{stats[:postponed_because]}",
                    "lines and short methods are less exact; total times are right; sleeping threads have no samples")
      end

      def tick(stats)
        case stats[:tick]
        when :thread then Finding.new(:ok, "tick", "a native thread of its own, on #{Etc.nprocessors} cores")
        else Finding.new(:limited, "tick", "a kernel timer for each thread, for there is one core",
                         "CPU samples come no more often than the kernel ticks (100 to 1000 a second); a second core helps")
        end
      end

      def priority(stats)
        return nil unless stats[:tick] == :thread
        return Finding.new(:ok, "priority", "the tick thread is real-time: a busy machine does not delay ticks") if stats[:tick_realtime]

        Finding.new(:limited, "priority", "the tick thread has no real-time priority: on a busy machine ticks come late (their time is not lost)",
                    "ulimit -r 1, or the capability CAP_SYS_NICE")
      end

      def signal(stats)
        return Finding.new(:ok, "signal", "SIGPROF, which nobody else handles here") if stats[:signal] == "PROF"

        Finding.new(:ok, "signal", "#{stats[:signal]}, for somebody else handles SIGPROF")
      end

      # The time that was burnt is known.
      def accuracy(stats)
        seen = stats[:samples] * INTERVAL / 1e6
        text = format("%d samples for %.0f ms of CPU time, %d missed; a sample costs %.1f µs", stats[:samples], TRIAL * 1000, stats[:missed_samples],
                      stats[:handler][:count].zero? ? 0 : stats[:handler][:total_ns] / 1e3 / stats[:handler][:count])
        return Finding.new(:ok, "samples", text) if (seen - TRIAL).abs < TRIAL / 5

        Finding.new(:limited, "samples", text, "the machine is too busy, or its clock too coarse: try again, or --tick timer")
      end

      def states
        return Finding.new(:ok, "states", "running, waiting for the GVL, blocked, garbage collection") if RUBY_VERSION >= "3.2"

        Finding.new(:limited, "states", "running, blocked, garbage collection: waiting for the GVL counts as blocked", "Ruby 3.2 or newer tells them apart")
      end

      def threads
        return [Finding.new(:ok, "threads", "all of the main ractor")] unless ENV["RUBY_MN_THREADS"] == "1"

        [Finding.new(:limited, "threads", "the main thread alone, for RUBY_MN_THREADS=1 is set", "unset RUBY_MN_THREADS")]
      end

      def children
        Finding.new(:ok, "children", "forked and started Rubies are profiled by ringprof run, each into FILE.PID")
      end

      def stackprof
        other = Gem.loaded_specs["stackprof"] if defined?(Gem)
        return Finding.new(:ok, "StackProf", "not loaded") unless other || defined?(StackProf)

        Finding.new(:limited, "StackProf", "is loaded: its handler and ours take turns on SIGPROF", "gem \"ringprof\", require: \"ringprof/stackprof\" in its place")
      end

      # What the environment says already.
      def settings
        set = ENV.select { |name, value| name.start_with?("RINGPROF") && !value.empty? }
        set.empty? ? [] : [Finding.new(:ok, "environment", set.map { |pair| pair.join("=") }.join(" "))]
      end
    end
  end
end
