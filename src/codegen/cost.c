// Estimates bytes and operations of a kernel for tables (cost.h). The loops are counted as scheduled, before the
// optimiser changes them.
//
// Bytes. Each buffer counts once per launch, with the elements that are touched. The number of elements that an INDEX
// touches follows from its views of the ranges: r touches all elements, r % 16 sixteen, r // 16 a sixteenth; r % 16 and
// r // 16 together touch all. Accesses to one buffer with equal numbers and equal bounds count once (a softmax reads
// its scores for the maximum and for the sum); other accesses add up, to at most the size of the buffer.
//
// Operations. Each elementwise float op and each step of a reduction counts once per iteration of the loops that it
// depends on. Integer products that are summed count like float products.
//
// Sizes that depend on variables stay expressions, as sums of constant x expression; replay.c evaluates them for each
// run.
#include "codegen/cost.h"
#include "codegen/opt.h"
#include "graph/symbolic.h"

typedef struct amount { double n; uop *by; } amount;                    // n * by; by is NULL for 1
enum { MAX_TERMS = 8, MAX_VIEWS = 64, MAX_INDEXES = 64, NOMINAL = 128 };
typedef struct sum { amount at[MAX_TERMS]; int n; } sum;

static amount amount_product(graph *g, amount a, amount b) {
  return (amount){a.n * b.n, a.by && b.by ? idx_mul(g, a.by, b.by) : a.by ? a.by : b.by};
}

static void add_amount(sum *s, amount a) {
  for (int i = 0; i < s->n; i++) if (s->at[i].by == a.by) { s->at[i].n += a.n; return; }
  // MAX_TERMS exceeds the number of distinct expressions in any kernel
  if (s->n == MAX_TERMS) return;
  s->at[s->n++] = a;
}

static uop *whole_const(graph *g, double n) { return uop_idx(g, n < 1e18 ? (int64_t)n : (int64_t)1e18); }

static uop *sum_expr(graph *g, const sum *s) {
  uop *u = uop_idx(g, 0);
  for (int i = 0; i < s->n; i++)
    u = idx_add(g, u, s->at[i].by ? idx_mul(g, whole_const(g, s->at[i].n), s->at[i].by) : whole_const(g, s->at[i].n));
  return u;
}

// Can program_eval compute this expression?
static bool can_evaluate(const uop *u) {
  switch (u->op) {
  case OP_CONST: case OP_VAR: return true;
  case OP_ADD: case OP_SUB: case OP_MUL: case OP_IDIV: case OP_MOD: case OP_MAX: case OP_MIN: case OP_NEG: break;
  default: return false;
  }
  for (size_t i = 0; i < u->nsrc; i++) if (!can_evaluate(u->src[i])) return false;
  return true;
}

static amount range_size(uop *range) {
  uop *end = range->src[0];
  if (end->op == OP_CONST) return (amount){(double)end->a, NULL};
  return can_evaluate(end) ? (amount){1, end} : (amount){(double)min_i64(end->vmax, NOMINAL), NULL};
}

static amount iterations(graph *g, uop *u) {
  const uop_list l = uop_ranges(u);
  amount n = {1, NULL};
  for (size_t i = 0; i < l.n; i++) n = amount_product(g, n, range_size(l.at[i]));
  return n;
}

// --- how much an index touches --------------------------------------------------------------------------------------

typedef struct views { uop *at[MAX_VIEWS], *range[MAX_VIEWS]; int n; map seen; } views;

// The range that u is a view of (through divisions and remainders by constants only), or NULL.
static uop *viewed(uop *u) {
  while ((u->op == OP_IDIV || u->op == OP_MOD) && u->src[1]->op == OP_CONST && u->src[1]->a > 0) u = u->src[0];
  return u->op == OP_RANGE ? u : NULL;
}

static void find_views(uop *u, views *v) {
  if (map_has(&v->seen, u)) return;
  map_put(&v->seen, u, u);
  uop *range = viewed(u);
  if (range) { if (v->n < MAX_VIEWS) { v->at[v->n] = u; v->range[v->n++] = range; } return; }
  // skips the mask, which does not move the access
  for (size_t i = u->op == OP_WHERE; i < u->nsrc; i++) find_views(u->src[i], v);
}

