// Memory for the tokens of a step: see room.h.
#include "serve/room.h"

// false: no unused sequence holds any.
static bool give_unused(const cache_room *o) {
  for (size_t i = 0; i < o->rest->n; i++) if (weft_sequence_thin(o->rest->at[i].sequence)) return true;
  if (!o->rest->n) return false;
  slots_drop(o->rest, slots_first_to_go(o->rest));
  return true;
}

// false: it held none. It waits nevertheless.
static bool yields(cache_room *o, run *u) {
  bool some = run_yield(u);
  o->crowded = true;
  o->yields += some;
  return some;
}

// Of all but the first one.
static bool yield_last(cache_room *o) {
  for (size_t i = o->live->n; i-- > 1;) if (yields(o, o->live->at[i])) return true;
  return false;
}

int room_make(cache_room *o, size_t i, size_t n, weft_error *err) {
  run *u = o->live->at[i];
  if (!n) return 0;
  run_settle(u);
  for (bool forgot = false; weft_sequence_reserve(run_held(u)->sequence, n, err);) {
    bool gives = !i || !o->crowded;              // else what is unused would be dropped in each step in vain
    if (gives && !forgot) { weft_forget(o->m); forgot = true; continue; }
    if (gives && give_unused(o)) continue;
    if (!i && yield_last(o)) continue;
    if (!i) return -1;
    yields(o, u);
    return 1;
  }
  return 0;
}

bool room_beside(cache_room *o, size_t n) {
  while (n && weft_reserve(o->m, n, NULL)) if (!give_unused(o)) return false;
  return true;
}
