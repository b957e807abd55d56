# frozen_string_literal: true

require "test_helper"

# `require "ringprof/stackprof"`: RingProf under StackProf's name.
class StackprofNameTest < RingProf::TestCase
  def test_the_api_answers_to_the_name
    script = <<~RUBY
      require "ringprof/stackprof"
      results = StackProf.run(mode: :custom, raw: true) { 3.times { StackProf.sample } }
      p results[:samples], results[:frames].values.first.values_at(:name, :file, :line)
      p StackProf.start(mode: :custom), StackProf.running?, StackProf.start, StackProf.sample, StackProf.stop, StackProf.stop
      p StackProf.results[:samples], StackProf.results, StackProf.use_postponed_job!, StackProf.name
    RUBY
    assert_equal <<~TEXT, ruby!(script)
      3
      ["StackProf.sample", "<cfunc>", nil]
      true
      true
      false
      true
      true
      false
      1
      nil
      nil
      "StackProf"
    TEXT
  end

  def test_no_frame_of_ours_stands_between_the_caller_and_sample
    script = <<~RUBY
      require "ringprof/stackprof"
      def here = StackProf.sample
      results = StackProf.run(mode: :custom, raw: true) { here }
      p results[:raw][1..-2].map { |id| results[:frames][id][:name] }.last(4)
    RUBY
    assert_equal %(["StackProf.run", "block in <main>", "Object#here", "StackProf.sample"]\n), ruby!(script)
  end

  def test_both_names_share_one_session
    script = <<~RUBY
      require "ringprof/stackprof"
      StackProf.start(mode: :custom)
      p RingProf.running?, RingProf.start(mode: :custom), RingProf.sample, RingProf.stop
      begin
        RingProf.results("/dev/full")
      rescue Errno::ENOSPC
        p StackProf.results[:samples], RingProf.results
      end
    RUBY
    assert_equal "true\nfalse\ntrue\ntrue\n1\nnil\n", ruby!(script)
  end

  def test_the_version_is_the_contracts
    script = <<~RUBY
      require "ringprof/stackprof"
      p Gem::Version.new(StackProf::VERSION) >= Gem::Version.new("0.2.9"), RingProf::VERSION
      p StackProf.constants.sort
    RUBY
    assert_equal "true\n#{RingProf::VERSION.inspect}\n[:Middleware, :Report, :VERSION]\n", ruby!(script)
  end

  def test_requiring_stackprof_afterwards_changes_nothing
    script = <<~RUBY
      require "ringprof/stackprof"
      p require("stackprof"), StackProf.run(mode: :custom) { StackProf.sample }.key?(:frames)
      p RingProf::Profile.name, RingProf::Report::Text.name
    RUBY
    assert_equal "false\ntrue\n\"RingProf::Profile\"\n\"RingProf::Report::Text\"\n", ruby!(script)
  end

  def test_the_gem_itself_must_not_be_there_first
    script = <<~RUBY
      module StackProf; end
      begin
        require "ringprof/stackprof"
      rescue RingProf::Error => e
        puts e.message
      end
    RUBY
    assert_match(/\AStackProf is already defined: remove the stackprof gem/, ruby!(script))
  end

  # The way gems that know StackProf ask for it.
  def test_what_users_of_stackprof_do
    script = <<~RUBY
      require "ringprof/stackprof"
      require "json"
      raise unless defined?(StackProf) && StackProf.respond_to?(:run)
      raise unless StackProf.start(interval: 1e6 / 101, mode: :wall, raw: true, aggregate: false) == true
      deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 0.3
      nil while Process.clock_gettime(Process::CLOCK_MONOTONIC) < deadline
      StackProf.stop
      results = StackProf.results
      raise unless results[:samples] > 2
      results[:metadata][:profile_id] = 1
      results[:frames].each_value { |frame| frame[:file] = "x" }
      p JSON.parse(JSON.generate(results)).keys
    RUBY
    # What StackProf does not have comes after.
    extras = ResultAssertions::EXTRA_KEYS - %i[cpu_samples raw_cpu_weights]
    assert_equal "#{(ResultAssertions::RESULT_KEYS + extras).map(&:to_s).inspect}\n", ruby!(script)
  end
end
