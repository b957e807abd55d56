# frozen_string_literal: true

Torture.scenario("thread-churn") do
  profile(options(interval: 20)) do
    60.times do
      threads = Array.new(random.rand(1..8)) do |number|
        thread do
          case number % 5
          when 0 then nil
          when 1 then spin(5)
          when 2 then raise "a thread that fails"
          when 3 then Thread.pass
          when 4 then Thread.new { spin(3) }.join
          end
        end
      end
      threads.sample(random: random).kill if chance?(0.3)
      threads.each do |one|
        one.join
      rescue RuntimeError
        nil
      end
    end
  end
end

Torture.scenario("threads-at-work") do
  profile do
    queue = Thread::Queue.new
    lock = Thread::Mutex.new
    threads = Array.new(5) do
      thread do
        while (number = queue.pop)
          lock.synchronize { spin(number % 20) }
          sleep 0.0002 if (number % 7).zero?
        end
      end
    end
    300.times { |number| queue << number }
    queue.close
    threads.each(&:join)
  end
end

Torture.scenario("blocked-threads") do
  profile do
    reader, writer = IO.pipe
    blocked = [
      thread { reader.read },
      thread { loop { sleep } },
      thread { loop { Thread.stop } },
      thread { Thread::Queue.new.pop },
      thread { IO.select([reader], nil, nil, 5) }
    ]
    10.times do
      sleep 0.002
      blocked[1].wakeup if blocked[1].stop?
      work(2)
    end
    writer.close
    blocked.each(&:kill).each(&:join)
    reader.close
  end
end

Torture.scenario("sample-from-threads") do
  profile(options(mode: :cpu), whole: false) do
    threads = Array.new(6) do
      thread do
        80.times do
          RingProf.sample
          spin(10)
        end
      end
    end
    threads.each(&:join)
  end
end

Torture.scenario("start-stop-from-threads") do
  started = options
  threads = Array.new(6) do |number|
    seed = random.rand(1000)
    thread do
      turns = Random.new(seed + number)
      60.times do
        case turns.rand(6)
        when 0 then RingProf.start(**started)
        when 1 then RingProf.stop
        when 2 then RingProf.results
        when 3 then RingProf.running? && RingProf.sample
        when 4 then RingProf.stats
        else spin(8)
        end
      end
    end
  end
  threads.each(&:join)
  RingProf.stop
  RingProf.results
  profile(started) { work(3) }
end

Torture.scenario("start-stop-quickly") do
  50.times { profile { spin(3) } }
end

Torture.scenario("thread-storms") do
  profile(options(interval: 20)) do
    queue = Thread::Queue.new
    lock = Thread::Mutex.new
    changed = Thread::ConditionVariable.new
    turn = 0
    players = Array.new(6) do |number|
      thread do
        30.times do
          lock.synchronize do
            changed.wait(lock) until turn % 6 == number
            turn += 1
            changed.broadcast
          end
          queue << number
        end
      end
    end
    sums = Array.new(8) { thread { 30.times.sum { Thread.new { spin(1) && 1 }.value } } }.map(&:value)
    tally[:threads] += 240
    players.each(&:join)
    raise Torture::Broken, "#{turn} turns, #{queue.length} in the queue, #{sums}" unless
      [turn, queue.length, sums] == [180, 180, [30] * 8]
  end
end
