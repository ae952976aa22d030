// The passes of integer_dots, bf16_dots and half_dots (dots.h). Each pass is a table of rules over REDUCE_AXIS nodes;
// no rule knows a format.
//
// 1. split       if a reshape merged several axes into a summed axis, the sum runs over these axes instead: they are
//                the blocks of the format
// 2. spread      reshapes and expansions move from sums and products to their operands, so that each operand shows
//                along which axes it varies
// 3. round       an activation becomes scale * integers of 8 bits, one scale per block (the only approximation)
// 4. factor      axes along which all factors vary are summed first, then the axes of the coarser factors: a sum of
//                sums. A factor that does not vary along a summed axis moves out of the sum; a product distributes over
//                a sum if that allows a factor to move out
// 5. integers    a sum of products of integers becomes an integer sum if intervals prove that it fits in 32 bits
// 6. unsign      the weight's operand of an integer dot product becomes unsigned bytes:
//                sum (u - b) x = sum u x - b sum x
//                If the machine multiplies codes with a sign, codes of 8 bits keep theirs
// 7. share       integer sums over activations alone are stored: all rows use them
#include "schedule/dots.h"
#include <math.h>
#include <string.h>

enum { PLACEHOLDER = (1 << 30) - 1, MAX_FACTORS = 32, MAX_GROUP = 256 };

typedef struct terms { uop *at[MAX_FACTORS]; int n; } terms;
// The context of the rules. constant: nodes known to be constant, or NULL.
typedef struct wanted { dots_choice how; map *constant; } wanted;

static bool is_one(const uop *dim) { return uop_is_int(dim, 1); }
static bool repeats_or_reshapes(const uop *u) { return u->op == OP_RESHAPE || u->op == OP_EXPAND; }
static bool from_integers(const uop *u) {
  return u->op == OP_CAST && dtype_is_float((enum dtype)u->dt) && dtype_is_int((enum dtype)u->src[0]->dt) &&
         u->src[0]->dt != DT_IDX;
}
static bool adds_or_subtracts(const uop *u) { return u->op == OP_ADD || u->op == OP_SUB; }
// What sums and products are made of, above their operands
static bool is_spine(const uop *u) {
  return u->dt == DT_F32 && (adds_or_subtracts(u) || u->op == OP_MUL || u->op == OP_NEG || from_integers(u));
}

// Does u depend on weights and constants only? The index that selects one of several weights (an expert) may depend on
// anything.
static bool is_constant(uop *u, map *memo) {
  void *known;
  if (map_get(memo, (uint64_t)(uintptr_t)u, &known)) return known != NULL;
  bool c = u->op == OP_BUFFER ? u->memory == MEMORY_WEIGHT
                              : u->op != OP_VAR && u->op != OP_ASSIGN && u->op != OP_AFTER && u->op != OP_CONTIGUOUS;
  // sizes may be symbolic
  size_t n = (op_flags((enum op)u->op) & OPF_MOVEMENT) || u->op == OP_GATHER ? 1 : u->nsrc;
  for (size_t i = 0; c && i < n; i++) c = is_constant(u->src[i], memo);
  map_put(memo, u, (void *)(uintptr_t)c);
  return c;
}

static bool on_weights_only(uop *u) {
  map memo = {0};
  bool c = is_constant(u, &memo);
  map_free(&memo);
  return c;
}

static bool reads_weights(uop *u, map *seen) {
  if (map_has(seen, u)) return false;
  map_put(seen, u, (void *)1);
  if (u->op == OP_BUFFER && u->memory == MEMORY_WEIGHT) return true;
  for (size_t i = 0; i < u->nsrc; i++) if (reads_weights(u->src[i], seen)) return true;
  return false;
}

static bool depends_on_weights(uop *u) {
  map seen = {0};
  bool hit = reads_weights(u, &seen);
  map_free(&seen);
  return hit;
}

// --- axes -----------------------------------------------------------------------------------------------------------

static unsigned all_axes(const uop *u) {
  unsigned m = 0;
  for (int i = 0; u->shape && i < u->shape->n; i++) if (!is_one(u->shape->dim[i])) m |= 1u << i;
  return m;
}

// The axes along which u may have different values.
static unsigned axes_of(const uop *u) {
  if (!u->shape) return 0;
  if (u->op == OP_EXPAND) return axes_of(u->src[0]) & all_axes(u->src[0]);
  if (!(op_flags((enum op)u->op) & OPF_ELEMENTWISE) || dtype_size((enum dtype)u->dt) == 0) return all_axes(u);
  if (u->op == OP_BITCAST) return all_axes(u);
  unsigned m = 0;
  for (size_t i = 0; i < u->nsrc; i++) m |= axes_of(u->src[i]);
  return m;
}

// Returns u with size 1 along these axes, along which it does not vary.
static tensor *narrow_axes(graph *g, uop *u, unsigned axes) {
  if (!u->shape || !(all_axes(u) & axes)) return u;
  uop *d[MAX_DIMS];
  for (int i = 0; i < u->shape->n; i++) d[i] = axes >> i & 1 ? uop_idx(g, 1) : u->shape->dim[i];
  if (u->op == OP_EXPAND && !(all_axes(u->src[0]) & axes)) return t_expand(g, u->src[0], u->shape->n, d);
  if (u->op == OP_EXPAND) return t_expand(g, narrow_axes(g, u->src[0], axes), u->shape->n, d);
  uop *s[3];
  for (size_t i = 0; i < u->nsrc; i++) s[i] = narrow_axes(g, u->src[i], axes);
  return uop_with_src(g, u, s);
}

