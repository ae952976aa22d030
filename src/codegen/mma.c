// Matrix products in tiles of 16 rows and 8 columns that 32 work-items compute with one instruction (mma.sync of NVIDIA
// GPUs): sums of 16 or 32 byte products. Operands per work-item 4 g + t: four products from 4 t on of rows g and g + 8;
// the same products of column g; results in rows g and g + 8 of columns 2 t and 2 t + 1. With 32 products, it has as
// many again, 16 further on. The operands are the sum's own expressions with its ranges replaced. Integer sums are
// exact, so results equal those of any other order.
//
// F16 and BF16. An instruction adds up 16 products; a work-item has two pairs, 8 apart. Which 16 products of a row
// these are is free, if both operands agree: work-item t takes 8 neighbours out of 32, which are contiguous, and two
// instructions take four of them each. The instruction's order of additions and its roundings are not specified, so all
// sums of a weight use it, whatever the number of columns: a single column (OptOp COLUMNS) is copied eight times. Sums
// of 32 products are then added as floats.
#include "codegen/mma.h"
#include <string.h>
#include "codegen/expand.h"

enum { REGISTER = 4 /* products */, HALF = 16, EIGHT = 8, QUAD = 4, LANE_RANGE = 1 << 21 };

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

// The range of two steps that continues where `inner` ends; NULL if there is none.
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
      !dot_operands(reduce->src[0], DT_I32, NULL, &a, &x) || a->dt != DT_U8 || x->src[0]->src[0]->dt != DT_I8 ||
      x->src[0]->src[1]->op == OP_WHERE || idx_factor(x->src[0]->src[1], inner) != 1)
    return false;
  *half = outer_half(reduce, x, inner);
  bool whole = uop_is_int(inner->src[0], HALF) || uop_is_int(inner->src[0], 2 * HALF);
  return whole && uop_varies(a, m->g) && uop_varies(x, m->t) && !uop_varies(a, m->t) && !uop_varies(a, m->j) &&
         !uop_varies(x, m->g) && !uop_varies(x, m->i);
}

enum dtype mma_halves(const uop *reduce) {
  const uop *body = reduce->op == OP_REDUCE ? reduce->src[0] : NULL;
  if (!body || reduce->dt != DT_F32 || reduce->a != OP_ADD || uop_first_range(reduce) != 1 || body->op != OP_MUL ||
      body->src[0]->op != OP_CAST || body->src[1]->op != OP_CAST)
    return DT_VOID;
  enum dtype dt = (enum dtype)body->src[0]->src[0]->dt;
  return dt == (enum dtype)body->src[1]->src[0]->dt && (dt == DT_F16 || dt == DT_BF16) ? dt : DT_VOID;
}

// a: a load of a weight that depends on the rows; x: the other operand, any expression.
static bool half_operands(const uop *reduce, const mma_ranges *m, uop **a, uop **x) {
  if (mma_halves(reduce) == DT_VOID) return false;
  const uop *body = reduce->src[0];
  *a = body->src[0]->src[0];
  *x = body->src[1]->src[0];
  if (!uop_varies(*a, m->g)) { uop *t = *a; *a = *x; *x = t; }
  return (*a)->op == OP_LOAD && (*a)->src[0]->src[1]->op != OP_WHERE && uop_varies(*a, m->g) &&
         !uop_varies(*a, m->t) && !uop_varies(*a, m->j) && !uop_varies(*x, m->g) && !uop_varies(*x, m->i);
}

// Are the load's neighbours along r contiguous?
static bool side_by_side(const uop *load, const uop *r) {
  const uop *index = load->src[0];
  return index->src[1]->op != OP_WHERE &&
         idx_factor(index->src[1], r) * dtype_size((enum dtype)index->src[0]->dt) == dtype_size((enum dtype)load->dt);
}

bool mma_fits_halves(const uop *reduce, const mma_ranges *m, const uop *inner, uop **outer) {
  uop *a, *x;
  int64_t least = INT64_MAX;
  *outer = NULL;
  if (!half_operands(reduce, m, &a, &x) || !uop_is_int(inner->src[0], EIGHT) || !side_by_side(a, inner)) return false;
  for (size_t n = 1; n < reduce->nsrc; n++) {
    uop *r = reduce->src[n];
    int64_t step = idx_factor(a->src[0]->src[1], r);
    if (r == inner || r->b != AXIS_REDUCE || r->src[0]->op != OP_CONST || r->src[0]->a % QUAD || step <= 0) continue;
    if (step < least) { least = step; *outer = r; }
  }
  return *outer;
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

// half: for bytes the range of two steps, for F16 and BF16 the range whose four steps go to work-items
typedef struct tile { mma_ranges m; uop *inner, *half, *lane; } tile;

// Replaces the ranges so that they select products 16 h + 4 t + lane.
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
  uop *x = uop_new(g, OP_EXTRACT, (enum dtype)mma->dt, 1, &mma, 1, (uarg){.a = zero}),
      *y = uop_new(g, OP_EXTRACT, (enum dtype)mma->dt, 1, &mma, 1, (uarg){.a = one});
  return uop_op3(g, OP_WHERE, idx_lt(g, which, uop_idx(g, 1)), x, y);
}

