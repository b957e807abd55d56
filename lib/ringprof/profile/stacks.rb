# frozen_string_literal: true

require "ringprof/errors"

module RingProf
  class Profile
    # The single stacks of a profile (`raw: true`), run by run: equal stacks that were seen one after another.
    # Nothing is copied but the run that is looked at, for there may be millions.
    class Stacks
      include Enumerable

      # One run.
      #
      # * `ids` – of frames, root first
      # * `lines` – line of each frame, 0 when unknown; nil in dumps that do not tell
      # * `weight` – samples
      # * `first` – number of samples before it
      Run = Struct.new(:ids, :lines, :weight, :first)

      # @param raw [Array<Integer>] repeated: depth, ids, weight
      # @param raw_lines [Array<Integer>, nil] the same shape, with lines
      def initialize(raw, raw_lines = nil)
        @raw = raw
        @raw_lines = raw_lines&.size == raw.size ? raw_lines : nil
      end

      # @yield [Run]
      # @return [Enumerator, self]
      # @raise [Error] when the stacks are cut short, or are none
      def each
        return to_enum unless block_given?

        first = 0
        each_place do |position, depth|
          weight = @raw[position + depth]
          yield Run.new(@raw[position, depth], @raw_lines && @raw_lines[position, depth], weight, first)
          first += weight
        end
        self
      end

      # @yield [ids, weight] as {each}, in less time
      # @return [void]
      def each_ids
        each_place { |position, depth| yield @raw[position, depth], @raw[position + depth] }
      end

      # Where the runs are, for those who walk `raw` themselves.
      #
      # @yield [position, depth] of the root in `raw`
      # @return [void]
      def each_place
        position = 0
        size = @raw.size
        while position < size
          depth = @raw[position]
          position += 1
          damaged unless depth.is_a?(Integer) && depth >= 0 && @raw[position + depth].is_a?(Integer)
          yield position, depth
          position += depth + 1
        end
      end

      private

      def damaged
        raise Error, "its raw stacks are damaged"
      end
    end
  end
end
