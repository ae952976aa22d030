// Reads a cubin, the output of ptxas: an ELF file with the code of kernels for one kind of NVIDIA GPU, and the facts
// that a launch needs.
#ifndef WEFT_DEVICE_NV_CUBIN_H
#define WEFT_DEVICE_NV_CUBIN_H
#include "base/base.h"

enum { NV_BANKS = 8, NV_MOST_CONSTANTS = 64 << 10 };           // constant banks, bytes of each

typedef struct nv_cubin {
  const uint8_t *code;             // within the file
  size_t code_bytes;
  unsigned registers, barriers;
  unsigned shared_bytes;           // of a work-group, including what the hardware reserves
  unsigned stack_bytes;            // of a work-item, in local memory
  unsigned params_at, params_bytes;        // offset and size in constant bank 0
  // constants that code reads from other banks (ptxas puts doubles there); within the file
  struct nv_bank { const uint8_t *at; size_t n; } banks[NV_BANKS];
} nv_cubin;

// Finds the kernel of that name. Accepts any bytes; reads nothing outside them. Returns -1 and err if they are invalid,
// or if the kernel uses features that no Weft kernel needs (tables, code to be linked).
int nv_cubin_read(nv_cubin *c, const uint8_t *p, size_t n, const char *kernel, error *err);
#endif
