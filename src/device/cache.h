// The disk cache: bytes by key, kept between runs (compiled kernels, schedules, results of searches).
//
// The cache only makes runs faster. Any problem with it (no folder, no permission, damage, a full disk, a lock held for
// too long) prints one warning on stderr, "weft: warning: ...", and the run goes on without it; a damaged entry is a
// miss. Entries are executed as code. A folder or file that another user owns or can write is therefore refused, and
// entries are bound to a secret of this user (a file of 16 random bytes, mode 600): an entry written by another user is
// a miss. root may let others read its folder, including the secret. Any number of processes and threads may use one
// folder; a process killed at any moment leaves a folder that works.
#ifndef WEFT_DEVICE_CACHE_H
#define WEFT_DEVICE_CACHE_H
#include "device/code.h"

typedef struct cache cache;
struct keeper;

// Opens a cache. `folder`: NULL for the default (in WEFT_CACHE, or in weft of XDG_CACHE_HOME or of $HOME/.cache:
// kernels for a confined process, kernels-open for others); "off" for no cache. If a keeper runs (keeper.h), the
// default cache is the keeper's: gets and flushes are requests to it, and so are puts that it accepts. `version` names
// the code that makes the entries: entries of other versions are misses. Never NULL, never fails (it warns).
cache *cache_open(const char *folder, const char *version);
char *cache_folder(void);               // the default folder, created if absent; NULL: none
void cache_close(cache *c);             // flushes; NULL is fine
bool cache_is_on(cache *c);             // false after "off" or a warning that ended its use

struct keeper *cache_keeper(const cache *c);    // its owner; NULL: this process, or the cache is off

// Gets the value stored for exactly these key bytes; *value is a copy (caller: bytes_free). False: a miss. Finds
// unflushed puts too.
bool cache_get(cache *c, const void *key, size_t key_n, bytes *value);
// Stores a copy, replacing an existing value. Puts are written together in one transaction: by cache_flush, by
// cache_close, and by a put if many are waiting or the oldest has waited for seconds.
void cache_put(cache *c, const void *key, size_t key_n, const void *value, size_t value_n);
void cache_flush(cache *c);

// For `weft cache`, which has no keeper: visits every entry of all versions until visit returns false. `sound`: the
// entry is complete and was written with this folder's secret.
typedef struct cache_entry {
  const void *key, *value;
  size_t key_n, value_n;
  int64_t created;
  const char *version;
  bool sound;
} cache_entry;
int cache_each(cache *c, bool (*visit)(const cache_entry *e, void *ctx), void *ctx, error *err);
// removes every entry; `removed` (may be NULL) counts them
int cache_clear(cache *c, int64_t *removed, error *err);
// removes entries whose keys begin with prefix
int cache_remove(cache *c, const void *prefix, size_t n, int64_t *removed, error *err);
const char *cache_file(cache *c);       // path of the database; "" when off
#endif
