# frozen_string_literal: true

require "test_helper"

# Names that cannot be had, or not in UTF-8: the profile is there all the same.
class NamesFaultTest < RingProf::TestCase
  def test_classes_that_tell_no_name
    hostile = Class.new do
      %i[name to_s inspect hash == class].each { |name| define_singleton_method(name) { |*| raise "no #{name}" } }
      %i[name to_s inspect hash == class].each { |name| define_method(name) { |*| raise "no #{name}" } }

      def self.on_the_class
        RingProf.sample
      end

      def on_the_instance
        RingProf.sample
      end
    end
    instance = hostile.allocate
    instance.singleton_class.class_eval { define_method(:on_the_singleton) { RingProf.sample } }
    profile do
      hostile.on_the_class
      instance.on_the_instance
      instance.on_the_singleton
    end
  end

  ENCODINGS = {
    "UTF-8" => "m\xff", "BINARY" => "m\xff\xfe", "US-ASCII" => "m\xe9", "EUC-JP" => "\xa4\xa2", "Windows-31J" => "\x82\xa0",
    "Emacs-Mule" => "\x92\xa4\xa2", "Big5-HKSCS" => "\x88\x66", "stateless-ISO-2022-JP" => "\x92\xa4\xa2", "GB18030" => "\x81\x30\x81\x30"
  }.freeze

  def test_names_in_every_encoding
    objects = ENCODINGS.map do |encoding, bytes|
      name = bytes.dup.force_encoding(encoding)
      owner = Class.new
      # The class has a name in one encoding, and the method in another.
      Encodings.const_set("\u00c9#{encoding.tr("-", "_")}", owner)
      if name.valid_encoding? && name.encoding != Encoding::BINARY
        owner.class_eval("def #{name}\nRingProf.sample\nend".dup.force_encoding(name.encoding))
      else
        owner.define_method(symbol(name)) { RingProf.sample }
      end
      [owner.new, symbol(name)]
    end
    results = profile { objects.each { |object, name| object.__send__(name) } }
    assert_equal ENCODINGS.length, results[:samples]
  end

  def test_paths_in_every_encoding
    procs = ENCODINGS.map { |encoding, bytes| eval("proc { RingProf.sample }", nil, "/#{bytes}".dup.force_encoding(encoding), 1) }
    assert_equal ENCODINGS.length, profile { procs.each(&:call) }[:samples]
  end

  # No way leads from this encoding to UTF-8.
  def test_an_encoding_without_a_converter
    name = "K\x92\xa4\xa2".dup.force_encoding("Emacs-Mule")
    assert_raises(Encoding::ConverterNotFoundError) { name.encode("UTF-8") }
    owner = Class.new { class_eval("def \u00e9\nRingProf.sample\nend") }
    Encodings.const_set(name.to_sym, owner)
    compiled = RubyVM::InstructionSequence.compile("RingProf.sample", name, name)
    results = profile do
      owner.new.__send__(:"\u00e9")
      compiled.eval
    end
    assert_equal 2, results[:samples]
    frame_named(results, "<compiled>")
    frame_named(results, /\u00e9\z/)
  end

  def test_methods_of_string_are_not_ours_to_call
    script = <<~RUBY
      require "ringprof"
      def work
        RingProf.sample
      end
      RingProf.start(mode: :custom)
      work
      RingProf.stop
      class String
        %i[dup scrub encode to_str to_s + force_encoding].each do |name|
          define_method(name) { |*| raise "String#\#{name} was called" }
        end
      end
      results = RingProf.results
      $stdout.write(results[:frames].each_value.first[:name])
    RUBY
    assert_equal "RingProf.sample", ruby!(script)
  end

  # Whatever classes are called, in all the ways that Ruby lets them be.
  module Encodings
  end

  private

  def symbol(name)
    name.to_sym
  rescue EncodingError
    name.dup.force_encoding("BINARY").to_sym
  end

  def profile(&block)
    RingProf.start(mode: :custom, raw: true)
    block.call
    RingProf.stop
    results = RingProf.results
    assert_valid_results(results)
    results
  end
end
