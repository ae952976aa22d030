// The processors of this process.
#ifndef WEFT_WINDOWS_SCHED_H
#define WEFT_WINDOWS_SCHED_H
#include_next <sched.h>
#include "base/windows/posix/posix.h"
enum { CPU_SETSIZE = 64 };                // of one processor group
typedef struct cpu_set_t { uint64_t bits; } cpu_set_t;
#define CPU_ZERO(s) ((s)->bits = 0)
#define CPU_SET(i, s) ((s)->bits |= (uint64_t)1 << (i))
#define CPU_ISSET(i, s) ((s)->bits >> (i) & 1)
#define CPU_COUNT(s) __builtin_popcountll((s)->bits)
int sched_getaffinity(int process, size_t n, cpu_set_t *set);          // of the calling thread
int sched_setaffinity(int process, size_t n, const cpu_set_t *set);
int sched_getcpu(void);
#endif
