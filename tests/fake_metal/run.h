// Kernels in the Metal Shading Language on this processor, as the tests run them: the text is compiled as C++ with a
// metal_stdlib of the tests' own, and threads of a threadgroup run one after the other from barrier to barrier.
#ifndef WEFT_TEST_FAKE_METAL_H
#define WEFT_TEST_FAKE_METAL_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct metal_kernel metal_kernel;

// NULL and why not: it needs clang++.
metal_kernel *metal_compile(const char *text, const char *name, int n_bufs, int n_vars, char *why, size_t cap);
void metal_kernel_free(metal_kernel *k);
// backwards: the last thread first. 0, or -1 and why: threads that do not all reach a barrier or an exchange.
int metal_run(const metal_kernel *k, const unsigned grid[3], const unsigned block[3], void *const *bufs,
              const int64_t *vars, bool backwards, char *why, size_t cap);
#endif
