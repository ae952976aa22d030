// Late rewrite rules. Transcendental functions become polynomials (no kernel calls a library). Floor division becomes
// shifts and C division. F16 conversions become integer arithmetic if the machine cannot convert; BF16 conversions
// always do. IDX becomes I64 or I32.
//
// exp2: x = n + f, n is the nearest integer and |f| <= 1/2; 2^f is a polynomial (Taylor series in ln 2, with enough
// terms for the type), and n is added to the exponent bits. sin: reduction by pi/2 in three parts (Cody-Waite), then
// the two Taylor polynomials. log2: exponent, and atanh series on the mantissa.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "codegen/decompose.h"
#include <math.h>
#include <stdlib.h>
#include "graph/symbolic.h"

// --- small constructors: constants take dtype and lanes from their partner ------------------------------------------

static uop *k(graph *g, const uop *like, double v) { return uop_const_like(g, like, v); }
static uop *ki(graph *g, enum dtype dt, int lanes, int64_t v) { return uop_splat(g, uop_int(g, dt, v), lanes); }
static uop *add(graph *g, uop *x, uop *y) { return uop_op2(g, OP_ADD, x, y); }
static uop *sub(graph *g, uop *x, uop *y) { return uop_op2(g, OP_SUB, x, y); }
static uop *mul(graph *g, uop *x, uop *y) { return uop_op2(g, OP_MUL, x, y); }
static uop *where(graph *g, uop *c, uop *x, uop *y) { return uop_op3(g, OP_WHERE, c, x, y); }
static uop *lt(graph *g, uop *x, uop *y) { return uop_op2(g, OP_CMPLT, x, y); }

// The rules get the target as their context; NULL: a target without special instructions.
static uop *multiply_add(graph *g, uop *x, uop *y, uop *z, const target *t) {
  return t && t->has_fma ? uop_op3(g, OP_FMA, x, y, z) : add(g, mul(g, x, y), z);
}

static uop *horner(graph *g, uop *x, const double *c, int n, const target *t) {        // c[0] + c[1] x + ...
  uop *p = k(g, x, c[n - 1]);
  for (int i = n - 1; i-- > 0;) p = multiply_add(g, p, x, k(g, x, c[i]), t);
  return p;
}

static int mantissa_bits(enum dtype d) { return d == DT_F64 ? 52 : 23; }
static int exponent_bias(enum dtype d) { return d == DT_F64 ? 1023 : 127; }
static enum dtype int_of(enum dtype d) { return d == DT_F64 ? DT_I64 : DT_I32; }

// Adds n to the exponent bits of p = 2^f, which is about 1: no multiplication is needed. The largest x is an exact
// power and becomes infinity by this addition. Results that would be subnormal are computed 2^64 times too large and
// rounded once.
static uop *make_exp2(graph *g, uop *u, uop *const *v, void *ctx) {
  (void)v;
  enum dtype d = (enum dtype)u->dt, i = int_of(d);
  if (d != DT_F32 && d != DT_F64) return NULL;
  int m = mantissa_bits(d), lanes = u->lanes, terms = d == DT_F64 ? 14 : 8;
  // `most` gives infinity; `least` gives less than half of the smallest number
  double most = exponent_bias(d) + 1, least = -most - m, c[16];
  c[0] = 1;
  for (int j = 1; j < terms; j++) c[j] = c[j - 1] * M_LN2 / j;
  uop *x = u->src[0], *top = k(g, x, most), *bottom = k(g, x, least);
  uop *y = where(g, lt(g, x, top), x, top);
  y = where(g, lt(g, bottom, y), y, bottom);
  uop *n = uop_op1(g, OP_FLOOR, add(g, y, k(g, x, 0.5))), *whole = uop_cast(g, n, i);
  uop *p = horner(g, sub(g, y, n), c, terms, ctx);
  uop *small = lt(g, n, k(g, x, 3 - most));
  whole = where(g, small, add(g, whole, ki(g, i, lanes, 64)), whole);
  // If the result is smaller than any number, p is 1 and its exponent is subtracted, which gives 0, safe to multiply.
  // (Multiplications with subnormal results are up to 100 times slower, and softmax has many.)
  whole = where(g, lt(g, bottom, y), whole, ki(g, i, lanes, -exponent_bias(d)));
  uop *r = uop_bitcast(g, add(g, uop_bitcast(g, p, i), mul(g, whole, ki(g, i, lanes, (int64_t)1 << m))), d);
  r = where(g, small, mul(g, r, k(g, x, 0x1p-64)), r);
  return where(g, uop_op2(g, OP_CMPNE, x, x), x, r);
}

