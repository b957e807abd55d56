# frozen_string_literal: true

require "ringprof/profile/columns"
require "ringprof/profile/tally"

module RingProf
  class Profile
    # Makes the results Hash of a part of a profile. See {Profile#filter}.
    class Filter
      # What belongs to the whole and to no part of it.
      OF_THE_WHOLE = %i[gc_callers gc_causes folded_samples raw_omitted_samples].freeze
      private_constant :OF_THE_WHOLE

      # @param profile [Profile]
      def initialize(profile)
        @profile = profile
        @data = profile.data
      end

      # Chooses samples.
      #
      # @return [Hash] the results of those alone; the very same as before when nothing was asked
      # @raise [Error] when the profile does not tell what is asked for
      def samples(threads:, states:, time:)
        return @data unless threads || states || time

        @profile.stacks
        @columns = Columns.new(@data)
        conditions = [*thread_condition(threads), *state_condition(states), *time_condition(time)]
        take { |index| conditions.all? { |condition| condition.call(index) } }
      end

      # Chooses frames.
      #
      # @return [Hash] results with those frames alone; the very same as before when nothing was asked
      def frames(files:, reject_files:, names:, reject_names:)
        @files, @reject_files, @names, @reject_names = [files, reject_files, names, reject_names].map { |list| list && [*list] }
        return @data unless @files || @reject_files || @names || @reject_names

        cut
      end

      private

      def thread_condition(threads)
        return [] unless threads

        numbers = column(:raw_threads, "threads")
        wanted = @profile.threads.map { |thread| [*threads].any? { |one| thread?(thread, one) } }
        [proc { |index| numbers[index] && wanted[numbers[index]] }]
      end

      def thread?(thread, wanted)
        case wanted
        when Integer then thread.values_at(:id, :native_id).include?(wanted)
        when Regexp then Names.utf8(thread[:name]).match?(wanted)
        else Names.utf8(thread[:name]) == wanted || (wanted == "main" && thread[:main])
        end
      end

      def state_condition(states)
        return [] unless states

        of_samples = column(:raw_states, "states")
        wanted = [*states].map(&:to_sym)
        [proc { |index| wanted.include?(of_samples[index]) }]
      end

      def time_condition(time)
        return [] unless time

        times = column(:raw_sample_timestamps, "times")
        start = times.min || 0
        from = time.begin && (start + time.begin * 1e6)
        to = time.end && (start + time.end * 1e6)
        range = Range.new(from, to, time.exclude_end?)
        [proc { |index| range.cover?(times[index]) }]
      end

      def column(key, what)
        @columns.of(key) || raise(Error, "the profile does not tell the #{what} of its samples")
      end

      def take(&wanted)
        tally = Tally.new
        states = @columns.of(:raw_states)
        @columns.each_run do |run, cpu_weight|
          range = run.first...(run.first + run.weight)
          kept = range.select(&wanted)
          next if kept.empty?

          cpu_weight &&= (cpu_weight.to_f * kept.size / run.weight).round
          tally.add(run.ids, run.lines, kept.size, cpu_weight: cpu_weight, states: states && states.values_at(*kept).tally)
          @columns.push(run, run.ids, run.lines, kept: kept.size == run.weight ? nil : kept, cpu_weight: cpu_weight)
        end
        counted(tally, @columns.to_h)
      end

      # Missed samples have no thread, no state and no time.
      def counted(tally, made)
        results = @data.reject { |key, _value| OF_THE_WHOLE.include?(key) }.merge(made).compact
        results.merge!(samples: tally.samples, gc_samples: gc_samples(made), missed_samples: 0, frames: tally.frames(@data[:frames]))
        results[:states] = count_states(made[:raw_states]) if made[:raw_states]
        results[:cpu_samples] = made[:raw_cpu_weights].sum if made[:raw_cpu_weights] && @data[:cpu_samples]
        count_threads(results) if @data[:threads] && made[:raw_threads]
        results
      end

      def gc_samples(made)
        return made[:raw_states].count(:gc) if made[:raw_states]

        sum = 0
        Stacks.new(made[:raw]).each_ids { |ids, weight| sum += weight if ids.any? { |id| @profile.frame(id).name == GC_FRAME } }
        sum
      end

      def count_states(states)
        { running: 0, waiting: 0, blocked: 0, gc: 0 }.merge(states.tally)
      end

      # Threads that have no sample left are gone, and the others have new numbers.
      def count_threads(results)
        states = results[:raw_threads].zip(results[:raw_states] || []).group_by(&:first)
        left = @data[:threads].each_index.select { |index| states.key?(index) }
        results[:threads] = left.map do |index|
          counts = results[:raw_states] ? { states: count_states(states[index].map(&:last)) } : {}
          @data[:threads][index].reject { |key, _value| key == :cpu_samples }.merge(samples: states[index].size, **counts)
        end
        numbers = left.each_with_index.to_h
        results[:raw_threads] = results[:raw_threads].map { |index| numbers[index] }
      end

      def cut
        visible = @data[:frames].keys.select { |id| visible?(@profile.frame(id)) }.to_h { |id| [id, true] }
        results = @data.merge(frames: @data[:frames].slice(*visible.keys).transform_values { |frame| without_edges(frame, visible) })
        cut_stacks(results, visible) if @profile.raw?
        if @data[:gc_callers]
          callers = Profile.new(@data.merge(frames: @data[:gc_callers]))
          kept = @data[:gc_callers].keys.select { |id| visible?(callers.frame(id)) }.to_h { |id| [id, true] }
          results[:gc_callers] = @data[:gc_callers].slice(*kept.keys).transform_values { |frame| without_edges(frame, kept) }
        end
        results.compact
      end

      def visible?(frame)
        return false if @files && !path?(frame, @files)
        return false if @reject_files && path?(frame, @reject_files)
        return false if @names && !name?(frame, @names)

        !(@reject_names && name?(frame, @reject_names))
      end

      def path?(frame, files)
        files.any? { |file| file.is_a?(Regexp) ? frame.file.match?(file) : frame.file.start_with?(file.to_s) }
      end

      def name?(frame, names)
        names.any? { |name| name.is_a?(Regexp) ? frame.name.match?(name) : frame.name == name.to_s }
      end

      def without_edges(frame, visible)
        return frame unless frame[:edges]

        edges = frame[:edges].select { |callee, _weight| visible.key?(callee) }
        edges.empty? ? frame.reject { |key, _value| key == :edges } : frame.merge(edges: edges)
      end

      # Who is left calls whom he called through those who are not shown.
      def cut_stacks(results, visible)
        columns = Columns.new(@data)
        tally = Tally.new
        columns.each_run do |run, cpu_weight|
          places = run.ids.each_index.select { |index| visible.key?(run.ids[index]) }
          next if places.empty?

          ids = run.ids.values_at(*places)
          lines = run.lines&.values_at(*places)
          tally.add(ids, nil, run.weight)
          columns.push(run, ids, lines, cpu_weight: cpu_weight)
        end
        results.merge!(columns.to_h)
        add_edges(results[:frames], tally.edges)
      end

      def add_edges(frames, edges)
        return unless @data[:frames].each_value.any? { |frame| frame[:edges] }

        edges.each { |id, callees| frames[id] = frames[id].merge(edges: callees) }
      end
    end
    private_constant :Filter
  end
end
