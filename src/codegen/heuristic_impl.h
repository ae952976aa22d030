// What the files of the heuristic share: queries about index expressions.
#ifndef WEFT_HEURISTIC_IMPL_H
#define WEFT_HEURISTIC_IMPL_H
#include "codegen/opt.h"

typedef struct loads { uop *at[512]; int n; } loads;
void find_loads(uop *root, loads *out);                          // all LOADs below root
void find_values(uop *u, map *seen, loads *out);                 // without those that compute addresses

// The coefficient of range r in an INDEX (idx_factor).
static inline int64_t index_coefficient(const uop *index, const uop *r) { return idx_factor(index->src[1], r); }
bool has_own_weights(const loads *l, const uop *r);     // does each step of r read different weights?
bool shares_loads(uop *reduce, uop *r);          // is some load of its body constant along r?
bool only_in_addresses(uop *u, uop *r, map *seen);               // is r used only in addresses that grow evenly?
uop *main_reduce(kernel *k, int *count);  // the kernel's product; count: number of reductions over its last range

enum { MOST_NUMBERS = 3 /* of items, that a launch has */ };
bool apply_to(kernel *k, enum opt_kind kind, const uop *r, int amount);          // applies the OptOp to range r
int axis_of(const kernel *k, const uop *r);
// Calls `change` with each op of a kernel (all->at[i], operands first) until it returns true, since it has changed the
// kernel; then with the new ops, until no call changes it.
typedef bool op_change(kernel *k, const uop_list *all, size_t i, int arg);
void kernel_change_all(kernel *k, op_change *change, int arg);
void unroll_dot(kernel *k);                      // unrolls inside the outermost reduction around a dot product
// Do bytes of a weight serve several steps of r, or another sum without these steps?
bool shares_bytes(kernel *k, uop *reduce, const uop *r);

// Copies the loops around stages; returns the number of copies.
int copy_stages(kernel *k);

// For devices with work-groups: optimises a kernel with stages, which all work-items compute together. False, with the
// kernel unchanged, if it has no stages.
bool stages_of_items(kernel *k);
void work_groups(kernel *k);                     // the heuristic for devices with work-groups
#endif
