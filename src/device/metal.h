// Apple GPUs as a device (DEV=METAL): kernels from the Metal renderer, compiled by the system, and plans as indirect
// command buffers.
//
// metal.m and metal_plan.m are Objective-C and are built on Apple's systems only; elsewhere metal.c reports that. Code
// that needs no Apple headers is in remote.c. Nothing here has run on an Apple machine: the C parts and the texts of
// kernels are tested on Linux; types and selectors of the rest are checked (tests/fake_metal).
#ifndef WEFT_DEVICE_METAL_H
#define WEFT_DEVICE_METAL_H
#include "base/str.h"

struct device;
int metal_start(struct device *d, error *err);   // DEV=METAL: metal_plan.m
// the GPU that metal_start uses; -1 and the reason if there is none
int metal_list(str *out, error *err);

typedef struct metal_code metal_code;            // a compiled kernel
void metal_code_free(metal_code *k);             // NULL is fine
#endif
