# frozen_string_literal: true

require "ringprof/report/method"

module RingProf
  module Report
    # A walk along callers and callees, from one method to the next, by numbers that are typed in.
    class Walk
      include Printing

      # @param profile [Profile]
      # @param filter [String, Regexp] where to begin: a part of a name, as it is written, or a Regexp
      # @param input [#gets]
      def initialize(profile, filter:, input: $stdin)
        @profile = profile
        @start = filter.is_a?(Regexp) ? filter : Regexp.new(Regexp.escape(filter))
        @input = input
      end

      # Ends when `exit` is chosen, or with the input.
      #
      # @param io [#puts, #print]
      # @return [void]
      def write(io)
        method = @start
        while method
          report = Method.new(@profile, filter: method)
          report.write(io)
          method = choose(io, choices(report.matching))
        end
      end

      private

      def choices(frames)
        frames.flat_map { |frame| [@profile.callers(frame.id), @profile.callees(frame.id)].flat_map { |list| list.map { |other, _| other.name } } }
      end

      # @return [Regexp, nil]
      def choose(io, names)
        loop do
          print_choices(io, names)
          answer = @input.gets
          io.puts "\n\n\n"
          return nil unless answer

          number = answer.to_i
          return nil if number == names.size + 1
          return /\A#{Regexp.escape(names[number - 1])}\z/ if number.between?(1, names.size)

          io.puts "Invalid choice.  Please select again..."
        end
      end

      def print_choices(io, names)
        io.puts "\n\n", "Select next method:"
        [*names, "exit"].each.with_index(1) { |name, number| io.puts format("%2d)  %s", number, line(name)) }
        io.print "> "
        io.flush if io.respond_to?(:flush)
      end
    end
  end
end
