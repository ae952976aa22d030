// exported: finds the parts of a program that `weft export` made: an ELF program, then a GGUF file, then kernels, then
// a trailer of 64 bytes that says where both are, with its checksum. Input: a file descriptor. device/kernel_set.h
// describes the kernels.
#ifndef WEFT_EXPORTED_H
#define WEFT_EXPORTED_H
#include "base/base.h"

// Both begin at a multiple of EXPORTED_ALIGN, so that they can be mapped even with pages of that size.
enum { EXPORTED_ALIGN = 65536, EXPORTED_TRAILER = 64 };
typedef struct exported { uint64_t model_at, model_n, kernels_at, kernels_n; } exported;

// 1: what is found is inside the file. 0: the file of that size is not such a program. -1: it was one and is damaged;
// err says which part, without the file's name.
int exported_find(int fd, uint64_t size, exported *out, error *err);
void exported_trailer(const exported *e, unsigned char out[EXPORTED_TRAILER]);
#endif
