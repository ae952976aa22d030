// counters: what the processor counts while a thread runs (cycles, instructions, misses), through perf events. Where
// that is not permitted, or there is nothing to count with, opening fails and says why.
#ifndef WEFT_DEVICE_COUNTERS_H
#define WEFT_DEVICE_COUNTERS_H
#include "device/team.h"

enum { COUNTERS_MAX = 4 };
typedef struct counter_event { uint32_t type; uint64_t config; } counter_event;       // as in linux/perf_event.h
enum { COUNTED_CYCLES, COUNTED_INSTRUCTIONS, COUNTED_CACHE_MISSES, COUNTED_BRANCH_MISSES, COUNTED };
extern const counter_event counter_events[COUNTED];      // by these numbers

typedef struct counters counters;
// n events (at most COUNTERS_MAX), counted for each thread of the team by itself, outside of the kernel only, from now
// on. 0, or -1 and why not.
int counters_open(team *t, const counter_event *events, int n, counters **out, error *err);
void counters_close(counters *c);                                                    // NULL is fine
int counters_n(const counters *c);
// What `thread` of the team has counted until now; by that thread itself.
void counters_read(const counters *c, int thread, uint64_t *out);
#endif
