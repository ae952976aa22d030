// See posix.h. A wait by the clock that only goes forward.
#ifndef WEFT_WINDOWS_PTHREAD_H
#define WEFT_WINDOWS_PTHREAD_H
#include_next <pthread.h>
int pthread_cond_clockwait(pthread_cond_t *c, pthread_mutex_t *m, clockid_t clock, const struct timespec *until);
#endif
