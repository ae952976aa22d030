// Resource limits: Windows has none.
#ifndef WEFT_WINDOWS_RESOURCE_H
#define WEFT_WINDOWS_RESOURCE_H
#include <stdint.h>
#include <sys/time.h>
typedef uint64_t rlim_t;
struct rlimit { rlim_t rlim_cur, rlim_max; };
struct rusage { struct timeval ru_utime, ru_stime; long ru_maxrss; };
enum { RLIMIT_STACK, RLIMIT_CPU, RLIMIT_NOFILE, RLIMIT_FSIZE, RLIMIT_AS };
#define RLIM_INFINITY UINT64_MAX
int getrlimit(int what, struct rlimit *out);
int setrlimit(int what, const struct rlimit *to);
#endif
