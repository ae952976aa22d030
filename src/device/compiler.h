// The compiler as a separate process: LLVM runs in a child, and object code comes back through a socket.
//
// LLVM and the C++ library end the process if memory runs out, and a fault in them would be a fault of the program: in
// a child, both become the error of one request. The child is made at the first compile and exits when it has been idle
// for a while, which frees LLVM's memory; the next compile makes another. It has no open files except its sockets.
// After LLVM is loaded, a seccomp filter allows only memory, threads and those sockets: no files, processes, network or
// executable memory. The result is checked like any object file (elf.h).
//
// Every function may be called from any thread, and `n` compiles run at once. If a child cannot be made for reasons
// other than memory (a policy of the host), or with ISOLATE=0, LLVM runs inside this process (llvm.h).
#ifndef WEFT_DEVICE_COMPILER_H
#define WEFT_DEVICE_COMPILER_H
#include "device/llvm.h"

typedef struct compiler compiler;

// n > 0; idle_s: seconds after which an idle child exits. Starts nothing yet; the child will run on the processors that
// this thread may use now.
compiler *compiler_new(int n, double idle_s);
void compiler_wake(compiler *c);        // optional: makes the child early, so that it loads LLVM meanwhile
// llvm_compile in the child. Returns -1 also if the child ended; err says how.
int compiler_run(compiler *c, const char *ir_text, const char *cpu, const char *features, bytes *object, str *assembly,
                 error *err);
// llvm_compile_for in the child.
int compiler_run_for(compiler *c, const char *triple, const char *ir_text, const char *cpu, const char *features,
                     bytes *object, str *assembly, error *err);
long compiler_process(compiler *c);     // id of the child; 0 if there is none
void compiler_free(compiler *c);        // no compile may be running; NULL is fine
#endif
