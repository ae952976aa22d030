// Values that all steps of a loop share, kept in memory of the tile (OptOp KEEP). See reuse.c.
#ifndef WEFT_KEEP_H
#define WEFT_KEEP_H
#include "codegen/opt.h"
// `ast`: expanded, vectors made. Values of `least` operations or more are kept, in at most `bytes` bytes altogether:
// where they take more, none is. `hint`: 1 + prefetch_hint by which each tile asks for what the next one reads; 0: it
// does not. The same ast where there is no such loop and nothing to do, or `least` is 0.
uop *reuse_across_tokens(graph *g, uop *ast, int least, int hint, int64_t bytes);
// Of a kernel with OptOps, whose ranges are not expanded yet: is there such a loop, and a value that takes `least`
// operations or more?
bool reuses_anything(uop *ast, int least);
#endif
