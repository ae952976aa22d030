// What a launch on a GPU numbers, work-groups and their items, in the place of GLOBAL, LOCAL and GROUP ranges: see
// launch_ids.c.
#ifndef WEFT_NUMBERS_H
#define WEFT_NUMBERS_H
#include "codegen/opt.h"

// The kernel's expression with numbers (SPECIAL); how many of each there are goes to p.
uop *launch_ids(kernel *k, program *p);
uop *filling_launch_ids(graph *g, uop *ast, program *p);            // of a kernel that lays a weight out
#endif
