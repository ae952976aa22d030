// Replaces GLOBAL, LOCAL and GROUP ranges by the ids that a GPU launch gives to work-groups and work-items: see
// launch_ids.c.
#ifndef WEFT_NUMBERS_H
#define WEFT_NUMBERS_H
#include "codegen/opt.h"

// Returns the kernel's expression with ids (SPECIAL); stores the number of work-groups and work-items in p.
uop *launch_ids(kernel *k, program *p);
uop *filling_launch_ids(graph *g, uop *ast, program *p);            // for a kernel that packs a weight
#endif