static tensor *widen(graph *g, tensor *u, const shape *s) { return u->shape ? t_expand(g, u, s->n, s->dim) : u; }

static uop *without_reshapes(uop *u) {
  while (u->op == OP_RESHAPE) u = u->src[0];
  return u;
}

static tensor *reshaped(graph *g, uop *u, int n, uop *const *dims) {
  return t_reshape(g, without_reshapes(u), n, dims);
}

// The sum of u along these axes. Values that are repeated along other axes are summed once.
static tensor *sum(graph *g, tensor *u, unsigned axes) {
  axes &= all_axes(u);
  if (!axes) return u;
  unsigned repeated = all_axes(u) & ~(axes_of(u) | axes);
  const shape *s = u->shape;
  u = narrow_axes(g, u, repeated);
  u = uop_new(g, OP_REDUCE_AXIS, (enum dtype)u->dt, 1, &u, 1, (uarg){.a = OP_ADD, .b = axes});
  uop *d[MAX_DIMS];
  for (int i = 0; i < s->n; i++) d[i] = axes >> i & 1 ? uop_idx(g, 1) : s->dim[i];
  return t_expand(g, u, s->n, d);
}

// --- 1. split -------------------------------------------------------------------------------------------------------

// The number and sizes (outermost first) of the axes that a reshape below u merges into its last axis; 0 if it merges
// fewer than two.
static int merged(const uop *u, uop **d) {
  uop *last = u->shape ? u->shape->dim[u->shape->n - 1] : NULL;
  if (!last || last->op != OP_CONST || is_one(last)) return 0;
  if (op_flags((enum op)u->op) & OPF_ELEMENTWISE && u->op != OP_BITCAST) {
    for (size_t i = 0; i < u->nsrc; i++) { int n = merged(u->src[i], d); if (n) return n; }
    return 0;
  }
  if (u->op == OP_EXPAND) return u->src[0]->shape->dim[u->src[0]->shape->n - 1] == last ? merged(u->src[0], d) : 0;
  if (u->op != OP_RESHAPE) return 0;
  const uop *in = without_reshapes((uop *)(uintptr_t)u);
  int64_t product = 1;
  int n = 0, i = in->shape->n;
  while (i > 0 && product < last->a && in->shape->dim[i - 1]->op == OP_CONST) {
    product *= in->shape->dim[--i]->a;
    if (!is_one(in->shape->dim[i])) n++;
  }
  if (product != last->a) return 0;
  if (n < 2) return merged(in, d);
  n = 0;
  for (; i < in->shape->n; i++) if (!is_one(in->shape->dim[i])) d[n++] = in->shape->dim[i];
  return n;
}

// Views the last axis of u as n axes.
static tensor *split_last(graph *g, uop *u, uop *const *d, int n) {
  if (!u->shape) return u;
  uop *dims[MAX_DIMS], *ones[MAX_DIMS];
  int lead = u->shape->n - 1;
  for (int i = 0; i < lead; i++) dims[i] = ones[i] = u->shape->dim[i];
  for (int i = 0; i < n; i++) { dims[lead + i] = d[i]; ones[lead + i] = uop_idx(g, 1); }
  if (u->op == OP_EXPAND) {
    uop *in = u->src[0];
    if (!is_one(in->shape->dim[lead])) return t_expand(g, split_last(g, in, d, n), lead + n, dims);
    for (int i = 0; i < lead; i++) ones[i] = in->shape->dim[i];
    return t_expand(g, reshaped(g, in, lead + n, ones), lead + n, dims);
  }
  if ((op_flags((enum op)u->op) & OPF_ELEMENTWISE) && u->op != OP_BITCAST) {
    uop *s[3];
    for (size_t i = 0; i < u->nsrc; i++) s[i] = split_last(g, u->src[i], d, n);
    return uop_with_src(g, u, s);
  }
  return reshaped(g, u, lead + n, dims);
}

static uop *split_merged(graph *g, uop *u, uop *const *v, void *ctx) {
  (void)v, (void)ctx;
  uop *body = u->src[0], *d[MAX_DIMS];
  int last = body->shape->n - 1, n;
  if (u->a != OP_ADD || u->b != 1 << last || !(n = merged(body, d)) || last + n > MAX_DIMS) return NULL;
  return t_reshape(g, sum(g, split_last(g, body, d, n), ((1u << n) - 1) << last), last + 1, u->shape->dim);
}

// --- 2. spread ------------------------------------------------------------------------------------------------------

// A RESHAPE above an EXPAND moves below it if it only adds or drops axes of size 1, or splits axes.
static uop *reshape_below_expand(graph *g, uop *u) {
  uop *e = u->src[0], *in = e->src[0], *d[MAX_DIMS];
  const shape *to = u->shape, *from = e->shape;
  int i = 0;
  for (int j = 0; j < to->n; j++) {
    while (i < from->n && is_one(from->dim[i]) && from->dim[i] != to->dim[j]) i++;
    if (is_one(to->dim[j])) { d[j] = to->dim[j]; continue; }
    while (i < from->n && is_one(from->dim[i])) i++;
    if (i == from->n) return NULL;
    if (from->dim[i] == to->dim[j]) { d[j] = in->shape->dim[i++]; continue; }
    uop *cut = to->dim[j];
    bool expanded = in->shape->dim[i] != from->dim[i];
    d[j] = expanded ? uop_idx(g, 1) : cut;
    while (cut != from->dim[i] && j + 1 < to->n) {
      cut = idx_mul(g, cut, to->dim[++j]);
      d[j] = expanded ? uop_idx(g, 1) : to->dim[j];
    }
    if (cut != from->dim[i]) return NULL;
    i++;
  }
  while (i < from->n && is_one(from->dim[i])) i++;
  if (i != from->n) return NULL;
  return t_expand(g, reshaped(g, in, to->n, d), to->n, to->dim);
}

