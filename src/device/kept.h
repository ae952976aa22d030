// Schedules kept in the cache, so that a second start schedules nothing. The entry of a schedule is named by a digest
// of the model's graph, the machine, and whatever else decides; like code, entries are bound to the version and to a
// secret (cache.h), and a damaged one is a miss.
#ifndef WEFT_KEPT_H
#define WEFT_KEPT_H
#include "device/device.h"

// The key: sink, what schedule_graph is to be called with; more: n bytes of what else decides.
void kept_key(const device *d, uop *sink, const void *more, size_t n, str *key);
// From the cache, into g. False: it has to be made. DEBUG wants to see how, and finds nothing.
bool kept_schedule(device *d, const str *key, graph *g, schedule *out);
void keep_schedule(device *d, const str *key, graph *g, const schedule *s);
#endif
