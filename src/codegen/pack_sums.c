// Packs neighbouring outputs into vectors. Each output is a sum over the lanes of a vector, followed by arithmetic.
// Separately, a vector of n lanes takes log n steps to reduce, each division is scalar, and each result is stored
// alone. Packed, one step adds halves of two vectors, and there is one division and one store. The additions do not
// change (lane i to lane i + n/2), so no bit changes.
#include "codegen/pack_sums.h"
#include <stdlib.h>
#include <string.h>
#include "graph/symbolic.h"

enum { MOST_WIDE = 16, MOST_VISITS = 256 };

typedef struct output {
  uop *store, *joined;                         // joined: the STORE of several outputs of which this is the first
  idx_sum at;
  bool known, taken;
} output;

typedef struct joining {
  graph *g;
  int wide;                                    // outputs that become one vector
  int visits;
  bool sums;                                   // the joined values include sums over lanes
} joining;

// The distance from x to y in elements; false if it is unknown.
static bool steps_apart(const idx_sum *x, const idx_sum *y, int64_t *d) {
  *d = y->constant - x->constant;
  return x->n == y->n && !memcmp(x->atom, y->atom, (size_t)x->n * sizeof *x->atom) &&
         !memcmp(x->coeff, y->coeff, (size_t)x->n * sizeof *x->coeff);
}

static bool is_elements_after(const uop *x, const uop *y, int64_t by) {
  idx_sum a, b;
  int64_t d;
  return x->src[0] == y->src[0] && idx_sum_of(x->src[1], &a) && idx_sum_of(y->src[1], &b) && steps_apart(&a, &b, &d) &&
         d == by;
}

// --- sums ------------------------------------------------------------------------------------------------------------

// From vectors x and y (NULL: x only), in groups of m lanes: the first half of each group, or the second.
static uop *halves(graph *g, uop *x, uop *y, int m, int second) {
  int lanes = y ? x->lanes : x->lanes / 2;
  unsigned char from[2 * MOST_WIDE * MOST_WIDE];
  for (int i = 0; i < lanes; i++) {
    int lane = i / (m / 2) * m + i % (m / 2) + second * (m / 2);
    from[2 * i] = (unsigned char)lane;
    from[2 * i + 1] = (unsigned char)(lane >> 8);
  }
  return uop_new(g, OP_SHUFFLE, (enum dtype)x->dt, lanes, (uop *[]){x, y}, y ? 2 : 1,
                 (uarg){.s = (const char *)from, .s_len = 2 * (size_t)lanes});
}

static uop *add_halves(graph *g, enum op op, uop *x, uop *y, int m) {
  return uop_op2(g, op, halves(g, x, y, m, 0), halves(g, x, y, m, 1));
}

// Reduces several vectors of equal width at once; each result is one lane.
static uop *add_up_lanes(const joining *c, uop *const *v) {
  enum op op = (enum op)v[0]->a;
  uop *x[MOST_WIDE];
  int m = v[0]->src[0]->lanes;                 // lanes still to be added up
  for (int i = 0; i < c->wide; i++) x[i] = v[i]->src[0];
  for (int n = c->wide; n > 1; n /= 2, m /= 2)
    for (int i = 0; i < n / 2; i++) x[i] = add_halves(c->g, op, x[2 * i], x[2 * i + 1], m);
  for (; m > 1; m /= 2) x[0] = add_halves(c->g, op, x[0], NULL, m);
  return x[0];
}

// --- what is made of them --------------------------------------------------------------------------------------------

static uop *join_values(joining *c, uop *const *v);

static bool are_alike(const joining *c, uop *const *v) {
  for (int i = 0; i < c->wide; i++)
    if (v[i]->op != v[0]->op || v[i]->dt != v[0]->dt || v[i]->nsrc != v[0]->nsrc || v[i]->lanes != 1) return false;
  return true;
}

// Is a commutative operation's operand order reversed, compared with the first one's?
static bool is_turned(const uop *first, const uop *u) {
  bool commutes = op_flags((enum op)u->op) & OPF_COMMUTATIVE;
  return commutes && u->src[0] != first->src[0] && u->src[1] != first->src[1] &&
         (u->src[0]->op != first->src[0]->op || u->src[0] == first->src[1] || u->src[1] == first->src[0]);
}

static uop *join_operation(joining *c, uop *const *v) {
  uop *src[3];
  for (unsigned j = 0; j < v[0]->nsrc; j++) {
    uop *operand[MOST_WIDE];
    for (int i = 0; i < c->wide; i++) operand[i] = v[i]->src[is_turned(v[0], v[i]) ? 1 - j : j];
    if (!(src[j] = join_values(c, operand))) return NULL;
  }
  return uop_new(c->g, (enum op)v[0]->op, (enum dtype)v[0]->dt, c->wide, src, v[0]->nsrc, uop_arg(v[0]));
}

