// Kernels that do not wait for each other as one launch, with numbers of work-groups of their own: see join.c.
#ifndef WEFT_JOIN_H
#define WEFT_JOIN_H
#include "codegen/codegen.h"
#include "schedule/schedule.h"

enum { MOST_JOINED = 6, MOST_ARGUMENTS = 48 };
static inline int most_arguments(const target *t) { return t->max_buffers ? t->max_buffers : MOST_ARGUMENTS; }

// Joins kernels of a level where that is possible on a machine with work-groups. The AST of several is a SINK of
// theirs, with arguments one behind the other. Everything is allocated in g's arena.
void join_kernels(graph *g, schedule *s, const target *t);
static inline bool is_joined(const uop *ast) { return ast->src[0]->op == OP_SINK; }
// Such a SINK whose `a` is 1: the other kernels follow the first one in its work-groups (chain.h).
static inline bool is_chain(const uop *ast) { return is_joined(ast) && ast->a == 1; }

// One kernel of n: a SINK of theirs with arg `how`. Arguments that are the buffer `shared` are one; -1: none is.
sched_kernel join_parts(graph *g, sched_kernel *const *of, int n, int64_t shared, uarg how);
// Does one write what the other one reads or writes?
bool kernels_conflict(const sched_kernel *x, const sched_kernel *y);
// Of codegen.c: buffers and variables of a kernel, or of several that are joined.
void find_arguments(uop *ast, program *p);
program *codegen_joined(graph *parent, uop *ast, const target *t, const codegen_options *o);
#endif
