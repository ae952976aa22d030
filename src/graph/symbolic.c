// Simplification. Index expressions have a normal form: a sum of atoms with constant coefficients, ordered by their
// hashes. Divisions and remainders by constants are split over that sum: divisible terms move out, provably small terms
// vanish, common factors cancel. This recovers the block structure of a quantised format when a range is split.
#include "graph/symbolic.h"
#include <stdlib.h>
#include "graph/eval.h"

// --- sums -----------------------------------------------------------------------------------------------------------

static bool add_term(idx_sum *s, uop *atom, int64_t coeff) {
  for (int i = 0; i < s->n; i++)
    if (s->atom[i] == atom) return add_i64(s->coeff[i], coeff, &s->coeff[i]);
  if (s->n == (int)COUNT(s->atom)) return false;
  s->atom[s->n] = atom;
  s->coeff[s->n++] = coeff;
  return true;
}

static bool flatten(uop *u, int64_t by, idx_sum *s) {
  int64_t k;
  if (u->op == OP_CONST) return mul_i64(u->a, by, &k) && add_i64(s->constant, k, &s->constant);
  if (u->op == OP_ADD) return flatten(u->src[0], by, s) && flatten(u->src[1], by, s);
  if (u->op == OP_SUB) return flatten(u->src[0], by, s) && by != INT64_MIN && flatten(u->src[1], -by, s);
  if (u->op == OP_NEG) return by != INT64_MIN && flatten(u->src[0], -by, s);
  if (u->op == OP_MUL && u->src[1]->op == OP_CONST) return mul_i64(by, u->src[1]->a, &k) && flatten(u->src[0], k, s);
  return add_term(s, u, by);
}

static int by_hash(const uop *p, const uop *q) {
  return p->hash < q->hash ? -1 : p->hash > q->hash ? 1 : p->id < q->id ? -1 : p->id > q->id;
}

static void normalise(idx_sum *s) {
  int n = 0;
  for (int i = 0; i < s->n; i++)
    if (s->coeff[i]) { s->atom[n] = s->atom[i]; s->coeff[n++] = s->coeff[i]; }
  s->n = n;
  for (int i = 1; i < n; i++)
    for (int j = i; j > 0 && by_hash(s->atom[j], s->atom[j - 1]) < 0; j--) {
      uop *a = s->atom[j]; s->atom[j] = s->atom[j - 1]; s->atom[j - 1] = a;
      int64_t c = s->coeff[j]; s->coeff[j] = s->coeff[j - 1]; s->coeff[j - 1] = c;
    }
}

bool idx_sum_of(uop *u, idx_sum *s) {
  s->constant = 0;
  s->n = 0;
  if (u->lanes != 1 || u->dt != DT_IDX || u->shape || !flatten(u, 1, s)) return false;
  normalise(s);
  return true;
}

int64_t idx_factor(uop *u, const uop *range) {
  idx_sum s;
  int64_t factor = 0;
  if (!uop_varies(u, range)) return 0;
  if (!idx_sum_of(u, &s)) return -1;
  for (int t = 0; t < s.n; t++) {
    if (s.atom[t] == range) factor = s.coeff[t];
    else if (uop_varies(s.atom[t], range)) return -1;
  }
  return factor;
}

uop *idx_sum_build(graph *g, const idx_sum *s) {
  uop *sum = NULL;
  for (int i = 0; i < s->n; i++) {
    uop *t = s->coeff[i] == 1 ? s->atom[i] : uop_op2(g, OP_MUL, s->atom[i], uop_idx(g, s->coeff[i]));
    sum = sum ? uop_op2(g, OP_ADD, sum, t) : t;
  }
  if (!sum) return uop_idx(g, s->constant);
  return s->constant ? uop_op2(g, OP_ADD, sum, uop_idx(g, s->constant)) : sum;
}

static bool sum_bounds(const idx_sum *s, int64_t *lo, int64_t *hi) {
  *lo = *hi = s->constant;
  for (int i = 0; i < s->n; i++) {
    int64_t a, b;
    if (s->atom[i]->vmin == INT64_MIN || s->atom[i]->vmax == INT64_MAX) return false;
    if (!mul_i64(s->coeff[i], s->atom[i]->vmin, &a) || !mul_i64(s->coeff[i], s->atom[i]->vmax, &b)) return false;
    if (!add_i64(*lo, min_i64(a, b), lo) || !add_i64(*hi, max_i64(a, b), hi)) return false;
  }
  return true;
}

