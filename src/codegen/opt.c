// OptOps on a kernel's ranges: see opt.h. A kernel is an expression; opts substitute ranges in it and nothing else, so
// any sequence of them computes the same function. Ranges are bound by REDUCE and STORE, whose lists follow the
// substitution.
#include "codegen/opt.h"
#include "codegen/keep.h"
#include "codegen/mma.h"
#include "codegen/share.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "graph/bounds.h"
#include "graph/record.h"
#include "graph/verify.h"

const char *opt_name(enum opt_kind k) {
  static const char *const names[] = {"UPCAST", "UNROLL", "LANES",      "LOCAL",  "GROUP",   "GROUPTOP",
                                      "THREAD", "LOOP",   "TC",         "SWAP",   "BLOCKS",  "SEPARATE",
                                      "ORDER",  "DESCRIPTOR", "LAYOUT", "PREFETCH", "KEEP", "MMA",
                                      "STEP",   "COLUMNS", "PARTS", "SHARE"};
  return names[k];
}

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

void kernel_init(kernel *k, graph *g, uop *ast, const target *t) {
  *k = (kernel){.g = g, .ast = ast, .t = t};
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &ast, 1);
  for (size_t i = 0; i < l.n; i++)
    if (l.at[i]->op == OP_RANGE) k->next_range = max_i64(k->next_range, l.at[i]->a + 1);
  arena_free(a);
}

void kernel_axes(const kernel *k, axes *out) {
  *out = (axes){0};
  uop *store = k->ast->src[0];
  for (size_t i = 2; i < store->nsrc; i++) out->at[out->n++] = store->src[i];
  out->n_out = out->n;
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &(uop *){k->ast}, 1);
  for (size_t i = 0; i < l.n; i++) {
    uop *u = l.at[i];
    if (u->op != OP_REDUCE && (u->op != OP_STORE || u == store)) continue;
    for (uint32_t j = (uint32_t)uop_first_range(u); j < u->nsrc; j++) {
      bool known = false;
      for (int m = 0; m < out->n; m++) known |= out->at[m] == u->src[j];
      if (!known && out->n < MAX_AXES) out->at[out->n++] = u->src[j];
    }
  }
  for (int i = out->n_out + 1; i < out->n; i++)
    for (int j = i; j > out->n_out && out->at[j]->a < out->at[j - 1]->a; j--) {
      uop *t = out->at[j];
      out->at[j] = out->at[j - 1];
      out->at[j - 1] = t;
    }
  arena_free(a);
}

uop *monoid_identity(graph *g, const uop *like, enum op op) {
  bool f = dtype_is_float((enum dtype)like->dt);
  switch (op) {
  case OP_ADD: return uop_const_like(g, like, 0);
  case OP_MUL: return uop_const_like(g, like, 1);
  case OP_MAX:
    return f ? uop_const_like(g, like, -INFINITY)
             : uop_splat(g, uop_int(g, (enum dtype)like->dt, dtype_min((enum dtype)like->dt)), like->lanes);
  case OP_MIN:
    return f ? uop_const_like(g, like, INFINITY)
             : uop_splat(g, uop_int(g, (enum dtype)like->dt, dtype_max((enum dtype)like->dt)), like->lanes);
  default: die("%s is no monoid", op_name(op));
  }
}

// Rebuilds everything with range r replaced by `expr`; lists that bound r bind `fresh` instead. `valid` (or NULL):
// where the new ranges stay inside the old one. `parts` (or NULL): what a REDUCE bound is a part of a sum over this
// range.
typedef struct change { uop *r, *expr, *fresh[2], *valid, *parts; int n; bool guard_stores; } change;

static uop *rebind(kernel *k, const uop *u, uop **s, const change *c) {
  uop *out[64];
  size_t n = 0, values = (size_t)uop_first_range(u);
  bool binds = false;
  for (size_t i = values; i < u->nsrc; i++) binds |= u->src[i] == c->r;
  for (size_t i = 0; i < values; i++) out[n++] = s[i];
  if (binds && c->valid && u->op == OP_REDUCE)
    for (size_t i = 0; i < values; i++)
      out[i] = uop_op3(k->g, OP_WHERE, c->valid, out[i], monoid_identity(k->g, out[i], (enum op)u->a));
  if (binds && c->valid && u->op == OP_STORE && c->guard_stores) {
    uop *i = out[0]->src[1], *valid = c->valid;
    if (i->op == OP_WHERE) { valid = bool_and(k->g, i->src[0], valid); i = i->src[1]; }
    out[0] = uop_index(k->g, out[0]->src[0],
                       uop_op3(k->g, OP_WHERE, valid, i, uop_new(k->g, OP_INVALID, DT_IDX, 1, NULL, 0, (uarg){0})));
  }
  for (size_t i = values; i < u->nsrc; i++) {
    if (u->src[i] != c->r) { if (s[i]->op == OP_RANGE) out[n++] = s[i]; continue; }
    for (int j = 0; j < c->n; j++) out[n++] = c->fresh[j];
  }
  uop *made = u->op == OP_REDUCE && n == values && values == 1
                ? out[0]
                : uop_new(k->g, (enum op)u->op, (enum dtype)u->dt, u->lanes, out, n, uop_arg(u));
  if (!binds || !c->parts) return made;
  return uop_new(k->g, OP_REDUCE, (enum dtype)u->dt, u->lanes, (uop *[]){made, c->parts}, 2, (uarg){.a = u->a});
}

static uop *guard_load(kernel *k, uop *load, const change *c) {
  uop *index = load->src[0], *buf = index->src[0], *i = index->src[1];
  int64_t tail =
    (dtype_size((enum dtype)load->dt) + dtype_size((enum dtype)buf->dt) - 1) / dtype_size((enum dtype)buf->dt);
  uop *valid = c->valid, *inside = i->op == OP_WHERE ? i->src[1] : i;
  if (!valid || inside->vmax + tail <= buf->b) return load;
  if (i->op == OP_WHERE) { valid = bool_and(k->g, i->src[0], valid); i = inside; }
  i = uop_op3(k->g, OP_WHERE, valid, i, uop_new(k->g, OP_INVALID, DT_IDX, 1, NULL, 0, (uarg){0}));
  return uop_load_from(k->g, load, uop_index(k->g, buf, i), 1);
}

