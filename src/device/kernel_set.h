// kernel_set: the kernels and schedules that one level of a processor needs to run a model, as bytes in an exported
// program.  They take the place of the kernel cache, and nothing is compiled.
//
// Collecting: from kernel_set_collect on, this process compiles for any level, whether its processor has it or not,
// takes nothing from the cache, runs no kernels, and remembers what it compiled.  Using: from kernel_set_use on, all
// kernels come from a set.  In both, what rules take from the machine (machine.h) is fixed, so that the kernels that
// are asked for have the names of those that were collected.  A process does one of the two, or neither.
#ifndef WEFT_DEVICE_KERNEL_SET_H
#define WEFT_DEVICE_KERNEL_SET_H
#include "device/code.h"

void kernel_set_collect(void);          // before a device is opened
bool kernel_set_collects(void);
bool kernel_set_used(void);
static inline bool kernel_set_is_on(void) { return kernel_set_collects() || kernel_set_used(); }

// What cache.h stores and finds, from any thread.  Other entries than kernels, fillings and schedules are dropped.
// Values of an exported program have checksums: one that is damaged is not found, and kernel_set_damage says so from
// then on, as code that was changed must not run.
void kernel_set_add(const char *version, const void *key, size_t key_n, const void *value, size_t n);
bool kernel_set_get(const char *version, const void *key, size_t key_n, bytes *value);     // caller: bytes_free
bool kernel_set_damage(error *err);     // whether a value was damaged, and which one

// All that was collected since the last time, in an order that does not depend on threads; `cpu`: the level (WEFT_CPU).
void kernel_set_pack(const char *cpu, bytes *out);
// Takes the set of the highest level that this processor has, or of WEFT_CPU if that is set, from sets one after the
// other, which stay where they are.  Any bytes may be given.  -1 and which levels there are.
int kernel_set_use(const void *sets, size_t n, error *err);
const char *kernel_set_cpu(void);       // the level in use; "" for none
#endif
