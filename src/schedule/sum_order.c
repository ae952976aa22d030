// Fixes the order of float sums: the range along which terms are placed in lanes, which decides the order of additions.
// Codegen chooses that range from everything that a kernel reads. The content of a kernel is the cost model's choice
// and may differ between one token and many. Two kinds of values would let a product with a weight be added in another
// order, so they are always stored:
//
// - products of different kinds (formats, lengths) that meet in one expression: rows may be lanes for one product
//   and not for the other;
// - the other factor of a weight, if some of the memory that it is computed from is not contiguous along the summed
//   axis: the weight alone decides the order.
//
// Both are decided from the tensor graph, not from loops or costs, so the answer does not depend on the number of
// tokens.
#include "schedule/sum_order.h"
#include <string.h>
#include "graph/symbolic.h"

enum { MAX_FACTORS = 32 };

// reads: the largest weight that reaches a node through unstored nodes; product: the largest weight in the products
// that a node is made of; along: answers of lies_along
typedef struct forms { graph *g; arena *mem; const map *constant; map *keep, reads, product; smap along; } forms;

static bool is_movement(const uop *u) { return op_flags((enum op)u->op) & OPF_MOVEMENT; }
static bool is_source(const uop *u) { return u->op == OP_CONTIGUOUS || u->op == OP_BUFFER || u->op == OP_AFTER; }
static bool is_sum(const uop *u) { return u->op == OP_REDUCE_AXIS && u->a == OP_ADD; }
static bool is_float_sum(const uop *u) { return is_sum(u) && dtype_is_float((enum dtype)u->dt); }

// --- products that meet ---------------------------------------------------------------------------------------------

static int64_t weight_bytes(const uop *weight) { return weight->b * dtype_size((enum dtype)weight->dt); }

static uop *largest_weight(const forms *f, uop *u) {
  uop *most = u->op == OP_BUFFER && u->memory == MEMORY_WEIGHT ? u : NULL;
  if (is_source(u) || is_float_sum(u)) return most;
  size_t n = is_movement(u) || u->op == OP_GATHER ? 1 : u->nsrc;
  for (size_t i = 0; i < n; i++) {
    uop *w = map_ptr(&f->reads, u->src[i]);
    if (w && (!most || weight_bytes(w) > weight_bytes(most))) most = w;
  }
  return most;
}

// Weights of equal type and size: their products have equal orders of sums.
static bool same_form(const uop *v, const uop *w) { return v->dt == w->dt && v->b == w->b; }

static void keep_as_is(forms *f, uop *u) {
  while (u->op == OP_RESHAPE || u->op == OP_EXPAND || u->op == OP_PERMUTE) u = u->src[0];
  map_put(f->keep, u, u);
}

static void note_product(forms *f, uop *u) {
  uop *weight = is_sum(u) ? map_ptr(&f->reads, u->src[0]) : NULL;
  if (is_source(u)) return;
  if (u->op != OP_REDUCE_AXIS) {
    size_t n = is_movement(u) ? 1 : u->nsrc;
    bool meet = false;
    for (size_t i = 0; i < n; i++) {
      uop *w = map_ptr(&f->product, u->src[i]);
      meet |= w && weight && !same_form(w, weight);
      if (w) weight = w;
    }
    for (size_t i = 0; meet && i < n; i++) if (map_has(&f->product, u->src[i])) keep_as_is(f, u->src[i]);
    if (meet) return;
  }
  if (weight) map_put(&f->product, u, weight);
}

// --- what weights are multiplied with -------------------------------------------------------------------------------

static bool moves_by_one(uop *i, uop *r) {           // by one element, or not at all
  idx_sum s;
  if (!uop_varies(i, r)) return true;
  if (!idx_sum_of(i, &s)) return false;
  for (int t = 0; t < s.n; t++) if (s.atom[t] == r ? s.coeff[t] != 1 : uop_varies(s.atom[t], r)) return false;
  return true;
}

static bool lies_along(forms *f, uop *u, const place *at, uop *r);

