# frozen_string_literal: true

require "support/native_calls"

Torture.scenario("waits") do
  given = options(mode: :wall, raw: true)
  asked = 0.05
  profile(given) do
    queue = Thread::Queue.new
    waits = [
      -> { sleep asked },
      -> { IO.select([], nil, nil, asked) },
      -> { thread { sleep(asked) && queue << 1 } && queue.pop },
      -> { thread { sleep asked }.join },
      -> { Process.wait(Process.spawn("sleep", asked.to_s)) },
      -> { NativeCalls.spin((asked * 1000).to_i) }
    ]
    waits.shuffle(random: random).each do |wait|
      began = now
      wait.call
      raise Torture::Broken, "a wait of #{asked} s took #{now - began} s" if now - began < asked
    end
  end
end

# In a child, whose only thread has all the interrupts.
Torture.scenario("system-calls") do
  restarted = %i[read recv send connect flock sem_wait waitpid]
  not_restarted = %i[
    nanosleep clock_nanosleep usleep poll select epoll_wait sigtimedwait semtimedop recv_with_timeout send_with_timeout
    connect_with_timeout
  ]
  child do
    profile do
      (restarted + not_restarted).shuffle(random: random).each do |call|
        outcome = NativeCalls.public_send(call)
        allowed = restarted.include?(call) ? %i[done] : %i[done timeout EINTR]
        raise Torture::Broken, "#{call} ended with #{outcome}" unless allowed.include?(outcome)
      end
    end
    profile(options(interval: 20)) do
      wrong = NativeCalls.canary(20_000)
      raise Torture::Broken, "errno was another one #{wrong} times" unless wrong.zero?
    end
  end
end

Torture.scenario("job-buffer") do
  profile do
    5.times do
      before = NativeCalls.respond_to?(:fill_jobs) && NativeCalls.jobs_run
      # One place is left, for one too many would be written outside of the VM's array.
      asked = before && NativeCalls.fill_jobs(999, 1)
      50.times { |turn| ObjectSpace.define_finalizer(Object.new, proc { spin(turn % 5) }) }
      work(2)
      # Others' interrupts may have delayed a job; none may be lost.
      100.times { before.nil? || before == false || NativeCalls.jobs_run - before == asked ? break : work(1) }
      raise Torture::Broken, "#{asked} jobs, #{NativeCalls.jobs_run - before} ran" if asked && NativeCalls.jobs_run - before != asked

      GC.start(full_mark: false)
    end
  end
end
