# frozen_string_literal: true

module RingProf
  module CLI
    # Two profiles, frame by frame.
    #
    # A frame is known by its name, and by its file too where a profile has several of that name: lines move
    # and directories differ between two versions of a program.
    #
    # Whether a difference is more than chance is asked of the two counts: the samples of a frame, among all,
    # as drawn at random from each run. With as many questions as there are frames some would be answered
    # wrongly, so each is asked that much more strictly (Bonferroni). Two runs of one program are not
    # drawn from the same urn, though: caches, the heap and the machine's other work differ. What such runs
    # were found to differ by, {NOISE} of a share, is added to the variance.
    class Comparison
      # Chance of a star anywhere between two equal runs.
      ALPHA = 0.01
      # Standard deviation of a share between two runs of one program on one machine, relative to it.
      NOISE = 0.01
      private_constant :ALPHA, :NOISE

      # Shares, 0.0 to 1.0.
      Change = Struct.new(:before, :after, :significant) do
        def difference
          after - before
        end
      end

      Row = Struct.new(:name, :file, :line, :own, :total) do
        def significant?
          own.significant || total.significant
        end
      end

      # @return [Profile]
      attr_reader :before, :after

      # @param before [Profile]
      # @param after [Profile]
      # @raise [Error] when they do not measure the same
      def initialize(before, after)
        raise Error, "cannot compare #{before.mode} with #{after.mode}" unless before.mode == after.mode

        @before = before
        @after = after
      end

      # @param by [Symbol] `:self` or `:total`: by whose difference, the greatest first
      # @return [Array<Row>]
      def rows(by: :self)
        key = by == :self ? :own : :total
        all.sort_by.with_index { |row, index| [-row[key].difference.abs, index] }
      end

      # @return [Array] what is counted, before, after
      def amounts
        return ["samples", before.samples, after.samples] unless %i[wall cpu cpu_and_wall].include?(before.mode)

        ["seconds sampled", *[before, after].map { |profile| profile.samples * profile.interval / 1e6 }]
      end

      private

      def all
        @all ||= begin
          frames = [before, after].map { |profile| by_key(profile) }
          keys = frames.flat_map(&:keys).uniq
          # Two questions a frame.
          @strictness = quantile(ALPHA / [2 * keys.length, 1].max)
          keys.map { |key| row(*frames.map { |known| known[key] }) }
        end
      end

      def by_key(profile)
        profile.frames.group_by { |frame| key(frame) }
      end

      def key(frame)
        ambiguous.include?(frame.name) ? [frame.name, frame.file] : frame.name
      end

      def ambiguous
        @ambiguous ||= [before, after].flat_map { |profile| profile.frames.map(&:name).tally.select { |_name, count| count > 1 }.keys }.uniq
      end

      # Frames of one key are added up: a method that was defined twice.
      def row(older, newer)
        known = (newer || older).first
        Row.new(known.name, known.file, known.line, change(older, newer, :samples), change(older, newer, :total_samples))
      end

      def change(older, newer, count)
        counts = [older, newer].map { |frames| (frames || []).sum(&count) }
        sizes = [before.samples, after.samples]
        shares = counts.zip(sizes).map { |part, whole| whole.zero? ? 0.0 : part.fdiv(whole).clamp(0.0, 1.0) }
        Change.new(*shares, significant?(counts, sizes, shares))
      end

      def significant?(counts, sizes, shares)
        return false if sizes.any?(&:zero?)

        pooled = counts.sum.fdiv(sizes.sum).clamp(0.0, 1.0)
        variance = (pooled * (1 - pooled) * sizes.sum { |size| 1.fdiv(size) }) + (2 * ((NOISE * pooled)**2))
        variance.positive? && (shares[1] - shares[0]).abs > @strictness * Math.sqrt(variance)
      end

      # How many standard deviations are exceeded, on either side, with that probability.
      def quantile(probability)
        low = 0.0
        high = 40.0
        60.times do
          middle = (low + high) / 2
          Math.erfc(middle / Math.sqrt(2)) > probability ? low = middle : high = middle
        end
        high
      end
    end
  end
end