static uop *spread_movement(graph *g, uop *u, uop *const *v, void *ctx) {
  (void)v, (void)ctx;
  if (!repeats_or_reshapes(u)) return NULL;
  uop *in = u->src[0], *s[3];
  if (u->op == OP_RESHAPE && in->op == OP_RESHAPE) return reshaped(g, in, u->shape->n, u->shape->dim);
  if (u->op == OP_RESHAPE && in->op == OP_EXPAND) return reshape_below_expand(g, u);
  if (u->op == OP_EXPAND && in->op == OP_EXPAND) return t_expand(g, in->src[0], u->shape->n, u->shape->dim);
  if (!is_spine(in)) return NULL;
  for (size_t i = 0; i < in->nsrc; i++) {
    uop *o = in->src[i];
    s[i] = !o->shape            ? o
           : u->op == OP_EXPAND ? t_expand(g, o, u->shape->n, u->shape->dim)
                                : reshaped(g, o, u->shape->n, u->shape->dim);
  }
  return uop_with_src(g, in, s);
}

// --- 3. round -------------------------------------------------------------------------------------------------------

static bool has_integers(const uop *u) {
  if (from_integers(u)) return true;
  if (!is_spine(u)) return false;
  for (size_t i = 0; i < u->nsrc; i++) if (has_integers(u->src[i])) return true;
  return false;
}

static void factors_of(uop *u, terms *t) {
  if (u->op == OP_MUL) { factors_of(u->src[0], t); factors_of(u->src[1], t); return; }
  die_if(t->n == MAX_FACTORS, "a product of more than %d factors", MAX_FACTORS);
  t->at[t->n++] = u;
}

// The rank of a factor in a product: scales before integers, weights before activations, coarse before fine.
static uint64_t factor_rank(uop *u) { return (uint64_t)(2 * has_integers(u) + !on_weights_only(u)) << 32 | axes_of(u); }

// Multiplies the factors in order of rank. The order of operands in the graph depends on buffer ids and sizes, but the
// product must not: float multiplication is not associative.
static tensor *product(graph *g, const terms *t) {
  terms s = *t;
  for (int i = 1; i < s.n; i++)
    for (int j = i; j > 0 && factor_rank(s.at[j]) < factor_rank(s.at[j - 1]); j--) {
      uop *f = s.at[j];
      s.at[j] = s.at[j - 1];
      s.at[j - 1] = f;
    }
  tensor *p = s.at[0];
  for (int i = 1; i < s.n; i++) p = uop_op2(g, OP_MUL, p, s.at[i]);
  return p;
}

// base {.., K} in groups: integers {.., n, group}, |q| <= 127, and scales {.., n, 1} with base = scale * q.
static void to_int8(graph *g, tensor *base, int64_t n, int64_t group, tensor **q, tensor **scale) {
  int lead = base->shape->n - 1;
  uop *d[MAX_DIMS + 1];
  for (int i = 0; i < lead; i++) d[i] = base->shape->dim[i];
  d[lead] = uop_idx(g, n); d[lead + 1] = uop_idx(g, group);
  tensor *in = t_reshape(g, base, lead + 2, d);
  tensor *most = t_reduce(g, t_op2(g, OP_MAX, in, t_op1(g, OP_NEG, in)), OP_MAX, lead + 1);
  tensor *by =
    t_where(g, t_op2(g, OP_CMPLT, t_float(g, 0), most), t_op2(g, OP_FDIV, t_float(g, 127), most), t_float(g, 0));
  *q = t_contiguous(g, t_cast(g, t_op1(g, OP_FLOOR, t_add(g, t_mul(g, in, by), t_float(g, 0.5))), DT_I8));
  *scale = t_scale(g, most, 1.0 / 127);
  // groups of up to 32 have many scales: these are stored as f16, as in format Q8_0
  if (group <= 32) *scale = t_cast(g, t_cast(g, *scale, DT_F16), DT_F32);
  *scale = t_contiguous(g, *scale);
}

// Adds the axes along which the non-integer factors vary.
static void float_axes(uop *u, unsigned *axes) {
  if (from_integers(u)) return;
  if (!is_spine(u)) { *axes |= axes_of(u); return; }
  for (size_t i = 0; i < u->nsrc; i++) float_axes(u->src[i], axes);
}

// Adds axes to the scales' axes, outermost first, until a group has at most `most` elements: a weight may have a scale
// for whole rows. Returns the axis that has to be split for that, and sets *parts; or returns -1.
static int finer_blocks(const shape *s, unsigned summed, int most, unsigned *blocks, int64_t *n, int64_t *group,
                        int64_t *parts) {
  for (int i = 0; i < s->n && *group > most; i++) {
    if (!(summed >> i & 1) || *blocks >> i & 1) continue;
    int64_t d = s->dim[i]->a;
    *parts = *group / most;
    if (d > *parts) return *group % most == 0 && d % *parts == 0 ? i : -1;
    *blocks |= 1u << i;
    *n *= d;
    *group /= d;
  }
  return -1;
}

