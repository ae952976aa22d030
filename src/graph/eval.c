// The meaning of the elementwise ops, in plain C on the host. Invariant: values in and out are canonical: integers
// wrapped and floats rounded to their dtype. Add, subtract, multiply, divide and square root of 16- and 32-bit floats
// are computed in double and rounded once more: double has more than twice their bits, so results are correctly
// rounded. To add an elementwise op, add a case to float_op, int_op or both. eval_expr is for tests: simple, not fast.
#include "graph/eval.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "graph/half.h"

static int64_t float_bits(enum dtype d, double v) {
  int64_t b = 0;
  if (d == DT_F64) memcpy(&b, &v, 8);
  else if (d == DT_F32) { float f = (float)v; int32_t w; memcpy(&w, &f, 4); b = w; }
  else b = d == DT_F16 ? f16_from_double(v) : bf16_from_double(v);
  return b;
}

static double float_from_bits(enum dtype d, int64_t b) {
  if (d == DT_F64) { double v; memcpy(&v, &b, 8); return v; }
  if (d == DT_F32) { float f; int32_t w = (int32_t)b; memcpy(&f, &w, 4); return (double)f; }
  return d == DT_F16 ? f16_to_double((uint16_t)b) : bf16_to_double((uint16_t)b);
}

static double int_to_float(enum dtype from, enum dtype to, int64_t v) {
  if (to == DT_F32) return from == DT_U64 ? (double)(float)(uint64_t)v : (double)(float)v;     // rounded once
  return dtype_round(to, from == DT_U64 ? (double)(uint64_t)v : (double)v);
}

static bool float_to_int(enum dtype to, double v, int64_t *out) {
  if (to == DT_BOOL) { *out = v != 0; return true; }
  if (isnan(v)) return false;
  v = trunc(v);
  if (to == DT_U64) {
    if (v < 0 || v >= 0x1p64) return false;
    *out = (int64_t)(uint64_t)v;
    return true;
  }
  if (v < -0x1p63 || v >= 0x1p63 || (int64_t)v < dtype_min(to) || (int64_t)v > dtype_max(to)) return false;
  *out = (int64_t)v;
  return true;
}

static bool cast_value(enum dtype dt, enum dtype from, evalue v, evalue *out) {
  bool ff = dtype_is_float(from), tf = dtype_is_float(dt);
  if (ff && tf) out->f = dtype_round(dt, v.f);
  else if (ff) return float_to_int(dt, v.f, &out->i);
  else if (tf) out->f = int_to_float(from, dt, v.i);
  else if (dt == DT_IDX && from == DT_U64 && v.i < 0) return false;
  else out->i = dtype_wrap(dt, v.i);
  return true;
}

static bool bitcast_value(enum dtype dt, enum dtype from, evalue v, evalue *out) {
  if (dtype_size(dt) != dtype_size(from)) return false;
  int64_t b = dtype_is_float(from) ? float_bits(from, v.f) : v.i;
  if (dtype_is_float(dt)) out->f = float_from_bits(dt, b);
  else out->i = dtype_wrap(dt, b);
  return true;
}

static bool float_op(enum op op, enum dtype d, const evalue *s, evalue *out) {
  double x = s[0].f, y = 0, r;
  if (op_arity(op) >= 2) y = s[1].f;
  switch (op) {
  case OP_NEG: r = -x; break;
  case OP_RECIP: r = 1 / x; break;
  case OP_SQRT: r = sqrt(x); break;
  case OP_EXP2: r = exp2(x); break;
  case OP_LOG2: r = log2(x); break;
  case OP_SIN: r = sin(x); break;
  case OP_TRUNC: r = trunc(x); break;
  case OP_FLOOR: r = floor(x); break;
  case OP_ADD: r = x + y; break;
  case OP_SUB: r = x - y; break;
  case OP_MUL: r = x * y; break;
  case OP_FDIV: r = x / y; break;
  case OP_MAX: r = x < y ? y : x; break;
  case OP_MIN: r = y < x ? y : x; break;
  case OP_FMA: r = d == DT_F32 ? (double)fmaf((float)x, (float)y, (float)s[2].f) : fma(x, y, s[2].f); break;
  default: return false;
  }
  out->f = dtype_round(d, r);
  return true;
}

