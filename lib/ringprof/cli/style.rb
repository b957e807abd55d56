# frozen_string_literal: true

module RingProf
  module CLI
    # How text looks: colour on terminals alone, and not where `NO_COLOR` is set.
    class Style
      CODES = { bold: 1, dim: 2, red: 31, green: 32, yellow: 33 }.freeze
      private_constant :CODES

      class << self
        # @param number [Numeric]
        # @return [String] with commas between thousands
        def count(number)
          number.to_s.gsub(/(?<=\d)(?=(\d{3})+\z)/, ",")
        end

        # @param part [Numeric] 0.0 to 1.0
        # @return [String]
        def percent(part)
          format("%.1f %%", 100 * part)
        end

        # @param file [String, nil]
        # @param line [Integer, nil]
        # @return [String] short where the file is below the current directory; empty for what has no file
        def place(file, line)
          return "" if file.nil? || file.empty? || file.start_with?("<")

          [file.delete_prefix("#{Dir.pwd}/"), line].compact.join(":")
        end
      end

      # @param io [IO]
      def initialize(io)
        @on = io.tty? && ENV.fetch("NO_COLOR", "").empty? && ENV["TERM"] != "dumb"
      end

      # @return [Boolean]
      def on?
        @on
      end

      # @param text [String]
      # @param looks [Array<Symbol>] `:bold`, `:dim`, `:red`, `:green`, `:yellow`
      # @return [String]
      def paint(text, *looks)
        return text unless @on && looks.any?

        "\e[#{looks.map { |look| CODES.fetch(look) }.join(";")}m#{text}\e[0m"
      end
    end
  end
end
