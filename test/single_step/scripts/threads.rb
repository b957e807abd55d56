# frozen_string_literal: true

# Threads born, ended in every way, and joined; each is stepped through from its first instruction to its last.

def deep(depth) = depth.zero? ? Thread.current : deep(depth - 1)

stepped do
  Thread.new { deep(3) }.join
  Thread.new(1) { |number| number.succ }.value

  failing = Thread.new do
    Thread.current.report_on_exception = false
    raise ArgumentError, "out of the thread"
  end
  begin
    failing.join
  rescue ArgumentError => error
    error.message
  end

  Thread.new { Thread.exit }.join
  Thread.new { catch(:out) { throw :out } }.join
  Thread.new { Thread.new { deep(2) }.join }.join
  ready = Queue.new
  waiting = Thread.new do
    ready << true
    Thread.stop
  end
  ready.pop
  waiting.kill
  waiting.join
end
