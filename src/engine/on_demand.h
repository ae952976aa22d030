// on_demand: models larger than the memory that is free.  Their weights are brought when a kernel is about to read them
// (device/demand.h); here stands how much memory they get, and what is said about it.
#ifndef WEFT_ENGINE_ON_DEMAND_H
#define WEFT_ENGINE_ON_DEMAND_H
#include "base/base.h"
#include "model/model.h"

typedef struct device device;
typedef struct demand demand;

// Whether weights on device d can be brought on demand at all: they lie in a file, and kernels read copies of them that
// are in this process's memory.
bool on_demand_possible(const gguf *file, const device *d);
// Bytes that weights may take: those of WEFT_WEIGHT_MEMORY, or of `have` bytes of memory what is left beside `beside`
// bytes of other things, and the program.
uint64_t on_demand_budget(uint64_t have, uint64_t beside);
uint64_t on_demand_wanted(void);                     // of WEFT_WEIGHT_MEMORY; 0: it does not say
// A model with more weights than that: a warning says what it costs.  NULL and the numbers where there is not even room
// for what one layer of a prompt reads.
demand *on_demand_open(const gguf *file, const model *m, uint64_t budget, error *err);
// How many matrices tensor `id` is, each of which may be brought by itself; 0: it is none that is brought on demand.
int64_t on_demand_matrices(const gguf *file, int64_t id);
#endif
