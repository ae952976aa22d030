#!/bin/bash
# Writes what is made from the program's table of options into docs/: the lists in the manual page and in from-llama.cpp.md, and
# completion for bash, zsh and fish.  A generated part stands between a line that ends with "made by: weft ARGUMENTS" and one with "made so far".
#   scripts/docs.sh [WEFT]           WEFT: the program, build/weft by default
#   scripts/docs.sh --check [WEFT]   changes nothing; status 1 and the difference where a file is not current
set -euo pipefail
cd "$(dirname "$0")/.."
check=false
if [ "${1:-}" = --check ]; then check=true; shift; fi
weft=${1:-build/weft}
new=$(mktemp)
trap 'rm -f "$new"' EXIT
status=0

put() {   # the file that $new is to be
  if $check; then diff -u "$1" "$new" || status=1; else cat "$new" >"$1"; fi
}

for shell in bash zsh fish; do
  "$weft" help --as "$shell" >"$new"
  put "docs/weft.$shell"
done
for file in docs/weft.1 docs/from-llama.cpp.md docs/options.md docs/environment.md; do
  inside=false
  while IFS= read -r line; do
    case "$line" in
      *'made so far'*) inside=false;;
    esac
    $inside || printf '%s\n' "$line"
    case "$line" in
      *'made by: weft '*)
        inside=true
        arguments=${line#*made by: weft }
        read -ra words <<<"${arguments%% -->*}"
        "$weft" "${words[@]}";;
    esac
  done <"$file" >"$new"
  put "$file"
done
exit $status
