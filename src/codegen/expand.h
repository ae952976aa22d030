// Expansion: what the axis kinds promise becomes nodes. See expand.c.
#ifndef WEFT_EXPAND_H
#define WEFT_EXPAND_H
#include "codegen/opt.h"
uop *expand_gates(graph *g, uop *ast);            // loads under a condition become loads that are always safe
uop *expand_groups(graph *g, uop *ast);           // GROUP: partial results through work-group memory
uop *expand_unrolls(graph *g, uop *ast);          // UNROLL: a REDUCE of several values; UPCAST: several STOREs
uop *expand_lanes(graph *g, uop *ast);            // LANE: vectors
uop *expand_terms(graph *g, uop *ast);            // terms of integer sums that share loads become neighbours
int terms_with_first(const uop *reduce, int from); // how many terms of it, from this one on, share loads with this one
#endif
