// NVIDIA GPUs as a device (DEV=CUDA): kernels from the LLVM renderer as PTX, which the driver assembles, and plans as
// CUDA graphs.
//
// Only the driver is needed: libcuda.so.1 is opened with the device, not linked. The first GPU is used;
// CUDA_VISIBLE_DEVICES, which the driver reads, selects another.
#ifndef WEFT_DEVICE_CUDA_H
#define WEFT_DEVICE_CUDA_H
#include "base/str.h"

struct device;
int cuda_start(struct device *d, error *err);    // DEV=CUDA: cuda_plan.c
// lists all GPUs of the driver, the one that cuda_start uses first; -1 and the reason if there is none
int cuda_list(str *out, error *err);

typedef struct cuda_code cuda_code;              // a loaded kernel
void cuda_code_free(cuda_code *k);               // NULL is fine
#endif