static uop *make_log2(graph *g, uop *u, uop *const *v, void *ctx) {
  (void)v;
  enum dtype d = (enum dtype)u->dt, i = int_of(d);
  if (d != DT_F32 && d != DT_F64) return NULL;
  uop *x = u->src[0];
  int m = mantissa_bits(d);
  double lift = d == DT_F64 ? 0x1p60 : 0x1p30, tiny = d == DT_F64 ? 0x1p-1022 : 0x1p-126;
  uop *small = lt(g, x, k(g, x, tiny));
  uop *y = where(g, small, mul(g, x, k(g, x, lift)), x);
  uop *bits = uop_bitcast(g, y, i);
  uop *e = sub(g, uop_op2(g, OP_SHR, bits, ki(g, i, x->lanes, m)), ki(g, i, x->lanes, exponent_bias(d)));
  uop *frac = uop_op2(g, OP_OR, uop_op2(g, OP_AND, bits, ki(g, i, x->lanes, ((int64_t)1 << m) - 1)),
                      ki(g, i, x->lanes, (int64_t)exponent_bias(d) << m));
  uop *f = uop_bitcast(g, frac, d);                                    // in [1, 2)
  uop *big = lt(g, k(g, x, M_SQRT2), f);
  f = where(g, big, mul(g, f, k(g, x, 0.5)), f);
  uop *n = add(g, uop_cast(g, e, d), where(g, big, k(g, x, 1), k(g, x, 0)));
  n = where(g, small, sub(g, n, k(g, x, log2(lift))), n);
  uop *t = uop_op2(g, OP_FDIV, sub(g, f, k(g, x, 1)), add(g, f, k(g, x, 1))), *t2 = mul(g, t, t);
  double c[12];
  int terms = d == DT_F64 ? 11 : 5;
  for (int j = 0; j < terms; j++) c[j] = 2 / M_LN2 / (2 * j + 1);
  uop *r = multiply_add(g, t, horner(g, t2, c, terms, ctx), n, ctx);
  r = where(g, uop_op2(g, OP_CMPEQ, x, k(g, x, 0)), k(g, x, -INFINITY), r);
  r = where(g, lt(g, x, k(g, x, 0)), k(g, x, NAN), r);
  r = where(g, uop_op2(g, OP_CMPEQ, x, k(g, x, INFINITY)), x, r);
  return where(g, uop_op2(g, OP_CMPNE, x, x), x, r);
}

