# frozen_string_literal: true

require "digest"
require "ringprof"
require "ringprof/report"
require "stringio"

module RingProf
  # Rack middleware: profiles single requests, from the call of the application to its answer.
  #
  # @example Every thousandth request, into files
  #   use RingProf::Middleware, every: 1000, mode: :wall, raw: true, path: "tmp/profiles"
  #
  # @example Requests that ask for it: `curl -H "x-ringprof: $SECRET" -H "x-ringprof-report: text" …`
  #   use RingProf::Middleware, secret: ENV["RINGPROF_SECRET"]
  #
  # A request asks with the header `x-ringprof`, or with the parameter `ringprof` in its query, which ends up in logs.
  # Its profile is written into a file, unless it wants a report for its answer: then `x-ringprof-report`, or
  # `ringprof_report`, is the name of a format (see {Report.formats}).
  #
  # One request is profiled at a time, and its thread alone. One that comes meanwhile, or while the process is being
  # profiled by somebody else, is served as ever; one that has asked learns that from the header `x-ringprof-busy`.
  # A body that is made while it is sent is not part of the profile.
  class Middleware
    HEADER = "HTTP_X_RINGPROF"
    REPORT_HEADER = "HTTP_X_RINGPROF_REPORT"
    TYPES = { "d3-flamegraph" => "text/html", "json" => "application/json" }.freeze
    private_constant :HEADER, :REPORT_HEADER, :TYPES

    # The profile of this request, in this thread.
    @slot = Mutex.new

    class << self
      # @api private
      # @return [Mutex] held from start to results by the one that is profiled
      attr_reader :slot
    end

    # @param app [#call]
    # @param every [Integer, nil] profile every so many-th request, counted in this process
    # @param secret [String, nil] what a request has to know to be profiled; nil or empty: none can ask
    # @param path [String, Pathname] directory of the files; it is made when it is needed
    # @param enabled [Boolean, #call] whether to profile at all; a Proc gets the Rack environment
    # @param options [Hash] those of RingProf.start; `threads: :current` and `raw: true` unless they say otherwise
    # @raise [ArgumentError] when `every` is no number of requests
    def initialize(app, every: nil, secret: nil, path: "tmp", enabled: true, **options)
      raise ArgumentError, "every: is a number of requests" unless every.nil? || (every.is_a?(Integer) && every.positive?)

      @app = app
      @every = every
      @digest = Digest::SHA256.digest(secret) unless secret.nil? || secret.empty?
      @path = path.to_s
      @enabled = enabled
      @options = { mode: :wall, raw: true, threads: :current }.merge(options).except(:out)
      @count = 0
      @counter = Mutex.new
    end

    # @param env [Hash]
    # @return [Array] of the application, or the report
    def call(env)
      return @app.call(env) unless enabled?(env)

      asked = asked?(env)
      return @app.call(env) unless counted? || asked

      profile(env, asked)
    end

    private

    def enabled?(env)
      @enabled.respond_to?(:call) ? @enabled.call(env) : @enabled
    end

    def counted?
      return false unless @every

      @counter.synchronize { (@count += 1) % @every }.zero?
    end

    def asked?(env)
      return false unless @digest

      [env[HEADER], parameter(env, "ringprof")].any? { |given| given && secret?(given) }
    end

    # Digests are as long as each other, and all of their bytes are looked at: the time tells nothing of the secret.
    def secret?(given)
      difference = 0
      Digest::SHA256.digest(given).bytes.zip(@digest.bytes) { |one, other| difference |= one ^ other }
      difference.zero?
    end

    # The body is the application's.
    def parameter(env, name)
      env["QUERY_STRING"].to_s.split("&").each do |pair|
        key, value = pair.split("=", 2)
        return decode(value.to_s) if key == name
      end
      nil
    end

    def decode(text)
      text.tr("+", " ").gsub(/%\h\h/) { |code| code[1..].hex.chr }
    end

    def profile(env, asked)
      slot = Middleware.slot
      # A thread cannot wait here: nor does a request inside of another one, in the same thread.
      return unprofiled(env, asked) unless !slot.owned? && slot.try_lock

      begin
        return unprofiled(env, asked) unless start(env)

        served(env, asked)
      ensure
        slot.unlock
      end
    end

    def unprofiled(env, asked)
      answer = @app.call(env)
      asked ? with_header(answer, "x-ringprof-busy", "1") : answer
    end

    def start(env)
      metadata = { method: env["REQUEST_METHOD"], path: "#{env["SCRIPT_NAME"]}#{env["PATH_INFO"]}" }.merge(@options[:metadata] || {})
      RingProf.start(**@options, metadata: metadata)
    rescue Error => e
      complain(e)
    end

    def served(env, asked)
      answer = results = nil
      begin
        answer = @app.call(env)
      ensure
        results = finish
        # Of a request that failed, too.
        file = write(results) if results && !wanted(env, asked)
      end
      return answer unless asked && results
      return with_header(answer, "x-ringprof-file", file) unless wanted(env, asked)

      report(answer, Profile.new(results), wanted(env, asked))
    end

    # @return [Hash, nil]
    def finish
      RingProf.stop
      RingProf.results
    rescue Error => e
      complain(e)
      RingProf.results
    end

    # @return [Report::Format, nil] the report that is to be the answer
    def wanted(env, asked)
      return nil unless asked

      name = env[REPORT_HEADER] || parameter(env, "ringprof_report")
      name && (Report.formats[name] || Report.formats["text"])
    end

    def report(answer, profile, format)
      text = StringIO.new(String.new(encoding: Encoding::BINARY))
      format.new(profile).write(text)
      body = answer[2]
      body.close if body.respond_to?(:close)
      type = format.binary ? "application/octet-stream" : "#{TYPES.fetch(format.name, "text/plain")}; charset=utf-8"
      [200, { "content-type" => type, "content-length" => text.string.bytesize.to_s, "cache-control" => "no-store" }, [text.string]]
    rescue Error => e
      [200, { "content-type" => "text/plain; charset=utf-8", "cache-control" => "no-store" }, ["#{e.message}\n"]]
    end

    # The Hash may be frozen, or shared by all requests.
    def with_header(answer, name, value)
      return answer unless value

      [answer[0], answer[1].to_h.merge(name => value), answer[2]]
    end

    # Never over a file that is there, whoever wrote it.
    def write(results)
      make_directory
      base = "ringprof-#{results[:mode]}-#{Process.pid}-#{Time.now.strftime("%Y%m%dT%H%M%S")}"
      (0..).each do |number|
        file = "#{base}#{"-#{number}" if number.positive?}.dump"
        File.open(File.join(@path, file), File::WRONLY | File::CREAT | File::EXCL | File::BINARY, 0o600) { |io| Marshal.dump(results, io) }
        return file
      rescue Errno::EEXIST
        next
      end
    rescue SystemCallError => e
      complain(e)
      nil
    end

    def make_directory
      require "fileutils"
      FileUtils.mkdir_p(@path)
    end

    # The request has its answer, profiled or not.
    def complain(error)
      warn "ringprof: #{error.message}"
      false
    end
  end
end
