# frozen_string_literal: true

require "ringprof/cli/manual"

module RingProf
  module CLI
    # `ringprof completion`: scripts for shells.
    class CompletionCommand < Command
      command "completion", "print a shell's completion script, or the manual page"

      KINDS = { "bash" => :bash, "zsh" => :zsh, "fish" => :fish, "man" => :page }.freeze
      private_constant :KINDS

      private

      def banner
        <<~TEXT
          Usage: ringprof completion bash | zsh | fish | man

          Prints what makes a shell complete ringprof's commands and options, or the manual page.

          Examples:
            source <(ringprof completion bash)           in ~/.bashrc; zsh likewise
            ringprof completion fish | source
            ringprof completion man | man -l -

          Options:
        TEXT
      end

      def define(_parser); end

      def perform(arguments)
        usage "name one of #{KINDS.keys.join(", ")}" unless arguments.length == 1 && KINDS.key?(arguments.first)

        print Manual.public_send(KINDS.fetch(arguments.first))
        0
      end
    end
  end
end
