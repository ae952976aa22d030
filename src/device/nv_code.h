// Kernels on one of NVIDIA's GPUs (DEV=NV): code in its memory, and the bytes that a launch of it consists of. See
// nv.h.
#ifndef WEFT_DEVICE_NV_CODE_H
#define WEFT_DEVICE_NV_CODE_H
#include "device/nv_cubin.h"
#include "device/nv_gpu.h"
#include "device/remote.h"

struct nv_code {
  remote_code base;
  nv_gpu *g;
  int n_vars;                      // that it takes, behind the buffers
  uint64_t at;                     // the code, and banks of constants behind it
  nv_launch_facts facts;           // but for where constant bank 0 lies
  unsigned params_at;              // in constant bank 0
};

// Brings a cubin's kernel to the GPU. NULL and err: it is damaged, or is no kernel with that many arguments.
nv_code *nv_code_load(nv_gpu *g, const program *p, int n_bufs, const bytes *cubin, error *err);

// A launch in the GPU's memory, where this process writes: constant bank 0, and behind it the descriptor.
typedef struct nv_call {
  const nv_code *k;
  uint64_t at, descriptor;         // both multiples of 256
  nv_qmd qmd;                      // what it holds
} nv_call;
uint64_t nv_call_bytes(const nv_code *k);
// all but sizes and variables
void nv_call_make(nv_call *c, const nv_code *k, uint64_t at, const uint64_t *bufs);
// The words that sizes and variables decide.
void nv_call_set(nv_call *c, const unsigned grid[3], const unsigned block[3], const int64_t *vars);
#endif
