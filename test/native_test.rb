# frozen_string_literal: true

require "fileutils"
require "test_helper"

# What a person sees whose extension is not built, or built for another Ruby.
class NativeTest < Minitest::Test
  include Subprocess

  def test_an_extension_that_is_not_built
    with_lib do |lib|
      _, err, status = capture([RbConfig.ruby, "-I", lib, "-e", "require 'ringprof'"])
      refute_predicate status, :success?
      assert_match(/RingProf's extension is not built for Ruby #{RUBY_VERSION}: run bin\/setup .*\(LoadError\)/, err)
      assert_one_line("is not built for Ruby #{RUBY_VERSION}", lib)
    end
  end

  def test_an_extension_that_does_not_load
    with_lib do |lib|
      File.write(File.join(lib, "ringprof/ringprof.so"), "no library")
      assert_one_line("does not load in Ruby #{RUBY_VERSION}", lib)
    end
  end

  def test_an_extension_that_was_built_for_another_ruby
    here = RUBY_VERSION[/\A\d+\.\d+/]
    other = Dir.glob("#{ROOT}/build/testing-*/ringprof/ringprof.so").find { |path| !path.include?("/testing-#{here}/") }
    skip "bin/setup has built for no other Ruby than #{here}" unless other

    with_lib do |lib|
      FileUtils.cp(other, File.join(lib, "ringprof/ringprof.so"))
      assert_one_line("does not load in Ruby #{RUBY_VERSION}, it may be built for another", lib)
    end
  end

  def test_a_library_for_this_minor_goes_first
    with_lib do |lib|
      FileUtils.mkdir_p(File.join(lib, "ringprof", RUBY_VERSION[/\A\d+\.\d+/]))
      FileUtils.cp(File.join(RingProf::Native.directory, "ringprof/ringprof.so"), File.join(lib, "ringprof", RUBY_VERSION[/\A\d+\.\d+/]))
      File.write(File.join(lib, "ringprof/ringprof.so"), "no library")
      out, err, = capture([RbConfig.ruby, "-I", lib, "-e", "require 'ringprof'; print RingProf.running?, ' ', RingProf::Native.directory"])
      assert_equal "false #{lib}", out, err
    end
  end

  private

  # The command and autorun say so in one line.
  def assert_one_line(pattern, lib)
    [[File.join(lib, "../exe/ringprof"), "run", "--", "true"], ["-rringprof/autorun", "-e", "1"]].each do |arguments|
      out, err, status = capture([RbConfig.ruby, "-I", lib, *arguments])
      assert_equal [1, ""], [status.exitstatus, out]
      assert_equal 1, err.lines.length, err
      assert_match(/\Aringprof: RingProf's extension #{pattern}/, err)
    end
  end

  # A checkout in which nothing is built.
  def with_lib
    Dir.mktmpdir("ringprof-test") do |dir|
      %w[lib exe].each { |part| FileUtils.cp_r(File.join(ROOT, part), dir) }
      FileUtils.rm_f(Dir.glob(File.join(dir, "lib/ringprof/**/*.so")))
      yield File.join(File.realpath(dir), "lib")
    end
  end
end
