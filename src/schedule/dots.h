// From a dequantised matmul to integer dot products, by rules on the tensor graph, before anything is scheduled.
//
//   y = sum_k w(q_k) * x_k,  w an expression over a weight's bytes, x anything
//
// becomes sums of small integers, each scaled once, whatever the format: docs/quantised-matmul.md follows one through
// the passes. One pass (`round`) is an approximation: activations are rounded to 8 bits. The others keep the value but
// for the order of float additions.
#ifndef WEFT_DOTS_H
#define WEFT_DOTS_H
#include "graph/graph.h"

// The graph below `sink` with every sum of products of a quantised weight and an activation rewritten. most: values of
// an activation that share a scale at most, where the weight's own blocks can be cut so; 0: as many as share one of the
// weight's scales.
uop *integer_dots(graph *g, uop *sink, int most);

// The same for weights in BF16 on a machine that multiplies BF16 by BF16: activations are rounded to BF16, the one
// approximation; the sums stay floats.
uop *bf16_dots(graph *g, uop *sink);

// The same for weights in F16 and BF16 on a machine that multiplies tiles of these: activations are rounded to the
// weight's type, as F16 after a division by 64, since some are larger than a half can be. Where there are several rows
// of them they are stored so; one alone is rounded where it is read.
uop *half_dots(graph *g, uop *sink);

// The passes in order, a table or two each: for tests and traces.
typedef struct dots_pass { const char *name; const ruleset *rules[2]; } dots_pass;
extern const dots_pass dots_passes[];              // of integer_dots; ends with name NULL
extern const dots_pass dots_bf16_pass;            // of bf16_dots
uop *dots_run(graph *g, uop *u, const dots_pass *pass, int most);       // one of them, on everything below u
#endif