// (y/c)*(k*c) + (y%c)*k  ->  y*k,  and  ((y/c)%d)*(k*c) + (y%c)*k  ->  (y%(c*d))*k
static bool recombine(graph *g, idx_sum *s) {
  for (int i = 0; i < s->n; i++) {
    uop *m = s->atom[i];
    if (m->op != OP_MOD || m->src[1]->op != OP_CONST || m->src[1]->a <= 0) continue;
    int64_t c = m->src[1]->a, k;
    if (!mul_i64(s->coeff[i], c, &k)) continue;
    uop *q = idx_div(g, m->src[0], m->src[1]);
    for (int j = 0; j < s->n; j++) {
      if (s->coeff[j] != k || j == i) continue;
      uop *t = s->atom[j], *to = NULL;
      int64_t cd;
      if (t == q) to = m->src[0];
      else if (t->op == OP_MOD && t->src[0] == q && t->src[1]->op == OP_CONST && mul_i64(c, t->src[1]->a, &cd))
        to = idx_mod(g, m->src[0], uop_idx(g, cd));
      if (!to) continue;
      int64_t factor = s->coeff[i];
      s->coeff[i] = s->coeff[j] = 0;
      if (!flatten(to, factor, s)) return false;
      normalise(s);
      return true;
    }
  }
  return false;
}

static uop *canonical_sum(graph *g, uop *u, uop *const *v, void *ctx) {
  (void)v; (void)ctx;
  idx_sum s;
  if (!idx_sum_of(u, &s)) return NULL;
  while (recombine(g, &s)) {}
  return idx_sum_build(g, &s);
}

// --- division and remainder by a constant ---------------------------------------------------------------------------

// Splits s into c * quot + rest, where each coefficient of rest and its constant are in [0, c).
static void split_sum(const idx_sum *s, int64_t c, idx_sum *quot, idx_sum *rest) {
  *quot = (idx_sum){0}; *rest = (idx_sum){0};
  quot->constant = floordiv_i64(s->constant, c);
  rest->constant = floormod_i64(s->constant, c);
  for (int i = 0; i < s->n; i++) {
    int64_t q = floordiv_i64(s->coeff[i], c), r = floormod_i64(s->coeff[i], c);
    // keep -x/c: rewriting -1 as c*(-1) + (c-1) does not help
    if (r && q && s->coeff[i] < 0) { q = 0; r = s->coeff[i]; }
    if (q) { quot->atom[quot->n] = s->atom[i]; quot->coeff[quot->n++] = q; }
    if (r) { rest->atom[rest->n] = s->atom[i]; rest->coeff[rest->n++] = r; }
  }
}

// A factor f of c for which rest = f*A + B with 0 <= B < f, and A not empty. Gives A and B.
static bool factor_sum(const idx_sum *rest, int64_t c, int64_t *factor, idx_sum *A, idx_sum *B) {
  int64_t best = 0;
  for (int t = 0; t < rest->n; t++) {
    int64_t f = gcd_i64(rest->coeff[t], c), lo, hi;
    if (f <= 1 || f <= best || f >= c) continue;
    idx_sum a = {0}, b = {0};
    a.constant = floordiv_i64(rest->constant, f);
    b.constant = floormod_i64(rest->constant, f);
    for (int i = 0; i < rest->n; i++) {
      idx_sum *to = rest->coeff[i] % f ? &b : &a;
      to->atom[to->n] = rest->atom[i];
      to->coeff[to->n++] = to == &a ? rest->coeff[i] / f : rest->coeff[i];
    }
    if (!sum_bounds(&b, &lo, &hi) || lo < 0 || hi >= f) continue;
    best = f; *A = a; *B = b;
  }
  *factor = best;
  return best > 0;
}

static uop *divide_sum(graph *g, uop *u, uop *const *v, void *ctx) {
  (void)v; (void)ctx;
  if (u->src[1]->op != OP_CONST || u->dt != DT_IDX || u->shape) return NULL;
  uop *n = u->src[0];
  int64_t c = u->src[1]->a, lo, hi, both;
  if (c <= 0) return NULL;
  if (c == 1) return n;
  if (n->op == OP_IDIV && n->src[1]->op == OP_CONST && n->src[1]->a > 0 && mul_i64(n->src[1]->a, c, &both))
    return idx_div(g, n->src[0], uop_idx(g, both));
  if (n->op == OP_MOD && n->src[1]->op == OP_CONST && n->src[1]->a > 0 && n->src[1]->a % c == 0)
    return idx_mod(g, idx_div(g, n->src[0], u->src[1]), uop_idx(g, n->src[1]->a / c));
  idx_sum s, quot, rest, A, B;
  if (!idx_sum_of(n, &s)) return NULL;
  split_sum(&s, c, &quot, &rest);
  if (sum_bounds(&rest, &lo, &hi) && floordiv_i64(lo, c) == floordiv_i64(hi, c)) {
    quot.constant += floordiv_i64(lo, c);
    return idx_sum_build(g, &quot);
  }
  int64_t f;
  uop *inner = NULL;
  if (factor_sum(&rest, c, &f, &A, &B)) inner = idx_div(g, idx_sum_build(g, &A), uop_idx(g, c / f));
  else if (quot.n || quot.constant) inner = uop_op2(g, OP_IDIV, idx_sum_build(g, &rest), u->src[1]);
  if (!inner) return NULL;
  return idx_add(g, idx_sum_build(g, &quot), inner);
}

