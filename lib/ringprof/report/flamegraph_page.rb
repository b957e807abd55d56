# frozen_string_literal: true

require "json"
require "ringprof/report/flamegraph"

module RingProf
  module Report
    # A flame graph as one page of HTML, which loads nothing from anywhere: click to zoom, type to search.
    class FlamegraphPage
      # The page without a profile: it shows the rows of a file that {Flamegraph} wrote (`viewer.html?data=FILE`).
      VIEWER = ::File.expand_path("flamegraph_page/viewer.html", __dir__)
      # Where the page gets its profile.
      PLACE = "<!-- profile -->"
      # What would end the script, or a line of it.
      UNSAFE = /[<\u2028\u2029]/
      SLICE = 4096
      private_constant :PLACE, :UNSAFE, :SLICE

      # @param profile [Profile]
      # @param alphabetical [Boolean] see {Flamegraph}
      # @param title [String, nil]
      def initialize(profile, alphabetical: true, title: nil)
        @profile = profile
        @title = title || "#{profile.mode}#{"(#{profile.interval})" if profile.interval}"
        @graph = Flamegraph.new(profile, alphabetical: alphabetical, skip_common: false, nested: true)
      end

      # @param io [#write]
      # @return [void]
      # @raise [Error] when the profile holds no single stacks
      def write(io)
        cells = @graph.each_cell
        before, after = ::File.read(VIEWER, encoding: "UTF-8").split(PLACE)
        io.write(before, "<script>\n")
        write_profile(io, cells)
        io.write("</script>", after)
      end

      private

      # Numbers by fours and names once: a page of an hour is small enough to be mailed.
      def write_profile(io, cells)
        numbers = {}
        io.write("show(#{safe(@title)}, [")
        cells.each_slice(SLICE) do |slice|
          io.write(slice.map { |cell| "#{cell.x},#{cell.depth},#{cell.width},#{numbers[cell.id] ||= numbers.size}," }.join, "\n")
        end
        io.write("], [\n")
        numbers.each_key { |id| io.write(described(@profile.frame(id)), ",\n") }
        io.write("]);\n")
      end

      def described(frame)
        safe([frame.name, [frame.file, frame.line].reject { |part| part.to_s.empty? }.join(":")])
      end

      def safe(value)
        ::JSON.generate(value).gsub(UNSAFE) { |char| format("\\u%04x", char.ord) }
      end
    end
  end
end
