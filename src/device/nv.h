// NVIDIA GPUs through the kernel driver only (DEV=NV): no NVIDIA library runs in this process. Kernels are PTX as for
// DEV=CUDA, assembled by ptxas (a program). A plan is one stream of commands in the GPU's memory; a replay patches the
// words that depend on variables and rings the doorbell once.
//
//   nv_rm.c     files, ioctls, objects, memory (nv_abi.h: what they look like)
//   nv_gpu.c    what the GPU is, its channel
//   nv_push.c   words of methods
//   nv_qmd.c    descriptors of launches
//   nv_ptxas.c, nv_cubin.c   from PTX to code and what a launch has to say of it
//   nv_run.c    submits words to the channel, and waits
//   nv_code.c   kernels on the GPU
//   nv_plan.c   the device: memory, kernels, plans
#ifndef WEFT_DEVICE_NV_H
#define WEFT_DEVICE_NV_H
#include "base/str.h"

struct device;
int nv_start(struct device *d, error *err);      // DEV=NV: nv_plan.c
int nv_list(str *out, error *err);               // the GPU that nv_start uses; -1 and the reason if there is none

typedef struct nv_code nv_code;                  // a kernel on the GPU
void nv_code_free(nv_code *k);                   // NULL is fine
#endif
