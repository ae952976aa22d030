// Substitution of a kernel's ranges, and questions about them: what OptOps (opt.c, opt_groups.c) and tiles are made of.
#ifndef WEFT_KERNEL_RANGES_H
#define WEFT_KERNEL_RANGES_H
#include "codegen/opt.h"

// Everything with range r replaced by `expr`; lists that bound r bind `fresh` instead. `valid` (or NULL): where the new
// ranges stay inside the old one. `parts` (or NULL): what a REDUCE bound is a part of a sum over this range.
typedef struct change { uop *r, *expr, *fresh[2], *valid, *parts; int n; bool guard_stores; } change;
void replace_range(kernel *k, const change *c);
// The same where the verifier can follow guards and padding (even: there are none of this change's); otherwise false,
// and nothing is done.
bool replace_soundly(kernel *k, const change *c, bool even);
// r -> r' * amount + new (top: new * rest + r'), where `new` is of this kind. False: it cannot be.
bool split_range(kernel *k, uop *r, int64_t amount, enum axis_kind kind, bool top);
void change_kind(kernel *k, uop *r, enum axis_kind kind);
// `amount` steps of r, all of them or a split
bool take_range(kernel *k, uop *r, int64_t amount, enum axis_kind kind);

void kernel_set_store(kernel *k, uop *store);            // the kernel is this one

bool has_guards(const kernel *k);
// Is every sum over `inner` one of dot_operands, of other ones `a` in each lane of `lane` (NULL: either)? inner NULL:
// are those still that are DOT axes?
bool dots_over(const kernel *k, const uop *lane, const uop *inner);
// Is `is` true of any node of the kernel?
bool any_node(const kernel *k, bool (*is)(const uop *u, const void *ctx), const void *ctx);
#endif
