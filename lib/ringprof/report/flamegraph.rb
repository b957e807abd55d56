# frozen_string_literal: true

require "json"
require "ringprof/report/printing"

module RingProf
  module Report
    # The rows of a flame graph, as a call of the JavaScript function `flamegraph`: what StackProf's viewer and ours
    # (`ringprof report --flamegraph-viewer`) draw.
    #
    #     flamegraph([
    #     {"x":0,"y":1,"width":12,"frame_id":8192,"frame":"App#work","file":"/app/main.rb"}
    #     ])
    class Flamegraph
      # One rectangle: frame `id`, `depth` from the root, from sample `x` on.
      Cell = Struct.new(:x, :depth, :width, :id)
      # A stack in its place. Its frames are numbers of four bytes each, in one String: stacks by the hundred thousand
      # are small in that form, and are compared in one step.
      # `shared` is the number of frames at its root that it has in common with the stack before it.
      Stack = Struct.new(:x, :weight, :frames, :shared)
      FRAME = 4
      private_constant :Stack, :FRAME

      # @param profile [Profile]
      # @param alphabetical [Boolean] stacks in the order of their names, so that equal ones are one; or in that of time
      # @param skip_common [Boolean] leave out the rows at the root that all samples share
      # @param nested [Boolean] a rectangle ends with the one that it stands on; StackProf's go on where the same frame
      #   has another caller
      def initialize(profile, alphabetical: false, skip_common: true, nested: false)
        @profile = profile
        @alphabetical = alphabetical
        @skip_common = skip_common
        @nested = nested
      end

      # @param io [#puts]
      # @return [void]
      # @raise [Error] when the profile holds no single stacks
      def write(io)
        cells = each_cell
        io.puts "flamegraph(["
        separator = ""
        described = Hash.new { |hash, id| hash[id] = describe(id) }
        cells.each do |cell|
          io.puts %(#{separator}{"x":#{cell.x},"y":#{cell.depth},"width":#{cell.width},#{described[cell.id]}})
          separator = ","
        end
        io.puts "])"
      end

      # Row by row, from the root on. The work is that of looking at every frame of every stack once.
      #
      # @yield [Cell]
      # @return [Enumerator, void]
      # @raise [Error] when the profile holds no single stacks
      def each_cell(&block)
        # Whether there are any is known at once.
        @profile.stacks
        return to_enum(:each_cell) unless block

        stacks = ordered
        width = stacks.sum(&:weight)
        depth = 0
        until (stacks = stacks.select { |stack| stack.frames.bytesize > depth * FRAME }).empty?
          row(stacks, depth, width, &block)
          depth += 1
        end
      end

      private

      def describe(id)
        frame = @profile.frame(id)
        %("frame_id":#{id},"frame":#{::JSON.generate(frame.name)},"file":#{::JSON.generate(frame.file)})
      end

      def ordered
        number_frames
        x = 0
        last = ""
        (@alphabetical ? alphabetical : in_time).map do |frames, weight|
          stack = Stack.new(x, weight, frames, @nested ? shared(last, frames) : 0)
          x += weight
          last = frames
          stack
        end
      end

      def shared(one, other)
        low = 0
        high = [one.bytesize, other.bytesize].min / FRAME
        while low < high
          middle = (low + high + 1) / 2
          same = one.byteslice(0, middle * FRAME) == other.byteslice(0, middle * FRAME)
          same ? low = middle : high = middle - 1
        end
        low
      end

      # By name, so that the order of the numbers is that of the names.
      def number_frames
        seen = {}
        @profile.stacks.each_ids { |ids, _weight| ids.each { |id| seen[id] = true } }
        @ids = seen.keys.sort_by { |id| [@profile.frame(id).name, id] }
        @numbers = @ids.each_with_index.to_h
      end

      def in_time
        return to_enum(:in_time) unless block_given?

        # Frozen, as a Hash keeps a copy of a String that is not.
        @profile.stacks.each_ids { |ids, weight| yield ids.map { |id| @numbers[id] }.pack("N*").freeze, weight }
      end

      # Equal stacks become one.
      def alphabetical
        return to_enum(:alphabetical) unless block_given?

        weights = Hash.new(0)
        in_time { |frames, weight| weights[frames] += weight }
        weights.keys.sort.each { |frames| yield frames, weights[frames] }
      end

      # Neighbours of the same frame are one rectangle.
      def row(stacks, depth, width)
        cell = nil
        stacks.each do |stack|
          id = @ids[stack.frames.unpack1("N", offset: depth * FRAME)]
          if cell && cell.id == id && cell.x + cell.width == stack.x && (!@nested || stack.shared > depth)
            cell.width += stack.weight
          else
            yield cell if cell
            cell = Cell.new(stack.x, depth, stack.weight, id)
          end
        end
        yield cell unless @skip_common && cell.width == width
      end
    end
  end
end
