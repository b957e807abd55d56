# frozen_string_literal: true

module RingProf
  module CLI
    # The manual page and the shells' completions: from the help texts, which are the only ones there are.
    module Manual
      AUTORUN = File.expand_path("../autorun.rb", __dir__)
      STATUSES = {
        "0" => "all went well.", "1" => "it did not, or a rule of --fail-if holds.", "2" => "the command line makes no sense.",
        "126, 127" => "run: the command cannot be run, or there is none.", "130" => "interrupted.", "other" => "run: the command's own."
      }.freeze
      private_constant :AUTORUN, :STATUSES

      class << self
        # @return [String] the manual page, as man reads it
        def page
          [
            %(.TH RINGPROF 1 "" "ringprof #{VERSION}"), ".SH NAME", "ringprof \\- a sampling profiler for Ruby",
            ".SH SYNOPSIS", *commands.flat_map(&:synopsis).flat_map { |line| [".br", roff(line)] }.drop(1),
            ".SH DESCRIPTION", "Profiles Ruby programs without a change to them, and reads what it, or StackProf, has written.", ".SH COMMANDS",
            *commands.flat_map { |command| section(command) },
            ".SH ENVIRONMENT", "Of a program that is started with", ".BR \\-rringprof/autorun :", *pairs(environment),
            ".SH EXIT STATUS", *pairs(STATUSES)
          ].join("\n") << "\n"
        end

        # @return [String] a script to be sourced
        def bash
          cases = commands.map do |command|
            choices = command.switches.select(&:choices).map do |switch|
              "      #{command.class.command_name}:#{switch.long}) COMPREPLY=($(compgen -W \"#{switch.choices.join(" ")}\" -- \"$word\")); return ;;"
            end
            [choices, "    #{command.class.command_name}) words=\"#{command.switches.map(&:long).join(" ")}\" ;;"]
          end
          <<~BASH
            # bash completion of ringprof: source <(ringprof completion bash)
            _ringprof() {
              local word="${COMP_WORDS[COMP_CWORD]}" name="${COMP_WORDS[1]}" words="" i
              if ((COMP_CWORD == 1)); then
                COMPREPLY=($(compgen -W "#{names.join(" ")} --help --version" -- "$word") $(compgen -f -- "$word"))
                return
              fi
              # What comes after -- is another command's.
              if [[ "$name" == run ]]; then
                for ((i = 2; i < COMP_CWORD; i++)); do
                  [[ "${COMP_WORDS[i]}" != -- ]] || { _command_offset $((i + 1)) 2>/dev/null || COMPREPLY=($(compgen -c -f -- "$word")); return; }
                done
              fi
              case "$name:${COMP_WORDS[COMP_CWORD - 1]}" in
            #{cases.flat_map(&:first).join("\n")}
              esac
              case "$name" in
                        help) words="#{names.join(" ")}" ;;
                completion) words="bash zsh fish man --help" ;;
            #{cases.map(&:last).grep_v(/^ *completion\)/).join("\n")}
              esac
              if [[ "$word" == -* || "$name" == help || "$name" == completion ]]; then
                COMPREPLY=($(compgen -W "$words" -- "$word"))
              else
                COMPREPLY=($(compgen -f -- "$word"))
              fi
            }
            complete -o filenames -F _ringprof ringprof
          BASH
        end

        # @return [String] a script to be sourced, or a file `_ringprof` in fpath
        def zsh
          cases = commands.map do |command|
            options = command.switches.map { |switch| "      #{zsh_option(switch)} \\" }
            "    #{command.class.command_name})\n      _arguments -S \\\n#{options.join("\n")}\n      '*:file:_files'\n      ;;"
          end
          <<~ZSH
            #compdef ringprof
            # zsh completion of ringprof: source <(ringprof completion zsh)
            _ringprof() {
              if ((CURRENT == 2)); then
                local -a names=(#{commands.map { |command| quoted("#{command.class.command_name}:#{command.class.summary}") }.join(" ")})
                _describe command names
                _files
                return
              fi
              local name="$words[2]"
              shift words
              ((CURRENT--))
              case "$name" in
            #{cases.join("\n")}
                help) _values command #{names.join(" ")} ;;
              esac
            }
            if [[ "$funcstack[1]" == _ringprof ]]; then _ringprof "$@"; else compdef _ringprof ringprof; fi
          ZSH
        end

        # @return [String] a script to be sourced
        def fish
          lines = commands.flat_map do |command|
            name = command.class.command_name
            first = "complete -c ringprof -n __fish_use_subcommand -a #{name} -d #{quoted(command.class.summary)}"
            [first, *command.switches.map { |switch| fish_option(name, switch) }]
          end
          ["# fish completion of ringprof: ringprof completion fish | source", *lines].join("\n") << "\n"
        end

        private

        def commands
          CLI.commands.values.map(&:new)
        end

        def names
          CLI.commands.keys
        end

        def section(command)
          [
            ".SS #{command.class.command_name}", *command.prose.flat_map { |paragraph| [".PP", *paragraph.map { |line| roff(line) }] },
            ".PP", ".B Examples:", ".nf", *command.examples.map { |line| ".RS 4\n#{roff(line)}\n.RE" }, ".fi", ".PP", ".B Options:",
            *command.switches.flat_map { |switch| [".TP", ".B #{roff(switch.title)}", roff(switch.text)] }
          ]
        end

        def pairs(hash)
          hash.flat_map { |name, text| [".TP", ".B #{roff(name)}", roff(text)] }
        end

        # The table that stands where the variables are read.
        def environment
          File.read(AUTORUN, encoding: Encoding::UTF_8).scan(/^# \| (`RINGPROF.*?) \| (.*) \|$/).to_h do |name, text|
            [name.delete("`"), text.delete("`")]
          end
        end

        def roff(text)
          text.gsub("\\", "\\e").gsub("-", "\\-").sub(/\A(?=[.'])/, "\\\\&")
        end

        def quoted(text)
          "'#{text.gsub("'") { "'\\''" }}'"
        end

        def zsh_option(switch)
          text = "#{switch.long}#{"=" if switch.argument}[#{switch.text.gsub(/[\[\]]/) { |mark| "\\#{mark}" }}]"
          text << ":#{switch.argument.downcase.delete("[]=")}:" << (switch.choices ? "(#{switch.choices.join(" ")})" : "_files") if switch.argument
          quoted(text)
        end

        def fish_option(name, switch)
          line = "complete -c ringprof -n '__fish_seen_subcommand_from #{name}' -l #{switch.long.delete_prefix("--")} -d #{quoted(switch.text)}"
          return line unless switch.argument

          switch.choices ? "#{line} -x -a #{quoted(switch.choices.join(" "))}" : "#{line} -r"
        end
      end
    end
  end
end
