// The compiler: LLVM IR text in, an object file out, within this process, through LLVM's C API.
//
// libLLVM is opened with dlopen at the first compile: a start that finds all kernels in the cache does not pay for
// loading it (tens of milliseconds and 150 MB of address space). Building needs no LLVM headers. Every function may be
// called from several threads at once.
#ifndef WEFT_DEVICE_LLVM_H
#define WEFT_DEVICE_LLVM_H
#include "base/str.h"
#include "device/code.h"

// Compiles a module for this machine's processor family: `cpu` and `features` are LLVM names (from cpu_info.h);
// position-independent, small code model, no fusing or reassociation beyond the text. Instructions of a module with
// RENDER_IN_ORDER (render.h) stay in text order as far as LLVM allows (x86; other families ignore it); such compiles do
// not overlap with others, since the setting is per process. A target triple or data layout in the text is replaced.
// `object` gets an ELF file (caller: bytes_free); `assembly`, if not NULL, gets the assembly text appended. Returns -1
// on error, with LLVM's message and, for a syntax error, the line. LLVM never prints or ends the process.
int llvm_compile(const char *ir_text, const char *cpu, const char *features, bytes *object, str *assembly, error *err);
// Compiles for another processor family, by its triple ("aarch64-unknown-linux-gnu"; NULL: this machine's). For
// "nvptx64-nvidia-cuda" the object is PTX text without a NUL.
int llvm_compile_for(const char *triple, const char *ir_text, const char *cpu, const char *features, bytes *object,
                     str *assembly, error *err);

// Appends the version, such as "22.1.8", and loads the library if necessary. Returns -1 and the package to install if
// there is none.
int llvm_version(str *out, error *err);

// The library that would be loaded, without loading it: "libLLVM.so.19.1 SIZE MTIME" of the first one on the system
// loader's path, so that a different build of it changes cache keys. "" if it is elsewhere.
void llvm_file(char *out, size_t cap);

bool llvm_is_loaded(void);      // has this process compiled, or read the version?
#endif
