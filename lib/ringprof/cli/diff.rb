# frozen_string_literal: true

require "ringprof/cli/comparison"
require "ringprof/cli/style"
require "ringprof/profile"

module RingProf
  module CLI
    # `ringprof diff`: what is different between two profiles.
    class DiffCommand < Command
      command "diff", "compare two profiles"

      # `Name > +5%`, `/name/ > 5 %`.
      RULE = /\A(?<self>self )?\s*(?<name>.+?)\s*(?<side>[<>])\s*(?<limit>[+-]?\d+(?:\.\d+)?)\s*%\s*\z/
      Rule = Struct.new(:text, :own, :pattern, :side, :limit)
      private_constant :RULE, :Rule

      def initialize
        super
        @limit = 30
        @rules = []
      end

      private

      def banner
        <<~TEXT
          Usage: ringprof diff [options] BEFORE AFTER

          Compares two profiles frame by frame: the share of the samples with the frame on top of the stack (self)
          and anywhere in it (total), before and after, and the difference in points of a hundred. A star marks
          a difference that the number of samples does not explain: one that chance alone would bring about in
          less than 1 of 100 comparisons of two equal programs, all frames taken together. Shares say
          nothing of a program that got slower all over: the last lines compare the amounts.

          --fail-if 'Name > +5%' ends with status 1 when the share of Name grew by more than 5 points and the
          growth has a star. The share is the total one; `self Name > +5%` is about the other, /regexp/ stands
          for every name that it matches, and < for what shrank. May be given several times.

          Examples:
            ringprof diff before.dump after.dump
            ringprof diff --all --limit 0 before.dump after.dump | less
            ringprof diff --fail-if 'Cart#total > +5%' --fail-if '/\\(marking|sweeping\\)/ > +2%' main.dump branch.dump

          Options:
        TEXT
      end

      def define(parser)
        parser.on("--fail-if RULE", "end with status 1 if it holds: 'Name > +5%'") { |text| @rules << rule(text) }
        parser.on("--limit N", NonNegative, "frames to print, 0 for all (default 30)") { |limit| @limit = limit }
        parser.on("--sort-total", "order by the difference of TOTAL, and not of SELF") { @sort_total = true }
        parser.on("--all", "print what has no star, too") { @all = true }
      end

      def rule(text)
        match = RULE.match(text) or usage "--fail-if #{text}: must be as 'Name > +5%'"
        Rule.new(text, !match[:self].nil?, pattern(match[:name]), match[:side], match[:limit].to_f)
      rescue RegexpError => e
        usage "--fail-if #{text}: #{e.message}"
      end

      def pattern(name)
        inner = name[%r{\A/(.*)/\z}, 1]
        inner ? Regexp.new(inner) : name
      end

      def perform(files)
        usage "name two profiles" unless files.length == 2

        before, after = files.map { |file| sum([file]) }
        comparison = Comparison.new(before, after)
        write(comparison, files)
        judge(comparison) ? 1 : 0
      end

      def write(comparison, files)
        @style = Style.new($stdout)
        puts "#{files[0]} (#{Style.count(comparison.before.samples)} samples) -> #{files[1]} (#{Style.count(comparison.after.samples)} samples)", ""
        rows = chosen(comparison)
        if rows.empty?
          puts "No difference that the number of samples does not explain.#{" --all prints the others." unless @all}"
        else
          puts @style.paint("      SELF before    after     diff      TOTAL before    after     diff    FRAME", :bold), *rows.map { |row| line(row) }
        end
        puts "", *amounts(comparison)
      end

      def chosen(comparison)
        rows = comparison.rows(by: @sort_total ? :total : :self)
        rows = rows.select(&:significant?) unless @all
        @limit.zero? ? rows : rows.first(@limit)
      end

      def line(row)
        place = row.name.match?(/\A(block|<|rescue|ensure)/) ? "  #{@style.paint(Style.place(row.file, row.line), :dim)}" : ""
        "#{cells(row.own, 16)}   #{cells(row.total, 16)}   #{row.name}#{place}".rstrip
      end

      def cells(change, first)
        difference = format("%+8.1f%s", 100 * change.difference, change.significant ? "*" : " ")
        difference = @style.paint(difference, change.difference.positive? ? :red : :green) if change.significant
        format("%#{first}.1f %8.1f ", 100 * change.before, 100 * change.after) + difference
      end

      def amounts(comparison)
        unit, before, after = comparison.amounts
        change = before.zero? ? "" : format(" (%+.1f %%)", 100 * (after - before).fdiv(before))
        number = before.is_a?(Float) ? "%.3f" : "%d"
        ["#{unit}: #{format(number, before)} before, #{format(number, after)} after#{change}"]
      end

      # @return [Boolean] a rule holds
      def judge(comparison)
        @rules.map { |rule| holds?(rule, comparison) }.any?
      end

      def holds?(rule, comparison)
        rows = comparison.rows.select { |row| rule.pattern === row.name }
        warn "ringprof: --fail-if #{rule.text}: neither profile has such a frame" if rows.empty?
        rows.map { |row| beyond?(rule, row, rule.own ? row.own : row.total) }.any?
      end

      def beyond?(rule, row, change)
        points = 100 * change.difference
        return false unless rule.side == ">" ? points > rule.limit : points < rule.limit

        told = "#{row.name}: #{format("%+.1f", points)} points (#{rule.text})"
        warn "ringprof: #{told}#{", but within what the number of samples explains" unless change.significant}"
        change.significant
      end
    end
  end
end
