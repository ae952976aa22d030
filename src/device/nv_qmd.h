// The launch descriptor (QMD) of NVIDIA GPUs: 256 or 384 bytes with the address of the code, numbers of work-items and
// registers, bytes of memory, and addresses of constants. Positions of fields are from NVIDIA's published headers
// (open-gpu-doc, classes/compute/clc6c0qmd.h: version 3.0, Ampere and Ada; clcbc0qmd.h: version 4.0, Hopper).
#ifndef WEFT_DEVICE_NV_QMD_H
#define WEFT_DEVICE_NV_QMD_H
#include "base/base.h"

enum { NV_QMD_WORDS = 96, NV_QMD_ALIGNED = 256 };
typedef struct nv_qmd { uint32_t at[NV_QMD_WORDS]; } nv_qmd;

typedef struct nv_launch_facts {
  uint64_t code, code_bytes;
  // constant banks; addresses are multiples of 64; 0 bytes: the bank is unused
  struct nv_constants { uint64_t at; unsigned bytes; } constants[8];
  unsigned registers, barriers, sass /* 0x89 for 8.9 */;
  unsigned shared_bytes, local_bytes;              // of a work-group; of a work-item
} nv_launch_facts;

// version: 3 or 4, by the GPU's class
size_t nv_qmd_bytes(int version);
void nv_qmd_make(nv_qmd *q, int version, const nv_launch_facts *f);
// Sets only the words with the numbers of work-groups and work-items. NV_SIZE_WORDS: maximum number of these.
enum { NV_SIZE_WORDS = 7 };
void nv_qmd_set_size(nv_qmd *q, int version, const unsigned grid[3], const unsigned block[3]);
// The indices of the words that nv_qmd_set_size writes; returns their number.
int nv_qmd_size_words(int version, unsigned out[NV_SIZE_WORDS]);
#endif
