// What kernels of the Metal renderer ask of whoever launches them (device/metal_plan.m).
#ifndef WEFT_RENDER_METAL_H
#define WEFT_RENDER_METAL_H
#include "render/render.h"

enum {
  METAL_BUFFERS = 31 /* of a kernel at most, variables included */,
  METAL_ALIGNED = 16 /* buffers begin at a multiple of as many bytes */,
  METAL_STEP = 32 /* threads of a SIMD-group, where programs exchange values in one */
};

// Where a kernel of program p finds its variables, longs in their order; it takes none where p has none.
static inline int metal_vars_index(int n_bufs) { return n_bufs; }
#endif
