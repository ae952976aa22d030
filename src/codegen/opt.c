// OptOps (opt.h): each is a row of the table below.
#include "codegen/opt_rows.h"
#include "codegen/dot_tiles.h"
#include "codegen/mma.h"
#include "codegen/reuse.h"
#include <limits.h>
#include <string.h>
#include "base/env.h"
#include "graph/record.h"

const char opt_not_followed[] = "the verifier cannot follow what becomes of its axes";

// ---- steps of an axis -----------------------------------------------------------------------------------------------

const char *opt_take_axis(kernel *k, const axes *x, opt o) {
  const opt_row *row = opt_row_of(o.kind);
  uop *r = x->at[o.axis], *end = r->src[0];
  if (r->b != AXIS_LOOP && r->b != AXIS_REDUCE) return "another OptOp has taken its axis";
  if (!o.amount && end->op != OP_CONST) return "it takes a whole axis, whose size is not known";
  int64_t amount = o.amount ? o.amount : end->a;
  if (amount < 2 || amount > row->amount.most) return "it takes too few steps, or too many";
  const char *why = row->fits ? row->fits(k, x, r, amount) : NULL;
  if (why) return why;
  bool done = row->top && !uop_is_int(end, amount) ? split_range(k, r, amount, row->into, true)
                                                   : take_range(k, r, amount, row->into);
  return done ? NULL : opt_not_followed;
}

bool is_output_axis(const axes *x, const uop *r) {
  for (int i = 0; i < x->n_out; i++) if (x->at[i] == r) return true;
  return false;
}

static bool in_lanes(const axes *x, int n) {
  for (int i = 0; i < n; i++) if (x->at[i]->b == AXIS_LANE) return true;
  return false;
}

static bool holds_lanes(const uop *u) {
  bool holds = false;
  for (int j = 0; j < uop_first_range(u); j++) holds |= uop_has_axis(u->src[j], AXIS_LANE);
  return holds;
}

static bool binds_lane(const uop *u) {
  bool laid = false;
  for (size_t j = (size_t)uop_first_range(u); j < u->nsrc; j++) laid |= u->src[j]->b == AXIS_LANE;
  return laid;
}

// An expression has lanes along one axis. A reduction with lanes along another axis, inside one over r, would have
// both.
static bool lanes_meet_in(const uop *u, const void *r) {
  if (u->op != OP_REDUCE) return false;
  bool along = false;
  for (int j = 0; j < uop_first_range(u); j++) along |= uop_varies(u->src[j], r);
  return (binds_lane(u) && along) || (uop_binds(u, r) && holds_lanes(u));
}

static const char *lanes_fit(const kernel *k, const axes *x, const uop *r, int64_t amount) {
  if (amount & (amount - 1)) return "lanes are a power of two";
  if (any_node(k, lanes_meet_in, r)) return "a sum would have lanes along two axes";
  return is_output_axis(x, r) && in_lanes(x, x->n_out) ? "the output has lanes already" : NULL;
}

// ---- dot products ---------------------------------------------------------------------------------------------------

// The type of the sums of products over r: what a DOT axis made of r would add up.
static enum dtype summed_type(const kernel *k, const uop *r) {
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &(uop *){k->ast}, 1);
  enum dtype dt = DT_I32;
  for (size_t i = 0; i < l.n; i++) if (l.at[i]->op == OP_REDUCE && uop_binds(l.at[i], r)) dt = (enum dtype)l.at[i]->dt;
  arena_free(a);
  return dt;
}

static const char *dots_fit(const kernel *k, const uop *lane, const uop *inner, int products) {
  if (inner->b != AXIS_REDUCE || inner->src[0]->op != OP_CONST) return "what it sums is no plain axis of known size";
  if (inner->src[0]->a % products) return "the sum has no whole number of dot products";
  return dots_over(k, lane, inner) ? NULL : "what it sums are no products that a dot product adds up";
}

// Each work-item adds up several products of the axis at a time.
static const char *apply_tc_alone(kernel *k, uop *inner) {
  int products = dot_products(summed_type(k, inner));
  const char *why = k->t->has_local ? dots_fit(k, NULL, inner, products) : "the device has no work-groups";
  if (why) return why;
  return take_range(k, inner, products, AXIS_DOT) ? NULL : opt_not_followed;
}

