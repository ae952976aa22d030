// Reads performance counters: see counters.h. Each thread has one group of events, counted all together or not at all,
// so that their ratios are meaningful.
#define _GNU_SOURCE
#include "device/counters.h"
#include <errno.h>
#include <linux/perf_event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

const counter_event counter_events[COUNTED] = {
  {PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES}, {PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS},
  {PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_MISSES}, {PERF_TYPE_HARDWARE, PERF_COUNT_HW_BRANCH_MISSES},
};

typedef struct group { int fd[COUNTERS_MAX], error; } group;
struct counters { int n, n_threads; const counter_event *events; group *groups; };

static void open_group(void *ctx, int thread, int n_threads) {
  (void)n_threads;
  counters *c = ctx;
  group *g = &c->groups[thread];
  for (int i = 0; i < c->n && !g->error; i++) {
    struct perf_event_attr a = {.type = c->events[i].type,
                                .size = sizeof a,
                                .config = c->events[i].config,
                                .read_format = PERF_FORMAT_GROUP,
                                .exclude_kernel = 1,
                                .exclude_hv = 1};
    g->fd[i] = (int)syscall(SYS_perf_event_open, &a, 0, -1, i ? g->fd[0] : -1, PERF_FLAG_FD_CLOEXEC);
    if (g->fd[i] < 0) g->error = errno;
  }
}

static int explain(int number, error *err) {
  if (number == EACCES || number == EPERM)
    return error_set(err, "perf events are not permitted here (%s; see kernel.perf_event_paranoid)", strerror(number));
  if (number == ENOENT || number == ENODEV || number == EOPNOTSUPP)
    return error_set(err, "this machine has no hardware counters, or does not let them through");
  return error_set(err, "perf_event_open: %s", strerror(number));
}

int counters_open(team *t, const counter_event *events, int n, counters **out, error *err) {
  if (n < 1 || n > COUNTERS_MAX) die("%d counters", n);
  counters *c = xcalloc(1, sizeof *c);
  *c = (counters){n, team_size(t), events, xcalloc((size_t)team_size(t), sizeof *c->groups)};
  for (int i = 0; i < c->n_threads; i++) for (int k = 0; k < COUNTERS_MAX; k++) c->groups[i].fd[k] = -1;
  team_run(t, open_group, c);
  for (int i = 0; i < c->n_threads; i++)
    if (c->groups[i].error) { explain(c->groups[i].error, err); counters_close(c); return -1; }
  *out = c;
  return 0;
}

void counters_close(counters *c) {
  if (!c) return;
  for (int i = 0; i < c->n_threads; i++)
    for (int k = 0; k < COUNTERS_MAX; k++)
      if (c->groups[i].fd[k] >= 0) close(c->groups[i].fd[k]);
  free(c->groups);
  free(c);
}

int counters_n(const counters *c) { return c->n; }

void counters_read(const counters *c, int thread, uint64_t *out) {
  uint64_t got[1 + COUNTERS_MAX] = {0};                         // number of values, then the values
  if (read(c->groups[thread].fd[0], got, sizeof got) < 0) memset(got, 0, sizeof got);
  memcpy(out, got + 1, (size_t)c->n * sizeof *out);
}
