# frozen_string_literal: true

require "test_helper"
require "support/cli_testing"

# The manual page and the completions say what the help texts say.
class CliManualTest < RingProf::TestCase
  include CliTesting

  PAGE = File.expand_path("../../man/ringprof.1", __dir__)

  def test_every_command_has_help_with_examples
    require "ringprof/cli"
    RingProf::CLI.commands.each_key do |name|
      out, err, status = ringprof(name, "--help")
      assert_equal [0, ""], [status.exitstatus, err]
      assert_match(/\AUsage: ringprof #{name} ?.*^Examples:\n  \S.*^Options:\n/m, out)
      assert_empty out.lines.select { |line| line.chomp.length > 140 }
      assert_match(/^  ringprof #{name} /, ringprof("--help").first)
    end
  end

  def test_the_page_that_is_shipped_is_the_one_that_is_generated
    out, = ringprof("completion", "man")
    assert_equal out, File.read(PAGE), "ruby -I lib exe/ringprof completion man > man/ringprof.1"
    ["ringprof run", "\\-\\-fail\\-if RULE", "RINGPROF_TOGGLE", "EXIT STATUS", "Writes a profile, or the sum of several"].each { |text| assert_includes out, text }
  end

  def test_man_has_nothing_to_say_against_it
    skip "groff is not installed" unless installed?("groff")

    out, err, status = capture(["groff", "-Kutf8", "-man", "-ww", "-Tutf8", PAGE])
    assert_predicate status, :success?
    assert_empty err
    assert_match(/NAME/, out)
  end

  def test_bash
    assert_equal %w[run], complete("ringprof", "ru")
    assert_equal %w[--max-memory --max-overhead --mode], complete("ringprof", "run", "--m").sort
    assert_equal %w[cpu cpu_and_wall custom], complete("ringprof", "run", "--mode", "c").sort
    assert_equal %w[bash], complete("ringprof", "completion", "b")
    assert_equal %w[diff], complete("ringprof", "help", "di")
    assert_equal ["--fail-if"], complete("ringprof", "diff", "--f")
    in_directory do |dir|
      File.write("#{dir}/my.dump", "")
      assert_equal %w[my.dump], complete("ringprof", "my", chdir: dir)
      assert_equal %w[my.dump], complete("ringprof", "report", "my", chdir: dir)
      assert_includes complete("ringprof", "run", "--", "rub", chdir: dir), "ruby"
    end
  end

  def test_the_other_shells_accept_theirs
    shells = %w[zsh fish].select { |shell| installed?(shell) }
    skip "neither zsh nor fish is installed" if shells.empty?

    shells.each do |shell|
      out, = ringprof("completion", shell)
      assert_includes out, "cpu_and_wall"
      in_directory do |dir|
        File.write("#{dir}/script", out)
        _, err, status = capture([shell, "-n", "#{dir}/script"])
        assert_equal [0, ""], [status.exitstatus, err], shell
      end
    end
  end

  def test_bad_input
    assert_refused(2, /name one of bash, zsh, fish, man/, "completion")
    assert_refused(2, /name one of bash, zsh, fish, man/, "completion", "tcsh")
  end

  private

  def installed?(program)
    ENV["PATH"].split(":").any? { |directory| File.executable?(File.join(directory, program)) }
  end

  # What bash would offer for the last word.
  def complete(*words, chdir: nil)
    script, = ringprof("completion", "bash")
    asking = <<~BASH
      #{script}
      COMP_WORDS=("$@")
      COMP_CWORD=$(($# - 1))
      _ringprof
      printf '%s\\n' "${COMPREPLY[@]}"
    BASH
    out, err, status = capture(["bash", "-c", asking, "bash", *words], chdir: chdir)
    assert_equal [0, ""], [status.exitstatus, err]
    out.split("\n").uniq
  end
end
