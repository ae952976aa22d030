// The table of OptOps: what each is called, what its operands are, what it does, and what a search may try of it.
#ifndef WEFT_OPT_ROWS_H
#define WEFT_OPT_ROWS_H
#include "codegen/kernel_ranges.h"

typedef struct operand {
  enum { IS_NOTHING, IS_OUTPUT_AXIS, IS_SUMMED_AXIS, IS_AXIS, IS_NUMBER } is;    // nothing: 0
  int least, most;                       // of a number
} operand;

typedef VEC(opt) opt_vec;

typedef struct opt_row {
  const char *name;
  operand axis, amount;                  // checked before `apply` is called
  // NULL: applied. Otherwise why not; what it did until then is undone.
  const char *(*apply)(kernel *k, const axes *x, opt o);
  // Adds what is worth trying. NULL: searches leave it as it is.
  void (*candidates)(const kernel *k, const axes *x, opt_vec *out);
  // ---- of those that make `amount` steps of an axis another kind of range (opt_take_axis)
  enum axis_kind into;
  bool top;                              // the last steps of the axis, not the first
  const char *(*fits)(const kernel *k, const axes *x, const uop *r, int64_t amount);    // NULL: it fits
  // ---- of searches
  enum { DECIDES_NOTHING, DECIDES_SUMS, DECIDES_SUMS_IF_SUMMED } decides;    // about the order of sums
  bool of_loads;                         // of all loads of a kernel; names no axis: lists end with these
  bool once;                             // another one takes its place
  int rank;                              // 1: costs little and often gains; 0: comes last
} opt_row;

extern const char opt_not_followed[];    // the verifier cannot follow what it makes of its axes
const opt_row *opt_row_of(enum opt_kind k);
bool is_output_axis(const axes *x, const uop *r);
const char *opt_take_axis(kernel *k, const axes *x, opt o);

// ---- work-groups and subgroups (opt_groups.c) -----------------------------------------------------------------------

const char *local_fits(const kernel *k, const axes *x, const uop *r, int64_t amount);
const char *group_fits(const kernel *k, const axes *x, const uop *r, int64_t amount);
const char *apply_mma(kernel *k, const axes *x, opt o);
const char *apply_step(kernel *k, const axes *x, opt o);
const char *apply_columns(kernel *k, const axes *x, opt o);
const char *apply_parts(kernel *k, const axes *x, opt o);
const char *apply_share(kernel *k, const axes *x, opt o);
// NULL, or why items of a work-group forbid it.
const char *items_forbid(const kernel *k, const axes *x, opt o);
// After GROUP: a sum over its range inside of another sum becomes the outer one's.
void widen_sums(kernel *k);
#endif
