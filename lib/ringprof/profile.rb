# frozen_string_literal: true

require "ringprof/errors"

module RingProf
  # A finished profile, to be read: a value over the results Hash. It never changes the Hash.
  #
  # @example
  #   profile = RingProf::Profile.load("profile.dump")
  #   profile.frames.first(10).each { |frame| puts "#{frame.samples} #{frame.name}" }
  class Profile
    # One method, block or C function of the profile.
    #
    # * `id` – Integer, unique in the profile; the raw stacks name frames by it
    # * `name`, `file` – String
    # * `line` – first line of the method; nil when unknown
    # * `samples` – samples with the frame on top (self)
    # * `total_samples` – samples with the frame anywhere in the stack
    # * `edges` – `{callee id => samples}`
    # * `lines` – `{line => [total, self]}` (a plain Integer in dumps of format 1.0)
    Frame = Struct.new(:id, :name, :file, :line, :samples, :total_samples, :edges, :lines, keyword_init: true)

    # First bytes of everything that Marshal writes.
    MARSHAL_MAGIC = "\x04\b".b.freeze
    private_constant :MARSHAL_MAGIC

    class << self
      # Reads a profile file: Marshal (what `results(path)` writes) or JSON, of RingProf or StackProf.
      # Marshal runs code of the file's choosing: load only files that you trust.
      #
      # @param path [String, Pathname]
      # @return [Profile]
      # @raise [SystemCallError] when the file cannot be read
      # @raise [Error] when it holds no profile
      def load(path)
        parse(File.binread(path))
      rescue Error => e
        raise Error, "#{path} is not a profile: #{e.message}"
      end

      # @param bytes [String] the content of a profile file
      # @return [Profile]
      # @raise [Error] when it holds no profile
      def parse(bytes)
        new(bytes.byteslice(0, 2).b == MARSHAL_MAGIC ? from_marshal(bytes) : from_json(bytes))
      end

      private

      def from_marshal(bytes)
        Marshal.load(bytes)
      rescue ArgumentError, TypeError, EOFError, NameError => e
        raise Error, e.message
      end

      def from_json(bytes)
        # Loaded on demand: a profiled program that never reads JSON must be free in its choice of json.
        require "json"
        data = restore_keys(JSON.parse(bytes.dup.force_encoding(Encoding::UTF_8)))
        data[:mode] = data[:mode].to_sym if data.is_a?(Hash) && data[:mode].is_a?(String)
        data
      rescue JSON::ParserError
        raise Error, "neither Marshal nor JSON"
      end

      # JSON knows String keys only: numbers become Integers again, the rest Symbols. Arrays hold
      # numbers alone (raw stacks, by the million) and are left as they are.
      def restore_keys(value)
        return value.map { |inner| restore_keys(inner) } if value.is_a?(Array) && value.first.is_a?(Hash)
        return value unless value.is_a?(Hash)

        value.to_h { |key, inner| [key.match?(/\A\d+\z/) ? key.to_i : key.to_sym, restore_keys(inner)] }
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

    # @return [Symbol] `:wall`, `:cpu`, `:cpu_and_wall`, `:object` or `:custom`
    def mode
      data[:mode]
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
      data.key?(:raw)
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

    # @param part [Integer]
    # @param whole [Integer] samples of the whole profile if not given
    # @return [Float] part of whole, 0.0 to 1.0; 0.0 of nothing
    def share(part, whole = samples)
      whole.zero? ? 0.0 : part.fdiv(whole)
    end

    private

    def all_frames
      data[:frames].map do |id, frame|
        Frame.new(id: id, name: frame[:name], file: frame[:file], line: frame[:line],
                  samples: frame[:samples] || 0, total_samples: frame[:total_samples] || 0,
                  edges: frame[:edges], lines: frame[:lines])
      end
    end
  end
end