static uop *make_sin(graph *g, uop *u, uop *const *v, void *ctx) {
  (void)v;
  enum dtype d = (enum dtype)u->dt;
  // angles need double precision
  if (d == DT_F32) return uop_cast(g, uop_op1(g, OP_SIN, uop_cast(g, u->src[0], DT_F64)), DT_F32);
  if (d != DT_F64) return NULL;
  uop *x = u->src[0];
  uop *n = uop_op1(g, OP_FLOOR, add(g, mul(g, x, k(g, x, M_2_PI)), k(g, x, 0.5)));
  // pi/2 in three parts of 33 bits, so that n times a part is exact for |n| < 2^20
  uop *r = sub(g, x, mul(g, n, k(g, x, 0x1.921fb544p+0)));
  r = sub(g, r, mul(g, n, k(g, x, 0x1.0b4611a6p-34)));
  r = sub(g, r, mul(g, n, k(g, x, 0x1.3198a2e037073p-69)));
  uop *r2 = mul(g, r, r), *q = uop_cast(g, n, DT_I64);
  double s[9], c[10];
  s[0] = c[0] = 1;
  for (int i = 1; i < 9; i++) s[i] = -s[i - 1] / (2 * i) / (2 * i + 1);
  for (int i = 1; i < 10; i++) c[i] = -c[i - 1] / (2 * i - 1) / (2 * i);
  uop *sine = mul(g, r, horner(g, r2, s, 9, ctx)), *cosine = horner(g, r2, c, 10, ctx);
  uop *odd = uop_op2(g, OP_CMPNE, uop_op2(g, OP_AND, q, ki(g, DT_I64, x->lanes, 1)), ki(g, DT_I64, x->lanes, 0));
  uop *flip = uop_op2(g, OP_CMPNE, uop_op2(g, OP_AND, q, ki(g, DT_I64, x->lanes, 2)), ki(g, DT_I64, x->lanes, 0));
  uop *w = where(g, odd, cosine, sine);
  return where(g, flip, uop_op1(g, OP_NEG, w), w);
}

// Rounds through integers, which hold every float that has a fraction.
static uop *make_trunc(graph *g, uop *u, uop *const *v, void *ctx) {
  (void)v; (void)ctx;
  enum dtype d = (enum dtype)u->dt;
  if (d != DT_F32 && d != DT_F64) return NULL;
  uop *x = u->src[0], *big = k(g, x, d == DT_F64 ? 0x1p52 : 0x1p23);
  uop *small = uop_op2(g, OP_AND, lt(g, x, big), lt(g, uop_op1(g, OP_NEG, big), x));
  uop *whole = uop_cast(g, uop_cast(g, where(g, small, x, k(g, x, 0)), int_of(d)), d);
  return where(g, small, whole, x);
}

static uop *make_floor(graph *g, uop *u, uop *const *v, void *ctx) {
  (void)v; (void)ctx;
  uop *x = u->src[0], *t = uop_op1(g, OP_TRUNC, x);
  return where(g, lt(g, x, t), sub(g, t, k(g, x, 1)), t);
}

static uop *make_recip(graph *g, uop *u, uop *const *v, void *ctx) {
  (void)v; (void)ctx;
  return uop_op2(g, OP_FDIV, k(g, u, 1), u->src[0]);
}

// --- integers -------------------------------------------------------------------------------------------------------

static uop *floor_divide(graph *g, uop *u, uop *const *v, void *ctx) {
  (void)ctx; (void)v;
  uop *x = u->src[0], *y = u->src[1];
  const uop *c = uop_unsplat(y);
  bool divides = u->op == OP_IDIV;
  enum dtype d = (enum dtype)u->dt;
  if (c->op == OP_CONST && c->a > 0 && !(c->a & (c->a - 1)) && (x->vmin >= 0 || !dtype_is_unsigned(d))) {
    int shift = __builtin_ctzll((unsigned long long)c->a);
    return divides ? uop_op2(g, OP_SHR, x, ki(g, d, u->lanes, shift))
                   : uop_op2(g, OP_AND, x, ki(g, d, u->lanes, c->a - 1));
  }
  if ((x->vmin >= 0 && y->vmin > 0) || dtype_is_unsigned(d)) return uop_op2(g, divides ? OP_CDIV : OP_CMOD, x, y);
  // C rounds toward zero: subtract one if the remainder is not 0 and the signs differ
  uop *zero = ki(g, d, u->lanes, 0), *m = uop_op2(g, OP_CMOD, x, y);
  uop *off = uop_op2(g, OP_AND, uop_op2(g, OP_CMPNE, m, zero), uop_op2(g, OP_CMPNE, lt(g, m, zero), lt(g, y, zero)));
  if (!divides) return where(g, off, add(g, m, y), m);
  uop *q = uop_op2(g, OP_CDIV, x, y);
  return where(g, off, sub(g, q, ki(g, d, u->lanes, 1)), q);
}

// --- dot products ---------------------------------------------------------------------------------------------------