static void replace_range(kernel *k, const change *c) {
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &k->ast, 1);
  map done = {0};
  for (size_t i = 0; i < l.n; i++) {
    uop *u = l.at[i], **s = ARENA_ARRAY(a, uop *, u->nsrc + 1), *to;
    for (size_t j = 0; j < u->nsrc; j++) s[j] = map_ptr(&done, u->src[j]);
    if (u == c->r) to = c->expr;
    else if (u->op == OP_REDUCE || u->op == OP_STORE) to = rebind(k, u, s, c);
    else to = uop_with_src(k->g, u, s);
    if (to != u && to->op == OP_LOAD) {
      if (to->src[0]->src[1]->op != OP_WHERE)
        to = uop_load_from(k->g, to, uop_index(k->g, to->src[0]->src[0], simplify(k->g, to->src[0]->src[1])), 1);
      to = guard_load(k, to, c);
    }
    map_put(&done, u, to);
  }
  k->ast = simplify(k->g, map_ptr(&done, k->ast));
  map_free(&done);
  arena_free(a);
}

static bool has_axis(const axes *x, const uop *r) {
  for (int i = 0; i < x->n; i++) if (x->at[i] == r) return true;
  return false;
}

static bool has_guards(const kernel *k) {
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &(uop *){k->ast}, 1);
  bool hit = false;
  for (size_t i = 0; i < l.n; i++) hit |= l.at[i]->op == OP_INVALID;
  arena_free(a);
  return hit;
}

bool dot_operands(uop *product, enum dtype acc, const uop *lane, uop **a, uop **x) {
  if (product->op != OP_MUL || product->dt != acc || product->src[0]->op != OP_CAST || product->src[1]->op != OP_CAST)
    return false;
  *a = product->src[0]->src[0];
  *x = product->src[1]->src[0];
  if ((*a)->dt == DT_I8 || (acc == DT_F32 && lane && !uop_varies(*a, lane))) { uop *t = *a; *a = *x; *x = t; }
  bool types = acc == DT_I32 ? (*a)->dt == DT_U8 && (*x)->dt == DT_I8
                             : acc == DT_F32 && (*a)->dt == DT_BF16 && (*x)->dt == DT_BF16;
  return types && (*x)->op == OP_LOAD;
}

// What expand.c makes of a DOT axis: every sum over it is one of dot_operands, other ones `a` in each lane.
// Of `inner` as such an axis, or (NULL) of those that are ones: an access that is guarded now would be none any more.
static bool dots_over(const kernel *k, const uop *lane, const uop *inner) {
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &(uop *){k->ast}, 1);
  bool fit = true;
  for (size_t i = 0; i < l.n && fit; i++) {
    const uop *u = l.at[i];
    bool binds = false;
    for (size_t j = (size_t)uop_first_range(u); u->op == OP_REDUCE && j < u->nsrc; j++)
      binds |= inner ? u->src[j] == inner : u->src[j]->b == AXIS_DOT;
    for (int j = 0; binds && j < uop_first_range(u) && fit; j++) {
      uop *w, *x;
      fit = u->a == OP_ADD && dot_operands(u->src[j], (enum dtype)u->dt, lane, &w, &x);
      fit = fit && x->src[0]->src[1]->op != OP_WHERE && (!lane || (uop_varies(w, lane) && !uop_varies(x, lane)));
    }
  }
  arena_free(a);
  return fit;
}

// Does no sum over r depend on `one`, or bind it as well?
static bool sums_apart(const uop_list *l, const uop *r, const uop *one) {
  bool apart = true;
  for (size_t i = 0; i < l->n && apart; i++) {
    const uop *u = l->at[i];
    if (u->op == OP_REDUCE && uop_binds(u, r))
      for (int v = 0; v < uop_first_range(u); v++) apart &= !uop_binds(u, one) && !uop_varies(u->src[v], one);
  }
  return apart;
}

// The first range along which items share another sum already, of as many steps: the same items share this one, too.
// Not a sum that is part of the other's steps.
static uop *sharing_range(const kernel *k, const uop *r, int64_t amount) {
  axes x;
  kernel_axes(k, &x);
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &(uop *){k->ast}, 1);
  uop *one = NULL;
  for (int i = x.n_out; i < x.n && !one; i++)
    if (x.at[i]->b == AXIS_GROUP && uop_is_int(x.at[i]->src[0], amount) && sums_apart(&l, r, x.at[i])) one = x.at[i];
  arena_free(a);
  return one;
}

// Guards and padding (even: there are none of this change's) are only for what the verifier can follow: false, and
// nothing is done, where it cannot.
static bool replace_soundly(kernel *k, const change *c, bool even) {
  uop *before = k->ast;
  replace_range(k, c);
  if (even && !has_guards(k)) return true;
  str why = {0};
  bool ok = dots_over(k, NULL, NULL) && verify_graph_ok(k->g, k->ast, STAGE_KERNEL, &why);
  str_free(&why);
  if (!ok) k->ast = before;
  return ok;
}

// r -> r' * amount + u (top: u * rest + r')
static bool split_range(kernel *k, uop *r, int64_t amount, enum axis_kind kind, bool top) {
  graph *g = k->g;
  uop *end = r->src[0], *by = uop_idx(g, amount), *rest = idx_div(g, idx_add(g, end, uop_idx(g, amount - 1)), by);
  bool even = end->op == OP_CONST && end->a % amount == 0;
  if (top && !even) return false;
  change c = {.r = r};
  uop *u = kind == AXIS_GROUP && even ? sharing_range(k, r, amount) : NULL, *outer = uop_idx(g, 0);
  if (!u) u = uop_range(g, by, k->next_range++, kind);
  if (!uop_is_int(rest, 1)) {
    outer = uop_range(g, rest, k->next_range++, (enum axis_kind)r->b);
    c.fresh[c.n++] = outer;
  }
  c.fresh[c.n++] = u;
  c.expr = top ? idx_add(g, idx_mul(g, u, rest), outer) : idx_add(g, idx_mul(g, outer, by), u);
  if (!even) {
    c.valid = idx_lt(g, c.expr, end);
    const uop *out = k->ast->src[0]->src[0]->src[0];
    c.guard_stores = !(out->memory != MEMORY_PLAIN && end->vmax % amount == 0);
  }
  return replace_soundly(k, &c, even);
}

