// What metal.m (the system, compiling) and metal_plan.m (memory, plans) share. Nobody else includes this: it is
// Objective-C, with reference counts kept by the compiler (-fobjc-arc).
#ifndef WEFT_DEVICE_METAL_IMPL_H
#define WEFT_DEVICE_METAL_IMPL_H
#import <Foundation/Foundation.h>
#import <Metal/Metal.h>
#include "codegen/program.h"
#include "device/metal.h"
#include "device/remote.h"

typedef struct metal {
  id<MTLDevice> gpu;
  id<MTLCommandQueue> queue;
  char name[128];
  // before those of the family Apple9, commands of an indirect command buffer find no pipeline that the encoder has not
  // been given itself
  bool names_pipelines;
  remote memory;
} metal;

struct metal_code {
  remote_code base;
  metal *m;
  id<MTLComputePipelineState> pipeline;
};

int metal_open(metal **out, error *err);         // -1 and a sentence that says what is missing
void metal_close(metal *m);                      // after all its kernels are freed; NULL is fine
// -1, and a sentence that names the GPU, what it was about and what the system says (may be nil)
int metal_failed(const metal *m, error *err, const char *what, NSError *why);
// A kernel of p from its source. NULL and err, with what the compiler says. May be called by any thread.
metal_code *metal_make_code(metal *m, const program *p, int n_bufs, const char *source, error *err);
#endif
