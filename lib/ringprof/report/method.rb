# frozen_string_literal: true

require "ringprof/report/source"

module RingProf
  module Report
    # Methods one by one: who calls them, whom they call, and where in their code the samples fell.
    #
    #     App#work (/app/main.rb:10)
    #       samples:     3 self (15.0%)  /     15 total (75.0%)
    #       callers:
    #          15  (  100.0%)  <main>
    #       callees (12 total):
    #          12  (  100.0%)  Integer#times
    #       code:
    #         …
    class Method
      include Printing

      # @param profile [Profile]
      # @param filter [Regexp, String] matches the names of the methods; a String is a Regexp's source
      def initialize(profile, filter: //)
        @profile = profile
        @filter = Regexp.new(filter)
        @source = Source.new(profile)
      end

      # @param io [#puts]
      # @return [void]
      def write(io)
        matching.each { |frame| write_frame(io, frame) }
      end

      # @return [Array<Profile::Frame>] the methods that match, those with most samples on top first
      def matching
        @profile.frames.select { |frame| frame.name.match?(@filter) }
      end

      private

      def write_frame(io, frame)
        io.puts "#{line(frame.name)} (#{line(frame.file)}:#{frame.line || 1})"
        io.puts format("  samples: %5d self %s  /  %5d total %s", frame.samples, percent(frame.samples),
                       frame.total_samples, percent(frame.total_samples))
        write_neighbours(io, "callers:", @profile.callers(frame.id), frame.total_samples)
        inside = frame.total_samples - frame.samples
        write_neighbours(io, "callees (#{inside} total):", @profile.callees(frame.id), inside)
        io.puts "  code:"
        @source.write(io, frame.file, frame.lines, range(frame))
      end

      def write_neighbours(io, title, neighbours, whole)
        return if neighbours.empty?

        io.puts "  #{title}"
        neighbours.each do |frame, weight|
          io.puts format("   %5d  (%8s)  %s", weight, format("%.1f%%", 100 * @profile.share(weight, whole)), line(frame.name))
        end
      end

      # From the method's first line to one after the last with samples.
      def range(frame)
        first = frame.line || 1
        first..((frame.lines&.keys&.max || (first + 5)) + 1)
      end
    end
  end
end
