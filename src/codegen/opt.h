// OptOps: transformations of a kernel's ranges. All but a few are one substitution r -> r' * amount + new. Each is a
// row of a table (opt.c): name, operands, what it does or why not, and what a search tries of it.
#ifndef WEFT_OPT_H
#define WEFT_OPT_H
#include "base/str.h"
#include "codegen/program.h"
#include "graph/symbolic.h"

// Two operands each. An axis is an index into kernel_axes at the time when the opt is applied; so many steps of it, 0:
// all. A size that the steps do not divide is padded, so there is no PADTO. The order is that of a search's candidates.
enum opt_kind {
  OPT_LANES,       // (axis, steps): vectors along it
  OPT_SWAP,        // (output axis, output axis) change places in the order of the loops
  OPT_UPCAST,      // (output axis, steps) are copies in one iteration
  OPT_UNROLL,      // (summed axis, steps): the same of a sum
  OPT_ORDER,       // (enum order_kind, 0): what the compiler has to leave in the order of the program
  // (KiB, prefetch_hint): loads of streams ask for the bytes so many KiB further on; with 0 KiB, loads through a table
  // ask for those of the next entry. No value changes.
  OPT_PREFETCH,
  // (1 + hint or 0, operations): what all steps of the innermost plain loop over the output share, values of weights
  // that take so many operations or more, is computed once before it and kept in memory of the tile (reuse.h). With a
  // hint, what the next tile reads is asked for meanwhile.
  OPT_KEEP,
  OPT_THREAD,      // (output axis, steps) are tiles that threads share, whatever the sums inside
  OPT_LOCAL,       // (axis, steps) are items of a work-group; of a stage's axis: as many as there are make it together
  OPT_GROUP,       // (summed axis, steps) are items of a work-group, which add their sums up
  OPT_GROUPTOP,    // the same, with an item's steps side by side
  // (0, 1 + row of the table of descriptors, or 0): the dot products that TC made are written with it, in as many
  // pieces as it has too few lanes, or in plain arithmetic. Without DESCRIPTOR: with the first row that fits.
  OPT_DESCRIPTOR,
  OPT_LOOP,        // (axis, steps) are a loop of their own
  // (output axis, summed axis): the output is laid in lanes, and the dot-product instruction adds up neighbours of the
  // sum. (summed axis, the same), where there are work-groups: each item adds up neighbours; nothing is laid in lanes.
  OPT_TC,
  OPT_BLOCKS,      // (0, 0): kernel_split_on_constants
  OPT_SEPARATE,    // (number of a REDUCE in topological order, 0) gets ranges of its own
  OPT_LAYOUT,      // (0, enum layout_kind): of a weight, not of a kernel: always refused here
  OPT_MMA,         // (summed axis, 0): tiles that 32 items compute together (mma.h); output axes have to be cut for it
  // (summed axis, items in step): a sum that no item has for itself is made by items that run in step: the same ones
  // that have rows of a weight, make a tile or share its sum, in any number of such sets.
  OPT_STEP,
  // (0, steps): a product with one column gets a further output axis, the first one, whose steps all are that column
  // and of which one is stored
  OPT_COLUMNS,
  // (summed axis, parts): each part is a sum of every so-manieth step, and the parts are added up. Items may have
  // parts, and parts of parts, for themselves, or one all of them (GROUP of that axis, or none): the order of additions
  // is the same.
  OPT_PARTS,
  // (summed axis, LOCAL output axis): what items along the output axis read alike of streams in a step of the sum is
  // brought to the memory of the work-group a step ahead (stage_shared.h). No other OptOp follows it.
  OPT_SHARE,
  OPT_COUNT
};

// A list of them says all that was done to a kernel, so that the heuristic's own list, applied again, gives its kernel
// again.
typedef struct opt { enum opt_kind kind; int axis, amount; } opt;

