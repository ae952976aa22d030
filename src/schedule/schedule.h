// schedule: converts a graph of tensors to an ordered list of kernels over buffers.
//
// Movement ops become index arithmetic over ranges. A cost model decides which tensors are stored (materialised) and
// which are recomputed where they are used. Every stored tensor is one kernel: STORE(INDEX(buffer, i), value, output
// ranges...). The value may contain any number of REDUCEs over their own ranges. Kernels that do not wait for each
// other share a level, and a level is one dispatch. If a kernel costs less than a barrier it gets no level: every
// thread computes it in full (`each`) before the kernel that needs it. The memory planner packs the intermediates into
// one arena.
#ifndef WEFT_SCHEDULE_H
#define WEFT_SCHEDULE_H
#include "graph/graph.h"

typedef struct sched_kernel {
  uop *ast;                  // SINK(STORE), over PARAMs; equal kernels on other buffers have the same pointer
  int n_bufs;
  int64_t *bufs;             // buffer id per PARAM
  bool *written;             // per PARAM
  // layout (layout.h) of each PARAM, NULL: unchanged from the file; the array is NULL if no layouts were requested
  const struct layout **layouts;
  int level;                 // the dispatch in which it runs
  // every thread computes the whole kernel into its own memory, in the dispatch of the kernel that needs it
  bool each;
  int order;
  uop *tensor;               // the tensor node that it stores, for tables of times
} sched_kernel;

// An intermediate. first, last: the levels in which it is used; each: every thread has its own.
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
  sched_temp *temps;         // intermediates, with their offsets in the arena (bytes) and the levels that use them
  int n_temps;
  int64_t arena_bytes;
  // size of a second arena, of which every thread has its own, for temps with `each`
  int64_t each_bytes;
  // gatherings that the plan does not run (ranks.h): they record how buffers that outlive the plan are split
  sched_kernel *kept;
  int n_kept;
  int graph_ops;             // number of compute nodes in the tensor graph, for the fusion rate
} schedule;

enum { TEMP_IDS = 1 << 30 };                      // ids of intermediates start here; callers use smaller ids

// Runs the passes of this folder. `sink` is SINK(AFTER...): the wanted effects. Everything is allocated in g's arena.
void schedule_graph(graph *g, uop *sink, schedule *out);
// Recomputes the lives and offsets of intermediates after levels changed or kernels were removed.
void schedule_place_temps(schedule *s);
#endif
