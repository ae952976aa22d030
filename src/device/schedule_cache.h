// Caches schedules, so that a second start schedules nothing. The key of a schedule is a digest of the model's graph,
// the machine, and everything else that determines it. Like code, entries are bound to the version and to a secret
// (cache.h), and a damaged one is a miss.
#ifndef WEFT_KEPT_H
#define WEFT_KEPT_H
#include "device/device.h"

// The key. sink: the argument of schedule_graph; more: n bytes of other settings that determine the schedule.
void schedule_cache_key(const device *d, uop *sink, const void *more, size_t n, str *key);
// A schedule from the cache, with its own graph. NULL: a miss. With DEBUG, which prints how schedules are made, always
// a miss.
graph *schedule_cache_get(device *d, const str *key, schedule *out);
// Makes the keeper build and store the schedule as `how` says (keeper.h); returns it with its own graph. NULL: there is
// no keeper, or it failed.
graph *schedule_cache_make(device *d, uop *sink, const void *how, size_t n, schedule *out);
// Stores a schedule that this process made; does nothing if there is a keeper.
void schedule_cache_put(device *d, const str *key, graph *g, const schedule *s);
void schedule_cache_text(graph *g, const schedule *s, str *value);      // an entry's value
#endif
