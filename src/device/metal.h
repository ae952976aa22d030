// Apple's GPUs as a device (DEV=METAL): kernels from the Metal renderer, compiled by the system, and plans as indirect
// command buffers.
//
// metal.m and metal_plan.m are in Objective-C and part of the program on Apple's systems only; elsewhere metal.c says
// so. What does not need Apple's headers is in remote.c. No Apple machine has run any of it: the parts in C and
// the texts of kernels are tested on Linux, the rest has had its types and selectors checked (tests/fake_metal).
#ifndef WEFT_DEVICE_METAL_H
#define WEFT_DEVICE_METAL_H
#include "base/str.h"

struct device;
int metal_start(struct device *d, error *err);   // DEV=METAL: metal_plan.m
// the GPU that metal_start takes; -1: there is none, and why
int metal_list(str *out, error *err);

typedef struct metal_code metal_code;            // a compiled kernel
void metal_code_free(metal_code *k);             // NULL is fine
#endif
