# frozen_string_literal: true

module RingProf
  class Profile
    # Makes the results Hash of two profiles together. See {Profile#+}.
    #
    # Ids are of one profile: those of the second are translated. A frame gets the id of the frame of the first
    # profile that has its name, file and line; when several have (two methods made by the same `define_method`),
    # the nth one of the second goes to the nth one of the first, so that no two of one profile become one.
    class Merger
      # One for each sample or run; they are kept when both profiles have them for all of their samples.
      RAW = %i[raw_sample_timestamps raw_timestamp_deltas raw_states raw_cpu_weights].freeze
      # What is made here; anything else that only one has is kept as it is.
      MADE = %i[samples gc_samples missed_samples metadata frames raw raw_lines states threads raw_threads gc_causes gc_callers
                cpu_samples folded_samples raw_omitted_samples].concat(RAW).freeze
      private_constant :RAW, :MADE

      # @param first [Profile]
      # @param second [Profile]
      # @raise [Error] when they count different things
      def initialize(first, second)
        raise Error, "cannot combine #{second.class}" unless second.is_a?(Profile)

        @profiles = [first, second]
        same(:mode, :interval, :version)
        @first = first.data
        @second = second.data
        translate
      end

      # @return [Hash] results
      def data
        results = @first.merge(samples: sum(:samples), gc_samples: sum(:gc_samples), missed_samples: sum(:missed_samples),
                               metadata: metadata, frames: frames(:frames))
        results.merge!(raw).merge!(states).merge!(threads(results)).merge!(collections)
        @second.each { |key, value| results[key] = value unless MADE.include?(key) || results.key?(key) }
        # Of one alone it would be taken for that of both; and what is noted for each sample goes with the samples.
        results.reject { |key, value| value.nil? && key != :interval || (key.start_with?("raw_") && !MADE.include?(key)) }
      end

      private

      def same(*keys)
        keys.each do |key|
          first, second = @profiles.map(&key)
          raise Error, "cannot combine #{key} #{first} with #{key} #{second}" unless first == second
        end
      end

      def sum(key)
        (@first[key] || 0) + (@second[key] || 0)
      end

      # Neither is lost: values that differ are gathered.
      def metadata
        gathered(@profiles[0].metadata, @profiles[1].metadata)
      end

      def gathered(first, second)
        first.merge(second) { |_key, one, other| one == other ? one : [*listed(one), *listed(other)].uniq }
      end

      def listed(value)
        value.is_a?(Array) ? value : [value]
      end

      def translate
        places = {}
        described(@first).each { |id, frame| (places[identity(frame)] ||= []) << id }
        taken = described(@first).to_h { |id, _frame| [id, true] }
        @ids = {}
        described(@second).each do |id, frame|
          twin = places[identity(frame)]&.shift
          @ids[id] = twin || free(id, taken)
          taken[@ids[id]] = true
        end
        @taken = taken
      end

      # `:gc_callers` has frames of its own, with the same ids.
      def described(data)
        (data[:gc_callers] || {}).merge(data[:frames])
      end

      def identity(frame)
        [frame[:name], frame[:file], frame[:line]]
      end

      def free(id, taken)
        return id unless taken.key?(id)

        @next ||= [*taken.keys, *described(@second).keys].max
        @next += 1
      end

      # An id that the profile does not describe means something else in each.
      def id(id)
        @ids[id] ||= free(id, @taken).tap { |made| @taken[made] = true }
      end

      def frames(key)
        merged = (@first[key] || {}).dup
        (@second[key] || {}).each do |id, frame|
          id = id(id)
          frame = frame.merge(edges: frame[:edges].transform_keys { |callee| id(callee) }) if frame[:edges]
          merged[id] = merged.key?(id) ? added(merged[id], frame) : frame
        end
        merged
      end

      def added(one, other)
        one.merge(other) do |key, mine, yours|
          case key
          when :samples, :total_samples, :cpu_samples, :cpu_total_samples then mine + yours
          when :edges then mine.merge(yours) { |_id, a, b| a + b }
          when :lines, :states then mine.merge(yours) { |_line, a, b| pairs(a, b) }
          else mine
          end
        end.merge(states_of(one, other))
      end

      # All of a frame's samples ran where it does not say otherwise.
      def states_of(one, other)
        return {} if one.key?(:states) == other.key?(:states)

        told, silent = one.key?(:states) ? [one, other] : [other, one]
        ran = [silent[:total_samples] || 0, silent[:samples] || 0]
        { states: told[:states].merge(running: pairs(told[:states][:running] || [0, 0], ran)) }
      end

      def pairs(one, other)
        one.is_a?(Array) ? [one[0] + other[0], one[1] + other[1]] : one + other
      end

      def raw
        return { raw: nil, raw_lines: nil, **RAW.to_h { |key| [key, nil] } } unless raw_of_both?

        { raw: (@first[:raw] || []) + translated(@second[:raw] || []), raw_lines: raw_lines, **RAW.to_h { |key| [key, column(key)] } }.compact
      end

      def raw_of_both?
        return false unless @first[:raw] || @second[:raw]

        # A profile without a sample has no stacks either.
        [@first, @second].all? { |data| data[:raw] || data[:samples].zero? }
      end

      def translated(raw)
        raw = raw.dup
        Stacks.new(raw).each_place { |position, depth| depth.times { |index| raw[position + index] = id(raw[position + index]) } }
        raw
      end

      # Line 0 is one that is not known.
      def raw_lines
        return nil unless @first[:raw_lines] || @second[:raw_lines]

        [@first, @second].flat_map { |data| data[:raw_lines] || without_lines(data[:raw] || []) }
      end

      def without_lines(raw)
        lines = raw.dup
        Stacks.new(raw).each_place { |position, depth| lines.fill(0, position, depth) }
        lines
      end

      def column(key)
        parts = [@first, @second].map { |data| data[key] || (data[:samples].zero? ? [] : nil) }
        parts[0] + parts[1] if parts.all? && parts.any?(&:any?)
      end

      def states
        return {} unless @first[:states] || @second[:states]

        { states: @profiles.map(&:states).reduce { |one, other| one.merge(other) { |_state, a, b| a + b } } }
      end

      # A thread that was sampled twice is one; those of another process are others, whatever their numbers say.
      def threads(results)
        return {} unless @first[:threads] || @second[:threads]

        threads = @profiles[0].threads.dup
        numbers = @profiles[1].threads.map { |thread| place(threads, thread) }
        { threads: threads, raw_threads: results[:raw] && raw_threads(numbers) }
      end

      def place(threads, thread)
        index = threads.index { |one| one.values_at(:native_id, :born, :name) == thread.values_at(:native_id, :born, :name) }
        if index
          threads[index] = same_thread(threads[index], thread)
          return index
        end
        used = threads.map { |one| one[:id] }.compact
        threads << (used.include?(thread[:id]) ? thread.merge(id: used.max + 1) : thread)
        threads.size - 1
      end

      def same_thread(one, other)
        one.merge(other) do |key, mine, yours|
          case key
          when :samples, :cpu_samples then mine + yours
          when :states then mine.merge(yours) { |_state, a, b| a + b }
          when :died then yours || mine
          else mine
          end
        end
      end

      def raw_threads(numbers)
        parts = [@first, @second].map { |data| data[:raw_threads] || (data[:samples].zero? ? [] : nil) }
        parts[0] + parts[1].map { |number| number && numbers[number] } if parts.all?
      end

      def collections
        results = {}
        if @first[:gc_causes] || @second[:gc_causes]
          results[:gc_causes] = (@first[:gc_causes] || {}).merge(@second[:gc_causes] || {}) do |_cause, one, other|
            one.merge(other) { |_key, a, b| a + b }
          end
        end
        results[:gc_callers] = frames(:gc_callers) if @first[:gc_callers] || @second[:gc_callers]
        %i[cpu_samples folded_samples raw_omitted_samples].each { |key| results[key] = sum(key) if @first[key] || @second[key] }
        results
      end
    end
    private_constant :Merger
  end
end
