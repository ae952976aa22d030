// Random bytes of the system.
#ifndef WEFT_MACOS_RANDOM_H
#define WEFT_MACOS_RANDOM_H
#include_next <sys/random.h>
#include <sys/types.h>
enum { GRND_NONBLOCK = 1 };
static inline ssize_t getrandom(void *to, size_t n, unsigned flags) {
  (void)flags;
  return n > 256 || getentropy(to, n) ? -1 : (ssize_t)n;
}
#endif
