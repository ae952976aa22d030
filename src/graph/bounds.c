// Interval arithmetic over the IR: bounds_of computes [lo, hi] of a node from its sources. Sound for every op: if a
// result might wrap around its dtype, the result is the dtype's whole range. Floats have no bounds (all of int64).
#include "graph/bounds.h"

static const bounds unknown = {INT64_MIN, INT64_MAX};

static bounds of_dtype(enum dtype d) { return (bounds){dtype_min(d), dtype_max(d)}; }

static bounds fit(enum dtype d, bool exact, int64_t lo, int64_t hi) {
  if (!exact || lo < dtype_min(d) || hi > dtype_max(d)) return of_dtype(d);
  return (bounds){lo, hi};
}

static bounds mul_bounds(enum dtype d, bounds x, bounds y) {
  int64_t p[4], lo = INT64_MAX, hi = INT64_MIN;
  bool ok = mul_i64(x.lo, y.lo, &p[0]) && mul_i64(x.lo, y.hi, &p[1]) && mul_i64(x.hi, y.lo, &p[2]) &&
            mul_i64(x.hi, y.hi, &p[3]);
  for (int i = 0; ok && i < 4; i++) { lo = min_i64(lo, p[i]); hi = max_i64(hi, p[i]); }
  return fit(d, ok, lo, hi);
}

static bool is_unknown(bounds x) { return x.lo == INT64_MIN || x.hi == INT64_MAX; }

static bounds divide_bounds(enum dtype d, bounds x, bounds y, bool floors) {
  if (y.lo <= 0 || is_unknown(x)) return of_dtype(d);
  int64_t q[4] = {x.lo, x.lo, x.hi, x.hi}, by[4] = {y.lo, y.hi, y.lo, y.hi}, lo = INT64_MAX, hi = INT64_MIN;
  for (int i = 0; i < 4; i++) {
    int64_t v = floors ? floordiv_i64(q[i], by[i]) : q[i] / by[i];
    lo = min_i64(lo, v); hi = max_i64(hi, v);
  }
  return (bounds){lo, hi};
}

static bounds remainder_of(enum dtype d, bounds x, bounds y, bool floors) {
  if (y.lo <= 0 || y.hi == INT64_MAX) return of_dtype(d);
  if (x.lo >= 0 && x.hi < y.lo) return x;
  if (y.lo == y.hi && floors && !is_unknown(x) && floordiv_i64(x.lo, y.lo) == floordiv_i64(x.hi, y.lo))
    return (bounds){floormod_i64(x.lo, y.lo), floormod_i64(x.hi, y.lo)};
  if (floors || x.lo >= 0) return (bounds){0, min_i64(y.hi - 1, x.lo >= 0 ? x.hi : INT64_MAX)};
  return (bounds){-(y.hi - 1), y.hi - 1};
}

static int64_t all_ones_above(int64_t v) {           // smallest 2^k-1 >= v, v >= 0
  uint64_t m = (uint64_t)v;
  for (int s = 1; s < 64; s *= 2) m |= m >> s;
  return (int64_t)(m & INT64_MAX);
}

static bounds reduce(const uop *u, bounds x, const bounds *src) {
  if ((u->a == OP_MAX || u->a == OP_MIN) && (u->op != OP_REDUCE || u->b <= 1)) return x;
  if (u->a != OP_ADD || is_unknown(x)) return of_dtype(u->dt);
  bounds r = x;
  if (u->op == OP_HREDUCE) return mul_bounds(u->dt, r, (bounds){u->src[0]->lanes, u->src[0]->lanes});
  if (u->op == OP_REDUCE_AXIS) {
    for (int i = 0; i < u->src[0]->shape->n; i++)
      if (u->b >> i & 1)
        r = mul_bounds(u->dt, r, (bounds){u->src[0]->shape->dim[i]->vmin, u->src[0]->shape->dim[i]->vmax});
    return r.lo < dtype_min((enum dtype)u->dt) || r.hi > dtype_max((enum dtype)u->dt) ? of_dtype(u->dt) : r;
  }
  size_t values = u->b > 1 ? (size_t)u->b : 1;
  for (size_t i = 1; i < values; i++) {
    if (is_unknown(src[i]) || !add_i64(r.lo, src[i].lo, &r.lo) || !add_i64(r.hi, src[i].hi, &r.hi))
      return of_dtype(u->dt);
  }
  for (size_t i = values; i < u->nsrc; i++) {         // between 0 and end iterations of each range
    if (src[i].hi == INT64_MAX) return of_dtype(u->dt);
    r = mul_bounds(u->dt, r, (bounds){u->src[i]->src[0]->vmin < 0 ? 0 : u->src[i]->src[0]->vmin, src[i].hi + 1});
  }
  return r.lo < dtype_min((enum dtype)u->dt) || r.hi > dtype_max((enum dtype)u->dt) ? of_dtype(u->dt) : r;
}

