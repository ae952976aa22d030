// See kept.h.
#include "device/kept.h"
#include <stdlib.h>
#include <string.h>
#include "base/env.h"
#include "device/cache.h"
#include "graph/digest.h"
#include "schedule/pack.h"

void kept_key(const device *d, uop *sink, const void *more, size_t n, str *key) {
  sha256 s;
  char hex[65];
  sha256_begin(&s);
  uop_digest(&s, sink);
  sha256_add(&s, more, n);
  sha256_end(&s, hex);
  // not plan_machine: what is learned of a machine decides about loops, and may differ while other programs run
  str_addf(key, "schedule %s layouts %d, %d lanes, %d bytes, %s\n", hex, d->target.has_streams,
           target_rows(&d->target), d->target.row_bytes, d->key);
}

bool kept_schedule(device *d, const str *key, graph *g, schedule *out) {
  bytes hit = {0};
  if (!d->cache || debug_level() || !cache_get(d->cache, key->at, key->n, &hit)) return false;
  const char *text = (const char *)hit.at, *line = memchr(text, '\n', hit.n);
  bool found = line && schedule_unpack(g, line + 1, hit.n - (size_t)(line + 1 - text), out);
  bytes_free(&hit);
  return found;
}

void keep_schedule(device *d, const str *key, graph *g, const schedule *s) {
  str value = {0};
  if (!d->cache) return;
  str_addf(&value, "%d kernels\n", s->n_kernels);              // its name, for `weft cache`
  schedule_pack(g, s, &value);
  cache_put(d->cache, key->at, key->n, value.at, value.n);
  cache_flush(d->cache);
  str_free(&value);
}