static void change_kind(kernel *k, uop *r, enum axis_kind kind) {
  uop *u = kind == AXIS_GROUP ? sharing_range(k, r, r->src[0]->a) : NULL;
  if (!u) u = uop_range(k->g, r->src[0], k->next_range++, kind);
  replace_range(k, &(change){.r = r, .expr = u, .fresh = {u}, .n = 1});
}

static enum axis_kind axis_kind_of(enum opt_kind o) {
  static const enum axis_kind kinds[] = {AXIS_UPCAST, AXIS_UNROLL, AXIS_LANE, AXIS_LOCAL, AXIS_GROUP,
                                         AXIS_GROUP,  AXIS_THREAD, AXIS_LOOP, AXIS_LANE,  AXIS_LOOP,
                                         AXIS_LOOP,   AXIS_LOOP,   AXIS_LOOP};
  return kinds[o];
}

static bool in_lanes(const axes *x, int n) {
  for (int i = 0; i < n; i++) if (x->at[i]->b == AXIS_LANE) return true;
  return false;
}

// The type of the sums over r that are products: what a DOT axis made of r would add up.
static enum dtype summed_type(const kernel *k, const uop *r) {
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &(uop *){k->ast}, 1);
  enum dtype dt = DT_I32;
  for (size_t i = 0; i < l.n; i++)
    for (size_t j = (size_t)uop_first_range(l.at[i]); l.at[i]->op == OP_REDUCE && j < l.at[i]->nsrc; j++)
      if (l.at[i]->src[j] == r) dt = (enum dtype)l.at[i]->dt;
  arena_free(a);
  return dt;
}

// Each work-item adds up several products of the axis at a time.
static bool apply_tc_alone(kernel *k, uop *inner, opt o) {
  int products = dot_products(summed_type(k, inner));
  if (!k->t->has_local || inner->b != AXIS_REDUCE || inner->src[0]->op != OP_CONST || inner->src[0]->a % products ||
      !dots_over(k, NULL, inner))
    return false;
  if (inner->src[0]->a == products) change_kind(k, inner, AXIS_DOT);
  else if (!split_range(k, inner, products, AXIS_DOT, false)) return false;
  k->applied[k->n_applied++] = o;
  return true;
}

// Lanes over an output axis, each lane adding up several products of the inner axis at a time.
static bool apply_tc(kernel *k, const axes *x, opt o) {
  if (o.axis < 0 || o.amount < x->n_out || o.amount >= x->n) return false;
  if (o.axis == o.amount) return apply_tc_alone(k, x->at[o.axis], o);
  if (o.axis >= x->n_out) return false;
  uop *lane = x->at[o.axis], *inner = x->at[o.amount];
  int64_t n = k->t->vector_bytes / 4;
  if (lane->b != AXIS_LOOP || inner->b != AXIS_REDUCE || inner->src[0]->op != OP_CONST || n < 4 ||
      lane->src[0]->op != OP_CONST)
    return false;
  enum dtype acc = summed_type(k, inner);
  int products = dot_products(acc);
  if (k->t->descriptors) n = descriptor_lanes(k->t->descriptors, acc, (int)n, lane->src[0]->a);
  else while (n >= 4 && lane->src[0]->a % n) n /= 2;             // plain arithmetic has any number
  if (n < 4 || inner->src[0]->a % products || in_lanes(x, x->n) || !dots_over(k, lane, inner)) return false;
  if (inner->src[0]->a == products) change_kind(k, inner, AXIS_DOT);
  else split_range(k, inner, products, AXIS_DOT, false);
  if (lane->src[0]->a == n) change_kind(k, lane, AXIS_LANE);
  else split_range(k, lane, n, AXIS_LANE, false);
  k->applied[k->n_applied++] = o;
  return true;
}

// Does it read anything that may be a stream?
static bool kernel_streams(const kernel *k) {
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &(uop *){k->ast}, 1);
  bool any = false;
  for (size_t i = 0; i < l.n; i++) any |= is_weight(l.at[i]);
  arena_free(a);
  return any && k->t->has_streams;
}

static bool has_long_runs(const kernel *k) {
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &(uop *){k->ast}, 1);
  bool any = false;
  for (size_t i = 0; i < l.n; i++) any |= l.at[i]->op == OP_LOAD && is_long_run(l.at[i]->src[0]->src[0]);
  arena_free(a);
  return any;
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

static bool kernel_reads_through_table(const kernel *k) {
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &(uop *){k->ast}, 1);
  bool any = false;
  for (size_t i = 0; i < l.n; i++) any |= l.at[i]->op == OP_LOAD && table_entry_of(l.at[i]) != NULL;
  arena_free(a);
  return any;
}

static bool apply_prefetch(kernel *k, opt o) {
  if (o.axis < 0 || o.axis > MOST_PREFETCH_KIB || o.amount < 0 || o.amount >= PREFETCH_HINTS) return false;
  if (!o.axis) {
    if (k->by_table || !kernel_reads_through_table(k)) return false;
    k->by_table = 1 + o.amount;
  } else {
    if (k->ahead.kib || !(kernel_streams(k) || has_long_runs(k))) return false;
    k->ahead.kib = o.axis;
    k->ahead.hint = o.amount;
  }
  k->applied[k->n_applied++] = o;
  return true;
}

