# frozen_string_literal: true

require "fileutils"
require "rbconfig"
require "support/subprocess"
require "tmpdir"

# Runs scripts with the handler after every single instruction, each in a process of its own.
class Stepper
  include Subprocess

  # What came of a script: `died` names the signal that ended it, and then nothing else is known but what it said.
  # `walks` are those that were whole, cut short, and cut short wrongly.
  Outcome = Struct.new(:instructions, :stats, :results, :walks, :died, :report)

  RUNNER = File.join(__dir__, "runner.rb")
  SUPPORT = File.join(ROOT, "test/support/single_step")
  # Each holds windows in which a walk without the pre-flight dies.
  DEADLY = %w[escape_in_method escape_in_method_with_block escape_at_top_level escape_in_class_body].freeze
  HARMLESS = %w[fibers exceptions calls redefining drains threads loading].freeze
  # YJIT is turned on in the middle of it.
  ENABLING = "enabling"
  COMPILED = %w[--yjit --yjit-call-threshold=1].freeze
  LATER_COMPILED = %w[--yjit-call-threshold=1 --yjit-disable].freeze
  # More modules with thread-local storage than the C library keeps room for make it allocate a new table.
  EXTENSIONS = 2
  MANY_EXTENSIONS = 20

  class << self
    # Why nothing can be stepped through here, or nil.
    def refusal
      cpu = RbConfig::CONFIG["host_cpu"]
      "single stepping needs the trap flag of x86-64, and this is #{cpu}" unless cpu == "x86_64"
    end

    # Whether this Ruby's compiled code is walked in the handler.
    def compiles?
      RUBY_VERSION >= "3.3" && defined?(RubyVM::YJIT) ? true : false
    end

    # Ruby 3.3 and later dismiss every thread before its stack is taken down, so nothing is left for the pre-flight.
    def deadly
      RUBY_VERSION < "3.3" ? [*DEADLY, "threads"] : DEADLY
    end
  end

  # @yieldparam stepper [Stepper] whose libraries are there until the block ends
  def self.open(extensions: EXTENSIONS)
    Dir.mktmpdir("ringprof-step") { |directory| yield new(directory, extensions) }
  end

  def initialize(directory, extensions)
    @threads = compile(directory, "step_threads", "step_threads.c", "-ldl", "-pthread")
    @extensions = Array.new(extensions) do |number|
      compile(directory, "stepped_#{number}", "thread_local.c", "-DNAME=Init_stepped_#{number}")
    end
  end

  # @param how [Array<String>] the runner's: `bare`, `warm`
  # @return [Outcome]
  def step(script, *how, switches: [])
    env = { "RUBYOPT" => nil, "RINGPROF_EXTENSIONS" => @extensions.join(":"), "LD_PRELOAD" => (@threads if script == "threads") }
    out, report, status = capture([RbConfig.ruby, *switches, *INCLUDES, RUNNER, script, *how], env: env, timeout: 600)
    return Outcome.new(nil, nil, nil, nil, Signal.signame(status.termsig), report) if status.signaled?
    raise "#{script}: #{status}\n#{report}" unless status.success?

    Outcome.new(*Marshal.load(out), nil, report)
  end

  private

  def compile(directory, name, source, *options)
    library = File.join(directory, "#{name}.so")
    command = [*RbConfig::CONFIG.fetch("CC", "cc").split, "-O2", "-Wall", "-Werror", "-fPIC", "-shared", "-o", library,
               File.join(SUPPORT, source), *options]
    _, err, status = capture(command, env: { "RUBYOPT" => nil })
    raise "#{command.join(" ")}\n#{err}" unless status.success?

    library
  end

  def flunk(message)
    raise message
  end
end
