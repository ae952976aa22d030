// Open addressing with linear probing, at most half full: see map.h.
#include "base/map.h"
#include <stdlib.h>
#include <string.h>

static size_t map_slot(const map *m, uint64_t key) {
  size_t i = hash_u64(key, 0) & (m->cap - 1);
  while (m->used[i] && m->keys[i] != key) i = (i + 1) & (m->cap - 1);
  return i;
}

bool map_get(const map *m, uint64_t key, void **val) {
  if (!m->cap) return false;
  size_t i = map_slot(m, key);
  if (!m->used[i]) return false;
  if (val) *val = m->vals[i];
  return true;
}

void map_set(map *m, uint64_t key, void *val) {
  if (m->n * 2 >= m->cap) {
    map old = *m;
    m->cap = old.cap ? old.cap * 2 : 32;
    m->keys = xcalloc(m->cap, sizeof *m->keys);
    m->vals = xcalloc(m->cap, sizeof *m->vals);
    m->used = xcalloc(m->cap, 1);
    for (size_t i = 0; i < old.cap; i++)
      if (old.used[i]) {
        size_t j = map_slot(m, old.keys[i]);
        m->used[j] = 1; m->keys[j] = old.keys[i]; m->vals[j] = old.vals[i];
      }
    free(old.keys); free(old.vals); free(old.used);
  }
  size_t i = map_slot(m, key);
  if (!m->used[i]) { m->used[i] = 1; m->keys[i] = key; m->n++; }
  m->vals[i] = val;
}

void map_free(map *m) {
  free(m->keys); free(m->vals); free(m->used);
  *m = (map){0};
}

static size_t smap_slot(const smap *m, const char *key, size_t len, uint64_t hash) {
  size_t i = hash & (m->cap - 1);
  while (m->at[i].key && !(m->at[i].hash == hash && m->at[i].len == len && !memcmp(m->at[i].key, key, len))) i = (i + 1) & (m->cap - 1);
  return i;
}

bool smap_get(const smap *m, const char *key, size_t len, void **val) {
  if (!m->cap) return false;
  size_t i = smap_slot(m, key, len, hash_bytes(key, len, 1));
  if (!m->at[i].key) return false;
  if (val) *val = m->at[i].val;
  return true;
}

bool smap_set(smap *m, const char *key, size_t len, void *val) {
  if (m->n * 2 >= m->cap) {
    smap old = *m;
    m->cap = old.cap ? old.cap * 2 : 32;
    m->at = xcalloc(m->cap, sizeof *m->at);
    for (size_t i = 0; i < old.cap; i++)
      if (old.at[i].key) m->at[smap_slot(m, old.at[i].key, old.at[i].len, old.at[i].hash)] = old.at[i];
    free(old.at);
  }
  uint64_t hash = hash_bytes(key, len, 1);
  size_t i = smap_slot(m, key, len, hash);
  bool fresh = !m->at[i].key;
  if (fresh) m->n++;
  m->at[i] = (struct smap_entry){key, len, hash, val};
  return fresh;
}

void smap_free(smap *m) {
  free(m->at);
  *m = (smap){0};
}
