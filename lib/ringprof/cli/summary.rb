# frozen_string_literal: true

require "ringprof/cli/style"

module RingProf
  module CLI
    # What a run came to, on half a screen.
    #
    #      ringprof: wall, every 1000 µs
    #
    #          2.001 s  elapsed
    #          1.843 s  CPU                    92.1 % of elapsed (1.801 user, 0.042 system)
    #          1.702 s  running                85.1 % of thread time
    #          ...
    class Summary
      STATES = { running: "running", waiting: "waiting for the GVL", blocked: "blocked", gc: "garbage collection" }.freeze
      private_constant :STATES

      # @param profile [Profile] of all processes
      # @param runs [Array<Hash>] what each process noted of itself
      # @param elapsed [Float] seconds
      # @param cpu [Array(Float, Float)] seconds, user and system
      # @param limit [Integer] frames
      # @param sort_total [Boolean]
      def initialize(profile, runs:, elapsed:, cpu:, limit: 5, sort_total: false)
        @profile = profile
        @runs = runs
        @elapsed = elapsed
        @cpu = cpu
        @limit = limit
        @sort_total = sort_total
      end

      # @param io [IO]
      # @return [void]
      def write(io)
        @style = Style.new(io)
        io.puts "", " #{@style.paint("ringprof: #{head}", :bold)}", "", *times, *counts, "", *top
      end

      private

      def head
        return @profile.mode.to_s unless @profile.interval

        timed? ? "#{@profile.mode}, every #{@profile.interval} µs" : "#{@profile.mode}, every #{@profile.interval}"
      end

      def timed?
        %i[wall cpu cpu_and_wall].include?(@profile.mode)
      end

      def times
        user, system = @cpu
        cpu = user + system
        [
          time(@elapsed, "elapsed"),
          time(cpu, "CPU", format("%s of elapsed (%.3f user, %.3f system)", Style.percent(@elapsed.zero? ? 0 : cpu / @elapsed), user, system)),
          *states,
          time(cost, "profiling itself", "#{Style.percent(@elapsed.zero? ? 0 : cost / @elapsed)} of elapsed")
        ]
      end

      # Of threads and not of the process: three that wait for a second have waited for three.
      def states
        return [] unless timed?

        states = @profile.states
        named = STATES.reject { |state, _name| %i[waiting blocked].include?(state) && states[state].to_i.zero? }
        named.map do |state, name|
          samples = states[state].to_i
          time(samples * @profile.interval / 1e6, name, "#{Style.percent(@profile.share(samples))} of the samples")
        end
      end

      def cost
        stats.sum { |stats| stats[:cost_ns].to_i } / 1e9
      end

      def stats
        @runs.map { |run| run[:stats] }.grep(Hash)
      end

      def counts
        missed = @profile.missed_samples
        lines = [number(@profile.samples, "samples", "#{Style.count(missed)} missed (#{format("%.2f", 100 * @profile.miss_rate)} %)")]
        lines << number(@runs.length, "processes", "each has a profile of its own") if @runs.length > 1
        # A profile that ended early shows a part of the program, whatever its numbers say.
        stats.map { |stats| stats[:failure] }.compact.uniq.each { |failure| lines << @style.paint("    the profile ended early: #{failure}", :red) }
        lines
      end

      def top
        frames = @profile.frames(sort: @sort_total ? :total : :self)
        frames = frames.reject { |frame| frame.samples.zero? } unless @sort_total
        frames = frames.first(@limit) unless @limit.zero?
        ["    top #{frames.length} by #{@sort_total ? "samples anywhere in the stack" : "samples on top of the stack"}:", *frames.map { |frame| row(frame) }]
      end

      def row(frame)
        samples = @sort_total ? frame.total_samples : frame.samples
        share = format("%8s", Style.percent(@profile.share(samples)))
        amount = timed? ? format("%9.3f s", samples * @profile.interval / 1e6) : format("%11s", Style.count(samples))
        "    #{@style.paint(share, :yellow)}  #{amount}  #{frame.name}  #{@style.paint(Style.place(frame.file, frame.line), :dim)}".rstrip
      end

      def time(seconds, name, remark = nil)
        line(format("%12.3f s", seconds), name, remark)
      end

      def number(count, name, remark = nil)
        line(format("%12s  ", Style.count(count)), name, remark)
      end

      def line(value, name, remark)
        "#{@style.paint(value, :bold)}  #{format("%-20s", name)}  #{remark && @style.paint(remark, :dim)}".rstrip
      end
    end
  end
end
