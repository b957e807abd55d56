# frozen_string_literal: true

require "fileutils"
require "json"
require "rbconfig"
require "support/serving/programs"
require "tmpdir"

module Serving
  # Puma in cluster mode with the application, in a directory of its own, where everything that it writes is.
  class Server
    # What is registered first runs last, when the profile has been stopped and written.
    PROGRAM = <<~RUBY
      at_exit { File.binwrite("stats.\#{Process.pid}", Marshal.dump(RingProf.stats.to_h)) if defined?(RingProf) }
      require "puma/cli"
      Puma::CLI.new(ARGV).run
    RUBY

    # Where the Ruby of the server finds RingProf.
    attr_reader :includes, :directory, :pid

    # @param profile [Hash, nil] the options of RingProf.start; without a profiler when nil
    # @param preload [Boolean] whether the application is loaded before the workers are forked
    def initialize(database:, includes:, profile: nil, preload: true, workers: 2, threads: 5)
      @database = database
      @includes = includes
      @profile = profile
      @preload = preload
      @workers = workers
      @threads = threads
    end

    # @return [self] when every worker takes requests
    def start
      @directory = Dir.mktmpdir("ringprof-puma")
      File.write("#{@directory}/puma.rb", settings)
      File.write("#{@directory}/config.ru", rackup)
      load_path = [*@includes, __dir__].flat_map { |path| ["-I", path] }
      # A process group of its own: what is left of it in the end can be found.
      @pid = spawn({ "PUMA_MAX_THREADS" => nil, "WEB_CONCURRENCY" => nil }, *Programs.bound("TERM"),
                   RbConfig.ruby, *load_path, "-e", PROGRAM, "--", "-C", "puma.rb", "config.ru",
                   in: File::NULL, %i[out err] => "#{@directory}/log", chdir: @directory, pgroup: true)
      booted(@workers)
      self
    rescue StandardError => e
      said = log
      close
      raise e, "#{e.message}\n#{said}"
    end

    # Waits until that many workers have been started in all.
    def booted(count)
      Programs.until("#{count} workers are up") do
        raise "Puma has ended" if !@status && (@status = Process.wait2(@pid, Process::WNOHANG))

        ever.size >= count
      end
    end

    # @return [Array<Integer>] process ids of all workers that there were, in the order of their start
    def ever
      log.scan(/^\[\d+\] - Worker \d+ \(PID: (\d+)\) booted/).flatten.map(&:to_i)
    end

    def url
      log[%r{Listening on (http://127\.0\.0\.1:\d+)}, 1]
    end

    def log
      File.read("#{@directory}/log")
    end

    # Asks the master to end, and waits.
    #
    # @return [Process::Status]
    def stop(signal)
      Process.kill(signal, @pid)
      @status = Programs.wait(@pid, 60) or raise "still running 60 s after SIG#{signal}\n#{log}"
    end

    # What the application in that process says of its time.
    def account(pid)
      JSON.parse(File.read("#{@directory}/account.#{pid}"), symbolize_names: true)
    end

    # What the profiler in that process said of itself in the end.
    def stats(pid)
      Marshal.load(File.binread("#{@directory}/stats.#{pid}"))
    end

    # @return [Hash] the profile of a worker, or of the master
    def profile(pid)
      Marshal.load(File.binread("#{@directory}/#{profile_name(pid)}"))
    end

    def profile_name(pid)
      pid == @pid ? "profile.dump" : "profile.dump.#{pid}"
    end

    # Ends what is left, and takes the directory away.
    def close
      unless @status || !@pid
        Process.kill(:KILL, -@pid)
        Process.wait(@pid)
      end
      FileUtils.rm_rf(@directory)
      @pid = nil
    end

    private

    def settings
      <<~RUBY
        #{"require \"ringprof\"\n#{start_profile}" unless @preload}
        bind "tcp://127.0.0.1:0"
        workers #{@workers}
        threads #{@threads}, #{@threads}
        #{"preload_app!" if @preload}
        worker_check_interval 1
      RUBY
    end

    def rackup
      <<~RUBY
        #{start_profile if @preload}
        require "application"
        run Application.new(database: #{@database.directory.inspect}, role: #{@database.role.inspect})
      RUBY
    end

    # All that a user writes.
    def start_profile
      return "" unless @profile

      <<~RUBY
        require "ringprof"
        RingProf.restart_after_fork = true
        RingProf.start(**#{@profile.inspect}, threads: :all, out: "profile.dump")
      RUBY
    end
  end
end
