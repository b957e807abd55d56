# frozen_string_literal: true

module RingProf
  # Holds ticks back while this process becomes another program. A signal that is still pending then
  # goes along, and the new program, which has no handler for it, would die of it. When exec fails,
  # the profile goes on.
  module Exec
    # The arguments are those of `Kernel#exec`.
    #
    # @raise [SystemCallError] when the program cannot be run
    def exec(...)
      Native.hold
      super
    ensure
      Native.release
    end
  end
  private_constant :Exec

  # As a private method of every object, and as a function of Kernel and of Process.
  Kernel.prepend(Exec.clone.module_eval { private(:exec) and self })
  [Kernel, Process].each { |owner| owner.singleton_class.prepend(Exec) }
end