// Lanes over an output axis; each lane adds up several products of the inner axis at a time.
static const char *apply_tc(kernel *k, const axes *x, opt o) {
  if (o.axis == o.amount) return apply_tc_alone(k, x->at[o.axis]);
  if (o.axis >= x->n_out) return "its lanes are along no output axis";
  uop *lane = x->at[o.axis], *inner = x->at[o.amount];
  int64_t n = k->t->vector_bytes / 4;
  if (lane->b != AXIS_LOOP || lane->src[0]->op != OP_CONST) return "its lanes are along no plain axis of known size";
  if (n < 4) return "the device has no vectors";
  enum dtype acc = summed_type(k, inner);
  if (k->t->descriptors) n = descriptor_lanes(k->t->descriptors, acc, (int)n, lane->src[0]->a);
  else while (n >= 4 && lane->src[0]->a % n) n /= 2;             // plain arithmetic works with any number of lanes
  if (n < 4) return "the axis has no whole number of vectors";
  if (in_lanes(x, x->n)) return "there are lanes already";
  const char *why = dots_fit(k, lane, inner, dot_products(acc));
  if (why) return why;
  return take_range(k, inner, dot_products(acc), AXIS_DOT) && take_range(k, lane, n, AXIS_LANE)
           ? NULL
           : opt_not_followed;
}

static const char *apply_descriptor(kernel *k, const axes *x, opt o) {
  bool dots = false;
  if (!k->t->descriptors) return "the device has no dot products";
  if (k->without) return "another one was chosen";
  if (o.amount && !(k->t->descriptors >> (o.amount - 1) & 1)) return "the device has no such dot product";
  for (int i = 0; i < x->n; i++)
    dots |=
      x->at[i]->b == AXIS_DOT && (!o.amount || uop_is_int(x->at[i]->src[0], descriptor_at((size_t)o.amount - 1)->k));
  if (!dots) return "no sum is made of such dot products";
  k->without = ~(o.amount ? (descriptor_set)1 << (o.amount - 1) : 0);
  return NULL;
}

// ---- all loads of a kernel ------------------------------------------------------------------------------------------

static bool may_be_stream(const uop *u, const void *ctx) { (void)ctx; return is_weight(u); }
static bool kernel_streams(const kernel *k) { return k->t->has_streams && any_node(k, may_be_stream, NULL); }

static bool reads_long_run(const uop *u, const void *ctx) {
  (void)ctx;
  return u->op == OP_LOAD && is_long_run(u->src[0]->src[0]);
}

uop *table_entry_of(const uop *load) {
  const uop *index = load->src[0];
  if (!is_long_run(index->src[0])) return NULL;
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &index->src[1], 1);
  uop *entry = NULL;
  for (size_t i = 0; i < l.n && !entry; i++) if (l.at[i]->op == OP_LOAD) entry = l.at[i];
  arena_free(a);
  return entry;
}

static bool reads_through_table(const uop *u, const void *ctx) {
  (void)ctx;
  return u->op == OP_LOAD && table_entry_of(u);
}

static const char *apply_order(kernel *k, const axes *x, opt o) {
  (void)x;
  if (k->order[o.axis]) return "that order is kept already";
  if (!kernel_streams(k)) return "it reads no stream";
  k->order[o.axis] = true;
  return NULL;
}

static const char *apply_prefetch(kernel *k, const axes *x, opt o) {
  (void)x;
  if (!o.axis) {
    if (k->paged) return "the next entry is asked for already";
    if (!any_node(k, reads_through_table, NULL)) return "it reads nothing through a table";
    k->paged = 1 + o.amount;
    return NULL;
  }
  if (k->distance.kib) return "another distance was chosen";
  if (!kernel_streams(k) && !any_node(k, reads_long_run, NULL)) return "it reads no stream";
  k->distance = (prefetch){.kib = o.axis, .hint = o.amount};
  return NULL;
}

