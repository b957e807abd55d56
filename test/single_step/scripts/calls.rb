# frozen_string_literal: true

# The ways in which a frame comes to be.

class SteppedCalls
  attr_accessor :value

  def initialize(value) = @value = value
  def method_missing(name, *arguments, **options, &block) = name == :absent ? [arguments, options, block] : super
  def respond_to_missing?(name, include_all = false) = name == :absent || super
  def countdown(number) = number.zero? ? 0 : countdown(number - 1)
  def keywords(one:, other: one, **rest) = [one, other, rest]
  def optional(one, other = one, *rest) = [one, other, rest]
  def with_block(&block) = block
  def each = yield(@value)
  def to_str = "stepped"
  alias renamed keywords

  define_method(:from_block) { |one = 1, *rest| [one, rest, @value] }
  define_method(:from_method, instance_method(:countdown))

  def replaced = 1
end

class SteppedChild < SteppedCalls
  def initialize(...) = super
  def countdown(number) = super(number)
  def keywords(**) = super
end

module SteppedRefinement
  refine Integer do
    def stepped = self + 1
  end
end
using SteppedRefinement

stepped do
  turn = 1
  object = SteppedChild.new(turn)
  object.absent(1, key: 2) { 3 }
  object.countdown(6)
  object.keywords(one: 1, more: 2)
  object.renamed(one: 1)
  object.optional(*[1, 2, 3])
  object.from_block(1, 2)
  object.from_method(3)
  object.value = object.value.to_i
  object.send(:countdown, 2)
  object.public_send(:replaced)
  object.method(:countdown).to_proc.call(2)
  object.method(:replaced).unbind.bind_call(object)
  object.instance_exec(1) { |number| @value + number }
  object.instance_eval { replaced }
  object.each { |value| value }
  "#{object} #{turn.stepped}".hash
  "text".then { |text| text + object }
  [3, 1, 2].sort_by { |number| -number }.map(&:to_s).inject { |one, other| one + other }
  { one: 1 }.each_pair { |key, value| [key, value] }
  [1, 2].each_slice(1).to_a
  lambda { |number| number.succ }.curry.call(1)
  (proc { |number| number.succ } >> proc { |number| number.pred }).call(1)
  eval("turn + 1")
  object.frozen? || object.freeze
  "abc".sub("b") { |match| match.upcase }
  case object
  when SteppedCalls then turn
  end
end
