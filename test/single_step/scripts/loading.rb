# frozen_string_literal: true

# Extensions with thread-local storage are loaded: the next access of the VM to its own makes the dynamic linker renew
# this thread's table.

stepped do
  ENV.fetch("RINGPROF_EXTENSIONS").split(":").each { |path| require path }
end
