// Kernels that do not wait for each other as one launch, with numbers of work-groups of their own: see join.c.
#ifndef WEFT_JOIN_H
#define WEFT_JOIN_H
#include "codegen/codegen.h"
#include "schedule/schedule.h"

// Joins kernels of a level where that is possible on a machine with work-groups. The AST of several is a SINK of
// theirs, with arguments one behind the other. Everything is allocated in g's arena.
void join_kernels(graph *g, schedule *s, const target *t);
static inline bool is_joined(const uop *ast) { return ast->src[0]->op == OP_SINK; }
// Of codegen.c: buffers and variables of a kernel, or of several that are joined.
void find_arguments(uop *ast, program *p);
program *codegen_joined(graph *parent, uop *ast, const target *t, const codegen_options *o);
#endif
