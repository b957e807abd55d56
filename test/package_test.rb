# frozen_string_literal: true

require "fileutils"
require "minitest/autorun"
require "open3"
require "rbconfig"
require "rubygems"
require "tmpdir"

# The gem as a user gets it: built, installed into an empty GEM_HOME, used from there.
class PackageTest < Minitest::Test
  ROOT = File.expand_path("..", __dir__)
  RUBY = RbConfig.ruby
  EXTCONF = File.join(ROOT, "ext/ringprof/extconf.rb")
  RUN_GEM = 'Gem::GemRunner.new.run(ARGV.drop_while { |word| word == "--" })'
  # Of the checkout and of whoever runs the tests, nothing may help.
  CLEAN = { "RUBYOPT" => nil, "RUBYLIB" => nil, "BUNDLE_GEMFILE" => nil, "DESTDIR" => nil, "MAKEFLAGS" => nil }.freeze

  class << self
    # Building takes a while, so it is done once, by the first test that needs it.
    def installed
      @installed ||= install
    end

    def scratch
      @scratch ||= Dir.mktmpdir("ringprof package ").tap { |path| Minitest.after_run { FileUtils.rm_rf(path) } }
    end

    def gem_environment
      # The crates that are compiled already may be used again; ours are not among them, for their path is another.
      target = ENV.fetch("CARGO_TARGET_DIR", File.join(ROOT, "target"))
      home = File.join(scratch, "gem home")
      CLEAN.merge("GEM_HOME" => home, "GEM_PATH" => home, "CARGO_TARGET_DIR" => File.expand_path(target))
    end

    def gem(*arguments, chdir:)
      Open3.capture2e(gem_environment, RUBY, "-rrubygems/gem_runner", "-e", RUN_GEM, "--", *arguments, chdir: chdir)
    end

    private

    def install
      file = File.join(scratch, "ringprof.gem")
      build_output, status = gem("build", "ringprof.gemspec", "--output", file, chdir: ROOT)
      raise "gem build failed:\n#{build_output}" unless status.success?

      output, status = gem("install", "--local", "--no-document", file, chdir: scratch)
      raise "gem install failed:\n#{output}" unless status.success?

      { build_output: build_output, package: file, home: gem_environment.fetch("GEM_HOME") }
    end
  end

  def test_build_warns_of_nothing_that_can_be_mended_here
    warnings = installed[:build_output].scan(/^WARNING:\s+(.+)$/).flatten.reject { |line| line.start_with?("See https") }

    # There is no public page to name yet.
    assert_equal [], warnings - ["no homepage specified"]
  end

  def test_package_holds_the_sources_and_nothing_that_was_built
    require "rubygems/package"
    names = Gem::Package.new(installed[:package]).contents

    %w[Cargo.toml Cargo.lock LICENSE CHANGELOG.md README.md exe/ringprof ext/ringprof/extconf.rb ext/ringprof/Cargo.toml
       ext/ringprof/src/lib.rs loom-tests/Cargo.toml src/lib.rs lib/ringprof.rb lib/ringprof/version.rb
       lib/ringprof/report/flamegraph_page/viewer.html lib/ringprof/dropin/stackprof/report.rb sig/ringprof.rbs].each do |name|
      assert_includes names, name
    end
    assert_empty names.grep(%r{\.(so|o|gem|dump)\z|(\A|/)target/|\A(bin|build|bench|\.ci)/|_test\.rb\z})
  end

  # Cargo refuses a workspace that names a file which is not there, but only when it is asked about that target.
  def test_cargo_accepts_the_shipped_workspace
    output, status = Open3.capture2e(CLEAN, "cargo", "metadata", "--no-deps", "--offline", "--format-version", "1", chdir: unpacked)

    assert_predicate status, :success?, output
    output.scan(/"src_path":"([^"]+)"/).flatten.each { |path| assert_path_exists path }
  end

  def test_installed_gem_profiles_a_busy_loop
    script = <<~'RUBY'
      def busy(stop)
        nil while Process.clock_gettime(Process::CLOCK_MONOTONIC) < stop
      end
      result = RingProf.run(mode: :wall, interval: 1000) { busy(Process.clock_gettime(Process::CLOCK_MONOTONIC) + 0.5) }
      found = result[:frames].values.find { |frame| frame[:name] == "Object#busy" }
      puts $LOADED_FEATURES.grep(%r{/ringprof(\.rb|/native\.rb|/ringprof\.so)\z})
      puts result[:mode], result[:samples].positive?, found && found[:total_samples] * 2 > result[:samples]
    RUBY
    output, status = ruby("-rringprof", "-e", script)
    *features, mode, sampled, found = output.lines(chomp: true)

    assert_predicate status, :success?, output
    assert_equal %w[wall true true], [mode, sampled, found], output
    assert_equal 3, features.length, output
    features.each { |path| assert path.start_with?(File.realpath(installed[:home]), installed[:home]), "loaded from elsewhere: #{path}" }
  end

  def test_installed_command_runs
    command = File.join(installed[:home], "bin/ringprof")

    version, status = ruby(command, "--version")
    assert_predicate status, :success?, version
    assert_includes version, File.read(File.join(ROOT, "lib/ringprof/version.rb"))[/"([\d.]+)"/, 1]

    report, status = ruby(command, "run", "--interval", "1000", "--", RUBY, "-e", "200_000.times { |i| i.to_s }")
    assert_predicate status, :success?, report
    assert_includes report, "Integer#to_s"
  end

  # A handler or a helper of ours with a public name could be bound to by any library of the host process.
  def test_library_exports_its_entry_point_alone
    libraries = Dir.glob(File.join(installed[:home], "{gems,extensions}/**/ringprof.so"))
    refute_empty libraries

    libraries.each do |library|
      symbols, status = Open3.capture2e("nm", "-D", "--defined-only", library)
      assert_predicate status, :success?, symbols
      assert_equal ["Init_ringprof"], symbols.lines.map { |line| line.split.last }, library
    end
  end

  def test_installed_gem_keeps_no_build_folder
    assert_empty Dir.glob(File.join(installed[:home], "gems/*/**/target"))
  end

  def test_extconf_says_when_cargo_is_missing
    assert_refusal(/cargo is missing .*install Rust/, environment: { "PATH" => "/nonexistent", "HOME" => "/nonexistent", "CARGO" => nil })
    assert_refusal(%r{cargo is missing \(tried /nonexistent/cargo\)}, environment: { "CARGO" => "/nonexistent/cargo" })
  end

  def test_extconf_says_when_ruby_is_too_old
    assert_refusal(/Ruby 3\.1 or newer is needed, and this is Ruby 3\.0\.6/,
                   pretence: 'Object.send(:remove_const, :RUBY_VERSION); RUBY_VERSION = "3.0.6"')
  end

  def test_extconf_says_when_this_is_not_linux
    assert_refusal(/only Linux is supported.*darwin22/, pretence: 'RbConfig::CONFIG["host_os"] = "darwin22"')
  end

  def test_extconf_says_when_ruby_is_not_cruby
    assert_refusal(/only CRuby is supported.*jruby/, pretence: 'Object.send(:remove_const, :RUBY_ENGINE); RUBY_ENGINE = "jruby"')
  end

  def test_extconf_says_when_the_headers_are_missing
    assert_refusal(%r{no ruby\.h in /nonexistent\): install ruby-dev}, pretence: 'RbConfig::CONFIG["rubyhdrdir"] = "/nonexistent"')
  end

  def test_extconf_says_when_libclang_is_missing
    assert_refusal(/libclang is missing.*install libclang-dev/, environment: { "LIBCLANG_PATH" => "/nonexistent" })
  end

  def test_makefile_names_this_ruby_and_the_feature_only_when_asked
    plain = makefile
    testing = makefile("--enable-testing")

    assert_includes plain, "RUBY=#{RUBY} "
    assert_includes plain, "--locked"
    refute_includes plain, "--features"
    assert_includes testing, "--features testing"
  end

  private

  def installed
    self.class.installed
  end

  def ruby(*arguments)
    installed
    Open3.capture2e(self.class.gem_environment, RUBY, *arguments, chdir: self.class.scratch)
  end

  def unpacked
    Dir.glob(File.join(installed[:home], "gems/ringprof-*")).first
  end

  # @return [String] the one line that extconf.rb ends with when something is not as it should be
  def assert_refusal(pattern, environment: {}, pretence: "")
    Dir.mktmpdir do |folder|
      script = %(require "rbconfig"; #{pretence}; load #{EXTCONF.dump})
      output, status = Open3.capture2e(CLEAN.merge(environment), RUBY, "-e", script, chdir: folder)

      assert_equal 1, status.exitstatus, output
      assert_equal 1, output.lines.length, output
      assert_match(/\Aringprof: /, output)
      assert_match pattern, output
      refute_path_exists File.join(folder, "Makefile")
    end
  end

  def makefile(*arguments)
    Dir.mktmpdir do |folder|
      output, status = Open3.capture2e(CLEAN, RUBY, EXTCONF, *arguments, chdir: folder)
      assert_predicate status, :success?, output
      File.read(File.join(folder, "Makefile"))
    end
  end
end
