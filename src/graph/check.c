// The structural rules of every op, one small function per family. The parser checks them before it builds a node, so
// that no text can trigger a die() of the constructor; the verifier (verify.c) checks every node between passes. The
// rules are local: a node and its direct sources. Rules about the whole program (ranges closed, accesses in bounds) are
// in verify.c.
#include "graph/check.h"
#include <string.h>

typedef struct node {
  enum op op;
  enum dtype dt;
  int lanes;
  uop *const *src;
  size_t n;
  const uarg *arg;
  str *why;
} node;

#define bad(v, ...) (complain((v)->why, __VA_ARGS__), false)
static void complain(str *why, const char *fmt, ...) PRINTF_LIKE(2, 3);
static void complain(str *why, const char *fmt, ...) {
  if (!why) return;
  va_list ap;
  va_start(ap, fmt);
  str_vaddf(why, fmt, ap);
  va_end(ap);
}

static const char *name(const node *v) { return op_name(v->op); }
static enum dtype src_dt(const node *v, size_t i) { return (enum dtype)v->src[i]->dt; }
static bool is_dim(const uop *u) { return u->dt == DT_IDX && u->lanes == 1 && !u->shape && u->op != OP_INVALID; }

static bool at_least(const node *v, size_t n) {
  return v->n >= n || bad(v, "%s needs %zu sources, it has %zu", name(v), n, v->n);
}
static bool same_dtype(const node *v, size_t i) {
  return src_dt(v, i) == v->dt ||
         bad(v, "%s.%s of a source %zu of %s", name(v), dtype_name(v->dt), i, dtype_name(src_dt(v, i)));
}
static bool same_lanes(const node *v, size_t i) {
  return v->src[i]->lanes == v->lanes ||
         bad(v, "%s of %d lanes with a source %zu of %d", name(v), v->lanes, i, v->src[i]->lanes);
}
static bool one_lane(const node *v) { return v->lanes == 1 || bad(v, "%s with %d lanes", name(v), v->lanes); }
static bool is_void(const node *v) {
  return (v->dt == DT_VOID && v->lanes == 1) || bad(v, "%s has no value, so it must be void", name(v));
}
static bool has_value(const node *v) { return v->dt != DT_VOID || bad(v, "%s is void", name(v)); }

// --- leaves ----------------------------------------------------------------------------------------------------------

static bool is_memory(enum op op) { return op == OP_BUFFER || op == OP_PARAM || op == OP_LOCAL; }

static bool leaf(const node *v) {
  const uarg *a = v->arg;
  if (v->op != OP_LANE && !one_lane(v)) return false;
  if (!has_value(v)) return false;
  switch (v->op) {
  case OP_CONST:
    if (!dtype_is_float(v->dt) && dtype_wrap(v->dt, a->a) != a->a)
      return bad(v, "CONST.%s %lld does not fit", dtype_name(v->dt), (long long)a->a);
    return true;
  case OP_VAR:
    if (!dtype_is_index(v->dt) || !a->s || !a->s_len) return bad(v, "VAR needs a name and the dtype of an index");
    return (a->a <= a->b && a->a >= dtype_min(v->dt) && a->b <= dtype_max(v->dt)) ||
           bad(v, "VAR with bounds %lld..%lld", (long long)a->a, (long long)a->b);
  case OP_SPECIAL:
    if (!dtype_is_index(v->dt) || !a->s || a->s_len != 2 || !strchr("gl", a->s[0]) || a->s[0] == 0 || a->s[1] < '0' ||
        a->s[1] > '2')
      return bad(v, "SPECIAL must be g0..g2 or l0..l2, of the dtype of an index");
    return a->b >= 1 || bad(v, "SPECIAL with bound %lld", (long long)a->b);
  case OP_LANE: return dtype_is_index(v->dt) || bad(v, "LANE.%s", dtype_name(v->dt));
  case OP_INVALID:
    return dtype_is_index(v->dt) || bad(v, "INVALID.%s: only an index can be invalid", dtype_name(v->dt));
  default: return a->b >= 0 || bad(v, "%s with %lld elements", name(v), (long long)a->b);          // BUFFER PARAM LOCAL
  }
}

// --- tensors ---------------------------------------------------------------------------------------------------------

