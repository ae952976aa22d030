// Copies bytes that several work-items share to work-group memory, one step ahead (OptOp SHARE). See stage_shared.c.
#ifndef WEFT_SHARE_H
#define WEFT_SHARE_H
#include "codegen/opt.h"

enum { SHARE_MEMORY = 1 << 25 };           // numbers of work-group memory, after those of shared sums

// Bytes of work-group memory that SHARE needs for what work-items along `alike`, a LOCAL output range, share in steps
// of `step`, a range of a sum; 0: nothing can be shared.
int64_t stage_in_shared_bytes(const kernel *k, uop *step, const uop *alike);
// Rewrites `ast`, the kernel's expression, accordingly; item: the work-item's number among `items` of a work-group.
uop *stage_in_shared(const kernel *k, uop *ast, uop *item, int64_t items);
#endif