static bool apply_keep(kernel *k, opt o) {
  if (o.axis < 0 || o.axis > PREFETCH_HINTS || o.amount < 1 || o.amount > MOST_KEEP || k->keep || k->t->has_local ||
      !keeps_anything(k->ast))
    return false;
  k->keep = o.amount;
  k->keep_hint = o.axis;
  k->applied[k->n_applied++] = o;
  return true;
}

static bool apply_descriptor(kernel *k, const axes *x, opt o) {
  bool dots = false;
  if (o.axis || o.amount < 0 || o.amount > 64 || !k->t->descriptors || k->without) return false;
  if (o.amount && !(k->t->descriptors >> (o.amount - 1) & 1)) return false;
  for (int i = 0; i < x->n; i++)
    dots |=
      x->at[i]->b == AXIS_DOT && (!o.amount || uop_is_int(x->at[i]->src[0], descriptor_at((size_t)o.amount - 1)->k));
  if (!dots) return false;
  k->without = ~(o.amount ? (descriptor_set)1 << (o.amount - 1) : 0);
  k->applied[k->n_applied++] = o;
  return true;
}

static void set_store(kernel *k, uop *store) {
  k->ast = uop_new(k->g, OP_SINK, DT_VOID, 1, &store, 1, (uarg){0});
}

// Copies of the one column, for tiles of halves: only these need it.
static bool apply_columns(kernel *k, const axes *x, opt o) {
  uop *store = k->ast->src[0], *src[2 + MAX_AXES + 1];
  if (o.axis || o.amount != MMA_COLUMNS || x->n_out == MAX_AXES || store->nsrc < 3) return false;
  for (int i = 0; i < x->n; i++)
    if (x->at[i]->b != AXIS_LOOP && x->at[i]->b != AXIS_REDUCE) return false;
  src[0] = store->src[0];
  src[1] = store->src[1];
  src[2] = uop_range(k->g, uop_idx(k->g, o.amount), k->next_range++, AXIS_LOOP);
  for (size_t i = 2; i < store->nsrc; i++) src[i + 1] = store->src[i];
  store = uop_new(k->g, OP_STORE, DT_VOID, 1, src, store->nsrc + 1, (uarg){0});
  set_store(k, store);
  k->applied[k->n_applied++] = o;
  return true;
}

// The same of halves: four steps of the range that moves in the shortest steps of those around go to four items.
static bool apply_mma_halves(kernel *k, const mma_ranges *m, uop *inner, opt o) {
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &k->ast, 1);
  uop *outer = NULL, *its;
  bool fit = true;
  for (size_t i = 0; i < l.n && fit; i++) {
    if (l.at[i]->op != OP_REDUCE || !uop_binds(l.at[i], inner)) continue;
    fit = descriptor_tile(k->t->descriptors, mma_halves(l.at[i]), 16) && mma_fits_halves(l.at[i], m, inner, &its) &&
          (!outer || its == outer);
    outer = its;
  }
  for (size_t i = 0; i < l.n && fit; i++)
    fit = l.at[i]->op != OP_REDUCE || !outer || !uop_binds(l.at[i], outer) || uop_binds(l.at[i], inner);
  arena_free(a);
  if (!fit || !outer) return false;
  change_kind(k, inner, AXIS_MMA);
  if (uop_is_int(outer->src[0], 4)) change_kind(k, outer, AXIS_MMA);
  else split_range(k, outer, 4, AXIS_MMA, false);
  k->applied[k->n_applied++] = o;
  return true;
}

static bool apply_mma(kernel *k, const axes *x, opt o) {
  mma_ranges m;
  uop *half = NULL, *its;
  if (o.amount || o.axis < x->n_out || o.axis >= x->n || !mma_find(k->ast->src[0], &m)) return false;
  uop *inner = x->at[o.axis];
  if (inner->b != AXIS_REDUCE || inner->src[0]->op != OP_CONST) return false;
  if (apply_mma_halves(k, &m, inner, o)) return true;
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &k->ast, 1);
  bool fit = true, any = false;
  for (size_t i = 0; i < l.n && fit; i++) {
    if (l.at[i]->op != OP_REDUCE || !uop_binds(l.at[i], inner)) continue;
    fit = mma_fits(l.at[i], &m, inner, &its) && (!any || its == half);
    half = its;
    any = true;
  }
  for (size_t i = 0; i < l.n && fit && half; i++)
    fit = l.at[i]->op != OP_REDUCE || !uop_binds(l.at[i], half) || uop_binds(l.at[i], inner);
  arena_free(a);
  int products = half || inner->src[0]->a > 16 ? 32 : 16;
  if (!fit || !any || !descriptor_tile(k->t->descriptors, DT_U8, products) || (half && half->b != AXIS_REDUCE))
    return false;
  change_kind(k, inner, AXIS_MMA);
  if (half) change_kind(k, half, AXIS_MMA);
  k->applied[k->n_applied++] = o;
  return true;
}

// All items that have other rows, other columns of a tile or other parts of a sum need the same: so 32 of them can make
// it together, those that have the rows, or else the parts.
static bool apply_step(kernel *k, const axes *x, opt o) {
  if (o.axis < x->n_out || o.axis >= x->n || o.amount < 2 || o.amount != k->t->step_items ||
      o.amount != k->t->row_items)
    return false;
  uop *r = x->at[o.axis];
  // of a range whose length is not known each item may have a part that the others' turns do not meet: what is exact
  bool even = r->src[0]->op == OP_CONST && r->src[0]->a % o.amount == 0,
       alike = r->b == AXIS_REDUCE && (even || r->src[0]->op != OP_CONST), rows = mma_has(k->ast);
  int64_t parts = 1;
  for (int i = 0; i < x->n; i++) {
    const uop *items = x->at[i]->src[0];
    rows |= i < x->n_out && x->at[i]->b == AXIS_LOCAL && items->op == OP_CONST && items->a % o.amount == 0;
    if (x->at[i]->b == AXIS_GROUP) parts *= x->at[i]->src[0]->a;
  }
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &k->ast, 1);
  for (size_t i = 0; i < l.n && alike; i++) {
    const uop *u = l.at[i];
    if (u->op != OP_REDUCE || !uop_binds(u, r)) continue;
    alike = dtype_size((enum dtype)u->dt) == 4 && uop_first_range(u) == 1 && (even || u->a == OP_MAX || u->a == OP_MIN);
    for (int n = 0; n < x->n && alike; n++)
      alike = (x->at[n]->b != AXIS_LOCAL && x->at[n]->b != AXIS_GROUP && x->at[n]->b != AXIS_STEP) ||
              (!uop_varies(u, x->at[n]) && !uop_binds(u, x->at[n]));
  }
  arena_free(a);
  if (!alike || (!rows && parts % o.amount && kernel_items(k) % o.amount)) return false;
  if (r->src[0]->a == o.amount) change_kind(k, r, AXIS_STEP);
  else if (!split_range(k, r, o.amount, AXIS_STEP, false)) return false;
  k->applied[k->n_applied++] = o;
  return true;
}

