# frozen_string_literal: true

module RingProf
  # Hands a finished profile out, once: as a Hash, or in Marshal's format to a file.
  #
  # Nothing is consumed before the target is open, and a profile whose writing failed half-way
  # stays here until it is read again or until a newer profile is finished.
  module Results
    @unwritten = nil

    class << self
      # @param target [String, Pathname, #to_io, nil] where to write; nil: the `out:` of the last
      #   start, and without one the Hash is returned
      # @return [Hash, IO, nil] nil while running, before any start, and when read already
      # @raise [SystemCallError, TypeError, IOError] when the target cannot be written; the profile
      #   is kept
      def read(target)
        return nil if RingProf.running?
        return nil unless Native.ready? || @unwritten

        target ||= Native.out
        return take unless target

        target.respond_to?(:to_io) ? write(target.to_io) : write_file(File.path(target))
      end

      # The profile, whatever `out:` says.
      #
      # @return [Hash, nil] nil when there is none
      def take
        profile = Native.take || @unwritten
        @unwritten = nil
        profile
      end

      private

      # The file stays open, as StackProf leaves it to its caller.
      def write_file(path)
        file = File.open(path, "wb")
        written = write(file)
      ensure
        close(file) if file && !written
      end

      def write(io)
        profile = take
        return nil unless profile

        @unwritten = profile
        Marshal.dump(profile, io)
        io.flush
        @unwritten = nil
        io
      end

      # A file that failed must not flush the rest of its buffer later, into the next try's bytes.
      def close(file)
        file.close
      rescue SystemCallError
        # The disk is still full. The descriptor is closed and the buffer gone all the same.
      end
    end
  end
  private_constant :Results
end
