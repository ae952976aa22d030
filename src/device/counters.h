// counters: processor events of a thread (cycles, instructions, misses), through perf events. Opening fails with the
// reason if that is not permitted or the processor has no counters.
#ifndef WEFT_DEVICE_COUNTERS_H
#define WEFT_DEVICE_COUNTERS_H
#include "device/team.h"

enum { COUNTERS_MAX = 4 };
typedef struct counter_event { uint32_t type; uint64_t config; } counter_event;       // as in linux/perf_event.h
enum { COUNTED_CYCLES, COUNTED_INSTRUCTIONS, COUNTED_CACHE_MISSES, COUNTED_BRANCH_MISSES, COUNTED };
extern const counter_event counter_events[COUNTED];      // indexed by these numbers

typedef struct counters counters;
// Starts n events (at most COUNTERS_MAX) for each thread of the team, outside the kernel only. Returns 0, or -1 and the
// reason.
int counters_open(team *t, const counter_event *events, int n, counters **out, error *err);
void counters_close(counters *c);                                                    // NULL is fine
int counters_n(const counters *c);
// The counts of `thread` of the team so far; called by that thread.
void counters_read(const counters *c, int thread, uint64_t *out);
#endif
