# frozen_string_literal: true

module RingProf
  class Profile
    # Results Hash → Marshal's format.
    #
    # Marshal remembers each number above 2**30 that it has written, which takes several times the memory of the
    # profile, whose ids are addresses and whose times are microseconds. So long arrays of numbers are written here,
    # number by number, behind all that Marshal has written: what it reads from that is the same.
    module Writer
      # From this size on.
      LONG = 4096
      # Codes that are kept: most numbers come again.
      CODES = 65_536
      HEADER = "\x04\b{".b.freeze
      private_constant :LONG, :CODES, :HEADER

      class << self
        # @param data [Hash]
        # @param io [#write]
        # @return [void]
        def write(data, io)
          long = data.select { |_key, value| value.is_a?(Array) && value.size >= LONG && value.all?(Integer) }
          rest = Marshal.dump(data.reject { |key, _value| long.key?(key) })
          # A Hash with a default, or what is no plain Hash, is Marshal's alone.
          return io.write(Marshal.dump(data)) if long.empty? || !rest.start_with?(HEADER)

          io.binmode if io.respond_to?(:binmode)
          io.write(HEADER, number(data.size), rest.byteslice((HEADER.bytesize + number(data.size - long.size).bytesize)..))
          long.each { |key, value| write_array(io, key, value) }
        end

        private

        # A number as it stands for a size: without its kind.
        def number(integer)
          Marshal.dump(integer).byteslice(3..)
        end

        def write_array(io, key, array)
          io.write(Marshal.dump(key).byteslice(2..), "[", number(array.size))
          codes = {}
          array.each_slice(LONG) do |slice|
            codes.clear if codes.size > CODES
            io.write(slice.map { |integer| codes[integer] ||= Marshal.dump(integer).byteslice(2..) }.join)
          end
        end
      end
    end
    private_constant :Writer
  end
end
