// schedule: from a graph of tensors to an ordered list of kernels over buffers.
//
// Movement ops become index arithmetic over ranges; a cost model decides what is stored (materialised) and what is
// recomputed where it is used; every stored tensor is one kernel: STORE(INDEX(buffer, i), value, output ranges...),
// whose value may hold any number of REDUCEs over ranges of their own. Kernels that do not wait for each other share a
// level, and a level is one dispatch. A kernel so small that a barrier costs more than it does has no level of its own:
// every thread computes it for itself (`each`), before what needs it. The memory planner packs the intermediates into
// one arena.
#ifndef WEFT_SCHEDULE_H
#define WEFT_SCHEDULE_H
#include "graph/graph.h"

typedef struct sched_kernel {
  uop *ast;                  // SINK(STORE), over PARAMs; equal work on other buffers is the same pointer
  int n_bufs;
  int64_t *bufs;             // buffer id per PARAM
  bool *written;             // per PARAM
  // per PARAM the layout that it is read in (layout.h), NULL: as it lies; or no array, if nobody has asked for layouts
  const struct layout **layouts;
  int level;                 // dispatch in which it runs
  // every thread computes all of it, into memory of its own, in the same dispatch as what needs it
  bool each;
  int order;
  uop *tensor;               // the tensor node that it stores, for tables
} sched_kernel;

// each: one per thread
typedef struct sched_temp {
  int64_t id;
  enum dtype dt;
  int64_t elems, bytes, offset;
  int first, last;
  bool each;
} sched_temp;

typedef struct schedule {
  sched_kernel *kernels;     // sorted by level
  int n_kernels, n_levels;
  sched_temp *temps;         // intermediates, their places in the arena (bytes) and the levels that use them
  int n_temps;
  int64_t arena_bytes;
  // of another arena, of which every thread has one: places of the temps with `each` are in that
  int64_t each_bytes;
  // ranks.h: gatherings that the plan does not run, which say how what outlives it is split among processes
  sched_kernel *kept;
  int n_kept;
  int graph_ops;             // compute nodes of the tensor graph, for the fusion rate
} schedule;

enum { TEMP_IDS = 1 << 30 };                      // ids of intermediates start here; callers use smaller ones

// The pipeline of this folder. `sink` is SINK(AFTER...): the effects that are wanted. Everything is allocated in g's
// arena.
void schedule_graph(graph *g, uop *sink, schedule *out);
// Kernels have other levels than before, or there are fewer: intermediates get the lives and places that follow.
void schedule_place_temps(schedule *s);
#endif
