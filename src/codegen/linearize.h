// Converts an expanded kernel to a linear program. See linearize.c.
#ifndef WEFT_LINEARIZE_H
#define WEFT_LINEARIZE_H
#include "codegen/program.h"
void linearize(graph *g, uop *ast, const target *t, program *p);   // sets at, n (in p->mem)
#endif
