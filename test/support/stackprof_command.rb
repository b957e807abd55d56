# frozen_string_literal: true

require "fileutils"
require "tmpdir"

# The `stackprof` command that is installed, started once: each call is a fork of one process that has loaded it.
class StackprofCommand
  SERVER = <<~'RUBY'
    require "optparse"
    require "stackprof"
    StackProf::Report
    command = Gem.bin_path("stackprof", "stackprof")
    out, input = ARGV
    $stdout.sync = true
    loop do
      arguments = Marshal.load($stdin)
      pid = fork do
        $stdin.reopen(input)
        $stdout.reopen(out, "w")
        ARGV.replace(arguments)
        load command
      end
      Process.wait(pid)
      puts $?.exitstatus
    rescue EOFError
      exit
    end
  RUBY

  class << self
    def installed?
      !ruby.nil?
    end

    # The Ruby that it was installed for, without options of the one that runs the tests; nil if it is not installed.
    #
    # @return [Array] what begins a call of spawn
    def ruby
      return @ruby if defined?(@ruby)

      path = ENV.fetch("PATH").split(":").map { |folder| File.join(folder, "stackprof") }.find { |file| File.executable?(file) }
      interpreter = path && File.open(path, &:gets)[/\A#! *(\S*ruby\S*)/, 1]
      @ruby = interpreter && [{ "RUBYOPT" => nil }, interpreter]
    end
  end

  def self.run(...)
    (@command ||= new).run(...)
  end

  def initialize
    @directory = Dir.mktmpdir("ringprof-test")
    @out, @input = %w[out input].map { |name| File.join(@directory, name) }
    @server = IO.popen([*self.class.ruby, "-e", SERVER, @out, @input], "r+b")
    Minitest.after_run do
      @server.close
      FileUtils.rm_rf(@directory)
    end
  end

  # @return [String] what it prints
  def run(*arguments, input: "")
    File.write(@input, input)
    Marshal.dump(arguments, @server)
    @server.flush
    status = @server.gets.to_i
    raise "stackprof #{arguments.join(" ")}: status #{status}" unless status.zero?

    File.read(@out, encoding: Encoding::UTF_8)
  end
end
