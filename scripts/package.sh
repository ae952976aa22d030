#!/usr/bin/env bash
# Makes packages: one kind a call, each by its own script in scripts/package/.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
kinds=$(cd "$here/scripts/package" && for file in *.sh; do echo -n "${file%.sh} "; done)

usage() {
  cat <<END
usage: scripts/package.sh KIND [OPTIONS]

Makes packages of Weft.  KIND is one of: ${kinds% }.
'scripts/package.sh KIND --help' says what it makes and which options it takes.
END
}

case "${1:-}" in
  -h|--help) usage; exit 0;;
  ""|*[!a-z]*) usage >&2; exit 2;;
esac
kind=$1
shift
[ -x "$here/scripts/package/$kind.sh" ] || { echo "weft: no package of kind '$kind'" >&2; usage >&2; exit 2; }
exec "$here/scripts/package/$kind.sh" "$@"
