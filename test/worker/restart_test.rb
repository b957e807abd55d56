# frozen_string_literal: true

require "test_helper"

# Forked children, profiled like their parent.
class WorkerRestartTest < RingProf::TestCase
  PRELUDE = <<~RUBY
    require "ringprof"
    require "support/work"
    RingProf.restart_after_fork = true
    def burn_in_child = Work.burn_cpu(0.1)
    def burn_in_parent = Work.burn_cpu(0.1)
  RUBY

  def test_children_have_profiles_of_their_own
    in_directory do |directory|
      ruby!(PRELUDE + <<~RUBY, chdir: directory)
        RingProf.start(mode: :cpu, interval: 200, raw: true, out: "profile.dump", metadata: { app: 1 })
        burn_in_parent
        children = Array.new(3) { fork { burn_in_child } }
        children.each { |pid| Process.wait(pid); exit 3 unless $?.success? }
        File.write("pids", children.join(" "))
      RUBY
      pids = File.read("#{directory}/pids").split
      files = ["profile.dump", *pids.map { |pid| "profile.dump.#{pid}" }]
      assert_equal files.sort, Dir.children(directory).grep(/dump/).sort
      parent, *children = files.map { |file| Marshal.load(File.binread("#{directory}/#{file}")) }
      [parent, *children].each do |results|
        assert_valid_results(results)
        assert_equal({ app: 1 }, results[:metadata])
        assert_equal 200, results[:interval]
      end
      assert_includes names(parent), "Object#burn_in_parent"
      refute_includes names(parent), "Object#burn_in_child"
      children.each do |results|
        refute_includes names(results), "Object#burn_in_parent"
        assert_in_delta 500, frame_named(results, "Object#burn_in_child")[:total_samples], 50
      end
    end
  end

  # Workers that take requests until their master sends them a signal, as unicorn and its kin do it.
  def test_a_preforking_master
    in_directory do |directory|
      ruby!(PRELUDE + <<~RUBY, chdir: directory)
        require "socket"
        RingProf.start(mode: :cpu, interval: 200, threads: :all, out: "profile.dump")
        server = UNIXServer.new("socket")
        workers = Array.new(2) do
          fork do
            loop do
              client = server.accept
              burn_in_child
              client.puts(Process.pid)
              client.close
            end
          end
        end
        answers = Array.new(3) { Thread.new { Array.new(3) { UNIXSocket.open("socket") { |socket| socket.gets.to_i } } } }.flat_map(&:value)
        workers.each { |pid| Process.kill(:TERM, pid) }
        workers.each { |pid| Process.wait(pid); exit 3 unless $?.termsig == Signal.list.fetch("TERM") }
        File.write("answers", Marshal.dump(workers.to_h { |pid| [pid, answers.count(pid)] }))
      RUBY
      answers = Marshal.load(File.binread("#{directory}/answers"))
      assert_equal 9, answers.values.sum
      assert_equal ["profile.dump", *answers.keys.map { |pid| "profile.dump.#{pid}" }].sort, Dir.children(directory).grep(/dump/).sort
      refute_includes names(Marshal.load(File.binread("#{directory}/profile.dump"))), "Object#burn_in_child"
      answers.each do |pid, count|
        results = Marshal.load(File.binread("#{directory}/profile.dump.#{pid}"))
        assert_valid_results(results)
        next if count.zero?

        assert_in_delta count * 500, frame_named(results, "Object#burn_in_child")[:total_samples], (count * 25) + 25
      end
    end
  end

  def test_grandchildren_and_daemons
    in_directory do |directory|
      ruby!(PRELUDE + <<~RUBY, chdir: directory)
        RingProf.start(mode: :cpu, interval: 200, out: "profile.dump")
        reader, writer = IO.pipe
        Process.wait(fork do
          burn_in_child
          fork { Process.daemon(true); burn_in_child; File.write("grandchild", Process.pid.to_s) }
          Process.wait
        end)
        # The daemon holds the pipe until it is through with its at_exit.
        writer.close
        reader.read
      RUBY
      daemon = File.read("#{directory}/grandchild")
      results = Marshal.load(File.binread("#{directory}/profile.dump.#{daemon}"))
      assert_in_delta 500, frame_named(results, "Object#burn_in_child")[:total_samples], 50
    end
  end

  def test_without_it_children_are_not_profiled
    in_directory do |directory|
      ruby!(PRELUDE + <<~RUBY, chdir: directory)
        RingProf.restart_after_fork = false
        RingProf.start(mode: :cpu, interval: 200, out: "profile.dump")
        Process.wait(fork { exit(RingProf.running? ? 1 : 0) })
        exit $?.exitstatus
      RUBY
      assert_empty Dir.children(directory)
    end
  end

  def test_a_child_that_cannot_be_profiled_goes_on
    out, err, status = capture_ruby(PRELUDE + <<~RUBY)
      RingProf.start(mode: :cpu, interval: 200)
      RingProf.singleton_class.prepend(Module.new { def start(**) = raise(ArgumentError, "no more") })
      Process.wait(fork { print "went on" })
    RUBY
    assert_predicate status, :success?, err
    assert_equal "went on", out
    assert_match(/\Aringprof: process \d+ is not profiled: no more\n\z/, err)
  end

  private

  def in_directory(&block)
    Dir.mktmpdir("ringprof-test", &block)
  end

  def names(results)
    results[:frames].each_value.map { |frame| frame[:name] }
  end
end
