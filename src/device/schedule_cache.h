// Schedules kept in the cache, so that a second start schedules nothing. The entry of a schedule is named by a digest
// of the model's graph, the machine, and whatever else decides; like code, entries are bound to the version and to a
// secret (cache.h), and a damaged one is a miss.
#ifndef WEFT_KEPT_H
#define WEFT_KEPT_H
#include "device/device.h"

// The key: sink, what schedule_graph is to be called with; more: n bytes of what else decides.
void schedule_cache_key(const device *d, uop *sink, const void *more, size_t n, str *key);
// From the cache, with a graph of its own. NULL: it has to be made. DEBUG wants to see how, and finds nothing.
graph *schedule_cache_get(device *d, const str *key, schedule *out);
// Made by the keeper as `how` says (keeper.h), which keeps it, with a graph of its own. NULL: there is no keeper, or it
// did not.
graph *schedule_cache_make(device *d, uop *sink, const void *how, size_t n, schedule *out);
// Keeps one that was made here; nothing where there is a keeper.
void schedule_cache_put(device *d, const str *key, graph *g, const schedule *s);
void schedule_cache_text(graph *g, const schedule *s, str *value);      // an entry's value
#endif
