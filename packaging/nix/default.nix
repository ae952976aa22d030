# Weft for Nix, built from the tree that this file is in: nix-build packaging/nix
{ pkgs ? import <nixpkgs> { } }:
let
  inherit (pkgs) lib stdenv;
  # opened at run time, by their names
  opened = [ pkgs.llvmPackages.libllvm.lib pkgs.curl.out pkgs.libmicrohttpd.out pkgs.libjpeg.out pkgs.libpng.out pkgs.libwebp pkgs.libsndfile.out ];
  header = builtins.readFile ../../include/weft/base.h;
  number = part: builtins.head (builtins.match ".*#define WEFT_VERSION_${part} ([0-9]+)\n.*" header);
in
stdenv.mkDerivation {
  pname = "weft";
  version = lib.concatMapStringsSep "." number [ "MAJOR" "MINOR" "PATCH" ];
  src = lib.cleanSource ../..;
  nativeBuildInputs = [ pkgs.cmake pkgs.ninja pkgs.pkg-config pkgs.makeWrapper pkgs.gzip ];
  buildInputs = [
    pkgs.pcre2 pkgs.utf8proc pkgs.jansson pkgs.nettle pkgs.sqlite pkgs.libmicrohttpd
    pkgs.curl pkgs.libjpeg pkgs.libpng pkgs.libwebp pkgs.libsndfile pkgs.opencl-headers
  ];
  cmakeFlags = [ "-DWEFT_TESTS=OFF" ];
  postInstall = ''
    wrapProgram $out/bin/weft --prefix LD_LIBRARY_PATH : ${lib.makeLibraryPath opened}
  '';
  meta = {
    description = "Runs, serves and measures large language models in GGUF files";
    license = lib.licenses.mit;
    platforms = lib.platforms.linux;
    mainProgram = "weft";
  };
}
