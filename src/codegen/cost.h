// cost: how many bytes a kernel moves and how many operations it does, as expressions over its variables. For tables;
// nothing is decided by it.
#ifndef WEFT_COST_H
#define WEFT_COST_H
#include "codegen/program.h"

// Sets p->bytes and p->flops from the kernel as it was scheduled (SINK(STORE...) over PARAMs).
void kernel_cost(graph *g, uop *ast, program *p);
#endif
