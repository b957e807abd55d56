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

      # What was answered, by one process or by all together.
      Screen = Struct.new(:values, :frames, :processes)
      Row = Struct.new(:samples, :total, :blocked, :blocked_total, :name, :place)
      # Numbers that are added up.
      SUMS = %w[samples missed_samples gc_samples cost_ns gap_ns threads state_running state_waiting state_blocked state_gc].freeze
      private_constant :Screen, :Row, :SUMS

      def initialize
        super
        @every = 1.0
        @rounds = nil
      end

      private

      def banner
        <<~TEXT
          Usage: ringprof top [options] [PID | SOCKET]...

          Shows where running processes spend their time, each second anew: those that are named, or all that were
          started by `ringprof run --live`, added up. Others must have been started with RINGPROF_SOCKET, and are
          named by that. Looking does not cost a process its profile: what was seen is kept and added up.
          While a part is read the process is not sampled, some milliseconds each time; `gaps` counts them.
          Keys: q or Ctrl-C ends, t orders by TOTAL or SELF, b leaves blocked time out or in.

          Examples:
            ringprof run --live -- bundle exec puma      in one terminal
            ringprof top                                 in another
            ringprof top 4711 --busy --every 5
            ringprof top /run/app/ringprof.sock --rounds 1 | head

          Options:
        TEXT
      end

      def define(parser)
        parser.on("--every SECONDS", Float, "seconds between two looks (default 1)") { |every| @every = positive(every) }
        parser.on("--rounds N", NonNegative, "look so many times and end") { |rounds| @rounds = rounds }
        parser.on("--limit N", NonNegative, "frames to show (default: what fits, or 20)") { |limit| @limit = limit }
        parser.on("--sort-total", "order by TOTAL: time in the frame and in what it calls") { @sort_total = true }
        parser.on("--busy", "leave out what is blocked: sleep, input and output, locks") { @busy = true }
      end

      def positive(every)
        every.positive? ? every : usage("--every must be more than 0")
      end

      def perform(names)
        processes = Live.all(names.empty? ? nil : names)
        @style = Style.new($stdout)
        watch(processes)
        0
      rescue Interrupt
        0
      ensure
        $stdout.print "\e[?25h" if @style&.on?
      end

      def watch(processes)
        $stdout.print "\e[?25l" if @style.on?
        round = 0
        until @rounds && round >= @rounds
          break if round.positive? && left?

          screens, processes = look(processes, round)
          return $stderr.puts("ringprof: the process has ended") if screens.empty?

          show(add_up(screens), round)
          round += 1
        end
      end

      # Workers come and go. Who was there at the beginning may leave later, and not before.
      #
      # @return [Array(Array<Screen>, Array<Live>)] what was answered, by whom
      def look(processes, round)
        answers = processes.map do |process|
          [screen_of(process.ask("top #{rows * 2}")), process]
        rescue Live::Gone
          raise if round.zero? && processes.length == 1
        end
        answers.compact.transpose.then { |screens, left| [screens || [], left || []] }
      end

      # Waits for the next round, or for somebody to press q.
      def left?
        return sleep(@every) && false unless $stdin.tty? && $stdout.tty?

        deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + @every
        $stdin.raw(intr: true) do |keyboard|
          while (rest = deadline - Process.clock_gettime(Process::CLOCK_MONOTONIC)).positive?
            case keyboard.wait_readable(rest) && keyboard.read_nonblock(1, exception: false)
            when "q" then return true
            when "t" then @sort_total = !@sort_total
            when "b" then @busy = !@busy
            end
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

      def show(screen, round)
        text = render(screen)
        if $stdout.tty?
          text = text.map { |line| "#{line}\e[K" }
          $stdout.write(round.zero? ? CLEAR : HOME, text.join("\n"), "\n", REST)
        else
          $stdout.puts("") if round.positive?
          $stdout.puts(text)
        end
        $stdout.flush
      end

      def add_up(screens)
        kinds = screens.map { |screen| screen.values.values_at("mode", "interval") }.uniq
        raise Failure, "the processes are profiled in different ways (#{kinds.map { |kind| kind.join(" ") }.join(", ")}): name one" if kinds.length > 1

        values = screens.map(&:values).reduce { |sum, more| sum.merge(more) { |key, one, other| SUMS.include?(key) ? one.to_i + other.to_i : one } }
        values["elapsed_ns"] = screens.map { |screen| screen.values["elapsed_ns"].to_i }.max
        Screen.new(values, add_rows(screens.flat_map(&:frames)), screens.length)
      end

      def add_rows(rows)
        rows.group_by { |row| [row.name, row.place] }.map do |(name, place), same|
          Row.new(*%i[samples total blocked blocked_total].map { |key| same.sum(&key) }, name, place)
        end
      end

      def screen_of(lines)
        frames, values = lines.partition { |line| line.start_with?("frame ") }
        values = values.to_h { |line| line.split(" ", 2).values_at(0, 1) }
        raise Failure, "the process answers in a way that this version does not understand" unless values.key?("samples")

        Screen.new(values, frames.map { |line| row(line) }, 1)
      end

      def row(line)
        _frame, *numbers, rest = line.split(" ", 6)
        name, file, number = rest.to_s.split("\t")
        Row.new(*numbers.map(&:to_i), name.to_s, Style.place(file, number))
      end

      def render(screen)
        whole = screen.values["samples"].to_i
        whole -= screen.values["state_blocked"].to_i if @busy
        frames = screen.frames.sort_by.with_index { |frame, index| [-order(frame), index] }.first(rows)
        title = format("%8s %8s %8s  %s", "SELF", "TOTAL", @busy ? "" : "BLOCKED", "FRAME")
        [*head(screen), @style.paint(title, :bold), *frames.map { |frame| line(frame, [whole, 1].max) }]
      end

      def order(frame)
        own, total = shown(frame)
        @sort_total ? total : own
      end

      def shown(frame)
        @busy ? [frame.samples - frame.blocked, frame.total - frame.blocked_total] : [frame.samples, frame.total]
      end

      def head(screen)
        values = screen.values
        seconds = values["elapsed_ns"].to_i / 1e9
        states = %w[running waiting blocked gc].map { |state| [state, values["state_#{state}"].to_i] }.reject { |_state, count| count.zero? }
        samples = [values["samples"].to_i, 1].max
        who = screen.processes == 1 ? "#{values["program"]} (#{values["pid"]})" : "#{screen.processes} processes"
        [
          cut(@style.paint(who, :bold), "  #{values["mode"]}, #{values["threads"]} threads, last #{format("%.1f", seconds)} s"),
          cut("", "#{Style.count(values["samples"])} samples, #{values["missed_samples"]} missed, profiling #{Style.percent(seconds.zero? ? 0 : values["cost_ns"].to_i / 1e9 / seconds)}, " \
                  "gaps #{format("%.1f", values["gap_ns"].to_i / 1e6)} ms"),
          cut("", states.map { |state, count| "#{state} #{Style.percent(count.fdiv(samples))}" }.join("   ")), ""
        ]
      end

      def line(frame, samples)
        own, total, blocked = [*shown(frame), frame.blocked].map { |count| format("%8s", Style.percent(count.fdiv(samples))) }
        blocked = " " * 8 if frame.blocked.zero? || @busy
        room = width && width - 28
        name = room ? frame.name[0, [room, 0].max] : frame.name
        place = room && name.length + 2 + frame.place.length > room ? "" : frame.place
        "#{own} #{total} #{@style.paint(blocked, :dim)}  #{name}  #{@style.paint(place, :dim)}".rstrip
      end

      # A line that is too long would push the others off the screen.
      def cut(painted, text)
        bare = painted.gsub(/\e\[[\d;]*m/, "").length
        width && bare + text.length > width ? painted + text[0, [width - bare, 0].max] : painted + text
      end
    end
  end
end
