// NVIDIA's GPUs as a device (DEV=CUDA): kernels from the LLVM renderer as PTX, which the driver assembles, and plans as
// graphs of the driver's.
//
// A user needs the driver and nothing else: libcuda.so.1 is opened when a device is, and not linked. The first GPU is
// taken; CUDA_VISIBLE_DEVICES, which the driver reads, makes another one the first.
#ifndef WEFT_DEVICE_CUDA_H
#define WEFT_DEVICE_CUDA_H
#include "base/str.h"

struct device;
int cuda_start(struct device *d, error *err);    // DEV=CUDA: cuda_plan.c
// all GPUs of the driver, the one that cuda_start takes first; -1: there is none, and why
int cuda_list(str *out, error *err);

typedef struct cuda_code cuda_code;              // a kernel that the driver has
void cuda_code_free(cuda_code *k);               // NULL is fine
#endif