static bool dims(const node *v, size_t from) {
  for (size_t i = from; i < v->n; i++)
    if (!is_dim(v->src[i])) return bad(v, "%s: source %zu is not a scalar idx", name(v), i);
  return true;
}

// Checked if both are constant; the scheduler handles symbolic sizes.
static bool same_count(const node *v, const shape *s) {
  int64_t from = 1, to = 1;
  for (int i = 0; i < s->n; i++)
    if (s->dim[i]->op != OP_CONST) return true;
    else if (!mul_i64(from, s->dim[i]->a, &from)) return bad(v, "RESHAPE of more than 2^63 elements");
  for (size_t i = 1; i < v->n; i++)
    if (v->src[i]->op != OP_CONST) return true;
    else if (!mul_i64(to, v->src[i]->a, &to)) return bad(v, "RESHAPE to more than 2^63 elements");
  return from == to || bad(v, "RESHAPE of %lld elements to %lld", (long long)from, (long long)to);
}

static bool movement(const node *v) {
  if (!at_least(v, 1) || !one_lane(v) || !same_dtype(v, 0) || !dims(v, 1)) return false;
  const shape *s = v->src[0]->shape;
  if (!s) return bad(v, "%s of a scalar", name(v));
  size_t n = (size_t)s->n;
  unsigned seen = 0;
  switch (v->op) {
  case OP_RESHAPE: return v->n - 1 <= MAX_DIMS ? same_count(v, s) : bad(v, "RESHAPE to %zu axes", v->n - 1);
  case OP_EXPAND:
    if (v->n != 1 + n) return bad(v, "EXPAND of %zu axes to %zu", n, v->n - 1);
    for (size_t i = 0; i < n; i++)
      if (s->dim[i] != v->src[1 + i] && !uop_is_int(s->dim[i], 1))
        return bad(v, "EXPAND of axis %zu, which is not 1", i);
    return true;
  case OP_PAD:
  case OP_SHRINK: return v->n == 1 + 2 * n || bad(v, "%s of %zu axes with %zu numbers", name(v), n, v->n - 1);
  case OP_FLIP: return (v->arg->a >= 0 && v->arg->a < 1 << n) || bad(v, "FLIP of an axis that is not there");
  default:                                              // PERMUTE
    if (v->arg->b != (int64_t)n) return bad(v, "PERMUTE of %lld axes over %zu", (long long)v->arg->b, n);
    for (size_t i = 0; i < n; i++) {
      unsigned from = (unsigned)(v->arg->a >> 4 * i & 15);
      if (from >= n || (seen >> from & 1)) return bad(v, "PERMUTE [..] is not a permutation of %zu axes", n);
      seen |= 1u << from;
    }
    return true;
  }
}

static bool same_shapes(const node *v) {
  const shape *s = NULL;
  for (size_t i = 0; i < v->n; i++) {
    const shape *t = v->src[i]->shape;
    if (s && t && s != t) return bad(v, "%s of tensors of different shapes", name(v));
    if (t) s = t;
  }
  return true;
}

static bool reduces(const node *v) {
  int64_t by = v->arg->a;
  if (by < 0 || by >= OP_COUNT || !(op_flags((enum op)by) & OPF_REDUCES))
    return bad(v, "%s by something that does not reduce", name(v));
  return true;
}

