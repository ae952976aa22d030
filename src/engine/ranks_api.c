// The public API for several processes: see device/ranks.h and engine/follow.h.
#include "weft.h"
#include <stdlib.h>
#include <string.h>
#include "base/str.h"
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

// The texts of rank 0, concatenated.
int weft_ranks_agree(const char *const *asked, int n, weft_error *err) {
  str first = {0};
  uint64_t size = 0;
  error e = {0};
  int status = 0;
  if (ranks_here().n < 2) return 0;
  for (int i = 0; i < n && !ranks_here().rank; i++) str_addn(&first, asked[i], strlen(asked[i]) + 1);
  size = first.n;
  ranks_broadcast(&size, sizeof size, false);
  char *all = xmalloc(size + 1), *at = all;
  if (size && !ranks_here().rank) memcpy(all, first.at, size);
  ranks_broadcast(all, size, false);
  all[size] = 0;
  for (int i = 0; i < n && !status; at += strlen(at) + 1, i++)
    if (at == all + size || strcmp(at, asked[i]))
      status = error_set(
        &e, "'%s' was asked of this process, and of process 0 %s%s%s: all are to have one command line", asked[i],
        at == all + size ? "nothing" : "'", at == all + size ? "" : at, at == all + size ? "" : "'");
  if (!status && at != all + size)
    status =
      error_set(&e, "'%s' was asked of process 0, and nothing of this one: all are to have one command line", at);
  free(all);
  str_free(&first);
  return status ? fail(err, &e) : 0;
}

int weft_ranks_follow(void (*told)(void *ctx, const void *what, size_t n), void *ctx, weft_error *err) {
  error e = {0};
  return follow_rank_0(told, ctx, &e) ? fail(err, &e) : 0;
}

void weft_ranks_tell(const void *what, size_t n) { follow_tell(what, n); }

void weft_ranks_leave(void) { follow_leave(); }
