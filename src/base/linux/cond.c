// Condition variables with a deadline: see os.h.
#define _GNU_SOURCE
#include "base/os.h"
#include <math.h>
#include <time.h>

void os_cond_init(pthread_cond_t *c) {
  pthread_condattr_t how;
  pthread_condattr_init(&how);
  pthread_condattr_setclock(&how, CLOCK_MONOTONIC);
  pthread_cond_init(c, &how);
  pthread_condattr_destroy(&how);
}

bool os_cond_wait_until(pthread_cond_t *c, pthread_mutex_t *m, double until) {
  if (until == INFINITY) return !pthread_cond_wait(c, m);
  const struct timespec t = {(time_t)until, (long)(1e9 * (until - (double)(time_t)until))};
  return !pthread_cond_timedwait(c, m, &t);
}