static bool tensor(const node *v) {
  if (v->op != OP_STACK && !one_lane(v)) return false;
  if (!has_value(v)) return false;
  switch (v->op) {
  case OP_IOTA: return (v->dt == DT_IDX && is_dim(v->src[0])) || bad(v, "IOTA of something that is not a scalar idx");
  case OP_GATHER: {
    const shape *x = v->src[0]->shape, *ids = v->src[1]->shape;
    if (!same_dtype(v, 0)) return false;
    if (!x || x->n < 1) return bad(v, "GATHER from a scalar");
    if (!dtype_is_int(src_dt(v, 1))) return bad(v, "GATHER by %s", dtype_name(src_dt(v, 1)));
    return x->n - 1 + (ids ? ids->n : 0) <= MAX_DIMS || bad(v, "GATHER gives too many axes");
  }
  case OP_REDUCE_AXIS:
    if (!same_dtype(v, 0) || !reduces(v)) return false;
    if (!v->src[0]->shape) return bad(v, "REDUCE_AXIS of a scalar");
    return (v->arg->b >= 0 && v->arg->b < 1 << v->src[0]->shape->n) ||
           bad(v, "REDUCE_AXIS of an axis that is not there");
  case OP_ASSIGN: return same_dtype(v, 0) && same_dtype(v, 1) && same_shapes(v);
  case OP_AFTER: return at_least(v, 1) && same_dtype(v, 0);
  case OP_CONTIGUOUS: return same_dtype(v, 0);
  case OP_STAGE: return same_dtype(v, 0) && (v->src[0]->shape || bad(v, "STAGE of a scalar"));
  default: break;
  }
  if (!at_least(v, 1)) return false;                    // STACK, of tensors or of scalars
  bool any = false;
  for (size_t i = 0; i < v->n; i++) {
    if (!same_dtype(v, i)) return false;
    if (v->src[i]->lanes != 1) return bad(v, "STACK of vectors");
    if (v->src[i]->shape) {
      any = true;
      if (v->src[i]->shape->n >= MAX_DIMS) return bad(v, "STACK gives too many axes");
    }
  }
  if (!any && v->lanes != 1 && (size_t)v->lanes != v->n)
    return bad(v, "STACK of %zu scalars to %d lanes", v->n, v->lanes);
  if (any && v->lanes != 1) return bad(v, "STACK of tensors with lanes");
  return same_shapes(v);
}

// --- elementwise -----------------------------------------------------------------------------------------------------

static bool conversion(const node *v) {
  enum dtype from = src_dt(v, 0);
  // reinterprets the lanes of a vector together
  bool words = v->op == OP_BITCAST && !v->src[0]->shape && from != DT_VOID &&
               v->src[0]->lanes * dtype_size(from) == v->lanes * dtype_size(v->dt);
  if (!has_value(v) || from == DT_VOID || (!words && !same_lanes(v, 0)))
    return from != DT_VOID ? false : bad(v, "%s of a void", name(v));
  if (v->op == OP_CAST) return true;
  const shape *s = v->src[0]->shape;
  int a = dtype_size(from), b = dtype_size(v->dt);
  if (from == DT_IDX || v->dt == DT_IDX || from == DT_BOOL || v->dt == DT_BOOL)
    return bad(v, "BITCAST of an idx or a bool, which have no bits");
  if (a == b || words) return true;
  int64_t bytes;
  if (!s || s->n < 1) return bad(v, "BITCAST of %s to %s", dtype_name(from), dtype_name(v->dt));
  const uop *last = s->dim[s->n - 1];
  return (last->op == OP_CONST && mul_i64(last->a, a, &bytes) && bytes % b == 0) ||
         bad(v, "BITCAST of a last axis that does not fit");
}

// The dtypes on which an op is defined: i integers, b BOOL, f floats.
static const char *domain(enum op op) {
  switch (op) {
  case OP_NEG: case OP_SUB: case OP_TRUNC: case OP_FLOOR: case OP_FMA: return "if";
  case OP_ADD: case OP_MUL: case OP_MAX: case OP_MIN: return "ibf";
  case OP_RECIP: case OP_SQRT: case OP_EXP2: case OP_LOG2: case OP_SIN: case OP_FDIV: return "f";
  case OP_IDIV: case OP_MOD: case OP_CDIV: case OP_CMOD: case OP_SHL: case OP_SHR: return "i";
  case OP_AND: case OP_OR: case OP_XOR: return "ib";
  default: return "ibf";
  }
}

