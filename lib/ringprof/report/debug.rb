# frozen_string_literal: true

require "ringprof/profile"

module RingProf
  module Report
    # The results Hash as Ruby writes it, indented, a frame on a line, and arrays of numbers in lines of twenty.
    class Debug
      # Elements on a line.
      WIDTH = 20
      private_constant :WIDTH

      # @param profile [Profile]
      def initialize(profile)
        @profile = profile
      end

      # @param io [#puts]
      # @return [void]
      def write(io)
        io.puts "{"
        @profile.data.each do |key, value|
          case value
          when Hash then write_hash(io, key, value)
          when Array then write_array(io, key, value)
          else io.puts " #{key.inspect}=>#{value.inspect},"
          end
        end
        io.puts "}"
      end

      private

      def write_hash(io, key, hash)
        return io.puts " #{key.inspect}=>{}," if hash.empty?

        io.puts " #{key.inspect}=>{"
        hash.each { |inner, value| io.puts "  #{inner.inspect}=>#{value.inspect}," }
        io.puts " },"
      end

      def write_array(io, key, array)
        return io.puts " #{key.inspect}=>[]," if array.empty?

        io.puts " #{key.inspect}=>["
        array.each_slice(WIDTH) { |slice| io.puts "  #{slice.map(&:inspect).join(", ")}," }
        io.puts " ],"
      end
    end
  end
end
