// Rewrites products with quantised weights into integer dot products. The rules work on the tensor graph, before
// scheduling.
//
//   y = sum_k w(q_k) * x_k,  w: an expression over the weight's bytes, x: anything
//
// becomes a sum of integer sums, each scaled once, for every format. docs/quantised-matmul.md follows one product
// through the passes. One pass (`round`) is an approximation: it rounds activations to 8 bits. The other passes keep
// the value except for the order of float additions.
#ifndef WEFT_DOTS_H
#define WEFT_DOTS_H
#include "graph/graph.h"

// What the machine decides. most: maximum number of activation values that share a scale, if the weight's blocks can be
// split that far; 0: one scale per scale of the weight. takes_signs: it multiplies codes of 8 bits with a sign.
typedef struct dots_choice { int most; bool takes_signs; } dots_choice;

// Rewrites every sum of products of a quantised weight and an activation below `sink`; returns the new sink.
uop *integer_dots(graph *g, uop *sink, dots_choice how);

// Rewrites products with BF16 weights for machines with BF16 dot instructions: activations are rounded to BF16, which
// is the only approximation; sums stay f32.
uop *bf16_dots(graph *g, uop *sink);

// Rewrites products with F16 and BF16 weights for machines with tile instructions (tensor cores, AMX). Activations are
// rounded to the weight's type. For F16 they are divided by 64 first, because some exceed the F16 range. Several rows
// of rounded activations are stored; a single row is rounded where it is read.
uop *half_dots(graph *g, uop *sink);

// The passes in order, with one or two rule tables each: for tests and traces.
typedef struct dots_pass { const char *name; const ruleset *rules[2]; } dots_pass;
extern const dots_pass dots_passes[];              // passes of integer_dots; the last has name NULL
extern const dots_pass dots_bf16_pass;            // the pass of bf16_dots
uop *dots_run(graph *g, uop *u, const dots_pass *pass, dots_choice how);       // runs one pass on everything below u
#endif