static bool elementwise(const node *v) {
  if (!has_value(v) || !same_shapes(v)) return false;
  for (size_t i = 0; i < v->n; i++)
    if (v->src[i]->op != OP_INVALID && !same_lanes(v, i)) return false;
  bool shift = v->op == OP_SHL || v->op == OP_SHR, compare = op_flags(v->op) & OPF_COMPARE;
  if (compare && v->dt != DT_BOOL) return bad(v, "%s.%s: a comparison is bool", name(v), dtype_name(v->dt));
  if (v->op == OP_WHERE && src_dt(v, 0) != DT_BOOL)
    return bad(v, "WHERE by a condition of %s", dtype_name(src_dt(v, 0)));
  size_t first = v->op == OP_WHERE;
  enum dtype d = compare ? src_dt(v, 0) : v->dt;
  for (size_t i = first; i < v->n; i++) {
    if (shift && i == 1) {
      if (!dtype_is_int(src_dt(v, 1))) return bad(v, "%s by %s", name(v), dtype_name(src_dt(v, 1)));
    } else if (src_dt(v, i) != d)
      return bad(v, "%s.%s of a source %zu of %s", name(v), dtype_name(v->dt), i, dtype_name(src_dt(v, i)));
    if (uop_unsplat(v->src[i])->op == OP_INVALID && !(v->op == OP_WHERE && i == 2))
      return bad(v, "INVALID outside of WHERE(cond, i, INVALID)");
  }
  char kind = dtype_is_float(d) ? 'f' : d == DT_BOOL ? 'b' : d == DT_VOID ? 'v' : 'i';
  return strchr(domain(v->op), kind) || bad(v, "%s of %s", name(v), dtype_name(d));
}

// --- kernels ---------------------------------------------------------------------------------------------------------

static const uop *memory_below(const uop *u) {          // through AFTER: a version of a buffer
  while (u->op == OP_AFTER && u->nsrc) u = u->src[0];
  return is_memory((enum op)u->op) ? u : NULL;
}

static bool ranges(const node *v, size_t from) {
  for (size_t i = from; i < v->n; i++)
    if (v->src[i]->op != OP_RANGE)
      return bad(v, "%s: source %zu is %s and should be a RANGE", name(v), i, op_name((enum op)v->src[i]->op));
  return true;
}

static bool reduction(const node *v) {                  // b values (0: one), then ranges
  size_t values = v->arg->b ? (size_t)v->arg->b : 1;
  if (v->arg->b < 0 || v->arg->b == 1) return bad(v, "REDUCE of %lld values", (long long)v->arg->b);
  if (!at_least(v, values) || !has_value(v) || !reduces(v)) return false;
  for (size_t i = 0; i < values; i++) if (!same_dtype(v, i) || !same_lanes(v, i)) return false;
  return ranges(v, values);
}

static bool kernel(const node *v) {
  switch (v->op) {
  case OP_RANGE:
    if (!one_lane(v) || !dtype_is_index(v->dt) || !same_dtype(v, 0) || !same_lanes(v, 0))
      return v->dt == DT_VOID ? bad(v, "RANGE is void") : false;
    if (v->src[0]->shape || v->src[0]->op == OP_INVALID) return bad(v, "RANGE of a tensor");
    return (v->arg->b >= 0 && v->arg->b < AXIS_COUNT) || bad(v, "RANGE of kind %lld", (long long)v->arg->b);
  case OP_INDEX:
    if (!memory_below(v->src[0])) return bad(v, "INDEX into %s, which is no memory", op_name((enum op)v->src[0]->op));
    if (!dtype_is_index(src_dt(v, 1)) || v->src[1]->shape) return bad(v, "INDEX by %s", dtype_name(src_dt(v, 1)));
    return same_dtype(v, 0) && same_lanes(v, 1);
  case OP_LOAD:
    if (!at_least(v, 1) || !has_value(v)) return false;
    if (v->src[0]->op != OP_INDEX) return bad(v, "LOAD from %s and not from an INDEX", op_name((enum op)v->src[0]->op));
    return v->src[0]->lanes == 1 || same_lanes(v, 0);
  case OP_STORE:
    if (!at_least(v, 2) || !is_void(v) || !ranges(v, 2)) return false;
    if (v->src[0]->op != OP_INDEX) return bad(v, "STORE to %s and not to an INDEX", op_name((enum op)v->src[0]->op));
    if (v->src[1]->dt == DT_VOID) return bad(v, "STORE of a void");
    return v->src[0]->lanes == 1 || v->src[0]->lanes == v->src[1]->lanes ||
           bad(v, "STORE of %d lanes to %d", v->src[1]->lanes, v->src[0]->lanes);
  case OP_REDUCE: return reduction(v);
  default: return is_void(v);                           // SINK
  }
}

