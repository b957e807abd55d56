# frozen_string_literal: true

require_relative "lib/ringprof/version"

Gem::Specification.new do |spec|
  spec.name = "ringprof"
  spec.version = RingProf::VERSION
  spec.authors = ["RingProf contributors"]
  spec.summary = "A sampling profiler for Ruby that stays on at 100 microseconds."
  spec.description = <<~TEXT.tr("\n", " ").strip
    RingProf samples Ruby's stacks inside the signal handler, into a preallocated lock-free ring, without allocating.
    Its results are StackProf's, so StackProf's reports and viewers read them.
  TEXT
  spec.license = "MIT"

  spec.required_ruby_version = ">= 3.1"
  spec.extensions = ["ext/ringprof/extconf.rb"]
  spec.bindir = "exe"
  spec.executables = ["ringprof"]
  spec.require_paths = ["lib"]

  # Globs and not `git ls-files`: the gem must also build from an unpacked archive. All that the root Cargo.toml names is
  # shipped, since cargo refuses a workspace whose members or test files are missing.
  spec.files = Dir.glob(
    %w[
      Cargo.{toml,lock} clippy.toml src/**/*.rs ext/**/*.{rs,toml,rb} loom-tests/**/*.{rs,toml} test/rust/**/*.rs
      lib/**/*.{rb,html} sig/**/*.rbs exe/* man/*.1 docs/**/*.md README.md ARCHITECTURE.md CHANGELOG.md CONTRIBUTING.md LICENSE
    ],
    base: __dir__
  ).reject { |path| path.include?("/target/") }.sort

  spec.metadata = {
    "changelog" => "CHANGELOG.md",
    "rubygems_mfa_required" => "true"
  }
end
