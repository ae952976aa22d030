// roles: names what the kernels of a schedule do, for tables.
#ifndef WEFT_ROLES_H
#define WEFT_ROLES_H
#include "model/gguf.h"
#include "schedule/schedule.h"

// The largest weight that a kernel reads; NULL: none.
const gguf_tensor *roles_weight(const gguf *file, const sched_kernel *k);
// "blk.*.ffn_down" from that weight; "attention", "state", "output", "positions", "quantise activations"; or the role
// of the kernel that it continues.
void roles_name(const gguf *file, const schedule *s, int kernel, char *out, size_t cap);
#endif
