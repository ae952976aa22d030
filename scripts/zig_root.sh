#!/usr/bin/env bash
# Makes the libraries that Weft links, for systems that zig cc compiles for: Windows, macOS, and Linux with an old glibc or with musl.
set -euo pipefail

usage() {
  cat <<'END'
usage: scripts/zig_root.sh SYSTEM ROOT

Builds the static libraries of Weft for SYSTEM into ROOT, from Debian's source packages and with zig cc, and writes ROOT/toolchain.cmake,
with which scripts/build.sh --zig compiles Weft.  What is there already stays.  SYSTEM is windows, macos, linux-x86_64, linux-aarch64
(glibc 2.28 or newer: for wheels), musl-x86_64 or musl-aarch64 (musl, for the static program).  For Windows ROOT/LLVM.dll is LLVM's
C API, of the Python package llvm-nanobind: it is needed to run, in the folder of weft.exe or in the PATH, and any LLVM-C.dll does.
zig is that of the Python package ziglang ($WEFT_ZIG: another one).  Debian's packages are fetched by an apt that has its state below
ROOT.apt; the tools that are needed: cmake, make, autoconf, tclsh.
END
}

say() { echo "weft: $*" >&2; }
case "${1:-}" in -h|--help) usage; exit 0;; esac
[ $# -eq 2 ] || { usage >&2; exit 2; }
case "$1" in
  windows) target=x86_64-windows-gnu host=x86_64-w64-mingw32 cmake_system=Windows processor=AMD64;;
  macos) target=aarch64-macos host=aarch64-apple-darwin cmake_system=Darwin processor=arm64;;
  linux-x86_64|linux-aarch64) processor=${1#*-} target=${1#*-}-linux-gnu.2.28 host=${1#*-}-linux-gnu cmake_system=Linux;;
  musl-x86_64|musl-aarch64) processor=${1#*-} target=${1#*-}-linux-musl host=${1#*-}-linux-musl cmake_system=Linux;;
  *) say "unknown system '$1'"; usage >&2; exit 2;;
esac
mkdir -p "$2"
root=$(cd "$2" && pwd)
own=$root.apt
zig=${WEFT_ZIG:-$(python3 -c 'import os, ziglang; print(os.path.join(os.path.dirname(ziglang.__file__), "zig"))' 2>/dev/null || command -v zig || true)}
[ -x "$zig" ] || { say "no zig: pip install ziglang, or name one in WEFT_ZIG"; exit 1; }
for tool in apt-get dpkg-source cmake make autoconf tclsh; do
  command -v $tool >/dev/null || { say "no $tool here"; exit 1; }
done
mkdir -p "$own/lists/partial" "$own/archives/partial" "$own/sources" "$root/bin" "$root/lib" "$root/include"
log=$own/log
quietly() { "$@" >"$log" 2>&1 </dev/null || { tail -n 30 "$log" >&2; say "$1 failed; all of it: $log"; exit 1; }; }

# The compiler and its tools as programs, which is what configure scripts and CMake expect.
flags="-target $target"
[ $cmake_system != Linux ] || flags+=" -fPIC"   # the libraries go into libweft.so
for tool in cc ar ranlib objcopy rc; do
  case $tool in cc) call="cc $flags";; *) call=$tool;; esac
  printf '#!/bin/sh\nexec "%s" %s "$@"\n' "$zig" "$call" >"$root/bin/$host-$tool"
  chmod +x "$root/bin/$host-$tool"
done
# Resources of libraries hold their version, for those who look at a DLL: empty objects stand for them.
cat >"$root/bin/$host-windres" <<END
#!/bin/sh
while [ \$# -gt 1 ]; do [ "\$1" = -o ] && exec "$root/bin/$host-cc" -c -x c /dev/null -o "\$2"; shift; done
END
chmod +x "$root/bin/$host-windres"
cat >"$root/toolchain.cmake" <<END
set(CMAKE_SYSTEM_NAME $cmake_system)
set(CMAKE_SYSTEM_PROCESSOR $processor)
set(CMAKE_C_COMPILER $root/bin/$host-cc)
set(CMAKE_AR $root/bin/$host-ar CACHE FILEPATH "")
set(CMAKE_RANLIB $root/bin/$host-ranlib CACHE FILEPATH "")
set(WEFT_SYSTEM_NAME $1)
set(WEFT_RC $root/bin/$host-rc)
set(CMAKE_FIND_ROOT_PATH $root)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_LIBDIR} $root/lib/pkgconfig)
set(ENV{PKG_CONFIG_PATH} "")
END

