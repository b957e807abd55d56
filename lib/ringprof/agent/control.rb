# frozen_string_literal: true

# Not "socket", which is Ruby, and brings in a gem.
require "socket.so"

module RingProf
  module Agent
    # The control socket: one request a connection, a line; the answer is `ok` or `error WHY`, more lines,
    # and a line with a dot.
    #
    # | request | what it does |
    # | --- | --- |
    # | `status` | tells what is being done, `name value` a line |
    # | `start` | starts a profile |
    # | `stop` | ends it, writes it and tells the path |
    # | `rotate [PATH]` | writes what there is, and goes on with a new profile |
    # | `stats` | `RingProf.stats`, in Prometheus' format |
    # | `top [N]` | the N frames with the most samples since the last `top` |
    #
    # Its file is for the user alone (mode 0600). The thread that serves it is not sampled.
    class Control
      # The core asks every Thread for its native id, to know whom to signal, and passes over those that
      # have none yet. That it has none is all that this one says of itself, and it may start a profile.
      class Unsampled < Thread
        # @return [nil]
        def native_thread_id
          nil
        end
      end
      private_constant :Unsampled

      # Seconds for a request to come and an answer to go.
      PATIENCE = 5
      # Bytes of a request.
      LONGEST = 4096
      private_constant :PATIENCE, :LONGEST

      # @param pattern [String] path; `%p` is the process id
      # @param recorder [Recorder]
      # @param own [Boolean] the path itself is for this process, and not the path with the process id
      def initialize(pattern, recorder, own:)
        @pattern = File.expand_path(pattern)
        ENV["RINGPROF_SOCKET"] = @pattern
        @recorder = recorder
        @own = own
      end

      # Listens, from a thread of its own.
      #
      # @return [void]
      # @raise [SystemCallError, Error, ArgumentError]
      def open
        @path = path
        @server = listen
        @process = Process.pid
        thread = Unsampled.new { serve }
        thread.name = "ringprof control"
        thread.report_on_exception = false
      end

      # Takes the file away, and answers nobody any more. The thread ends with the process.
      #
      # @return [void]
      def close
        return unless @server && @process == Process.pid

        @closed = true
        File.unlink(@path)
      rescue SystemCallError
        nil
      end

      # In a forked child, which has a socket of its own.
      #
      # @return [void]
      def forked
        @server&.close
        @server = nil
        @own = false
        open
      end

      private

      def path
        return @pattern.gsub("%p", Process.pid.to_s) if @pattern.include?("%p")

        @own ? @pattern : "#{@pattern}.#{Process.pid}"
      end

      # The mask is for the moment between the making of the file and our giving it a mode.
      def listen
        remove_stale
        mask = File.umask(0o177)
        UNIXServer.new(@path)
      rescue ArgumentError => e
        raise ArgumentError, "RINGPROF_SOCKET=#{@path}: #{e.message}"
      ensure
        File.umask(mask) if mask
      end

      # A process that was killed leaves its file behind.
      def remove_stale
        return unless File.exist?(@path) || File.symlink?(@path)
        raise Error, "#{@path} is there already and no socket" unless File.lstat(@path).socket?

        UNIXSocket.new(@path).close
        raise Error, "another process answers at #{@path}"
      rescue Errno::ECONNREFUSED
        File.unlink(@path)
      end

      def serve
        loop do
          connection = @server.accept
          answer(connection)
        rescue IOError, SystemCallError
          break if @server.closed?
        ensure
          connection&.close
        end
      end

      def answer(connection)
        request = read(connection) or return
        return if @closed

        write(connection, reply(*request.split(" ", 2)))
      end

      def reply(name, argument = nil)
        ["ok", *perform(name, argument), "."].join("\n") << "\n"
      rescue StandardError, NoMemoryError => e
        "error #{e.message.lines.first.to_s.chomp}\n.\n"
      end

      def perform(name, argument)
        case name
        when "status" then Look.status(@recorder)
        when "start" then start
        when "stop" then [saved(@recorder.stop)]
        when "rotate" then [saved(@recorder.rotate(argument && File.expand_path(argument)))]
        when "stats" then Look.stats(@recorder)
        when "top" then Look.top(@recorder, Integer(argument || "30", 10))
        else raise Error, "no such request: #{name} (status, start, stop, rotate, stats, top)"
        end
      end

      def start
        return [] if @recorder.start

        raise Error, @recorder.recording ? "a profile is being taken already" : "the program has a profile of its own running"
      end

      def saved(path)
        path || raise(Error, "the profile could not be written")
      end

      # Somebody who says nothing must not keep others waiting for ever.
      def read(connection)
        request = +""
        until request.include?("\n")
          return unless IO.select([connection], nil, nil, PATIENCE)

          part = connection.read_nonblock(LONGEST, exception: false)
          next if part == :wait_readable
          break unless part

          request << part
          return if request.bytesize > LONGEST
        end
        request.lines.first.to_s.strip.then { |line| line unless line.empty? }
      end

      def write(connection, text)
        until text.empty?
          return unless IO.select(nil, [connection], nil, PATIENCE)

          written = connection.write_nonblock(text, exception: false)
          text = text.byteslice(written..) unless written == :wait_writable
        end
      end
    end
  end
end

require "ringprof/agent/look"
