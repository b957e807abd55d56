# frozen_string_literal: true

require "support/serving/database"
require "support/serving/load"
require "support/serving/server"
require "rbconfig"

# A web server as people run them: Puma in cluster mode, a Rack application, a database, and clients.
# For test/worker/puma_test.rb and bench/puma.rb.
module Serving
  module_function

  # What this Ruby or this machine lacks; empty when all is there.
  #
  # @return [Array<String>]
  def missing
    gems = %w[puma/cli rack pg].reject { |feature| loads?(feature) }.map { |feature| "#{feature} does not load in Ruby #{RUBY_VERSION}" }
    programs = { "wrk" => Load.program, "postgres" => Database.programs, "setpriv" => Programs.find("setpriv") }
    gems + programs.reject { |_name, path| path }.keys.map { |name| "there is no #{name}" }
  end

  # In a Ruby of its own: the servers' is one too, and this one stays as it was.
  def loads?(feature)
    system(RbConfig.ruby, "-e", "require ARGV.fetch(0)", feature, out: File::NULL, err: File::NULL)
  end
end
