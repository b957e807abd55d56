# frozen_string_literal: true

require "fileutils"
require "json"
require "rbconfig"
require "torture/scenario"

module Torture
  # Starts the workers, watches over them, and counts.
  class Driver
    WORKERS = 2
    # Scenarios that one worker takes, one after the other.
    DEAL = 3
    # Longest a scenario runs, in seconds.
    SECONDS = 10
    # Longer than that, and a scenario hangs.
    PATIENCE = 180
    ROOT = File.expand_path("../..", __dir__)
    ALL_LOGS = File.join(ROOT, "build/torture")
    LOGS = File.join(ALL_LOGS, Process.pid.to_s)
    POLL = 0.1
    # Lines of a report that are shown; the log has all of them.
    SHOWN = 12

    Failure = Struct.new(:name, :seed, :text)

    # A process at its scenarios; what it reports is appended to a file, which outlives any death.
    Worker = Struct.new(:pid, :deal, :log, :reports, :position, :begun)

    def initialize(minutes: 1.0, seed: Random.new_seed % 1_000_000, interval: 50, compact: false, scenario: nil)
      @minutes = minutes
      @seed = seed
      @interval = interval
      @compact = compact
      @scenario = scenario
      @random = Random.new(seed)
      @workers = []
      @launched = 0
      @passed = 0
      @failures = []
      @tally = Hash.new(0)
    end

    def run
      clear_logs
      FileUtils.mkdir_p(LOGS)
      puts "#{RUBY_DESCRIPTION}, seed #{@seed}, #{@interval} µs#{", compacting" if @compact}"
      deadline = now + @minutes * 60
      loop do
        launch while @workers.length < WORKERS && now < deadline
        break if @workers.empty?

        sleep POLL
        @workers.dup.each { |worker| look_at(worker) }
      end
      finish
    ensure
      @workers.each { |worker| kill(worker) }
    end

    private

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

    # But those of a run that has not ended.
    def clear_logs
      Dir.children(ALL_LOGS).each do |name|
        FileUtils.rm_rf(File.join(ALL_LOGS, name)) unless File.exist?("/proc/#{name}/cmdline")
      end
    rescue Errno::ENOENT
      nil
    end

    # So that even a short run comes to every scenario.
    def seconds
      @scenario ? SECONDS : (@minutes * 60 * WORKERS / SCENARIOS.length * 0.6).clamp(0.5, SECONDS)
    end

    def next_scenario
      @deck = @scenario ? [@scenario] : SCENARIOS.keys.shuffle(random: @random) if @deck.nil? || @deck.empty?
      # The first of a repetition has the very seed that failed.
      seed = @scenario && @launched == 1 ? @seed : @random.rand(1_000_000)
      [@deck.pop, seed]
    end

    def launch
      @launched += 1
      deal = Array.new(@scenario ? 1 : DEAL) { next_scenario }
      log, reports = %w[log reports].map { |kind| File.join(LOGS, "#{@launched}.#{kind}") }
      FileUtils.touch(reports)
      command = [RbConfig.ruby, *$LOAD_PATH.first(3).flat_map { |path| ["-I", path] }, File.join(__dir__, "worker.rb"), reports,
                 seconds.to_s, @interval.to_s, @compact.to_s, *deal.map { |name, seed| "#{name}:#{seed}" }]
      pid = Process.spawn(*command, in: File::NULL, out: log, err: [:child, :out], pgroup: true, chdir: ROOT)
      @workers << Worker.new(pid, deal, log, File.open(reports), 0, now)
    end

    def look_at(worker)
      status = Process.wait2(worker.pid, Process::WNOHANG)&.last
      read_reports(worker)
      if status
        fail_current(worker, "the process ended: #{status}") unless status.success? && worker.position == worker.deal.length
        leave(worker)
      elsif now - worker.begun > seconds + PATIENCE
        File.write("#{worker.log}.stacks", stacks(worker))
        fail_current(worker, "hangs; the stacks of its processes are in #{worker.log}.stacks")
        leave(worker)
      end
    end

    def read_reports(worker)
      while (line = worker.reports.gets)
        report = JSON.parse(line, symbolize_names: true)
        worker.begun = now
        report[:failure] ? fail(worker, worker.position, report[:failure]) : @passed += 1
        worker.position += 1
        report[:tally].each { |key, count| @tally[key] += count }
      end
    end

    def fail_current(worker, text)
      fail(worker, worker.position, text)
    end

    def fail(worker, position, text)
      failure = Failure.new(*worker.deal.fetch(position, worker.deal.last), text)
      @failures << failure
      show(failure, worker)
    end

    def show(failure, worker)
      puts "FAILED #{failure.name}: #{failure.text.lines.first(SHOWN).join}"
      puts interesting(worker.log).map { |line| "  | #{line}" }
      puts "  the log is #{worker.log}; to repeat: bin/torture --scenario #{failure.name} --seed #{failure.seed}" \
           " --interval #{@interval}#{" --compact" if @compact}"
    end

    # A crash report of Ruby has hundreds of lines, and what a child says may come before others' words.
    def interesting(log)
      lines = File.read(log, encoding: "BINARY").lines(chomp: true)
      start = lines.index { |line| line.match?(/\[BUG\]|Torture::Broken|panicked at/) }
      start ? lines[start, SHOWN] : lines.last(SHOWN)
    end

    def leave(worker)
      kill(worker)
      worker.reports.close
      @workers.delete(worker)
    end

    # With all that it has started.
    def kill(worker)
      Process.kill(:KILL, -worker.pid)
      Process.wait(worker.pid)
    rescue Errno::ESRCH, Errno::ECHILD
      nil
    end

    def stacks(worker)
      group(worker.pid).map do |pid|
        "#{pid} #{File.read("/proc/#{pid}/cmdline").tr("\0", " ")}\n" +
          IO.popen(["timeout", "60", "gdb", "-p", pid.to_s, "-batch", "-ex", "thread apply all bt"], err: File::NULL, &:read)
      rescue SystemCallError => error
        "#{pid}: #{error.message}"
      end.join("\n")
    end

    def group(leader)
      Dir.glob("/proc/[0-9]*/stat").filter_map do |path|
        fields = File.read(path).rpartition(")").last.split
        File.basename(File.dirname(path)).to_i if fields[2].to_i == leader
      rescue SystemCallError
        nil
      end
    end

    def finish
      puts @tally.sort.map { |key, count| "#{count} #{key}" }.join(", ")
      puts "#{@passed} passed, #{@failures.length} failed"
      @failures.empty? && @passed.positive?
    end
  end
end

options = {}
ARGV.each do |argument|
  case argument
  when "--list" then abort Torture::SCENARIOS.keys.sort.join("\n")
  when "--compact" then options[:compact] = true
  when /\A--minutes=(.+)/ then options[:minutes] = $1.to_f
  when /\A--(seed|interval)=(\d+)\z/ then options[$1.to_sym] = $2.to_i
  when /\A--scenario=(.+)/ then options[:scenario] = $1
  else abort "bin/torture: not understood: #{argument}"
  end
end
abort "bin/torture: no such scenario: #{options[:scenario]} (see bin/torture --list)" unless
  options[:scenario].nil? || Torture::SCENARIOS.key?(options[:scenario])
exit Torture::Driver.new(**options).run
