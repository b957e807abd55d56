# frozen_string_literal: true

# Environments that escape from blocks in the bodies of classes and modules.

class SteppedInClassBody
  text = "abcd"
  text =~ /b/
  [1].each { lambda { text } }
  [1].each { define_method(:defined_in_body) { text } }
  [:one, :other].each { |name| define_method(name) { text } }

  module Inner
    other = "abcd"
    [1].each { proc { other } }
    other.gsub(/b/) { |match| match.upcase }
    [1].each { binding }
  end

  class << self
    third = "abcd"
    [1].each { Enumerator.new { |yielder| yielder << third }.size }
    [1].each { define_method(:defined_in_singleton) { third } }
  end
end

object = SteppedInClassBody.new
object.defined_in_body
object.one
SteppedInClassBody.defined_in_singleton

Class.new { [1].each { define_method(:anonymous) { 1 } } }.new.anonymous
