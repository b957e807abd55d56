# frozen_string_literal: true

# YJIT is turned on while the profile is taken, under frames that are interpreted.

def under(depth) = depth.zero? ? RubyVM::YJIT.enable : under(depth - 1)
def compiled(depth) = depth.zero? ? 0 : compiled(depth - 1)

stepped do
  under(3)
  compiled(3)
  [1].each { |number| compiled(number) }
end
