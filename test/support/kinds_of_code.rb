# frozen_string_literal: true

# Every kind of code that has a frame, each of which calls `record`.
module KindsOfCode
  module_function

  def record = RingProf.sample

  module Refined
    refine Integer do
      def refined = KindsOfCode.record
    end
  end
  using Refined

  class Plain
    def method = KindsOfCode.record
    # Array#each and Array#map are Ruby code under YJIT from Ruby 3.4 on.
    def block = [1].each_index { KindsOfCode.record }
    def nested_block = [1].each_index { [1].each_index { KindsOfCode.record } }
    def self.singleton_of_class = KindsOfCode.record
    define_method(:defined) { KindsOfCode.record }
    alias other_name method
    def rescued
      raise "up"
    rescue RuntimeError
      KindsOfCode.record
    end

    def ensured
      1
    ensure
      KindsOfCode.record
    end

    def evaluated = eval("KindsOfCode.record", binding, "evaluated.rb", 7)
    def method_missing(*) = KindsOfCode.record
    def respond_to_missing?(*) = true
  end

  # Name => how it is called.
  WAYS = {
    method: -> { Plain.new.method },
    block: -> { Plain.new.block },
    nested_block: -> { Plain.new.nested_block },
    singleton_of_class: -> { Plain.singleton_of_class },
    singleton_of_module: -> { KindsOfCode.record },
    singleton_of_object: -> { Object.new.tap { |object| def object.of_object = KindsOfCode.record }.of_object },
    define_method: -> { Plain.new.defined },
    alias: -> { Plain.new.other_name },
    rescue: -> { Plain.new.rescued },
    ensure: -> { Plain.new.ensured },
    eval: -> { Plain.new.evaluated },
    instance_eval: -> { Plain.new.instance_eval("KindsOfCode.record", "instance.rb", 3) },
    class_eval: -> { Class.new(Plain).class_eval("KindsOfCode.record", "class.rb", 3) },
    method_missing: -> { Plain.new.anything },
    refinement: -> { 1.refined },
    anonymous_class: -> { Class.new { def anonymous = KindsOfCode.record }.new.anonymous },
    c_method: -> { [1].index { KindsOfCode.record } },
    alias_of_c_method: -> { [1].find_index { KindsOfCode.record } },
    written_in_ruby: -> { 1.tap { KindsOfCode.record } },
    top_of_eval: -> { TOPLEVEL_BINDING.eval("KindsOfCode.record", "top.rb", 5) },
    class_body: -> { TOPLEVEL_BINDING.eval("class InClassBody; KindsOfCode.record; end", "body.rb", 2) },
    far_down: -> { TOPLEVEL_BINDING.eval("#{"\n" * 69_999}KindsOfCode.record", "far.rb", 1) },
    symbol_to_proc: -> { [Plain.new].index(&:method) },
    fiber: -> { Fiber.new { KindsOfCode.record }.resume },
    thread: -> { Thread.new { KindsOfCode.record }.join },
    enumerator: -> { Enumerator.new { |yielder| yielder << KindsOfCode.record }.next }
  }.freeze

  # The frames between the call and `record`, root first: `name file:first line@line`.
  #
  # @return [Array<String>]
  def frames_of(way)
    call = WAYS.fetch(way)
    results = RingProf.run(mode: :custom, raw: true) { call.call }
    depth = results[:raw].first
    frames = results[:raw][1, depth].zip(results[:raw_lines][1, depth]).map do |id, line|
      frame = results[:frames][id]
      "#{frame[:name].gsub(/0x\h+/, "0x")} #{File.basename(frame[:file])}:#{frame[:line]}@#{line}"
    end
    # Below is the caller's: `run`, the block above, and the call; unless the frames have a stack of their own.
    below = frames.index { |frame| frame.start_with?("RingProf.run ") }
    frames.drop(below ? below + 3 : 0)
  end
end
