// Matrix products of bytes, in tiles of 16 rows and 8 columns that 32 items compute with one instruction: sums of 16 or
// 32 products. What the instruction (mma.sync of NVIDIA's GPUs) wants where: item 4 g + t has, of the rows, four
// products from 4 t on of rows g and g + 8; of the columns those of column g; of the results rows g and g + 8 of
// columns 2 t and 2 t + 1; of 32 products as many again, 16 further on. So operands are the sum's own expressions, with
// its ranges replaced. Sums of integers are exact: the results are those of any other order.
#include "codegen/mma.h"
#include <string.h>
#include "codegen/expand.h"

enum { REGISTER = 4 /* products */, HALF = 16, LANE_RANGE = 1 << 21 };

static bool is_axis(const uop *r, enum axis_kind kind, int64_t size) {
  return r->op == OP_RANGE && r->b == kind && uop_is_int(r->src[0], size);
}

bool mma_find(const uop *store, mma_ranges *out) {
  *out = (mma_ranges){0};
  for (size_t n = 2; n + 1 < store->nsrc; n++) {
    uop *r = store->src[n], *next = store->src[n + 1];
    if (is_axis(r, AXIS_UPCAST, 2) && is_axis(next, AXIS_LOCAL, 8)) { out->i = r; out->g = next; }
    if (is_axis(r, AXIS_LOCAL, 4) && is_axis(next, AXIS_UPCAST, 2)) { out->t = r; out->j = next; }
  }
  return out->g && out->t;
}

// The range of two steps that counts on where `inner` ends; NULL: there is none.
static uop *outer_half(const uop *reduce, const uop *x, const uop *inner) {
  for (size_t n = 1; n < reduce->nsrc && uop_is_int(inner->src[0], HALF); n++)
    if (reduce->src[n] != inner && uop_is_int(reduce->src[n]->src[0], 2) && reduce->src[n]->b != AXIS_GROUP &&
        idx_factor(x->src[0]->src[1], reduce->src[n]) == HALF)
      return reduce->src[n];
  return NULL;
}

bool mma_fits(const uop *reduce, const mma_ranges *m, const uop *inner, uop **half) {
  uop *a, *x;
  if (reduce->op != OP_REDUCE || reduce->dt != DT_I32 || reduce->a != OP_ADD || uop_first_range(reduce) != 1 ||
      !dot_operands(reduce->src[0], DT_I32, NULL, &a, &x) || x->src[0]->src[0]->dt != DT_I8 ||
      x->src[0]->src[1]->op == OP_WHERE || idx_factor(x->src[0]->src[1], inner) != 1)
    return false;
  *half = outer_half(reduce, x, inner);
  bool whole = uop_is_int(inner->src[0], HALF) || uop_is_int(inner->src[0], 2 * HALF);
  return whole && uop_varies(a, m->g) && uop_varies(x, m->t) && !uop_varies(a, m->t) && !uop_varies(a, m->j) &&
         !uop_varies(x, m->g) && !uop_varies(x, m->i);
}

bool mma_has(const uop *store) {
  arena *mem = arena_new();
  uop *root = (uop *)(uintptr_t)store;
  uop_list l = uop_toposort(mem, &root, 1);
  bool any = false;
  for (size_t n = 0; n < l.n; n++) any |= l.at[n]->op == OP_RANGE && l.at[n]->b == AXIS_MMA;
  arena_free(mem);
  return any;
}

// --- expansion -------------------------------------------------------------------------------------------------------

typedef struct tile { mma_ranges m; uop *inner, *half, *lane; int registers; } tile;

// Products 16 h + 4 t + lane.
static void put_products(graph *g, map *to, const tile *c, int h, uop *lane) {
  uop *at = idx_add(g, idx_mul(g, c->m.t, uop_idx(g, REGISTER)), lane);
  if (c->half) map_put(to, c->half, uop_idx(g, h));
  else at = idx_add(g, at, uop_idx(g, h * HALF));
  map_put(to, c->inner, at);
}

