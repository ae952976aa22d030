// Hash maps from pointers or 64-bit numbers (map) and from byte strings (smap) to pointers. Open addressing; entries
// cannot be removed; the order of iteration is unspecified, so nothing that is printed or generated may depend on it.
//
// Strings may be untrusted, so each smap hashes them with a key of its own (hash.h). The numbers of a map must not be:
// they are addresses, or counted by the program. For numbers that a file can choose, use a smap over their bytes.
#ifndef WEFT_MAP_H
#define WEFT_MAP_H
#include "base/hash.h"

// {0} is an empty map. UINT64_MAX is not a valid key and ends the program.
typedef struct map { struct map_entry *at; size_t n, cap; } map;
bool map_get(const map *m, uint64_t key, void **val);           // val may be NULL
void map_set(map *m, uint64_t key, void *val);
bool map_add(map *m, uint64_t key);                              // with value NULL; false if the key exists
// Iterates over the entries: false at the end; *next begins at 0.
bool map_next(const map *m, size_t *next, uint64_t *key, void **val);
void map_free(map *m);                                           // frees the table, not the values; m is empty again
static inline void *map_ptr(const map *m, const void *key) {
  void *v = NULL;
  map_get(m, (uint64_t)(uintptr_t)key, &v);
  return v;
}
static inline bool map_has(const map *m, const void *key) { return map_get(m, (uint64_t)(uintptr_t)key, NULL); }
static inline void map_put(map *m, const void *key, void *val) { map_set(m, (uint64_t)(uintptr_t)key, val); }

// {0} is an empty map; keys are NOT copied
typedef struct smap { struct smap_entry *at; size_t n, cap; hash_key key; } smap;
struct smap_entry { const char *key; size_t len; uint64_t hash; void *val; };
bool smap_get(const smap *m, const char *key, size_t len, void **val);
bool smap_set(smap *m, const char *key, size_t len, void *val);   // false if the key exists (its value is replaced)
void smap_free(smap *m);
#endif
