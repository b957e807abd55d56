# frozen_string_literal: true

require "ringprof/cli/live"

module RingProf
  module CLI
    # `ringprof ask`: one request to a running process.
    class AskCommand < Command
      command "ask", "start, stop, rotate or measure the profile of a running process"

      REQUESTS = %w[status start stop rotate stats].freeze
      private_constant :REQUESTS

      private

      def banner
        <<~TEXT
          Usage: ringprof ask [PID | SOCKET] REQUEST [FILE]

          Asks a process that was started by `ringprof run --live`, or with RINGPROF_SOCKET:

            status          what it is doing
            start           start a profile
            stop            end it, write it, and tell the path
            rotate [FILE]   write what there is, to FILE if named, and go on with a new profile
            stats           what the profiler knows of itself, in Prometheus' format

          Examples:
            ringprof ask status
            ringprof ask 4711 rotate /tmp/slow.dump
            ringprof ask /run/app/ringprof.sock stats

          Options:
        TEXT
      end

      def define(_parser); end

      def perform(arguments)
        name = arguments.shift unless REQUESTS.include?(arguments.first)
        request, file = arguments
        usage "name a request: #{REQUESTS.join(", ")}" unless REQUESTS.include?(request)
        usage "too many arguments" if arguments.length > (request == "rotate" ? 2 : 1)

        puts Live.find(name).ask([request, file && File.expand_path(file)].compact.join(" "))
        0
      end
    end
  end
end
