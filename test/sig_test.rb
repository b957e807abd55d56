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

  def test_what_belongs_to_a_profile
    [RingProf::Profile::Stacks, RingProf::Report::Format, RingProf::Middleware].each { |owner| assert_declared owner }
    names = @builder.build_singleton(type("RingProf::Profile::Names"))
    assert_equal RingProf::Profile::Names.singleton_methods(false).sort, declared(names, "RingProf::Profile::Names")
    { RingProf::Profile::Stacks::Run => 4, RingProf::Report::Flamegraph::Cell => 4 }.each do |owner, size|
      members = declared(@builder.build_instance(type(owner.name)), owner.name).reject { |name| name.end_with?("=") }
      assert_equal [size, owner.members.sort], [members.size, members]
    end
  end

  def test_reports
    reports = RingProf::Report.constants.map { |name| RingProf::Report.const_get(name) }
    reports.select! { |owner| owner.is_a?(Class) && owner.method_defined?(:write) }
    assert_operator reports.size, :>, 12
    reports.each { |owner| assert_declared owner }
    definition = @builder.build_singleton(type("RingProf::Report"))
    assert_equal RingProf::Report.singleton_methods(false).sort, declared(definition, "RingProf::Report")
  end

  def test_stackprofs_names
    require "ringprof/stackprof"
    [StackProf::Report, StackProf::Middleware].each do |owner|
      assert_declared owner
      definition = @builder.build_singleton(type(owner.name))
      assert_equal owner.singleton_methods(false).sort, declared(definition, owner.name) - [:new], owner.name
    end
  end

  private

  def type(name)
    *path, last = name.split("::").map(&:to_sym)
    RBS::TypeName.new(name: last, namespace: RBS::Namespace.new(path: path, absolute: true))
  end

  def assert_declared(owner)
    definition = @builder.build_instance(type(owner.name))
    members = owner < Struct ? owner.members.flat_map { |name| [name, :"#{name}="] } : []
    assert_equal owner.public_instance_methods(false).sort - members, declared(definition, owner.name) - [:initialize] - members, owner.name
  end

  def declared(definition, owner)
    definition.methods.select { |_, method| method.defined_in.to_s == "::#{owner}" }.keys.sort
  end
end
