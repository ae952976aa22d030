// Hints that a value of a model's graph is to be stored, whatever the cost model decides (schedule/fuse.c), because it
// does not consider the reason yet. All such hints use these functions, so that each has its reason, and goes away when
// the cost model learns it.
#ifndef WEFT_STORED_H
#define WEFT_STORED_H
#include "graph/graph.h"

// The stream between parts: left to the cost model, a kernel would compute more and more of the past again with each
// layer.
static inline tensor *flows_on(graph *g, tensor *x) { return t_contiguous(g, x); }

// Later sums would have another form for many tokens than for one: the expressions inside a sum decide how it is
// vectorised, and a stored product is rounded once more.
static inline tensor *one_form(graph *g, tensor *x) { return t_contiguous(g, x); }

// Several kernels read parts of a product, or its rows are combined in one element: fused, these would be computed two
// per lane at half of the memory bandwidth (docs/speed.md), and the cost model treats loads along all ranges as equal.
static inline tensor *read_in_parts(graph *g, tensor *x) { return t_contiguous(g, x); }

// Several values are computed from it. The cost model works backwards from the results and would store each of those
// instead.
static inline tensor *makes_several(graph *g, tensor *x) { return t_contiguous(g, x); }

// Computed in parallel with other values that are known by then. The cost model does not consider levels: fused into
// its reader, which waits for more inputs, it would lengthen the critical path by a kernel.
static inline tensor *ahead(graph *g, tensor *x) { return t_contiguous(g, x); }

// The cost model considers it cheap (shared by lanes, or a short sum), but each element of its readers would compute it
// again.
static inline tensor *read_by_many(graph *g, tensor *x) { return t_contiguous(g, x); }
#endif
