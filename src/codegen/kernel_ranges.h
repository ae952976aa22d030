// Substitution of a kernel's ranges, and queries about them: the basis of OptOps (opt.c, opt_groups.c) and tiles.
#ifndef WEFT_KERNEL_RANGES_H
#define WEFT_KERNEL_RANGES_H
#include "codegen/opt.h"

// A substitution of range r by `expr`; lists that bound r bind `fresh` instead. `valid` (or NULL): the condition under
// which the new ranges are inside the old one. `parts` (or NULL): a REDUCE that bound r becomes a part of a sum over
// this range.
typedef struct change { uop *r, *expr, *fresh[2], *valid, *parts; int n; bool guard_stores; } change;
void replace_range(kernel *k, const change *c);
// Substitutes only if the verifier can follow the guards and the padding (even: this change adds none); otherwise
// returns false and changes nothing.
bool replace_soundly(kernel *k, const change *c, bool even);
// r -> r' * amount + new (top: new * rest + r'); `new` is of this kind. False if it is impossible.
bool split_range(kernel *k, uop *r, int64_t amount, enum axis_kind kind, bool top);
void change_kind(kernel *k, uop *r, enum axis_kind kind);
// changes the kind of `amount` steps of r: all of them, or a split
bool take_range(kernel *k, uop *r, int64_t amount, enum axis_kind kind);

void kernel_set_store(kernel *k, uop *store);            // replaces the kernel's STORE

bool has_guards(const kernel *k);
// Is every sum over `inner` a sum of dot_operands with other values of `a` in each lane of `lane` (NULL: any)? inner
// NULL: checks the ranges that are already DOT axes.
bool dots_over(const kernel *k, const uop *lane, const uop *inner);
// Does `is` hold for any node of the kernel?
bool any_node(const kernel *k, bool (*is)(const uop *u, const void *ctx), const void *ctx);
#endif