// Part j of the k parts of each word in x, moved to the highest bits; integers are then shifted down, with or without
// sign.
static uop *part_of_word(graph *g, uop *x, int j, int k, enum dtype as) {
  int n = x->lanes;
  x = uop_op2(g, OP_SHL, x, ki(g, DT_U32, n, (k - 1 - j) * 32 / k));
  if (as == DT_F32) return uop_bitcast(g, uop_op2(g, OP_AND, x, ki(g, DT_U32, n, 0xffff0000)), DT_F32);
  return uop_bitcast(g, uop_op2(g, OP_SHR, uop_bitcast(g, x, as), ki(g, as, n, 24)), DT_I32);
}

// Reinterprets lanes as more or fewer lanes with equal bits.
static uop *as_lanes(graph *g, uop *x, enum dtype dt, int n) { return uop_new(g, OP_BITCAST, dt, n, &x, 1, (uarg){0}); }

// A vector multiplies twice as many 16-bit numbers at a time as 32-bit ones, and a product of bytes fits in 16 bits.
// Even bytes are multiplied first, then odd bytes. The two products of a word are added in 16 bits if two fit,
// otherwise as two halves.
static uop *dot_in_halves(graph *g, uop *u) {
  int n = u->lanes;
  uop *x = as_lanes(g, u->src[1], DT_U16, 2 * n), *y = as_lanes(g, u->src[2], DT_I16, 2 * n), *p[2], *sum = u->src[0];
  uop *eight = ki(g, DT_U16, 2 * n, 8), *shift = ki(g, DT_I16, 2 * n, 8), *half = ki(g, DT_I32, n, 16);
  p[0] = mul(g, uop_bitcast(g, uop_op2(g, OP_AND, x, ki(g, DT_U16, 2 * n, 255)), DT_I16),
             uop_op2(g, OP_SHR, uop_op2(g, OP_SHL, y, shift), shift));
  p[1] = mul(g, uop_bitcast(g, uop_op2(g, OP_SHR, x, eight), DT_I16), uop_op2(g, OP_SHR, y, shift));
  bool two = 2 * 128 * u->src[1]->vmax <= INT16_MAX;
  if (two) p[0] = add(g, p[0], p[1]);
  for (int i = 0; i < (two ? 1 : 2); i++) {
    uop *both = as_lanes(g, p[i], DT_I32, n);
    sum = add(g, sum, add(g, uop_op2(g, OP_SHR, both, half),
                          uop_op2(g, OP_SHR, uop_op2(g, OP_SHL, both, half), half)));
  }
  return sum;
}

// Writes a dot product as multiplications and additions if there is no instruction for it. Shifts extract the parts of
// a lane, so bytes need not move between lanes.
static uop *plain_dot(graph *g, uop *u, uop *const *v, void *ctx) {
  (void)v;
  const target *t = ctx;
  int n = u->lanes, k = u->src[1]->lanes / n;
  if (t && !t->has_local && u->dt == DT_I32 && u->src[1]->dt == DT_U8) return dot_in_halves(g, u);
  uop *sum = u->src[0], *b = u->src[2], *words = uop_new(g, OP_BITCAST, DT_U32, n, &u->src[1], 1, (uarg){0});
  bool floats = u->dt != DT_I32, is_unsigned = dtype_is_unsigned((enum dtype)u->src[1]->dt);
  for (int j = 0; j < k; j++) {
    uop *x = part_of_word(g, words, j, k,
                          floats        ? DT_F32
                          : is_unsigned ? DT_U32
                                   : DT_I32),
        *y = part_of_word(g, b, j, k, floats ? DT_F32 : DT_I32);
    sum = add(g, sum, mul(g, x, y));
  }
  return sum;
}

// --- bytes in words -------------------------------------------------------------------------------------------------

// A word with `byte` in each of its bytes.
static uop *in_each(graph *g, int lanes, int64_t byte) { return ki(g, DT_U32, lanes, (byte & 255) * 0x01010101); }