enum { MOST_PREFETCH_KIB = 64, MOST_KEEP = 64 };
// The LOAD of a table that gives the place from which this LOAD reads kept memory (the table of a cache's pages); NULL:
// no table does.
uop *table_entry_of(const uop *load);

typedef struct kernel {
  graph *g;                  // of this compile
  uop *ast;                  // SINK(STORE(INDEX, value, output ranges...))
  const target *t;
  int64_t next_range;
  opt applied[32];
  int n_applied;
  bool order[ORDER_KINDS];   // ORDERs that were applied
  prefetch distance;            // PREFETCH
  int paged;              // 1 + hint of PREFETCH(0, hint); 0: none
  int keep, keep_hint;       // operations of KEEP, 0: none; 1 + hint for what the next tile keeps, 0: none
  descriptor_set without;    // descriptors that a DESCRIPTOR leaves out
  uop *share_step, *share_alike;           // ranges of SHARE; NULL: none
  const char *refusal;       // why kernel_apply refused the last one it did; static
} kernel;

// MOST_BOUND: sources of what binds ranges, until loops are unrolled: a place and a value, or values, and ranges
enum { MAX_AXES = 48, MOST_BOUND = 2 + MAX_AXES };
// Output ranges in STORE order, then those of reductions and stages (STOREs inside of the value, see rangeify.h) by
// number.
typedef struct axes { int n, n_out; uop *at[MAX_AXES]; } axes;

void kernel_init(kernel *k, graph *g, uop *ast, const target *t);
void kernel_axes(const kernel *k, axes *out);
// False where the opt makes no sense here (an axis is of another kind, steps do not fit): nothing changed then but
// k->refusal, which says why. Of a size that is padded, reductions are masked and stores guarded where it matters.
bool kernel_apply(kernel *k, opt o);
// One after the other. False: one was refused (DEBUG=3 says why). `strictly`: that ends it.
bool kernel_apply_all(kernel *k, const opt *opts, int n, bool strictly);
// ranges under div and mod by constants are split there: block structure reappears
void kernel_split_on_constants(kernel *k);
const char *opt_name(enum opt_kind k);
void opts_print(str *out, const opt *opts, int n);                             // "BLOCKS(0, 0) TC(0, 1) UNROLL(8, 0)"
bool opts_parse(const char *text, opt *out, int most, int *n);                 // the inverse; false: no such list

// Gives a REDUCE ranges of its own where it shares them with another one (a loop less to share, a freedom more). True
// if it did.
bool kernel_separate(kernel *k, uop *reduce);
// What is left of the output ranges becomes tiles that threads share (one GLOBAL range) or plain loops.
void kernel_make_tiles(kernel *k);
// Of a machine with work-groups: output ranges of known sizes, at most MAX_AXES, that become the number of the
// work-group, the last one fastest. Gives how many.
int kernel_group_ranges(const kernel *k, uop **out);
int64_t kernel_items(const kernel *k);           // of a work-group: along LOCAL ranges of the output and GROUP ranges
// Output ranges that every outermost REDUCE and every stage depends on: splitting these among threads repeats neither.
void kernel_tile_ranges(const kernel *k, map *out);

// Decisions.
void heuristic(kernel *k,
               bool by_memory);  // good without search (heuristic.c); by_memory: memory decides the kernel's time
// Is `product`, a term of a sum of type acc, CAST(a) * CAST(x) as a DOT takes it: a unsigned bytes and x a load of
// signed ones (acc I32), or both BF16 (acc F32), where a is what depends on `lane` (NULL: either)?
bool dot_operands(uop *product, enum dtype acc, const uop *lane, uop **a, uop **x);
// that a DOT adds up in each lane
static inline int dot_products(enum dtype acc) { return acc == DT_I32 ? 4 : 2; }
bool is_shared_out(const uop *reduce);           // have items all that it adds up, each a step?
uop *monoid_identity(graph *g, const uop *like, enum op op);     // x op identity = x; dtype and lanes of `like`
#endif
