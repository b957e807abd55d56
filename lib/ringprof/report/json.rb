# frozen_string_literal: true

require "json"
require "ringprof/profile"

module RingProf
  module Report
    # The whole profile in JSON, key by key, so that millions of numbers never stand in memory as text. Strings are
    # valid UTF-8, whatever they were, and numbers that JSON does not have are null.
    class JSON
      # Numbers that are written at a time.
      SLICE = 4096
      # Hashes in Hashes in the metadata; JSON's readers take no more either.
      DEPTH = 90
      private_constant :SLICE, :DEPTH

      # @param profile [Profile]
      def initialize(profile)
        @profile = profile
      end

      # @param io [#write]
      # @return [void]
      def write(io)
        separator = "{"
        @profile.data.each do |key, value|
          io.write(separator, ::JSON.generate(Profile::Names.utf8(key.to_s)), ":")
          write_value(io, value)
          separator = ","
        end
        io.write("}\n")
      end

      private

      def write_value(io, value)
        case value
        when Hash then write_hash(io, value)
        when Array then write_array(io, value)
        else io.write(generate(value))
        end
      end

      # The frames are many, but none is big.
      def write_hash(io, hash)
        io.write("{")
        hash.each_with_index do |(key, value), index|
          io.write("," * [index, 1].min, ::JSON.generate(Profile::Names.utf8(key.to_s)), ":", generate(value))
        end
        io.write("}")
      end

      def write_array(io, array)
        io.write("[")
        array.each_slice(SLICE).with_index do |slice, index|
          # Millions of numbers are not looked at one by one.
          text = slice.all?(Integer) ? slice.join(",") : generate(slice)[1..-2]
          io.write("," * [index, 1].min, text)
        end
        io.write("]")
      end

      def generate(value)
        ::JSON.generate(clean(value, 0), max_nesting: false)
      end

      def clean(value, depth)
        raise Error, "its metadata is nested too deeply" if depth > DEPTH

        case value
        when Hash then value.to_h { |key, inner| [Profile::Names.utf8(key.to_s), clean(inner, depth + 1)] }
        when Array then value.map { |inner| clean(inner, depth + 1) }
        when String, Symbol then Profile::Names.utf8(value.to_s)
        when Float then value.finite? ? value : nil
        when Integer, true, false, nil then value
        else Profile::Names.utf8(value.to_s)
        end
      end
    end
  end
end
