# frozen_string_literal: true

module RingProf
  module CLI
    # Two profiles, frame by frame.
    #
    # A frame is known by its name, and by its file too where a profile has several of that name: lines move
    # and directories differ between two versions of a program.
    #
    # Whether a difference is more than chance is asked of the two counts of samples, n before and m after, in
    # three steps:
    #
    # * The ratio m/n of a frame is held against the ratio of most frames ({#common}): a run that took longer
    #   all over, or a frame that grew and left smaller shares to all others, marks nobody else.
    # * Its logarithm has the variance 1/n + 1/m by chance. But two runs of one program differ by more than
    #   chance: caches, the heap, what else the machine does. By how much more is seen in how far all frames
    #   are scattered ({#scatter}); {NOISE} is the least that is believed.
    # * With as many questions as there are frames some would be answered wrongly, so each is asked that much more
    #   strictly (Bonferroni): all together are wrong in {ALPHA} of all comparisons. Where the scatter had to be
    #   estimated, from so many frames and no more, the limit is that of Student's distribution.
    #
    # What comes to less than {LEAST} of all samples is nothing to look at, however sure; nor is a share that stays
    # what it was ({SHOWN}), as that of <main> does.
    class Comparison
      # Chance of a star anywhere between two equal runs.
      ALPHA = 0.01
      # Standard deviation of a frame's time between two runs on an idle machine, relative to it.
      NOISE = 0.01
      # Of all samples.
      LEAST = 0.005
      SHOWN = 0.0005
      # Samples, of both runs, that a frame must have to be asked about all others; and so many such frames.
      ENOUGH = 20
      FEW = 5
      # Median of the square of a normal variable.
      MEDIAN_SQUARE = 0.4549
      # What a frame without a sample is taken to have, for there is no logarithm of nothing.
      HALF = 0.5
      private_constant :ALPHA, :NOISE, :LEAST, :SHOWN, :ENOUGH, :FEW, :MEDIAN_SQUARE, :HALF

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
          pairs = frames.flat_map(&:keys).uniq.map { |key| frames.map { |known| known[key] } }
          learn(pairs)
          pairs.map { |older, newer| row(older, newer) }
        end
      end

      # What the scatter of all frames tells.
      def learn(pairs)
        counts = pairs.map { |pair| counts_of(pair, :samples) }.select { |pair| pair.sum >= ENOUGH }
        @common = common(counts)
        @scatter = scatter(counts)
        estimated = @scatter > 2 * (NOISE**2)
        # Two questions a frame.
        @strictness = limit(ALPHA / [2 * pairs.length, 1].max, estimated ? counts.length - 1 : nil)
      end

      # Of the ratios of the counts the one in the middle, as a logarithm. Where there are few frames, that of
      # the whole.
      def common(counts)
        return log_ratio([before, after].map(&:samples)) if counts.length < FEW

        median(counts.map { |pair| log_ratio(pair) })
      end

      # The variance of the logarithms that chance leaves unexplained: what makes the middle one of their squares,
      # each in units of its own variance, that of a normal variable.
      def scatter(counts)
        least = 2 * (NOISE**2)
        return least if counts.length < FEW

        squares = counts.map { |pair| [(log_ratio(pair) - @common)**2, chance(pair)] }
        bisect(least, 4.0) { |more| median(squares.map { |square, chance| square / (chance + more) }) < MEDIAN_SQUARE }
      end

      # The least number for which the block is true, which it is from there on: `low` itself where it is true of that.
      def bisect(low, high)
        return low if yield(low)

        60.times do
          middle = (low + high) / 2
          yield(middle) ? high = middle : low = middle
        end
        high
      end

      def median(numbers)
        sorted = numbers.sort
        (sorted[(sorted.length - 1) / 2] + sorted[sorted.length / 2]) / 2.0
      end

      def log_ratio(pair)
        Math.log((pair[1] + HALF) / (pair[0] + HALF))
      end

      # Variance of the logarithm of the ratio, by chance.
      def chance(pair)
        pair.sum { |count| 1 / (count + HALF) }
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

      def counts_of(pair, count)
        pair.map { |frames| (frames || []).sum(&count) }
      end

      def change(older, newer, count)
        counts = counts_of([older, newer], count)
        shares = counts.zip([before.samples, after.samples]).map { |part, whole| whole.zero? ? 0.0 : part.fdiv(whole) }
        Change.new(*shares, significant?(counts, shares))
      end

      def significant?(counts, shares)
        return false if counts.sum.zero?

        beside = log_ratio(counts) - @common
        return false if (shares[1] - shares[0]) * (beside <=> 0) < SHOWN || shares.max * (1 - Math.exp(-beside.abs)) < LEAST

        beside.abs > @strictness * Math.sqrt(chance(counts) + @scatter)
      end

      # How many standard deviations are exceeded, on either side, with that probability: by a normal variable, or
      # by Student's with so many degrees of freedom.
      def limit(probability, freedom)
        normal = bisect(0.0, 40.0) { |deviations| Math.erfc(deviations / Math.sqrt(2)) < probability }
        return normal unless freedom

        # Hill's expansion of one in the other, in the powers of 1/freedom.
        square = normal**2
        terms = [1.0, (square + 1) / 4, ((5 * square + 16) * square + 3) / 96, (((3 * square + 19) * square + 17) * square - 15) / 384]
        normal * terms.each_with_index.sum { |term, power| term / (freedom**power) }
      end
    end
  end
end
