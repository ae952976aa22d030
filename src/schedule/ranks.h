// ranks: converts a schedule to the schedule of one process among several that compute a model together
// (docs/machines.md).
//
// A kernel is split along one axis of its result: every process computes its own part of that range, in the loops of
// the whole kernel. A sum is never split, so each number is computed by one process with the additions of a
// single-process run: results are bit-identical for any number of processes. If a kernel reads what other processes
// have made, an OP_ALLGATHER before it collects that. A gathering is a step of the plan like a kernel.
//
// Or whole kernels are dealt to processes (split by layers): each runs in the process that has its weights or its
// states. If another process reads a result, a gathering to that process alone brings it there.
#ifndef WEFT_RANKS_H
#define WEFT_RANKS_H
#include "schedule/schedule.h"

enum { MOST_RANKS = 64, ANY_RANK = 255 };

// How a buffer is split: process i holds elements cut[i] .. cut[i + 1] - 1 of every `period`. period 0: every process
// holds all of it.
typedef struct kept_cuts { int64_t id, period, cut[MOST_RANKS + 1]; } kept_cuts;
// Process `rank` of n; if n <= 1 nothing is split. Buffers first_kept .. end_kept - 1 outlive a plan (KV caches,
// recurrent states). They stay split along the axis of the kernel that writes them, at the places that earlier plans
// chose: `cuts`.
typedef struct rank_split {
  int rank, n;
  int64_t first_kept, end_kept;
  int64_t worth;             // minimum bytes of a weight for which its product is split
  const kept_cuts *cuts;
  int64_t n_cuts;
  double until[MOST_RANKS + 1];    // process i has until[i] to until[i + 1] of until[n] units of a split
  // for each buffer below end_kept, the process that has it, or ANY_RANK; NULL: kernels are split by rows
  const unsigned char *owner;
} rank_split;

// Splits the kernels of a schedule. It runs before weights get layouts, so that each process packs only its own rows.
// Everything is allocated in g's arena.
void split_over_ranks(graph *g, schedule *s, const rank_split *r);

// The job of a gathering: elements cut[i] .. cut[i + 1] - 1 of every `period` elements of its buffer come from process
// i. count: number of periods, an expression over variables. to: the processes that get them, as bits; 0: all.
// Otherwise one process has all parts.
typedef struct gathering { int64_t period; uop *count; uint64_t to; int n; int64_t cut[MOST_RANKS + 1]; } gathering;
enum { MOST_GATHERED = 4 /* buffers in one message */ };
// Of buffer i of a kernel that gathers.
void kernel_gathers(const uop *ast, int i, gathering *out);
static inline bool is_gathering(const uop *ast) { return ast->src[0]->op == OP_ALLGATHER; }
#endif
