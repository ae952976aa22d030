// What kernels for NVIDIA GPUs depend on, for both drivers (cuda.c: the driver's library; nv.c: its kernel module):
// LLVM's target, and the capabilities of the GPU.
#ifndef WEFT_DEVICE_NVIDIA_H
#define WEFT_DEVICE_NVIDIA_H
#include "codegen/program.h"
#include "device/device.h"
#include "device/predict.h"

typedef struct nvidia {
  // LLVM's target name: the newest that it knows and the GPU runs
  const char *sm;
  int capability;                  // 89 for compute capability 8.9
  int max_items, shared_bytes, cache_bytes;
  descriptor_set descriptors;      // dot-product instructions
  gpu_figures figures;             // units is 0 if they are unknown
  struct compiler *llvm;
} nvidia;

// Sets sm and descriptors from the capability. Returns -1 if the GPU is older than any that LLVM supports.
int nvidia_choose(nvidia *n, const char *dev, const char *name, error *err);
void nvidia_compiler(nvidia *n, device *d);          // sets llvm, for as many threads as the device has
void nvidia_target(const nvidia *n, target *out);          // the capabilities for codegen
// Figures from the capability that no driver reports: macs; and latency and gap, which are assumed.
void nvidia_figures(nvidia *n);
// PTX, and the LLVM IR that it is made from. The caller frees both.
int nvidia_ptx(const nvidia *n, const program *p, str *source, bytes *ptx, error *err);
// PTX with a NUL at its end; prints what DEBUG asks for.
int nvidia_compile(const nvidia *n, const program *p, bytes *ptx, error *err);
int nvidia_show(const nvidia *n, const program *p, str *source, str *assembly, error *err);
#endif
