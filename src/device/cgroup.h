// cgroup: limits that Linux control groups (versions 1 and 2) put on this process: processor time and memory.
//
// A container or a batch system gives a process less than the machine has, and only control groups tell. The limits of
// all groups from the process's own up to the mount's root count; the tightest wins. These functions do not fail: an
// unreadable limit is no limit.
#ifndef WEFT_DEVICE_CGROUP_H
#define WEFT_DEVICE_CGROUP_H
#include "base/base.h"

// `root` is "" for this machine; tests give a folder that holds proc/self/cgroup, proc/self/mountinfo and the mounted
// files.
double cgroup_cpus(const char *root);                 // processors' worth of time, e.g. 1.5; 0 if unlimited
uint64_t cgroup_memory_limit(const char *root);       // bytes; UINT64_MAX if unlimited
// bytes still available, with page cache counted as free; UINT64_MAX if unlimited
uint64_t cgroup_memory_available(const char *root);
#endif
