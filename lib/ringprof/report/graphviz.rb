# frozen_string_literal: true

require "ringprof/report/printing"

module RingProf
  module Report
    # The call graph in the language of Graphviz: `dot -Tsvg`.
    class Graphviz
      include Printing

      # @param profile [Profile]
      # @param filter [Regexp, String, nil] frames of these names alone, and those that are (nearly) only called by them
      # @param limit [Integer, nil] number of nodes; 0 or nil for all
      # @param node_fraction [Numeric, nil] no nodes with less than this part of the samples
      def initialize(profile, filter: nil, limit: nil, node_fraction: nil)
        @profile = profile
        @filter = filter && Regexp.new(filter)
        @limit = limit unless limit&.zero?
        @fraction = node_fraction
      end

      # @param io [#puts]
      # @return [void]
      def write(io)
        nodes = chosen
        io.puts "digraph profile {", legend
        nodes.each_value { |frame| io.puts node(frame) }
        nodes.each_value do |frame|
          frame.edges&.each { |callee, weight| io.puts edge(frame.id, callee, weight) if nodes.key?(callee) }
        end
        io.puts "}"
      end

      private

      def chosen
        frames = @profile.frames(sort: :total)
        frames = reached(frames) if @filter
        frames = frames.select { |frame| frame.total_samples >= minimum }
        first(frames, @limit).to_h { |frame| [frame.id, frame] }
      end

      # Where the filter matches, and what has nearly all of its samples from there.
      def reached(frames)
        by_id = frames.to_h { |frame| [frame.id, frame] }
        marked = {}
        open = frames.select { |frame| frame.name.match?(@filter) }.map(&:id)
        while (id = open.pop)
          next if marked[id] || !by_id[id]

          marked[id] = true
          by_id[id].edges&.each { |callee, weight| open << callee if by_id[callee] && by_id[callee].total_samples <= weight * 1.2 }
        end
        frames.select { |frame| marked[frame.id] }
      end

      def minimum
        @fraction ? (@fraction * @profile.samples).ceil : 0
      end

      def legend
        parts = ["Total samples: #{@profile.samples}"]
        parts << "Showing top #{@limit} nodes" if @limit
        parts << "Dropped nodes with < #{minimum} samples" if @fraction
        "Legend [shape=box,fontsize=24,shape=plaintext,label=\"#{parts.map { |part| "#{part}\\l" }.join}\"];"
      end

      def node(frame)
        own, total = frame.samples, frame.total_samples
        counts = +""
        counts << "#{own} #{percent(own)}\\rof " if own < total
        counts << "#{total} #{percent(total)}\\r"
        size = width(total)
        font = @profile.share(own, most) * 28 + 10
        %(  "#{frame.id}" [size=#{size}] [fontsize=#{font}] [penwidth="#{size}"] [shape=box] [label="#{quoted(frame.name)}\\n#{counts}"];)
      end

      def edge(from, to, weight)
        %(  "#{from}" -> "#{to}" [label="#{weight}"] [weight="#{weight}"] [penwidth="#{width(weight)}"];)
      end

      def width(samples)
        @profile.share(samples) * 2.0 + 0.5
      end

      def most
        @most ||= @profile.frames.first&.samples || 0
      end

      def quoted(name)
        line(name).gsub(/["\\]/) { |char| "\\#{char}" }
      end
    end
  end
end
