// machine: facts about this processor from which rules take defaults. They never affect results, only speed.
#ifndef WEFT_DEVICE_MACHINE_H
#define WEFT_DEVICE_MACHINE_H
#include "codegen/program.h"

int64_t machine_tile_bytes(void);   // stack bytes that a kernel's tile may use for kept values (OptOp KEEP)
int64_t machine_cache_bytes(void);  // of a core's own L2 cache; a common size if the system does not tell
// The variable PREFETCH; *set is false if it is not set. Returns 0, or -1 and the error.
int machine_prefetch_from_env(prefetch *out, bool *set, error *err);
void machine_print_prefetch(str *out, prefetch p);         // "8,t0"; "0": none
bool machine_may_prefetch(prefetch p);                     // is p a value that machine_print_prefetch can print?
bool machine_parse_prefetch(const char *text, prefetch *out);
#endif
