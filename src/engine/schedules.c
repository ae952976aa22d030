// See schedules.h.
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
  compile_choices c = {.exact = how->exact, .layout = layout_wanted, .ctx = (struct schedule_how *)(uintptr_t)how};
  compile_graph(g, sink, &d->target, &c, s);
}

void schedules_key(const device *d, uop *sink, const struct schedule_how *how, str *key) {
  str more = {0};
  str_addf(&more, "%s exact %d\n", ROWS_VERSION, how->exact);
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

// A byte for `exact`, one for each layout.
void schedules_print_how(const struct schedule_how *how, str *out) {
  str_addc(out, how->exact);
  for (size_t i = 0; i < how->n; i++) str_addc(out, (char)how->layouts[i]);
}

bool schedules_from_text(const device *d, graph *g, uop *sink, const void *how, size_t n, str *key, schedule *out) {
  const unsigned char *at = how;
  if (!n || at[0] > 1) return false;
  enum layout_kind *layouts = xcalloc(n, sizeof *layouts);
  for (size_t i = 1; i < n; i++) {
    if (at[i] >= LAYOUT_KINDS) { free(layouts); return false; }
    layouts[i - 1] = (enum layout_kind)at[i];
  }
  const struct schedule_how as = {at[0], layouts, n - 1};
  schedules_key(d, sink, &as, key);
  schedules_make(d, g, sink, &as, out);
  free(layouts);
  return true;
}
