#!/usr/bin/env bash
# RPM packages by CPack, of the same components as the Debian packages: see deb.sh, which makes both kinds.
set -euo pipefail
exec "$(dirname "$0")/deb.sh" --rpm "$@"
