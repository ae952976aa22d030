// Expansion: what the axis kinds promise becomes nodes. See expand.c.
#ifndef WEFT_EXPAND_H
#define WEFT_EXPAND_H
#include "codegen/opt.h"
uop *expand_gates(graph *g, uop *ast);            // loads under a condition become loads that are always safe
// GROUP: partial results through work-group memory; where swapped items (all that share a sum) is not 0, by SWAP
uop *expand_groups(graph *g, uop *ast, int64_t swapped, bool rows_first);
uop *expand_shared_stages(graph *g, uop *store);   // after LOCAL ranges have become items: stages that all of them make
// stages that UPCAST or an output's lanes copy: each copy has memory of its own
uop *expand_stages(graph *g, uop *ast);
uop *expand_unrolls(graph *g, uop *ast);          // UNROLL: a REDUCE of several values; UPCAST: several STOREs
uop *expand_lanes(graph *g, uop *ast);            // LANE: vectors
#endif
