# frozen_string_literal: true

require "fileutils"
require "ringprof/stackprof" unless defined?(StackProf::VERSION)

module StackProf
  # StackProf's Rack middleware.
  #
  #     use StackProf::Middleware, enabled: true, mode: :cpu, interval: 1000, save_every: 5
  #
  # Options: `enabled:` (true, or a Proc that gets the Rack environment), `mode:` (`:cpu`), `interval:` (1000),
  # `raw:`, `path:` (`tmp/`; what ends in a slash is a directory, anything else a file), `metadata:`, `save_every:`
  # (requests), `save_at_exit:`; all others are those of StackProf.start.
  #
  # A request during which another one is profiled goes on unprofiled: the profile ends with the request that began it.
  class Middleware
    # Not of StackProf.start. `out:` would be written at every read of the results.
    OWN = %i[enabled mode interval raw path metadata save_every save_at_exit out].freeze
    private_constant :OWN

    # Starting, stopping and reading are one step for each request.
    @lock = Mutex.new
    @start_options = {}

    # @param app [#call]
    # @param options [Hash]
    def initialize(app, options = {})
      @app = app
      @save_every = options[:save_every]
      @left = @save_every
      @counter = Mutex.new
      configure(options)
      at_exit { Middleware.save } if options[:save_at_exit]
    end

    # @param env [Hash]
    # @return [Array]
    def call(env)
      enabled = Middleware.enabled?(env)
      started = enabled && Middleware.start
      @app.call(env)
    ensure
      if enabled
        due = count
        save = Middleware.finish(due) if started
        put_off if due && !save
      end
    end

    class << self
      attr_accessor :enabled, :mode, :interval, :raw, :path, :metadata

      # Further options of StackProf.start.
      #
      # @return [Hash]
      attr_accessor :start_options

      # @param env [Hash]
      # @return [Object] truthy when the request is to be profiled
      def enabled?(env)
        enabled.respond_to?(:call) ? enabled.call(env) : enabled
      end

      # Writes what has been profiled since it was done last.
      #
      # @return [String, nil] the name of the file; nil when there was nothing, or a request is being profiled
      def save
        write(@lock.synchronize { StackProf.results })
      end

      # @return [Boolean] false when another request is being profiled
      def start
        @lock.synchronize { StackProf.start(**start_options, mode: mode, interval: interval, raw: raw, metadata: metadata) }
      rescue RingProf::Error => e
        complain(e)
      end

      # @param save [Boolean] write the profile
      # @return [String, nil] the name of the file
      def finish(save)
        results = @lock.synchronize do
          stop
          StackProf.results if save
        end
        write(results)
      end

      private

      # What was recorded is there all the same.
      def stop
        StackProf.stop
      rescue RingProf::Error => e
        complain(e)
      end

      # The request has its answer, profiled or not.
      def complain(error)
        warn "ringprof: #{error.message}"
        false
      end

      def write(results)
        return nil unless results

        directory = path.end_with?("/")
        folder = directory ? path : File.dirname(path)
        FileUtils.mkdir_p(folder)
        return write_anew(folder, results) if directory

        File.binwrite(path, Marshal.dump(results))
        File.basename(path)
      end

      # Several may be written within a second, by several processes.
      def write_anew(folder, results)
        name = "stackprof-#{results[:mode]}-#{Process.pid}-#{Time.now.to_i}"
        number = 0
        begin
          file = "#{name}#{"-#{number}" if number.positive?}.dump"
          File.open(File.join(folder, file), File::WRONLY | File::CREAT | File::EXCL | File::BINARY) { |io| Marshal.dump(results, io) }
          file
        rescue Errno::EEXIST
          number += 1
          retry
        end
      end
    end

    private

    def configure(options)
      path = options[:path].to_s
      Middleware.mode = options[:mode] || :cpu
      Middleware.interval = options[:interval] || 1000
      Middleware.raw = options[:raw] || false
      Middleware.enabled = options[:enabled]
      Middleware.path = path.empty? ? "tmp/" : path
      Middleware.metadata = options[:metadata] || {}
      Middleware.start_options = options.reject { |name, _value| OWN.include?(name) }
    end

    # @return [Boolean] whether the profile is to be written
    def count
      return false unless @save_every

      @counter.synchronize do
        @left -= 1
        next false if @left.positive?

        @left = @save_every
        true
      end
    end

    # The next one that has been profiled writes it.
    def put_off
      @counter.synchronize { @left = 1 }
    end
  end
end
