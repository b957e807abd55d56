# frozen_string_literal: true

# Environments that escape from a block in a method whose own has a special variable where the method entry was.

def lambda_after_match(text)
  text =~ /b/
  [1].each { lambda { text } }
  $~
end

def proc_after_gsub(text)
  text.gsub(/b/) { |match| match.upcase }
  [1].each { proc { text } }
end

def binding_after_match(text)
  text =~ /c/
  [1].each { binding }
end

def block_argument_after_match(text)
  text =~ /d/
  [1].each { kept { text } }
end

def define_method_after_match(text)
  text =~ /a/
  [1].each { self.class.send(:define_method, :defined_in_block) { text } }
end

def enumerator_after_match(text)
  text =~ /b/
  [1].each { Enumerator.new { |yielder| yielder << text }.size }
end

def nested_after_match(text)
  text =~ /b/
  [1].each { [2].each { [3].each { lambda { text } } } }
end

stepped do
  lambda_after_match("abc")
  proc_after_gsub("abc")
  binding_after_match("abc")
  block_argument_after_match("abcd")
  define_method_after_match("abc")
  enumerator_after_match("abc")
  nested_after_match("abc")
end
