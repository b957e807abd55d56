# frozen_string_literal: true

require "test_helper"
require "support/kinds_of_code"

# What each kind of code is called, and where it is said to be.
class NamesTest < RingProf::TestCase
  # Ruby 3.3 takes the methods of modules for singleton methods.
  MODULE_METHOD = RUBY_VERSION.start_with?("3.3.") ? "." : "#"
  # Where this Ruby's own code has it.
  TAP_LINES = Kernel.instance_method(:tap).source_location.last.then { |line| "#{line}@#{line + (RUBY_VERSION < "3.4" ? 1 : 2)}" }
  # Prism, which is the parser from Ruby 3.4 on, calls the code of an eval so; parse.y calls it as what it is evaluated in.
  COMPILED = ("<compiled>" if RubyVM::InstructionSequence.compile("").to_a[4][:parser] == :prism)

  # Root first: name, file, first line of the code, line.
  GOLDEN = {
    method: ["KindsOfCode::Plain#method kinds_of_code.rb:17@17"],
    block: ["KindsOfCode::Plain#block kinds_of_code.rb:19@19", "Array#each_index <cfunc>:@0", "KindsOfCode::Plain#block kinds_of_code.rb:19@19"],
    nested_block: ["KindsOfCode::Plain#nested_block kinds_of_code.rb:20@20", "Array#each_index <cfunc>:@0", "KindsOfCode::Plain#nested_block kinds_of_code.rb:20@20", "Array#each_index <cfunc>:@0", "KindsOfCode::Plain#nested_block kinds_of_code.rb:20@20"],
    singleton_of_class: ["KindsOfCode::Plain.singleton_of_class kinds_of_code.rb:21@21"],
    singleton_of_module: [],
    singleton_of_object: ["#<Object:0x>.of_object kinds_of_code.rb:48@48"],
    define_method: ["block in <class:Plain> kinds_of_code.rb:22@22"],
    alias: ["KindsOfCode::Plain#method kinds_of_code.rb:17@17"],
    rescue: ["KindsOfCode::Plain#rescued kinds_of_code.rb:24@24", "KindsOfCode::Plain#rescued kinds_of_code.rb:24@27"],
    ensure: ["KindsOfCode::Plain#ensured kinds_of_code.rb:30@33"],
    eval: ["KindsOfCode::Plain#evaluated kinds_of_code.rb:36@36", "Kernel#{MODULE_METHOD}eval <cfunc>:@0", "KindsOfCode::Plain#evaluated kinds_of_code.rb:36@7"],
    instance_eval: ["BasicObject#instance_eval <cfunc>:@0", "#{COMPILED || "block in <module:KindsOfCode>"} instance.rb:3@3"],
    class_eval: ["Module#class_eval <cfunc>:@0", "#{COMPILED || "block in <module:KindsOfCode>"} class.rb:3@3"],
    method_missing: ["KindsOfCode::Plain#method_missing kinds_of_code.rb:37@37"],
    refinement: ["#<Refinement:0x>#refined kinds_of_code.rb:11@11"],
    anonymous_class: ["#<Class:0x>#anonymous kinds_of_code.rb:58@58"],
    c_method: ["Array#index <cfunc>:@0", "block (2 levels) in <module:KindsOfCode> kinds_of_code.rb:59@59"],
    alias_of_c_method: ["Array#find_index <cfunc>:@0", "block (2 levels) in <module:KindsOfCode> kinds_of_code.rb:60@60"],
    written_in_ruby: ["Kernel#{MODULE_METHOD}tap <internal:kernel>:#{TAP_LINES}", "block (2 levels) in <module:KindsOfCode> kinds_of_code.rb:61@61"],
    top_of_eval: ["Binding#eval <cfunc>:@0", "#{COMPILED || "<main>"} top.rb:5@5"],
    class_body: ["Binding#eval <cfunc>:@0", "#{COMPILED || "<main>"} body.rb:2@2", "<class:InClassBody> body.rb:2@2"],
    far_down: ["Binding#eval <cfunc>:@0", "#{COMPILED || "<main>"} far.rb:1@70000"],
    symbol_to_proc: ["Array#index <cfunc>:@0", "KindsOfCode::Plain#method kinds_of_code.rb:17@17"],
    fiber: ["block (2 levels) in <module:KindsOfCode> kinds_of_code.rb:66@66"],
    thread: ["block (2 levels) in <module:KindsOfCode> kinds_of_code.rb:67@67"],
    enumerator: ["Enumerator#next <cfunc>:@0", "Enumerator#each <cfunc>:@0", "Enumerator::Generator#each <cfunc>:@0", "block (2 levels) in <module:KindsOfCode> kinds_of_code.rb:68@68"]
  }.freeze
  # What the golden list stops at.
  LEAVES = ["KindsOfCode.record kinds_of_code.rb:7@7", "RingProf.sample <cfunc>:@0"].freeze

  GOLDEN.each do |way, frames|
    define_method(:"test_#{way}") { assert_equal frames + LEAVES, KindsOfCode.frames_of(way) }
  end

  def test_every_kind_has_its_golden_frames
    assert_equal KindsOfCode::WAYS.keys, GOLDEN.keys
  end

  # Sixteen bits of a line are not all of it.
  def test_lines_that_differ_by_65536
    source = "def self.apart(below)\n  RingProf.sample unless below\n#{"\n" * 65_535}  RingProf.sample if below\nend"
    eval(source, binding, "apart.rb", 1)
    results = RingProf.run(mode: :custom, raw: true) { [false, true].each { |below| apart(below) } }
    assert_equal [[2, 65_538], [1, 1]],
                 [raw_groups(results).map { |group| group.lines[-2] }, raw_groups(results).map(&:weight)]
    assert_equal({ 2 => [1, 0], 65_538 => [1, 0] }, frame_named(results, /apart\z/)[:lines])
  end

  def test_stacks_as_deep_as_the_limit_and_one_deeper
    # A thread's stack begins with its block; above what digs is `sample`.
    [2047, 2048, 2049].each do |depth|
      results = RingProf.run(mode: :custom, raw: true) { Thread.new { dig(depth - 3) }.join }
      stack = raw_groups(results).first.ids.map { |id| results[:frames][id][:name] }
      root = depth > 2048 ? "NamesTest#dig" : "NamesTest#test_stacks_as_deep_as_the_limit_and_one_deeper"
      assert_equal [[depth, 2048].min, root, "RingProf.sample"], [stack.length, stack.first, stack.last], depth
    end
  end

  private

  def dig(depth) = depth.zero? ? RingProf.sample : dig(depth - 1)
end
