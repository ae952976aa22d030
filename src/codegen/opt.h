// OptOps: transformations of a kernel's ranges. Nearly all are one substitution r -> r' * amount + new. Each is a row
// of a table (opt.c): name, operands, what it does or why it is refused, and the candidates that a search tries.
#ifndef WEFT_OPT_H
#define WEFT_OPT_H
#include "base/str.h"
#include "codegen/program.h"
#include "graph/symbolic.h"

// Two operands each. An axis is an index into kernel_axes at the time when the opt is applied; `steps` is the number of
// steps taken from it, 0: all. A size that the steps do not divide is padded, so there is no PADTO. A search tries
// candidates in this order.
enum opt_kind {
  OPT_LANES,       // (axis, steps): vectors along it
  OPT_SWAP,        // (output axis, output axis) trade places in the order of the loops
  OPT_UPCAST,      // (output axis, steps) become copies in one iteration
  OPT_UNROLL,      // (summed axis, steps) become copies in one iteration
  OPT_ORDER,       // (enum order_kind, 0): instructions that the compiler must leave in program order
  // (KiB, prefetch_hint): loads of packed weights prefetch the bytes that many KiB ahead; with 0 KiB, loads through a
  // table prefetch those of the next entry. No value changes.
  OPT_PREFETCH,
  // (1 + hint or 0, operations): values of weights that all steps of the innermost plain output loop share and that
  // take at least this many operations are computed once before the loop and kept in memory of the tile (reuse.h). With
  // a hint, the loop prefetches what the next tile reads.
  OPT_KEEP,
  OPT_THREAD,      // (output axis, steps) become tiles that threads share, whatever the sums inside
  OPT_LOCAL,       // (axis, steps) become work-items; an axis of a stage: all work-items compute it together
  OPT_GROUP,       // (summed axis, steps) become work-items, which add their sums up
  OPT_GROUPTOP,    // like GROUP, but a work-item's steps are consecutive
  // (0, 1 + row of the table of descriptors, or 0): writes the dot products of TC with this row, in several pieces if
  // it has too few lanes, or as plain arithmetic. Without DESCRIPTOR: the first row that fits.
  OPT_DESCRIPTOR,
  OPT_LOOP,        // (axis, steps) become a loop of their own
  // (output axis, summed axis): lanes over the output; the dot-product instruction adds up neighbours of the sum.
  // (summed axis, the same axis) on devices with work-groups: each work-item adds up neighbours, without lanes.
  OPT_TC,
  OPT_BLOCKS,      // (0, 0): kernel_split_on_constants
  OPT_SEPARATE,    // (number of a REDUCE in topological order, 0) gets its own ranges
  OPT_LAYOUT,      // (0, enum layout_kind): applies to a weight, not to a kernel: always refused here
  OPT_MMA,  // (summed axis, 0): tiles that 32 work-items compute together (mma.h); the output axes must be split for it
  // (summed axis, subgroup size): a sum that is equal for several work-items is computed by a subgroup together: the
  // work-items that have rows of a weight, make a tile or share its sum, in any number of such sets
  OPT_STEP,
  // (0, steps): a product with one column gets a new first output axis; all of its steps are that column, and one is
  // stored
  OPT_COLUMNS,
  // (summed axis, parts): splits a sum into parts of every `parts`-th step, which are added up. Work-items may compute
  // single parts, parts of parts, or all parts (with or without GROUP of that axis): the order of additions does not
  // change.
  OPT_PARTS,
  // (summed axis, LOCAL output axis): bytes of packed weights that work-items along the output axis share in a step of
  // the sum are copied to work-group memory one step ahead (stage_shared.h). It must be the last OptOp.
  OPT_SHARE,
  OPT_COUNT
};

// A list of OptOps describes a kernel's loops completely: applying the heuristic's own list again gives its kernel
// again.
typedef struct opt { enum opt_kind kind; int axis, amount; } opt;

