# frozen_string_literal: true

require "open3"
require "support/serving/programs"
require "tempfile"

module Serving
  # Clients, by wrk: as many as told to, each with one request after the other. Each request has a connection of its own, so
  # that which worker serves which client is not settled once and for all when the load begins.
  class Load
    # Seconds of latency by quantile; errors by kind.
    Result = Struct.new(:requests, :errors, :seconds, :latency, keyword_init: true) do
      # @return [Integer]
      def failed
        errors.values.sum
      end
    end

    QUANTILES = [50, 99, 99.9].freeze
    ERRORS = %i[connect read write status timeout].freeze
    # What wrk prints is for people; its scripts are told the numbers.
    SCRIPT = <<~LUA
      done = function(summary, latency, requests)
        local errors = summary.errors
        print(string.format("counted %d %d %d %d %d %d %d", summary.requests, summary.duration,
          errors.connect, errors.read, errors.write, errors.status, errors.timeout))
        print(string.format("waited %d %d %d", #{QUANTILES.map { |quantile| "latency:percentile(#{quantile})" }.join(", ")}))
      end
    LUA

    class << self
      # @return [String, nil]
      def program
        Programs.find("wrk")
      end
    end

    def initialize(url, connections:, seconds:)
      @url = url
      @connections = connections
      @seconds = seconds
    end

    # @return [Result]
    def run
      Tempfile.create(["load", ".lua"]) do |script|
        script.write(SCRIPT)
        script.close
        output, status = Open3.capture2e(self.class.program, "--threads=1", "--connections=#{@connections}", "--duration=#{@seconds}s",
                                         "--timeout=20s", "--header=Connection: close", "--script=#{script.path}", @url)
        raise "wrk has failed: #{output}" unless status.success?

        read(output)
      end
    end

    private

    def read(output)
      requests, microseconds, *errors = numbers(output, "counted")
      Result.new(requests: requests, seconds: microseconds / 1e6, errors: ERRORS.zip(errors).to_h,
                 latency: QUANTILES.zip(numbers(output, "waited").map { |waited| waited / 1e6 }).to_h)
    end

    def numbers(output, word)
      line = output[/^#{word} (.*)$/, 1] or raise "wrk does not tell: #{output}"
      line.split.map(&:to_i)
    end
  end
end
