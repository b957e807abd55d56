# frozen_string_literal: true

require "ringprof/report/printing"

module RingProf
  module Report
    # Callgrind's format, for KCachegrind and QCachegrind.
    #
    # Samples on top that are of no line (those of C functions, of garbage collection) are on line 0: without them
    # a function that calls nobody would cost nothing.
    class Callgrind
      include Printing

      # @param profile [Profile]
      # @param modeline [String, nil] what is said of the mode, if not its name and interval
      # @param creator [String]
      def initialize(profile, modeline: nil, creator: "ringprof")
        @profile = profile
        @modeline = modeline || "#{profile.mode}(#{profile.interval})"
        @creator = creator
      end

      # @param io [#puts]
      # @return [void]
      def write(io)
        io.puts(*head)
        @profile.frames.each { |frame| write_frame(io, frame) }
        io.puts "totals: #{@profile.samples}"
      end

      private

      def head
        ["version: 1", "creator: #{@creator}", "pid: 0", "cmd: ruby", "part: 1", "desc: mode: #{line(@modeline)}",
         "desc: missed: #{@profile.missed_samples}", "positions: line", "events: Instructions", "summary: #{@profile.samples}"]
      end

      def write_frame(io, frame)
        io.puts "fl=#{name(frame.file)}", "fn=#{name(frame.name)}"
        rest = frame.samples
        frame.lines&.each do |line, (total, own)|
          own ||= total
          rest -= own
          io.puts "#{line} #{own}"
        end
        io.puts "0 #{rest}" if rest.positive?
        write_calls(io, frame)
        io.puts
      end

      def write_calls(io, frame)
        frame.edges&.each do |callee, weight|
          other = @profile.frame(callee)
          io.puts "cfl=#{name(other.file)}" unless other.file == frame.file
          io.puts "cfn=#{name(other.name)}", "calls=#{weight} #{other.line || 0}", "#{frame.line || 0} #{weight}"
        end
      end

      # A number in brackets in front would be taken for the short form of another name.
      def name(name)
        line(name).sub(/\A\((\d+)\)/, '[\1]')
      end
    end
  end
end
