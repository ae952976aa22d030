// Sound bounds of integer expressions, computed once per node from its sources. See bounds.c.
#ifndef WEFT_BOUNDS_H
#define WEFT_BOUNDS_H
#include "graph/uop.h"
typedef struct bounds { int64_t lo, hi; } bounds;
// Bounds of a node with these sources' bounds (one per source).
bounds bounds_of(const uop *u, const bounds *src);
// Bounds of expression u while `cond` (a BOOL expression; AND of comparisons is understood) holds.
bounds bounds_under(uop *u, uop *cond);
#endif
