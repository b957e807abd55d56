# frozen_string_literal: true

Torture.scenario("fibers") do
  profile do
    40.times do |turn|
      fibers = Array.new(10) { |number| Fiber.new { |depth| spin(depth) while Fiber.yield(number) } }
      fibers.each { |fiber| fiber.resume(turn % 10) }
      fibers.each { |fiber| fiber.resume(turn.odd?) }
      numbers = Enumerator.new { |yielder| 5.times { |number| yielder << spin(number) } }
      3.times { numbers.next }
      failing = Fiber.new { Fiber.yield }
      failing.resume
      begin
        failing.raise("into the fiber")
      rescue RuntimeError
        nil
      end
    end
  end
end

module Torture
  # Ways to leave frames.
  module Leaving
    module_function

    def raised(depth)
      raise ArgumentError, "deep" if depth.zero?

      raised(depth - 1)
    ensure
      [depth].each { |number| lambda { number } }
    end

    def retried
      tries = 0
      begin
        tries += 1
        raise IOError if tries < 5
      rescue IOError
        retry
      end
    end

    def thrown(depth) = depth.zero? ? throw(:out, depth) : thrown(depth - 1)
    def returned = [1, 2, 3].each { |number| return number if number == 2 }
  end
end

Torture.scenario("exceptions") do
  profile do
    150.times do |turn|
      begin
        Torture::Leaving.raised(turn % 100)
      rescue ArgumentError => error
        error.backtrace
      end
      Torture::Leaving.retried
      catch(:out) { Torture::Leaving.thrown(turn % 50) }
      Torture::Leaving.returned
    end
    target = thread { loop { spin(5) } }
    work(2)
    target.raise(IOError, "from another thread")
    begin
      target.join
    rescue IOError
      nil
    end
  end
end

module Torture
  # Recursion without end.
  module Bottomless
    module_function

    def in_ruby = in_ruby
    def in_blocks = [1].each { in_blocks }
    def in_sort = [2, 1].sort_by { in_sort }
    def in_c = Marshal.dump(nested)
    def in_inspect = nested.inspect

    def nested
      Array.new(200_000).inject([]) { |inner, _| [inner] }
    end
  end
end

Torture.scenario("stack-overflow") do
  profile do
    way = pick(%i[in_ruby in_blocks in_sort in_c in_inspect])
    place = pick(%i[here fiber thread])
    overflow = lambda do
      Torture::Bottomless.public_send(way)
    rescue SystemStackError, ArgumentError
      # Marshal refuses before the stack ends.
      :ended
    end
    outcome =
      case place
      when :here then overflow.call
      when :fiber then Fiber.new(&overflow).resume
      when :thread then thread(&overflow).value
      end
    raise Torture::Broken, "#{way} (#{place}) did not end with an error" if outcome != :ended && way != :in_inspect
  end
end

Torture.scenario("escaping-environments") do
  escape = lambda do |text, &block|
    text =~ /b/
    [1].each { lambda { text } }
    [1].each { binding }
    [1].each { Enumerator.new { |yielder| yielder << text }.size }
    block&.call
  end
  profile { 3000.times { |turn| turn.odd? ? escape.call("abc") : escape.call("abc") { turn } } }
end
