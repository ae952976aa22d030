// Bounds of an index that are stronger than a node's own, for proofs that accesses are in bounds. See prove.c.
#ifndef WEFT_PROVE_H
#define WEFT_PROVE_H
#include "graph/bounds.h"

// memo: zero at first; cond: NULL, or the condition of prover_assume
typedef struct prover { graph *g; map memo; uop *cond; } prover;

void prover_begin(prover *p, graph *g);          // g: for scratch nodes
void prover_end(prover *p);
// From here on only `cond` (a BOOL expression of any stage, or NULL) is assumed to hold.
void prover_assume(prover *p, uop *cond);
// Bounds of an index expression of any stage: scalar or in lanes (then of all lanes), IDX or machine integers. INVALID
// values are ignored; lo > hi means that it is always INVALID.
bounds prove_index(prover *p, uop *i);
#endif
