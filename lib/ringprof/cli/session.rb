# frozen_string_literal: true

module RingProf
  module CLI
    # What the Rubies of one `ringprof run` left behind: their profiles, in the order in which they ended.
    class Session
      # @param directory [String]
      def initialize(directory)
        @directory = directory
      end

      # @return [Array<String>] paths of the profiles, the command's own first
      def files
        first = claimed
        done.sort_by { |pid, number, time, _path| [pid == first ? 0 : 1, time, number] }.map(&:last)
      end

      # @return [Integer] processes that wrote one
      def processes
        done.map(&:first).uniq.length
      end

      private

      def claimed
        File.read(File.join(@directory, "claim")).to_i
      rescue Errno::ENOENT
        nil
      end

      def done
        @done ||= Dir.children(@directory).grep(/\Adone\.(\d+)\.(\d+)\z/).map do |name|
          path = File.join(@directory, name)
          _done, pid, number = name.split(".")
          [pid.to_i, number.to_i, File.mtime(path), File.read(path)]
        end
      end
    end
  end
end
