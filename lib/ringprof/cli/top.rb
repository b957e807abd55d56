# frozen_string_literal: true

require "io/console"
require "ringprof/cli/live"
require "ringprof/cli/style"

module RingProf
  module CLI
    # `ringprof top`: what a running process does, once a second.
    class TopCommand < Command
      command "top", "watch a running process"

      # Rows of the head, and columns where the width is not known.
      HEAD = 6
      WIDTH = 100
      # The whole screen is cleared at first; then each line up to its end, without a flicker.
      CLEAR = "\e[H\e[2J"
      HOME = "\e[H"
      REST = "\e[J"
      private_constant :HEAD, :WIDTH, :CLEAR, :HOME, :REST

      # One answer of the process.
      Screen = Struct.new(:values, :frames)
      Row = Struct.new(:samples, :total, :blocked, :name, :place)
      private_constant :Screen, :Row

      def initialize
        super
        @every = 1.0
        @rounds = nil
      end

      private

      def banner
        <<~TEXT
          Usage: ringprof top [options] [PID | SOCKET]

          Shows where a running process spends its time, each second anew, until q or Ctrl-C. The process must
          have been started by `ringprof run --live`, or with RINGPROF_SOCKET. Where there is only one, it need
          not be named. Looking does not cost the process its profile: what was seen is kept and added up.
          While a part is read the process is not sampled, some milliseconds each time; `gaps` counts them.

          Examples:
            ringprof run --live -- bundle exec puma      in one terminal
            ringprof top                                 in another
            ringprof top 4711 --sort-total --every 5
            ringprof top /run/app/ringprof.sock --rounds 1 | head

          Options:
        TEXT
      end

      def define(parser)
        parser.on("--every SECONDS", Float, "seconds between two looks (default 1)") { |every| @every = positive(every) }
        parser.on("--rounds N", NonNegative, "look so many times and end") { |rounds| @rounds = rounds }
        parser.on("--limit N", NonNegative, "frames to show (default: what fits, or 20)") { |limit| @limit = limit }
        parser.on("--sort-total", "order by TOTAL: time in the frame and in what it calls") { @sort_total = true }
      end

      def positive(every)
        every.positive? ? every : usage("--every must be more than 0")
      end

      def perform(names)
        usage "name one process or socket" if names.length > 1

        process = Live.find(names.first)
        @style = Style.new($stdout)
        watch(process)
        0
      rescue Live::Gone => e
        raise e unless @seen

        $stderr.puts "ringprof: the process has ended"
        0
      rescue Interrupt
        0
      ensure
        $stdout.print "\e[?25h" if @style&.on?
      end

      def watch(process)
        $stdout.print "\e[?25l" if @style.on?
        round = 0
        until @rounds && round >= @rounds
          break if round.positive? && left?

          show(process.ask("top #{rows * 2}"), round)
          @seen = true
          round += 1
        end
      end

      # Waits for the next round, or for somebody to press q.
      def left?
        return sleep(@every) && false unless $stdin.tty? && $stdout.tty?

        deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + @every
        $stdin.raw(intr: true) do |keyboard|
          while (rest = deadline - Process.clock_gettime(Process::CLOCK_MONOTONIC)).positive?
            return true if keyboard.wait_readable(rest) && keyboard.read_nonblock(1, exception: false) == "q"
          end
        end
        false
      end

      def rows
        return @limit if @limit&.positive?

        $stdout.tty? ? [$stdout.winsize.first - HEAD, 5].max : 20
      end

      def width
        return nil unless $stdout.tty?

        columns = $stdout.winsize.last
        columns.positive? ? columns : WIDTH
      end

      def show(lines, round)
        text = render(screen_of(lines))
        if $stdout.tty?
          text = text.map { |line| "#{line}\e[K" }
          $stdout.write(round.zero? ? CLEAR : HOME, text.join("\n"), "\n", REST)
        else
          $stdout.puts("") if round.positive?
          $stdout.puts(text)
        end
        $stdout.flush
      end

      def screen_of(lines)
        frames, values = lines.partition { |line| line.start_with?("frame ") }
        values = values.to_h { |line| line.split(" ", 2) }
        raise Failure, "the process answers in a way that this version does not understand" unless values.key?("samples")

        Screen.new(values, frames.map { |line| row(line) })
      end

      def row(line)
        _frame, samples, total, blocked, rest = line.split(" ", 5)
        name, file, number = rest.to_s.split("\t")
        Row.new(samples.to_i, total.to_i, blocked.to_i, name.to_s, Style.place(file, number))
      end

      def render(screen)
        samples = [screen.values["samples"].to_i, 1].max
        key = @sort_total ? :total : :samples
        frames = screen.frames.sort_by.with_index { |frame, index| [-frame[key], index] }.first(rows)
        [*head(screen.values, samples), @style.paint(format("%8s %8s %8s  %s", "SELF", "TOTAL", "BLOCKED", "FRAME"), :bold), *frames.map { |frame| line(frame, samples) }]
      end

      def head(values, samples)
        seconds = values["elapsed_ns"].to_i / 1e9
        states = %w[running waiting blocked gc].map { |state| [state, values["state_#{state}"].to_i] }.reject { |_state, count| count.zero? }
        [
          cut(@style.paint("#{values["program"]} (#{values["pid"]})", :bold), "  #{values["mode"]}, #{values["threads"]} threads, last #{format("%.1f", seconds)} s"),
          cut("", "#{Style.count(values["samples"])} samples, #{values["missed_samples"]} missed, profiling #{Style.percent(seconds.zero? ? 0 : values["cost_ns"].to_i / 1e9 / seconds)}, " \
                  "gaps #{format("%.1f", values["gap_ns"].to_i / 1e6)} ms"),
          cut("", states.map { |state, count| "#{state} #{Style.percent(count.fdiv(samples))}" }.join("   ")), ""
        ]
      end

      def line(frame, samples)
        numbers = [frame.samples, frame.total, frame.blocked].map { |count| format("%8s", Style.percent(count.fdiv(samples))) }
        blocked = frame.blocked.zero? ? "        " : numbers[2]
        room = width && width - 28
        name = room ? frame.name[0, [room, 0].max] : frame.name
        place = room && name.length + 2 + frame.place.length > room ? "" : frame.place
        "#{numbers[0]} #{numbers[1]} #{@style.paint(blocked, :dim)}  #{name}  #{@style.paint(place, :dim)}".rstrip
      end

      # A line that is too long would push the others off the screen.
      def cut(painted, text)
        bare = painted.gsub(/\e\[[\d;]*m/, "").length
        width && bare + text.length > width ? painted + text[0, [width - bare, 0].max] : painted + text
      end
    end
  end
end
