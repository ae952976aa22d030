// See posix.h.
#ifndef WEFT_WINDOWS_TIME_H
#define WEFT_WINDOWS_TIME_H
#define _POSIX_THREAD_SAFE_FUNCTIONS
#include_next <time.h>
#define timegm _mkgmtime
#endif
