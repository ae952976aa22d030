// Simplifies expressions: the tables `symbolic` (integers, conditions) and `float_exact` (bit-exact float rules), and
// index arithmetic that simplifies as it builds.
#ifndef WEFT_SYMBOLIC_H
#define WEFT_SYMBOLIC_H
#include "graph/rewrite.h"

extern const ruleset symbolic_any, symbolic_int, symbolic_bool, float_exact;
#define SYMBOLIC &symbolic_any, &symbolic_int, &symbolic_bool, &float_exact

uop *simplify(graph *g, uop *u);                  // simplifies everything below u to a fixed point

// IDX arithmetic on simplified operands; results are simplified.
uop *idx_add(graph *g, uop *a, uop *b);
uop *idx_sub(graph *g, uop *a, uop *b);
uop *idx_mul(graph *g, uop *a, uop *b);
uop *idx_div(graph *g, uop *a, uop *b);           // floors
uop *idx_mod(graph *g, uop *a, uop *b);
uop *idx_min(graph *g, uop *a, uop *b);
uop *idx_max(graph *g, uop *a, uop *b);
uop *idx_lt(graph *g, uop *a, uop *b);            // BOOL
uop *bool_and(graph *g, uop *a, uop *b);          // either may be NULL: true

// A sum: constant + sum of coeff[i] * atom[i], atoms distinct, in canonical order.
typedef struct idx_sum { int64_t constant; int n; int64_t coeff[32]; uop *atom[32]; } idx_sum;
bool idx_sum_of(uop *u, idx_sum *s);              // false if it has too many terms or a coefficient overflows
uop *idx_sum_build(graph *g, const idx_sum *s);
int64_t idx_factor(uop *u, const uop *range);     // of a range in u: 0: absent; -1: not a plain term
#endif
