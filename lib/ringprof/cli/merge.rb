# frozen_string_literal: true

require "ringprof/profile"

module RingProf
  module CLI
    # `ringprof merge`: several profiles as one.
    class MergeCommand < Command
      command "merge", "add profiles up"

      private

      def banner
        <<~TEXT
          Usage: ringprof merge --out FILE FILE...

          Adds profiles of the same mode and interval up: those of a server's workers, or of many runs.

          Examples:
            ringprof run --out prof.dump -- bundle exec puma -w 4
            ringprof merge --out all.dump prof.dump prof.dump.*
            ringprof report all.dump

          Options:
        TEXT
      end

      def define(parser)
        parser.on("-o", "--out FILE", "the file to write; - for stdout") { |file| @out = file }
      end

      def perform(files)
        usage "name the profiles to add up" if files.empty?
        usage "name the file to write with --out" unless @out

        profile = sum(files)
        save(@out) { |io| profile.dump(io) }
        0
      end
    end
  end
end
