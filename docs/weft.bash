# Completion of weft for bash: source this file, or install it as /usr/share/bash-completion/completions/weft.
# Commands and options come from the program's own help, so they are never out of date.
_weft() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} weft=${COMP_WORDS[0]} words
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ] || { [ "$COMP_CWORD" -eq 2 ] && [ "$before" = help ]; }; then
    words="$("$weft" --help 2>/dev/null | sed -n 's/^  \([a-z][a-z]*\) .*/\1/p' | grep -v '^weft$') help --help --version"
  else
    case "$before" in
      -m|--model) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -d -- "$word"; compgen -f -X '!*.gguf' -- "$word"); return;;
      -f|--file|--stats|--grammar-file|-jf|--json-schema-file|--messages|--tools|--chat-template-kwargs|--chat-template-file|--kl-divergence-base|--save-all-logits|--imatrix|--tensor-type-file) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$word"); return;;
      --precision) words="fast exact";;
      cache) words="list verify clear export import";;
      -co|--color) words="auto on off";;
      -o|--output) words="md json jsonl csv sql";;
      *) words=$("$weft" help "${COMP_WORDS[1]}" 2>/dev/null | grep '^  -' | sed 's/^  \(\(-[^ ]*,\? \)*-[^ ]*\).*/\1/; s/,//g');;
    esac
  fi
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
  [ "${COMP_WORDS[1]}" != template ] || [ "$COMP_CWORD" -lt 2 ] || mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- "$word")
}
complete -F _weft weft
