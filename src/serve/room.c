// Memory for the tokens of a step: see room.h.
#include "serve/room.h"

// false: no unused sequence holds any.
static bool give_unused(const cache_room *o) {
  for (size_t i = 0; i < o->rest->n; i++) if (weft_sequence_thin(o->rest->at[i].sequence)) return true;
  if (!o->rest->n) return false;
  slots_drop(o->rest, slots_first_to_go(o->rest));
  return true;
}

// Of the answers from number `from` on
static bool yield_last(cache_room *o, size_t from) {
  for (size_t i = o->live->n; i-- > from;) if (run_yield(o->live->at[i])) return o->crowded = true;
  return false;
}

int room_make(cache_room *o, size_t i, size_t n, weft_error *err) {
  run *u = o->live->at[i];
  if (!n) return 0;
  run_settle(u);
  for (bool forgot = false; weft_sequence_reserve(run_held(u)->sequence, n, err);) {
    if (give_unused(o)) continue;
    if (!forgot) { weft_forget(o->m); forgot = true; continue; }
    if (yield_last(o, i + 1)) continue;
    if (!i) return -1;
    run_yield(u);
    o->crowded = true;
    return 1;
  }
  return 0;
}

void room_beside(cache_room *o, size_t n) {
  while (n && weft_reserve(o->m, n, NULL) && (give_unused(o) || yield_last(o, 0))) continue;
}
