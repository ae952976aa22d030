// How the memory of a channel is laid out (nv_gpu.c makes it, nv_run.c uses it). Nobody else includes this.
#ifndef WEFT_DEVICE_NV_RUN_H
#define WEFT_DEVICE_NV_RUN_H
#include "device/nv_gpu.h"

enum {
  NV_RING_ENTRIES = 1024,
  NV_REGISTERS_AT = NV_RING_ENTRIES * 8,                 // behind the ring
  NV_RING_BYTES = NV_REGISTERS_AT + NV_REGISTERS_BYTES,
  NV_WORDS_AT = NV_SIGNALS * 16,                         // of the area: what is submitted from this process's memory
  NV_WORDS_BYTES = 64 << 10,
  NV_AREA_BYTES = NV_WORDS_AT + NV_WORDS_BYTES,
  NV_NOTICE_BYTES = 4096,
  NV_HALF_BYTES = 4 << 20                                // of staging
};
#endif
