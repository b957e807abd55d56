# frozen_string_literal: true

require "fileutils"
require "socket"

module RingProf
  module CLI
    # A process that is being profiled and answers: one started by `ringprof run --live` or with
    # `RINGPROF_SOCKET`.
    class Live
      # Seconds that an answer may take. A big profile is long in being read.
      PATIENCE = 60
      private_constant :PATIENCE

      class << self
        # Where `ringprof run --live` has its sockets: a directory of this user's alone.
        #
        # @return [String]
        # @raise [Error] when somebody else has made one of that name
        def make_directory
          directory = directories.first or raise Error, "no directory for sockets: name one with --live=SOCKET"
          Dir.mkdir(directory, 0o700) unless File.exist?(directory)
          raise Error, "#{directory} is not ours alone: remove it, or name a socket" unless ours?(directory)

          directory
        end

        # @param name [String, nil] a process id, the path of a socket, or nothing where there is one process
        # @return [Live]
        # @raise [Failure]
        def find(name)
          found = all(name && [name])
          return found.first if found.length == 1

          raise Failure.new("name one of the processes: #{found.map { |process| File.basename(process.path, ".sock") }.join(", ")}", 2)
        end

        # @param names [Array<String>, nil] process ids and paths of sockets; nil for all processes that can be found
        # @return [Array<Live>] one at least
        # @raise [Failure]
        def all(names)
          return names.map { |name| named(name) } if names

          found = sockets.map { |path| new(path) }
          found.empty? ? raise(Failure, "nobody answers: start something with ringprof run --live, or name its socket") : found
        end

        private

        def named(name)
          return new(name) unless name.match?(/\A\d+\z/)

          path = sockets.find { |socket| File.basename(socket, ".sock") == name }
          path ? new(path) : raise(Failure, "process #{name} does not answer: was it started by ringprof run --live, or with RINGPROF_SOCKET?")
        end

        def directories
          places = [ENV.fetch("XDG_RUNTIME_DIR", "/run/user/#{Process.uid}"), ENV.fetch("TMPDIR", "/tmp")]
          places.select { |place| File.directory?(place) && File.writable?(place) }.uniq.map { |place| File.join(place, "ringprof-#{Process.uid}") }
        end

        def ours?(directory)
          stat = File.lstat(directory)
          stat.directory? && stat.uid == Process.euid && (stat.mode & 0o077).zero?
        rescue Errno::ENOENT
          false
        end

        # Those of processes that live.
        def sockets
          all = directories.select { |directory| ours?(directory) }.flat_map { |directory| Dir.glob(File.join(directory, "*.sock")) }
          all.select { |path| new(path).alive? }.sort
        end
      end

      # @return [String]
      attr_reader :path

      # @param path [String]
      def initialize(path)
        @path = path
      end

      # @return [Boolean] somebody listens
      def alive?
        connect.close
        true
      rescue SystemCallError
        # What a killed process has left is in the way of nobody but ourselves.
        false
      end

      # @param request [String]
      # @return [Array<String>] the lines of the answer
      # @raise [Failure] when there is none that makes sense
      # @raise [Gone] when nobody listens any more
      def ask(request)
        first, *lines = exchange(request).lines(chomp: true)
        raise Gone, "#{@path}: nobody answers (the connection was closed)" unless first
        raise Failure, first.delete_prefix("error ") if first.start_with?("error ")
        raise Failure, "#{@path}: that is no socket of RingProf's" unless first == "ok"
        raise Failure, "#{@path}: the answer was cut short" unless lines.pop == "."

        lines
      end

      # Nobody listens.
      class Gone < Failure; end

      private

      def connect
        UNIXSocket.new(@path)
      end

      def exchange(request)
        socket = connect
        socket.write("#{request}\n")
        answer = +""
        loop do
          raise Failure, "#{@path}: no answer for #{PATIENCE} s" unless socket.wait_readable(PATIENCE)

          answer << socket.readpartial(65_536)
        rescue EOFError
          return answer.force_encoding(Encoding::UTF_8).scrub
        end
      rescue ArgumentError => e
        raise Failure, "#{@path}: #{e.message}"
      rescue Errno::ENOENT, Errno::ECONNREFUSED, Errno::ECONNRESET, Errno::EPIPE => e
        raise Gone, "#{@path}: nobody answers (#{e.class.new.message})"
      rescue SystemCallError => e
        raise Failure, "#{@path}: #{e.class.new.message}"
      ensure
        socket&.close
      end
    end
  end
end
