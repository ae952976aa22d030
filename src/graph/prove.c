// Proves that an index stays in bounds. An expression of any stage is first converted back to a scalar IDX expression
// (a vector stands for any of its lanes: LANE becomes a variable, or a number below EXTRACT; shifts and masks become
// division and remainder; other nodes become opaque variables with the node's bounds) and simplified. Its bounds are
// those of a sum, improved by known facts: a condition is a sum S <= K, and i = m*S + rest with m > 0 gives i <= m*K +
// max(rest), with m < 0 a lower bound. Everything is sound; what cannot be proven gets wide bounds.
#include "graph/prove.h"
#include "graph/symbolic.h"

enum { ANY_LANE = -1, MAX_FACTS = 32, MAX_SPLITS = 4 };

void prover_begin(prover *p, graph *g) { *p = (prover){.g = g}; }
void prover_end(prover *p) { map_free(&p->memo); }

// --- reading back ----------------------------------------------------------------------------------------------------


static uop *read_back(prover *p, uop *u, int lane);

static uop *opaque(prover *p, uop *u, int lane) {       // equal nodes in equal lanes get equal names
  char name[64];
  snprintf(name, sizeof name, "#%llx.%d", (unsigned long long)(uintptr_t)u, u->lanes == 1 ? 0 : lane);
  if (u->dt == DT_BOOL) return uop_op2(p->g, OP_CMPNE, uop_var(p->g, name, u->vmin, u->vmax), uop_idx(p->g, 0));
  return uop_var(p->g, name, u->vmin, u->vmax);
}

// The exact value of a 32- or 64-bit computation if it cannot wrap; otherwise an opaque variable with the node's
// bounds.
static uop *exact(prover *p, uop *u, uop *r, int lane) {
  // the branches of a WHERE are checked separately
  if (u->dt == DT_IDX || u->dt == DT_BOOL || u->op == OP_INVALID || u->op == OP_WHERE) return r;
  bool wraps = r->vmin == INT64_MIN || r->vmax == INT64_MAX || r->vmin < dtype_min((enum dtype)u->dt) ||
               r->vmax > dtype_max((enum dtype)u->dt);
  return wraps ? opaque(p, u, lane) : r;
}

static uop *read_shift(prover *p, uop *u, int lane) {   // SHR, SHL by a constant; AND with 2^k - 1
  const uop *c = uop_unsplat(u->src[1]);
  if (c->op != OP_CONST || c->a < 0) return opaque(p, u, lane);
  uop *x = read_back(p, u->src[0], lane);
  if (u->op == OP_AND)
    return c->a < INT64_MAX && (c->a & (c->a + 1)) == 0 ? uop_op2(p->g, OP_MOD, x, uop_idx(p->g, c->a + 1))
                                                        : opaque(p, u, lane);
  if (c->a > 61) return opaque(p, u, lane);
  return uop_op2(p->g, u->op == OP_SHR ? OP_IDIV : OP_MUL, x, uop_idx(p->g, (int64_t)1 << c->a));
}

static uop *read_operator(prover *p, uop *u, int lane) {
  graph *g = p->g;
  uop *s[3] = {0};
  enum op op = (enum op)u->op;
  for (size_t i = 0; i < u->nsrc; i++) s[i] = read_back(p, u->src[i], lane);
  if (op == OP_CDIV || op == OP_CMOD) {                 // equals floor division if nothing is negative
    if (s[0]->vmin < 0 || s[1]->vmin <= 0) return opaque(p, u, lane);
    op = op == OP_CDIV ? OP_IDIV : OP_MOD;
  }
  return u->nsrc == 1   ? uop_op1(g, op, s[0])
         : u->nsrc == 2 ? uop_op2(g, op, s[0], s[1])
                        : uop_op3(g, op, s[0], s[1], s[2]);
}

