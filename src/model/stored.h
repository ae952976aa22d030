// What a model's graph wants stored, whatever costs say (schedule/fuse.c): by what costs do not see yet. All such hints
// are given through these, so that each has its reason, and goes when costs learn of it.
#ifndef WEFT_STORED_H
#define WEFT_STORED_H
#include "graph/graph.h"

// What flows on from part to part: left to costs, how much of the past a kernel computes again grows with the layers.
static inline tensor *flows_on(graph *g, tensor *x) { return t_contiguous(g, x); }

// Sums behind it would have another form for many tokens than for one: what they read inside decides how they lie in
// lanes, and a product that is stored is rounded once more.
static inline tensor *one_form(graph *g, tensor *x) { return t_contiguous(g, x); }

// Several kernels read parts of a product, or rows of it meet in one element: those would be computed two in each lane,
// at half of the memory's speed (docs/speed.md), and costs take loads along all ranges for equal.
static inline tensor *read_in_parts(graph *g, tensor *x) { return t_contiguous(g, x); }

// Several values are made of it. Costs go from the results back, and store each of those instead of this one.
static inline tensor *makes_several(graph *g, tensor *x) { return t_contiguous(g, x); }

// Computed beside other things that are known by then. Costs know no levels: in its reader, which waits for more, it
// would make a kernel and a level of its own necessary.
static inline tensor *ahead(graph *g, tensor *x) { return t_contiguous(g, x); }

// Costs take it for cheap: as shared by lanes, or as a short sum. Each of its readers' elements would compute it again.
static inline tensor *read_by_many(graph *g, tensor *x) { return t_contiguous(g, x); }
#endif