// A sum with one of its axes split into two.
static uop *cut_axis(graph *g, const uop *u, int axis, int64_t parts) {
  uop *body = u->src[0], *d[MAX_DIMS];
  if (body->shape->n == MAX_DIMS) return NULL;
  for (int i = 0; i < body->shape->n; i++) d[i + (i > axis)] = body->shape->dim[i];
  d[axis + 1] = uop_idx(g, body->shape->dim[axis]->a / parts);
  d[axis] = uop_idx(g, parts);
  unsigned all = (unsigned)u->b, below = all & ((2u << axis) - 1);
  tensor *cut = sum(g, t_reshape(g, body, body->shape->n + 1, d), below | (all & ~below) << 1 | 2u << axis);
  return t_reshape(g, cut, u->shape->n, u->shape->dim);
}

static uop *round_activation(graph *g, uop *u, uop *const *v, void *ctx) {
  (void)v;
  uop *body = u->src[0], *base;
  unsigned summed = (unsigned)u->b & all_axes(body);
  terms t = {.n = 0};
  factors_of(body, &t);
  int act = -1;
  bool integers = false;
  for (int i = 0; i < t.n; i++) {
    bool weight = on_weights_only(t.at[i]);
    integers |= weight && has_integers(t.at[i]);
    if (weight || is_spine(t.at[i])) continue;
    if (act >= 0) return NULL;
    act = i;
  }
  if (act < 0 || !integers || t.n == MAX_FACTORS || t.at[act]->dt != DT_F32 || (axes_of(t.at[act]) & summed) != summed)
    return NULL;
  for (base = t.at[act]; repeats_or_reshapes(base);) base = base->src[0];
  // one scale wherever the weight has scales of its own
  unsigned blocks = 0;
  for (int i = 0; i < t.n; i++) if (i != act) float_axes(t.at[i], &blocks);
  blocks &= summed;
  int64_t group = 1, n = 1, parts = 1, K = base->shape->dim[base->shape->n - 1]->a;
  for (int i = 0; i < body->shape->n; i++)
    if (summed >> i & 1) *(blocks >> i & 1 ? &n : &group) *= body->shape->dim[i]->a;
  int most = ((const wanted *)ctx)->how.most, axis;
  axis = finer_blocks(body->shape, summed, most ? most : MAX_GROUP, &blocks, &n, &group, &parts);
  if (axis >= 0) return cut_axis(g, u, axis, parts);
  bool outermost = !blocks || (summed & ~blocks) > blocks;        // blocks are runs of elements
  if (!outermost || group < 2 || group > MAX_GROUP || base->shape->dim[base->shape->n - 1]->op != OP_CONST ||
      K != n * group)
    return NULL;
  tensor *q, *scale;
  to_int8(g, base, n, group, &q, &scale);
  uop *dq[MAX_DIMS], *ds[MAX_DIMS];
  unsigned own = axes_of(t.at[act]);
  for (int i = 0; i < body->shape->n; i++) {
    dq[i] = own >> i & 1 ? body->shape->dim[i] : uop_idx(g, 1);
    ds[i] = (summed & ~blocks) >> i & 1 ? uop_idx(g, 1) : dq[i];
  }
  int rank = body->shape->n;
  t.at[act] = widen(g, t_cast(g, t_reshape(g, q, rank, dq), DT_F32), body->shape);
  t.at[t.n++] = widen(g, t_reshape(g, scale, rank, ds), body->shape);
  return sum(g, product(g, &t), summed);
}

// --- 4. factor ------------------------------------------------------------------------------------------------------

static void leaf_axes(uop *u, unsigned summed, unsigned *below) {
  if (is_spine(u)) { for (size_t i = 0; i < u->nsrc; i++) leaf_axes(u->src[i], summed, below); return; }
  unsigned m = axes_of(u) & summed;
  if (m != summed) *below |= m;
}

// Does u consist of whole numbers along these axes?
static bool is_whole_along(uop *u, unsigned axes) {
  if (!(axes_of(u) & axes) || from_integers(u)) return true;
  if (u->op == OP_REDUCE_AXIS) return is_whole_along(u->src[0], ~0u);
  if (repeats_or_reshapes(u)) return is_whole_along(u->src[0], ~0u);
  bool whole = is_spine(u);
  for (size_t i = 0; whole && i < u->nsrc; i++) whole = is_whole_along(u->src[i], axes);
  return whole;
}

// Only integer sums are nested: float sums add all terms at once.
static uop *nest(graph *g, uop *u, uop *const *v, void *ctx) {
  (void)v, (void)ctx;
  unsigned summed = (unsigned)u->b & all_axes(u->src[0]), coarse = 0;
  leaf_axes(u->src[0], summed, &coarse);
  if (!coarse || coarse == summed || !is_whole_along(u->src[0], summed & ~coarse)) return NULL;
  return sum(g, sum(g, u->src[0], summed & ~coarse), coarse);
}

// Would a factor other than a constant move out of the sum of this term?
static bool something_leaves(uop *term, unsigned summed) {
  terms t = {.n = 0};
  while (term->op == OP_NEG) term = term->src[0];
  factors_of(term, &t);
  for (int i = 0; i < t.n; i++) if (t.at[i]->shape && !(axes_of(t.at[i]) & summed)) return true;
  return false;
}

