// A cubin, which is what ptxas makes of PTX: an ELF file with the code of kernels for one kind of NVIDIA's GPUs, and
// what a launch has to say of it.
#ifndef WEFT_DEVICE_NV_CUBIN_H
#define WEFT_DEVICE_NV_CUBIN_H
#include "base/base.h"

enum { NV_BANKS = 8, NV_MOST_CONSTANTS = 64 << 10 };           // constant banks, bytes of each

typedef struct nv_cubin {
  const uint8_t *code;             // in the file
  size_t code_bytes;
  unsigned registers, barriers;
  unsigned shared_bytes;           // of a work-group; where the GPU keeps some of them, those are in it
  unsigned stack_bytes;            // of an item, in its own memory
  unsigned params_at, params_bytes;        // in constant bank 0
  // numbers that code reads from other constant banks (ptxas puts doubles there); in the file
  struct nv_bank { const uint8_t *at; size_t n; } banks[NV_BANKS];
} nv_cubin;

// The kernel of that name. Any bytes may be given: nothing outside of them is read. -1: err says what is wrong with
// them, or what the kernel needs that no kernel of ours has (tables, code to be linked).
int nv_cubin_read(nv_cubin *c, const uint8_t *p, size_t n, const char *kernel, error *err);
#endif
