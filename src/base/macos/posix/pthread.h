// A wait by the clock that only goes forward.
#ifndef WEFT_MACOS_PTHREAD_H
#define WEFT_MACOS_PTHREAD_H
#include_next <pthread.h>
#include <time.h>
static inline int pthread_cond_clockwait(pthread_cond_t *c, pthread_mutex_t *m, clockid_t clock,
                                         const struct timespec *until) {
  struct timespec now;
  clock_gettime(clock, &now);
  int64_t ns = (int64_t)(until->tv_sec - now.tv_sec) * 1000000000 + (until->tv_nsec - now.tv_nsec);
  if (ns < 0) ns = 0;
  const struct timespec left = {ns / 1000000000, ns % 1000000000};
  return pthread_cond_timedwait_relative_np(c, m, &left);
}
#endif
