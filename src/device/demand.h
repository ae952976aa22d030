// demand: demand paging of weights that do not fit into memory together. A weight is read from the file when a kernel
// is about to use it, in the layout of that kernel, and others are dropped.
//
// A weight has addresses for all of its bytes, so kernels do not change; only some of its parts are resident. A part is
// one expert's matrix if the file stores them one after the other, otherwise the whole weight. Before each level the
// caller names what the next kernels read (demand_begin), and all threads of the team load what is missing
// (demand_bring).
#ifndef WEFT_DEVICE_DEMAND_H
#define WEFT_DEVICE_DEMAND_H
#include "device/device.h"
#include "schedule/layout.h"

typedef struct demand demand;
typedef struct demand_weight demand_weight;

// What a kernel reads of a weight: the matrices whose n numbers (I32) are at `which`; NULL: all of it.
typedef struct demand_read { demand_weight *of; const int32_t *which; int64_t n; } demand_read;

// Reads n bytes of weight `id` from byte `at` on. Returns -1 on failure.
typedef int demand_reader(void *ctx, int64_t id, uint64_t at, void *to, size_t n);
// In bytes. budget: maximum resident. always: of weights that every token reads; largest: of the largest of these,
// which is always kept, so that no space is reserved for it. Of the others, as many are kept as fit beside `coming`
// bytes for loading, spread evenly over the model.
typedef struct demand_sizes { uint64_t budget, always, largest, coming; } demand_sizes;
demand *demand_new(const demand_sizes *s, demand_reader *reader, void *ctx);
void demand_free(demand *q);
// Weight `id` of `matrices` matrices in layout l: an existing one, or a new one (*is_new; call demand_fill_by next).
// raw: the file's bytes. NULL and the reason on failure.
demand_weight *demand_weight_of(demand *q, int64_t id, const layout *l, int64_t matrices, const unsigned char *raw,
                                bool *is_new, error *err);
unsigned char *demand_memory(const demand_weight *w);
// k: the kernel that packs it, one of `kernels`; NULL: a plain copy.
void demand_fill_by(demand_weight *w, const device_kernel *k);
// Takes ownership of the filling kernels (an array from malloc) and their code.
void demand_keep(demand *q, graph *g, device_kernel *kernels, int n, code_image *code);

// Called by one thread while no other is between demand_begin and the barrier after demand_bring: states what the next
// kernels read. threads: number of threads that will call demand_bring.
void demand_begin(demand *q, const demand_read *now, size_t n, int threads);
// Called by every thread, between two barriers after demand_begin: loads its share of the missing parts.
void demand_bring(demand *q, int thread);
#endif
