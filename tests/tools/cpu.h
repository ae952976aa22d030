// cpu: processor time, for tests: what else the machine does must not fail one.
#ifndef WEFT_TESTS_CPU_H
#define WEFT_TESTS_CPU_H
#include <time.h>

// Seconds that this thread has been at work.
static inline double cpu_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
#endif