static uop *read_new(prover *p, uop *u, int lane) {
  graph *g = p->g;
  bool index = dtype_is_index((enum dtype)u->dt), logic = u->dt == DT_BOOL;
  if (!index && !logic) return opaque(p, u, lane);
  switch (u->op) {
  case OP_CONST: return logic ? u : uop_idx(g, u->a);
  case OP_INVALID: return uop_new(g, OP_INVALID, DT_IDX, 1, NULL, 0, (uarg){0});
  case OP_VAR: return uop_new(g, OP_VAR, DT_IDX, 1, NULL, 0, uop_arg(u));
  case OP_RANGE:
    return uop_new(g, OP_RANGE, DT_IDX, 1, (uop *[]){read_back(p, u->src[0], ANY_LANE)}, 1,
                   (uarg){.a = u->a, .b = u->b});
  case OP_LANE: return lane == ANY_LANE ? uop_var(g, "#lane", 0, u->lanes - 1) : uop_idx(g, lane);
  case OP_SPLAT: return read_back(p, u->src[0], lane);
  case OP_EXTRACT: return read_back(p, u->src[0], (int)u->a);
  case OP_CAST:
    return index && dtype_is_index((enum dtype)u->src[0]->dt) ? read_back(p, u->src[0], lane) : opaque(p, u, lane);
  case OP_SHR: case OP_SHL: return read_shift(p, u, lane);
  case OP_AND: return logic ? read_operator(p, u, lane) : read_shift(p, u, lane);
  case OP_NEG:
  case OP_ADD:
  case OP_SUB:
  case OP_MUL:
  case OP_IDIV:
  case OP_MOD:
  case OP_CDIV:
  case OP_CMOD:
  case OP_MAX:
  case OP_MIN:
  case OP_OR: case OP_XOR: case OP_WHERE: return read_operator(p, u, lane);
  case OP_CMPLT: case OP_CMPEQ: case OP_CMPNE: {
    enum dtype d = (enum dtype)u->src[0]->dt;
    return dtype_is_index(d) || d == DT_BOOL ? read_operator(p, u, lane) : opaque(p, u, lane);
  }
  default: return opaque(p, u, lane);
  }
}

static uop *read_back(prover *p, uop *u, int lane) {
  if (u->lanes == 1 && u->op != OP_EXTRACT) lane = ANY_LANE;          // all lanes share it
  uint64_t key = (uint64_t)(uintptr_t)u ^ (uint64_t)(lane + 1) << 48;
  void *hit;
  if (map_get(&p->memo, key, &hit)) return hit;
  uop *r = exact(p, u, read_new(p, u, lane), lane);
  map_set(&p->memo, key, r);
  return r;
}

void prover_assume(prover *p, uop *cond) { p->cond = cond ? simplify(p->g, read_back(p, cond, ANY_LANE)) : NULL; }

// --- sums under conditions -------------------------------------------------------------------------------------------

typedef struct fact { idx_sum s; int64_t max; } fact;   // s (without constant) <= max

static void assume_less(graph *g, uop *x, uop *y, fact *f, int *n) {      // x < y: x - y <= -1
  if (*n == MAX_FACTS) return;
  fact *t = &f[*n];
  if (!idx_sum_of(uop_op2(g, OP_SUB, x, y), &t->s) || t->s.constant == INT64_MIN) return;
  t->max = -1 - t->s.constant;
  t->s.constant = 0;
  if (t->s.n) ++*n;
}

static void find_facts(graph *g, uop *cond, fact *f, int *n) {
  if (cond->op == OP_AND && cond->dt == DT_BOOL) {
    find_facts(g, cond->src[0], f, n);
    find_facts(g, cond->src[1], f, n);
    return;
  }
  if (cond->op == OP_CMPLT && cond->src[0]->dt == DT_IDX) assume_less(g, cond->src[0], cond->src[1], f, n);
}

// A range stays below its end, even if that is symbolic.
static void find_range_facts(graph *g, const idx_sum *s, fact *f, int *n) {
  for (int i = 0; i < s->n; i++)
    if (s->atom[i]->op == OP_RANGE && s->atom[i]->src[0]->op != OP_CONST && s->atom[i]->src[0]->dt == DT_IDX)
      assume_less(g, s->atom[i], s->atom[i]->src[0], f, n);
}

static bool add_scaled(int64_t *sum, int64_t by, int64_t v) {
  int64_t t;
  return mul_i64(by, v, &t) && add_i64(*sum, t, sum);
}

// Bounds of a sum from its atoms; a flag is false for an unknown side.
static void plain(const idx_sum *s, uop *cond, bool *has_lo, int64_t *lo, bool *has_hi, int64_t *hi) {
  *lo = *hi = s->constant;
  *has_lo = *has_hi = true;
  for (int i = 0; i < s->n; i++) {
    if (!s->coeff[i]) continue;
    bounds b = {s->atom[i]->vmin, s->atom[i]->vmax};
    if (cond) { bounds t = bounds_under(s->atom[i], cond); b = (bounds){max_i64(b.lo, t.lo), min_i64(b.hi, t.hi)}; }
    int64_t c = s->coeff[i], at_lo = c > 0 ? b.lo : b.hi, at_hi = c > 0 ? b.hi : b.lo;
    *has_lo = *has_lo && at_lo != INT64_MIN && at_lo != INT64_MAX && add_scaled(lo, c, at_lo);
    *has_hi = *has_hi && at_hi != INT64_MIN && at_hi != INT64_MAX && add_scaled(hi, c, at_hi);
  }
}

