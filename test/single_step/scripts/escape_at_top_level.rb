# frozen_string_literal: true

# Environments that escape from blocks at the top level of a loaded file.

text = "abcd"
text =~ /b/
[1].each { lambda { text } }
[1].each { proc { text } }
[1].each { binding }
[1].each { kept { text } }
[1].each { Enumerator.new { |yielder| yielder << text }.size }
text.gsub(/b/) { |match| match.upcase }
[1].each { Kernel.lambda { [text, $~] } }
eval("[1].each { lambda { text } }", binding, __FILE__, __LINE__)
