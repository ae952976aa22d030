// Several kernels as one launch: those that do not wait for each other, with numbers of work-groups of their own, and
// those that follow in the same work-groups (fuse_follower.h): see merge_launches.c.
#ifndef WEFT_JOIN_H
#define WEFT_JOIN_H
#include "codegen/codegen.h"
#include "schedule/schedule.h"

enum { MOST_MERGED = 6, MOST_ARGUMENTS = 48, MOST_KERNELS = MOST_MERGED * MOST_MERGED };
static inline int most_arguments(const target *t) { return t->max_buffers ? t->max_buffers : MOST_ARGUMENTS; }

// Joins kernels where that is possible on a machine with work-groups. The AST of several is a SINK of theirs, with
// arguments one behind the other. Everything is allocated in g's arena.
void merge_launches(graph *g, schedule *s, const target *t);
static inline bool is_merged(const uop *ast) { return ast->src[0]->op == OP_SINK; }
// Such a SINK whose `a` is 1: the other kernels follow the first one in its work-groups.
static inline bool has_followers(const uop *ast) { return is_merged(ast) && ast->a == 1; }

// The kernel of several that OptOps are of: the first one of a chain; of others the one with most memory, the first of
// such. What is not joined is that itself.
uop *merged_main(uop *ast);

// The kernels of a launch, each behind those that it follows; what is not joined is one. Gives how many.
int merged_kernels(uop *ast, uop *out[MOST_KERNELS]);

// Of codegen.c: buffers and variables of a kernel, or of several that are joined.
void find_arguments(uop *ast, program *p);
program *codegen_merged(graph *parent, uop *ast, const target *t, const codegen_options *o);

// --- for fuse_follower.c ---------------------------------------------------------------------------------------------

// Of a kernel's program: work-groups, items, bytes that items share, elements that a work-group stores (program.tile);
// whether items wait for each other; whether one number that is known counts the work-groups.
typedef struct launch_shape {
  int64_t groups, items, shared, tile;
  bool waits, fits;
  char digest[65];                                 // of the AST
} launch_shape;

// Those of kernels, each made once.
typedef struct shapes { graph *g; const target *t; arena *mem; map known; } shapes;
const launch_shape *shape_for(shapes *s, uop *ast);
// Of a program of this AST.
launch_shape shape_of(const program *p, uop *ast);

// Kernels that become one launch, and what they ask for together.
typedef struct launch_set {
  sched_kernel *of[MOST_MERGED];
  const launch_shape *forms[MOST_MERGED];
  int n, n_bufs;
  launch_shape all;
} launch_set;
// Behind the first `fixed`, in an order that does not depend on that of the schedule, so that all layers have the same
// kernel.
void launch_set_add(launch_set *m, int fixed, sched_kernel *k, const launch_shape *s);
// Its kernel: a SINK with arg `how`. Arguments that are the buffer `shared` are one; -1: none is.
sched_kernel launch_set_kernel(graph *g, const launch_set *m, int64_t shared, uarg how);
// Does one write what the other one reads or writes?
bool kernels_conflict(const sched_kernel *x, const sched_kernel *y);
#endif
