// Declarations shared by metal.m (system, compiling) and metal_plan.m (memory, plans); no other file includes this. It
// is Objective-C with automatic reference counting (-fobjc-arc).
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
  // before family Apple9, commands of an indirect command buffer can only use pipelines that the encoder itself was
  // given
  bool names_pipelines;
  remote memory;
} metal;

struct metal_code {
  remote_code base;
  metal *m;
  id<MTLComputePipelineState> pipeline;
};

int metal_open(metal **out, error *err);         // -1 and a message that says what is missing
void metal_close(metal *m);                      // after all its kernels are freed; NULL is fine
// -1, with a message that names the GPU, the action and the system's error (may be nil)
int metal_failed(const metal *m, error *err, const char *what, NSError *why);
// Compiles a kernel of p from its source. NULL and err with the compiler's message. Any thread may call.
metal_code *metal_make_code(metal *m, const program *p, int n_bufs, const char *source, error *err);
#endif
