// on_demand: models larger than the free memory. Their weights are loaded when a kernel is about to read them
// (device/demand.h); this file decides their memory and the messages.
#ifndef WEFT_ENGINE_ON_DEMAND_H
#define WEFT_ENGINE_ON_DEMAND_H
#include "base/base.h"
#include "model/model.h"

typedef struct device device;
typedef struct demand demand;

// Can weights on device d be loaded on demand? They must be in a file, and kernels must read packed copies in this
// process's memory.
bool on_demand_possible(const gguf *file, const device *d);
// Bytes for weights: WEFT_WEIGHT_MEMORY, or the rest of `have` bytes of memory after `beside` bytes for other data and
// the program.
uint64_t on_demand_budget(uint64_t have, uint64_t beside);
uint64_t on_demand_wanted(void);                     // WEFT_WEIGHT_MEMORY; 0: not set
// For a model with more weights than that; prints a warning with the cost. NULL and the numbers if there is not even
// enough for one layer of a prompt.
demand *on_demand_open(const gguf *file, const model *m, uint64_t budget, error *err);
// Bytes of weights that a token reads, from memory or from the file; of experts a usual share.
double on_demand_token_bytes(const gguf *file, const model *m);
// The number of matrices of tensor `id` that can be loaded separately; 0: it is not loaded on demand.
int64_t on_demand_matrices(const gguf *file, int64_t id);
#endif
