// No performance counters: each system has its own interface, and only Linux's is implemented. See counters.h.
#include "device/counters.h"

const counter_event counter_events[COUNTED];

int counters_open(team *t, const counter_event *events, int n, counters **out, error *err) {
  (void)t, (void)events, (void)n, (void)out;
  return error_set(err, "hardware counters are read on Linux only");
}

void counters_close(counters *c) { (void)c; }
int counters_n(const counters *c) { return (void)c, 0; }
void counters_read(const counters *c, int thread, uint64_t *out) { (void)c, (void)thread, (void)out; }