// Each sum over the range becomes one of parts, which are sums: of every amount-th step.
static bool apply_parts(kernel *k, const axes *x, opt o) {
  if (o.axis < x->n_out || o.axis >= x->n || o.amount < 2) return false;
  graph *g = k->g;
  uop *r = x->at[o.axis], *end = r->src[0];
  bool even = end->op == OP_CONST && end->a % o.amount == 0, fit = r->b == AXIS_REDUCE && (even || end->op != OP_CONST);
  bool inner = false;
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &k->ast, 1);
  for (size_t i = 0; i < l.n && fit; i++) {
    if (!uop_binds(l.at[i], r)) continue;
    fit = l.at[i]->op == OP_REDUCE && uop_first_range(l.at[i]) == 1;
    inner |= l.at[i]->nsrc > 2;
  }
  arena_free(a);
  uop *by = uop_idx(g, o.amount), *rest = idx_div(g, idx_add(g, end, uop_idx(g, o.amount - 1)), by);
  bool one = uop_is_int(rest, 1);
  if (!fit || (one && !inner)) return false;
  uop *part = uop_range(g, by, k->next_range++, AXIS_REDUCE);
  change c = {.r = r, .expr = part, .parts = part};
  if (!one) {
    c.fresh[c.n++] = uop_range(g, rest, k->next_range++, AXIS_REDUCE);
    c.expr = idx_add(g, idx_mul(g, c.fresh[0], by), part);
  }
  if (!even) c.valid = idx_lt(g, c.expr, end);
  if (!replace_soundly(k, &c, even)) return false;
  k->applied[k->n_applied++] = o;
  return true;
}

static bool apply_share(kernel *k, const axes *x, opt o) {
  if (o.axis < x->n_out || o.axis >= x->n || o.amount < 0 || o.amount >= x->n_out || !k->t->has_local) return false;
  uop *step = x->at[o.axis], *alike = x->at[o.amount];
  if (step->b != AXIS_REDUCE || alike->b != AXIS_LOCAL) return false;
  int64_t bytes = share_bytes(k, step, alike);
  if (!bytes || bytes > k->t->max_local_bytes) return false;
  k->share_step = step;
  k->share_alike = alike;
  k->applied[k->n_applied++] = o;
  return true;
}

// Do items that run in step make a sum over r already?
static bool is_in_step(const kernel *k, const uop *r) {
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &(uop *){k->ast}, 1);
  bool any = false;
  for (size_t i = 0; i < l.n; i++)
    for (size_t j = (size_t)uop_first_range(l.at[i]); uop_binds(l.at[i], r) && j < l.at[i]->nsrc; j++)
      any |= l.at[i]->src[j]->b == AXIS_STEP;
  arena_free(a);
  return any;
}

// Two output axes change places in the order of the loops.
static bool apply_swap(kernel *k, const axes *x, opt o) {
  if (o.axis < 0 || o.amount < 0 || o.axis >= x->n_out || o.amount >= x->n_out || o.axis == o.amount) return false;
  uop *store = k->ast->src[0], *src[2 + MAX_AXES];
  for (size_t i = 0; i < store->nsrc; i++) src[i] = store->src[i];
  src[2 + o.axis] = x->at[o.amount];
  src[2 + o.amount] = x->at[o.axis];
  store = uop_with_src(k->g, store, src);
  set_store(k, store);
  k->applied[k->n_applied++] = o;
  return true;
}

// An expression has lanes along one axis: a reduction laid in lanes along another axis inside one over r would have
// both.
static bool lanes_meet(const kernel *k, const uop *r) {
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &(uop *){k->ast}, 1);
  bool meet = false;
  for (size_t i = 0; i < l.n && !meet; i++) {
    uop *u = l.at[i];
    if (u->op != OP_REDUCE) continue;
    bool binds = false, laid = false, inside = false;
    for (size_t j = (size_t)uop_first_range(u); j < u->nsrc; j++) {
      binds |= u->src[j] == r;
      laid |= u->src[j]->b == AXIS_LANE;
    }
    if (!binds && !laid) continue;
    bool along = false;
    for (int j = 0; j < uop_first_range(u); j++) {
      inside |= uop_has_axis(u->src[j], AXIS_LANE);
      along |= uop_varies(u->src[j], r);
    }
    meet = (laid && along) || (binds && inside);
  }
  arena_free(a);
  return meet;
}

static bool separate_number(kernel *k, int number) {
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &k->ast, 1);
  uop *reduce = NULL;
  for (size_t i = 0; i < l.n && !reduce; i++) if (l.at[i]->op == OP_REDUCE && !number--) reduce = l.at[i];
  arena_free(a);
  return reduce && kernel_separate(k, reduce);
}

static bool split_blocks(kernel *k) {
  uop *before = k->ast;
  kernel_split_on_constants(k);
  if (k->ast != before) k->applied[k->n_applied++] = (opt){OPT_BLOCKS, 0, 0};
  return k->ast != before;
}

