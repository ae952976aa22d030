// Substitutes ranges in a kernel. A kernel is an expression over ranges; OptOps only substitute ranges, so any sequence
// of OptOps computes an equal function. REDUCE and STORE bind ranges; their lists follow the substitution.
#include "codegen/kernel_ranges.h"
#include <math.h>
#include "graph/bounds.h"
#include "graph/verify.h"

void kernel_init(kernel *k, graph *g, uop *ast, const target *t) {
  *k = (kernel){.g = g, .ast = ast, .t = t};
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &ast, 1);
  for (size_t i = 0; i < l.n; i++) {
    const uop *u = l.at[i];
    if (u->op == OP_RANGE) k->next_range = max_i64(k->next_range, u->a + 1);
    die_if(uop_first_range(u) < (int)u->nsrc && u->nsrc > MOST_BOUND, "%s over more than %d ranges",
           op_name((enum op)u->op), MAX_AXES);
  }
  arena_free(a);
}

void kernel_axes(const kernel *k, axes *out) {
  *out = (axes){0};
  uop *store = k->ast->src[0];
  die_if(store->nsrc > 2 + MAX_AXES, "a kernel of more than %d loops", MAX_AXES);
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
  for (int i = 0; i < out->n; i++) die_if(out->at[i]->op != OP_RANGE, "a kernel with a loop over no range");
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

static void add_rebound(uop **out, size_t *n, uop *u) {
  die_if(*n == MOST_BOUND, "a sum or a store over more than %d ranges", MAX_AXES);
  out[(*n)++] = u;
}

static uop *rebind(kernel *k, const uop *u, uop **s, const change *c) {
  uop *out[MOST_BOUND];
  size_t n = 0, values = (size_t)uop_first_range(u);
  bool binds = false;
  for (size_t i = values; i < u->nsrc; i++) binds |= u->src[i] == c->r;
  for (size_t i = 0; i < values; i++) add_rebound(out, &n, s[i]);
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
    if (u->src[i] != c->r) { if (s[i]->op == OP_RANGE) add_rebound(out, &n, s[i]); continue; }
    for (int j = 0; j < c->n; j++) add_rebound(out, &n, c->fresh[j]);
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

void replace_range(kernel *k, const change *c) {
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

void kernel_set_store(kernel *k, uop *store) {
  k->ast = uop_new(k->g, OP_SINK, DT_VOID, 1, &store, 1, (uarg){0});
}

bool any_node(const kernel *k, bool (*is)(const uop *u, const void *ctx), const void *ctx) {
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &(uop *){k->ast}, 1);
  bool any = false;
  for (size_t i = 0; i < l.n && !any; i++) any = is(l.at[i], ctx);
  arena_free(a);
  return any;
}

static bool is_guard(const uop *u, const void *ctx) { (void)ctx; return u->op == OP_INVALID; }
bool has_guards(const kernel *k) { return any_node(k, is_guard, NULL); }

bool dot_operands(uop *product, enum dtype acc, const uop *lane, uop **a, uop **x) {
  if (product->op != OP_MUL || product->dt != acc || product->src[0]->op != OP_CAST || product->src[1]->op != OP_CAST)
    return false;
  *a = product->src[0]->src[0];
  *x = product->src[1]->src[0];
  bool turned = (*a)->dt != (*x)->dt ? (*a)->dt == DT_I8 : lane ? !uop_varies(*a, lane) : (*x)->op != OP_LOAD;
  if (turned) { uop *t = *a; *a = *x; *x = t; }
  bool types = acc == DT_I32 ? ((*a)->dt == DT_U8 || (*a)->dt == DT_I8) && (*x)->dt == DT_I8
                             : acc == DT_F32 && (*a)->dt == DT_BF16 && (*x)->dt == DT_BF16;
  return types && (*x)->op == OP_LOAD;
}

// Does every sum fit a DOT axis as expand.c writes it? inner NULL: checks existing DOT axes; an access that has become
// guarded no longer fits.
bool dots_over(const kernel *k, const uop *lane, const uop *inner) {
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
      fit = fit && (w->dt != DT_I8 || descriptors_take_signs(k->t->descriptors));
      fit = fit && x->src[0]->src[1]->op != OP_WHERE && (!lane || (uop_varies(w, lane) && !uop_varies(x, lane)));
    }
  }
  arena_free(a);
  return fit;
}

// Do all sums over r neither depend on `one` nor bind it?
static bool sums_apart(const uop_list *l, const uop *r, const uop *one) {
  bool apart = true;
  for (size_t i = 0; i < l->n && apart; i++) {
    const uop *u = l->at[i];
    if (u->op == OP_REDUCE && uop_binds(u, r))
      for (int v = 0; v < uop_first_range(u); v++) apart &= !uop_binds(u, one) && !uop_varies(u->src[v], one);
  }
  return apart;
}

// The first range along which work-items already share another sum, with an equal number of steps: the same work-items
// share this sum too. A sum inside the other's steps does not count.
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

bool replace_soundly(kernel *k, const change *c, bool even) {
  uop *before = k->ast;
  replace_range(k, c);
  if (even && !has_guards(k)) return true;
  str why = {0};
  bool ok = dots_over(k, NULL, NULL) && verify_graph_ok(k->g, k->ast, STAGE_KERNEL, &why);
  str_free(&why);
  if (!ok) k->ast = before;
  return ok;
}

bool split_range(kernel *k, uop *r, int64_t amount, enum axis_kind kind, bool top) {
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

void change_kind(kernel *k, uop *r, enum axis_kind kind) {
  uop *u = kind == AXIS_GROUP ? sharing_range(k, r, r->src[0]->a) : NULL;
  if (!u) u = uop_range(k->g, r->src[0], k->next_range++, kind);
  replace_range(k, &(change){.r = r, .expr = u, .fresh = {u}, .n = 1});
}

bool take_range(kernel *k, uop *r, int64_t amount, enum axis_kind kind) {
  if (!uop_is_int(r->src[0], amount)) return split_range(k, r, amount, kind, false);
  change_kind(k, r, kind);
  return true;
}

// The smallest constant c > 1 that divides the range's size and by which the range is divided somewhere; 0 if there is
// none.
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
    if (!c) return;
    if (!split_range(k, r, c, (enum axis_kind)r->b, false)) return;
  }
}
