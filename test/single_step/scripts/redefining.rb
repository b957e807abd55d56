# frozen_string_literal: true

# Methods that come, change and go while their callers are known to the VM.

class SteppedRedefinition
  def replaced = 1
  define_method(:from_block) { |one = 1, *rest| [one, rest] }
end

stepped do
  object = SteppedRedefinition.new
  object.replaced
  SteppedRedefinition.class_eval { define_method(:replaced) { object.class } }
  object.replaced
  object.singleton_class.send(:define_method, :own) { object.replaced }
  object.own
  SteppedRedefinition.send(:remove_method, :from_block)
  SteppedRedefinition.send(:define_method, :from_block) { |one = 2, *rest| [rest, one] }
  object.from_block(1, 2)
end
