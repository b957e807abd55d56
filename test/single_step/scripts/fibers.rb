# frozen_string_literal: true

# Fibers made, resumed, finished, raised in, and left unfinished.

def deep(depth) = depth.zero? ? Fiber.yield(depth) : deep(depth - 1)

stepped do
  fiber = Fiber.new do |first|
    second = Fiber.yield(first + 1)
    deep(5)
    second
  end
  fiber.resume(1)
  fiber.resume(2)
  fiber.resume(3)
  begin
    fiber.resume
  rescue FiberError => error
    error.message
  end

  raising = Fiber.new do
    Fiber.yield
  ensure
    "left".upcase
  end
  raising.resume
  begin
    raising.raise("into the fiber")
  rescue RuntimeError => error
    error.message
  end

  begin
    Fiber.new { raise "out of the fiber" }.resume
  rescue RuntimeError => error
    error.message
  end

  numbers = Enumerator.new { |yielder| 4.times { |number| yielder << number } }
  numbers.next
  numbers.peek
  numbers.next
  [1, 2].each_entry.with_index { |number, index| number + index }

  unfinished = Fiber.new { [1].each { Fiber.yield(binding) } }
  unfinished.resume

  outer = Fiber.new { Fiber.new { Fiber.yield(1) }.resume + 1 }
  outer.resume
end