static bool divide(enum op op, enum dtype d, int64_t x, int64_t y, int64_t *out) {
  if (!y) return false;
  if (d == DT_U64) {
    uint64_t a = (uint64_t)x, b = (uint64_t)y;
    *out = (int64_t)(op == OP_IDIV || op == OP_CDIV ? a / b : a % b);
    return true;
  }
  if (y == -1 && x == dtype_min(d)) return false;      // the quotient overflows, and machines trap
  switch (op) {
  case OP_IDIV: *out = floordiv_i64(x, y); break;
  case OP_MOD: *out = floormod_i64(x, y); break;
  case OP_CDIV: *out = x / y; break;
  default: *out = x % y;
  }
  return true;
}

static bool int_op(enum op op, enum dtype d, const evalue *s, evalue *out) {
  int64_t x = s[0].i, y = 0, r;
  uint64_t ux = (uint64_t)x, uy;
  if (op_arity(op) >= 2) y = s[1].i;
  uy = (uint64_t)y;
  bool fits = true, below = d == DT_U64 ? ux < uy : x < y;
  // IDX is exact: a result that overflows has no value; other types wrap
  switch (op) {
  case OP_NEG: r = (int64_t)(0 - ux); fits = x != INT64_MIN; break;
  case OP_ADD: r = (int64_t)(ux + uy); fits = add_i64(x, y, &r); break;
  case OP_SUB: r = (int64_t)(ux - uy); fits = sub_i64(x, y, &r); break;
  case OP_MUL: r = (int64_t)(ux * uy); fits = mul_i64(x, y, &r); break;
  case OP_TRUNC: case OP_FLOOR: r = x; break;
  case OP_IDIV: case OP_MOD: case OP_CDIV: case OP_CMOD: if (!divide(op, d, x, y, &r)) return false; break;
  case OP_MAX: r = below ? y : x; break;
  case OP_MIN: r = below ? x : y; break;
  case OP_AND: r = x & y; break;
  case OP_OR: r = x | y; break;
  case OP_XOR: r = x ^ y; break;
  case OP_SHL: case OP_SHR:
    if (d == DT_BOOL || y < 0 || y >= 8 * dtype_size(d)) return false;
    if (op == OP_SHL) { r = (int64_t)(ux << y); fits = r >> y == x; }
    else r = d == DT_U64 ? (int64_t)(ux >> y) : x >> y;
    break;
  case OP_FMA: {
    evalue t;
    return int_op(OP_MUL, d, s, &t) && int_op(OP_ADD, d, (evalue[]){t, s[2]}, out);
  }
  default: return false;
  }
  if (d == DT_IDX && !fits) return false;
  out->i = dtype_wrap(d, r);
  return true;
}

static bool compare(enum op op, enum dtype d, const evalue *s, evalue *out) {
  bool lt, eq;
  if (dtype_is_float(d)) lt = s[0].f < s[1].f, eq = s[0].f == s[1].f;
  else lt = d == DT_U64 ? (uint64_t)s[0].i < (uint64_t)s[1].i : s[0].i < s[1].i, eq = s[0].i == s[1].i;
  out->i = op == OP_CMPLT ? lt : op == OP_CMPEQ ? eq : !eq;
  return true;
}

bool eval_op(enum op op, enum dtype dt, enum dtype src_dt, const evalue *src, size_t n, evalue *out) {
  if (!(op_flags(op) & OPF_ELEMENTWISE) || n != (size_t)op_arity(op) || dt == DT_VOID || src_dt == DT_VOID)
    return false;
  if (op_flags(op) & OPF_COMPARE) return compare(op, src_dt, src, out);
  switch (op) {
  case OP_CAST: return cast_value(dt, src_dt, src[0], out);
  case OP_BITCAST: return bitcast_value(dt, src_dt, src[0], out);
  case OP_WHERE: *out = src[0].i ? src[1] : src[2]; return true;
  default: return dtype_is_float(dt) ? float_op(op, dt, src, out) : int_op(op, dt, src, out);
  }
}

evalue eval_of_const(const uop *u) {
  if (dtype_is_float((enum dtype)u->dt)) return (evalue){.f = uop_const_float(u)};
  return (evalue){.i = u->a};
}

uop *eval_to_const(graph *g, enum dtype dt, evalue v) {
  return dtype_is_float(dt) ? uop_float(g, dt, v.f) : uop_int(g, dt, v.i);
}

static enum dtype operand_dtype(const uop *u) { return (enum dtype)u->src[u->op == OP_WHERE ? 1 : 0]->dt; }

