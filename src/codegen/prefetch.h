// Requests for memory ahead of its use. See prefetch.c.
#ifndef WEFT_PREFETCH_H
#define WEFT_PREFETCH_H
#include "codegen/program.h"
uop *add_prefetches(graph *g, uop *ast, const target *t);     // SINK(STORE..., PREFETCH...)
#endif
