#!/usr/bin/env bash
# Puts Debian's arm64 libraries into a folder, for cross-builds and for qemu's user mode.
set -euo pipefail

usage() {
  cat <<'END'
usage: scripts/arm64_root.sh ROOT

Unpacks what Weft needs of Debian's arm64 packages (headers, libraries, LLVM) into ROOT, which is made anew when the list changes.
apt gets lists and a state of its own below ROOT: the system learns no second architecture, no package of it runs a script,
and no rights are needed.  Nothing is started in ROOT; scripts/build.sh --arm64 compiles against it.
END
}

say() { echo "weft: $*" >&2; }
case "${1:-}" in -h|--help) usage; exit 0;; "") usage >&2; exit 2;; esac

packages=(libc6-dev libpcre2-dev libutf8proc-dev libjansson-dev nettle-dev libsqlite3-dev libmicrohttpd-dev libcurl4-openssl-dev
          libjpeg-dev libpng-dev libwebp-dev libsndfile1-dev opencl-c-headers libcmocka-dev)
llvm=(libllvm22 libllvm19)   # the first that apt offers
mkdir -p "$1"
root=$(cd "$1" && pwd)
if [ -f "$root/packages" ] && [ "$(cat "$root/packages")" = "${packages[*]}" ]; then exit 0; fi
if [ ! -f "$root/packages" ] && [ -n "$(ls -A "$root")" ]; then
  [ -d "$root/usr/lib/aarch64-linux-gnu" ] || { say "$root is neither empty nor a folder of arm64 packages"; exit 1; }
  say "$root was filled by hand, and stays as it is"
  exit 0
fi
for tool in apt-get apt-cache dpkg-deb; do
  command -v $tool >/dev/null || { say "no $tool here: $root must be filled by hand with the arm64 packages ${packages[*]} and ${llvm[0]}"; exit 1; }
done

own=$root.apt log=$root.apt/log
: >"$root/packages"          # from here on it is ours, also where this is cut short
rm -rf "$root" "$own"
mkdir -p "$root" "$own/lists/partial" "$own/archives/partial"
: >"$own/status"
cat >"$own/apt.conf" <<END
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
Dir::State "$own";
Dir::State::Lists "$own/lists";
Dir::State::status "$own/status";
Dir::Cache "$own";
Dir::Cache::archives "$own/archives";
Acquire::Retries "3";
APT::Sandbox::User "";
END
export APT_CONFIG=$own/apt.conf
quietly() { "$@" >"$log" 2>&1 </dev/null || { cat "$log" >&2; say "$1 failed"; exit 1; }; }
say "looking up arm64 packages"
quietly apt-get update
wanted=("${packages[@]}")
for package in "${llvm[@]}"; do
  if [ -n "$(apt-cache madison "$package" 2>/dev/null)" ]; then wanted+=("$package"); break; fi
done
say "downloading arm64 libraries"
quietly apt-get install -y --no-install-recommends --download-only "${wanted[@]}"
# What a library never reads is left out: half of the space.
for file in "$own"/archives/*.deb; do
  dpkg-deb --fsys-tarfile "$file" | tar -x -C "$root" --exclude './usr/share/doc*' --exclude './usr/share/man*' --exclude './usr/share/locale*' \
    --exclude './usr/share/perl*' --exclude './usr/bin*' --exclude './usr/sbin*'
done
echo "${packages[*]}" >"$root/packages"
rm -rf "$own"
