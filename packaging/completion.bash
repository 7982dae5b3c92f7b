# Bash completion of leeway, leeway-server and leeway-client. It asks the programs
# themselves (--help), so that it knows what they know.
_leeway_section() { # _leeway_section TITLE: first words of the lines under a heading of --help
  awk -v title="$1" '$0 ~ "^" title { inside = 1; next } /^[^ ]/ { inside = 0 } inside && /^  [^ ]/ { print $1 }'
}

_leeway() {
  local current=${COMP_WORDS[COMP_CWORD]} command=("${COMP_WORDS[0]}") help commands word
  help=$("${command[@]}" --help 2>/dev/null)
  commands=$(_leeway_section Subcommands <<<"$help")
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case " ${commands//$'\n'/ } " in
      *" $word "*)
        command+=("$word")
        help=$("${command[@]}" --help 2>/dev/null)
        commands=$(_leeway_section Subcommands <<<"$help")
        ;;
    esac
  done
  if [[ $current == -* ]]; then
    local options
    options=$(_leeway_section Options <<<"$help" | tr ',' '\n' | grep '^-')
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$current")
  elif [[ -n $commands ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$commands" -- "$current")
  fi
}
complete -o default -F _leeway leeway leeway-server leeway-client
