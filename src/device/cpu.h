// The CPU device: kernels as machine code, made by LLVM in process or (RENDER=c) by the system's C compiler.
#ifndef WEFT_DEVICE_CPU_H
#define WEFT_DEVICE_CPU_H
#include "device/device.h"
int cpu_start(device *d, error *err);
#endif
