// Keeps values that all steps of a loop share in memory of the tile (OptOp KEEP). See reuse.c.
#ifndef WEFT_KEEP_H
#define WEFT_KEEP_H
#include "codegen/opt.h"
// `ast`: expanded, with vectors. Keeps values of at least `least` operations, if all of them fit in `bytes` bytes;
// otherwise none. `hint`: 1 + the prefetch_hint with which each tile prefetches what the next one reads; 0: no
// prefetch. Returns ast if there is no such loop, nothing to do, or `least` is 0.
uop *reuse_across_tokens(graph *g, uop *ast, int least, int hint, int64_t bytes);
// For a kernel with OptOps whose ranges are not expanded yet: is there such a loop, and a value of at least `least`
// operations?
bool reuses_anything(uop *ast, int least);
#endif
