// demand: weights that do not fit into memory together are brought from the file when a kernel is about to read them,
// and the memory of others is given back (demand paging, in the layouts that kernels read).
//
// A weight has addresses for all of itself, so kernels do not change; memory holds some of its parts. A part is
// one expert's matrix, where the file has one behind the other, or else the whole weight. Who runs a plan says before
// each level which kernels come next (demand_begin), and all threads of its team bring what is missing (demand_bring).
#ifndef WEFT_DEVICE_DEMAND_H
#define WEFT_DEVICE_DEMAND_H
#include "device/device.h"
#include "schedule/layout.h"

typedef struct demand demand;
typedef struct demand_weight demand_weight;

// What a kernel reads of a weight: the matrices whose numbers (n of I32) lie at `which`; NULL: all of it.
typedef struct demand_read { demand_weight *of; const int32_t *which; int64_t n; } demand_read;

// Reads n bytes of weight `id` from byte `at` on. -1: it cannot.
typedef int demand_reader(void *ctx, int64_t id, uint64_t at, void *to, size_t n);
// Bytes.  budget: those that may be in memory.  always: of weights that every token reads; largest: of the largest of
// these, which stays, so that no room has to be kept for it. Of the others as many stay as there is room for, evenly
// over the model, beside `coming` bytes for weights that come and go.
typedef struct demand_sizes { uint64_t budget, always, largest, coming; } demand_sizes;
demand *demand_new(const demand_sizes *s, demand_reader *reader, void *ctx);
void demand_free(demand *q);
// Weight `id` of so many matrices in layout l: what was made before, or new (*is_new; then demand_fill_by is to come).
// raw: as the file has it.  NULL and why not.
demand_weight *demand_weight_of(demand *q, int64_t id, const layout *l, int64_t matrices, const unsigned char *raw,
                                bool *is_new, error *err);
unsigned char *demand_memory(const demand_weight *w);
// k: the kernel that lays it out, of `kernels`; NULL: a plain copy.
void demand_fill_by(demand_weight *w, const device_kernel *k);
// Takes the kernels that fill over (an array for free), with what they are made of.
void demand_keep(demand *q, graph *g, device_kernel *kernels, int n, code_image *code);

// By one thread, while no other is between demand_begin and the barrier behind demand_bring: what the next kernels
// read. threads: how many will come.
void demand_begin(demand *q, const demand_read *now, size_t n, int threads);
// By every thread, between two barriers behind demand_begin: brings its part of what was missing.
void demand_bring(demand *q, int thread);

// Since demand_new: bytes that were read, and those of them that had been in memory before.
typedef struct demand_stats { uint64_t read, again, resident; } demand_stats;
demand_stats demand_get_stats(const demand *q);
#endif
