// Confinement of a process to what it still needs, by seccomp.
#ifndef WEFT_DEVICE_CONFINE_H
#define WEFT_DEVICE_CONFINE_H
#include <stdbool.h>

// From now on every thread of this process, and those it makes, may use memory that is not executable, its open
// descriptors, clocks and locks, and end; every other system call fails with EPERM. It cannot be undone. False where
// the kernel has no such filter.
bool confine_to_computing(void);
#endif
