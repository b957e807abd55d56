# frozen_string_literal: true

require "test_helper"
require "rbconfig"

# What the VM's functions need of the loader in every thread that is sampled.
class LoaderTest < RingProf::TestCase
  def test_a_shared_library_of_ruby_is_looked_after_and_a_program_is_not
    skip "the loader's table is known of glibc on x86-64, and this is #{RUBY_PLATFORM}" unless RUBY_PLATFORM.match?(/\Ax86_64-linux(-gnu)?\z/)

    if RbConfig::CONFIG["ENABLE_SHARED"] == "yes"
      assert_operator RingProf::Testing.watched_module, :>, 0
    else
      assert_equal 0, RingProf::Testing.watched_module
    end
  end

  # Threads that are born, and live through, while extensions are loaded: each is sampled, whatever the loader does.
  def test_threads_are_sampled_while_extensions_are_loaded
    script = <<~RUBY
      require "ringprof"
      require "support/work"
      results = RingProf.run(mode: :cpu, interval: 50, raw: true) do
        threads = Array.new(3) { Thread.new { Work.burn_cpu(0.2) } }
        # Always built, whatever libraries the interpreter was built with.
        %w[socket digest/sha2 ripper etc strscan objspace io/nonblock pty coverage].each { |name| require name }
        threads.each(&:join)
      end
      lost = RingProf.stats[:lost]
      puts results[:samples] > 5000, lost[:loader] * 100 <= RingProf.stats[:received]
    RUBY
    assert_equal "true\ntrue\n", ruby!(script)
  end
end