static bool is_of_stage(const kernel *k, const uop *r) {
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &(uop *){k->ast}, 1);
  bool is = false;
  for (size_t i = 0; i < l.n; i++)
    is |= l.at[i]->op == OP_STORE && l.at[i] != k->ast->src[0] && l.at[i]->src[0]->src[0]->op == OP_LOCAL &&
          uop_binds(l.at[i], r);
  arena_free(a);
  return is;
}

int64_t kernel_items(const kernel *k) {
  axes x;
  int64_t items = 1;
  kernel_axes(k, &x);
  for (int i = 0; i < x.n; i++)
    if (x.at[i]->b == AXIS_GROUP || (i < x.n_out && x.at[i]->b == AXIS_LOCAL)) items *= x.at[i]->src[0]->a;
  return items;
}

// The same where no items share a sum; 0: some do.
static int64_t items_of(const axes *x) {
  int64_t n = 1;
  for (int i = 0; i < x->n; i++) {
    if (x->at[i]->b == AXIS_GROUP) return 0;
    if (x->at[i]->b == AXIS_LOCAL && i < x->n_out) n *= x->at[i]->src[0]->a;
  }
  return n;
}

static bool try_opt(kernel *k, opt o) {
  axes x;
  if (k->n_applied == (int)COUNT(k->applied) || k->share_step) return false;
  kernel_axes(k, &x);
  switch (o.kind) {
  case OPT_SWAP: return apply_swap(k, &x, o);
  case OPT_TC: return apply_tc(k, &x, o);
  case OPT_BLOCKS: return split_blocks(k);
  case OPT_SEPARATE: return separate_number(k, o.axis);
  case OPT_ORDER:
    if (o.axis < 0 || o.axis >= ORDER_KINDS || o.amount || k->order[o.axis] || !kernel_streams(k)) return false;
    k->applied[k->n_applied++] = o;
    return k->order[o.axis] = true;
  case OPT_PREFETCH: return apply_prefetch(k, o);
  case OPT_KEEP: return apply_keep(k, o);
  case OPT_MMA: return apply_mma(k, &x, o);
  case OPT_STEP: return apply_step(k, &x, o);
  case OPT_COLUMNS: return apply_columns(k, &x, o);
  case OPT_PARTS: return apply_parts(k, &x, o);
  case OPT_SHARE: return apply_share(k, &x, o);
  case OPT_LAYOUT: return false;
  case OPT_DESCRIPTOR: return apply_descriptor(k, &x, o);
  default: break;
  }
  if (o.axis < 0 || o.axis >= x.n) return false;
  uop *r = x.at[o.axis], *end = r->src[0];
  bool reduces = o.axis >= x.n_out;
  if (r->b != AXIS_LOOP && r->b != AXIS_REDUCE) return false;                // decided already
  if ((o.kind == OPT_UNROLL || o.kind == OPT_GROUP || o.kind == OPT_GROUPTOP) && !reduces) return false;
  if ((o.kind == OPT_UPCAST || o.kind == OPT_THREAD) && reduces) return false;
  if (o.kind == OPT_LOCAL && reduces && (!is_of_stage(k, r) || o.amount != items_of(&x))) return false;
  if ((o.kind == OPT_LOCAL || o.kind == OPT_GROUP || o.kind == OPT_GROUPTOP) && !k->t->has_local) return false;
  if ((o.kind == OPT_GROUP || o.kind == OPT_GROUPTOP) && is_in_step(k, r)) return false;
  int64_t amount = o.amount;
  if (!amount) { if (end->op != OP_CONST) return false; amount = end->a; }
  if (amount < 2 || amount > 1024) return false;
  if (o.kind == OPT_LANES && ((amount & (amount - 1)) || lanes_meet(k, r) || (!reduces && in_lanes(&x, x.n_out))))
    return false;
  if ((o.kind == OPT_UPCAST || o.kind == OPT_UNROLL) && amount > 64) return false;
  if (end->op == OP_CONST && end->a == amount) change_kind(k, r, axis_kind_of(o.kind));
  else if (!split_range(k, r, amount, axis_kind_of(o.kind), o.kind == OPT_GROUPTOP)) return false;
  k->applied[k->n_applied++] = o;
  return true;
}

// --- sums that a work-group shares ----------------------------------------------------------------------------------

// Does it hold a sum over r that is not inside of another sum?
static bool holds_sum(uop *u, const uop *r, map *known) {
  void *v;
  if (map_get(known, (uint64_t)(uintptr_t)u, &v)) return v;
  bool holds = u->op == OP_REDUCE && uop_binds(u, r);
  for (size_t i = 0; i < u->nsrc && u->op != OP_REDUCE && !holds; i++) holds = holds_sum(u->src[i], r, known);
  map_put(known, u, holds ? u : NULL);
  return holds;
}

// What one step of r adds to an expression that is linear in its sums over r: the sum of that over all steps is the
// expression. NULL: it is not linear.
static uop *step_of_range(graph *g, uop *u, uop *r, map *known) {
  if (u->op == OP_REDUCE) {
    uop *src[64];
    size_t n = 0;
    for (size_t i = 0; i < u->nsrc; i++) if (u->src[i] != r) src[n++] = u->src[i];
    if (u->a != OP_ADD || uop_first_range(u) > 1) return NULL;
    return n == 1 ? src[0] : uop_new(g, OP_REDUCE, (enum dtype)u->dt, 1, src, n, (uarg){.a = u->a, .b = u->b});
  }
  bool in[2] = {u->nsrc > 0 && holds_sum(u->src[0], r, known), u->nsrc > 1 && holds_sum(u->src[1], r, known)};
  bool sum = u->op == OP_ADD || u->op == OP_SUB;
  if (!sum && u->op != OP_NEG && (u->op != OP_MUL || in[0] == in[1]) &&
      (u->op != OP_CAST || dtype_is_float((enum dtype)u->src[0]->dt)))
    return NULL;
  uop *s[2] = {NULL, NULL};
  for (size_t i = 0; i < u->nsrc; i++) {
    s[i] = in[i] ? step_of_range(g, u->src[i], r, known) : u->src[i];
    if (!s[i]) return NULL;
    if (sum && !in[i])                               // the first step's alone
      s[i] = uop_op3(g, OP_WHERE, idx_lt(g, r, uop_idx(g, 1)), s[i], uop_const_like(g, s[i], 0));
  }
  return uop_with_src(g, u, s);
}

