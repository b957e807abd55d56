# frozen_string_literal: true

module RingProf
  class Profile
    # Raw stacks in the making, with all that is noted for each sample beside them: times, deltas, threads, states,
    # and whatever else a format has one of for each sample.
    class Columns
      BY_RUN = %i[raw raw_lines raw_cpu_weights].freeze
      private_constant :BY_RUN

      # @return [Integer] samples in the stacks of the source
      attr_reader :size

      # @param data [Hash] results with `:raw`
      def initialize(data)
        @data = data
        @stacks = Stacks.new(data[:raw], data[:raw_lines])
        @size = @runs = 0
        @stacks.each_ids do |_ids, weight|
          @size += weight
          @runs += 1
        end
        @made = { raw: [] }
        @made[:raw_lines] = [] if data[:raw_lines]&.size == data[:raw].size
        @made[:raw_cpu_weights] = [] if data[:raw_cpu_weights]&.size == @runs
        @by_sample = data.keys.select { |key| by_sample?(key) }
        @by_sample.each { |key| @made[key] = [] }
        @last = nil
      end

      # @param key [Symbol]
      # @return [Array, nil] what the source notes for each sample under this key
      def of(key)
        @data[key] if @by_sample.include?(key)
      end

      # Runs of the source.
      #
      # @yield [Stacks::Run, Integer, nil] the run, and its CPU weight where there is one
      # @return [void]
      def each_run
        number = -1
        @stacks.each do |run|
          number += 1
          yield run, @made.key?(:raw_cpu_weights) ? @data[:raw_cpu_weights][number] : nil
        end
      end

      # Takes samples of a run over.
      #
      # @param run [Stacks::Run]
      # @param ids [Array<Integer>] the stack that they get
      # @param lines [Array<Integer>, nil]
      # @param kept [Array<Integer>, nil] indices of the samples among all; nil for the whole run
      # @param cpu_weight [Integer, nil]
      # @return [void]
      def push(run, ids, lines, kept: nil, cpu_weight: nil)
        weight = kept ? kept.size : run.weight
        @by_sample.each do |key|
          source = @data[key]
          @made[key].concat(kept ? source.values_at(*kept) : source[run.first, weight])
        end
        # Equal stacks that come to stand side by side are one run.
        if @last == [ids, lines]
          [:raw, :raw_lines].each { |key| @made[key][-1] += weight if @made.key?(key) }
          @made[:raw_cpu_weights][-1] += cpu_weight if cpu_weight
        else
          start_run(ids, lines, weight, cpu_weight)
        end
      end

      # @return [Hash] the keys of the new raw stacks; those of the source that do not apply any more are nil
      def to_h
        gone = BY_RUN.select { |key| @data.key?(key) && !@made.key?(key) }
        gone.to_h { |key| [key, nil] }.merge(@made)
      end

      private

      def by_sample?(key)
        key.start_with?("raw_") && !BY_RUN.include?(key) && @data[key].is_a?(Array) && @data[key].size == @size
      end

      def start_run(ids, lines, weight, cpu_weight)
        @last = [ids, lines]
        @made[:raw].push(ids.size).concat(ids).push(weight)
        @made[:raw_lines]&.push(ids.size)&.concat(lines)&.push(weight)
        @made[:raw_cpu_weights]&.push(cpu_weight)
      end
    end
    private_constant :Columns
  end
end
