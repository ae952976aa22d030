// Expands axis kinds to nodes. See expand.c.
#ifndef WEFT_EXPAND_H
#define WEFT_EXPAND_H
#include "codegen/opt.h"
uop *expand_gates(graph *g, uop *ast);            // conditional loads become loads that are always safe
// GROUP: partial results through work-group memory, or by SWAP if `swapped` (the number of work-items that share a sum)
// is not 0
uop *expand_groups(graph *g, uop *ast, int64_t swapped, bool rows_first);
// after LOCAL ranges have become work-items: stages that all of them compute together
uop *expand_shared_stages(graph *g, uop *store);
// each copy of a stage (UPCAST, or lanes of an output) gets its own memory
uop *expand_stages(graph *g, uop *ast);
uop *expand_unrolls(graph *g, uop *ast);          // UNROLL: a REDUCE of several values; UPCAST: several STOREs
uop *expand_lanes(graph *g, uop *ast);            // LANE: vectors
#endif
