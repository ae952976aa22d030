// Waits until a time, for systems that wait for a span of time instead: see os.h.
#include "base/os.h"
#include <math.h>
#include <time.h>

void os_cond_init(pthread_cond_t *c) { pthread_cond_init(c, NULL); }

bool os_cond_wait_until(pthread_cond_t *c, pthread_mutex_t *m, double until) {
  if (until == INFINITY) return !pthread_cond_wait(c, m);
  double left = until - now_s();
  if (left <= 0) return false;
  const struct timespec t = {(time_t)left, (long)(1e9 * (left - (double)(time_t)left))};
  return !pthread_cond_timedwait_relative_np(c, m, &t);
}