static uop *factor(graph *g, uop *u, uop *const *v, void *ctx) {
  (void)v, (void)ctx;
  uop *body = u->src[0];
  unsigned summed = (unsigned)u->b & all_axes(body);
  if (!summed) return NULL;
  if (body->op == OP_NEG) return t_op1(g, OP_NEG, sum(g, body->src[0], summed));
  if (adds_or_subtracts(body)) {
    if (!something_leaves(body->src[0], summed) && !something_leaves(body->src[1], summed)) return NULL;
    if (!body->src[0]->shape || !body->src[1]->shape) return NULL;
    return uop_op2(g, (enum op)body->op, sum(g, body->src[0], summed), sum(g, body->src[1], summed));
  }
  if (body->op != OP_MUL) return NULL;
  terms t = {.n = 0}, in = {.n = 0}, weights = {.n = 0}, others = {.n = 0};
  factors_of(body, &t);
  for (int i = 0; i < t.n; i++) {
    uop *f = t.at[i];
    terms *to = axes_of(f) & summed ? &in : on_weights_only(f) ? &weights : &others;
    to->at[to->n++] = to == &in ? f : narrow_axes(g, f, summed);
  }
  if (weights.n + others.n && in.n) {
    // the factors that move out: the weight's, times the others; then the remaining sum
    tensor *out = weights.n ? product(g, &weights) : NULL, *more = others.n ? product(g, &others) : NULL;
    out = out && more ? t_mul(g, out, more) : out ? out : more;
    return t_mul(g, sum(g, product(g, &in), summed), out);
  }
  // distribute over a factor that is a sum if one of its terms lets a factor move out
  for (int i = 0; i < in.n; i++) {
    uop *s = in.at[i];
    if (!adds_or_subtracts(s)) continue;
    terms part[2] = {in, in};
    tensor *p[2];
    for (int k = 0; k < 2; k++) { part[k].at[i] = s->src[k]; p[k] = product(g, &part[k]); }
    if (!something_leaves(p[0], summed) && !something_leaves(p[1], summed)) continue;
    return uop_op2(g, (enum op)s->op, sum(g, p[0], summed), sum(g, p[1], summed));
  }
  return NULL;
}

// --- 5. integers ----------------------------------------------------------------------------------------------------

static bool fits_i32(int64_t lo, int64_t hi, int64_t times) {
  int64_t a, b;
  return mul_i64(lo, times, &a) && mul_i64(hi, times, &b) && a >= -INT32_MAX && b <= INT32_MAX;
}

// The 32-bit integer tensor that equals a float expression, or NULL.
static tensor *as_integer(graph *g, uop *u) {
  if (from_integers(u))
    return u->src[0]->vmin >= -INT32_MAX && u->src[0]->vmax <= INT32_MAX ? t_cast(g, u->src[0], DT_I32) : NULL;
  if (u->op == OP_CONST && u->dt == DT_F32) {
    double k = uop_const_float(u);
    return k == floor(k) && fabs(k) < 1 << 24 ? uop_int(g, DT_I32, (int64_t)k) : NULL;
  }
  if (u->dt != DT_F32 || !(adds_or_subtracts(u) || u->op == OP_MUL || u->op == OP_NEG)) return NULL;
  tensor *s[2];
  for (size_t i = 0; i < u->nsrc; i++) if (!(s[i] = as_integer(g, u->src[i]))) return NULL;
  tensor *wide[2];
  for (size_t i = 0; i < u->nsrc; i++) wide[i] = uop_cast(g, s[i], DT_I64);        // bounds of the exact result
  uop *exact = u->nsrc == 1 ? uop_op1(g, (enum op)u->op, wide[0]) : uop_op2(g, (enum op)u->op, wide[0], wide[1]);
  if (!fits_i32(exact->vmin, exact->vmax, 1)) return NULL;
  return u->nsrc == 1 ? uop_op1(g, (enum op)u->op, s[0]) : uop_op2(g, (enum op)u->op, s[0], s[1]);
}

static uop *sum_integers(graph *g, uop *u, uop *const *v, void *ctx) {
  (void)v, (void)ctx;
  if (u->a != OP_ADD || u->dt != DT_F32) return NULL;
  int64_t count = 1;
  for (int i = 0; i < u->src[0]->shape->n; i++) if (u->b >> i & 1) count *= u->src[0]->shape->dim[i]->vmax;
  tensor *body = as_integer(g, u->src[0]);
  if (!body || !body->shape || !fits_i32(body->vmin, body->vmax, count)) return NULL;
  return t_cast(g, sum(g, body, (unsigned)u->b), DT_F32);
}

// --- 6. unsign ------------------------------------------------------------------------------------------------------

// Bytes equal to u modulo 256.
static tensor *low_byte(graph *g, uop *u) {
  if (u->dt == DT_U8) return u;
  uop *s[2 + MAX_DIMS];
  switch (u->op) {
  case OP_CONST: return uop_int(g, DT_U8, u->a & 255);
  case OP_CAST:
    if (dtype_is_int((enum dtype)u->src[0]->dt) && u->src[0]->dt != DT_IDX) return low_byte(g, u->src[0]);
    break;
  case OP_BITCAST: if (u->src[0]->dt == DT_U8) return u->src[0]; break;
  case OP_RESHAPE: case OP_EXPAND:
    for (size_t i = 1; i < u->nsrc; i++) s[i] = u->src[i];
    s[0] = low_byte(g, u->src[0]);
    return uop_new(g, (enum op)u->op, DT_U8, 1, s, u->nsrc, (uarg){0});
  case OP_ADD: case OP_SUB: case OP_MUL: case OP_AND: case OP_OR: case OP_XOR:
    return uop_op2(g, (enum op)u->op, low_byte(g, u->src[0]), low_byte(g, u->src[1]));
  case OP_NEG: return uop_op1(g, OP_NEG, low_byte(g, u->src[0]));
  default: break;
  }
  return t_cast(g, u, DT_U8);
}

