# frozen_string_literal: true

require "digest"
require "fileutils"
require "open3"
require "rbconfig"

# The C extension of the tests' own, compiled for the Ruby that runs and kept in build/.
module NativeCallsBuild
  SOURCE = File.join(__dir__, "native_calls/native_calls.c")
  BUILD = File.expand_path("../../build/native_calls", __dir__)

  module_function

  # @return [String] path of the library
  def library
    identity = Digest::MD5.hexdigest([RUBY_DESCRIPTION, RbConfig.ruby, File.read(SOURCE), __FILE__].join("\n"))
    target = File.join(BUILD, identity, "native_calls.#{RbConfig::CONFIG["DLEXT"]}")
    compile(target) unless File.file?(target)
    target
  end

  # Others may compile at the same time: the file appears whole or not at all.
  def compile(target)
    FileUtils.mkdir_p(File.dirname(target))
    partial = "#{target}.#{Process.pid}"
    out, status = Open3.capture2e(*compiler, "-o", partial, SOURCE)
    raise "the tests' C extension does not compile:\n#{out}" unless status.success?

    File.rename(partial, target)
  end

  def compiler
    headers = RbConfig::CONFIG.values_at("rubyhdrdir", "rubyarchhdrdir").flat_map { |path| ["-I", path] }
    [*RbConfig::CONFIG.fetch("CC", "cc").split, "-O2", "-fPIC", "-shared", "-Wall", "-Werror", *headers, "-pthread"]
  end
end

require NativeCallsBuild.library