bool is_shared_out(const uop *u) {
  bool all = u->op == OP_REDUCE && uop_first_range(u) == 1;
  for (size_t i = 1; i < u->nsrc && all; i++) all = u->src[i]->b == AXIS_GROUP;
  return all;
}

// A sum over a GROUP range inside of another sum would be shared out, with a barrier, in each step of that one. The
// outer sum takes the range over where what lies between is linear; sums of integers are exact on the way. Not where
// items have the outer sum's parts and those of each part: these are exchanged together (group_reduce).
static bool widen_one(kernel *k) {
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &k->ast, 1);
  map m = {0};
  for (size_t i = 0; i < l.n && !m.n; i++) {
    uop *o = l.at[i];
    if (o->op != OP_REDUCE || o->a != OP_ADD || uop_first_range(o) > 1 || o->nsrc > 60) continue;
    if (is_shared_out(o) && is_shared_out(o->src[0])) continue;
    for (size_t j = 0; j < i && !m.n; j++) {
      const uop *in = l.at[j];
      for (size_t n = (size_t)uop_first_range(in); in->op == OP_REDUCE && n < in->nsrc && !m.n; n++) {
        uop *r = in->src[n], *src[64], *v = NULL;
        map known = {0};
        if (r->b == AXIS_GROUP && !uop_binds(o, r) && holds_sum(o->src[0], r, &known))
          v = step_of_range(k->g, o->src[0], r, &known);
        map_free(&known);
        if (!v) continue;
        memcpy(src, o->src, o->nsrc * sizeof *src);
        src[0] = v;
        src[o->nsrc] = r;
        map_put(&m, o, uop_new(k->g, OP_REDUCE, (enum dtype)o->dt, 1, src, o->nsrc + 1, (uarg){.a = o->a, .b = o->b}));
      }
    }
  }
  arena_free(a);
  bool did = m.n;
  if (did) k->ast = simplify(k->g, uop_substitute(k->g, k->ast, &m));
  map_free(&m);
  return did;
}

// Items that run in step give each other one value at a time: what they share out has no lanes. And where all items
// fill a stage, there are no more of them later.
static bool items_forbid(kernel *k, opt o) {
  bool lanes = false, groups = false, filled = false;
  axes x;
  kernel_axes(k, &x);
  for (int i = 0; i < x.n; i++) {
    lanes |= i < x.n_out && (x.at[i]->b == AXIS_LANE || (o.kind == OPT_LANES && o.axis == i));
    groups |= x.at[i]->b == AXIS_GROUP || o.kind == OPT_GROUP || o.kind == OPT_GROUPTOP;
    filled |= i >= x.n_out && x.at[i]->b == AXIS_LOCAL;
  }
  bool more = (o.kind == OPT_LOCAL && o.axis < x.n_out) || o.kind == OPT_GROUP || o.kind == OPT_GROUPTOP;
  return (k->t->step_items && lanes && groups) || (filled && more);
}

bool kernel_apply(kernel *k, opt o) {
  kernel before = *k;
  if (items_forbid(k, o) || !try_opt(k, o)) return false;
  if (k->t->max_group && kernel_items(k) > k->t->max_group) { *k = before; return false; }
  if (o.kind == OPT_GROUP || o.kind == OPT_GROUPTOP) while (widen_one(k)) {}
  record_mark(k->g, k->ast, "%s(%d, %d)", opt_name(o.kind), o.axis, o.amount);
  return true;
}

bool kernel_separate(kernel *k, uop *reduce) {
  size_t values = (size_t)uop_first_range(reduce);
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &k->ast, 1);
  bool shared = false;
  int number = 0;
  for (size_t i = 0; i < l.n && l.at[i] != reduce; i++) number += l.at[i]->op == OP_REDUCE;
  for (size_t i = 0; i < l.n && k->n_applied < (int)COUNT(k->applied); i++)
    for (size_t j = (size_t)uop_first_range(l.at[i]);
         l.at[i] != reduce && l.at[i]->op == OP_REDUCE && j < l.at[i]->nsrc; j++)
      for (size_t m = values; m < reduce->nsrc; m++) shared |= l.at[i]->src[j] == reduce->src[m];
  arena_free(a);
  uop *src[64];
  if (!shared || reduce->nsrc > COUNT(src)) return false;
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
  k->applied[k->n_applied++] = (opt){OPT_SEPARATE, number, 0};
  return true;
}

// --- block structure ------------------------------------------------------------------------------------------------

// The smallest constant c > 1 by which a range is divided somewhere, with c dividing its size; 0 if there is none.
static int64_t split_constant(const uop_list *l, const uop *r) {
  int64_t best = 0;
  for (size_t i = 0; i < l->n; i++) {
    const uop *u = l->at[i];
    if ((u->op != OP_IDIV && u->op != OP_MOD) || u->dt != DT_IDX || u->src[1]->op != OP_CONST) continue;
    idx_sum s;
    if (!idx_sum_of(u->src[0], &s)) continue;
    for (int t = 0; t < s.n; t++) {
      if (s.atom[t] != r || s.coeff[t] <= 0 || u->src[1]->a % s.coeff[t]) continue;
      int64_t c = u->src[1]->a / s.coeff[t];
      if (c > 1 && c < r->src[0]->a && r->src[0]->a % c == 0 && (!best || c < best)) best = c;
    }
  }
  return best;
}

void kernel_split_on_constants(kernel *k) {
  for (int rounds = 0; rounds < 32; rounds++) {
    axes x;
    kernel_axes(k, &x);
    arena *a = arena_new();
    uop_list l = uop_toposort(a, &k->ast, 1);
    uop *r = NULL;
    int64_t c = 0;
    for (int i = 0; i < x.n && !c; i++)
      if (x.at[i]->src[0]->op == OP_CONST && (x.at[i]->b == AXIS_LOOP || x.at[i]->b == AXIS_REDUCE)) {
        r = x.at[i];
        c = split_constant(&l, r);
      }
    arena_free(a);
    if (!c || !has_axis(&x, r)) return;
    if (!split_range(k, r, c, (enum axis_kind)r->b, false)) return;
  }
}

