# frozen_string_literal: true

require "json"
require "ringprof/stackprof" unless defined?(StackProf::VERSION)
require "ringprof/profile"
require "ringprof/report"

module StackProf
  # StackProf's reports, with all of its public methods, by RingProf's: nothing is written into the data, nothing
  # recurses over stacks, `+` keeps raw stacks and metadata, every printer takes an IO.
  #
  # To be subclassed: subclasses find `@data` and its frames as they were given, and may change them.
  class Report
    # First bytes of a dump in Marshal's format.
    MARSHAL_SIGNATURE = "\x04\x08"

    class << self
      # @param file [String, Pathname, IO] Marshal or JSON, compressed by gzip or not
      # @return [Report]
      # @raise [RingProf::Error] when it is no profile
      # @raise [SystemCallError] when it cannot be read
      def from_file(file)
        new(RingProf::Profile.load(file).data)
      end

      # @param json [Hash] what JSON.parse made of a profile; it is left as it is
      # @return [Report]
      def from_json(json)
        new(parse_json(json))
      end

      # @param json [Hash]
      # @return [Hash] with Integers and Symbols for keys
      def parse_json(json)
        RingProf::Profile.restore_keys(json)
      end
    end

    # @return [Hash] the results, as given
    attr_reader :data

    # @param data [Hash] what StackProf.results returned
    def initialize(data)
      @data = data
    end

    # @param sort_by_total [Boolean] by total samples and not by those on top
    # @return [Hash{Integer => Hash}] most samples first; the Hashes are those of the data
    def frames(sort_by_total = false)
      key = sort_by_total ? :total_samples : :samples
      (@sorted_frames ||= {})[key] ||=
        @data[:frames].each_with_index.sort_by { |(_id, frame), index| [-(frame[key] || 0), index] }.to_h(&:first)
    end

    # @return [Hash{String => Hash}] frames by a digest of name, file and line, which is the same in every process
    def normalized_frames
      digests = @data[:frames].to_h { |id, frame| [id, digest(frame)] }
      @data[:frames].to_h do |id, frame|
        frame = frame.merge(hash: digests[id])
        frame[:edges] = frame[:edges].transform_keys { |callee| digests[callee] } if frame[:edges]
        [digests[id], frame]
      end
    end

    # @return [Float] of the format
    def version
      @data[:version]
    end

    # @return [String] for example `wall(1000)`
    def modeline
      "#{@data[:mode]}(#{@data[:interval]})"
    end

    # @return [Integer]
    def overall_samples
      @data[:samples]
    end

    # @return [Integer] most samples that a frame has on top
    def max_samples
      @max_samples ||= @data[:frames].each_value.map { |frame| frame[:samples] || 0 }.max || 0
    end

    # @return [Hash{String => Hash}] samples of each line of each file
    def files
      @files ||= @data[:frames].each_value.with_object({}) do |frame, files|
        next unless frame[:file] && frame[:lines]

        lines = files[frame[:file]] ||= {}
        frame[:lines].each { |line, weight| lines[line] = add_lines(lines[line], weight) }
      end
    end

    # @param one [Array(Integer, Integer), Integer, nil] `[total, self]`, or self alone in format 1.0
    # @param other [Array(Integer, Integer), Integer]
    # @return [Array(Integer, Integer), Integer]
    def add_lines(one, other)
      return other if one.nil?
      return one + other if one.is_a?(Integer)
      return [one[0], one[1] + other] if other.is_a?(Integer)

      [one[0] + other[0], one[1] + other[1]]
    end

    # @param sort_by_total [Boolean]
    # @param limit [Integer, nil] frames to print
    # @param select_files [Array<String>, nil] beginnings of paths
    # @param reject_files [Array<String>, nil]
    # @param select_names [Array<Regexp>, nil]
    # @param reject_names [Array<Regexp>, nil]
    # @param f [#puts]
    # @return [void]
    def print_text(sort_by_total = false, limit = nil, select_files = nil, reject_files = nil, select_names = nil, reject_names = nil, f = $stdout)
      rows = Rows.filter(@data, files: select_files, reject_files: reject_files, names: select_names, reject_names: reject_names)
      print_report(:Text, f, RingProf::Profile.new(rows), sort_total: sort_by_total, limit: limit, modeline: modeline)
    end

    # @param f [#write]
    # @return [void]
    def print_json(f = $stdout)
      print_report(:JSON, f)
    end

    # @param f [#puts]
    # @return [void]
    def print_debug(f = $stdout)
      print_report(:Debug, f)
    end

    # @param f [#write]
    # @return [void]
    def print_dump(f = $stdout)
      print_report(:Dump, f)
    end

    # @param f [#puts]
    # @return [void]
    def print_callgrind(f = $stdout)
      print_report(:Callgrind, f, modeline: modeline, creator: "stackprof")
    end

    # @param options [Hash] `filter:`, `limit:`, `node_fraction:`
    # @param f [#puts]
    # @return [void]
    def print_graphviz(options = {}, f = $stdout)
      print_report(:Graphviz, f, **options.slice(:filter, :limit, :node_fraction))
    end

    # @param f [#puts]
    # @return [void]
    # @raise [RuntimeError] without raw stacks, as the flame graphs
    def print_stackcollapse(f = $stdout)
      print_report(:Stackcollapse, f)
    end

    # @param f [#puts]
    # @param skip_common [Boolean] leave out what all stacks have in common
    # @return [void]
    def print_timeline_flamegraph(f = $stdout, skip_common = true)
      print_flamegraph(f, skip_common, false)
    end

    # @param f [#puts]
    # @param skip_common [Boolean]
    # @return [void]
    def print_alphabetical_flamegraph(f = $stdout, skip_common = true)
      print_flamegraph(f, skip_common, true)
    end

    # @param f [#puts]
    # @param skip_common [Boolean]
    # @param alphabetical [Boolean]
    # @return [void]
    def print_flamegraph(f = $stdout, skip_common = true, alphabetical = false)
      print_report(:Flamegraph, f, skip_common: skip_common, alphabetical: alphabetical)
    end

    # A page that needs nothing but itself.
    #
    # @param f [#write]
    # @param _skip_common [Boolean] of no effect, as ever
    # @return [void]
    def print_d3_flamegraph(f = $stdout, _skip_common = true)
      print_report(:FlamegraphPage, f, title: modeline)
    end

    # @param raw [Array<Integer>]
    # @return [Array(Array<Array<Integer>>, Integer, Integer)] stacks with their weights behind, samples, depth
    def flamegraph_stacks(raw)
      stacks = []
      RingProf::Profile::Stacks.new(raw).each_place { |position, depth| stacks << raw[position, depth + 1] }
      [stacks, stacks.sum(&:last), (stacks.map(&:size).max || 1) - 1]
    end

    # @return [void]
    def flamegraph_row(f, x, y, weight, addr)
      f.print "," if @rows_started
      @rows_started = true
      frame = RingProf::Profile.new(@data).frame(addr)
      f.puts %({"x":#{x},"y":#{y},"width":#{weight},"frame_id":#{addr},"frame":#{JSON.generate(frame.name)},"file":#{JSON.generate(frame.file)}})
    end

    # @param name [String] of the root
    # @param stacks [Array<Array<Integer>>] with their weights behind
    # @param depth [Integer] where to begin
    # @return [Hash] "name", "value" and "children", which are such Hashes
    def convert_to_d3_flame_graph_format(name, stacks, depth)
      root = { "name" => name, "value" => 0, "children" => [] }
      path = [[nil, root]]
      stacks.each do |*ids, weight|
        ids = ids.drop(depth)
        path.pop until path.drop(1).each_with_index.all? { |(id, _node), index| ids[index] == id }
        ids.drop(path.size - 1).each { |id| path << [id, d3_child(path.last[1], id)] }
        path.each { |_id, node| node["value"] += weight }
      end
      root
    end

    # @param name [Regexp, String]
    # @param f [#puts]
    # @return [void]
    def print_method(name, f = $stdout)
      print_report(:Method, f, filter: name)
    end

    # Interactive.
    #
    # @param name [String] a part of the name of the method to begin with
    # @param input [#gets]
    # @param f [#puts]
    # @return [void]
    def walk_method(name, input = $stdin, f = $stdout)
      print_report(:Walk, f, filter: name, input: input)
    end

    # @param sort_by_total [Boolean]
    # @param limit [Integer, nil]
    # @param f [#puts]
    # @return [void]
    def print_files(sort_by_total = false, limit = nil, f = $stdout)
      print_report(:Files, f, sort_total: sort_by_total, limit: limit)
    end

    # @param filter [String, Regexp]
    # @param f [#puts]
    # @return [void]
    def print_file(filter, f = $stdout)
      print_report(:File, f, filter: filter)
    end

    # Both in one, with raw stacks and metadata.
    #
    # @param other [Report] of the same class
    # @return [Report]
    # @raise [ArgumentError] when they count different things
    def +(other)
      raise ArgumentError, "cannot combine #{other.class}" unless instance_of?(other.class)
      raise ArgumentError, "cannot combine #{modeline} with #{other.modeline}" unless modeline == other.modeline
      raise ArgumentError, "cannot combine v#{version} with v#{other.version}" unless version == other.version

      self.class.new((RingProf::Profile.new(data) + RingProf::Profile.new(other.data)).data)
    rescue RingProf::Error => e
      raise ArgumentError, e.message
    end

    private

    def print_report(format, io, profile = RingProf::Profile.new(@data), **options)
      RingProf::Report.const_get(format).new(profile, **options).write(io)
    rescue RingProf::Error => e
      raise e.message
    end

    def digest(frame)
      require "digest"
      Digest::SHA256.hexdigest(frame.values_at(:name, :file, :line).join)
    end

    def d3_child(parent, id)
      frame = @data[:frames].fetch(id, {})
      child = { "name" => "#{frame[:name]} : #{frame[:file]} : #{frame[:line]}", "value" => 0, "children" => [] }
      parent["children"] << child
      child
    end

    def root_frames
      frames.select { |id, _frame| callers_for(id).empty? }
    end

    # `[name, weight]` of each caller.
    def callers_for(addr)
      @callers ||= @data[:frames].each_value.with_object({}) do |frame, callers|
        frame[:edges]&.each { |callee, weight| (callers[callee] ||= []) << [frame[:name], weight] }
      end
      @callers.fetch(addr, [])
    end

    def source_display(f, file, lines, range = nil)
      RingProf::Report::Source.new(RingProf::Profile.new(@data)).write(f, file, lines, range)
    end

    # The rows of the flat report: frames alone, since nothing else is printed.
    module Rows
      def self.filter(data, **conditions)
        RingProf::Profile.new(data.slice(*%i[version mode interval samples gc_samples missed_samples metadata states frames]))
                         .filter(**conditions).data
      end
    end
    private_constant :Rows
  end
end
