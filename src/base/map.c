// Hash tables with open addressing and linear probing, at most half full: see map.h.
#include "base/map.h"
#include <stdlib.h>
#include <string.h>

struct map_entry { uint64_t key; void *val; };      // key: plus one; 0: free

// The upper half of a product depends on all bits of the key: one multiplication, enough for pointers and small
// numbers.
static struct map_entry *map_slot(const map *m, uint64_t key) {
  size_t i = (key * 0x9e3779b97f4a7c15ull >> 32 ^ key >> 32) & (m->cap - 1);
  while (m->at[i].key && m->at[i].key != key + 1) i = (i + 1) & (m->cap - 1);
  return &m->at[i];
}

bool map_get(const map *m, uint64_t key, void **val) {
  if (!m->cap) return false;
  const struct map_entry *e = map_slot(m, key);
  if (!e->key) return false;
  if (val) *val = e->val;
  return true;
}

// The entry of a key; *fresh: it was added.
static struct map_entry *map_entry_for(map *m, uint64_t key, bool *fresh) {
  if (key == UINT64_MAX) die("a map with the key UINT64_MAX");
  if (m->n * 2 >= m->cap) {
    map old = *m;
    m->cap = old.cap ? old.cap * 2 : 32;
    m->at = xzeros(m->cap, sizeof *m->at);
    for (size_t i = 0; i < old.cap; i++) if (old.at[i].key) *map_slot(m, old.at[i].key - 1) = old.at[i];
    free(old.at);
  }
  struct map_entry *e = map_slot(m, key);
  *fresh = !e->key;
  m->n += *fresh;
  e->key = key + 1;
  return e;
}

void map_set(map *m, uint64_t key, void *val) { map_entry_for(m, key, &(bool){false})->val = val; }

bool map_add(map *m, uint64_t key) {
  bool fresh;
  struct map_entry *e = map_entry_for(m, key, &fresh);
  if (fresh) e->val = NULL;
  return fresh;
}

bool map_next(const map *m, size_t *next, uint64_t *key, void **val) {
  while (*next < m->cap) {
    const struct map_entry *e = &m->at[(*next)++];
    if (!e->key) continue;
    *key = e->key - 1;
    *val = e->val;
    return true;
  }
  return false;
}

void map_free(map *m) {
  free(m->at);
  *m = (map){0};
}

static size_t smap_slot(const smap *m, const char *key, size_t len, uint64_t hash) {
  size_t i = hash & (m->cap - 1);
  while (m->at[i].key && !(m->at[i].hash == hash && m->at[i].len == len && !memcmp(m->at[i].key, key, len)))
    i = (i + 1) & (m->cap - 1);
  return i;
}

bool smap_get(const smap *m, const char *key, size_t len, void **val) {
  if (!m->cap) return false;
  size_t i = smap_slot(m, key, len, hash_keyed(m->key, key, len));
  if (!m->at[i].key) return false;
  if (val) *val = m->at[i].val;
  return true;
}

bool smap_set(smap *m, const char *key, size_t len, void *val) {
  if (m->n * 2 >= m->cap) {
    smap old = *m;
    if (!old.cap) m->key = hash_key_new();
    m->cap = old.cap ? old.cap * 2 : 32;
    m->at = xzeros(m->cap, sizeof *m->at);
    for (size_t i = 0; i < old.cap; i++)
      if (old.at[i].key) m->at[smap_slot(m, old.at[i].key, old.at[i].len, old.at[i].hash)] = old.at[i];
    free(old.at);
  }
  uint64_t hash = hash_keyed(m->key, key, len);
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