static uop *words_of(graph *g, uop *x) {
  const uop *c = uop_unsplat(x);
  int n = x->lanes / 4;
  if (c->op == OP_CONST) return in_each(g, n, c->a);
  if (x->op == OP_BITCAST && x->src[0]->dt == DT_U32) return x->src[0];
  return uop_new(g, OP_BITCAST, DT_U32, n, &x, 1, (uarg){0});
}

// A GPU work-item has no byte vectors: bitwise operations, shifts and loads take four bytes at a time.
static uop *bytes_in_words(graph *g, uop *u, uop *const *v, void *ctx) {
  (void)v; (void)ctx;
  if (u->lanes % 4 || u->dt != DT_U8) return NULL;
  int n = u->lanes / 4;
  uop *r;
  if (u->op == OP_LOAD) {
    if (u->src[0]->lanes > 1) return NULL;
    r = uop_new(g, OP_LOAD, DT_U32, n, u->src, u->nsrc, (uarg){0});
  } else if (u->op == OP_SHL || u->op == OP_SHR) {
    const uop *by = uop_unsplat(u->src[1]);
    if (by->op != OP_CONST) return NULL;
    r = uop_op2(g, (enum op)u->op, words_of(g, u->src[0]), ki(g, DT_U32, n, by->a));
    r = uop_op2(g, OP_AND, r, in_each(g, n, u->op == OP_SHL ? 255 << by->a : 255 >> by->a));
  } else r = uop_op2(g, (enum op)u->op, words_of(g, u->src[0]), words_of(g, u->src[1]));
  return uop_new(g, OP_BITCAST, DT_U8, u->lanes, &r, 1, (uarg){0});
}

// --- half floats ----------------------------------------------------------------------------------------------------

static uop *f16_to_f32(graph *g, uop *u, uop *const *v, void *ctx) {
  (void)v; (void)ctx;
  uop *x = u->src[0];
  if (x->dt != DT_F16) return NULL;
  int n = u->lanes;
  if (u->dt != DT_F32) return uop_cast(g, uop_cast(g, x, DT_F32), (enum dtype)u->dt);
  uop *h = uop_cast(g, uop_bitcast(g, x, DT_U16), DT_U32);
  uop *sign = uop_op2(g, OP_SHL, uop_op2(g, OP_AND, h, ki(g, DT_U32, n, 0x8000)), ki(g, DT_U32, n, 16));
  uop *mag = uop_op2(g, OP_AND, h, ki(g, DT_U32, n, 0x7fff));
  // the exponent grows by 112; subnormals are small integers times 2^-24; infinities and NaNs get the largest exponent
  uop *normal = uop_op2(g, OP_ADD, uop_op2(g, OP_SHL, mag, ki(g, DT_U32, n, 13)), ki(g, DT_U32, n, 112u << 23));
  uop *special = uop_op2(g, OP_OR, uop_op2(g, OP_SHL, mag, ki(g, DT_U32, n, 13)), ki(g, DT_U32, n, 0x7f800000));
  uop *sub_normal =
    uop_bitcast(g, mul(g, uop_cast(g, mag, DT_F32), uop_splat(g, uop_float(g, DT_F32, 0x1p-24), n)), DT_U32);
  uop *bits = where(g, lt(g, mag, ki(g, DT_U32, n, 0x400)), sub_normal,
                    where(g, lt(g, mag, ki(g, DT_U32, n, 0x7c00)), normal, special));
  return uop_bitcast(g, uop_op2(g, OP_OR, bits, sign), DT_F32);
}

