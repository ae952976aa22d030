// The descriptor of a launch (QMD) on NVIDIA's GPUs: 256 or 384 bytes that say which code runs, with how many items,
// registers and bytes of memory, and where its constants lie. Positions of fields are those of NVIDIA's published
// headers (open-gpu-doc, classes/compute/clc6c0qmd.h: version 3.0, Ampere and Ada; clcbc0qmd.h: version 4.0, Hopper).
#ifndef WEFT_DEVICE_NV_QMD_H
#define WEFT_DEVICE_NV_QMD_H
#include "base/base.h"

enum { NV_QMD_WORDS = 96, NV_QMD_ALIGNED = 256 };
typedef struct nv_qmd { uint32_t at[NV_QMD_WORDS]; } nv_qmd;

typedef struct nv_launch_facts {
  uint64_t code, code_bytes;
  // constant banks; addresses are multiples of 64, no bytes: there is no such bank
  struct nv_constants { uint64_t at; unsigned bytes; } constants[8];
  unsigned registers, barriers, sass /* 0x89 for 8.9 */;
  unsigned shared_bytes, local_bytes;              // of a work-group; of an item
} nv_launch_facts;

// version: 3 or 4, as the class of the GPU has it
size_t nv_qmd_bytes(int version);
void nv_qmd_make(nv_qmd *q, int version, const nv_launch_facts *f);
// The words that say how many work-groups of how many items there are, and nothing else. first: their number.
enum { NV_SIZE_WORDS = 7 };
void nv_qmd_set_size(nv_qmd *q, int version, const unsigned grid[3], const unsigned block[3]);
// Which words nv_qmd_set_size writes: out[i], how many.
int nv_qmd_size_words(int version, unsigned out[NV_SIZE_WORDS]);
#endif
