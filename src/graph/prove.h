// What an index can be: stronger bounds than a node's own, for the proof that an access is in bounds.  See prove.c.
#ifndef WEFT_PROVE_H
#define WEFT_PROVE_H
#include "graph/bounds.h"

// zero memo to begin with; cond: NULL, or what prover_assume said
typedef struct prover { graph *g; map memo; uop *cond; } prover;

void prover_begin(prover *p, graph *g);          // g: for scratch nodes
void prover_end(prover *p);
// From here on `cond` (a BOOL expression of any stage, or NULL) is known to hold, and nothing else.
void prover_assume(prover *p, uop *cond);
// Bounds of an index expression of any stage: scalar or in lanes (then of all of them), IDX or of a machine's integers.
// Where it is INVALID it is no index and does not count; lo > hi says that it never is one.
bounds prove_index(prover *p, uop *i);
#endif
