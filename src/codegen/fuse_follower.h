// Fuses kernels that read only what their own work-group has stored into the launch of the kernel that stores it. See
// fuse_follower.c.
#ifndef WEFT_CHAIN_H
#define WEFT_CHAIN_H
#include "codegen/merge_launches.h"

// Puts such kernels after the one that they follow (has_followers), in its level. The first step of merge_launches.
void fuse_followers(shapes *known, schedule *s);

// For a kernel whose ranges are decided but not yet numbered: the consecutive output elements that each work-group
// stores, where work-group g starts at element g * tile; 0 if the output is not stored that way.
int64_t follower_tile(const kernel *k);
// Sets a kernel's ranges so that work-group g reads only elements g * tile .. (g + 1) * tile - 1 of PARAM `follows`.
// False if that is impossible; the kernel must then be discarded.
bool fuse_follower(kernel *k, int64_t follows, int64_t tile);
#endif
