// First fit, largest first: each intermediate takes the lowest offset at which it overlaps no other intermediate that
// lives at that time. A life is a range of levels, both ends included, so a level never overwrites what it reads.
#include "schedule/memory_plan.h"
#include <stdlib.h>

enum { ALIGN = 64, SLACK = 64 };                  // slack: vector loads may read past the end

static int larger_first(const void *p, const void *q) {
  const sched_temp *a = *(sched_temp *const *)p, *b = *(sched_temp *const *)q;
  if (a->bytes != b->bytes) return a->bytes > b->bytes ? -1 : 1;
  return a->id < b->id ? -1 : a->id > b->id;
}

static int lower_first(const void *p, const void *q) {
  const sched_temp *a = *(sched_temp *const *)p, *b = *(sched_temp *const *)q;
  return a->offset < b->offset ? -1 : a->offset > b->offset;
}

// Placed intermediates, indexed by their lives. A life of 2^k to 2^(k+1) - 1 levels is in list (k, first >> k). A query
// therefore visits only lists whose lives may overlap the given one.
typedef struct by_life { arena *mem; map lists; int k_end; VEC(sched_temp *) met; } by_life;
typedef struct in_list { struct in_list *next; sched_temp *t; } in_list;

static uint64_t list_key(int k, int64_t cell) { return (uint64_t)k << 32 | (uint64_t)cell; }

static void note_life(by_life *l, sched_temp *t) {
  int k = 0;
  while ((int64_t)t->last - t->first + 1 >= (int64_t)2 << k) k++;
  uint64_t key = list_key(k, t->first >> k);
  void *head = NULL;
  map_get(&l->lists, key, &head);
  in_list *at = ARENA_NEW(l->mem, in_list);
  *at = (in_list){head, t};
  map_set(&l->lists, key, at);
  if (k >= l->k_end) l->k_end = k + 1;
}

static void find_met(by_life *l, const sched_temp *t) {
  l->met.n = 0;
  for (int k = 0; k < l->k_end; k++)
    for (int64_t cell = max_i64(0, (t->first >> k) - 2); cell <= t->last >> k; cell++) {
      void *head = NULL;
      map_get(&l->lists, list_key(k, cell), &head);
      for (in_list *at = head; at; at = at->next)
        if (at->t->last >= t->first && at->t->first <= t->last) vec_push(&l->met, at->t);
    }
  if (l->met.n) qsort(l->met.at, l->met.n, sizeof *l->met.at, lower_first);
}

static int64_t place_all(sched_temp **todo, size_t n) {
  by_life lives = {.mem = arena_new()};
  int64_t bytes = 0;
  if (n) qsort(todo, n, sizeof *todo, larger_first);
  for (size_t i = 0; i < n; i++) {
    int64_t at = 0, need = (int64_t)round_up((size_t)todo[i]->bytes + SLACK, ALIGN);
    find_met(&lives, todo[i]);
    for (size_t j = 0; j < lives.met.n; j++) {
      const sched_temp *o = lives.met.at[j];
      int64_t end = o->offset + (int64_t)round_up((size_t)o->bytes + SLACK, ALIGN);
      if (at + need <= o->offset) break;
      if (end > at) at = end;
    }
    todo[i]->offset = at;
    note_life(&lives, todo[i]);
    bytes = max_i64(bytes, at + need);
  }
  vec_free(&lives.met);
  map_free(&lives.lists);
  arena_free(lives.mem);
  return bytes;
}

void plan_memory(schedule *s) {
  size_t n = (size_t)s->n_temps, shared = 0, each = n;
  sched_temp **todo = xcalloc(n, sizeof *todo);
  for (size_t i = 0; i < n; i++) todo[s->temps[i].each ? --each : shared++] = &s->temps[i];
  s->arena_bytes = place_all(todo, shared);
  s->each_bytes = place_all(todo + shared, n - shared);
  free(todo);
}