static uop *join_loads(joining *c, uop *const *v) {
  const uop *index = v[0]->src[0];
  if (v[0]->nsrc > 1 || dtype_size((enum dtype)index->src[0]->dt) != dtype_size((enum dtype)v[0]->dt)) return NULL;
  for (int i = 1; i < c->wide; i++) if (!is_elements_after(index, v[i]->src[0], i)) return NULL;
  return uop_load(c->g, v[0]->src[0], (enum dtype)v[0]->dt, c->wide);
}

// Joins similar scalars into a vector; NULL if they differ, or if it would cost more than it saves.
static uop *join_values(joining *c, uop *const *v) {
  bool equal = true, vectors = true;
  if (c->visits++ > MOST_VISITS) return NULL;
  for (int i = 1; i < c->wide; i++) equal &= v[i] == v[0];
  if (equal) return uop_splat(c->g, v[0], c->wide);
  if (!are_alike(c, v)) return NULL;
  if (op_flags((enum op)v[0]->op) & OPF_ELEMENTWISE) return join_operation(c, v);
  if (v[0]->op == OP_LOAD) return join_loads(c, v);
  if (v[0]->op != OP_HREDUCE) return NULL;
  int n = v[0]->src[0]->lanes;
  for (int i = 0; i < c->wide; i++) vectors &= v[i]->a == v[0]->a && v[i]->src[0]->lanes == n;
  if (!vectors || n < c->wide || n > MOST_WIDE * MOST_WIDE / 2) return NULL;
  c->sums = true;
  return add_up_lanes(c, v);
}

// --- which outputs ---------------------------------------------------------------------------------------------------

static bool is_plain_output(const uop *store) {
  const uop *value = store->src[1], *index = store->src[0];
  return store->op == OP_STORE && value->lanes == 1 && index->lanes == 1 && index->src[1]->op != OP_WHERE &&
         index->src[0]->op == OP_PARAM && index->src[0]->dt == value->dt;
}

static const output *find_next_output(const output *all, size_t n, const output *x, int64_t by) {
  int64_t d;
  for (size_t i = 0; i < n; i++)
    if (all[i].known && !all[i].taken && all[i].store->src[0]->src[0] == x->store->src[0]->src[0] &&
        steps_apart(&x->at, &all[i].at, &d) && d == by)
      return &all[i];
  return NULL;
}

// Joins outputs from x on that are neighbours in memory (a power of two), if it is worth it.
static uop *join_from(graph *g, output *all, size_t n, const output *x) {
  uop *stores[MOST_WIDE] = {x->store}, *values[MOST_WIDE], *src[64];
  int found = 1;
  for (const output *next; found < MOST_WIDE && (next = find_next_output(all, n, x, found)); found++)
    stores[found] = next->store;
  for (int wide = MOST_WIDE; wide > 1; wide /= 2) {
    joining c = {.g = g, .wide = wide};
    if (wide > found || x->store->nsrc > COUNT(src)) continue;
    for (int i = 0; i < wide; i++) values[i] = stores[i]->src[1];
    uop *value = join_values(&c, values);
    if (!value || !c.sums) continue;
    for (size_t i = 0; i < n; i++)
      for (int j = 0; j < wide; j++) all[i].taken |= all[i].store == stores[j];
    memcpy(src, x->store->src, x->store->nsrc * sizeof *src);
    src[1] = value;
    return uop_new(g, OP_STORE, DT_VOID, 1, src, x->store->nsrc, (uarg){0});
  }
  return NULL;
}

uop *pack_sums(graph *g, uop *ast) {
  VEC(output) all = {0};
  VEC(uop *) stores = {0};
  for (size_t i = 0; i < ast->nsrc; i++) {
    output o = {.store = ast->src[i]};
    o.known = is_plain_output(o.store) && idx_sum_of(o.store->src[0]->src[1], &o.at);
    vec_push(&all, o);
  }
  for (size_t i = 0; i < all.n; i++) {
    output *x = &all.at[i];
    if (x->known && !x->taken && !find_next_output(all.at, all.n, x, -1)) x->joined = join_from(g, all.at, all.n, x);
  }
  for (size_t i = 0; i < all.n; i++) {
    const output *x = &all.at[i];
    if (x->joined || !x->taken) vec_push(&stores, x->joined ? x->joined : x->store);
  }
  if (stores.n < all.n) ast = uop_new(g, OP_SINK, DT_VOID, 1, stores.at, stores.n, (uarg){0});
  vec_free(&all); vec_free(&stores);
  return ast;
}