uop *eval_const(graph *g, uop *u) {
  if (!(op_flags((enum op)u->op) & OPF_ELEMENTWISE) || u->shape || u->nsrc > 3) return NULL;
  evalue s[3], v;
  for (size_t i = 0; i < u->nsrc; i++) {
    const uop *k = uop_unsplat(u->src[i]);
    if (k->op != OP_CONST) return NULL;
    s[i] = eval_of_const(k);
    // a conversion to double loses the bits of a NaN, so the machine does this
    if (u->op == OP_BITCAST && dtype_is_float((enum dtype)k->dt) && isnan(s[i].f)) return NULL;
  }
  if (!eval_op((enum op)u->op, (enum dtype)u->dt, operand_dtype(u), s, u->nsrc, &v)) return NULL;
  if (u->op == OP_BITCAST && dtype_is_float((enum dtype)u->dt) && isnan(v.f)) return NULL;
  return uop_splat(g, eval_to_const(g, (enum dtype)u->dt, v), u->lanes);
}

// --- whole expressions ----------------------------------------------------------------------------------------------

// Lanes of a value; ok[i] is false if lane i has no value (lanes that depend on it have none either).
typedef struct lanes { evalue *v; bool *ok; } lanes;

typedef struct walk { const eval_env *env; arena *mem; } walk;

static lanes new_lanes(arena *mem, size_t n) { return (lanes){ARENA_ARRAY(mem, evalue, n), ARENA_ARRAY(mem, bool, n)}; }

static lanes eval_node(const walk *w, const map *fixed, map *done, uop *u);

// Is the value of a node unspecified for these operands? A BITCAST loses the bits of a NaN; MAX and MIN of a NaN, or of
// zeros with different signs, depend on the order of operands, which the graph may change.
static bool is_open(const uop *u, const evalue *s, evalue r) {
  enum dtype from = operand_dtype(u);
  if (u->op == OP_BITCAST)
    return (dtype_is_float(from) && isnan(s[0].f)) || (dtype_is_float((enum dtype)u->dt) && isnan(r.f));
  if ((u->op != OP_MAX && u->op != OP_MIN) || !dtype_is_float(from)) return false;
  return isnan(s[0].f) || isnan(s[1].f) || (s[0].f == s[1].f && signbit(s[0].f) != signbit(s[1].f));
}

// Regroups the bits of integers to wider or narrower lanes. The first lane has the lowest bits.
static lanes eval_regroup(const walk *w, const map *fixed, map *done, uop *u) {
  lanes r = new_lanes(w->mem, u->lanes), s = eval_node(w, fixed, done, u->src[0]);
  size_t to = (size_t)dtype_size((enum dtype)u->dt), from = (size_t)dtype_size((enum dtype)u->src[0]->dt);
  if (dtype_is_float((enum dtype)u->dt) || dtype_is_float((enum dtype)u->src[0]->dt)) return r;
  for (size_t l = 0; l < u->lanes; l++) {
    uint64_t v = 0;
    r.ok[l] = true;
    for (size_t byte = 0; byte < to; byte++) {
      size_t at = l * to + byte;
      r.ok[l] &= s.ok[at / from];
      v |= ((uint64_t)s.v[at / from].i >> 8 * (at % from) & 255) << 8 * byte;
    }
    r.v[l].i = dtype_wrap((enum dtype)u->dt, (int64_t)v);
  }
  return r;
}

static lanes eval_elementwise(const walk *w, const map *fixed, map *done, uop *u) {
  if (u->op == OP_BITCAST && u->lanes != u->src[0]->lanes) return eval_regroup(w, fixed, done, u);
  lanes r = new_lanes(w->mem, u->lanes), s[3];
  if (u->nsrc > 3) return r;
  for (size_t i = 0; i < u->nsrc; i++) s[i] = eval_node(w, fixed, done, u->src[i]);
  for (size_t l = 0; l < u->lanes; l++) {
    evalue v[3] = {0};
    bool ok = true;
    for (size_t i = 0; i < u->nsrc; i++) {
      size_t sl = u->src[i]->lanes == 1 ? 0 : l;
      v[i] = s[i].v[sl];
      bool unused = u->op == OP_WHERE && i && s[0].ok[u->src[0]->lanes == 1 ? 0 : l] && (v[0].i ? i == 2 : i == 1);
      ok &= unused || s[i].ok[sl];
    }
    r.ok[l] =
      ok && eval_op((enum op)u->op, (enum dtype)u->dt, operand_dtype(u), v, u->nsrc, &r.v[l]) && !is_open(u, v, r.v[l]);
  }
  return r;
}