// --- tiles ----------------------------------------------------------------------------------------------------------

static void outer_reduces(uop *u, map *seen, void (*each)(uop *, void *), void *ctx) {
  if (map_has(seen, u)) return;
  map_put(seen, u, (void *)1);
  if (u->op == OP_REDUCE) { each(u, ctx); return; }
  for (size_t i = 0; i < u->nsrc; i++) outer_reduces(u->src[i], seen, each, ctx);
}

typedef struct common { map *out; int n; uop **at; bool *ok; } common;

static void keep_common(uop *reduce, void *ctx) {
  common *c = ctx;
  for (int i = 0; i < c->n; i++) c->ok[i] &= uop_varies(reduce, c->at[i]);
}

void kernel_tile_ranges(const kernel *k, map *out) {
  uop *store = k->ast->src[0];
  bool ok[MAX_AXES];
  common c = {.out = out, .n = (int)store->nsrc - 2, .at = store->src + 2, .ok = ok};
  for (int i = 0; i < c.n; i++) ok[i] = true;
  map seen = {0};
  outer_reduces(store->src[1], &seen, keep_common, &c);
  map_free(&seen);
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &store->src[1], 1);
  for (size_t i = 0; i < l.n; i++) if (l.at[i]->op == OP_STORE) keep_common(l.at[i], &c);      // nor a stage
  arena_free(a);
  for (int i = 0; i < c.n; i++) if (ok[i]) map_put(out, c.at[i], (void *)1);
}

enum { ENOUGH_TILES = 8, MANY_TILES = 64 };

// n ranges of known sizes, the last one fastest, become one.
static void flatten_ranges(kernel *k, uop *const *fixed, int n, int64_t steps) {
  graph *g = k->g;
  uop *tile = uop_range(g, uop_idx(g, steps), k->next_range++, AXIS_GLOBAL);
  int64_t stride = 1;
  for (int i = n; i-- > 0; stride *= fixed[i]->src[0]->a) {
    uop *e = idx_div(g, tile, uop_idx(g, stride));
    if (i) e = idx_mod(g, e, fixed[i]->src[0]);
    replace_range(k, &(change){.r = fixed[i], .expr = e, .fresh = {tile}, .n = i == n - 1 ? 1 : 0});
  }
}

// Does a condition under which something is accessed depend on one of these ranges?
static bool guards_vary(const kernel *k, uop *const *ranges, int n) {
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &(uop *){k->ast}, 1);
  bool any = false;
  for (size_t i = 0; i < l.n && !any; i++)
    for (int r = 0; r < n && l.at[i]->op == OP_WHERE && l.at[i]->src[2]->op == OP_INVALID; r++)
      any |= uop_varies(l.at[i]->src[0], ranges[r]);
  arena_free(a);
  return any;
}

int kernel_group_ranges(const kernel *k, uop **out) {
  const uop *store = k->ast->src[0];
  int n = 0;
  for (size_t i = 2; i < store->nsrc; i++) {
    uop *r = store->src[i];
    if ((r->b == AXIS_LOOP || r->b == AXIS_THREAD) && r->src[0]->op == OP_CONST) out[n++] = r;
  }
  return n > 1 && guards_vary(k, out, n) ? 1 : n;    // as for tiles, below
}

// Work-groups have one number for all ranges of known sizes, and two for others: numbers of tokens, or of blocks of
// positions. What several work-groups have in common, each makes for itself.
static void make_groups(kernel *k) {
  uop *store = k->ast->src[0], *fixed[MAX_AXES], *symbolic[2];
  int n = kernel_group_ranges(k, fixed), n_symbolic = 0;
  int64_t groups = 1;
  for (int i = 0; i < n; i++) if (!mul_i64(groups, fixed[i]->src[0]->a, &groups)) die("too many work-groups");
  for (size_t i = 2; i < store->nsrc && n_symbolic < 2; i++) {
    uop *r = store->src[i];
    if ((r->b == AXIS_LOOP || r->b == AXIS_THREAD) && r->src[0]->op != OP_CONST) symbolic[n_symbolic++] = r;
  }
  for (int i = 0; i < n_symbolic; i++) change_kind(k, symbolic[i], AXIS_GLOBAL);
  if (n) flatten_ranges(k, fixed, n, groups);
}

void kernel_make_tiles(kernel *k) {
  if (k->t->has_local) { make_groups(k); return; }
  map may = {0};
  kernel_tile_ranges(k, &may);
  uop *store = k->ast->src[0], *fixed[MAX_AXES], *symbolic = NULL;
  int n = 0;
  int64_t tiles = 1;
  for (size_t i = 2; i < store->nsrc; i++) {
    uop *r = store->src[i];
    if ((r->b != AXIS_LOOP || !map_has(&may, r)) && r->b != AXIS_THREAD) continue;
    if (r->src[0]->op == OP_CONST) { fixed[n++] = r; if (!mul_i64(tiles, r->src[0]->a, &tiles)) die("too many tiles"); }
    else if (!symbolic) symbolic = r;
  }
  map_free(&may);
  // where accesses are guarded, plain ranges are what bounds can be proven of: no flattening
  if (n > 1 && has_guards(k)) { tiles = fixed[0]->src[0]->a; n = 1; }
  // inner ranges stay loops as long as enough tiles are left: less index arithmetic, longer runs
  while (n > 1 && fixed[n - 1]->b != AXIS_THREAD && tiles / fixed[n - 1]->src[0]->a >= MANY_TILES)
    tiles /= fixed[--n]->src[0]->a;
  if (n && (tiles >= ENOUGH_TILES || !symbolic)) flatten_ranges(k, fixed, n, tiles);
  else if (symbolic) change_kind(k, symbolic, AXIS_GLOBAL);
}