enum { MOST_PREFETCH_KIB = 64, MOST_KEEP = 64 };
// The LOAD of a table entry that gives the place from which this LOAD reads (the page table of a KV cache); NULL if its
// address comes from no table.
uop *table_entry_of(const uop *load);

typedef struct kernel {
  graph *g;                  // of this compile
  uop *ast;                  // SINK(STORE(INDEX, value, output ranges...))
  const target *t;
  int64_t next_range;
  opt applied[32];
  int n_applied;
  bool order[ORDER_KINDS];   // the ORDERs applied
  prefetch distance;            // set by PREFETCH
  int paged;              // 1 + hint of PREFETCH(0, hint); 0: not applied
  int keep, keep_hint;       // operations of KEEP, 0: not applied; 1 + hint for what the next tile keeps, 0: none
  descriptor_set without;    // rows that DESCRIPTOR excludes
  uop *share_step, *share_alike;           // ranges of SHARE; NULL: not applied
  const char *refusal;       // why kernel_apply refused the last opt; static text
} kernel;

// MOST_BOUND: sources of a node that binds ranges, before loops are unrolled: a place and a value (or values), and
// ranges
enum { MAX_AXES = 48, MOST_BOUND = 2 + MAX_AXES };
// Output ranges in STORE order, then those of reductions and stages (STOREs inside the value, see rangeify.h) by
// number.
typedef struct axes { int n, n_out; uop *at[MAX_AXES]; } axes;

void kernel_init(kernel *k, graph *g, uop *ast, const target *t);
void kernel_axes(const kernel *k, axes *out);
// Applies one opt. False if it does not fit (wrong kind of axis, steps that do not fit): the kernel is unchanged and
// k->refusal says why. For a padded size, reductions are masked and stores guarded where necessary.
bool kernel_apply(kernel *k, opt o);
// Applies opts in order. False if one was refused (DEBUG=3 prints why). `strictly`: stops at the first refusal.
bool kernel_apply_all(kernel *k, const opt *opts, int n, bool strictly);
// splits ranges at the constants by which they are divided: this recovers the block structure of formats
void kernel_split_on_constants(kernel *k);
const char *opt_name(enum opt_kind k);
void opts_print(str *out, const opt *opts, int n);                             // "BLOCKS(0, 0) TC(0, 1) UNROLL(8, 0)"
bool opts_parse(const char *text, opt *out, int most, int *n);                 // the inverse; false: not a valid list

// Gives a REDUCE its own ranges if it shares them with another one (one shared loop less, more freedom). Returns
// whether it did.
bool kernel_separate(kernel *k, uop *reduce);
// Converts the remaining output ranges to tiles that threads share (one GLOBAL range) or to plain loops.
void kernel_make_tiles(kernel *k);
// For devices with work-groups: output ranges of known sizes (at most MAX_AXES) that become the work-group id, the last
// one fastest. Returns their number.
int kernel_group_ranges(const kernel *k, uop **out);
int64_t kernel_items(const kernel *k);           // work-items of a work-group: LOCAL output ranges and GROUP ranges
// Output ranges that every outermost REDUCE and every stage depends on: splitting them among threads repeats no work.
void kernel_tile_ranges(const kernel *k, map *out);

// Decisions.
void heuristic(kernel *k,
               bool by_memory);  // chooses OptOps without search (heuristic.c); by_memory: memory limits the kernel
// Does `product`, a term of a sum of type acc, have the form CAST(a) * CAST(x) that a DOT takes? a: unsigned bytes, x:
// a load of signed bytes (acc I32); or both BF16 (acc F32). a depends on `lane` (NULL: either may be a).
bool dot_operands(uop *product, enum dtype acc, const uop *lane, uop **a, uop **x);
// products that a DOT adds up in each lane
static inline int dot_products(enum dtype acc) { return acc == DT_I32 ? 4 : 2; }
bool is_shared_out(const uop *reduce);           // does each work-item have one step of the sum?
uop *monoid_identity(graph *g, const uop *like, enum op op);     // x op identity = x; dtype and lanes of `like`
#endif