// Keeping a value costs about as much as one operation per load. Operands of tiles take a second operation
// (dot_tiles.c).
static bool pays_to_keep(const kernel *k, const axes *x) {
  bool dots = false;
  for (int i = 0; i < x->n; i++) dots |= x->at[i]->b == AXIS_DOT;
  return reuses_anything(k->ast, dots && has_dot_tiles(k->t, k->without) ? 1 : 2);
}

static const char *apply_keep(kernel *k, const axes *x, opt o) {
  if (k->keep) return "values are kept already";
  if (k->t->has_local) return "work-items have no memory of a tile";
  if (!pays_to_keep(k, x)) return "no loop makes a value of weights again";
  k->keep = o.amount;
  k->keep_hint = o.axis;
  return NULL;
}

// ---- loops ----------------------------------------------------------------------------------------------------------

static const char *apply_swap(kernel *k, const axes *x, opt o) {
  if (o.axis == o.amount) return "they are one axis";
  uop *store = k->ast->src[0], *src[2 + MAX_AXES];
  for (size_t i = 0; i < store->nsrc; i++) src[i] = store->src[i];
  src[2 + o.axis] = x->at[o.amount];
  src[2 + o.amount] = x->at[o.axis];
  kernel_set_store(k, uop_with_src(k->g, store, src));
  return NULL;
}

static const char *apply_blocks(kernel *k, const axes *x, opt o) {
  (void)x, (void)o;
  uop *before = k->ast;
  kernel_split_on_constants(k);
  return k->ast == before ? "no range is divided by a constant" : NULL;
}

// The REDUCE with this number in topological order.
static uop *reduce_at(const kernel *k, int number) {
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &(uop *){k->ast}, 1);
  uop *reduce = NULL;
  for (size_t i = 0; i < l.n && !reduce; i++) if (l.at[i]->op == OP_REDUCE && !number--) reduce = l.at[i];
  arena_free(a);
  return reduce;
}

static bool binds_range_of(const uop *u, const void *ctx) {
  const uop *reduce = ctx;
  bool shared = false;
  for (size_t m = (size_t)uop_first_range(reduce); u != reduce && u->op == OP_REDUCE && m < reduce->nsrc; m++)
    shared |= uop_binds(u, reduce->src[m]);
  return shared;
}

static const char *apply_separate(kernel *k, const axes *x, opt o) {
  (void)x;
  uop *reduce = reduce_at(k, o.axis), *src[64];
  if (!reduce || reduce->nsrc > COUNT(src)) return "there is no such sum";
  if (!any_node(k, binds_range_of, reduce)) return "it shares its ranges with no other sum";
  size_t values = (size_t)uop_first_range(reduce);
  map ranges = {0}, whole = {0};
  for (size_t i = values; i < reduce->nsrc; i++) {
    src[i] = uop_range(k->g, reduce->src[i]->src[0], k->next_range++, (enum axis_kind)reduce->src[i]->b);
    map_put(&ranges, reduce->src[i], src[i]);
  }
  for (size_t i = 0; i < values; i++) src[i] = uop_substitute(k->g, reduce->src[i], &ranges);
  map_put(&whole, reduce,
          uop_new(k->g, OP_REDUCE, (enum dtype)reduce->dt, reduce->lanes, src, reduce->nsrc,
                  (uarg){.a = reduce->a, .b = reduce->b}));
  k->ast = simplify(k->g, uop_substitute(k->g, k->ast, &whole));
  map_free(&ranges); map_free(&whole);
  return NULL;
}

static const char *apply_layout(kernel *k, const axes *x, opt o) {
  (void)k, (void)x, (void)o;
  return "it is an OptOp of a weight, not of a kernel";
}

bool kernel_separate(kernel *k, uop *reduce) {
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &k->ast, 1);
  int number = 0;
  for (size_t i = 0; i < l.n && l.at[i] != reduce; i++) number += l.at[i]->op == OP_REDUCE;
  arena_free(a);
  return kernel_apply(k, (opt){OPT_SEPARATE, number, 0});
}

// ---- what a search tries --------------------------------------------------------------------------------------------

