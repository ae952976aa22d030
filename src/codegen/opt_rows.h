// The table of OptOps: names, operands, effects, and candidates for a search.
#ifndef WEFT_OPT_ROWS_H
#define WEFT_OPT_ROWS_H
#include "codegen/kernel_ranges.h"

typedef struct operand {
  enum { IS_NOTHING, IS_OUTPUT_AXIS, IS_SUMMED_AXIS, IS_AXIS, IS_NUMBER } is;    // IS_NOTHING: always 0
  int least, most;                       // bounds of a number
} operand;

typedef VEC(opt) opt_vec;

typedef struct opt_row {
  const char *name;
  operand axis, amount;                  // checked before `apply` is called
  // Returns NULL if applied, otherwise the reason; the caller undoes partial changes.
  const char *(*apply)(kernel *k, const axes *x, opt o);
  // Adds candidates worth trying. NULL: searches do not change it.
  void (*candidates)(const kernel *k, const axes *x, opt_vec *out);
  // ---- rows that make `amount` steps of an axis another kind of range (opt_take_axis)
  enum axis_kind into;
  bool top;                              // takes the last steps of the axis instead of the first
  const char *(*fits)(const kernel *k, const axes *x, const uop *r, int64_t amount);    // NULL: it fits
  // ---- for searches
  enum { DECIDES_NOTHING, DECIDES_SUMS, DECIDES_SUMS_IF_SUMMED } decides;    // does it decide the order of sums?
  bool of_loads;                         // concerns all loads of a kernel and names no axis: comes at the end of lists
  bool once;                             // another one replaces it
  int rank;                              // 1: cheap and often a gain; 0: tried last
} opt_row;

extern const char opt_not_followed[];    // the verifier cannot follow the new ranges
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
// The reason why cooperating work-items forbid the opt, or NULL.
const char *items_forbid(const kernel *k, const axes *x, opt o);
// After GROUP: moves a sum over its range inside another sum to the outer one.
void widen_sums(kernel *k);
#endif
