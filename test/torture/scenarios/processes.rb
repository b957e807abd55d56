# frozen_string_literal: true

Torture.scenario("fork") do
  in_child = lambda do
    raise Torture::Broken, "the child is being profiled" if RingProf.running?
    raise Torture::Broken, "the child has a profile of its parent's" if RingProf.results

    work(1)
    profile { work(3) } if chance?(0.8)
    RingProf.start(**options) if chance?(0.5)
    exit if chance?(0.3)
  end
  background = thread { loop { spin(4) } }
  profile do
    3.times do
      child(&in_child)
      thread { child(&in_child) }.value
      children = Array.new(2) { fork_child(&in_child) }
      work(2)
      children.each { |pid| wait(pid) }
      child { child { child(&in_child) } }
    end
  end
  background.kill.join
end

Torture.scenario("exec") do
  command = pick([["true"], [RbConfig.ruby, "--disable-gems", "-e", "sleep 0.01"], ["sh", "-c", "sleep 0.02"]])
  tally[:execs] += 1
  child do
    RingProf.start(**options)
    Thread.new { loop { spin(3) } }
    begin
      exec("no-such-program-anywhere")
    rescue Errno::ENOENT
      work(2)
    end
    exec(*command)
  end
end

Torture.scenario("spawn") do
  profile do
    5.times do
      raise Torture::Broken, "true ended with #{$?}" unless system("true")
      raise Torture::Broken, "echo was not heard" unless `echo heard` == "heard\n"

      wait(Process.spawn("exit 3"), 3)
      IO.popen(["cat"], "r+") do |cat|
        cat.write("through")
        cat.close_write
        raise Torture::Broken, "cat lost it" unless cat.read == "through"
      end
      tally[:execs] += 4
    end
  end
end

Torture.scenario("daemon") do
  reader, writer = IO.pipe
  profile do
    child do
      reader.close
      RingProf.start(**options)
      Process.daemon(true, true)
      happy = !RingProf.running? && profile { work(3) }
      RingProf.start(**options)
      writer.write(happy ? "happy" : "unhappy")
    end
    writer.close
    heard = reader.read
    raise Torture::Broken, "the daemon said #{heard.inspect}" unless heard == "happy"
  ensure
    reader.close
  end
end

Torture.scenario("replaced-trap") do
  # In a child, for what was pending is delivered to the new trap.
  child do
    caught = 0
    before = chance?(0.5)
    trap("PROF") { caught += 1 } if before
    profile(options, whole: before) do
      work(3)
      trap("PROF") { caught += 1 }
      Process.kill(:PROF, Process.pid)
      work(3)
    end
    profile { work(3) }
    sleep 0.01 while caught.zero?
    Process.kill(:PROF, Process.pid)
  end
end
