# frozen_string_literal: true

module RingProf
  class Profile
    # Counts frames from stacks: all that `:frames` says follows from them.
    class Tally
      STATES = %i[running waiting blocked].freeze
      private_constant :STATES

      # @return [Integer]
      attr_reader :samples

      def initialize
        @counts = {}
        @samples = 0
      end

      # @param ids [Array<Integer>] root first
      # @param lines [Array<Integer>, nil]
      # @param weight [Integer]
      # @param cpu_weight [Integer, nil]
      # @param states [Hash{Symbol => Integer}, nil] the weight by state
      # @return [void]
      def add(ids, lines, weight, cpu_weight: nil, states: nil)
        @samples += weight
        ids.each_with_index { |id, index| add_frame(ids, id, index, lines, weight) }
        add_once(ids.uniq, ids.last, weight, cpu_weight, states)
      end

      # @param frames [Hash{Integer => Hash}] the frames that the ids are of
      # @return [Hash{Integer => Hash}] those that were counted, in the same order, with new numbers
      def frames(frames)
        known = frames.select { |id, _frame| @counts.key?(id) }
        @counts.each_key { |id| known[id] ||= { name: UNKNOWN, file: "" } }
        known.to_h { |id, frame| [id, numbered(frame, @counts[id])] }
      end

      # @return [Hash{Integer => Hash{Integer => Integer}}] callees of each frame that has some
      def edges
        @counts.transform_values { |count| count[:edges] }.compact
      end

      private

      def add_frame(ids, id, index, lines, weight)
        count = @counts[id] ||= { total: 0, own: 0 }
        callee = ids[index + 1]
        if callee
          edges = count[:edges] ||= {}
          edges[callee] = (edges[callee] || 0) + weight
        end
        line = lines && lines[index]
        return unless line&.positive?

        pair = (count[:lines] ||= {})[line] ||= [0, 0]
        pair[0] += weight
        pair[1] += weight unless callee
      end

      # However often it is on the stack.
      def add_once(ids, leaf, weight, cpu_weight, states)
        ids.each do |id|
          count = @counts[id]
          own = id == leaf
          count[:total] += weight
          count[:own] += weight if own
          if cpu_weight
            count[:cpu_total] = (count[:cpu_total] || 0) + cpu_weight
            count[:cpu] = (count[:cpu] || 0) + (own ? cpu_weight : 0)
          end
          states&.each do |state, part|
            pair = (count[:states] ||= {})[state] ||= [0, 0]
            pair[0] += part
            pair[1] += part if own
          end
        end
      end

      def numbered(frame, count)
        made = frame.slice(:name, :file, :line).merge(total_samples: count[:total], samples: count[:own])
        made[:edges] = count[:edges] if count[:edges]
        made[:lines] = count[:lines] if count[:lines]
        states = count[:states]
        made[:states] = STATES.to_h { |state| [state, states[state] || [0, 0]] } if states&.key?(:waiting) || states&.key?(:blocked)
        made.merge!(cpu_samples: count[:cpu], cpu_total_samples: count[:cpu_total]) if count[:cpu]
        made
      end
    end
    private_constant :Tally
  end
end