static bool minus_scaled(const idx_sum *i, const idx_sum *s, int64_t m, idx_sum *rest) {
  *rest = *i;
  for (int k = 0; k < s->n; k++) {
    int at = 0;
    int64_t t;
    while (at < rest->n && rest->atom[at] != s->atom[k]) at++;
    if (at == rest->n) {
      if (at == (int)COUNT(rest->atom)) return false;
      rest->atom[rest->n] = s->atom[k];
      rest->coeff[rest->n++] = 0;
    }
    if (!mul_i64(m, s->coeff[k], &t) || !sub_i64(rest->coeff[at], t, &rest->coeff[at])) return false;
  }
  return true;
}

static bounds bounds_of_sum(prover *p, const idx_sum *s, uop *cond) {
  bool has_lo, has_hi;
  int64_t lo, hi;
  plain(s, cond, &has_lo, &lo, &has_hi, &hi);
  fact facts[MAX_FACTS];
  int n = 0;
  if (cond) find_facts(p->g, cond, facts, &n);
  find_range_facts(p->g, s, facts, &n);
  for (int f = 0; f < n; f++)
    for (int i = 0; i < s->n; i++)
      for (int k = 0; k < facts[f].s.n; k++) {
        int64_t c = facts[f].s.coeff[k], m = c ? s->coeff[i] / c : 0, edge;
        idx_sum rest;
        bool rl, rh;
        int64_t l, h;
        if (s->atom[i] != facts[f].s.atom[k] || !m || m * c != s->coeff[i] || !minus_scaled(s, &facts[f].s, m, &rest) ||
            !mul_i64(m, facts[f].max, &edge))
          continue;
        plain(&rest, cond, &rl, &l, &rh, &h);
        if (m > 0 && rh && add_i64(h, edge, &h) && (!has_hi || h < hi)) { hi = h; has_hi = true; }
        if (m < 0 && rl && add_i64(l, edge, &l) && (!has_lo || l > lo)) { lo = l; has_lo = true; }
      }
  return (bounds){has_lo ? lo : INT64_MIN, has_hi ? hi : INT64_MAX};
}

// --- choices ---------------------------------------------------------------------------------------------------------

static uop *and_of(graph *g, uop *p, uop *q) { return !p ? q : !q ? p : simplify(g, uop_op2(g, OP_AND, p, q)); }

static bounds under(prover *p, uop *i, uop *cond, int splits);

static bounds either(prover *p, uop *chosen, uop *if_true, uop *if_false, uop *cond, int splits) {
  bounds a = under(p, if_true, and_of(p->g, cond, chosen), splits), b = under(p, if_false, cond, splits);
  if (a.lo > a.hi) return b;
  if (b.lo > b.hi) return a;
  return (bounds){min_i64(a.lo, b.lo), max_i64(a.hi, b.hi)};
}

static bounds under(prover *p, uop *i, uop *cond, int splits) {
  if ((cond && cond->vmax == 0) || i->op == OP_INVALID) return (bounds){1, 0};
  if (i->op == OP_WHERE) return either(p, i->src[0], i->src[1], i->src[2], cond, splits);
  idx_sum s;
  if (!idx_sum_of(i, &s)) return cond ? bounds_under(i, cond) : (bounds){i->vmin, i->vmax};
  bounds b = bounds_of_sum(p, &s, cond);
  b = (bounds){max_i64(b.lo, i->vmin), min_i64(b.hi, i->vmax)};
  for (int k = 0; k < s.n && splits < MAX_SPLITS; k++)
    if (s.atom[k]->op == OP_WHERE) {                    // a term is a choice: make it a choice between whole sums
      uop *w = s.atom[k];
      s.atom[k] = w->src[1];
      uop *t = w->src[1]->op == OP_INVALID ? w->src[1] : simplify(p->g, idx_sum_build(p->g, &s));
      s.atom[k] = w->src[2];
      uop *f = w->src[2]->op == OP_INVALID ? w->src[2] : simplify(p->g, idx_sum_build(p->g, &s));
      bounds c = either(p, w->src[0], t, f, cond, splits + 1);
      return c.lo > c.hi ? c : (bounds){max_i64(b.lo, c.lo), min_i64(b.hi, c.hi)};
    }
  return b;
}

bounds prove_index(prover *p, uop *i) { return under(p, simplify(p->g, read_back(p, i, ANY_LANE)), p->cond, 0); }