static void try_axes(const axes *x, opt o, bool summed, opt_vec *out) {
  for (int i = 0; i < (summed ? x->n - x->n_out : x->n_out); i++) {
    o.axis = summed ? x->n - 1 - i : i;                    // sums: the innermost range first
    if (x->at[o.axis]->b == (summed ? AXIS_REDUCE : AXIS_LOOP)) vec_push(out, o);
  }
}

static void try_lanes(const kernel *k, const axes *x, opt_vec *out) {
  static const int lanes[] = {16, 8, 32, 4};
  bool any = !k->t->vector_bytes || k->t->subgroup_size;   // work-items of a subgroup are lanes already
  for (int i = 0; i < k->n_applied; i++) any |= k->applied[i].kind == OPT_LANES || k->applied[i].kind == OPT_TC;
  for (size_t m = 0; !any && m < COUNT(lanes); m++)
    for (int i = x->n_out; i-- > 0;)
      if (x->at[i]->b == AXIS_LOOP) vec_push(out, ((opt){OPT_LANES, i, lanes[m]}));
}

static void try_swaps(const kernel *k, const axes *x, opt_vec *out) {
  (void)k;
  for (int i = 0; i < x->n_out; i++)
    for (int j = i + 1; j < x->n_out; j++)
      if (x->at[i]->b == AXIS_LOOP && x->at[j]->b == AXIS_LOOP) vec_push(out, ((opt){OPT_SWAP, i, j}));
}

static void try_upcasts(const kernel *k, const axes *x, opt_vec *out) {
  static const int amounts[] = {2, 4, 8, 3, 6, 12, 16};
  (void)k;
  for (size_t m = 0; m < COUNT(amounts); m++) try_axes(x, (opt){OPT_UPCAST, 0, amounts[m]}, false, out);
}

static void try_unrolls(const kernel *k, const axes *x, opt_vec *out) {
  static const int amounts[] = {0, 2, 4, 8};
  (void)k;
  for (size_t m = 0; m < COUNT(amounts); m++) try_axes(x, (opt){OPT_UNROLL, 0, amounts[m]}, true, out);
}

static void try_threads(const kernel *k, const axes *x, opt_vec *out) {
  (void)k;
  if (x->n_out > 1) try_axes(x, (opt){OPT_THREAD, 0, 0}, false, out);
}

static void try_items(const kernel *k, const axes *x, enum opt_kind kind, opt_vec *out) {
  bool summed = kind != OPT_LOCAL;
  for (int i = summed ? x->n_out : 0; k->t->has_local && i < (summed ? x->n : x->n_out); i++)
    for (int m = 2; m <= 32; m *= 4) vec_push(out, ((opt){kind, i, m}));
}
static void try_locals(const kernel *k, const axes *x, opt_vec *out) { try_items(k, x, OPT_LOCAL, out); }
static void try_groups(const kernel *k, const axes *x, opt_vec *out) { try_items(k, x, OPT_GROUP, out); }
static void try_top_groups(const kernel *k, const axes *x, opt_vec *out) { try_items(k, x, OPT_GROUPTOP, out); }

static void try_orders(const kernel *k, const axes *x, opt_vec *out) {
  (void)k, (void)x;
  for (int what = 0; what < ORDER_KINDS; what++) vec_push(out, ((opt){OPT_ORDER, what, 0}));
}

static void try_prefetches(const kernel *k, const axes *x, opt_vec *out) {
  static const prefetch distances[] = {{4, PREFETCH_T0},   {8, PREFETCH_T0}, {16, PREFETCH_T0}, {8, PREFETCH_NTA},
                                       {2, PREFETCH_T0},   {32, PREFETCH_T1}, {0, PREFETCH_T1}, {0, PREFETCH_T2}};
  (void)k, (void)x;
  for (size_t m = 0; m < COUNT(distances); m++)
    vec_push(out, ((opt){OPT_PREFETCH, distances[m].kib, distances[m].hint}));
}

static void try_keeps(const kernel *k, const axes *x, opt_vec *out) {
  (void)k, (void)x;
  for (int least = 1; least <= 2; least++)
    for (int hint = 0; hint <= PREFETCH_T2 + 1; hint++) vec_push(out, ((opt){OPT_KEEP, hint, least}));
}

