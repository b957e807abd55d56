# frozen_string_literal: true

require "ringprof/profile"
require "ringprof/report"

module RingProf
  module CLI
    # `ringprof convert`: a profile in another format.
    class ConvertCommand < Command
      command "convert", "write a profile in another format"

      private

      def banner
        <<~TEXT
          Usage: ringprof convert --to FORMAT [--out FILE] FILE...

          Writes a profile, or the sum of several, in another format:
          #{formats.join(", ").scan(/.{1,90}(?:, |\z)/).map(&:rstrip).join("\n")}.

          Examples:
            ringprof convert --to json --out prof.json prof.dump
            ringprof convert --to stackcollapse prof.dump | flamegraph.pl > prof.svg

          Options:
        TEXT
      end

      def define(parser)
        parser.on("--to FORMAT", formats, "the format to write") { |format| @format = format }
        parser.on("-o", "--out FILE", "the file to write (default: stdout)") { |file| @out = file }
      end

      def formats
        Report.formats.keys
      end

      def perform(files)
        usage "name the profile to convert" if files.empty?
        usage "name the format with --to: #{formats.join(", ")}" unless @format

        profile = sum(files)
        save(@out || "-") { |io| Report.fetch(@format).new(profile).write(io) }
        0
      end
    end
  end
end
