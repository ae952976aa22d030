// exported: a program that `weft export` made, as a file: an ELF program, then a GGUF file, then kernels, then a
// trailer of 64 bytes that says where both are, with its checksum.  Input: a descriptor.  What the kernels are,
// device/kernel_set.h knows.
#ifndef WEFT_EXPORTED_H
#define WEFT_EXPORTED_H
#include "base/base.h"

// Both begin at a multiple of EXPORTED_ALIGN, so that they can be mapped where pages are that large.
enum { EXPORTED_ALIGN = 65536, EXPORTED_TRAILER = 64 };
typedef struct exported { uint64_t model_at, model_n, kernels_at, kernels_n; } exported;

// 1: what is found lies within the file.  0: the file of that size is no such program.  -1: it was one, and is damaged;
// err says which part, without the file's name.
int exported_find(int fd, uint64_t size, exported *out, error *err);
void exported_trailer(const exported *e, unsigned char out[EXPORTED_TRAILER]);
#endif
