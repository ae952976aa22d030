// Kernels that need of another one's output only what the same work-group has stored, in one launch with it: chain.c.
#ifndef WEFT_CHAIN_H
#define WEFT_CHAIN_H
#include "codegen/join.h"

// Puts such kernels behind the one that they follow (is_chain), in its level. The first step of join_kernels.
void chain_kernels(shapes *known, schedule *s);

// Of a kernel whose ranges are decided, but not yet numbered: elements of the output that each work-group stores side
// by side, number g those from g times as many on; 0: it is not so.
int64_t chain_tile(const kernel *k);
// Decides about the ranges of a kernel, so that work-group g reads of PARAM `follows` only elements g * tile and the
// tile - 1 behind it. False: that cannot be; the kernel is of no use then.
bool chain_follow(kernel *k, int64_t follows, int64_t tile);
#endif
