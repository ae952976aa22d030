// ranks: one schedule becomes that of one process among several that compute a model together (docs/machines.md).
//
// A kernel is split along one axis of what it stores: every process makes its own range of it, in the loops of the
// whole kernel. No sum is ever split, so every number is made by one process, by the additions of a single one: the
// bits are those of one process, on any number of them. What another process has made, and a kernel here reads, is
// gathered before it: OP_ALLGATHER, a step of the plan like others.
#ifndef WEFT_RANKS_H
#define WEFT_RANKS_H
#include "schedule/schedule.h"

enum { MOST_RANKS = 64 };

// How a buffer is cut: of every `period` elements cut[i] .. cut[i + 1] - 1 are process i's. 0: all have all of it.
typedef struct kept_cuts { int64_t id, period, cut[MOST_RANKS + 1]; } kept_cuts;
// rank: of n processes; n <= 1: nothing is split. Buffers first_kept .. end_kept - 1 outlive a plan (caches of keys and
// values, fixed states): they stay split, along the axis of who writes them, and as plans before this one have cut
// them: `cuts`.
typedef struct rank_split {
  int rank, n;
  int64_t first_kept, end_kept;
  int64_t worth;             // bytes of a weight from which on a product is split
  const kept_cuts *cuts;
  int64_t n_cuts;
} rank_split;

// Splits the kernels of a schedule, before weights have layouts: so each process lays out its own rows alone.
// Everything is allocated in g's arena.
void split_over_ranks(graph *g, schedule *s, const rank_split *r);

// What a kernel of gathering does: of every `period` elements of its buffer, cut[i] .. cut[i + 1] - 1 come from process
// i. count: how many periods, an expression over variables.
typedef struct gathering { int64_t period; uop *count; int n; int64_t cut[MOST_RANKS + 1]; } gathering;
void kernel_gathers(const uop *ast, gathering *out);
static inline bool is_gathering(const uop *ast) { return ast->src[0]->op == OP_ALLGATHER; }
#endif
