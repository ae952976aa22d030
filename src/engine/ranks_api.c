// The part of the public API about several processes: see device/ranks.h and engine/follow.h.
#include "weft.h"
#include "device/ranks.h"
#include "engine/fail.h"
#include "engine/follow.h"

int weft_ranks_join(int *rank, int *n, weft_error *err) {
  error e = {0};
  if (ranks_join(&e)) return fail(err, &e);
  *rank = ranks_here().rank;
  *n = ranks_here().n;
  return 0;
}

int weft_ranks_follow(weft_error *err) {
  error e = {0};
  return follow_rank_0(&e) ? fail(err, &e) : 0;
}

void weft_ranks_leave(void) { follow_leave(); }
