# frozen_string_literal: true

module RingProf
  class Profile
    # Names and paths as reports may print them: whatever bytes a program has put into them, UTF-8 comes out,
    # and no two different names become the same.
    module Names
      CONTROLS = /[\u0000-\u001f\u007f-\u009f\u2028\u2029]/
      ESCAPES = { "\n" => "\\n", "\r" => "\\r", "\t" => "\\t", "\e" => "\\e" }.freeze
      private_constant :CONTROLS, :ESCAPES

      module_function

      # @param string [String, nil]
      # @return [String] valid UTF-8; bytes that are none are written as \xNN
      def utf8(string)
        string = string.to_s
        return string if string.encoding == Encoding::UTF_8 && string.valid_encoding?

        transcoded(string) || string.dup.force_encoding(Encoding::UTF_8).scrub { |bytes| escape(bytes) }
      end

      # One that fits on a line, and does nothing to a terminal.
      #
      # @param string [String, nil]
      # @return [String] without control characters
      def line(string)
        string = utf8(string)
        return string unless string.match?(CONTROLS)

        string.gsub(CONTROLS) { |control| ESCAPES[control] || escape(control) }
      end

      # What says its encoding is believed; binary is taken for UTF-8.
      def transcoded(string)
        string.encode(Encoding::UTF_8) if string.encoding != Encoding::UTF_8 && string.encoding != Encoding::BINARY
      rescue EncodingError
        nil
      end
      private_class_method :transcoded

      def escape(bytes)
        bytes.bytes.map { |byte| format("\\x%02X", byte) }.join
      end
      private_class_method :escape
    end
  end
end