static amount view_values(graph *g, uop *u) {
  if (u->op == OP_RANGE) return range_size(u);
  amount x = view_values(g, u->src[0]);
  int64_t c = u->src[1]->a;
  if (u->op == OP_MOD) return x.by || x.n > (double)c ? (amount){(double)c, NULL} : x;
  if (x.by)
    return (amount){1, idx_div(g, idx_add(g, idx_mul(g, whole_const(g, x.n), x.by), uop_idx(g, c - 1)), uop_idx(g, c))};
  return (amount){(double)(((int64_t)x.n + c - 1) / c), NULL};
}

static amount touched(graph *g, uop *index) {
  views v = {0};
  find_views(index, &v);
  amount n = {1, NULL};
  for (int i = 0; i < v.n; i++) {
    if (!v.range[i]) continue;
    amount all = range_size(v.range[i]), some = view_values(g, v.at[i]);
    int parts = 1;
    for (int j = i + 1; j < v.n; j++) {
      if (v.range[j] != v.range[i]) continue;
      some = amount_product(g, some, view_values(g, v.at[j]));
      v.range[j] = NULL;
      parts++;
    }
    bool fewer = parts == 1 || (!some.by && !all.by && some.n < all.n);
    n = amount_product(g, n, fewer ? some : all);
  }
  map_free(&v.seen);
  return n;
}

// --- a kernel -------------------------------------------------------------------------------------------------------

typedef struct seen { int64_t buf, vmin, vmax; amount n; } seen;

void kernel_cost(graph *g, uop *ast, program *p) {
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &ast, 1);
  sum *bytes = ARENA_ARRAY(a, sum, p->n_bufs + 1), flops = {0};
  seen known[MAX_INDEXES];
  int n_known = 0;
  for (int i = 0; i < p->n_bufs; i++) bytes[i] = (sum){0};
  for (size_t i = 0; i < l.n; i++) {
    uop *u = l.at[i];
    uop *at = u->op == OP_LOAD || u->op == OP_STORE ? u->src[0] : NULL;
    if (at && at->src[0]->op == OP_PARAM) {
      // the load may be wider than the buffer's type: a scale among bytes
      enum dtype dt = (enum dtype)(u->op == OP_LOAD ? u->dt : u->src[1]->dt);
      seen s = {at->src[0]->a, at->src[1]->vmin, at->src[1]->vmax, touched(g, at->src[1])};
      bool again = false;
      for (int k = 0; k < n_known; k++)
        again |= known[k].buf == s.buf && known[k].vmin == s.vmin && known[k].vmax == s.vmax && known[k].n.n == s.n.n &&
                 known[k].n.by == s.n.by;
      if (n_known < MAX_INDEXES) known[n_known++] = s;
      s.n.n *= (double)dtype_size(dt);
      if (!again) add_amount(&bytes[s.buf], s.n);
    }
    bool summed = u->op == OP_REDUCE && u->src[0]->op == OP_MUL && !dtype_is_float((enum dtype)u->dt);
    if (u->op == OP_REDUCE ||
        (dtype_is_float((enum dtype)u->dt) && (op_flags((enum op)u->op) & OPF_ELEMENTWISE) && u->op != OP_WHERE)) {
      amount n = iterations(g, u->op == OP_REDUCE ? u->src[0] : u);
      if (summed) n.n *= 2;
      add_amount(&flops, n);
    }
  }
  p->bytes = uop_idx(g, 0);
  for (int i = 0; i < p->n_bufs; i++) {
    uop *n = sum_expr(g, &bytes[i]), *all = uop_idx(g, p->bufs[i].elems * dtype_size(p->bufs[i].dt));
    p->bytes = idx_add(g, p->bytes, n->op == OP_CONST ? (n->a < all->a ? n : all) : uop_op2(g, OP_MIN, n, all));
  }
  p->flops = sum_expr(g, &flops);
  arena_free(a);
}
