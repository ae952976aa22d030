// The compiler as a process of its own: LLVM runs in a child, and object code comes back through a socket.
//
// LLVM and the C++ library end the process when memory runs out, and a fault of theirs would be one of the program:
// in a child both become the error of one request. The child is made at the first compile, never before, and ends by
// itself when it has had nothing to do for a while, which gives back LLVM's memory; the next compile makes another.
// It has no open files but its sockets, and once LLVM is loaded a seccomp filter leaves it memory, threads and those
// sockets: no files, no processes, no network, nothing executable. What comes back is checked like any object file
// (elf.h).
//
// Every function may be called from any thread, and `n` compiles run at once. Where a child cannot be made for other
// reasons than memory (a policy of the host), or with ISOLATE=0, LLVM runs inside this process, as llvm.h does it.
#ifndef WEFT_DEVICE_COMPILER_H
#define WEFT_DEVICE_COMPILER_H
#include "device/llvm.h"

typedef struct compiler compiler;

// n > 0; idle_s: after which the child ends. Starts nothing; the child will run on the processors that this thread
// may use now.
compiler *compiler_new(int n, double idle_s);
void compiler_wake(compiler *c);        // makes the child, which loads LLVM meanwhile; need not be called
// As llvm_compile.  -1 also where the child ended: err says how.
int compiler_run(compiler *c, const char *ir_text, const char *cpu, const char *features, bytes *object, str *assembly,
                 error *err);
// As llvm_compile_for.
int compiler_run_for(compiler *c, const char *triple, const char *ir_text, const char *cpu, const char *features,
                     bytes *object, str *assembly, error *err);
long compiler_process(compiler *c);     // id of the child; 0 where there is none
void compiler_free(compiler *c);        // no compile may be running; NULL is fine
#endif