static uop *remainder_sum(graph *g, uop *u, uop *const *v, void *ctx) {
  (void)v; (void)ctx;
  if (u->src[1]->op != OP_CONST || u->dt != DT_IDX || u->shape) return NULL;
  uop *n = u->src[0];
  int64_t c = u->src[1]->a, lo, hi;
  if (c <= 0) return NULL;
  if (c == 1) return uop_idx(g, 0);
  if (n->op == OP_MOD && n->src[1]->op == OP_CONST && n->src[1]->a > 0 && n->src[1]->a % c == 0)
    return idx_mod(g, n->src[0], u->src[1]);
  idx_sum s, quot, rest, A, B;
  if (!idx_sum_of(n, &s)) return NULL;
  split_sum(&s, c, &quot, &rest);
  if (sum_bounds(&rest, &lo, &hi) && floordiv_i64(lo, c) == floordiv_i64(hi, c)) {
    rest.constant -= c * floordiv_i64(lo, c);
    return idx_sum_build(g, &rest);
  }
  int64_t f;
  if (factor_sum(&rest, c, &f, &A, &B)) {
    uop *high = idx_mul(g, idx_mod(g, idx_sum_build(g, &A), uop_idx(g, c / f)), uop_idx(g, f));
    return idx_add(g, high, idx_sum_build(g, &B));
  }
  if (quot.n || quot.constant) return uop_op2(g, OP_MOD, idx_sum_build(g, &rest), u->src[1]);
  return NULL;
}

// --- comparisons ----------------------------------------------------------------------------------------------------

static uop *compare_sum(graph *g, uop *u, uop *const *v, void *ctx) {
  (void)v; (void)ctx;
  if (u->src[0]->dt != DT_IDX || u->lanes != 1) return NULL;
  idx_sum s;
  uop *diff = uop_op2(g, OP_SUB, u->src[0], u->src[1]);
  int64_t lo, hi;
  if (!idx_sum_of(diff, &s)) return NULL;
  if (sum_bounds(&s, &lo, &hi)) {
    if (hi < 0) return uop_int(g, DT_BOOL, 1);
    if (lo >= 0) return uop_int(g, DT_BOOL, 0);
  }
  uop *q = u->src[0];
  int64_t product;
  if (q->op == OP_IDIV && q->src[1]->op == OP_CONST && q->src[1]->a > 0 && u->src[1]->op == OP_CONST &&
      mul_i64(q->src[1]->a, u->src[1]->a, &product))
    return idx_lt(g, q->src[0], uop_idx(g, product));                  // x // c < k  is  x < c k
  if (u->src[1]->op != OP_CONST) {
    // a < b with a constant part moves it to one side, and equal atoms cancel: only if the result is smaller
    idx_sum a, b;
    if (!idx_sum_of(u->src[0], &a) || !idx_sum_of(u->src[1], &b) || s.n >= a.n + b.n) return NULL;
    idx_sum left = {0}, right = {0};
    left.constant = 0; right.constant = -s.constant;
    for (int i = 0; i < s.n; i++) {
      idx_sum *to = s.coeff[i] > 0 ? &left : &right;
      to->atom[to->n] = s.atom[i];
      to->coeff[to->n++] = to == &left ? s.coeff[i] : -s.coeff[i];
    }
    return uop_op2(g, OP_CMPLT, idx_sum_build(g, &left), idx_sum_build(g, &right));
  }
  // g*A + r < c  ->  A < ceil((c - r) / g)
  int64_t d = 0, limit;
  for (int i = 0; i < s.n; i++) d = gcd_i64(d, s.coeff[i]);
  if (!d || s.constant == INT64_MIN) return NULL;
  limit = -floordiv_i64(s.constant, d);           // A*d < -constant
  idx_sum a = {.n = s.n};
  for (int i = 0; i < s.n; i++) { a.atom[i] = s.atom[i]; a.coeff[i] = s.coeff[i] / d; }
  return uop_op2(g, OP_CMPLT, idx_sum_build(g, &a), uop_idx(g, limit));
}