static bounds compare_bounds(const uop *u, bounds x, bounds y) {
  if (dtype_is_float((enum dtype)u->src[0]->dt) || u->src[0]->dt == DT_U64) return (bounds){0, 1};
  bool never = x.hi < y.lo || y.hi < x.lo, same = x.lo == x.hi && y.lo == y.hi && x.lo == y.lo;
  if (u->op == OP_CMPLT) return x.hi < y.lo ? (bounds){1, 1} : x.lo >= y.hi ? (bounds){0, 0} : (bounds){0, 1};
  if (u->op == OP_CMPNE) { bool t = never; never = same; same = t; }
  return same ? (bounds){1, 1} : never ? (bounds){0, 0} : (bounds){0, 1};
}

bounds bounds_of(const uop *u, const bounds *s) {
  enum dtype d = (enum dtype)u->dt;
  if (d == DT_VOID || dtype_is_float(d)) return unknown;
  int64_t lo = 0, hi = 0;
  bool exact;
  // bounds of U64 are those of its bits as a signed number: order and quotients need both >= 0
  if (d == DT_U64 && u->nsrc == 2 && (s[0].lo < 0 || s[1].lo < 0)) switch (u->op) {
    case OP_IDIV:
    case OP_CDIV:
    case OP_MOD:
    case OP_CMOD:
    case OP_MAX:
    case OP_MIN: return of_dtype(d);
    default: break;
    }
  switch (u->op) {
  case OP_CONST: return d == DT_U64 && u->a < 0 ? unknown : (bounds){u->a, u->a};
  case OP_VAR: return (bounds){u->a, u->b};
  case OP_SPECIAL: return (bounds){0, u->b - 1};
  case OP_LANE: return (bounds){0, u->lanes - 1};
  case OP_RANGE:
  case OP_IOTA: return (bounds){0, s[0].hi == INT64_MAX || s[0].hi < 1 ? (s[0].hi < 1 ? 0 : INT64_MAX) : s[0].hi - 1};
  case OP_CAST:
    if (u->src[0]->dt == DT_BOOL) return s[0];
    if (!dtype_is_int((enum dtype)u->src[0]->dt)) return of_dtype(d);
    return fit(d, !(u->src[0]->dt == DT_U64 && is_unknown(s[0])), s[0].lo, s[0].hi);
  case OP_RESHAPE:
  case OP_PERMUTE:
  case OP_EXPAND:
  case OP_SHRINK:
  case OP_FLIP:
  case OP_GATHER:
  case OP_AFTER:
  case OP_CONTIGUOUS:
  case OP_STAGE:
  case OP_SPLAT: case OP_EXTRACT: return s[0];
  case OP_LOAD: return u->a > 0 ? (bounds){0, u->a} : of_dtype(d);
  case OP_PAD: return (bounds){min_i64(0, s[0].lo), max_i64(0, s[0].hi)};
  case OP_STACK: case OP_SHUFFLE:
    lo = s[0].lo, hi = s[0].hi;
    for (size_t i = 1; i < u->nsrc; i++) { lo = min_i64(lo, s[i].lo); hi = max_i64(hi, s[i].hi); }
    return (bounds){lo, hi};
  case OP_ADD: if (is_unknown(s[0]) || is_unknown(s[1])) return of_dtype(d);
    exact = add_i64(s[0].lo, s[1].lo, &lo) && add_i64(s[0].hi, s[1].hi, &hi);
    return fit(d, exact, lo, hi);
  case OP_SUB: if (is_unknown(s[0]) || is_unknown(s[1])) return of_dtype(d);
    exact = sub_i64(s[0].lo, s[1].hi, &lo) && sub_i64(s[0].hi, s[1].lo, &hi);
    return fit(d, exact, lo, hi);
  case OP_NEG: return is_unknown(s[0]) ? of_dtype(d) : fit(d, true, -s[0].hi, -s[0].lo);
  case OP_MUL: return mul_bounds(d, s[0], s[1]);
  case OP_IDIV: return divide_bounds(d, s[0], s[1], true);
  case OP_CDIV: return divide_bounds(d, s[0], s[1], false);
  case OP_MOD: return remainder_of(d, s[0], s[1], true);
  case OP_CMOD: return remainder_of(d, s[0], s[1], false);
  case OP_MAX: return (bounds){max_i64(s[0].lo, s[1].lo), max_i64(s[0].hi, s[1].hi)};
  case OP_MIN: return (bounds){min_i64(s[0].lo, s[1].lo), min_i64(s[0].hi, s[1].hi)};
  case OP_AND:
    if (s[0].lo >= 0 && s[1].lo >= 0) return (bounds){0, min_i64(s[0].hi, s[1].hi)};
    if (s[1].lo >= 0) return (bounds){0, s[1].hi};
    if (s[0].lo >= 0) return (bounds){0, s[0].hi};
    return of_dtype(d);
  case OP_OR: case OP_XOR:
    if (s[0].lo < 0 || s[1].lo < 0) return of_dtype(d);
    return (bounds){u->op == OP_OR ? max_i64(s[0].lo, s[1].lo) : 0, all_ones_above(max_i64(s[0].hi, s[1].hi))};
  case OP_SHL:
    if (s[1].lo < 0 || s[1].hi > 62 || is_unknown(s[0])) return of_dtype(d);
    return mul_bounds(d, s[0], (bounds){(int64_t)1 << s[1].lo, (int64_t)1 << s[1].hi});
  case OP_SHR:
    if (s[1].lo < 0 || s[1].hi > 62 || (d == DT_U64 && s[0].lo < 0)) return of_dtype(d);
    return (bounds){s[0].lo < 0 ? s[0].lo >> s[1].lo : s[0].lo >> s[1].hi,
                    s[0].hi < 0 ? s[0].hi >> s[1].hi : s[0].hi >> s[1].lo};
  case OP_CMPLT: case OP_CMPEQ: case OP_CMPNE: return compare_bounds(u, s[0], s[1]);
  case OP_WHERE:
    if (u->src[2]->op == OP_INVALID) return s[1];
    if (s[0].lo == 1) return s[1];
    if (s[0].hi == 0) return s[2];
    return (bounds){min_i64(s[1].lo, s[2].lo), max_i64(s[1].hi, s[2].hi)};
  case OP_REDUCE: case OP_REDUCE_AXIS: case OP_HREDUCE: return reduce(u, s[0], s);
  default: return of_dtype(d);
  }
}

