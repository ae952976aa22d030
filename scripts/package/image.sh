#!/usr/bin/env bash
# A container image of the Debian packages, by packaging/Containerfile and whichever of buildah, podman and docker is installed.
set -euo pipefail
here=$(cd "$(dirname "$0")/../.." && pwd)

usage() {
  cat <<END
usage: scripts/package.sh image [--dir D] [--base IMAGE] [--llvm PACKAGE] [--tag NAME] [-- OPTIONS]

Makes Debian packages and builds the image NAME of them (default: weft:VERSION) with buildah, podman or docker.  --dir is that of
'scripts/package.sh deb'.  IMAGE is a Debian or Ubuntu of the release on which this runs (default: Debian's or Ubuntu's own image of it).
PACKAGE is LLVM's library (default: libllvm19; "" for none).  OPTIONS go to the builder, after its command 'build'.
END
}

say() { echo "weft: $*" >&2; }
value() { [ $# -ge 2 ] || { say "$1 needs a value"; exit 2; }; }

dir=() base="" llvm=libllvm19 tag=""
while [ $# -gt 0 ]; do
  case "$1" in
    --dir) value "$@"; dir=(--dir "$2"); shift;;
    --base) value "$@"; base=$2; shift;;
    --llvm) value "$@"; llvm=$2; shift;;
    --tag) value "$@"; tag=$2; shift;;
    -h|--help) usage; exit 0;;
    --) shift; break;;
    *) say "unknown option '$1'"; usage >&2; exit 2;;
  esac
  shift
done

builder=""
for one in buildah podman docker; do
  [ -n "$builder" ] || ! command -v $one >/dev/null || builder=$one
done
[ -n "$builder" ] || { say "buildah is missing (Debian's package buildah; podman or docker will do)"; exit 1; }
if [ -z "$base" ]; then
  # shellcheck disable=SC1091
  base=$(. /etc/os-release && case "$ID" in
    debian) echo "docker.io/library/debian:$VERSION_ID-slim";;
    ubuntu) echo "docker.io/library/ubuntu:$VERSION_ID";;
  esac)
  [ -n "$base" ] || { say "this is neither Debian nor Ubuntu: name an image of the release that the packages are for (--base)"; exit 1; }
fi

context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT
"$here/scripts/package/deb.sh" "${dir[@]}" --out "$context/packages" >&2
if [ -z "$tag" ]; then
  version=("$context"/packages/weft_*.deb)
  tag=weft:$(dpkg-deb -f "${version[0]}" Version)
fi
say "building $tag with $builder from $base"
"$builder" build --build-arg "BASE=$base" --build-arg "LLVM=$llvm" -f "$here/packaging/Containerfile" -t "$tag" "$@" "$context" >&2
echo "$tag"
