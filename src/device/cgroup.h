// Limits that Linux control groups put on this process: processor time and memory, in versions 1 and 2 of cgroups.
//
// A container or a batch system gives a process less than the machine has, and says so only here.  Limits of all groups
// from the process's own up to the mount's root count; the tightest wins.  Nothing here fails: what cannot be read
// limits nothing.
#ifndef WEFT_DEVICE_CGROUP_H
#define WEFT_DEVICE_CGROUP_H
#include "base/base.h"

// `root` is "" for this machine; tests give a folder that holds proc/self/cgroup, proc/self/mountinfo and the mounted
// files.
double cgroup_cpus(const char *root);                 // processors' worth of time, e.g. 1.5; 0 if unlimited
uint64_t cgroup_memory_limit(const char *root);       // bytes; UINT64_MAX if unlimited
// bytes still to be had, page cache counted as free; UINT64_MAX if unlimited
uint64_t cgroup_memory_available(const char *root);
#endif
