// Makes and caches schedules: see schedules.h.
#include "engine/schedules.h"
#include <stdlib.h>
#include <string.h>
#include "compile/compile.h"
#include "device/schedule_cache.h"
#include "engine/rows_version.h"

static enum layout_kind layout_wanted(void *ctx, int64_t id) {
  const struct schedule_how *how = ctx;
  return id >= 0 && (uint64_t)id < how->n ? how->layouts[id] : LAYOUT_ROWS;
}

void schedules_make(const device *d, graph *g, uop *sink, const struct schedule_how *how, schedule *s) {
  compile_choices c = {.exact = how->exact, .many_rows = how->many_rows, .layout = layout_wanted,
                       .ctx = (struct schedule_how *)(uintptr_t)how, .ranks = how->ranks};
  compile_graph(g, sink, &d->target, &c, s);
}

void schedules_key(const device *d, uop *sink, const struct schedule_how *how, str *key) {
  str more = {0};
  str_addf(&more, "%s exact %d, many rows %d\n", ROWS_VERSION, how->exact, how->many_rows);
  if (how->ranks.n > 1)
    str_addf(&more, "rank %d of %d, kept %lld to %lld, from %lld bytes on, %lld cut\n", how->ranks.rank, how->ranks.n,
             (long long)how->ranks.first_kept, (long long)how->ranks.end_kept, (long long)how->ranks.worth,
             (long long)how->ranks.n_cuts);
  if (how->ranks.n > 1) str_addn(&more, how->ranks.until, sizeof how->ranks.until);
  if (how->ranks.owner) str_addn(&more, how->ranks.owner, (size_t)how->ranks.end_kept);
  if (how->ranks.n_cuts) str_addn(&more, how->ranks.cuts, (size_t)how->ranks.n_cuts * sizeof *how->ranks.cuts);
  str_addn(&more, how->layouts, how->n * sizeof *how->layouts);
  schedule_cache_key(d, sink, more.at, more.n, key);
  str_free(&more);
}

graph *schedules_find(device *d, graph *g, uop *sink, const struct schedule_how *how, schedule *out, bool *kept) {
  str key = {0}, text = {0};
  schedules_key(d, sink, how, &key);
  graph *found = schedule_cache_get(d, &key, out);
  *kept = found;
  if (!found) {
    schedules_print_how(how, &text);
    found = schedule_cache_make(d, sink, text.at, text.n, out);
  }
  if (found) graph_free(g);
  else {
    found = g;
    schedules_make(d, g, sink, how, out);
    schedule_cache_put(d, &key, g, out);
  }
  str_free(&text);
  str_free(&key);
  return found;
}

// Bytes for `exact` and `many_rows`, and for whether buffers have owners, the rank settings, a byte for each owner and
// each layout.
void schedules_print_how(const struct schedule_how *how, str *out) {
  str_addc(out, (char)(how->exact | how->many_rows << 1));
  rank_split r = how->ranks;
  str_addc(out, r.owner != NULL);
  r.cuts = NULL;
  r.owner = NULL;
  str_addn(out, &r, sizeof r);
  if (r.n_cuts) str_addn(out, how->ranks.cuts, (size_t)r.n_cuts * sizeof *r.cuts);
  if (how->ranks.owner) str_addn(out, how->ranks.owner, (size_t)r.end_kept);
  for (size_t i = 0; i < how->n; i++) str_addc(out, (char)how->layouts[i]);
}

bool schedules_from_text(const device *d, graph *g, uop *sink, const void *how, size_t n, str *key, schedule *out) {
  const unsigned char *at = how;
  rank_split ranks;
  if (n < 2 + sizeof ranks || at[0] > 3) return false;
  bool exact = *at & 1, many_rows = *at++ >> 1, owned = *at++;
  memcpy(&ranks, at, sizeof ranks);
  at += sizeof ranks;
  n -= 2 + sizeof ranks;
  size_t n_cuts = ranks.n_cuts < 0 ? SIZE_MAX : (size_t)ranks.n_cuts;
  if (n_cuts > n / sizeof *ranks.cuts || ranks.n < 0 || ranks.n > MOST_RANKS || ranks.rank < 0 ||
      (ranks.rank && ranks.rank >= ranks.n) ||
      (owned && (ranks.end_kept < 0 || (uint64_t)ranks.end_kept > n - n_cuts * sizeof *ranks.cuts)))
    return false;
  kept_cuts *cuts = xcalloc(n_cuts + 1, sizeof *cuts);
  memcpy(cuts, at, n_cuts * sizeof *cuts);
  ranks.cuts = cuts;
  at += n_cuts * sizeof *cuts;
  n -= n_cuts * sizeof *cuts;
  ranks.owner = owned ? at : NULL;
  if (owned) { at += ranks.end_kept; n -= (size_t)ranks.end_kept; }
  enum layout_kind *layouts = xcalloc(n + 1, sizeof *layouts);
  for (size_t i = 0; i < n; i++) {
    if (at[i] >= LAYOUT_KINDS) { free(layouts); free(cuts); return false; }
    layouts[i] = (enum layout_kind)at[i];
  }
  const struct schedule_how as = {exact, many_rows, layouts, n, ranks};
  schedules_key(d, sink, &as, key);
  schedules_make(d, g, sink, &as, out);
  free(layouts);
  free(cuts);
  return true;
}
