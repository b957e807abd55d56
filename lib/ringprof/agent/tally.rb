# frozen_string_literal: true

module RingProf
  module Agent
    # The stats of a profile that was taken in parts.
    module Tally
      # What is added up; of everything else the last part's is told.
      SUMS = %i[
        elapsed_ns cost_ns sent rounds unsent late overrun foreign received recorded written coalesced lost missed_samples
      ].freeze
      private_constant :SUMS

      # @param one [Hash]
      # @param other [Hash] the later
      # @return [Hash]
      def self.add(one, other)
        sums = SUMS.to_h do |key|
          pair = one[key], other[key]
          [key, pair.first.is_a?(Hash) ? pair.first.merge(pair.last) { |_key, a, b| a + b } : pair.sum]
        end
        other.merge(sums, failure: one[:failure] || other[:failure])
      end
    end
  end
end
