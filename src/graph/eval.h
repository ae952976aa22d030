// Evaluates IR expressions on the host: the meaning of every elementwise op, defined once, in plain C. Used by constant
// folding and by tests of rules and bounds; see eval.c.
#ifndef WEFT_EVAL_H
#define WEFT_EVAL_H
#include "graph/uop.h"

// A value: i for BOOL and integers (already wrapped to the dtype; U64 as its bits), f for floats (already rounded to
// the dtype).
typedef union evalue { int64_t i; double f; } evalue;

// The value of one elementwise op. dt: dtype of the result; src_dt: dtype of the operands (WHERE: of its last two; SHL,
// SHR: of the first). false if the op has no value: division by zero, a quotient or an IDX result that overflows, a
// shift by the width or more, a float out of the integer type's range, an op that is not elementwise, a dtype on which
// it is not defined.
bool eval_op(enum op op, enum dtype dt, enum dtype src_dt, const evalue *src, size_t n, evalue *out);

// Folds u to a CONST (splat to u's lanes) if it is elementwise, all its sources are CONST or SPLAT of CONST, and it has
// a value; otherwise NULL.
uop *eval_const(graph *g, uop *u);
evalue eval_of_const(const uop *u);                              // the value of a CONST node
uop *eval_to_const(graph *g, enum dtype dt, evalue v);           // and back

// The value of a whole expression: elementwise ops, CONST, SPLAT, STACK, SHUFFLE, EXTRACT, HREDUCE, LANE, REDUCE over
// RANGEs of constant or known end, LOADs of PARAM or BUFFER memory (through `load`). Sources that a WHERE does not
// select need no value. Unspecified results have no value: BITCASTs of NaNs, MAX and MIN of a NaN or of 0 and -0.
typedef struct eval_env {
  // uop* -> evalue[lanes]: values of VAR, RANGE, SPECIAL and of any node with a given value
  const map *leaf;
  // element i of a memory; NULL: no loads
  bool (*load)(void *ctx, const uop *buf, int64_t i, enum dtype dt, evalue *out);
  void *load_ctx;
} eval_env;
bool eval_expr(const eval_env *env, uop *u, evalue *out);        // out: u->lanes values; false if any has none
#endif
