# frozen_string_literal: true

# Writes the Makefile that builds ringprof.so with cargo: `ruby extconf.rb && make`.
#
# RubyGems runs this file on `gem install`, `bin/setup` runs it in a checkout, so there is one way to the library and not
# two. It stands on cargo and Ruby alone: the rb-sys crate asks the Ruby named by $RUBY for its configuration.
#
#   --enable-testing     builds with the cargo feature `testing`
#   CARGO                the cargo to use (default: the one on PATH, then ~/.cargo/bin/cargo)
#   CARGO_TARGET_DIR     where cargo keeps what it builds; each Ruby gets a folder of its own below it

require "rbconfig"
require "shellwords"

# What must be there before cargo is worth starting. Each missing thing ends the run with one line that says what to do.
module Requirements
  MINIMUM_RUBY = [3, 1].freeze

  # Where bindgen looks for libclang when no variable and no llvm-config points elsewhere, in its order.
  LIBCLANG_DIRECTORIES = %w[
    /usr/local/llvm*/lib* /usr/local/lib*/*/* /usr/local/lib*/* /usr/local/lib* /usr/lib*/*/* /usr/lib*/* /usr/lib*
  ].freeze
  LIBCLANG_NAMES = %w[libclang.so libclang-*.so libclang.so.* libclang-*.so.*].freeze

  module_function

  def refuse(message)
    abort "ringprof: #{message}"
  end

  def check_ruby
    host = RbConfig::CONFIG["host_os"]
    refuse "only Linux is supported, and this Ruby was built for #{host}" unless host.include?("linux")
    refuse "only CRuby is supported, and this is #{RUBY_ENGINE}" unless RUBY_ENGINE == "ruby"
    if (RUBY_VERSION.split(".").first(2).map(&:to_i) <=> MINIMUM_RUBY).negative?
      refuse "Ruby #{MINIMUM_RUBY.join(".")} or newer is needed, and this is Ruby #{RUBY_VERSION}"
    end

    headers = RbConfig::CONFIG["rubyhdrdir"].to_s
    return if File.file?(File.join(headers, "ruby.h"))

    refuse "Ruby's headers are missing (no ruby.h in #{headers}): install ruby-dev (Debian, Ubuntu) or ruby-devel (Fedora)"
  end

  # @return [String] a cargo that runs
  def cargo
    candidate = ENV.fetch("CARGO") { executable("cargo") || File.expand_path(".cargo/bin/cargo", Dir.home) }
    return candidate if system(candidate, "--version", out: File::NULL, err: File::NULL)

    refuse "cargo is missing (tried #{candidate}): install Rust 1.87 or newer, or set CARGO to the path of your cargo"
  end

  def check_libclang
    return if libclang_directories.any? { |directory| libclang_in?(directory) }

    refuse "libclang is missing, bindgen reads Ruby's headers with it: install libclang-dev (Debian, Ubuntu) or " \
           "clang-devel (Fedora), or set LIBCLANG_PATH to the folder that holds libclang.so"
  end

  def executable(name)
    ENV.fetch("PATH", "").split(File::PATH_SEPARATOR)
       .map { |directory| File.join(directory, name) }
       .find { |path| File.file?(path) && File.executable?(path) }
  end

  def libclang_directories
    # bindgen obeys this variable alone when it is set; it may name the library or its folder.
    if (path = ENV["LIBCLANG_PATH"])
      return [path, File.dirname(path)]
    end

    listed = %w[LD_LIBRARY_PATH LIBRARY_PATH].flat_map { |name| ENV.fetch(name, "").split(File::PATH_SEPARATOR) }
    llvm_directories + listed + Dir.glob(LIBCLANG_DIRECTORIES)
  end

  def llvm_directories
    llvm_config = ENV["LLVM_CONFIG_PATH"] || executable("llvm-config")
    return [] unless llvm_config

    prefix = IO.popen([llvm_config, "--prefix"], err: File::NULL, &:read).to_s.chomp
    %w[bin lib lib64].map { |folder| File.join(prefix, folder) }
  rescue SystemCallError
    []
  end

  def libclang_in?(directory)
    Dir.glob(LIBCLANG_NAMES, base: directory).any? { |name| !name.include?("-cpp.") }
  end
end

# The Makefile, from a template: targets all, install, clean.
class CargoMakefile
  ROOT = File.expand_path("../..", __dir__)

  # @param cargo [String] path of cargo
  # @param testing [Boolean] whether to build the cargo feature `testing`
  def initialize(cargo:, testing:)
    @cargo = cargo
    @testing = testing
  end

  # @return [String]
  def to_s
    <<~MAKEFILE
      # Written by extconf.rb for #{RUBY_DESCRIPTION}.
      SHELL = /bin/sh
      DESTDIR =
      sitearchdir = #{RbConfig::CONFIG["sitearchdir"].gsub("$", "$$")}
      destination = $(DESTDIR)$(sitearchdir)/ringprof

      .PHONY: all install clean

      # The plus sign lets cargo take part in make's -j. The library appears by rename: a process that has the old one
      # mapped keeps it.
      all:
      \t+RUBY=#{quote(RbConfig.ruby)} #{cargo_command}
      \tcp #{quote(library)} ringprof.so.new
      \tmv -f ringprof.so.new ringprof.so

      install: all
      \tmkdir -p "$(destination)"
      \tcp ringprof.so "$(destination)/ringprof.so.new"
      \tmv -f "$(destination)/ringprof.so.new" "$(destination)/ringprof.so"
      #{after_install}
      clean:
      \trm -f ringprof.so ringprof.so.new
    MAKEFILE
  end

  private

  def cargo_command
    features = @testing ? %w[--features testing] : []
    ["rustc", "--release", "--locked", "--manifest-path", File.join(ROOT, "ext/ringprof/Cargo.toml"),
     "--package", "ringprof", "--lib", "--crate-type", "cdylib", "--target-dir", target_directory, *features]
      .unshift(@cargo).map { |word| quote(word) }.join(" ")
  end

  # One folder per Ruby: two Rubies built in turn would otherwise throw away each other's bindings every time.
  def target_directory
    base = ENV["CARGO_TARGET_DIR"] || (private_target? ? "target" : File.join(ROOT, "target"))
    File.expand_path("ruby-#{RUBY_VERSION}-#{RbConfig::CONFIG["arch"]}", base)
  end

  def library
    File.join(target_directory, "release/libringprof.so")
  end

  # An unpacked gem has no bin/setup. Nobody would ever clean up hundreds of megabytes inside an installed gem.
  def private_target?
    !ENV["CARGO_TARGET_DIR"] && !File.exist?(File.join(ROOT, "bin/setup"))
  end

  def after_install
    private_target? ? "\trm -rf #{quote(File.dirname(target_directory))}\n" : ""
  end

  def quote(word)
    word.shellescape.gsub("$", "$$")
  end
end

Requirements.check_ruby
cargo = Requirements.cargo
Requirements.check_libclang
File.write("Makefile", CargoMakefile.new(cargo: cargo, testing: ARGV.include?("--enable-testing")).to_s)
puts "creating Makefile"