// --- folding --------------------------------------------------------------------------------------------------------

static uop *fold(graph *g, uop *u, uop *const *v, void *ctx) {
  (void)v; (void)ctx;
  unsigned f = op_flags((enum op)u->op);
  if (!(f & OPF_ELEMENTWISE) && u->op != OP_RANGE && u->op != OP_SPLAT) return NULL;
  // its bounds are those of an index that may not exist
  bool guards = u->op == OP_WHERE && uop_unsplat(u->src[2])->op == OP_INVALID;
  if (u->op != OP_SPLAT && !guards && u->vmin == u->vmax && (dtype_is_int((enum dtype)u->dt) || u->dt == DT_BOOL) &&
      !u->shape)
    return uop_splat(g, uop_int(g, (enum dtype)u->dt, u->vmin), u->lanes);
  if (!(f & OPF_ELEMENTWISE)) return NULL;
  for (size_t i = 0; i < u->nsrc; i++) if (uop_unsplat(u->src[i])->op != OP_CONST) return NULL;
  return eval_const(g, u);
}

static uop *fold_minmax(graph *g, uop *u, uop *const *v, void *ctx) {
  (void)g; (void)v; (void)ctx;
  uop *a = u->src[0], *b = u->src[1];
  if (u->dt == DT_U64) return NULL;
  if (a->vmin >= b->vmax) return u->op == OP_MAX ? a : b;
  if (b->vmin >= a->vmax) return u->op == OP_MAX ? b : a;
  return NULL;
}

static uop *fold_where(graph *g, uop *u, uop *const *v, void *ctx) {
  (void)g; (void)v; (void)ctx;
  if (u->src[0]->vmin == 1) return u->src[1];
  if (u->src[0]->vmax == 0) return u->src[2];
  return u->src[1] == u->src[2] ? u->src[1] : NULL;
}

static uop *fold_cast(graph *g, uop *u, uop *const *v, void *ctx) {
  (void)ctx; (void)v;
  uop *in = u->src[0];
  if (in->dt == u->dt) return in;
  if (in->op != OP_CAST) return NULL;
  enum dtype from = (enum dtype)in->src[0]->dt, mid = (enum dtype)in->dt, to = (enum dtype)u->dt;
  // the middle type keeps every value of the first: drop it
  bool ints = dtype_is_int(from) && dtype_is_int(mid) && dtype_is_int(to) && in->src[0]->vmin >= dtype_min(mid) &&
              in->src[0]->vmax <= dtype_max(mid) && mid != DT_U64;
  bool floats = dtype_is_float(from) && ((mid == DT_F32 && from != DT_F64) || mid == DT_F64) && (dtype_is_float(to));
  bool back = to == from && floats;
  if (ints || back) return uop_cast(g, in->src[0], to);
  return NULL;
}

// a cast of index arithmetic to IDX and back vanishes if the bounds fit
static uop *absorb_mask(graph *g, uop *u, uop *const *v, void *ctx) {
  (void)ctx; (void)g;
  // x & (2^k - 1), if x is known to be below 2^k
  int64_t m = uop_unsplat(v[4])->a;
  if (m < 0 || ((m + 1) & m)) return NULL;
  return v[0]->vmin >= 0 && v[0]->vmax <= m && u->dt != DT_U64 ? v[0] : NULL;
}

static uop *shift_out(graph *g, uop *u, uop *const *v, void *ctx) {
  (void)ctx;
  int64_t k = uop_unsplat(v[4])->a;
  if (k < 0 || k > 62 || v[0]->vmin < 0 || u->dt == DT_U64 || v[0]->vmax >> k || u->shape) return NULL;
  return uop_const_like(g, u, 0);
}

#include "graph/rules.h"

RULES(symbolic_any, ANYTHING) = {
  F( x,                                fold ),
  F( WHERE(x, y, z),                   fold_where ),
  F( CAST(x),                          fold_cast ),
  R( WHERE(x, WHERE(x, y, z), w),      WHERE(x, y, w) ),
  R( WHERE(x, y, WHERE(x, z, w)),      WHERE(x, y, w) ),
  R( BITCAST(BITCAST(x)),              BITCAST(x) ),
};
RULES_END(symbolic_any)