// --- bounds under a condition ----------------------------------------------------------------------------------------

typedef struct known { uop *u; bounds b; } known;

static void learn(uop *cond, known *k, int *n, int cap) {
  if (cond->op == OP_SPLAT) { learn(cond->src[0], k, n, cap); return; }
  if (cond->op == OP_AND && cond->dt == DT_BOOL) {
    learn(cond->src[0], k, n, cap);
    learn(cond->src[1], k, n, cap);
    return;
  }
  if (cond->op != OP_CMPLT || *n + 2 > cap || !dtype_is_int((enum dtype)cond->src[0]->dt)) return;
  uop *x = cond->src[0], *y = cond->src[1];
  if (y->vmax != INT64_MAX) k[(*n)++] = (known){x, {INT64_MIN, y->vmax - 1}};
  if (x->vmin != INT64_MIN) k[(*n)++] = (known){y, {x->vmin + 1, INT64_MAX}};
}

static bounds within(bounds a, bounds b) { return (bounds){max_i64(a.lo, b.lo), min_i64(a.hi, b.hi)}; }

// What is known of x if it is known of x + c, whatever is added; otherwise k itself.
static known without_offset(known k) {
  const uop *c = k.u->op == OP_ADD ? k.u->src[1] : NULL;
  if (!c || c->op != OP_CONST || k.u->dt != DT_IDX) return k;
  bool low = k.b.lo == INT64_MIN || sub_i64(k.b.lo, c->a, &k.b.lo);
  bool high = k.b.hi == INT64_MAX || sub_i64(k.b.hi, c->a, &k.b.hi);
  if (low && high) k.u = k.u->src[0];
  return k;
}