static void try_descriptors(const kernel *k, const axes *x, opt_vec *out) {
  (void)k, (void)x;
  for (int row = 0; descriptor_at((size_t)row); row++) vec_push(out, ((opt){OPT_DESCRIPTOR, 0, row + 1}));
  vec_push(out, ((opt){OPT_DESCRIPTOR, 0, 0}));
}

// ---- the table ------------------------------------------------------------------------------------------------------

enum { MOST_STEPS = 1024, MOST_COPIES = 64, MOST_DESCRIPTORS = 64 };
#define NONE {IS_NOTHING, 0, 0}
#define OUTPUT {IS_OUTPUT_AXIS, 0, 0}
#define SUMMED {IS_SUMMED_AXIS, 0, 0}
#define AXIS {IS_AXIS, 0, 0}
#define NUMBER(least, most) {IS_NUMBER, least, most}

const opt_row *opt_row_of(enum opt_kind k) {
  static const opt_row rows[OPT_COUNT] = {
    [OPT_LANES] = {"LANES", AXIS, NUMBER(0, MOST_STEPS), opt_take_axis, try_lanes, .into = AXIS_LANE,
                   .fits = lanes_fit, .decides = DECIDES_SUMS_IF_SUMMED},
    [OPT_SWAP] = {"SWAP", OUTPUT, OUTPUT, apply_swap, try_swaps, .rank = 3},
    [OPT_UPCAST] = {"UPCAST", OUTPUT, NUMBER(0, MOST_COPIES), opt_take_axis, try_upcasts, .into = AXIS_UPCAST,
                    .rank = 6},
    [OPT_UNROLL] = {"UNROLL", SUMMED, NUMBER(0, MOST_COPIES), opt_take_axis, try_unrolls, .into = AXIS_UNROLL,
                    .rank = 5},
    [OPT_ORDER] = {"ORDER", NUMBER(0, ORDER_KINDS - 1), NONE, apply_order, try_orders, .of_loads = true, .rank = 4},
    [OPT_PREFETCH] = {"PREFETCH", NUMBER(0, MOST_PREFETCH_KIB), NUMBER(0, PREFETCH_HINTS - 1), apply_prefetch,
                      try_prefetches, .of_loads = true, .once = true, .rank = 1},
    [OPT_KEEP] = {"KEEP", NUMBER(0, PREFETCH_HINTS), NUMBER(1, MOST_KEEP), apply_keep, try_keeps, .of_loads = true,
                  .once = true, .rank = 2},
    [OPT_THREAD] = {"THREAD", OUTPUT, NUMBER(0, MOST_STEPS), opt_take_axis, try_threads, .into = AXIS_THREAD,
                    .rank = 7},
    [OPT_LOCAL] = {"LOCAL", AXIS, NUMBER(0, MOST_STEPS), opt_take_axis, try_locals, .into = AXIS_LOCAL,
                   .fits = local_fits},
    [OPT_GROUP] = {"GROUP", SUMMED, NUMBER(0, MOST_STEPS), opt_take_axis, try_groups, .into = AXIS_GROUP,
                   .fits = group_fits},
    [OPT_GROUPTOP] = {"GROUPTOP", SUMMED, NUMBER(0, MOST_STEPS), opt_take_axis, try_top_groups, .into = AXIS_GROUP,
                      .fits = group_fits, .top = true},
    [OPT_DESCRIPTOR] = {"DESCRIPTOR", NONE, NUMBER(0, MOST_DESCRIPTORS), apply_descriptor, try_descriptors, .rank = 8},
    [OPT_LOOP] = {"LOOP", AXIS, NUMBER(0, MOST_STEPS), opt_take_axis, .into = AXIS_LOOP},
    [OPT_TC] = {"TC", AXIS, SUMMED, apply_tc, .decides = DECIDES_SUMS},
    [OPT_BLOCKS] = {"BLOCKS", NONE, NONE, apply_blocks, .decides = DECIDES_SUMS},
    [OPT_SEPARATE] = {"SEPARATE", NUMBER(0, INT_MAX), NONE, apply_separate, .decides = DECIDES_SUMS},
    [OPT_LAYOUT] = {"LAYOUT", NUMBER(0, INT_MAX), NUMBER(0, INT_MAX), apply_layout, .candidates = NULL},
    [OPT_MMA] = {"MMA", SUMMED, NONE, apply_mma, .candidates = NULL},
    [OPT_STEP] = {"STEP", SUMMED, NUMBER(2, MOST_STEPS), apply_step, .candidates = NULL},
    [OPT_COLUMNS] = {"COLUMNS", NONE, NUMBER(MMA_COLUMNS, MMA_COLUMNS), apply_columns, .candidates = NULL},
    [OPT_PARTS] = {"PARTS", SUMMED, NUMBER(2, INT_MAX), apply_parts, .candidates = NULL},
    [OPT_SHARE] = {"SHARE", SUMMED, OUTPUT, apply_share, .candidates = NULL},
  };
  return &rows[k];
}

