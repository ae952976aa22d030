// The first pass over a tensor graph: marks what is stored whatever the cost model says. See store.c.
#ifndef WEFT_STORE_H
#define WEFT_STORE_H
#include "graph/graph.h"
// Returns equal effects in which each value that a rule wants stored is a CONTIGUOUS.
uop *store_values(graph *g, uop *sink);
#endif