static bool combine(const uop *u, evalue *acc, evalue v) {
  return eval_op((enum op)u->a, (enum dtype)u->dt, (enum dtype)u->dt, (evalue[]){*acc, v}, 2, acc);
}

static size_t n_values(const uop *u) { return u->b > 1 ? (size_t)u->b : 1; }

static bool reduce_values(const walk *w, const map *fixed, uop *u, bool *first, lanes acc) {
  map done = {0};
  bool ok = true;
  for (size_t i = 0; i < n_values(u); i++, *first = false) {
    lanes x = eval_node(w, fixed, &done, u->src[i]);
    for (size_t l = 0; l < u->lanes && ok; l++) {
      ok = x.ok[l];
      if (ok && *first) acc.v[l] = x.v[l];
      else if (ok) ok = combine(u, &acc.v[l], x.v[l]);
    }
  }
  map_free(&done);
  return ok;
}

// One axis after another: src[k], src[k+1], ... are the ranges; each call iterates over one of them and evaluates the
// rest.
static bool reduce_from(const walk *w, const map *fixed, uop *u, size_t k, bool *first, lanes acc) {
  if (k == u->nsrc) return reduce_values(w, fixed, u, first, acc);
  map done = {0};
  if (u->src[k]->op != OP_RANGE) return false;
  lanes end = eval_node(w, fixed, &done, u->src[k]->src[0]);
  map_free(&done);
  if (!end.ok[0] || end.v[0].i > 1 << 16) return false;
  bool ok = true;
  for (int64_t i = 0; i < end.v[0].i && ok; i++) {
    map inner = {0};
    uint64_t key;
    void *val;
    for (size_t j = 0; map_next(fixed, &j, &key, &val);) map_set(&inner, key, val);
    evalue *at = ARENA_NEW(w->mem, evalue);
    at->i = i;
    map_put(&inner, u->src[k], at);
    ok = reduce_from(w, &inner, u, k + 1, first, acc);
    map_free(&inner);
  }
  return ok;
}

static bool reduce_identity(const uop *u, evalue *out) {  // the result of an empty reduction
  bool f = dtype_is_float((enum dtype)u->dt);
  switch (u->a) {
  case OP_ADD: *out = f ? (evalue){.f = 0} : (evalue){.i = 0}; return true;
  case OP_MUL: *out = f ? (evalue){.f = 1} : (evalue){.i = 1}; return true;
  case OP_MAX:
    *out = f ? (evalue){.f = -INFINITY} : (evalue){.i = dtype_min((enum dtype)u->dt)};
    return u->dt != DT_U64;
  case OP_MIN: *out = f ? (evalue){.f = INFINITY} : (evalue){.i = dtype_max((enum dtype)u->dt)}; return u->dt != DT_U64;
  default: return false;
  }
}

static lanes eval_reduce(const walk *w, const map *fixed, uop *u) {
  lanes r = new_lanes(w->mem, u->lanes);
  bool first = true;
  bool ok = reduce_from(w, fixed, u, n_values(u), &first, r);
  for (size_t l = 0; l < u->lanes; l++) r.ok[l] = ok && (!first || reduce_identity(u, &r.v[l]));
  return r;
}

static lanes eval_hreduce(const walk *w, const map *fixed, map *done, uop *u) {
  lanes r = new_lanes(w->mem, 1), x = eval_node(w, fixed, done, u->src[0]);
  size_t n = u->src[0]->lanes;
  evalue *v = ARENA_ARRAY(w->mem, evalue, n);
  memcpy(v, x.v, n * sizeof *v);
  r.ok[0] = (n & (n - 1)) == 0;
  for (size_t l = 0; l < n; l++) r.ok[0] &= x.ok[l];
  for (size_t half = n / 2; half && r.ok[0]; half /= 2)
    for (size_t l = 0; l < half; l++) r.ok[0] &= combine(u, &v[l], v[l + half]);
  r.v[0] = v[0];
  return r;
}

