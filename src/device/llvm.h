// The compiler: LLVM IR text in, an object file out, inside the process, through LLVM's C API.
//
// libLLVM is opened with dlopen at the first compile and never before: a start that finds all of its kernels in the
// cache does not pay for loading it (tens of milliseconds and 150 MB of address space).  No LLVM headers are needed to
// build. Every function here may be called from several threads at once.
#ifndef WEFT_DEVICE_LLVM_H
#define WEFT_DEVICE_LLVM_H
#include "base/str.h"
#include "device/code.h"

// Compiles a module for this machine's processor family: `cpu` and `features` as LLVM names them (both from
// cpu_info.h), position-independent, small code model, nothing fused or reassociated that the text does not ask for.
// Instructions of a module that says RENDER_IN_ORDER (render.h) stay in the order of the text, as far as that goes
// (x86; other families: as always). Such compiles do not overlap with others: LLVM has but one setting in a process.
// The text needs no target triple or data layout; those given are replaced.  `object` gets an ELF file (caller:
// bytes_free); `assembly`, if not NULL, gets the text of the code appended, in LLVM's syntax.  On error -1, with LLVM's
// message and, for a syntax error, the line it complains of.  LLVM never prints and never ends the process from here.
int llvm_compile(const char *ir_text, const char *cpu, const char *features, bytes *object, str *assembly, error *err);
// The same for another processor family, by its triple ("aarch64-unknown-linux-gnu"; NULL: this machine's).  For
// "nvptx64-nvidia-cuda" the object is a text, PTX, without a NUL at its end.
int llvm_compile_for(const char *triple, const char *ir_text, const char *cpu, const char *features, bytes *object,
                     str *assembly, error *err);

// Appends "22.1.8" and loads the library if need be.  -1 and a message that says which package to install if there is
// none.
int llvm_version(str *out, error *err);

// Which library that would be, without loading it: "libLLVM.so.19.1 SIZE MTIME" of the first one where the system's
// loader looks, so that code of another build of it has other names. "" if it lies elsewhere.
void llvm_file(char *out, size_t cap);

bool llvm_is_loaded(void);      // whether anything compiled (or asked for the version) yet in this process
#endif
