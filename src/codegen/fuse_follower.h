// Kernels that need of another one's output only what the same work-group has stored, in one launch with it:
// fuse_follower.c.
#ifndef WEFT_CHAIN_H
#define WEFT_CHAIN_H
#include "codegen/merge_launches.h"

// Puts such kernels behind the one that they follow (has_followers), in its level. The first step of merge_launches.
void fuse_followers(shapes *known, schedule *s);

// Of a kernel whose ranges are decided, but not yet numbered: elements of the output that each work-group stores side
// by side, number g those from g times as many on; 0: it is not so.
int64_t follower_tile(const kernel *k);
// Decides about the ranges of a kernel, so that work-group g reads of PARAM `follows` only elements g * tile and the
// tile - 1 behind it. False: that cannot be; the kernel is of no use then.
bool fuse_follower(kernel *k, int64_t follows, int64_t tile);
#endif