static bool dot(const node *v) {
  int n = v->lanes, a = (int)v->src[1]->dt, k = v->dt == DT_I32 ? 4 : 2;
  bool operands = v->dt == DT_I32 ? a == DT_U8 || a == DT_I8 : v->dt == DT_F32 && (a == DT_BF16 || a == DT_U16);
  if (!operands || v->src[0]->dt != v->dt || v->src[2]->dt != DT_U32) return bad(v, "DOT of wrong types");
  return (v->src[0]->lanes == n && v->src[1]->lanes == k * n && v->src[2]->lanes == n) ||
         bad(v, "DOT of wrong numbers of lanes");
}

static bool tile_pairs(const node *v) {
  if (v->dt != DT_I32 || v->src[0]->dt != DT_I32 || (v->src[1]->dt != DT_U8 && v->src[1]->dt != DT_I8) ||
      v->src[2]->dt != DT_I8)
    return bad(v, "MMLA of wrong types");
  int n = v->lanes;
  return (n % 4 == 0 && v->src[0]->lanes == n && v->src[1]->lanes == 4 * n && v->src[2]->lanes == 4 * n) ||
         bad(v, "MMLA of wrong numbers of lanes");
}

static bool tile(const node *v) {
  bool halves = v->arg->b == DT_F16 || v->arg->b == DT_BF16;
  size_t b = (size_t)v->arg->a / (halves ? 8 : 16);
  if (v->arg->a != 16 && (v->arg->a != 32 || halves)) return bad(v, "MMA of %lld products", (long long)v->arg->a);
  if (v->arg->b && !halves) return bad(v, "MMA of %lld", (long long)v->arg->b);
  if (v->n != 1 + 3 * b) return bad(v, "MMA of %zu sources", v->n);
  enum dtype acc = halves ? DT_F32 : DT_I32;
  bool ok = v->dt == acc && v->lanes == 4 && v->src[0]->dt == acc && v->src[0]->lanes == 4;
  for (size_t i = 1; i < v->n; i++) {
    const uop *s = v->src[i];
    bool words = s->dt == DT_U32 && s->lanes == 1, pair = s->dt == DT_U16 || s->dt == (enum dtype)v->arg->b;
    ok &= halves ? words || (pair && s->lanes == 2) : i > 2 * b ? words : s->dt == DT_U8 && s->lanes == 4;
  }
  return ok || bad(v, "MMA of wrong types");
}

static bool vector(const node *v) {
  if (!has_value(v) || (v->op == OP_SHUFFLE && !at_least(v, 1)) || !same_dtype(v, 0)) return false;
  int n = v->src[0]->lanes;
  switch (v->op) {
  case OP_SPLAT: return n == 1 || bad(v, "SPLAT of %d lanes", n);
  case OP_EXTRACT:
    return one_lane(v) &&
           ((v->arg->a >= 0 && v->arg->a < n) || bad(v, "EXTRACT of lane %lld of %d", (long long)v->arg->a, n));
  case OP_HREDUCE:
    return one_lane(v) && reduces(v) && ((n & (n - 1)) == 0 || bad(v, "HREDUCE of %d lanes, no power of two", n));
  default: break;
  }
  if (v->n > 2) return bad(v, "SHUFFLE of %zu vectors", v->n);
  if (v->n == 2 && (!same_dtype(v, 1) || v->src[1]->lanes != n)) return bad(v, "SHUFFLE of different vectors");
  if (!v->arg->s || v->arg->s_len != 2 * (size_t)v->lanes)
    return bad(v, "SHUFFLE to %d lanes with %zu lane numbers", v->lanes, v->arg->s_len / 2);
  for (int i = 0; i < v->lanes; i++) {
    int from = (unsigned char)v->arg->s[2 * i] | (unsigned char)v->arg->s[2 * i + 1] << 8;
    if (from >= n * (int)v->n) return bad(v, "SHUFFLE takes lane %d of %d", from, n * (int)v->n);
  }
  return true;
}