// lies_along, asked once for each node and place: a value may have several readers on each of many levels.
static bool known_along(forms *f, uop *u, const place *at, uop *r) {
  uint64_t key[3 + MAX_DIMS] = {(uint64_t)(uintptr_t)u, (uint64_t)(uintptr_t)r, (uint64_t)(uintptr_t)at->valid};
  void *hit;
  for (int i = 0; i < at->n; i++) key[3 + i] = (uint64_t)(uintptr_t)at->idx[i];
  if (smap_get(&f->along, (const char *)key, sizeof key, &hit)) return hit;
  hit = lies_along(f, u, at, r) ? u : NULL;
  smap_set(&f->along, memcpy(arena_alloc(f->mem, sizeof key), key, sizeof key), sizeof key, hit);
  return hit;
}

// Is all memory that u is computed from contiguous along range r?
static bool lies_along(forms *f, uop *u, const place *at, uop *r) {
  graph *g = f->g;
  place p, q;
  if (!u->shape) return true;
  if (is_source(u) || u->op == OP_REDUCE_AXIS)
    return !(at->valid && uop_varies(at->valid, r)) && moves_by_one(simplify(g, flat_index(g, u->shape, at)), r);
  if (is_movement(u)) { move_place(g, u, at, &p); return lies_along(f, u->src[0], &p, r); }
  p = *at;
  switch (u->op) {
  case OP_IOTA: return true;
  case OP_GATHER:
    gather_place(u, at, uop_idx(g, 0), &p, &q);
    for (int i = 0; i < q.n; i++) if (uop_varies(q.idx[i], r)) return false;
    return lies_along(f, u->src[0], &p, r);
  case OP_STACK: p.n--; if (uop_varies(at->idx[p.n], r)) return false; break;
  case OP_BITCAST: if (dtype_size((enum dtype)u->dt) != dtype_size((enum dtype)u->src[0]->dt)) return false; break;
  default: break;
  }
  for (size_t i = 0; i < u->nsrc; i++) if (!known_along(f, u->src[i], &p, r)) return false;
  return true;
}

static void find_factors(uop *u, uop **at, int *n) {
  if (u->op == OP_MUL) { find_factors(u->src[0], at, n); find_factors(u->src[1], at, n); }
  else if (*n < MAX_FACTORS) at[(*n)++] = u;
}

static void note_factors(forms *f, uop *reduce) {
  uop *at[MAX_FACTORS];
  int n = 0, weights = 0;
  find_factors(reduce->src[0], at, &n);
  for (int i = 0; i < n; i++) weights += map_has(f->constant, at[i]) && map_has(&f->reads, at[i]);
  for (int i = 0; weights && i < n; i++) {
    uop *u = at[i];
    bool repeated = false;
    for (; u->op == OP_EXPAND || u->op == OP_RESHAPE || (u->op == OP_CAST && u->src[0]->shape); u = u->src[0])
      repeated |= u->op == OP_EXPAND;
    if (map_has(f->constant, u) || !repeated || !u->shape || u->dt == DT_IDX || is_source(u) || is_movement(u) ||
        u->op == OP_REDUCE_AXIS)
      continue;
    place p = {.n = u->shape->n};
    for (int j = 0; j < p.n; j++)
      p.idx[j] = uop_is_int(u->shape->dim[j], 1) ? uop_idx(f->g, 0) : uop_range(f->g, u->shape->dim[j], j, AXIS_LOOP);
    if (p.n && p.idx[p.n - 1]->op == OP_RANGE && !lies_along(f, u, &p, p.idx[p.n - 1])) map_put(f->keep, u, u);
  }
}

void find_sum_orders(graph *g, const uop_list *order, const map *constant, map *keep) {
  forms f = {.g = g, .mem = arena_new(), .constant = constant, .keep = keep};
  for (size_t i = 0; i < order->n; i++) {
    uop *u = order->at[i];
    if (!u->shape) continue;
    note_product(&f, u);
    if (is_float_sum(u) && map_has(&f.reads, u->src[0])) note_factors(&f, u);
    uop *w = largest_weight(&f, u);
    if (w) map_put(&f.reads, u, w);
  }
  smap_free(&f.along);
  arena_free(f.mem);
  map_free(&f.reads);
  map_free(&f.product);
}
