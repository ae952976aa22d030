// Loaded before weft (LD_PRELOAD): the clock of the day is off by as many seconds as the first eight bytes of the file
// CLOCK_FILE say, which may change at any time: as if somebody set the clock. Waits until a time of that clock end when
// it says so. Clocks that nobody sets stay as they are.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *off;

__attribute__((constructor)) static void open_clock(void) {
  const char *path = getenv("CLOCK_FILE");
  int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  void *at = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *off, PROT_READ, MAP_SHARED, fd, 0);
  if (at != MAP_FAILED) off = at;
  if (fd >= 0) close(fd);
}

static int64_t seconds_off(void) { return off ? *off : 0; }

int clock_gettime(clockid_t which, struct timespec *t) {
  int status = (int)syscall(SYS_clock_gettime, which, t);
  if (!status && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE)) t->tv_sec += seconds_off();
  return status;
}

time_t time(time_t *out) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  if (out) *out = t.tv_sec;
  return t.tv_sec;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone) {
  struct timespec t;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &t);
  *out = (struct timeval){t.tv_sec, t.tv_nsec / 1000};
  return 0;
}

// A join until a time of day, as the system would do it after the clock was set.
int pthread_timedjoin_np(pthread_t id, void **result, const struct timespec *until) {
  struct timespec now;
  for (;;) {
    int status = pthread_tryjoin_np(id, result);
    clock_gettime(CLOCK_REALTIME, &now);
    if (status != EBUSY || now.tv_sec > until->tv_sec) return status == EBUSY ? ETIMEDOUT : status;
    usleep(1000);
  }
}
