// machine: facts about this processor that rules take their defaults from. None of them decides what is computed, only
// how fast.
#ifndef WEFT_DEVICE_MACHINE_H
#define WEFT_DEVICE_MACHINE_H
#include "codegen/program.h"

int64_t machine_tile_bytes(void);   // that a kernel's tile may take on a thread's stack for what it keeps (OptOp KEEP)
int64_t machine_cache_bytes(void);  // of a core's own second cache; a common size where the system does not say
// PREFETCH of the environment: *set is false where it says nothing. 0, or -1 and what is wrong with it.
int machine_prefetch_from_env(prefetch *out, bool *set, error *err);
void machine_print_prefetch(str *out, prefetch p);         // "8,t0"; "0": none
bool machine_may_prefetch(prefetch p);                     // whether it is one that could be printed
bool machine_parse_prefetch(const char *text, prefetch *out);
#endif
