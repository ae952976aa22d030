// Late rules: expresses what a target lacks by what it has, and gives index arithmetic a machine type. See decompose.c.
#ifndef WEFT_DECOMPOSE_H
#define WEFT_DECOMPOSE_H
#include "codegen/program.h"
#include "graph/rewrite.h"
extern const ruleset late_integer, late_float, late_half, late_bf16, late_dot, late_bytes, late_round;
uop *decompose(graph *g, uop *ast, const target *t);
#endif
