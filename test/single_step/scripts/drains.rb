# frozen_string_literal: true

# The consumer at work while the producer's handler comes after each of its instructions.

def recorded(depth) = depth.zero? ? [1].map { |number| number + 1 } : recorded(depth - 1)

stepped do
  recorded(3)
  3.times do |depth|
    RingProf::Testing.drain
    recorded(depth)
  end
  RingProf.sample
  RingProf.stats
end
