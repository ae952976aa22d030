// kernel_set: the kernels and schedules that one processor level needs to run a model, as bytes in an exported program.
// They replace the kernel cache, and nothing is compiled.
//
// Collecting: after kernel_set_collect the process compiles for any level, whether its processor has it or not, does
// not read the cache, runs no kernels, and records what it compiled. Using: after kernel_set_use all kernels come from
// a set. In both modes, defaults from the machine (machine.h) are fixed, so that the requested kernels have the names
// of the collected ones. A process does one of the two, or neither.
#ifndef WEFT_DEVICE_KERNEL_SET_H
#define WEFT_DEVICE_KERNEL_SET_H
#include "device/code.h"

void kernel_set_collect(void);          // before a device is opened
bool kernel_set_collects(void);
bool kernel_set_used(void);
static inline bool kernel_set_is_on(void) { return kernel_set_collects() || kernel_set_used(); }

// What cache.h stores and finds, from any thread. Entries other than kernels, fillings and schedules are dropped.
// Values of an exported program have checksums: a damaged value is not found, and kernel_set_damage reports it from
// then on, since modified code must not run.
void kernel_set_add(const char *version, const void *key, size_t key_n, const void *value, size_t n);
bool kernel_set_get(const char *version, const void *key, size_t key_n, bytes *value);     // caller: bytes_free
bool kernel_set_damage(error *err);     // was a value damaged, and which one?

// Everything collected since the last call, in an order that does not depend on threads; `cpu`: the level (WEFT_CPU).
void kernel_set_pack(const char *cpu, bytes *out);
// Selects the set of the highest level that this processor has (or of WEFT_CPU, if set) from consecutive sets, which
// must stay in memory. Accepts any bytes. Returns -1 with the available levels.
int kernel_set_use(const void *sets, size_t n, error *err);
const char *kernel_set_cpu(void);       // the level in use; "" for none
#endif
