// Kernels on an NVIDIA GPU (DEV=NV): code in its memory, and the bytes of a launch. See nv.h.
#ifndef WEFT_DEVICE_NV_CODE_H
#define WEFT_DEVICE_NV_CODE_H
#include "device/nv_cubin.h"
#include "device/nv_gpu.h"
#include "device/remote.h"

struct nv_code {
  remote_code base;
  nv_gpu *g;
  int n_vars;                      // number of variables, after the buffers
  uint64_t at;                     // address of the code, followed by its constant banks
  nv_launch_facts facts;           // without the address of constant bank 0
  unsigned params_at;              // offset in constant bank 0
};

// Loads a cubin's kernel. NULL and err: it is damaged, or has no kernel with that many arguments.
nv_code *nv_code_load(nv_gpu *g, const program *p, int n_bufs, const bytes *cubin, error *err);

// A launch, in GPU memory that this process can write: constant bank 0, then the descriptor.
typedef struct nv_call {
  const nv_code *k;
  uint64_t at, descriptor;         // both multiples of 256
  nv_qmd qmd;                      // a copy of the descriptor
} nv_call;
uint64_t nv_call_bytes(const nv_code *k);
// everything except sizes and variables
void nv_call_make(nv_call *c, const nv_code *k, uint64_t at, const uint64_t *bufs);
// Sets the words that depend on sizes and variables.
void nv_call_set(nv_call *c, const unsigned grid[3], const unsigned block[3], const int64_t *vars);
#endif
