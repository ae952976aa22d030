// What several items of a work-group read alike, brought to its memory a step ahead (OptOp SHARE). See stage_shared.c.
#ifndef WEFT_SHARE_H
#define WEFT_SHARE_H
#include "codegen/opt.h"

enum { SHARE_MEMORY = 1 << 25 };           // numbers of a work-group's memory: behind those of sums that items share

// Bytes of a work-group's memory that SHARE takes for what items along `alike`, a LOCAL range of the output, read alike
// in steps of `step`, a range of a sum; 0: there is nothing that it could bring.
int64_t stage_in_shared_bytes(const kernel *k, uop *step, const uop *alike);
// `ast`, the kernel's expression, with that; item: the number of an item among `items` of a work-group.
uop *stage_in_shared(const kernel *k, uop *ast, uop *item, int64_t items);
#endif
