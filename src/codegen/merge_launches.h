// Merges kernels into one launch: kernels that do not wait for each other get their own ranges of work-groups, and
// followers run in the work-groups of the first kernel (fuse_follower.h). See merge_launches.c.
#ifndef WEFT_JOIN_H
#define WEFT_JOIN_H
#include "codegen/codegen.h"
#include "schedule/schedule.h"

enum { MOST_MERGED = 6, MOST_ARGUMENTS = 48, MOST_KERNELS = MOST_MERGED * MOST_MERGED };
static inline int most_arguments(const target *t) { return t->max_buffers ? t->max_buffers : MOST_ARGUMENTS; }

// Merges kernels where possible, for a device with work-groups. The AST of a merged kernel is a SINK of the ASTs, with
// their arguments in sequence. Everything is allocated in g's arena.
void merge_launches(graph *g, schedule *s, const target *t);
static inline bool is_merged(const uop *ast) { return ast->src[0]->op == OP_SINK; }
// A merged kernel whose `a` is 1: the other kernels follow the first one in its work-groups.
static inline bool has_followers(const uop *ast) { return is_merged(ast) && ast->a == 1; }

// The kernel of a merged launch that OptOps apply to: the first one of a chain, otherwise the first one with most
// memory. For an unmerged kernel, the kernel.
uop *merged_main(uop *ast);

// The kernels of a launch, each after those that it follows; an unmerged kernel is one. Returns their number.
int merged_kernels(uop *ast, uop *out[MOST_KERNELS]);

// In codegen.c: finds buffers and variables of a kernel, or of a merged one.
void find_arguments(uop *ast, program *p);
program *codegen_merged(graph *parent, uop *ast, const target *t, const codegen_options *o);

// --- for fuse_follower.c ---------------------------------------------------------------------------------------------

// Properties of a kernel's program: work-groups, work-items, bytes that work-items share, consecutive elements that a
// work-group stores (program.tile); waits: do work-items wait for each other? fits: does one known number count the
// work-groups?
typedef struct launch_shape {
  int64_t groups, items, shared, tile;
  bool waits, fits;
  char digest[65];                                 // hash of the AST
} launch_shape;

// Shapes of kernels, each computed once.
typedef struct shapes { graph *g; const target *t; arena *mem; map known; } shapes;
const launch_shape *shape_for(shapes *s, uop *ast);
// The shape of a program of this AST.
launch_shape shape_of(const program *p, uop *ast);

// Kernels that become one launch, and their joint requirements.
typedef struct launch_set {
  sched_kernel *of[MOST_MERGED];
  const launch_shape *forms[MOST_MERGED];
  int n, n_bufs;
  launch_shape all;
} launch_set;
// Inserts a kernel after the first `fixed`, in an order that does not depend on the schedule's, so that all layers get
// equal kernels.
void launch_set_add(launch_set *m, int fixed, sched_kernel *k, const launch_shape *s);
// The merged kernel: a SINK with arg `how`. Arguments for buffer `shared` become one; -1: none.
sched_kernel launch_set_kernel(graph *g, const launch_set *m, int64_t shared, uarg how);
// Does one kernel write a buffer that the other reads or writes?
bool kernels_conflict(const sched_kernel *x, const sched_kernel *y);
#endif