static uop *f32_to_f16(graph *g, uop *u, uop *const *v, void *ctx) {
  (void)v; (void)ctx;
  if (u->dt != DT_F16) return NULL;
  uop *x = u->src[0];
  if (x->dt != DT_F32) return uop_cast(g, uop_cast(g, x, DT_F32), DT_F16);
  int n = u->lanes;
  uop *b = uop_bitcast(g, x, DT_U32);
  uop *sign = uop_op2(g, OP_SHR, uop_op2(g, OP_AND, b, ki(g, DT_U32, n, 0x80000000ll)), ki(g, DT_U32, n, 16));
  uop *mag = uop_op2(g, OP_AND, b, ki(g, DT_U32, n, 0x7fffffff));
  uop *odd = uop_op2(g, OP_AND, uop_op2(g, OP_SHR, mag, ki(g, DT_U32, n, 13)), ki(g, DT_U32, n, 1));
  uop *rounded = add(g, add(g, mag, ki(g, DT_U32, n, 0xfff)), odd);
  uop *normal = sub(g, uop_op2(g, OP_SHR, rounded, ki(g, DT_U32, n, 13)), ki(g, DT_U32, n, 112u << 10));
  // below 2^-14: adding 0.5 makes the float unit round at the right bit
  uop *lifted = add(g, uop_bitcast(g, mag, DT_F32), uop_splat(g, uop_float(g, DT_F32, 0.5), n));
  uop *sub_normal = sub(g, uop_bitcast(g, lifted, DT_U32), ki(g, DT_U32, n, 0x3f000000));
  uop *nan = lt(g, ki(g, DT_U32, n, 0x7f800000), mag);
  uop *r = where(g, lt(g, mag, ki(g, DT_U32, n, 113u << 23)), sub_normal,
                 where(g, lt(g, mag, ki(g, DT_U32, n, 0x477ff000)), normal, ki(g, DT_U32, n, 0x7c00)));
  uop *payload =
    uop_op2(g, OP_OR, uop_op2(g, OP_AND, uop_op2(g, OP_SHR, mag, ki(g, DT_U32, n, 13)), ki(g, DT_U32, n, 0x3ff)),
            ki(g, DT_U32, n, 0x7e00));
  r = where(g, nan, payload, r);
  return uop_bitcast(g, uop_cast(g, uop_op2(g, OP_OR, r, sign), DT_U16), DT_F16);
}

// Machines convert F16 only to and from F32.
static uop *half_through_f32(graph *g, uop *u, uop *const *v, void *ctx) {
  (void)v; (void)ctx;
  uop *x = u->src[0];
  if ((x->dt != DT_F16 || u->dt == DT_F32) && (u->dt != DT_F16 || x->dt == DT_F32)) return NULL;
  return uop_cast(g, uop_cast(g, x, DT_F32), (enum dtype)u->dt);
}

static uop *bf16_to_float(graph *g, uop *u, uop *const *v, void *ctx) {
  (void)v; (void)ctx;
  uop *x = u->src[0];
  if (x->dt != DT_BF16) return NULL;
  uop *f = uop_bitcast(
    g, uop_op2(g, OP_SHL, uop_cast(g, uop_bitcast(g, x, DT_U16), DT_U32), ki(g, DT_U32, u->lanes, 16)), DT_F32);
  return uop_cast(g, f, (enum dtype)u->dt);
}

static uop *float_to_bf16(graph *g, uop *u, uop *const *v, void *ctx) {
  (void)v; (void)ctx;
  if (u->dt != DT_BF16) return NULL;
  int n = u->lanes;
  uop *b = uop_bitcast(g, uop_cast(g, u->src[0], DT_F32), DT_U32);
  uop *odd = uop_op2(g, OP_AND, uop_op2(g, OP_SHR, b, ki(g, DT_U32, n, 16)), ki(g, DT_U32, n, 1));
  uop *r = uop_op2(g, OP_SHR, add(g, add(g, b, ki(g, DT_U32, n, 0x7fff)), odd), ki(g, DT_U32, n, 16));
  uop *nan = lt(g, ki(g, DT_U32, n, 0x7f800000), uop_op2(g, OP_AND, b, ki(g, DT_U32, n, 0x7fffffff)));
  uop *quiet = uop_op2(g, OP_OR, uop_op2(g, OP_SHR, b, ki(g, DT_U32, n, 16)), ki(g, DT_U32, n, 0x40));
  return uop_bitcast(g, uop_cast(g, where(g, nan, quiet, r), DT_U16), DT_BF16);
}

#include "graph/rules.h"