// Bounds of u = c * (u / c) + u % c by what is known of the quotient and of the remainder. all: bounds of u so far.
static bounds bounds_by_parts(const uop *u, bounds all, const known *k, int n) {
  for (int i = 0; i < n; i++) {
    const uop *part = without_offset(k[i]).u;
    if ((part->op != OP_IDIV && part->op != OP_MOD) || part->src[0] != u || part->src[1]->op != OP_CONST) continue;
    int64_t c = part->src[1]->a, lo, hi;
    if (c <= 0 || all.lo < 0 || all.hi == INT64_MAX) continue;
    bounds quotient = {all.lo / c, all.hi / c}, rest = {0, c - 1};
    for (int j = 0; j < n; j++) {
      const known other = without_offset(k[j]);
      if (other.u->nsrc != 2 || other.u->src[0] != u || other.u->src[1] != part->src[1]) continue;
      if (other.u->op == OP_IDIV) quotient = within(quotient, other.b);
      if (other.u->op == OP_MOD) rest = within(rest, other.b);
    }
    if (mul_i64(c, quotient.lo, &lo) && add_i64(lo, rest.lo, &lo) && mul_i64(c, quotient.hi, &hi) &&
        add_i64(hi, rest.hi, &hi))
      all = within(all, (bounds){lo, hi});
  }
  return all;
}

static bounds refine(uop *u, const known *k, int n, map *seen, arena *mem) {
  bounds *hit = map_ptr(seen, u);
  if (hit) return *hit;
  bounds r = {u->vmin, u->vmax};
  if (u->nsrc && u->dt != DT_VOID && u->op != OP_LOAD && u->op != OP_RANGE) {
    bounds *s = ARENA_ARRAY(mem, bounds, u->nsrc);
    for (size_t i = 0; i < u->nsrc; i++) s[i] = refine(u->src[i], k, n, seen, mem);
    bounds t = bounds_of(u, s);
    r = within(r, t);
  }
  for (int i = 0; i < n; i++) {
    if (k[i].u == u) r = within(r, k[i].b);
    // c*x < n  or  x + c < n  also bounds x
    const uop *e = k[i].u;
    while (e != u && (e->op == OP_ADD || e->op == OP_MUL) && e->src[1]->op == OP_CONST &&
           (e->dt == DT_IDX || e->dt == DT_I64 || e->dt == DT_I32)) {
      const uop *inner = e->src[0];
      if (inner != u) { e = inner; continue; }
      int64_t c = e->src[1]->a, v;
      if (e == k[i].u && e->op == OP_ADD) {
        if (k[i].b.lo != INT64_MIN && sub_i64(k[i].b.lo, c, &v)) r.lo = max_i64(r.lo, v);
        if (k[i].b.hi != INT64_MAX && sub_i64(k[i].b.hi, c, &v)) r.hi = min_i64(r.hi, v);
      } else if (e == k[i].u && c > 0) {
        if (k[i].b.lo != INT64_MIN) r.lo = max_i64(r.lo, -floordiv_i64(-k[i].b.lo, c));
        if (k[i].b.hi != INT64_MAX) r.hi = min_i64(r.hi, floordiv_i64(k[i].b.hi, c));
      }
      break;
    }
  }
  r = bounds_by_parts(u, r, k, n);
  // the condition never holds: any bounds are valid, but an interval must not be empty
  if (r.lo > r.hi) r = (bounds){u->vmin, u->vmax};
  bounds *keep = ARENA_NEW(mem, bounds);
  *keep = r;
  map_put(seen, u, keep);
  return r;
}

bounds bounds_under(uop *u, uop *cond) {
  known k[32];
  int n = 0;
  learn(cond, k, &n, COUNT(k));
  arena *mem = arena_new();
  map seen = {0};
  bounds r = refine(u, k, n, &seen, mem);
  map_free(&seen);
  arena_free(mem);
  return r;
}
