// What the files of the heuristic share: questions about index expressions.
#ifndef WEFT_HEURISTIC_IMPL_H
#define WEFT_HEURISTIC_IMPL_H
#include "codegen/opt.h"

typedef struct loads { uop *at[512]; int n; } loads;
void find_loads(uop *root, loads *out);                          // all LOADs below root
void find_values(uop *u, map *seen, loads *out);                 // the same without what addresses are made of

// Of range r in an INDEX (idx_factor).
static inline int64_t index_coefficient(const uop *index, const uop *r) { return idx_factor(index->src[1], r); }
bool has_own_weights(const loads *l, const uop *r);     // does each step of r read other weights?
bool shares_loads(uop *reduce, uop *r);          // does some load of its body stay the same along r?
bool only_in_addresses(uop *u, uop *r, map *seen);               // is r in nothing but addresses that grow evenly?
uop *main_reduce(kernel *k, int *count);         // the kernel's product; count: how many reduce over its last range

enum { MOST_NUMBERS = 3 /* of items, that a launch has */ };
bool apply_to(kernel *k, enum opt_kind kind, const uop *r, int amount);          // the OptOp on range r
int axis_of(const kernel *k, const uop *r);
void unroll_dot(kernel *k);                      // what is inside the outermost reduction around a dot product
// Do bytes of a weight serve several steps of r, or another sum that has no such steps?
bool shares_bytes(kernel *k, uop *reduce, const uop *r);

// Loops around stages become copies of these; gives how many there are.
int copy_stages(kernel *k);

// Where there are work-groups: a kernel with stages, which all items make together; false, and nothing done: no such
// kernel.
bool stages_of_items(kernel *k);
void work_groups(kernel *k);                     // the heuristic where there are work-groups
#endif