RULES(late_integer, INTS) = {
  F( IDIV(x, y),             floor_divide ),
  F( MOD(x, y),              floor_divide ),
};
RULES_END(late_integer)

RULES(late_float, FLOATS | REASSOCIATING) = {
  F( EXP2(x),                make_exp2 ),
  F( LOG2(x),                make_log2 ),
  F( SIN(x),                 make_sin ),
  F( RECIP(x),               make_recip ),
};
RULES_END(late_float)

RULES(late_half, ANYTHING) = {
  F( CAST(x),                f16_to_f32 ),
  F( CAST(x),                f32_to_f16 ),
};
RULES_END(late_half)

RULES(late_bf16, ANYTHING) = {
  F( CAST(x),                half_through_f32 ),
  F( CAST(x),                bf16_to_float ),
  F( CAST(x),                float_to_bf16 ),
};
RULES_END(late_bf16)

RULES(late_round, FLOATS) = {
  F( TRUNC(x),               make_trunc ),
  F( FLOOR(x),               make_floor ),
};
RULES_END(late_round)

RULES(late_dot, ANYTHING) = {
  F( P3(DOT, x, y, z),      plain_dot ),
};
RULES_END(late_dot)

RULES(late_bytes, INTS) = {
  F( P1(LOAD, x),            bytes_in_words ),
  F( AND(x, y),              bytes_in_words ),
  F( OR(x, y),               bytes_in_words ),
  F( XOR(x, y),              bytes_in_words ),
  F( SHL(x, y),              bytes_in_words ),
  F( SHR(x, y),              bytes_in_words ),
};
RULES_END(late_bytes)

#undef x
#undef y
#undef z
#undef w

// --- machine types --------------------------------------------------------------------------------------------------

static bool all_fit_i32(const uop_list *l) {
  for (size_t i = 0; i < l->n; i++)
    if (l->at[i]->dt == DT_IDX && l->at[i]->op != OP_INVALID &&
        (l->at[i]->vmin < INT32_MIN || l->at[i]->vmax > INT32_MAX))
      return false;
  return true;
}

// Converts IDX to I64 or I32: every IDX node is rebuilt with that type, and casts to and from it become integer casts.
// BF16 memory becomes U16.
static uop *machine_types(graph *g, uop *root, const target *t) {
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &root, 1);
  enum dtype idx = t->index32 && all_fit_i32(&l) ? DT_I32 : DT_I64;
  map done = {0};
  for (size_t i = 0; i < l.n; i++) {
    uop *u = l.at[i], **s = ARENA_ARRAY(a, uop *, u->nsrc + 1), *to;
    for (size_t j = 0; j < u->nsrc; j++) s[j] = map_ptr(&done, u->src[j]);
    enum dtype dt = u->dt == DT_IDX ? idx : u->dt == DT_BF16 ? DT_U16 : (enum dtype)u->dt;
    if (u->op == OP_CAST && s[0]->dt == dt) to = s[0];
    else if (u->op == OP_BITCAST && s[0]->dt == dt) to = s[0];
    else if (u->op == OP_VAR && idx == DT_I32)
      to = uop_cast(g, uop_new(g, OP_VAR, DT_I64, 1, NULL, 0, uop_arg(u)), idx);
    else to = uop_new(g, (enum op)u->op, dt, u->lanes, s, u->nsrc, uop_arg(u));
    map_put(&done, u, to);
  }
  uop *r = map_ptr(&done, root);
  map_free(&done);
  arena_free(a);
  return r;
}

uop *decompose(graph *g, uop *ast, const target *t) {
  if (t->keeps_math) return ast;
  const ruleset *sets[12] = {SYMBOLIC, &late_integer, &late_float, &late_bf16};
  int n = 7;
  if (!t->has_f16) sets[n++] = &late_half;
  if (!t->descriptors) sets[n++] = &late_dot;
  if (t->has_local) sets[n++] = &late_bytes;
  if (t->lacks_round) sets[n++] = &late_round;
  ast = graph_rewrite(g, ast, sets, (void *)(uintptr_t)t, "decompose");
  return machine_types(g, ast, t);
}
