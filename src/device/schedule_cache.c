// Caches schedules: see schedule_cache.h.
#include "device/schedule_cache.h"
#include <stdlib.h>
#include <string.h>
#include "base/attempt.h"
#include "base/env.h"
#include "device/cache.h"
#include "device/entry_kinds.h"
#include "device/keeper.h"
#include "graph/digest.h"
#include "schedule/pack.h"

void schedule_cache_key(const device *d, uop *sink, const void *more, size_t n, str *key) {
  sha256 s;
  char hex[65];
  sha256_begin(&s);
  uop_digest(&s, sink);
  sha256_add(&s, more, n);
  sha256_end(&s, hex);
  // not plan_machine: measured properties of a machine affect loops only, and may differ while other programs run
  entry_key_begin(ENTRY_SCHEDULE, key);
  str_addf(key, "%s layouts %d, %d lanes, %d bytes, %s\n", hex, d->target.has_streams,
           target_rows(&d->target), d->target.row_bytes, d->key);
}

struct unpacking { graph *g; const bytes *hit; schedule *out; };

static void unpack_kept(void *ctx) {
  struct unpacking *u = ctx;
  const char *text = (const char *)u->hit->at, *line = memchr(text, '\n', u->hit->n);
  u->g = graph_new(NULL);
  if (line && schedule_unpack(u->g, line + 1, u->hit->n - (size_t)(line + 1 - text), u->out)) return;
  graph_free(u->g);
  u->g = NULL;
}

// Accepts any bytes: NULL if they are invalid.
static graph *unpack_schedule(const bytes *hit, schedule *out) {
  struct unpacking u = {.hit = hit, .out = out};
  return attempt(ATTEMPT_OWNS, unpack_kept, &u, NULL) ? NULL : u.g;
}

graph *schedule_cache_get(device *d, const str *key, schedule *out) {
  bytes hit = {0};
  struct attempt_frame *around = attempt_suspend();              // the cache outlives the attempt
  bool has = d->cache && !debug_level() && cache_get(d->cache, key->at, key->n, &hit);
  attempt_resume(around);
  graph *g = has ? unpack_schedule(&hit, out) : NULL;
  bytes_free(&hit);
  return g;
}

graph *schedule_cache_make(device *d, uop *sink, const void *how, size_t n, schedule *out) {
  keeper *k = d->cache ? cache_keeper(d->cache) : NULL;
  bytes entry = {0};
  str text = {0}, key = {0};
  if (!k || debug_level()) return NULL;
  uop_print(&text, &sink, 1);
  graph *g = keeper_make_schedule(k, d, &text, how, n, &key, &entry) ? unpack_schedule(&entry, out) : NULL;
  bytes_free(&entry);
  str_free(&text); str_free(&key);
  return g;
}

void schedule_cache_text(graph *g, const schedule *s, str *value) {
  str_addf(value, "%d kernels\n", s->n_kernels);              // its name, for `weft cache`
  schedule_pack(g, s, value);
}

void schedule_cache_put(device *d, const str *key, graph *g, const schedule *s) {
  str value = {0};
  if (!d->cache || cache_keeper(d->cache)) return;
  schedule_cache_text(g, s, &value);
  struct attempt_frame *around = attempt_suspend();              // pending writes outlive the attempt
  cache_put(d->cache, key->at, key->n, value.at, value.n);
  cache_flush(d->cache);
  attempt_resume(around);
  str_free(&value);
}