static lanes eval_shuffle(const walk *w, const map *fixed, map *done, uop *u) {
  lanes r = new_lanes(w->mem, u->lanes), s[2];
  if (u->nsrc < 1 || u->nsrc > 2 || u->s_len != 2u * u->lanes) return r;
  size_t n = u->src[0]->lanes;
  for (size_t i = 0; i < u->nsrc; i++) s[i] = eval_node(w, fixed, done, u->src[i]);
  for (size_t l = 0; l < u->lanes; l++) {
    size_t from = (unsigned char)u->s[2 * l] | (size_t)(unsigned char)u->s[2 * l + 1] << 8;
    if (from >= n * u->nsrc) continue;
    r.v[l] = s[from / n].v[from % n];
    r.ok[l] = s[from / n].ok[from % n];
  }
  return r;
}

// Reads the memory's dtype, or its bytes as another type of equal size.
static lanes eval_load(const walk *w, const map *fixed, map *done, uop *u) {
  lanes r = new_lanes(w->mem, u->lanes);
  uop *index = u->src[0];
  if (!w->env->load || index->op != OP_INDEX || u->dt != index->dt) return r;
  lanes at = eval_node(w, fixed, done, index->src[1]);
  for (size_t l = 0; l < u->lanes; l++) {
    size_t from = index->lanes == 1 ? 0 : l;
    int64_t i = at.v[from].i + (index->lanes == 1 ? (int64_t)l : 0);
    r.ok[l] = at.ok[from] && w->env->load(w->env->load_ctx, index->src[0], i, (enum dtype)u->dt, &r.v[l]);
  }
  return r;
}

static lanes eval_new(const walk *w, const map *fixed, map *done, uop *u) {
  lanes r, x;
  switch (u->op) {
  case OP_CONST: r = new_lanes(w->mem, 1); r.v[0] = eval_of_const(u); r.ok[0] = true; return r;
  case OP_LANE:
    r = new_lanes(w->mem, u->lanes);
    for (int l = 0; l < u->lanes; l++) {
      r.v[l].i = l;
      r.ok[l] = true;
    }
    return r;
  case OP_SPLAT:
    r = new_lanes(w->mem, u->lanes);
    x = eval_node(w, fixed, done, u->src[0]);
    for (int l = 0; l < u->lanes; l++) { r.v[l] = x.v[0]; r.ok[l] = x.ok[0]; }
    return r;
  case OP_STACK:
    r = new_lanes(w->mem, u->lanes);
    for (size_t i = 0; i < u->nsrc && u->nsrc == u->lanes; i++) {
      x = eval_node(w, fixed, done, u->src[i]);
      r.v[i] = x.v[0];
      r.ok[i] = x.ok[0];
    }
    return r;
  case OP_EXTRACT:
    r = new_lanes(w->mem, 1);
    x = eval_node(w, fixed, done, u->src[0]);
    if (u->a >= 0 && u->a < u->src[0]->lanes) { r.v[0] = x.v[u->a]; r.ok[0] = x.ok[u->a]; }
    return r;
  case OP_SHUFFLE: return eval_shuffle(w, fixed, done, u);
  case OP_HREDUCE: return eval_hreduce(w, fixed, done, u);
  case OP_REDUCE: return eval_reduce(w, fixed, u);
  case OP_LOAD: return eval_load(w, fixed, done, u);
  default:
    if (op_flags((enum op)u->op) & OPF_ELEMENTWISE) return eval_elementwise(w, fixed, done, u);
    return new_lanes(w->mem, u->lanes);               // has no value here
  }
}

// `fixed`: values of the ranges of enclosing reductions; `done`: values evaluated for these.
static lanes eval_node(const walk *w, const map *fixed, map *done, uop *u) {
  lanes *known = map_ptr(done, u);
  if (known) return *known;
  known = ARENA_NEW(w->mem, lanes);
  evalue *given = map_ptr(fixed, u);
  if (!given && w->env->leaf) given = map_ptr(w->env->leaf, u);
  if (given) {
    *known = new_lanes(w->mem, u->lanes);
    memcpy(known->v, given, u->lanes * sizeof *given);
    memset(known->ok, true, u->lanes);
  } else *known = eval_new(w, fixed, done, u);
  map_put(done, u, known);
  return *known;
}

bool eval_expr(const eval_env *env, uop *u, evalue *out) {
  walk w = {env, arena_new()};
  map fixed = {0}, done = {0};
  lanes r = eval_node(&w, &fixed, &done, u);
  bool ok = true;
  for (size_t l = 0; l < u->lanes; l++) { out[l] = r.v[l]; ok &= r.ok[l]; }
  map_free(&done);
  arena_free(w.mem);
  return ok;
}
