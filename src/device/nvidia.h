// What kernels for NVIDIA's GPUs depend on, whoever runs them (cuda.c: the driver's library; nv.c: its kernel module):
// what LLVM makes PTX for, and what codegen may ask of the GPU.
#ifndef WEFT_DEVICE_NVIDIA_H
#define WEFT_DEVICE_NVIDIA_H
#include "codegen/program.h"
#include "device/device.h"
#include "device/predict.h"

typedef struct nvidia {
  // LLVM's name of what kernels are made for: the newest that it knows and the GPU runs
  const char *sm;
  int capability;                  // 89 for compute capability 8.9
  int max_items, shared_bytes, cache_bytes;
  descriptor_set descriptors;      // instructions for dot products
  gpu_figures figures;             // units is 0 where they are not known
  struct compiler *llvm;
} nvidia;

// From the capability: sm and descriptors. -1: the GPU is older than any that LLVM makes kernels for.
int nvidia_choose(nvidia *n, const char *dev, const char *name, error *err);
void nvidia_compiler(nvidia *n, device *d);          // llvm, for as many threads as the device has
void nvidia_target(const nvidia *n, target *out);          // what codegen may ask of it
// What nobody can be asked for, from the capability: macs; and latency and gap, which are assumed.
void nvidia_figures(nvidia *n);
// PTX, and LLVM's text that it is made of. Both: the caller's.
int nvidia_ptx(const nvidia *n, const program *p, str *source, bytes *ptx, error *err);
// The same with a NUL at its end, and with what DEBUG asks to be shown.
int nvidia_compile(const nvidia *n, const program *p, bytes *ptx, error *err);
int nvidia_show(const nvidia *n, const program *p, str *source, str *assembly, error *err);
#endif
