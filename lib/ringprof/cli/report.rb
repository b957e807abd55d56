# frozen_string_literal: true

require "ringprof/profile"
require "ringprof/report"

module RingProf
  module CLI
    # `ringprof report FILE...`: any report of profiles that were kept. Knows all switches of StackProf's command.
    class ReportCommand < Command
      command "report", "print the report of a profile"

      # What the formats take, of all that may be asked for.
      OPTIONS = {
        "text" => %i[limit sort_total states], "lines" => %i[limit sort_total], "files" => %i[limit sort_total],
        "method" => %i[filter], "file" => %i[filter], "graphviz" => %i[limit node_fraction filter]
      }.freeze
      # Above these a graph is not readable any more.
      GRAPH = { limit: 120, node_fraction: 0.005 }.freeze
      STATES = %w[running waiting blocked gc].freeze
      private_constant :OPTIONS, :GRAPH, :STATES

      def initialize
        super
        @format = "text"
        @filters = {}
      end

      private

      def banner
        <<~TEXT
          Usage: ringprof report FILE... [options]
                 ringprof FILE... [options]

          Prints where the samples fell: SAMPLES with the frame on top of the stack, TOTAL with the
          frame anywhere in it. FILE is what `ringprof run --out FILE` or RingProf.results("FILE")
          wrote, or a dump of StackProf's, in Marshal's format or JSON, compressed by gzip or not;
          `-` is stdin. Several are added up.
          Open only files that you trust: Marshal runs code of their choosing.

          Examples:
            ringprof report prof.dump
            ringprof prof.dump --sort-total --limit 10
            ringprof prof.dump --method 'Order#total'
            ringprof prof.dump --reject-files /usr/lib/ruby --states
            ringprof worker-*.dump --d3-flamegraph --out graph.html

          Options:
        TEXT
      end

      def parse(argv)
        super
      rescue RegexpError => e
        usage e.message
      end

      def define(parser)
        define_report(parser)
        define_reports(parser)
        define_graphs(parser)
        define_data(parser)
        define_filters(parser)
      end

      def define_reports(parser)
        parser.separator "\nReports:"
        parser.on("--format NAME", "any format by its name: #{Report.formats.keys.first(4).join(", ")}, …") { |name| choose(name) }
        parser.on("--text", "a line for each frame (default)") { choose("text") }
        parser.on("--states", "with --text: running, waiting for the GVL, blocked") { report_options[:states] = true }
        parser.on("--lines", "a line for each line of code") { choose("lines") }
        parser.on("--files", "a line for each file") { choose("files") }
        parser.on("--method RE", "callers, callees and source of the methods that match") { |filter| choose("method", filter: filter) }
        parser.on("--file PART", "source of the files with this in their path, with samples") { |filter| choose("file", filter: filter) }
        parser.on("--walk", "with --method NAME: go along callers and callees, interactively") { @walk = true }
      end

      def define_graphs(parser)
        parser.separator "\nGraphs:"
        parser.on("--callgrind", "for KCachegrind") { choose("callgrind") }
        parser.on("--graphviz", "for Graphviz' dot") { choose("graphviz") }
        parser.on("--node-fraction F", Float, "no nodes with less than this part of the samples (default 0.005)") do |fraction|
          report_options[:node_fraction] = fraction
        end
        parser.on("--stackcollapse", "for flamegraph.pl") { choose("stackcollapse") }
        parser.on("--d3-flamegraph", "a flame graph, one page of HTML that needs nothing else") { choose("d3-flamegraph") }
        parser.on("--timeline-flamegraph", "--flamegraph", "a flame graph in the order of time, for the viewer") { choose("timeline-flamegraph") }
        parser.on("--alphabetical-flamegraph", "a flame graph by name, for the viewer") { choose("alphabetical-flamegraph") }
        parser.on("--flamegraph-viewer FILE", "tell how to look at such a file") { |file| @viewed = file }
      end

      def define_data(parser)
        parser.separator "\nData:"
        parser.on("--json", "the profile in JSON, for Speedscope") { choose("json") }
        parser.on("--dump", "the profile as it was kept: adds several up, and keeps what was filtered") { choose("dump") }
        parser.on("--debug", "the profile to be read by people") { choose("debug") }
        parser.on("--out FILE", "write into FILE and not to stdout") { |file| @out = file }
      end

      def define_filters(parser)
        parser.separator "\nFilters; they may be given several times:"
        parser.on("--select-files PATH", "frames of this file, or of files under this folder") { |path| add(:files, path(path)) }
        parser.on("--reject-files PATH", "no frames of these") { |path| add(:reject_files, path(path)) }
        parser.on("--select-names RE", Regexp, "frames of these names") { |name| add(:names, name) }
        parser.on("--reject-names RE", Regexp, "no frames of these") { |name| add(:reject_names, name) }
        parser.on("--select-threads NAME", "samples of this thread: name, id, or main (takes raw: true, as the next two)") do |thread|
          add(:threads, thread.match?(/\A\d+\z/) ? thread.to_i : thread)
        end
        parser.on("--select-states STATE", STATES, "samples in this state: running, waiting, blocked, gc") { |state| add(:states, state.to_sym) }
        parser.on("--select-time FROM..TO", "samples of this time, in seconds from the first one on") { |time| @filters[:time] = range(time) }
      end

      def choose(format, **options)
        @format = format
        report_options.merge!(options)
      end

      def add(filter, value)
        (@filters[filter] ||= []) << value
      end

      # Names such as <cfunc> and (eval) are no paths.
      def path(path)
        path.start_with?("<", "(") ? path : File.expand_path(path)
      end

      def range(text)
        from, to = text.match(/\A(\d+(?:\.\d+)?)?\.\.(\d+(?:\.\d+)?)?\z/)&.captures
        usage "--select-time takes FROM..TO in seconds, such as 0.5..2 or 3.." unless from || to

        from&.to_f..to&.to_f
      end

      def perform(arguments)
        return view if @viewed

        usage "name one profile file, or several" if arguments.empty?
        usage "--walk goes with --method" if @walk && @format != "method"
        report = build(arguments)
        @out ? write_file(report) : report.write($stdout)
        0
      end

      def build(arguments)
        profile = arguments.map { |path| read(path) }.reduce(:+).filter(**@filters)
        return Report::Walk.new(profile, filter: report_options[:filter]) if @walk

        format = Report.fetch(@format)
        format.new(profile, **options_of(format.name))
      end

      def options_of(name)
        defaults = name == "graphviz" ? GRAPH : {}
        options = defaults.merge(report_options).slice(*OPTIONS[name])
        options[:filter] = Regexp.new(options[:filter]) if options[:filter] && name != "file"
        options
      rescue RegexpError => e
        usage "--method: #{e.message}"
      end

      def read(path)
        path == "-" ? Profile.load($stdin.binmode) : super
      end

      def write_file(report)
        File.open(@out, "wb") { |file| report.write(file) }
      rescue SystemCallError => e
        raise Failure, "cannot write #{@out}: #{e.class.new.message}"
      end

      def view
        data = File.expand_path(@viewed).gsub(%r{[^\w/.~-]}) { |char| char.bytes.map { |byte| format("%%%02X", byte) }.join }
        puts "open file://#{Report::FlamegraphPage::VIEWER}?data=#{data}"
        0
      end
    end
  end
end