// bytes + k, merged with a constant that was added earlier
static tensor *add_byte(graph *g, uop *u, int64_t k) {
  uop *s[2 + MAX_DIMS];
  if (repeats_or_reshapes(u)) {
    for (size_t i = 1; i < u->nsrc; i++) s[i] = u->src[i];
    s[0] = add_byte(g, u->src[0], k);
    return uop_new(g, (enum op)u->op, DT_U8, 1, s, u->nsrc, (uarg){0});
  }
  if (adds_or_subtracts(u) && u->src[1]->op == OP_CONST) {
    int64_t all = (u->op == OP_ADD ? u->src[1]->a : -u->src[1]->a) + k;
    u = u->src[0];
    k = floormod_i64(all, 256);
  }
  if (!k) return u;
  return uop_op2(g, k == 128 ? OP_XOR : OP_ADD, u, uop_int(g, DT_U8, k));
}

static uop *bytes_below(uop *u) {                  // the I8 tensor that u is a cast of, seen through movement; or NULL
  while (u->op == OP_CAST && dtype_is_int((enum dtype)u->src[0]->dt)) u = u->src[0];
  return u->dt == DT_I8 ? u : NULL;
}

// Are these codes of 8 bits with a sign? Codes of at most 7 bits become unsigned for less: they need no sign bit.
static bool need_sign(const uop *code) {
  return code->vmin >= INT8_MIN && code->vmin < 0 && code->vmax <= INT8_MAX && code->vmax - code->vmin > INT8_MAX;
}

static uop *unsign(graph *g, uop *u, uop *const *v, void *ctx) {
  (void)v;
  uop *body = u->src[0];
  if (u->a != OP_ADD || u->dt != DT_I32 || body->op != OP_MUL) return NULL;
  terms t = {.n = 0}, w = {.n = 0};
  factors_of(body, &t);
  uop *act = NULL;
  for (int i = 0; i < t.n; i++) {
    if (on_weights_only(t.at[i])) w.at[w.n++] = t.at[i];
    else if (act) return NULL;
    else act = t.at[i];
  }
  uop *xq = act ? bytes_below(act) : NULL, *code = w.n ? product(g, &w) : NULL;
  if (!xq || !code || code->vmax - code->vmin > 255) return NULL;
  bool sign = ((const wanted *)ctx)->how.takes_signs && need_sign(code);
  if (w.n == 1 && code->op == OP_CAST && code->src[0]->dt == (sign ? DT_I8 : DT_U8)) return NULL;              // done
  int64_t bias = sign ? 0 : code->vmin < 0 ? -code->vmin : code->vmax > 255 ? -code->vmin : 0;
  tensor *byte = low_byte(g, code);
  if (sign) byte = uop_new(g, OP_BITCAST, DT_I8, 1, &byte, 1, (uarg){0});
  if (bias) byte = add_byte(g, byte, floormod_i64(bias, 256));
  if ((byte->vmin < 0 && !sign) || byte->shape != body->shape) return NULL;
  tensor *x32 = t_cast(g, xq, DT_I32), *dot = sum(g, uop_op2(g, OP_MUL, t_cast(g, byte, DT_I32), x32), (unsigned)u->b);
  if (!bias) return dot;
  unsigned own = (unsigned)u->b | axes_of(x32);
  tensor *sx = sum(g, narrow_axes(g, x32, all_axes(x32) & ~own), (unsigned)u->b);
  return t_add(g, dot, widen(g, t_op2(g, OP_MUL, sx, uop_int(g, DT_I32, -bias)), u->shape));
}

// --- 7. share -------------------------------------------------------------------------------------------------------

// A sum of rounded activations is computed from the unrounded source, so it does not wait until the rounded values are
// stored.
static uop *from_source(graph *g, uop *u) {
  if (u->op == OP_CONTIGUOUS) return u->src[0];
  if (u->op != OP_REDUCE_AXIS && u->op != OP_CAST && u->op != OP_MUL && !repeats_or_reshapes(u)) return u;
  uop *s[2 + MAX_DIMS];
  for (size_t i = 1; i < u->nsrc; i++) s[i] = u->src[i];
  s[0] = from_source(g, u->src[0]);
  return uop_with_src(g, u, s);
}

// A sum, or a sum times a constant.
static bool is_sum_of_activations(uop *u) {
  if (u->op == OP_MUL && u->src[1]->op == OP_CONST) u = u->src[0];
  return u->op == OP_REDUCE_AXIS && u->dt == DT_I32 && !depends_on_weights(u);
}

static uop *share(graph *g, uop *u, uop *const *v, void *ctx) {
  (void)v, (void)ctx;
  uop *s[2 + 2 * MAX_DIMS];
  bool any = false;
  if (u->op == OP_CONTIGUOUS || u->nsrc > COUNT(s) || (u->op == OP_MUL && is_sum_of_activations(u))) return NULL;
  for (size_t i = 0; i < u->nsrc; i++) {
    uop *in = s[i] = u->src[i];
    if (!is_sum_of_activations(in)) continue;
    s[i] = t_contiguous(g, from_source(g, in));
    any = true;
  }
  return any ? uop_with_src(g, u, s) : NULL;
}

// --- halves ---------------------------------------------------------------------------------------------------------