static uop *rows_operand(graph *g, uop *a, const tile *c, int number) {
  map to = {0};
  put_products(g, &to, c, number / 2, c->lane);
  map_put(&to, c->m.i, uop_idx(g, number % 2));
  a = simplify(g, uop_substitute(g, a, &to));
  map_free(&to);
  return expand_lanes(g, expand_gates(g, a));
}

static uop *columns_operand(graph *g, const uop *x, const tile *c, int number) {
  map to = {0};
  put_products(g, &to, c, number, uop_idx(g, 0));
  map_put(&to, c->m.t, idx_div(g, c->m.g, uop_idx(g, 2)));
  map_put(&to, c->m.j, idx_mod(g, c->m.g, uop_idx(g, 2)));
  uop *at = simplify(g, uop_substitute(g, x->src[0]->src[1], &to));
  map_free(&to);
  return uop_load(g, uop_index(g, x->src[0]->src[0], at), DT_U32, 1);
}

static uop *picked(graph *g, uop *mma, uop *which, int zero, int one) {
  uop *x = uop_new(g, OP_EXTRACT, DT_I32, 1, &mma, 1, (uarg){.a = zero}),
      *y = uop_new(g, OP_EXTRACT, DT_I32, 1, &mma, 1, (uarg){.a = one});
  return uop_op3(g, OP_WHERE, idx_lt(g, which, uop_idx(g, 1)), x, y);
}

static uop *tile_sum(graph *g, uop *reduce, tile *c) {
  uop *a, *x, *src[64], *rest[64];
  size_t n = 0, n_rest = 0;
  if (!dot_operands(reduce->src[0], DT_I32, NULL, &a, &x)) die("an MMA axis over operands that do not fit");
  for (size_t i = 1; i < reduce->nsrc; i++) {
    uop *r = reduce->src[i];
    if (r->b != AXIS_MMA) rest[++n_rest] = r;
    else if (uop_is_int(r->src[0], 2)) c->half = r;
    else c->inner = r;
  }
  int k = c->half || !uop_is_int(c->inner->src[0], HALF) ? 2 * HALF : HALF;
  src[n++] = uop_splat(g, uop_int(g, DT_I32, 0), 4);
  for (int i = 0; i < k / 8; i++) src[n++] = rows_operand(g, a, c, i);
  for (int i = 0; i < k / HALF; i++) src[n++] = columns_operand(g, x, c, i);
  uop *mma = uop_new(g, OP_MMA, DT_I32, 4, src, n, (uarg){.a = k}),
      *sum = uop_op3(g, OP_WHERE, idx_lt(g, c->m.i, uop_idx(g, 1)), picked(g, mma, c->m.j, 0, 1),
                     picked(g, mma, c->m.j, 2, 3));
  rest[0] = sum;
  return n_rest ? uop_new(g, OP_REDUCE, DT_I32, 1, rest, 1 + n_rest, (uarg){.a = OP_ADD}) : sum;
}

uop *expand_mma(graph *g, uop *ast) {
  tile c = {.lane = uop_range(g, uop_idx(g, REGISTER), LANE_RANGE, AXIS_LANE)};
  if (!mma_has(ast) || !mma_find(ast->src[0], &c.m)) return ast;
  arena *mem = arena_new();
  uop_list l = uop_toposort(mem, &ast, 1);
  map to = {0};
  for (size_t i = 0; i < l.n; i++) {
    bool binds = false;
    for (size_t j = (size_t)uop_first_range(l.at[i]); l.at[i]->op == OP_REDUCE && j < l.at[i]->nsrc; j++)
      binds |= l.at[i]->src[j]->b == AXIS_MMA;
    c.half = c.inner = NULL;
    if (binds) map_put(&to, l.at[i], tile_sum(g, l.at[i], &c));
  }
  arena_free(mem);
  ast = uop_substitute(g, ast, &to);
  map_free(&to);
  return ast;
}
