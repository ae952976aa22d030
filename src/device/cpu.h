// The CPU device: kernels as machine code, made by LLVM or (RENDER=c) by the system's C compiler.
#ifndef WEFT_DEVICE_CPU_H
#define WEFT_DEVICE_CPU_H
#include "device/device.h"
int cpu_start(device *d, error *err);
// Compiles n kernels at once, instead of one per thread of the team plus one. Call it before the first compile.
void cpu_compile_at_once(device *d, int n);
#endif
