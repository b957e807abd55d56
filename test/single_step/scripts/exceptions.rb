# frozen_string_literal: true

# Frames left by raise, retry, throw, break, next, redo and non-local return.

def raise_from(depth)
  raise ArgumentError, "deep" if depth.zero?

  raise_from(depth - 1)
ensure
  depth.to_s
end

def retried
  tries = 0
  begin
    tries += 1
    raise IOError if tries < 3
  rescue IOError
    retry
  else
    tries
  ensure
    tries.succ
  end
end

def rescued_again
  raise "first"
rescue RuntimeError
  begin
    raise TypeError, "second"
  rescue TypeError => error
    error.cause
  end
end

def returns_from_block = [1, 2, 3].each { |number| return number if number == 2 }

def throws = catch(:done) { [1].each { throw :done, 1 } }

def breaks
  [1, 2].each { |number| break number }
  index = 0
  while true
    index += 1
    next if index == 1
    break if index == 3
  end
  loop { raise StopIteration }
end

def ensured
  yield
ensure
  [1].each { lambda { 1 } }
end

stepped do
  begin
    raise_from(6)
  rescue ArgumentError => error
    error.backtrace.size
  end
  retried
  rescued_again
  returns_from_block
  throws
  breaks
  ensured { 1 }
  begin
    ensured { raise "through it" }
  rescue RuntimeError
    nil
  end
  begin
    Integer("none")
  rescue ArgumentError
    nil
  end
end
