// What a launcher of Metal kernels must provide (device/metal_plan.m).
#ifndef WEFT_RENDER_METAL_H
#define WEFT_RENDER_METAL_H
#include "render/render.h"

enum {
  METAL_BUFFERS = 31 /* of a kernel at most, variables included */,
  METAL_ALIGNED = 16 /* buffers begin at a multiple of as many bytes */,
  METAL_STEP = 32 /* threads of a SIMD-group, in which programs exchange values */
};

// The index of the buffer with the variables of program p, longs in their order; unused if p has none.
static inline int metal_vars_index(int n_bufs) { return n_bufs; }
#endif