static bool linear(const node *v) {
  switch (v->op) {
  case OP_ACC: return has_value(v) && same_dtype(v, 0) && same_lanes(v, 0);
  case OP_SET:
    if (v->src[0]->op != OP_ACC) return bad(v, "SET of %s and not of an ACC", op_name((enum op)v->src[0]->op));
    return (v->src[1]->dt == v->src[0]->dt && v->src[1]->lanes == v->src[0]->lanes) ||
           bad(v, "SET of an ACC to a value of another type");
  case OP_END: return is_void(v) && ranges(v, 0);
  case OP_IF:
    return is_void(v) &&
           ((src_dt(v, 0) == DT_BOOL && v->src[0]->lanes == 1) || bad(v, "IF of something that is not one bool"));
  case OP_COPY:
    for (size_t i = 0; i < 2 && i < v->n; i++)
      if (v->src[i]->op != OP_INDEX || v->src[i]->lanes > 1)
        return bad(v, "COPY of something that is not one INDEX");
    if (!is_void(v) || !at_least(v, 2)) return false;
    if (v->src[0]->src[0]->op != OP_LOCAL || v->src[1]->src[0]->op != OP_PARAM)
      return bad(v, "COPY from %s to %s", op_name((enum op)v->src[1]->src[0]->op),
                 op_name((enum op)v->src[0]->src[0]->op));
    return v->arg->a == 4 || v->arg->a == 8 || v->arg->a == 16 || bad(v, "COPY of %lld bytes", (long long)v->arg->a);
  case OP_PREFETCH:
    return is_void(v) && at_least(v, 1) && ranges(v, 1) &&
           (v->src[0]->op == OP_INDEX || bad(v, "PREFETCH of something that is no INDEX"));
  default: return is_void(v);                           // ENDIF BARRIER
  }
}

bool uop_well_formed(enum op op, enum dtype dt, int lanes, uop *const *src, size_t nsrc, const uarg *arg, str *why) {
  node n = {op, dt, lanes, src, nsrc, arg, why};
  if ((unsigned)op >= OP_COUNT || (unsigned)dt >= DT_COUNT) return bad(&n, "no such op or dtype");
  if (op_arity(op) >= 0 && nsrc != (size_t)op_arity(op))
    return bad(&n, "%s has %d sources, not %zu", op_name(op), op_arity(op), nsrc);
  if (lanes < 1 || lanes > UINT16_MAX) return bad(&n, "%s with %d lanes", op_name(op), lanes);
  if (arg->memory && !is_memory(op)) return bad(&n, "%s is no memory", op_name(op));
  for (size_t i = 0; i < nsrc; i++)                     // only a node with a value may be used as a value
    if (src[i]->dt == DT_VOID && op != OP_SINK && op != OP_AFTER && op != OP_LOAD && op != OP_BARRIER &&
        (op != OP_COPY || i < 2))
      return bad(&n, "%s of %s, which has no value", op_name(op), op_name((enum op)src[i]->op));
  if (op == OP_CAST || op == OP_BITCAST) return conversion(&n);
  if (op_flags(op) & OPF_ELEMENTWISE) return elementwise(&n);
  if (op_flags(op) & OPF_MOVEMENT) return movement(&n);
  switch (op) {
  case OP_CONST:
  case OP_VAR:
  case OP_BUFFER:
  case OP_PARAM:
  case OP_INVALID:
  case OP_LOCAL:
  case OP_SPECIAL:
  case OP_LANE: return leaf(&n);
  case OP_IOTA:
  case OP_GATHER:
  case OP_REDUCE_AXIS:
  case OP_ASSIGN:
  case OP_AFTER:
  case OP_CONTIGUOUS:
  case OP_STAGE:
  case OP_STACK: return tensor(&n);
  case OP_RANGE: case OP_INDEX: case OP_LOAD: case OP_STORE: case OP_REDUCE: case OP_SINK: return kernel(&n);
  case OP_DOT: return dot(&n);
  case OP_MMLA: return tile_pairs(&n);
  case OP_MMA: return tile(&n);
  case OP_SWAP:
    return has_value(&n) && same_dtype(&n, 0) && same_lanes(&n, 0) &&
           ((arg->a >= 0 && arg->a < 5) || bad(&n, "SWAP of items by bit %lld", (long long)arg->a));
  case OP_SPLAT: case OP_SHUFFLE: case OP_EXTRACT: case OP_HREDUCE: return vector(&n);
  default: return linear(&n);
  }
}

bool uop_check(const uop *u, str *why) {
  uarg arg = uop_arg(u);
  return uop_well_formed((enum op)u->op, (enum dtype)u->dt, u->lanes, u->src, u->nsrc, &arg, why);
}
