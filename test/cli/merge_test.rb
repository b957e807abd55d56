# frozen_string_literal: true

require "json"
require "test_helper"
require "support/cli_testing"

class CliMergeTest < RingProf::TestCase
  include CliTesting

  def test_profiles_are_added_up
    with_dumps(2, 3) do |dir, paths|
      out, err, status = ringprof("merge", "--out", "#{dir}/all", *paths)
      assert_equal [0, "", ""], [status.exitstatus, out, err]
      merged = load_profile("#{dir}/all")
      assert_equal 5, merged[:samples]
      assert_equal 5, frame_named(merged, "RingProf.sample")[:samples]
      out, = ringprof("merge", "-o", "-", *paths)
      assert_equal merged, Marshal.load(out.b)
      # Over one of those that were read.
      _, err, status = ringprof("merge", "-o", paths.first, *paths)
      assert_equal [0, ""], [status.exitstatus, err]
      assert_equal 5, load_profile(paths.first)[:samples]
      assert_equal %w[all p0 p1], Dir.children(dir).sort
    end
  end

  def test_a_failure_leaves_what_was_there
    with_dumps(2, 3) do |dir, paths|
      File.write("#{dir}/kept", "precious")
      File.write("#{dir}/bad", "nonsense")
      assert_refused(1, /bad is not a profile/, "merge", "--out", "#{dir}/kept", *paths, "#{dir}/bad")
      assert_equal "precious", File.read("#{dir}/kept")
      assert_refused(1, /cannot write .*: Is a directory/, "merge", "--out", dir, *paths)
      assert_refused(1, %r{cannot write /nonexistent/x: No such file}, "merge", "--out", "/nonexistent/x", *paths)
      assert_refused(1, %r{cannot write /dev/full: No space left}, "merge", "--out", "/dev/full", *paths)
      assert_refused(1, /cannot read .*: No such file/, "merge", "--out", "#{dir}/new", "/nonexistent")
      refute_path_exists "#{dir}/new"
      assert_refused(2, /name the profiles/, "merge", "--out", "x")
      assert_refused(2, /name the file to write/, "merge", *paths)
    end
  end

  def test_other_modes_are_refused
    with_dumps(2) do |dir, paths|
      File.binwrite("#{dir}/cpu", Marshal.dump({ version: 1.2, mode: :cpu, interval: 1000, frames: {}, samples: 0 }))
      assert_refused(1, /cannot add .*cpu: cannot combine/, "merge", "--out", "#{dir}/all", *paths, "#{dir}/cpu")
    end
  end

  def test_every_format_can_be_converted_to
    with_dumps(2, raw: true) do |dir, paths|
      help, = ringprof("convert", "--help")
      require "ringprof/report"
      (RingProf::Report.formats.keys - %w[method file]).each do |format|
        assert_includes help, format
        out, err, status = ringprof("convert", "--to", format, *paths)
        assert_equal [0, ""], [status.exitstatus, err], format
        refute_empty out, format
        _, err, = ringprof("convert", "--to", format, "--out", "#{dir}/out", *paths)
        assert_empty err
        assert_equal out.b, File.binread("#{dir}/out"), format
      end
      out, = ringprof("convert", "--to", "json", *paths)
      assert_equal 2, JSON.parse(out)["samples"]
      out, = ringprof("convert", "--to", "dump", paths.first, paths.first)
      assert_equal 4, Marshal.load(out.b)[:samples]
    end
  end

  def test_bad_input_of_convert
    with_dumps(2) do |dir, paths|
      assert_refused(2, /name the format with --to/, "convert", *paths)
      assert_refused(2, /invalid argument: --to nonsense/, "convert", "--to", "nonsense", *paths)
      assert_refused(2, /name the profile/, "convert", "--to", "json")
      assert_refused(1, /cannot read .*: Is a directory/, "convert", "--to", "json", Dir.tmpdir)
      assert_refused(1, /does not include raw samples/, "convert", "--to", "stackcollapse", *paths)
      # Found out when the file is open.
      File.write("#{dir}/kept", "precious")
      assert_refused(1, /does not include raw samples/, "convert", "--to", "stackcollapse", "--out", "#{dir}/kept", *paths)
      assert_equal %w[kept p0], Dir.children(dir).sort
      assert_equal "precious", File.read("#{dir}/kept")
    end
  end

  private

  def with_dumps(*counts, **options)
    in_directory do |dir|
      paths = counts.each_with_index.map do |count, number|
        File.join(dir, "p#{number}").tap { |path| RingProf.run(mode: :custom, out: path, **options) { count.times { sample_here } }.close }
      end
      yield dir, paths
    end
  end
end
