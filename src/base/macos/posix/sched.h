// Processor affinity: macOS does not bind threads to processors.
#ifndef WEFT_MACOS_SCHED_H
#define WEFT_MACOS_SCHED_H
#include_next <sched.h>
#include <errno.h>
#include <stdint.h>
enum { CPU_SETSIZE = 64 };
typedef struct cpu_set_t { uint64_t bits; } cpu_set_t;
#define CPU_ZERO(s) ((s)->bits = 0)
#define CPU_SET(i, s) ((s)->bits |= (uint64_t)1 << (i))
#define CPU_ISSET(i, s) ((s)->bits >> (i) & 1)
#define CPU_COUNT(s) __builtin_popcountll((s)->bits)
static inline int sched_getaffinity(int process, size_t n, cpu_set_t *set) {
  return (void)process, (void)n, (void)set, errno = ENOSYS, -1;
}
static inline int sched_setaffinity(int process, size_t n, const cpu_set_t *set) {
  return (void)process, (void)n, (void)set, errno = ENOSYS, -1;
}
static inline int sched_getcpu(void) { return 0; }
#endif
