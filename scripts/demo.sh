#!/usr/bin/env bash
# From a bare Debian machine to generated text: installs what is missing, builds, and runs the small model of models/.
# The text, prompt included, goes to stdout; progress and figures go to stderr.
set -euo pipefail

case "${1:-}" in
  -h|--help)
    cat <<'END'
usage: scripts/demo.sh [PROMPT] [OPTIONS OF weft run]

Installs what is missing, builds Weft and continues PROMPT (default: "def ") with the small model in models/, which was
trained on Python source.  The text goes to stdout, prompt included, the rest to stderr.
Example: scripts/demo.sh "class Node" -n 200 --temp 0.8
END
    exit 0;;
esac

here=$(cd "$(dirname "$0")/.." && pwd)
prompt=${1-def }
[ $# -eq 0 ] || shift
"$here/scripts/setup.sh" demo
"$here/scripts/build.sh"
# Without BOS: to this model that token is the beginning of a file, where a function or a class seldom stands.  A model so
# small needs a low temperature to keep to the point and a penalty against repeating itself.
printf '%s' "$prompt"
exec "$here/build/weft" run -m "$here/models/tinypy.gguf" -p "$prompt" --no-bos -n 128 --temp 0.5 --repeat-penalty 1.1 "$@"
