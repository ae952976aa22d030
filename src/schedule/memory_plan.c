// First fit, largest first: each intermediate takes the lowest offset at which no other one with an overlapping life lies.
// Lives are in levels, both ends included, so that what a level reads is never what the same level writes.
#include "schedule/memory_plan.h"
#include <stdlib.h>

enum { ALIGN = 64, SLACK = 64 };                  // slack: vector tails may be read past the end

static int larger_first(const void *p, const void *q) {
  const sched_temp *a = *(sched_temp *const *)p, *b = *(sched_temp *const *)q;
  if (a->bytes != b->bytes) return a->bytes > b->bytes ? -1 : 1;
  return a->id < b->id ? -1 : a->id > b->id;
}

static int lower_first(const void *p, const void *q) {
  const sched_temp *a = *(sched_temp *const *)p, *b = *(sched_temp *const *)q;
  return a->offset < b->offset ? -1 : a->offset > b->offset;
}

static int64_t place_all(sched_temp **todo, sched_temp **placed, size_t n) {
  int64_t bytes = 0;
  if (n) qsort(todo, n, sizeof *todo, larger_first);
  for (size_t i = 0; i < n; i++) {
    int64_t at = 0, need = (int64_t)round_up((size_t)todo[i]->bytes + SLACK, ALIGN);
    if (i) qsort(placed, i, sizeof *placed, lower_first);
    for (size_t j = 0; j < i; j++) {
      const sched_temp *o = placed[j];
      if (o->last < todo[i]->first || o->first > todo[i]->last) continue;
      int64_t end = o->offset + (int64_t)round_up((size_t)o->bytes + SLACK, ALIGN);
      if (at + need <= o->offset) break;
      if (end > at) at = end;
    }
    todo[i]->offset = at;
    placed[i] = todo[i];
    bytes = max_i64(bytes, at + need);
  }
  return bytes;
}

void plan_memory(schedule *s) {
  size_t n = (size_t)s->n_temps, shared = 0, each = n;
  sched_temp **todo = xcalloc(n, sizeof *todo), **placed = xcalloc(n, sizeof *placed);
  for (size_t i = 0; i < n; i++) todo[s->temps[i].each ? --each : shared++] = &s->temps[i];
  s->arena_bytes = place_all(todo, placed, shared);
  s->each_bytes = place_all(todo + shared, placed, n - shared);
  free(todo);
  free(placed);
}
