# frozen_string_literal: true

module RingProf
  module Agent
    # Where the profiles of this process go, and who is told.
    #
    # The first Ruby of a family has the file that was named, everybody else that name with the process id.
    # It is the first that finds no owner: in the session of `ringprof run`, where the Rubies of a shell
    # script have no common ancestor of ours, or in the environment.
    class Files
      OWNER = "RINGPROF_OWNER"
      private_constant :OWNER

      class << self
        # @param settings [Settings]
        # @return [Files, nil] nil when this process is not to be profiled: the session that it was started for
        #   is over, or it is another's child and those are left out
        def claim(settings)
          session = settings.session
          first = session ? claim_session(session) : claim_environment
          return if first.nil? || (settings.alone? && !first)

          new(settings.out || "ringprof-#{Process.pid}.dump", session, first)
        end

        private

        # Whoever creates the file is the first, and remains it after an exec.
        def claim_session(session)
          path = File.join(session, "claim")
          File.open(path, File::WRONLY | File::CREAT | File::EXCL) { |file| file.write(Process.pid) }
          true
        rescue Errno::EEXIST
          File.read(path).to_i == Process.pid
        rescue SystemCallError
          # We are what the command left running.
          nil
        end

        def claim_environment
          owner = ENV[OWNER] ||= Process.pid.to_s
          owner.to_i == Process.pid
        end
      end

      # @return [Boolean] this process has the file that was named
      attr_reader :first

      # @param out [String]
      # @param session [String, nil]
      # @param first [Boolean]
      def initialize(out, session, first)
        @out = File.expand_path(out)
        # For those who are started from another directory.
        ENV["RINGPROF_OUT"] = @out
        @session = session
        @first = first
        @written = 0
      end

      # In a forked child.
      #
      # @param heir [Boolean] the parent is gone, and its file is free
      # @return [void]
      def forked(heir:)
        @first &&= heir
        @written = 0
      end

      # Writes a profile.
      #
      # @param data [Hash]
      # @param path [String] where to, and nowhere else; by default the next file of this process
      # @return [String, nil] the path; nil when it could not be written anywhere
      def write(data, path = nil)
        return dump(data, path, File::TRUNC, 0o666) if path

        target = self.target
        [target, *substitutes].each do |place|
          place == target ? dump(data, place, File::TRUNC, 0o666) : dump(data, place, File::EXCL, 0o600)
          return written(place, elsewhere: place != target)
        rescue SystemCallError, IOError, NoMemoryError => e
          return nil if deserted?

          Agent.say "cannot write the profile: #{e.message}"
        end
        nil
      end

      private

      def target
        path = @first ? @out : "#{@out}.#{Process.pid}"
        @written.zero? ? path : "#{path}-#{@written + 1}"
      end

      # The disk is full, or the directory is gone: anywhere else is better than nowhere.
      def substitutes
        [ENV.fetch("TMPDIR", "/tmp"), "/var/tmp", "."].map { |directory| File.join(directory, "ringprof-#{Process.pid}.dump") }
      end

      # Another's file is written over only where the user named it. A file that failed must not flush the
      # rest of its buffer later.
      def dump(data, path, flag, mode)
        file = File.open(path, File::WRONLY | File::CREAT | File::BINARY | flag, mode)
        begin
          Marshal.dump(data, file)
          file.flush
        ensure
          close(file)
        end
        path
      end

      def close(file)
        file.close
      rescue SystemCallError
        nil
      end

      def written(path, elsewhere:)
        path = File.expand_path(path)
        @written += 1
        Agent.say "the profile is in #{path}" if elsewhere
        @session ? tell(path) : (Agent.report("RingProf results dumped at: #{path}") unless elsewhere)
        path
      end

      # The command is over, and with it the directory that our file was for.
      def deserted?
        @session && @out.start_with?("#{@session}/") && !File.directory?(@session)
      end

      # Tells `ringprof run` that there is a profile, and where.
      def tell(path)
        File.write(File.join(@session, "done.#{Process.pid}.#{@written}"), path)
      rescue SystemCallError => e
        Agent.say "cannot tell the command: #{e.message}" if File.directory?(@session)
      end
    end
  end
end
