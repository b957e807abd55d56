# frozen_string_literal: true

require "ringprof/errors"

module RingProf
  # A finished profile, to be read: a value over the results Hash. It never changes the Hash.
  #
  # @example
  #   profile = RingProf::Profile.load("profile.dump")
  #   profile.frames.first(10).each { |frame| puts "#{frame.samples} #{frame.name}" }
  #
  # @example Two processes, without their tests
  #   both = RingProf::Profile.load("one.dump") + RingProf::Profile.load("two.json.gz")
  #   RingProf::Report::Text.new(both.filter(reject_files: "/app/test/")).write($stdout)
  class Profile
    # One method, block or C function of the profile.
    #
    # * `id` – Integer, unique in the profile; the raw stacks name frames by it
    # * `name`, `file` – String, in valid UTF-8
    # * `line` – first line of the method; nil when unknown
    # * `samples` – samples with the frame on top (self)
    # * `total_samples` – samples with the frame anywhere in the stack
    # * `edges` – `{callee id => samples}`
    # * `lines` – `{line => [total, self]}` (a plain Integer in dumps of format 1.0)
    # * `states` – `{running: [total, self], waiting: …, blocked: …}`; nil when all of them ran, or nobody told
    Frame = Struct.new(:id, :name, :file, :line, :samples, :total_samples, :edges, :lines, :states, keyword_init: true)

    # What names a frame that the profile does not describe.
    UNKNOWN = "(unknown)"
    # Above the stacks of garbage collection.
    GC_FRAME = "(garbage collection)"
    private_constant :UNKNOWN, :GC_FRAME

    class << self
      # Reads a profile: Marshal (what `results(path)` writes) or JSON, compressed by gzip or not, of RingProf or
      # StackProf; which one is seen by the content.
      # Marshal runs code of the file's choosing: load only files that you trust.
      #
      # @param source [String, Pathname, IO] a path, or what can be read
      # @return [Profile]
      # @raise [SystemCallError] when it cannot be read
      # @raise [Error] when it holds no profile
      def load(source)
        new(Reader.load(source))
      rescue Error => e
        raise Error, "#{name_of(source)} is not a profile: #{e.message}"
      end

      # @param bytes [String] the content of a profile file
      # @return [Profile]
      # @raise [Error] when it holds no profile
      def parse(bytes)
        new(Reader.parse(bytes))
      end

      # @param json [Object] what JSON.parse made of a profile
      # @return [Object] the same with Integers and Symbols for keys, as profiles have them
      def restore_keys(json)
        Reader.restore_keys(json)
      end

      private

      def name_of(source)
        return source.to_path || "input" if source.respond_to?(:to_path)

        source.respond_to?(:read) ? "input" : source
      end
    end

    # @return [Hash] the results Hash, as given
    attr_reader :data

    # @param data [Hash] what `RingProf.results` returned
    # @raise [Error] when it is not a results Hash
    def initialize(data)
      raise Error, "no results Hash" unless data.is_a?(Hash) && data[:frames].is_a?(Hash) && data[:samples].is_a?(Integer)

      @data = data
    end

    # @return [Numeric, nil] of the format: 1.0, 1.1 or 1.2
    def version
      data[:version]
    end

    # @return [Symbol] `:wall`, `:cpu`, `:cpu_and_wall`, `:object` or `:custom`
    def mode
      data[:mode]&.to_sym
    end

    # @return [Numeric, nil] microseconds (wall, cpu) or allocations (object) between samples; nil in custom mode
    def interval
      data[:interval]
    end

    # @return [Integer] samples recorded, those in garbage collection included
    def samples
      data[:samples]
    end

    # @return [Integer] samples recorded in garbage collection
    def gc_samples
      data[:gc_samples] || 0
    end

    # @return [Integer] samples that no stack was recorded for
    def missed_samples
      data[:missed_samples] || 0
    end

    # @return [Integer] samples whose leaf side was folded into its caller, for `max_memory:` was reached
    def folded_samples
      data[:folded_samples] || 0
    end

    # @return [Integer] samples that are not among the single stacks for the same reason: the last ones
    def raw_omitted_samples
      data[:raw_omitted_samples] || 0
    end

    # @return [Hash{Symbol => Integer}] samples by what the thread was doing: `:running`, `:waiting` (for
    #   the GVL), `:blocked` (off the GVL), `:gc`
    def states
      { running: samples - gc_samples, waiting: 0, blocked: 0, gc: gc_samples }.merge(data[:states] || {})
    end

    # @return [Array<Hash>] the threads that have samples: `:id`, `:native_id`, `:name`, `:main`, `:born`,
    #   `:died`, `:samples`, `:states`; empty in dumps that do not tell
    def threads
      data[:threads] || []
    end

    # @return [Hash] what the caller of `start` attached
    def metadata
      data[:metadata] || {}
    end

    # @return [Boolean] whether the profile holds the single stacks (`raw: true`)
    def raw?
      data[:raw].is_a?(Array)
    end

    # @return [Stacks] the single stacks, an Enumerable of runs
    # @raise [Error] when the profile holds none
    def stacks
      # The words are StackProf's: its users look for them.
      raise Error, "profile does not include raw samples (add `raw: true` to collecting StackProf.run)" unless raw?

      Stacks.new(data[:raw], data[:raw_lines])
    end

    # @return [Float] missed samples, of all; 0.0 to 1.0
    def miss_rate
      share(missed_samples, missed_samples + samples)
    end

    # @param sort [Symbol] `:self` or `:total`: by which number of samples, highest first
    # @return [Array<Frame>] ties stay in the order of first sight
    def frames(sort: :self)
      key = { self: :samples, total: :total_samples }.fetch(sort)
      all_frames.each_with_index.sort_by { |frame, index| [-frame[key], index] }.map(&:first)
    end

    # @param id [Integer]
    # @return [Frame] one without samples, called `(unknown)`, when the profile does not describe it
    def frame(id)
      frames_by_id[id] || Frame.new(id: id, name: UNKNOWN, file: "", samples: 0, total_samples: 0)
    end

    # @param id [Integer] of a frame
    # @return [Array<(Frame, Integer)>] who called it, and how many of its samples are of those calls; most first
    def callers(id)
      callers_by_id.fetch(id, []).map { |caller_id, weight| [frame(caller_id), weight] }
    end

    # @param id [Integer] of a frame
    # @return [Array<(Frame, Integer)>] whom it called, and how many of its samples are of those calls; most first
    def callees(id)
      by_weight(frame(id).edges || {}).map { |callee, weight| [frame(callee), weight] }
    end

    # @return [Hash{String => Hash{Integer => Array(Integer, Integer)}}] samples of each line of each file, total
    #   and self, of all frames together
    def files
      all_frames.each_with_object({}) do |frame, files|
        next unless frame.lines

        lines = files[frame.file] ||= {}
        frame.lines.each do |line, counts|
          total, own = counts
          sum = lines[line] ||= [0, 0]
          # Format 1.0 has one number: samples on top.
          sum[0] += total if own
          sum[1] += own || total
        end
      end
    end

    # @param part [Integer]
    # @param whole [Integer] samples of the whole profile if not given
    # @return [Float] part of whole, 0.0 to 1.0; 0.0 of nothing
    def share(part, whole = samples)
      whole.zero? ? 0.0 : part.fdiv(whole)
    end

    # Both profiles in one: frames of the same name, file and line are one, all samples, raw stacks, threads and
    # states are kept, and the metadata too; where its values differ, an Array has both. Raw stacks are kept when
    # both profiles have them: of one alone they would be taken for the whole.
    #
    # @param other [Profile]
    # @return [Profile]
    # @raise [Error] when they count different things: another mode, interval or format
    def +(other)
      require "ringprof/profile/merger"
      Profile.new(Merger.new(self, other).data)
    end

    # A part of the profile, for any report.
    #
    # Files and names choose *frames*: the others are not shown, and are cut out of the raw stacks; numbers stay
    # those of the whole. A String is the beginning of a path, or a whole name; a Regexp matches anywhere.
    # Threads, states and time choose *samples*, which takes raw stacks; all numbers are counted anew.
    #
    # @param files [String, Regexp, Array, nil] frames of these files alone
    # @param reject_files [String, Regexp, Array, nil] no frames of these files
    # @param names [String, Regexp, Array, nil] frames of these names alone
    # @param reject_names [String, Regexp, Array, nil] no frames of these names
    # @param threads [String, Regexp, Integer, Array, nil] samples of these threads, by name or id
    # @param states [Symbol, Array<Symbol>, nil] samples in these states
    # @param time [Range<Numeric>, nil] samples of this time, in seconds since the first one
    # @return [Profile]
    # @raise [Error] when samples are to be chosen by what the profile does not tell
    def filter(files: nil, reject_files: nil, names: nil, reject_names: nil, threads: nil, states: nil, time: nil)
      require "ringprof/profile/filter"
      data = Filter.new(self).samples(threads: threads, states: states, time: time)
      Profile.new(Filter.new(Profile.new(data)).frames(files: files, reject_files: reject_files, names: names, reject_names: reject_names))
    end

    # Writes the profile as `RingProf.results(path)` does, for every reader of StackProf's dumps.
    #
    # @param target [String, Pathname, IO]
    # @return [void]
    # @raise [SystemCallError] when it cannot be written
    def dump(target)
      # A Pathname has `write` too, of another kind.
      path = target.is_a?(String) || (target.respond_to?(:to_path) && !target.respond_to?(:to_io))
      return File.open(target, "wb") { |file| dump(file) } if path

      require "ringprof/profile/writer"
      Writer.write(data, target)
      nil
    end

    private

    def all_frames
      frames_by_id.values
    end

    def frames_by_id
      @frames_by_id ||= data[:frames].to_h { |id, frame| [id, built(id, frame)] }
    end

    def built(id, frame)
      Frame.new(id: id, name: Names.utf8(frame[:name] || UNKNOWN), file: Names.utf8(frame[:file]), line: frame[:line],
                samples: frame[:samples] || 0, total_samples: frame[:total_samples] || 0,
                edges: frame[:edges], lines: frame[:lines], states: frame[:states])
    end

    def callers_by_id
      @callers_by_id ||= begin
        callers = {}
        data[:frames].each { |id, frame| frame[:edges]&.each { |callee, weight| (callers[callee] ||= {})[id] = weight } }
        callers.transform_values { |weights| by_weight(weights) }
      end
    end

    def by_weight(weights)
      weights.each_with_index.sort_by { |(_id, weight), index| [-weight, index] }.map(&:first)
    end
  end
end

# Behind the class, which is autoloaded: they must find it defined.
require "ringprof/profile/names"
require "ringprof/profile/reader"
require "ringprof/profile/stacks"
