// The memory layout of a channel (nv_gpu.c creates it, nv_run.c uses it); no other file includes this.
#ifndef WEFT_DEVICE_NV_RUN_H
#define WEFT_DEVICE_NV_RUN_H
#include "device/nv_gpu.h"

enum {
  NV_RING_ENTRIES = 1024,
  NV_REGISTERS_AT = NV_RING_ENTRIES * 8,                 // after the ring
  NV_RING_BYTES = NV_REGISTERS_AT + NV_REGISTERS_BYTES,
  NV_WORDS_AT = NV_SIGNALS * 16,                         // in the area: words submitted from this process's memory
  NV_WORDS_BYTES = 64 << 10,
  NV_AREA_BYTES = NV_WORDS_AT + NV_WORDS_BYTES,
  NV_NOTICE_BYTES = 4096,
  NV_HALF_BYTES = 4 << 20                                // of staging
};
#endif