# An apt of its own, which knows Debian's source packages.
sources() {
  sed 's/^deb /deb-src /' /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null | grep '^deb-src .*debian' >"$own/own.list" || true
  for file in /etc/apt/sources.list.d/*debian*.sources; do
    [ ! -f "$file" ] || sed 's/^Types:.*/Types: deb-src/' "$file" >"$own/$(basename "$file")"
  done
  mkdir -p "$own/parts"
  mv "$own"/*.list "$own"/*.sources "$own/parts/" 2>/dev/null || true
  cat >"$own/apt.conf" <<END
Dir::State "$own";
Dir::State::Lists "$own/lists";
Dir::Cache "$own";
Dir::Etc::SourceList "/dev/null";
Dir::Etc::SourceParts "$own/parts";
Acquire::Retries "3";
APT::Sandbox::User "";
END
  APT_CONFIG=$own/apt.conf quietly apt-get update
}
fetch() {   # PACKAGE: its folder, in `from`. Of several versions the newest that can be had.
  from=$(find "$own/sources" -mindepth 1 -maxdepth 1 -type d -name "$1-*" | head -n 1)
  [ -z "$from" ] || return 0
  [ -f "$own/apt.conf" ] || sources
  say "downloading the source of $1"
  export APT_CONFIG=$own/apt.conf
  for version in $(apt-cache showsrc "$1" | sed -n 's/^Version: //p' | sort -rV); do
    (cd "$own/sources" && apt-get source "$1=$version") >"$log" 2>&1 </dev/null && break
  done
  unset APT_CONFIG
  from=$(find "$own/sources" -mindepth 1 -maxdepth 1 -type d -name "$1-*" | head -n 1)
  [ -n "$from" ] || { tail -n 30 "$log" >&2; say "no source of $1 could be had"; exit 1; }
}
by_cmake() {   # FOLDER OPTIONS: builds and installs
  shift
  quietly cmake -S "$from" -B "$from/for-$target" -DCMAKE_TOOLCHAIN_FILE="$root/toolchain.cmake" -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_INSTALL_PREFIX="$root" -DCMAKE_INSTALL_LIBDIR=lib -DBUILD_SHARED_LIBS=OFF -DCMAKE_POLICY_VERSION_MINIMUM=3.5 "$@"
  quietly cmake --build "$from/for-$target" -j "$(nproc)"
  quietly cmake --install "$from/for-$target"
}
by_configure() {   # FOLDER OPTIONS
  shift
  mkdir -p "$from/for-$target"
  (cd "$from/for-$target"
   export CC=$root/bin/$host-cc AR=$root/bin/$host-ar RANLIB=$root/bin/$host-ranlib RC=$root/bin/$host-windres CC_FOR_BUILD=cc
   quietly ../configure --host="$host" --prefix="$root" --libdir="$root/lib" --disable-shared --enable-static "$@"
   quietly make -j "$(nproc)"
   quietly make install)
}
# Of what is opened at run time only headers are needed: this machine's.
headers=(curl jpeglib.h jmorecfg.h jerror.h jconfig.h png.h pngconf.h pnglibconf.h webp sndfile.h CL)
[ $cmake_system != Linux ] || headers+=(zmq.h msgpack msgpack.h vulkan vk_video)
for header in "${headers[@]}"; do
  for folder in /usr/include "/usr/include/$(uname -m)-linux-gnu"; do
    [ ! -e "$folder/$header" ] || cp -RL "$folder/$header" "$root/include/"
  done
done
have() { [ -f "$root/lib/pkgconfig/$1.pc" ]; }

have jansson || { fetch jansson; by_cmake "$from" -DJANSSON_BUILD_DOCS=OFF -DJANSSON_WITHOUT_TESTS=ON -DJANSSON_EXAMPLES=OFF; }
have libutf8proc || { fetch utf8proc; by_cmake "$from"; }
have libpcre2-8 || { fetch pcre2; by_cmake "$from" -DPCRE2_BUILD_PCRE2GREP=OFF -DPCRE2_BUILD_TESTS=OFF -DPCRE2_SUPPORT_JIT=OFF; }
have nettle || { fetch nettle; by_configure "$from" --disable-documentation --disable-public-key --disable-assembler --disable-openssl; }
have libmicrohttpd || { fetch libmicrohttpd; by_configure "$from" --disable-https --disable-doc --disable-examples --disable-curl; }
# SQLite's own configure script asks for tools of the system that it is built for.
if ! have sqlite3; then
  fetch sqlite3
  (cd "$from" && CC=cc quietly ./configure && quietly make sqlite3.c sqlite3.h)
  quietly "$root/bin/$host-cc" -O2 -DSQLITE_THREADSAFE=1 -DSQLITE_OMIT_LOAD_EXTENSION -c "$from/sqlite3.c" -o "$from/sqlite3-$target.o"
  rm -f "$root/lib/libsqlite3.a"
  quietly "$root/bin/$host-ar" rcs "$root/lib/libsqlite3.a" "$from/sqlite3-$target.o"
  mkdir -p "$root/include" "$root/lib/pkgconfig"
  cp "$from/sqlite3.h" "$root/include"
  printf 'Name: sqlite3\nDescription: SQL database\nVersion: %s\nCflags: -I%s\nLibs: -L%s -lsqlite3\n' \
    "$(cat "$from/VERSION")" "$root/include" "$root/lib" >"$root/lib/pkgconfig/sqlite3.pc"
fi
if [ "$1" = windows ] && [ ! -f "$root/LLVM.dll" ]; then
  say "downloading LLVM.dll"
  quietly python3 -m pip download --no-deps --only-binary :all: --platform win_amd64 --python-version 3.12 -d "$own" llvm-nanobind
  python3 -m zipfile -e "$own"/llvm_nanobind-*.whl "$own/llvm"
  mkdir -p "$root/licences"
  cp "$own"/llvm/llvm_nanobind-*.dist-info/licenses/LICENSE "$root/licences/llvm-nanobind.txt"
  mv "$own/llvm/llvm/LLVM.dll" "$root/"
fi
# The licences of all that is linked: zig's own runtime, the C library that it links, the libraries, and what their files refer to.
mkdir -p "$root/licences"
cp "$(dirname "$zig")/LICENSE" "$root/licences/zig.txt"
case "$1" in
  windows) cp "$(dirname "$zig")/lib/libc/mingw/COPYING" "$root/licences/mingw-w64.txt";;
  musl-*) cp "$(dirname "$zig")/lib/libc/musl/COPYRIGHT" "$root/licences/musl.txt";;
esac
for file in "$own"/sources/*/debian/copyright; do cp "$file" "$root/licences/$(basename "${file%/debian/copyright}").txt"; done
for name in Apache-2.0 GPL-2 GPL-3 LGPL-2.1 LGPL-3; do cp "/usr/share/common-licenses/$name" "$root/licences/$name.txt"; done
say "the libraries for $1 are in $root"
