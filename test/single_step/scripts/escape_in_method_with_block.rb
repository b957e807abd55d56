# frozen_string_literal: true

# As escape_in_method.rb, in methods that were given a block: where they have no parent, there is a block's Proc.

def lambda_after_match(text)
  text =~ /b/
  [1].each { lambda { text } }
  yield $~
end

def proc_after_gsub(text, &block)
  text.gsub(/b/, &block)
  [1].each { proc { text } }
end

def binding_after_match(text)
  text =~ /c/
  [1].each { binding }
  yield
end

def block_argument_after_match(text, &block)
  text =~ /d/
  [1].each { kept(&block) }
  [1].each { kept { text } }
end

def define_method_after_match(text, &block)
  text =~ /a/
  [1].each { self.class.send(:define_method, :defined_by_block, &block) }
end

def enumerator_after_match(text)
  text =~ /b/
  [1].each { Enumerator.new { |yielder| yielder << text }.size }
  yield
end

stepped do
  lambda_after_match("abc") { |match| match }
  proc_after_gsub("abc") { |match| match.upcase }
  binding_after_match("abc") { nil }
  block_argument_after_match("abcd") { nil }
  define_method_after_match("abc") { nil }
  enumerator_after_match("abc") { nil }
  lambda_after_match("abc", &:itself)
  proc_after_gsub("abc", &kept { |match| match.upcase })
end
