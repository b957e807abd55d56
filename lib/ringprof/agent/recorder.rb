# frozen_string_literal: true

require "ringprof/agent/tally"

module RingProf
  module Agent
    # The profile of this process, from start to file, by way of any number of looks at it in between.
    #
    # The core hands a profile out when it is stopped. To look at one that goes on, it is stopped, read and
    # started again, and the parts are added up in the end. While a part is read the GVL is held most of the
    # time, so that little of the program happens meanwhile; how long that took is noted with the profile.
    class Recorder
      # What there was to take has been taken by the program itself.
      TAKEN = "the program read the results itself"
      private_constant :TAKEN

      # @param options [Hash] for `RingProf.start`
      # @param files [Files]
      def initialize(options, files)
        @options = options
        @files = files
        @lock = Mutex.new
        clear
      end

      # @return [Hash]
      attr_reader :options

      # @return [Boolean] a profile of ours is being taken
      attr_reader :recording

      # @return [Hash] looks at a running profile: `:count`, `:total_ns`, `:max_ns`
      attr_reader :gaps

      # @return [Boolean] this process has the file that was named, and not that with its id
      def first?
        @files.first
      end

      # Starts a profile.
      #
      # @return [Boolean] false when one runs already
      # @raise [Error, ArgumentError] when it cannot be started
      def start
        alone { begin_part && @recording = true }
      end

      # Ends the profile and writes it.
      #
      # @return [String, nil] its path
      # @raise [Error] when there is none
      def stop
        alone { end_profile }
      end

      # Writes what there is, and goes on with a new profile.
      #
      # @param path [String, nil] where to
      # @return [String, nil] its path
      # @raise [Error] when no profile is being taken
      def rotate(path)
        alone do
          renew
          whole = sum
          clear(recording: true)
          @files.write(whole, path)
        end
      end

      # What was sampled since the last look.
      #
      # @return [Hash] a results Hash, with the stats beside it
      # @raise [Error] when no profile is being taken
      def look
        alone { [renew, @last_stats] }
      end

      # Starts the profile, or ends it, in a signal's trap.
      #
      # @return [Boolean] false when somebody is at it
      def toggle
        return false unless @lock.try_lock

        begin
          toggle_alone
        ensure
          @lock.unlock
        end
        true
      end

      # At the end of the process.
      #
      # @return [void]
      def finish
        alone { end_profile if @recording }
      rescue Error => e
        Agent.say "no profile: #{e.message}"
      end

      # In a forked child: what was recorded is the parent's.
      #
      # @param heir [Boolean] the parent is gone, as with `Process.daemon`: the child has its file
      # @return [void]
      def forked(heir:)
        @lock = Mutex.new
        @files.forked(heir: heir)
        clear(recording: @recording && RingProf.restart_after_fork)
      end

      # In a forked child that is ready: it starts anew if its parent was recording.
      #
      # @return [void]
      def start_over
        begin_part if @recording
      end

      private

      # One at a time. A trap cannot wait; nor does anybody wait for itself.
      def alone
        return yield if @lock.owned?

        locked = @lock.try_lock || lock
        yield
      ensure
        @lock.unlock if locked
      end

      def lock
        @lock.lock
        true
      rescue ThreadError
        # In the trap of a process that ends: whoever has it will not come back to it.
        false
      end

      def clear(recording: false)
        @recording = recording
        @parts = []
        @stats = @last_stats = nil
        @births = {}
        @gaps = { count: 0, total_ns: 0, max_ns: 0 }
      end

      def needs_one
        raise Error, "no profile is being taken" unless @recording
      end

      def toggle_alone
        if @recording
          end_profile
        elsif begin_part
          @recording = true
          Agent.say "process #{Process.pid} is being profiled"
        else
          Agent.say "not started: the program has a profile of its own running"
        end
      rescue Error, ArgumentError, SystemCallError => e
        Agent.say "no profile: #{e.message}"
      end

      # Ends the profile, and starts the next at once.
      #
      # @return [Hash] what was recorded
      def renew
        needs_one
        part, stats = keep_the_gvl { swap }
        raise Error, TAKEN unless part

        keep(part, stats)
        part
      end

      # Nobody else runs in between, but for what reading a profile calls.
      def swap
        from = now
        part = take
        begin_part
        note_gap(now - from)
        part
      end

      # The GVL is kept meanwhile: the end of a time slice in here would let the program run unseen.
      def keep_the_gvl
        thread = Thread.current
        priority = thread.priority
        thread.priority = 3
        yield
      ensure
        thread.priority = priority
      end

      def begin_part
        RingProf.start(**@options)
      end

      # @return [Array(Hash, Hash), nil] results and stats
      def take
        RingProf.stop
        stats = RingProf.stats.to_h
        part = Results.take
        [part, stats] if part
      end

      def note_gap(gap)
        @gaps = { count: @gaps[:count] + 1, total_ns: @gaps[:total_ns] + gap, max_ns: [@gaps[:max_ns], gap].max }
      end

      def now
        Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
      end

      # Parts are added up in pairs of equal size, like the digits of a counter: each is copied a few times
      # and not once for every later one.
      def keep(part, stats)
        carry_births_over(part)
        @last_stats = stats
        @stats = @stats ? Tally.add(@stats, stats) : stats
        @parts << [part, 0]
        join while @parts.length > 1 && @parts[-1].last == @parts[-2].last
      end

      # The core says of a thread that was there at the start that it was born then.
      def carry_births_over(part)
        threads = part[:threads] || []
        threads.each { |thread| thread[:born] = @births.fetch(thread.values_at(:native_id, :name), thread[:born]) }
        @births = threads.reject { |thread| thread[:died] }.to_h { |thread| [thread.values_at(:native_id, :name), thread[:born]] }
      end

      def join
        (older, rank), (newer,) = @parts.pop(2)
        @parts << [add(older, newer), rank + 1]
      end

      def add(older, newer)
        (Profile.new(older) + Profile.new(newer)).data
      end

      def sum
        whole = @parts.map(&:first).reverse.reduce { |newer, older| add(older, newer) }
        whole[:metadata] = {} unless whole[:metadata].is_a?(Hash)
        whole[:metadata][:ringprof] = notes
        whole
      end

      def notes
        notes = { version: VERSION, ruby: RUBY_DESCRIPTION, program: $PROGRAM_NAME, pid: Process.pid, stats: @stats }
        notes[:gaps] = @gaps unless @gaps[:count].zero?
        notes
      end

      def end_profile
        needs_one
        last = take
        keep(*last) if last
        raise Error, TAKEN if @parts.empty?

        whole = sum
        clear
        @files.write(whole)
      end
    end
  end
end