// F16 reaches 65,504 and has full precision from 2^-14 on. Activations are divided by 64 because a few exceed 65,504.
// Small activations lose bits, which does not matter in a sum: those below 2^-8 are off by 2^-19 at most.
enum { HALF_DIVISOR = 64 };

// The type that this F32 was converted from; DT_VOID if it was not converted.
static enum dtype converted_from(uop *u) {
  while (repeats_or_reshapes(u)) u = u->src[0];
  return u->op == OP_CAST && u->dt == DT_F32 ? (enum dtype)u->src[0]->dt : DT_VOID;
}

// A single weight (not one of several) that is used as stored in the file.
static bool is_plain_weight(uop *u) {
  while ((op_flags((enum op)u->op) & OPF_MOVEMENT) || u->op == OP_CAST) u = u->src[0];
  return u->op == OP_BUFFER && u->memory == MEMORY_WEIGHT;
}

// An activation rounded to `dt`, below any EXPAND, so that it is rounded once for all of its products. tiles: a single
// row is rounded in the kernel that reads it.
static tensor *to_half(graph *g, uop *u, enum dtype dt, bool tiles) {
  uop *s[2 + MAX_DIMS];
  if (repeats_or_reshapes(u)) {
    for (size_t i = 1; i < u->nsrc; i++) s[i] = u->src[i];
    s[0] = to_half(g, u->src[0], dt, tiles);
    return uop_with_src(g, u, s);
  }
  bool read = tiles;
  for (int i = 0; i + 1 < u->shape->n; i++) read &= is_one(u->shape->dim[i]);
  if (dt == DT_F16) u = t_scale(g, u, 1.0 / HALF_DIVISOR);
  u = t_cast(g, u, dt);
  return t_cast(g, read ? u : t_contiguous(g, u), DT_F32);
}

// tiles: for tile instructions, which take F16 or BF16 and read weights as stored in the file; otherwise for BF16 dot
// instructions.
static uop *round_to_half(graph *g, uop *u, map *known, bool tiles) {
  uop *body = u->src[0], *to = NULL;
  map own = {0}, *memo = known ? known : &own;
  for (int i = 0; i < 2 && !to && u->a == OP_ADD && u->dt == DT_F32; i++) {
    uop *weight = body->src[i], *act = body->src[1 - i];
    enum dtype dt = converted_from(weight), had = converted_from(act);
    if ((dt != DT_BF16 && !(tiles && dt == DT_F16)) || had == DT_BF16 || (tiles && had == DT_F16) || !act->shape ||
        !(tiles ? is_plain_weight(weight) : is_constant(weight, memo)) || is_constant(act, memo))
      continue;
    tensor *rounded = to_half(g, act, dt, tiles);
    to =
      uop_with_src(g, u, (uop *[]){uop_with_src(g, body, i ? (uop *[]){rounded, weight} : (uop *[]){weight, rounded})});
    if (dt == DT_F16) to = t_scale(g, to, HALF_DIVISOR);
  }
  map_free(&own);
  return to;
}

static uop *round_for_dots(graph *g, uop *u, uop *const *v, void *ctx) {
  (void)v;
  return round_to_half(g, u, ((const wanted *)ctx)->constant, false);
}
static uop *round_for_tiles(graph *g, uop *u, uop *const *v, void *ctx) {
  (void)v;
  return round_to_half(g, u, ((const wanted *)ctx)->constant, true);
}

// --- the tables -----------------------------------------------------------------------------------------------------

#include "graph/rules.h"
#define SUM P1(REDUCE_AXIS, x)
#define SUM_OF(p) P1(REDUCE_AXIS, p)

RULES(dots_split, FLOATS) = { F( SUM, split_merged ) };
RULES_END(dots_split)
RULES(dots_spread, ANYTHING) = { F( x, spread_movement ) };
RULES_END(dots_spread)
RULES(dots_round, FLOATS) = { F( SUM_OF(MUL(x, y)), round_activation ) };
RULES_END(dots_round)
RULES(dots_factor, FLOATS | REASSOCIATING) = { F( SUM, nest ), F( SUM, factor ) };
RULES_END(dots_factor)
RULES(dots_integers, FLOATS | REASSOCIATING) = { F( SUM, sum_integers ) };
RULES_END(dots_integers)
RULES(dots_unsign, INTS) = { F( SUM_OF(MUL(x, y)), unsign ) };
RULES_END(dots_unsign)
RULES(dots_share, ANYTHING) = { F( x, share ) };
RULES_END(dots_share)
RULES(dots_bf16, FLOATS) = { F( SUM_OF(MUL(x, y)), round_for_dots ) };
RULES_END(dots_bf16)
RULES(dots_halves, FLOATS) = { F( SUM_OF(MUL(x, y)), round_for_tiles ) };
RULES_END(dots_halves)
#undef x

const dots_pass dots_passes[] = {
  {"split", {&dots_split}},
  {"spread", {&dots_spread}},
  {"round", {&dots_round, &dots_spread}},
  {"factor", {&dots_factor, &dots_spread}},
  {"integers", {&dots_integers, &dots_spread}},
  {"unsign", {&dots_unsign}},
  {"share", {&dots_share}},
  {NULL, {NULL}},
};

const dots_pass dots_bf16_pass = {"bf16", {&dots_bf16}};

uop *dots_run(graph *g, uop *u, const dots_pass *pass, dots_choice how) {
  return graph_rewrite(g, u, PM(pass->rules[0], pass->rules[1]), &(wanted){.how = how}, pass->name);
}

