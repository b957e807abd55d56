# frozen_string_literal: true

require "ringprof/errors"

module RingProf
  class Profile
    # Bytes → results Hash. What they are is seen by their content: gzip or not, Marshal or JSON.
    #
    # Marshal runs code of the bytes' choosing: nothing here makes that safe.
    module Reader
      MARSHAL = "\x04\b".b.freeze
      GZIP = "\x1F\x8B".b.freeze
      # Whatever Marshal and JSON raise for bytes that are theirs by the first look alone.
      MALFORMED = [ArgumentError, TypeError, EOFError, NameError, RangeError, RegexpError, SystemStackError, FloatDomainError,
                   EncodingError].freeze
      # A profile begins with one of these; a JSON file may begin with space, or a byte order mark.
      JSON_START = /\A(?:\xEF\xBB\xBF)?\s*(?:\{|\z)/n
      # Of JSON and of what is compressed, which have to be in memory as a whole.
      LIMIT = 4 << 30
      PART = 16 << 20
      # The newest format that is known here.
      VERSION = 1.2
      private_constant :MARSHAL, :GZIP, :MALFORMED, :JSON_START, :LIMIT, :PART, :VERSION

      class << self
        # @param source [String, Pathname, IO] a path, or what can be read
        # @return [Hash]
        # @raise [SystemCallError] when it cannot be read
        # @raise [Error] when it holds no profile
        def load(source)
          return parse(source.read) if source.respond_to?(:read) && !source.respond_to?(:to_path)
          return read(source) if source.respond_to?(:read)

          File.open(source, "rb") { |file| read(file) }
        rescue NoMemoryError
          raise Error, "it takes more memory than there is"
        end

        # @param bytes [String]
        # @return [Hash]
        # @raise [Error] when they are no profile
        def parse(bytes)
          bytes = bytes.to_s.b if bytes.encoding != Encoding::BINARY
          bytes = gunzip(bytes) if bytes.start_with?(GZIP)
          raise Error, "it is empty" if bytes.empty?
          return check(from_marshal(bytes)) if bytes.start_with?(MARSHAL)
          raise Error, "neither Marshal nor JSON" unless profile?(bytes.byteslice(0, 64))

          check(from_json(bytes))
        rescue NoMemoryError
          raise Error, "it takes more memory than there is"
        end

        # What JSON made Strings of: numbers become Integers again, the rest Symbols. Arrays of numbers (raw
        # stacks, by the million) are left as they are.
        #
        # @param value [Object]
        # @return [Object]
        def restore_keys(value)
          return value.map { |inner| restore_keys(inner) } if value.is_a?(Array) && value.first.is_a?(Hash)
          return value unless value.is_a?(Hash)

          value.to_h { |key, inner| [key.match?(/\A\d+\z/) ? key.to_i : key.to_sym, restore_keys(inner)] }
        end

        private

        # Marshal reads a big file as it goes, which saves the memory of the bytes; the first look tells a film, or
        # a disk full of zeros, from a profile before it is read.
        def read(file)
          start = file.read(64).to_s.b
          raise Error, "it is empty" if start.empty?
          raise Error, "neither Marshal nor JSON" unless profile?(start)
          return parse(start + rest(file)) unless start.start_with?(MARSHAL) && file.respond_to?(:stat) && file.stat.file?

          file.rewind
          check(from_marshal(file))
        end

        def profile?(start)
          start.start_with?(MARSHAL, GZIP) || (start.match?(JSON_START) && !start.include?("\0"))
        end

        def rest(file)
          bytes = String.new(encoding: Encoding::BINARY)
          while (part = file.read(PART))
            bytes << part
            raise Error, "it is bigger than #{LIMIT >> 30} GiB" if bytes.bytesize > LIMIT
          end
          bytes
        end

        # Looked at before it is unpacked, too: the rest of it may be a thousand times as big.
        def gunzip(bytes)
          require "stringio"
          require "zlib"
          reader = Zlib::GzipReader.new(StringIO.new(bytes))
          start = reader.read(64).to_s.b
          raise Error, "neither Marshal nor JSON, under its gzip" unless profile?(start) && !start.start_with?(GZIP)

          start + rest(reader)
        rescue Zlib::Error => e
          raise Error, "its gzip is damaged (#{e.message})"
        end

        def from_marshal(source)
          Marshal.load(source)
        rescue *MALFORMED => e
          raise Error, e.message
        end

        def from_json(bytes)
          # Loaded on demand: a profiled program that never reads JSON must be free in its choice of json.
          require "json"
          bytes = bytes.dup.force_encoding(Encoding::UTF_8)
          raise Error, "neither Marshal nor JSON" unless bytes.valid_encoding?

          data = restore_keys(JSON.parse(bytes.delete_prefix("\uFEFF")))
          symbols(data) if data.is_a?(Hash)
          data
        rescue JSON::ParserError, *MALFORMED
          raise Error, "neither Marshal nor JSON"
        end

        # Values that were Symbols.
        def symbols(data)
          data[:mode] = data[:mode].to_sym if data[:mode].is_a?(String)
          data[:raw_states].map! { |state| state.is_a?(String) ? state.to_sym : state } if data[:raw_states].is_a?(Array)
        end

        # Files come from anywhere; what is wrong with them is better said here than in the middle of a report.
        def check(data)
          raise Error, "no results Hash" unless data.is_a?(Hash) && data[:frames].is_a?(Hash) && data[:samples].is_a?(Integer)

          version = data[:version]
          if version && !(version.is_a?(Numeric) && version <= VERSION)
            raise Error, "its format is #{version}, and #{VERSION} is the newest that is known here"
          end

          check_frames(data[:frames])
          check_kinds(data)
          data
        end

        def check_frames(frames)
          frames.each_value do |frame|
            good = frame.is_a?(Hash) && counts?(frame, :samples, :total_samples, :line) && text?(frame[:name]) && text?(frame[:file]) &&
                   weights?(frame[:edges]) && weights?(frame[:lines])
            raise Error, "its frames are damaged" unless good
          end
        end

        def check_kinds(data)
          arrays = %i[raw raw_lines raw_sample_timestamps raw_timestamp_deltas raw_threads raw_states raw_cpu_weights threads]
          good = counts?(data, :gc_samples, :missed_samples, :folded_samples, :raw_omitted_samples) && arrays.all? { |key| data[key].nil? || data[key].is_a?(Array) } &&
                 %i[metadata states gc_callers gc_causes].all? { |key| hash?(data[key]) }
          raise Error, "no results Hash" unless good
        end

        def counts?(hash, *keys)
          keys.all? { |key| hash[key].nil? || hash[key].is_a?(Integer) }
        end

        # `{callee => weight}`, `{line => weight}` or `{line => [total, self]}`.
        def weights?(hash)
          hash.nil? || (hash.is_a?(Hash) && hash.all? do |key, weight|
            key.is_a?(Integer) && (weight.is_a?(Integer) || (weight.is_a?(Array) && weight.size == 2 && weight.all?(Integer)))
          end)
        end

        def hash?(value)
          value.nil? || value.is_a?(Hash)
        end

        def text?(value)
          value.nil? || value.is_a?(String)
        end
      end
    end
    private_constant :Reader
  end
end
