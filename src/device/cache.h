// The disk cache: bytes by key, kept between runs (compiled kernels, results of searches).
//
// It may only ever make a run faster.  Whatever is wrong with it (no folder, no permission, damage, a full disk, a lock
// that stays held) costs one warning on stderr, "weft: warning: ...", and the run goes on without; a damaged entry is a
// miss. Entries are executed as code, so a folder or file that another user owns or may write is refused, and entries
// are bound to a secret that only this user has (a file of 16 random bytes, mode 600): what somebody else wrote is a
// miss.  Root may let others read its folder, secret included.  Any number of processes and threads may use one folder;
// a process killed at any moment leaves a folder that works.
#ifndef WEFT_DEVICE_CACHE_H
#define WEFT_DEVICE_CACHE_H
#include "device/code.h"

typedef struct cache cache;
struct keeper;

// `folder`: NULL for the default (in WEFT_CACHE, or in weft of XDG_CACHE_HOME or of $HOME/.cache: kernels for a process
// that is confined, kernels-open for one that is not); "off" for no cache.
// Where a keeper runs (keeper.h) the default one is the keeper's: gets and flushes are asked of it, puts as far as it
// takes them.
// `version` names the code that makes the entries: entries of another version are misses.  Never NULL, never fails (it
// warns).
cache *cache_open(const char *folder, const char *version);
char *cache_folder(void);               // the default one, made if it is not there; NULL: none
void cache_close(cache *c);             // flushes; NULL is fine
bool cache_is_on(cache *c);             // false after "off" or a warning that ended its use

struct keeper *cache_keeper(const cache *c);    // whose it is; NULL: this process's own, or off

// The value stored for exactly these key bytes; *value is a copy (caller: bytes_free).  False: a miss.  Not yet flushed
// puts are found too.
bool cache_get(cache *c, const void *key, size_t key_n, bytes *value);
// Remembers a copy; it replaces what is there.  Puts are written together, in one transaction: by cache_flush, by
// cache_close, and by a put that finds many waiting or the oldest waiting for seconds.
void cache_put(cache *c, const void *key, size_t key_n, const void *value, size_t value_n);
void cache_flush(cache *c);

// For `weft cache`, which has no keeper: visits every entry (of all versions), `sound` telling whether it is whole and
// was written under this folder's secret; stops when visit returns false.
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
int cache_remove(cache *c, const void *prefix, size_t n, int64_t *removed, error *err);    // those whose keys begin so
const char *cache_file(cache *c);       // path of the database; "" when off
#endif