static uop *run_halves(graph *g, uop *sink, const ruleset *const *rules, const char *name) {
  map constant = {0};
  sink = graph_rewrite(g, sink, rules, &(wanted){.constant = &constant}, name);
  map_free(&constant);
  return sink;
}

uop *bf16_dots(graph *g, uop *sink) { return run_halves(g, sink, PM(&dots_bf16), dots_bf16_pass.name); }
uop *half_dots(graph *g, uop *sink) { return run_halves(g, sink, PM(&dots_halves), "halves"); }

// --- all of a graph -------------------------------------------------------------------------------------------------

// A placeholder for an activation: memory of equal shape. The passes then see one product without the nodes that led to
// it.
static tensor *stand_in(graph *g, const uop *u, int64_t id, enum dtype dt) {
  int64_t most[MAX_DIMS], n = 1;
  for (int i = 0; i < u->shape->n; i++) n *= most[i] = u->shape->dim[i]->vmax;
  tensor *t = t_reshape_i(g, t_buffer(g, id, dt, n), u->shape->n, most);
  for (int i = 0; i < u->shape->n; i++)
    if (u->shape->dim[i]->op != OP_CONST) t = t_slice(g, t, i, uop_idx(g, 0), u->shape->dim[i]);
  return t_contiguous(g, t);                      // a node that no pass looks through
}

static bool reads_integers(uop *u, map *seen) {
  if (map_has(seen, u)) return false;
  map_put(seen, u, (void *)1);
  if (from_integers(u)) return true;
  for (size_t i = 0; i < u->nsrc; i++) if (reads_integers(u->src[i], seen)) return true;
  return false;
}

// Layers differ only in their inputs, so inputs become placeholders and equal products are rewritten once. known:
// product of placeholders -> its result.
typedef struct rewriting { graph *g; arena *mem; map known, constant; dots_choice how; } rewriting;

typedef struct stands { map to, back, seen; int n; } stands;

static void stand_for(stands *s, uop *u, uop *stand) {
  map_put(&s->to, u, stand);
  map_put(&s->back, stand, u);
}

static void find_weights(rewriting *r, uop *u, stands *s) {
  graph *g = r->g;
  if (map_has(&s->seen, u)) return;
  map_put(&s->seen, u, u);
  if (u->op == OP_BUFFER)
    stand_for(s, u,
              uop_new(g, OP_BUFFER, (enum dtype)u->dt, 1, NULL, 0,
                      (uarg){.a = PLACEHOLDER - ++s->n, .b = u->b, .memory = (enum memory_kind)u->memory}));
  uop *by = u->op == OP_GATHER ? u->src[1] : NULL;
  if (by && by->shape && by->vmin < by->vmax && !is_constant(by, &r->constant)) {  // the index that selects a weight
    tensor *t = t_cast(g, stand_in(g, by, PLACEHOLDER - ++s->n, DT_I32), DT_IDX);
    stand_for(s, by, t_op2(g, OP_MIN, t_op2(g, OP_MAX, t, uop_idx(g, by->vmin)), uop_idx(g, by->vmax)));
    map_put(&s->seen, by, by);
  }
  for (size_t i = 0; i < u->nsrc; i++) find_weights(r, u->src[i], s);
}

// The sum of an activation times a quantised weight, rewritten; or u.
static uop *rewrite_dot(rewriting *r, uop *u) {
  if (u->op != OP_REDUCE_AXIS || u->a != OP_ADD || u->dt != DT_F32 || u->src[0]->op != OP_MUL) return u;
  uop *body = u->src[0];
  bool first = is_constant(body->src[0], &r->constant);
  uop *weight = body->src[first ? 0 : 1], *act = body->src[first ? 1 : 0];
  map seen = {0};
  stands t = {.n = 0};
  bool ok = is_constant(weight, &r->constant) && !is_constant(act, &r->constant) && reads_integers(weight, &seen);
  map_free(&seen);
  if (!ok) return u;
  // the activation itself, below any EXPAND, if its last axis is the summed one
  const uop *K = body->shape->dim[body->shape->n - 1];
  while (repeats_or_reshapes(act) && act->src[0]->shape->dim[act->src[0]->shape->n - 1] == K) act = act->src[0];
  if (!act->shape || act->dt != DT_F32) return u;
  stand_for(&t, act, stand_in(r->g, act, PLACEHOLDER, DT_F32));
  find_weights(r, weight, &t);
  uop *plain = uop_substitute(r->g, u, &t.to), *v = map_ptr(&r->known, plain);
  if (!v) {
    v = plain;
    for (const dots_pass *p = dots_passes; p->name; p++) v = dots_run(r->g, v, p, r->how);
    map_put(&r->known, plain, v);
  }
  v = uop_substitute(r->g, v, &t.back);
  map_free(&t.to); map_free(&t.back); map_free(&t.seen);
  return v;
}

uop *integer_dots(graph *g, uop *sink, dots_choice how) {
  rewriting r = {.g = g, .mem = arena_new(), .how = how};
  uop_list l = uop_toposort(r.mem, &sink, 1);
  map done = {0};
  for (size_t i = 0; i < l.n; i++) {
    uop *u = l.at[i], **s = ARENA_ARRAY(r.mem, uop *, u->nsrc + 1);
    for (size_t j = 0; j < u->nsrc; j++) s[j] = map_ptr(&done, u->src[j]);
    map_put(&done, u, rewrite_dot(&r, uop_with_src(g, u, s)));
  }
  uop *out = map_ptr(&done, sink);
  map_free(&done); map_free(&r.known); map_free(&r.constant);
  arena_free(r.mem);
  return out;
}
