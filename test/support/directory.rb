# frozen_string_literal: true

require "fileutils"
require "tmpdir"

# A directory for each test, gone after it.
module Directory
  def setup
    super
    @directory = Dir.mktmpdir("ringprof-test")
  end

  def teardown
    FileUtils.rm_rf(@directory)
    super
  end
end
