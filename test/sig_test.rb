# frozen_string_literal: true

require "test_helper"
require "ringprof/profile"
require "ringprof/report"

# sig/ringprof.rbs names what there is, no more and no less.
class SigTest < Minitest::Test
  # Reading Ruby's own signatures takes a second: once is enough.
  def self.builder
    @builder ||= begin
      require "rbs"
      loader = RBS::EnvironmentLoader.new
      loader.add(path: Pathname(File.expand_path("../sig", __dir__)))
      RBS::DefinitionBuilder.new(env: RBS::Environment.from_loader(loader).resolve_type_names)
    end
  end

  def setup
    # Its extension keeps classes in C variables that nothing pins: once they are moved, parsing crashes, with no profiler near.
    skip "rbs does not survive compaction" if ENV["RINGPROF_HARD"] == "compact"
    @builder = self.class.builder
  rescue LoadError
    skip "rbs is not installed"
  end

  def test_module_functions
    assert_equal declared(@builder.build_singleton(type("RingProf")), "RingProf"), RingProf.singleton_methods(false).sort
  end

  def test_profile
    definition = @builder.build_instance(type("RingProf::Profile"))
    assert_equal RingProf::Profile.public_instance_methods(false).sort, declared(definition, "RingProf::Profile") - [:initialize]
    definition = @builder.build_singleton(type("RingProf::Profile"))
    assert_equal RingProf::Profile.singleton_methods(false).sort, declared(definition, "RingProf::Profile") - [:new]
    frame = @builder.build_instance(type("RingProf::Profile::Frame"))
    assert_equal RingProf::Profile::Frame.members.sort, declared(frame, "RingProf::Profile::Frame").reject { |name| name.end_with?("=") }
  end

  def test_text_report
    definition = @builder.build_instance(type("RingProf::Report::Text"))
    assert_equal RingProf::Report::Text.public_instance_methods(false).sort, declared(definition, "RingProf::Report::Text") - [:initialize]
  end

  private

  def type(name)
    *path, last = name.split("::").map(&:to_sym)
    RBS::TypeName.new(name: last, namespace: RBS::Namespace.new(path: path, absolute: true))
  end

  def declared(definition, owner)
    definition.methods.select { |_, method| method.defined_in.to_s == "::#{owner}" }.keys.sort
  end
end
