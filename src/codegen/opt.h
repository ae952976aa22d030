// OptOps: transformations of a kernel's ranges. All but a few are one substitution r -> r' * amount + new.
#ifndef WEFT_OPT_H
#define WEFT_OPT_H
#include "base/str.h"
#include "codegen/program.h"
#include "graph/symbolic.h"

enum opt_kind {
  OPT_UPCAST,
  OPT_UNROLL,
  OPT_LANES,
  OPT_LOCAL,
  OPT_GROUP,
  OPT_GROUPTOP,
  OPT_THREAD,
  OPT_LOOP,
  OPT_TC,
  OPT_SWAP,
  OPT_BLOCKS,
  OPT_SEPARATE,
  OPT_ORDER,
  OPT_DESCRIPTOR,
  OPT_LAYOUT,
  OPT_PREFETCH,
  OPT_KEEP,
  OPT_MMA,
  OPT_STEP,
  OPT_COLUMNS,
  OPT_PARTS,
  OPT_SHARE,
  OPT_COUNT
};

// axis: index into kernel_axes at the time when the opt is applied. amount 0: the whole axis. TC: axis is the output
// axis that is laid in lanes, amount the reduced axis of which the dot-product instruction adds up four neighbours.
// Where there are work-groups it may be TC(i, i): each item adds up four neighbours of axis i, and no axis is laid in
// lanes. LOCAL of a stage's axis: all items of a work-group, as many as `amount`, make the stage together. SWAP: axis
// and amount, two output axes, change places in the loop order. THREAD (whole axis): its steps are tiles that threads
// share, whatever the reductions inside. There is no PADTO of its own: an amount that does not divide a size pads it.
// BLOCKS: kernel_split_on_constants. SEPARATE: kernel_separate of REDUCE number `axis` in topological order. ORDER:
// what the compiler has to leave in the order of the program, enum order_kind (program.h). DESCRIPTOR: the dot products
// that TC made are written with row amount - 1 of the table of descriptors, in as many pieces as it has too few lanes,
// or (0) without any, in plain arithmetic; without it, with the first row that fits. LAYOUT is none of a kernel, but of
// a weight (enum layout_kind), and refused. PREFETCH: loads of streams ask for the bytes `axis` KiB further on, with
// hint `amount` (prefetch_hint); where axis is 0, loads through a table for those of the next entry. It changes no
// value. KEEP: what all steps of the innermost plain loop over the output share, values of weights that take `amount`
// operations or more, is computed once before it and kept in memory of the tile (keep.h); where axis is not 0, what the
// next tile reads is asked for meanwhile, with hint axis - 1. MMA: sums over reduced axis `axis` become tiles
// that 32 items compute together (mma.h), which its output axes have to be cut for. STEP: a sum that no item has for
// itself is made by `amount` items that run in step, along reduced axis `axis`; the same ones that have rows of a
// weight, make a tile or share its sum, in any number of such sets. COLUMNS: a product has one column alone, so it gets
// a further output axis, the first one, of `amount` steps, all of which are that column and of which one is stored.
// PARTS: sums over reduced axis `axis` are made in `amount` parts, each a sum of every `amount`-th step, which are then
// added up. Items may have parts, and parts of parts, for themselves, or one all of them (GROUP of that axis, or none):
// through the memory of a work-group the order of additions is the same. SHARE: what items along output axis `amount`
// (LOCAL) read alike of streams in a step of reduced axis `axis` is brought to the memory of the work-group, a step
// ahead (share.h); no other OptOp follows it. A list says all that was done to a kernel, so
// that the heuristic's own list, applied again, gives its kernel again.
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
  prefetch ahead;            // PREFETCH
  int by_table;              // 1 + hint of PREFETCH(0, hint); 0: none
  int keep, keep_hint;       // operations of KEEP, 0: none; 1 + hint for what the next tile keeps, 0: none
  descriptor_set without;    // descriptors that a DESCRIPTOR leaves out
  uop *share_step, *share_alike;           // ranges of SHARE; NULL: none
} kernel;

enum { MAX_AXES = 48 };
// Output ranges in STORE order, then those of reductions and stages (STOREs inside of the value, see rangeify.h) by
// number.
typedef struct axes { int n, n_out; uop *at[MAX_AXES]; } axes;

void kernel_init(kernel *k, graph *g, uop *ast, const target *t);
void kernel_axes(const kernel *k, axes *out);
// False (and nothing changed) where the opt makes no sense: amount does not fit, axis is of another kind.
// A size that `amount` does not divide is padded: reductions are masked, stores guarded where it matters.
bool kernel_apply(kernel *k, opt o);
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