RULES(symbolic_int, INTS) = {
  R( ADD(x, K(0)),                     x ),
  R( SUB(x, K(0)),                     x ),
  R( SUB(x, x),                        K(0) ),
  R( MUL(x, K(0)),                     K(0) ),
  R( MUL(x, K(1)),                     x ),
  R( ADD(ADD(x, c0), c1),              ADD(x, ADD(c0, c1)) ),
  R( MUL(MUL(x, c0), c1),              MUL(x, MUL(c0, c1)) ),
  R( NEG(NEG(x)),                      x ),
  R( AND(x, x),                        x ),
  R( OR(x, x),                         x ),
  R( OR(x, K(0)),                      x ),
  R( XOR(x, K(0)),                     x ),
  R( XOR(x, x),                        K(0) ),
  R( AND(x, K(0)),                     K(0) ),
  R( AND(AND(x, c0), c1),              AND(x, AND(c0, c1)) ),
  F( AND(x, c0),                       absorb_mask ),
  R( SHL(x, K(0)),                     x ),
  R( SHR(x, K(0)),                     x ),
  F( SHR(x, c0),                       shift_out ),
  F( MAX(x, y),                        fold_minmax ),
  F( MIN(x, y),                        fold_minmax ),
  R( IDIV(x, K(1)),                    x ),
  F( IDIV(x, c0),                      divide_sum ),
  F( MOD(x, c0),                       remainder_sum ),
  F( ADD(x, y),                        canonical_sum ),
  F( SUB(x, y),                        canonical_sum ),
  F( NEG(x),                           canonical_sum ),
  F( MUL(x, c0),                       canonical_sum ),
  F( CMPLT(x, y),                      compare_sum ),
};
RULES_END(symbolic_int)

RULES(symbolic_bool, BOOLS) = {
  R( AND(x, K(1)),                     x ),
  R( AND(x, K(0)),                     K(0) ),
  R( AND(x, x),                        x ),
  R( OR(x, K(1)),                      K(1) ),
  R( OR(x, K(0)),                      x ),
  R( OR(x, x),                         x ),
  R( AND(x, AND(x, y)),                AND(x, y) ),
  R( XOR(XOR(x, K(1)), K(1)),          x ),
  R( CMPNE(x, K(0)),                   x ),
  R( CMPEQ(x, K(1)),                   x ),
};
RULES_END(symbolic_bool)

RULES(float_exact, FLOATS) = {
  R( MUL(x, K(1)),                     x ),
  R( FDIV(x, K(1)),                    x ),
  R( NEG(NEG(x)),                      x ),
  R( MUL(x, K(-1)),                    NEG(x) ),
  R( ADD(x, NEG(y)),                   SUB(x, y) ),
  R( SUB(x, NEG(y)),                   ADD(x, y) ),
  R( MUL(NEG(x), NEG(y)),              MUL(x, y) ),
  R( MAX(x, x),                        x ),
  R( MIN(x, x),                        x ),
};
RULES_END(float_exact)

#undef x
#undef y

static const ruleset *const all_symbolic[] = {SYMBOLIC, NULL};

uop *simplify(graph *g, uop *u) {
  return graph_rewrite_memo(g, u, all_symbolic, NULL, "simplify", graph_simplified(g));
}

static uop *simplify_top(graph *g, uop *u) {         // the sources are simplified: only the top has to be
  uop *first = u, *known = map_ptr(graph_simplified(g), u);
  if (known) return known;
  for (uop *to; (to = rewrite_once(g, u, all_symbolic, NULL, "simplify"));) u = to;
  map_put(graph_simplified(g), first, u);
  return u;
}

uop *idx_add(graph *g, uop *a, uop *b) { return simplify_top(g, uop_op2(g, OP_ADD, a, b)); }
uop *idx_sub(graph *g, uop *a, uop *b) { return simplify_top(g, uop_op2(g, OP_SUB, a, b)); }
uop *idx_mul(graph *g, uop *a, uop *b) { return simplify_top(g, uop_op2(g, OP_MUL, a, b)); }
uop *idx_div(graph *g, uop *a, uop *b) { return simplify_top(g, uop_op2(g, OP_IDIV, a, b)); }
uop *idx_mod(graph *g, uop *a, uop *b) { return simplify_top(g, uop_op2(g, OP_MOD, a, b)); }
uop *idx_min(graph *g, uop *a, uop *b) { return simplify_top(g, uop_op2(g, OP_MIN, a, b)); }
uop *idx_max(graph *g, uop *a, uop *b) { return simplify_top(g, uop_op2(g, OP_MAX, a, b)); }
uop *idx_lt(graph *g, uop *a, uop *b) { return simplify_top(g, uop_op2(g, OP_CMPLT, a, b)); }
uop *bool_and(graph *g, uop *a, uop *b) { return !a ? b : !b ? a : simplify_top(g, uop_op2(g, OP_AND, a, b)); }
