// Random bytes of the system.
#ifndef WEFT_WINDOWS_RANDOM_H
#define WEFT_WINDOWS_RANDOM_H
#include "base/windows/posix/posix.h"
enum { GRND_NONBLOCK = 1 };
ssize_t getrandom(void *to, size_t n, unsigned flags);
#endif
