# frozen_string_literal: true

require "ringprof/profile"
require "ringprof/report"

module RingProf
  module Report
    # What the reports for people share.
    module Printing
      private

      # @return [String] for example `(12.3%)`
      def percent(part, whole = @profile.samples)
        format("(%.1f%%)", 100 * @profile.share(part, whole))
      end

      # @return [String] without what would break the line or the terminal
      def line(name)
        Profile::Names.line(name)
      end

      # @param limit [Integer, nil] 0 and nil for all
      def first(list, limit)
        limit.nil? || limit.zero? ? list : list.first(limit)
      end
    end
    private_constant :Printing
  end
end
