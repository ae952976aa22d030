// cost: bytes moved and operations done by a kernel, as expressions over its variables. Used in tables only; no
// decision depends on it.
#ifndef WEFT_COST_H
#define WEFT_COST_H
#include "codegen/program.h"

// Sets p->bytes and p->flops from the kernel as it was scheduled (SINK(STORE...) over PARAMs).
void kernel_cost(graph *g, uop *ast, program *p);
#endif