static uop *sum_of_bytes(graph *g, uop *reduce, const tile *c) {
  uop *a, *x, *src[64];
  size_t n = 0;
  die_if(!dot_operands(reduce->src[0], DT_I32, NULL, &a, &x), "an MMA axis over operands that do not fit");
  int k = c->half || !uop_is_int(c->inner->src[0], HALF) ? 2 * HALF : HALF;
  src[n++] = uop_splat(g, uop_int(g, DT_I32, 0), 4);
  for (int i = 0; i < k / 8; i++) src[n++] = rows_operand(g, a, c, i);
  for (int i = 0; i < k / HALF; i++) src[n++] = columns_operand(g, x, c, i);
  return uop_new(g, OP_MMA, DT_I32, 4, src, n, (uarg){.a = k});
}

bool mma_sound(uop *ast) {
  arena *mem = arena_new();
  uop_list l = uop_toposort(mem, &ast, 1);
  mma_ranges m;
  bool sound = true;
  for (size_t i = 0; i < l.n && sound; i++) {
    uop *u = l.at[i], *a, *x;
    bool tiled = false;
    for (size_t j = 1; u->op == OP_REDUCE && j < u->nsrc; j++) tiled |= u->src[j]->b == AXIS_MMA;
    if (tiled)
      sound = mma_find(ast->src[0], &m) && (mma_halves(u) != DT_VOID ? half_operands(u, &m, &a, &x)
                                                                      : dot_operands(u->src[0], DT_I32, NULL, &a, &x) &&
                                                                          a->dt == DT_U8);
  }
  arena_free(mem);
  return sound;
}

// Values 2 pair and 2 pair + 1 of work-item t: loaded as one word if contiguous in memory, otherwise as two lanes.
static uop *two_halves(graph *g, uop *v, const tile *c, map *to, int pair) {
  bool loaded = v->op == OP_LOAD && side_by_side(v, c->inner);
  uop *first = uop_idx(g, 2 * pair), *at = loaded ? v->src[0]->src[1] : v;
  map_put(to, c->half, c->m.t);
  map_put(to, c->inner, loaded ? first : idx_add(g, first, c->lane));
  at = simplify(g, uop_substitute(g, at, to));
  map_free(to);
  if (loaded) {
    uop *load = uop_load_from(g, v, uop_index(g, v->src[0]->src[0], at), 1);
    return uop_new(g, OP_LOAD, DT_U32, 1, load->src, load->nsrc, (uarg){0});
  }
  return uop_splat(g, expand_lanes(g, expand_gates(g, at)), 2);
}

static uop *sum_of_halves(graph *g, uop *reduce, tile *c) {
  uop *a, *x, *src[1 + 4 + 2], *sum = uop_splat(g, uop_float(g, DT_F32, 0), 4);
  die_if(!half_operands(reduce, &c->m, &a, &x), "an MMA axis over operands that do not fit");
  c->lane = uop_range(g, uop_idx(g, 2), LANE_RANGE, AXIS_LANE);
  for (int part = 0; part < 2; part++) {
    src[0] = sum;
    for (int i = 0; i < 4; i++) {
      map to = {0};
      map_put(&to, c->m.i, uop_idx(g, i % 2));
      src[1 + i] = two_halves(g, a, c, &to, 2 * part + i / 2);
    }
    for (int i = 0; i < 2; i++) {
      map to = {0};
      map_put(&to, c->m.t, idx_div(g, c->m.g, uop_idx(g, 2)));
      map_put(&to, c->m.j, idx_mod(g, c->m.g, uop_idx(g, 2)));
      src[5 + i] = two_halves(g, x, c, &to, 2 * part + i);
    }
    sum = uop_new(g, OP_MMA, DT_F32, 4, src, COUNT(src), (uarg){.a = HALF, .b = mma_halves(reduce)});
  }
  return sum;
}

static uop *tile_sum(graph *g, uop *reduce, tile *c) {
  uop *rest[64];
  size_t n_rest = 0;
  die_if(reduce->nsrc > COUNT(rest), "a sum over %u ranges", reduce->nsrc);
  bool halves = mma_halves(reduce) != DT_VOID;
  for (size_t i = 1; i < reduce->nsrc; i++) {
    uop *r = reduce->src[i];
    if (r->b != AXIS_MMA) rest[++n_rest] = r;
    else if (uop_is_int(r->src[0], halves ? QUAD : 2)) c->half = r;
    else c->inner = r;
  }
  uop *mma = halves ? sum_of_halves(g, reduce, c) : sum_of_bytes(g, reduce, c),
      *sum = uop_op3(g, OP_WHERE, idx_lt(g, c->m.i, uop_idx(g, 1)), picked(g, mma, c->m.j, 0, 1),
                     picked(g, mma, c->m.j, 2, 3));
  rest[0] = sum;
  return n_rest ? uop_new(g, OP_REDUCE, (enum dtype)reduce->dt, 1, rest, 1 + n_rest, (uarg){.a = OP_ADD}) : sum;
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
