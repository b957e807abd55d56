# frozen_string_literal: true

require "ringprof/errors"

module RingProf
  # The report formats: one class each, `new(profile, **options).write(io)`. None of them changes the profile, and
  # none goes as deep as the stacks do: it loops where a stack could be 10,000 frames deep.
  #
  # @example By name
  #   RingProf::Report.fetch("callgrind").new(profile).write($stdout)
  #
  # @example A format of one's own
  #   RingProf::Report.register("names", "MyFormats::Names", "names of all frames")
  module Report
    # A format's entry: `name`, `constant` (of the class, whole), `summary` (a line of help), `options` (those of
    # the class that make this format of it), `binary` (no text).
    Format = Struct.new(:name, :constant, :summary, :options, :binary, keyword_init: true) do
      # @param profile [Profile]
      # @return [#write] the report
      def new(profile, **options)
        Object.const_get(constant).new(profile, **self.options, **options)
      end
    end

    autoload :Callgrind, "ringprof/report/callgrind"
    autoload :Debug, "ringprof/report/debug"
    autoload :Dump, "ringprof/report/dump"
    autoload :File, "ringprof/report/file"
    autoload :Files, "ringprof/report/files"
    autoload :Flamegraph, "ringprof/report/flamegraph"
    autoload :FlamegraphPage, "ringprof/report/flamegraph_page"
    autoload :Graphviz, "ringprof/report/graphviz"
    autoload :JSON, "ringprof/report/json"
    autoload :Lines, "ringprof/report/lines"
    autoload :Method, "ringprof/report/method"
    autoload :Source, "ringprof/report/source"
    autoload :Stackcollapse, "ringprof/report/stackcollapse"
    autoload :Text, "ringprof/report/text"
    autoload :Walk, "ringprof/report/walk"

    # Formats by name, in the order of the help texts.
    @formats = {}

    class << self
      # @return [Hash{String => Format}]
      def formats
        @formats.dup
      end

      # Adds a format, or replaces one.
      #
      # @param name [String] what the command line calls it
      # @param constant [String] name of the class; it is looked up when the format is used first
      # @param summary [String] a line of help
      # @param binary [Boolean] what it writes is no text
      # @param options [Hash] of the class
      # @return [Format]
      def register(name, constant, summary, binary: false, **options)
        @formats[name.to_s] = Format.new(name: name.to_s, constant: constant, summary: summary, options: options, binary: binary)
      end

      # @param name [String, Symbol]
      # @return [Format]
      # @raise [Error] when there is none of that name
      def fetch(name)
        @formats.fetch(name.to_s.tr("_", "-")) { raise Error, "no such format: #{name} (#{@formats.keys.join(", ")})" }
      end
    end

    register "text", "RingProf::Report::Text", "one line for each frame, by samples"
    register "lines", "RingProf::Report::Lines", "one line for each line of code, by samples"
    register "files", "RingProf::Report::Files", "one line for each file, by samples"
    register "method", "RingProf::Report::Method", "callers, callees and source of methods"
    register "file", "RingProf::Report::File", "source of files, with samples"
    register "callgrind", "RingProf::Report::Callgrind", "for KCachegrind"
    register "graphviz", "RingProf::Report::Graphviz", "for Graphviz' dot"
    register "stackcollapse", "RingProf::Report::Stackcollapse", "one line for each stack, for flamegraph.pl"
    register "timeline-flamegraph", "RingProf::Report::Flamegraph", "rows of a flame graph in the order of time, in JavaScript"
    register "alphabetical-flamegraph", "RingProf::Report::Flamegraph", "rows of a flame graph by name, in JavaScript", alphabetical: true
    register "d3-flamegraph", "RingProf::Report::FlamegraphPage", "a flame graph in a page of its own"
    register "json", "RingProf::Report::JSON", "the whole profile in JSON, for Speedscope and others"
    register "dump", "RingProf::Report::Dump", "the whole profile as StackProf keeps it", binary: true
    register "debug", "RingProf::Report::Debug", "the whole profile to be read by people"
  end
end