static const char *operand_forbids(const axes *x, operand o, int value) {
  switch (o.is) {
  case IS_NOTHING: return value ? "an operand has to be 0" : NULL;
  case IS_OUTPUT_AXIS: return value >= 0 && value < x->n_out ? NULL : "there is no such output axis";
  case IS_SUMMED_AXIS: return value >= x->n_out && value < x->n ? NULL : "there is no such summed axis";
  case IS_AXIS: return value >= 0 && value < x->n ? NULL : "there is no such axis";
  case IS_NUMBER: return value >= o.least && value <= o.most ? NULL : "a number is too small, or too large";
  }
  return NULL;
}

static const char *try_apply(kernel *k, opt o) {
  const opt_row *row = opt_row_of(o.kind);
  axes x;
  if (k->n_applied == (int)COUNT(k->applied)) return "the list is full";
  if (k->share_step) return "none follows SHARE";
  kernel_axes(k, &x);
  const char *why = operand_forbids(&x, row->axis, o.axis);
  if (!why) why = operand_forbids(&x, row->amount, o.amount);
  if (!why) why = items_forbid(k, &x, o);
  if (!why) why = row->apply(k, &x, o);
  if (!why && k->t->max_group && kernel_items(k) > k->t->max_group) why = "a work-group would have too many items";
  return why;
}

bool kernel_apply(kernel *k, opt o) {
  kernel before = *k;
  const char *why = try_apply(k, o);
  if (why) { *k = before; k->refusal = why; return false; }
  k->applied[k->n_applied++] = o;
  if (opt_row_of(o.kind)->into == AXIS_GROUP) widen_sums(k);
  record_mark(k->g, k->ast, "%s(%d, %d)", opt_name(o.kind), o.axis, o.amount);
  return true;
}

bool kernel_apply_all(kernel *k, const opt *opts, int n, bool strictly) {
  bool all = true;
  for (int i = 0; i < n && (all || !strictly); i++) {
    if (kernel_apply(k, opts[i])) continue;
    all = false;
    if (debug_level() < 3) continue;
    str s = {0};
    opts_print(&s, opts, n);
    fprintf(stderr, "OptOps %s: number %d, %s, is refused: %s\n", str_c(&s), i + 1, opt_name(opts[i].kind), k->refusal);
    str_free(&s);
  }
  return all;
}

// ---- texts ----------------------------------------------------------------------------------------------------------

const char *opt_name(enum opt_kind k) { return opt_row_of(k)->name; }

void opts_print(str *out, const opt *opts, int n) {
  for (int i = 0; i < n; i++)
    str_addf(out, "%s%s(%d, %d)", i ? " " : "", opt_name(opts[i].kind), opts[i].axis, opts[i].amount);
}

bool opts_parse(const char *text, opt *out, int most, int *n) {
  for (*n = 0;; (*n)++) {
    text += strspn(text, " ");
    if (!*text) return true;
    char name[16];
    int axis, amount, used = 0, kind = 0;
    if (*n == most || sscanf(text, "%15[A-Z](%6d, %6d)%n", name, &axis, &amount, &used) != 3 || !used) return false;
    while (kind < OPT_COUNT && strcmp(name, opt_name((enum opt_kind)kind))) kind++;
    if (kind == OPT_COUNT || axis < 0 || amount < 0) return false;
    out[*n] = (opt){(enum opt_kind)kind, axis, amount};
    text += used;
  }
}
