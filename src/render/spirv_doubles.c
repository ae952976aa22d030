// Emulated doubles in SPIR-V for devices without them: see spirv_impl.h.
//
// An F64 is a 64-bit integer with its bits. The algorithms are those of soft_doubles.c, to the last bit, without
// branches: unneeded cases are computed and not selected, and no shift exceeds 63. Everything is a u64 or a bool;
// exponents are u64 that wrap. A module contains each function that it calls once, after the functions that it calls.
#include <string.h>
#include "render/spirv_impl.h"

static const uint64_t TOP = 1ull << 63, INF = 0x7ff0000000000000, NOT_A_NUMBER = 0x7ff8000000000000,
                      ONE = 0x3ff0000000000000, MINUS_ONE = 0xbff0000000000000;

// ---- helpers --------------------------------------------------------------------------------------------------------

static spv_id is64(spv *s, uint64_t v) { return spv_const(s, 8, v); }
static spv_id of(spv *s, enum spv_op op, spv_id x, spv_id y) { return SPV_MAKE(s, op, spv_uint(s, 8), x, y); }
static spv_id test(spv *s, enum spv_op op, spv_id x, spv_id y) { return SPV_MAKE(s, op, spv_bool(s), x, y); }
static spv_id pick64(spv *s, spv_id cond, spv_id x, spv_id y) {
  return SPV_MAKE(s, SPV_SELECT, spv_uint(s, 8), cond, x, y);
}

static spv_id add64(spv *s, spv_id x, spv_id y) { return of(s, SPV_I_ADD, x, y); }
static spv_id sub64(spv *s, spv_id x, spv_id y) { return of(s, SPV_I_SUB, x, y); }
static spv_id mul64(spv *s, spv_id x, spv_id y) { return of(s, SPV_I_MUL, x, y); }
static spv_id and(spv *s, spv_id x, spv_id y) { return of(s, SPV_AND, x, y); }
static spv_id or(spv *s, spv_id x, spv_id y) { return of(s, SPV_OR, x, y); }
static spv_id xor(spv *s, spv_id x, spv_id y) { return of(s, SPV_XOR, x, y); }
// shifts by n modulo 64
static spv_id left64(spv *s, spv_id x, spv_id n) { return of(s, SPV_SHIFT_LEFT, x, and(s, n, is64(s, 63))); }
static spv_id right64(spv *s, spv_id x, spv_id n) { return of(s, SPV_SHIFT_U, x, and(s, n, is64(s, 63))); }
static spv_id left_by(spv *s, spv_id x, uint64_t n) { return of(s, SPV_SHIFT_LEFT, x, is64(s, n)); }
static spv_id right_by(spv *s, spv_id x, uint64_t n) { return of(s, SPV_SHIFT_U, x, is64(s, n)); }

static spv_id equal64(spv *s, spv_id x, spv_id y) { return test(s, SPV_I_EQUAL, x, y); }
static spv_id below64(spv *s, spv_id x, spv_id y) { return test(s, SPV_U_LESS, x, y); }
static spv_id less64(spv *s, spv_id x, spv_id y) { return test(s, SPV_S_LESS, x, y); }
static spv_id zero(spv *s, spv_id x) { return equal64(s, x, is64(s, 0)); }
static spv_id some(spv *s, spv_id x) { return test(s, SPV_I_NOT_EQUAL, x, is64(s, 0)); }
static spv_id both64(spv *s, spv_id x, spv_id y) { return test(s, SPV_LOGICAL_AND, x, y); }
static spv_id either64(spv *s, spv_id x, spv_id y) { return test(s, SPV_LOGICAL_OR, x, y); }
static spv_id not(spv *s, spv_id x) { return SPV_MAKE(s, SPV_LOGICAL_NOT, spv_bool(s), x); }
static spv_id one_if(spv *s, spv_id cond) { return pick64(s, cond, is64(s, 1), is64(s, 0)); }

// ---- parts of a number with absolute value m * 2^e ------------------------------------------------------------------

static spv_id size_of64(spv *s, spv_id x) { return and(s, x, is64(s, ~TOP)); }
static spv_id sign_of(spv *s, spv_id x) { return and(s, x, is64(s, TOP)); }
static spv_id field_of(spv *s, spv_id x) { return and(s, right_by(s, x, 52), is64(s, 0x7ff)); }

static spv_id exponent_of(spv *s, spv_id x) {
  spv_id f = field_of(s, x);
  return sub64(s, pick64(s, zero(s, f), is64(s, 1), f), is64(s, 1075));
}

static spv_id whole_of64(spv *s, spv_id x) {
  spv_id m = and(s, x, is64(s, 0xfffffffffffff));
  return pick64(s, zero(s, field_of(s, x)), m, or(s, m, is64(s, 1ull << 52)));
}

// Number of leading zeros; unspecified for 0.
static spv_id zeros_of64(spv *s, spv_id x) {
  spv_id u32 = spv_uint(s, 4), top = right_by(s, x, 32), small = zero(s, top), word = pick64(s, small, x, top);
  spv_id first = spv_ext(s, SPV_EXT_FIND_U_MSB, u32, SPV_MAKE(s, SPV_U_CONVERT, u32, word));
  return sub64(s, pick64(s, small, is64(s, 63), is64(s, 31)), SPV_MAKE(s, SPV_U_CONVERT, spv_uint(s, 8), first));
}

static spv_id is_nan(spv *s, spv_id x) { return below64(s, is64(s, INF), size_of64(s, x)); }
static spv_id is_inf(spv *s, spv_id size) { return equal64(s, size, is64(s, INF)); }

// ---- the functions --------------------------------------------------------------------------------------------------

static spv_id call_double(spirv *c, enum spirv_double what, size_t n, const spv_id *x);
#define CALL(c, what, ...) call_double(c, what, COUNT(((spv_id[]){__VA_ARGS__})), (spv_id[]){__VA_ARGS__})

// m, drop, rest: m without its last bits, rounded to nearest, ties to even
static spv_id make_round(spirv *c, const spv_id *x) {
  spv *s = &c->s;
  spv_id m = x[0], drop = x[1], few = below64(s, drop, is64(s, 64)), half_way = is64(s, TOP);
  spv_id q = pick64(s, few, right64(s, m, drop), is64(s, 0)),
         cut = pick64(s, few, left64(s, m, sub64(s, is64(s, 64), drop)), m);
  spv_id odd = some(s, or(s, x[2], and(s, q, is64(s, 1))));
  spv_id up = either64(s, below64(s, half_way, cut), both64(s, equal64(s, cut, half_way), odd));
  return pick64(s, below64(s, is64(s, 64), drop), is64(s, 0), add64(s, q, one_if(s, up)));
}

// sign, e, m, rest: packs m * 2^e; rest: some lower bits were lost
static spv_id make_pack(spirv *c, const spv_id *x) {
  spv *s = &c->s;
  spv_id sign = x[0], m = x[2], n = zeros_of64(s, m), field = add64(s, sub64(s, x[1], n), is64(s, 1086));
  spv_id normal = less64(s, is64(s, 0), field);
  spv_id drop = pick64(s, normal, is64(s, 11), sub64(s, is64(s, 12), field));
  spv_id rounded = CALL(c, SPIRV_DOUBLE_ROUND, left64(s, m, n), drop, x[3]);
  spv_id r = add64(s, left_by(s, pick64(s, normal, sub64(s, field, is64(s, 1)), is64(s, 0)), 52), rounded);
  r = pick64(s, less64(s, field, is64(s, 0x7ff)), r, is64(s, INF));
  return or(s, sign, pick64(s, zero(s, m), is64(s, 0), r));
}

// x >> (64 - n), n of 0..63
static spv_id over64(spv *s, spv_id x, spv_id n) { return right64(s, right_by(s, x, 1), sub64(s, is64(s, 63), n)); }
// x << (64 - n), n of 0..63
static spv_id under64(spv *s, spv_id x, spv_id n) { return left64(s, left_by(s, x, 1), sub64(s, is64(s, 63), n)); }

// sign, e, hi, lo
static spv_id make_pack128(spirv *c, const spv_id *x) {
  spv *s = &c->s;
  spv_id e = x[1], hi = x[2], lo = x[3], n = zeros_of64(s, hi), small = zero(s, hi);
  spv_id m = or(s, left64(s, hi, n), over64(s, lo, n)), rest = pick64(s, small, is64(s, 0), left64(s, lo, n));
  spv_id more = sub64(s, add64(s, e, is64(s, 64)), n);
  return CALL(c, SPIRV_DOUBLE_PACK, x[0], pick64(s, small, e, more), pick64(s, small, lo, m), rest);
}

// A 128-bit number with an exponent and a sign.
typedef struct wide { spv_id sign, e, hi, lo; } wide;

static wide pick_wide(spv *s, spv_id cond, wide a, wide b) {
  return (wide){pick64(s, cond, a.sign, b.sign), pick64(s, cond, a.e, b.e), pick64(s, cond, a.hi, b.hi),
                pick64(s, cond, a.lo, b.lo)};
}

// The product of the absolute values x and y, both not 0, with its first bit at 126.
static wide wide_product(spv *s, spv_id sign, spv_id x, spv_id y) {
  spv_id m = whole_of64(s, x), n = whole_of64(s, y), word = is64(s, 0xffffffff);
  spv_id m0 = and(s, m, word), m1 = right_by(s, m, 32), n0 = and(s, n, word), n1 = right_by(s, n, 32);
  spv_id low = mul64(s, m0, n0), one = add64(s, mul64(s, m1, n0), right_by(s, low, 32)),
         two = add64(s, mul64(s, m0, n1), and(s, one, word));
  spv_id hi = add64(s, add64(s, mul64(s, m1, n1), right_by(s, one, 32)), right_by(s, two, 32)),
         lo = or(s, left_by(s, two, 32), and(s, low, word));
  spv_id k = pick64(s, zero(s, hi), add64(s, zeros_of64(s, lo), is64(s, 64)), zeros_of64(s, hi));
  k = sub64(s, k, is64(s, 1));
  spv_id far = below64(s, is64(s, 63), k), up = left64(s, lo, k);
  hi = pick64(s, far, up, or(s, left64(s, hi, k), over64(s, lo, k)));
  return (wide){sign, sub64(s, add64(s, exponent_of(s, x), exponent_of(s, y)), k), hi, pick64(s, far, is64(s, 0), up)};
}

// Shifts b down to the exponent of a; lost bits set the last bit.
static wide lowered64(spv *s, wide a, wide b) {
  spv_id d = sub64(s, a.e, b.e), far = below64(s, is64(s, 127), d), apart = below64(s, is64(s, 63), d);
  spv_id n = and(s, d, is64(s, 63)), lost = pick64(s, apart, or(s, b.lo, under64(s, b.hi, n)), under64(s, b.lo, n));
  spv_id high = right64(s, b.hi, n), low = or(s, right64(s, b.lo, n), under64(s, b.hi, n));
  spv_id hi = pick64(s, apart, is64(s, 0), high), lo = pick64(s, far, is64(s, 0), pick64(s, apart, high, low));
  spv_id rest = one_if(s, either64(s, far, some(s, lost)));
  return (wide){b.sign, a.e, hi, or(s, lo, rest)};
}

static wide wide_sum(spv *s, wide a, wide b) {
  spv_id larger = either64(s, below64(s, a.hi, b.hi), both64(s, equal64(s, a.hi, b.hi), zero(s, a.lo)));
  spv_id swap = either64(s, less64(s, a.e, b.e), both64(s, equal64(s, a.e, b.e), larger));
  wide first = pick_wide(s, swap, b, a), second = lowered64(s, first, pick_wide(s, swap, a, b));
  spv_id plus = add64(s, first.lo, second.lo), minus = sub64(s, first.lo, second.lo);
  spv_id more = add64(s, add64(s, first.hi, second.hi), one_if(s, below64(s, plus, first.lo))),
         fewer = sub64(s, sub64(s, first.hi, second.hi), one_if(s, below64(s, first.lo, second.lo)));
  spv_id same = equal64(s, first.sign, second.sign);
  wide r = {first.sign, first.e, pick64(s, same, more, fewer), pick64(s, same, plus, minus)};
  r.sign = pick64(s, zero(s, or(s, r.hi, r.lo)), is64(s, 0), r.sign);
  return r;
}

static spv_id make_fma(spirv *c, const spv_id *a) {
  spv *s = &c->s;
  spv_id sign = sign_of(s, xor(s, a[0], a[1])), t = sign_of(s, a[2]), x = size_of64(s, a[0]), y = size_of64(s, a[1]),
         z = size_of64(s, a[2]), none = zero(s, z);
  wide p = wide_product(s, sign, x, y);
  spv_id m = whole_of64(s, z), j = sub64(s, zeros_of64(s, m), is64(s, 1));
  wide q = {t, sub64(s, sub64(s, exponent_of(s, z), j), is64(s, 64)), left64(s, m, j), is64(s, 0)};
  wide w = pick_wide(s, none, p, wide_sum(s, p, q));
  spv_id r = CALL(c, SPIRV_DOUBLE_PACK128, w.sign, w.e, w.hi, w.lo);
  spv_id null = either64(s, zero(s, x), zero(s, y)), nan = is64(s, NOT_A_NUMBER), z_inf = is_inf(s, z);
  r = pick64(s, null, pick64(s, none, and(s, sign, t), a[2]), r);
  r = pick64(s, z_inf, a[2], r);
  spv_id against = both64(s, z_inf, test(s, SPV_I_NOT_EQUAL, sign, t));
  spv_id of_inf = pick64(s, either64(s, null, against), nan, or(s, sign, is64(s, INF)));
  r = pick64(s, either64(s, is_inf(s, x), is_inf(s, y)), of_inf, r);
  return pick64(s, either64(s, is_nan(s, x), either64(s, is_nan(s, y), is_nan(s, z))), nan, r);
}

// ---- bit by bit -----------------------------------------------------------------------------------------------------

enum { STEPS = 56 };

// A loop over STEPS bits with three values, in the first block of a function.
typedef struct bits { spv_id header, next, behind, value[4], then[4]; } bits;

static void begin_loop(spirv *c, bits *b, const spv_id *first) {
  spv *s = &c->s;
  spv_id turn = spv_new(s), body = spv_new(s), u64 = spv_uint(s, 8);
  b->header = spv_new(s);
  b->next = spv_new(s);
  b->behind = spv_new(s);
  spv_id none = is64(s, 0), all = is64(s, STEPS);
  SPV_PUT(s, s->at, SPV_BRANCH, b->header);
  SPV_PUT(s, s->at, SPV_LABEL, b->header);
  for (int i = 0; i < 4; i++) {
    b->then[i] = spv_new(s);
    b->value[i] = SPV_MAKE(s, SPV_PHI, u64, i < 3 ? first[i] : none, c->helper_block, b->then[i], b->next);
  }
  SPV_PUT(s, s->at, SPV_LOOP_MERGE, b->behind, b->next, 0);
  SPV_PUT(s, s->at, SPV_BRANCH, turn);
  SPV_PUT(s, s->at, SPV_LABEL, turn);
  SPV_PUT(s, s->at, SPV_BRANCH_IF, below64(s, b->value[3], all), body, b->behind);
  SPV_PUT(s, s->at, SPV_LABEL, body);
}

static void end_loop(spirv *c, const bits *b, const spv_id *then) {
  spv *s = &c->s;
  SPV_PUT(s, s->at, SPV_BRANCH, b->next);
  SPV_PUT(s, s->at, SPV_LABEL, b->next);
  for (int i = 0; i < 3; i++) SPV_PUT(s, s->at, SPV_COPY, spv_uint(s, 8), b->then[i], then[i]);
  SPV_PUT(s, s->at, SPV_I_ADD, spv_uint(s, 8), b->then[3], b->value[3], is64(s, 1));
  SPV_PUT(s, s->at, SPV_BRANCH, b->header);
  SPV_PUT(s, s->at, SPV_LABEL, b->behind);
}

static spv_id make_div(spirv *c, const spv_id *a) {
  spv *s = &c->s;
  spv_id sign = sign_of(s, xor(s, a[0], a[1])), x = size_of64(s, a[0]), y = size_of64(s, a[1]), m = whole_of64(s, x),
         n = whole_of64(s, y), i = sub64(s, zeros_of64(s, m), is64(s, 11)), j = sub64(s, zeros_of64(s, n), is64(s, 11));
  spv_id e = add64(s, sub64(s, sub64(s, exponent_of(s, x), i), exponent_of(s, y)), j);
  n = left64(s, n, j);
  bits b;
  begin_loop(c, &b, (spv_id[]){left64(s, m, i), is64(s, 0), is64(s, 0)});
  spv_id fits = not(s, below64(s, b.value[0], n)), q = or(s, left_by(s, b.value[1], 1), one_if(s, fits));
  m = left_by(s, pick64(s, fits, sub64(s, b.value[0], n), b.value[0]), 1);
  end_loop(c, &b, (spv_id[]){m, q, b.value[2]});
  spv_id r = CALL(c, SPIRV_DOUBLE_PACK, sign, sub64(s, e, is64(s, STEPS - 1)), b.value[1], b.value[0]);
  spv_id x0 = zero(s, x), y0 = zero(s, y), x_inf = is_inf(s, x), y_inf = is_inf(s, y);
  r = pick64(s, either64(s, x0, y_inf), sign, r);
  r = pick64(s, either64(s, x_inf, y0), or(s, sign, is64(s, INF)), r);
  spv_id bad =
    either64(s, either64(s, is_nan(s, x), is_nan(s, y)), either64(s, both64(s, x_inf, y_inf), both64(s, x0, y0)));
  return pick64(s, bad, is64(s, NOT_A_NUMBER), r);
}

static spv_id make_sqrt(spirv *c, const spv_id *a) {
  spv *s = &c->s;
  spv_id x = a[0], m = whole_of64(s, x), i = sub64(s, zeros_of64(s, m), is64(s, 11)),
         e = sub64(s, exponent_of(s, x), i);
  spv_id odd = and(s, e, is64(s, 1));
  m = left64(s, left64(s, m, i), odd);
  e = of(s, SPV_SHIFT_S, sub64(s, e, odd), is64(s, 1));
  bits b;
  begin_loop(c, &b, (spv_id[]){m, is64(s, 0), is64(s, 0)});
  spv_id root = b.value[1], more = and(s, right_by(s, b.value[0], 52), is64(s, 3));
  spv_id rest = or(s, left_by(s, b.value[2], 2), more), next = or(s, left_by(s, root, 2), is64(s, 1));
  spv_id fits = not(s, below64(s, rest, next));
  root = or(s, left_by(s, root, 1), one_if(s, fits));
  end_loop(c, &b, (spv_id[]){left_by(s, b.value[0], 2), root, pick64(s, fits, sub64(s, rest, next), rest)});
  spv_id r = CALL(c, SPIRV_DOUBLE_PACK, is64(s, 0), sub64(s, e, is64(s, 29)), b.value[1], b.value[2]);
  r = pick64(s, below64(s, is64(s, INF), x), is64(s, NOT_A_NUMBER), r);
  return pick64(s, either64(s, zero(s, left_by(s, x, 1)), is_inf(s, x)), x, r);
}

// ---- without rounding -----------------------------------------------------------------------------------------------

// an integer that orders like the value
static spv_id ordered64(spv *s, spv_id x) {
  return pick64(s, zero(s, sign_of(s, x)), or(s, x, is64(s, TOP)), xor(s, x, is64(s, UINT64_MAX)));
}
static spv_id both_zero(spv *s, spv_id x, spv_id y) { return zero(s, size_of64(s, or(s, x, y))); }
static spv_id no_nan(spv *s, spv_id x, spv_id y) { return not(s, either64(s, is_nan(s, x), is_nan(s, y))); }

static spv_id is_less(spv *s, spv_id x, spv_id y) {
  spv_id ok = both64(s, no_nan(s, x, y), not(s, both_zero(s, x, y)));
  return both64(s, ok, below64(s, ordered64(s, x), ordered64(s, y)));
}
static spv_id is_equal(spv *s, spv_id x, spv_id y) {
  return both64(s, no_nan(s, x, y), either64(s, equal64(s, x, y), both_zero(s, x, y)));
}

static spv_id truncated(spv *s, spv_id x) {
  spv_id f = field_of(s, x), cut = sub64(s, left64(s, is64(s, 1), sub64(s, is64(s, 1075), f)), is64(s, 1));
  spv_id r = and(s, x, xor(s, cut, is64(s, UINT64_MAX)));
  r = pick64(s, below64(s, f, is64(s, 1075)), r, x);
  return pick64(s, below64(s, f, is64(s, 1023)), sign_of(s, x), r);
}

static spv_id floored(spirv *c, spv_id x) {
  spv *s = &c->s;
  spv_id t = truncated(s, x), down = both64(s, some(s, sign_of(s, x)), test(s, SPV_I_NOT_EQUAL, t, x));
  return pick64(s, down, CALL(c, SPIRV_DOUBLE_FMA, t, is64(s, ONE), is64(s, MINUS_ONE)), t);
}

// ---- conversions ----------------------------------------------------------------------------------------------------

static spv_id make_of_float(spirv *c, const spv_id *x) {
  spv *s = &c->s;
  spv_id b = SPV_MAKE(s, SPV_U_CONVERT, spv_uint(s, 8), SPV_MAKE(s, SPV_BITCAST, spv_uint(s, 4), x[0]));
  spv_id f = and(s, right_by(s, b, 23), is64(s, 0xff)), m = and(s, b, is64(s, 0x7fffff)),
         sign = left_by(s, right_by(s, b, 31), 63), small = zero(s, f);
  spv_id e = sub64(s, pick64(s, small, is64(s, 1), f), is64(s, 150)),
         whole = pick64(s, small, m, or (s, m, is64(s, 0x800000)));
  spv_id r = CALL(c, SPIRV_DOUBLE_PACK, sign, e, whole, is64(s, 0));
  spv_id large = pick64(s, zero(s, m), or(s, sign, is64(s, INF)), is64(s, NOT_A_NUMBER));
  return pick64(s, equal64(s, f, is64(s, 0xff)), large, r);
}

static spv_id make_to_float(spirv *c, const spv_id *a) {
  spv *s = &c->s;
  spv_id x = a[0], m = whole_of64(s, x), n = zeros_of64(s, m),
         field = add64(s, sub64(s, exponent_of(s, x), n), is64(s, 190)), normal = less64(s, is64(s, 0), field);
  spv_id drop = pick64(s, normal, is64(s, 40), sub64(s, is64(s, 41), field));
  spv_id rounded = CALL(c, SPIRV_DOUBLE_ROUND, left64(s, m, n), drop, is64(s, 0));
  spv_id r = add64(s, left_by(s, pick64(s, normal, sub64(s, field, is64(s, 1)), is64(s, 0)), 23), rounded);
  r = pick64(s, less64(s, field, is64(s, 0xff)), r, is64(s, 0x7f800000));
  r = pick64(s, zero(s, m), is64(s, 0), pick64(s, is_nan(s, x), is64(s, 0x7fc00000), r));
  r = or(s, r, left_by(s, right_by(s, x, 63), 31));
  return SPV_MAKE(s, SPV_BITCAST, spv_float(s, 4), SPV_MAKE(s, SPV_U_CONVERT, spv_uint(s, 4), r));
}

// out of range: any value
static spv_id to_whole(spv *s, spv_id x) {
  spv_id e = exponent_of(s, x), m = whole_of64(s, x), down = less64(s, e, is64(s, 0));
  spv_id r = pick64(s, down, right64(s, m, sub64(s, is64(s, 0), e)), left64(s, m, e));
  spv_id far = either64(s, less64(s, is64(s, 11), e), less64(s, e, is64(s, (uint64_t)-63)));
  return pick64(s, far, is64(s, 0), r);
}

static spv_id to_signed64(spv *s, spv_id x) {
  spv_id m = to_whole(s, x);
  return pick64(s, zero(s, sign_of(s, x)), m, sub64(s, is64(s, 0), m));
}

static spv_id of_signed(spirv *c, spv_id x) {
  spv *s = &c->s;
  spv_id sign = sign_of(s, x), m = pick64(s, zero(s, sign), x, sub64(s, is64(s, 0), x));
  return CALL(c, SPIRV_DOUBLE_PACK, sign, is64(s, 0), m, is64(s, 0));
}

// ---- functions of a module ------------------------------------------------------------------------------------------

typedef struct function { spv_id (*make)(spirv *c, const spv_id *x); int n; enum spirv_double calls; } function;
static const function functions[SPIRV_DOUBLES] = {
  [SPIRV_DOUBLE_ROUND] = {make_round, 3, SPIRV_DOUBLES},
  [SPIRV_DOUBLE_PACK] = {make_pack, 4, SPIRV_DOUBLE_ROUND},
  [SPIRV_DOUBLE_PACK128] = {make_pack128, 4, SPIRV_DOUBLE_PACK},
  [SPIRV_DOUBLE_FMA] = {make_fma, 3, SPIRV_DOUBLE_PACK128},
  [SPIRV_DOUBLE_DIV] = {make_div, 2, SPIRV_DOUBLE_PACK},
  [SPIRV_DOUBLE_SQRT] = {make_sqrt, 1, SPIRV_DOUBLE_PACK},
  [SPIRV_DOUBLE_OF_FLOAT] = {make_of_float, 1, SPIRV_DOUBLE_PACK},
  [SPIRV_DOUBLE_TO_FLOAT] = {make_to_float, 1, SPIRV_DOUBLE_ROUND},
};

static spv_id function_of(spirv *c, enum spirv_double what) {
  const function *f = &functions[what];
  if (c->doubles[what]) return c->doubles[what];
  if (f->calls != SPIRV_DOUBLES) function_of(c, f->calls);
  spv_id u64 = spv_uint(&c->s, 8), f32 = spv_float(&c->s, 4), types[4] = {u64, u64, u64, u64};
  if (what == SPIRV_DOUBLE_OF_FLOAT) types[0] = f32;
  spirv_helper h = spirv_begin_helper(c, what == SPIRV_DOUBLE_TO_FLOAT ? f32 : u64, f->n, types);
  return c->doubles[what] = spirv_end_helper(c, &h, f->make(c, h.arguments));
}

static spv_id call_double(spirv *c, enum spirv_double what, size_t n, const spv_id *x) {
  spv_id all[5] = {function_of(c, what)};
  die_if(n != (size_t)functions[what].n, "a function of doubles with %zu arguments", n);
  memcpy(all + 1, x, n * sizeof *x);
  return spv_make(&c->s, SPV_FUNCTION_CALL, what == SPIRV_DOUBLE_TO_FLOAT ? spv_float(&c->s, 4) : spv_uint(&c->s, 8),
                  n + 1, all);
}

bool spirv_by_bits(const spirv *c, enum dtype d) { return d == DT_F64 && c->o && !(c->o->spirv & SPIRV_F64); }

// Casts between F64 and F32 or 64-bit integers.
spv_id spirv_double_cast(spirv *c, spv_id x, enum dtype from, enum dtype to) {
  spv *s = &c->s;
  if (from == DT_F32) return CALL(c, SPIRV_DOUBLE_OF_FLOAT, x);
  if (to == DT_F32) return CALL(c, SPIRV_DOUBLE_TO_FLOAT, x);
  if (from == DT_U64) return CALL(c, SPIRV_DOUBLE_PACK, is64(s, 0), is64(s, 0), x, is64(s, 0));
  return from == DT_I64 ? of_signed(c, x) : to == DT_U64 ? to_whole(s, x) : to_signed64(s, x);
}

spv_id spirv_double_op(spirv *c, enum op op, const spv_id *x) {
  spv *s = &c->s;
  switch (op) {
  case OP_FMA: return CALL(c, SPIRV_DOUBLE_FMA, x[0], x[1], x[2]);
  case OP_ADD: return CALL(c, SPIRV_DOUBLE_FMA, x[0], is64(s, ONE), x[1]);
  case OP_SUB: return CALL(c, SPIRV_DOUBLE_FMA, x[0], is64(s, ONE), xor(s, x[1], is64(s, TOP)));
  case OP_MUL: return CALL(c, SPIRV_DOUBLE_FMA, x[0], x[1], is64(s, TOP));
  case OP_FDIV: return CALL(c, SPIRV_DOUBLE_DIV, x[0], x[1]);
  case OP_SQRT: return CALL(c, SPIRV_DOUBLE_SQRT, x[0]);
  case OP_NEG: return xor(s, x[0], is64(s, TOP));
  case OP_MAX: return pick64(s, is_less(s, x[0], x[1]), x[1], x[0]);
  case OP_MIN: return pick64(s, is_less(s, x[1], x[0]), x[1], x[0]);
  case OP_TRUNC: return truncated(s, x[0]);
  case OP_FLOOR: return floored(c, x[0]);
  case OP_CMPLT: return is_less(s, x[0], x[1]);
  case OP_CMPEQ: return is_equal(s, x[0], x[1]);
  case OP_CMPNE: return not(s, is_equal(s, x[0], x[1]));
  default: return 0;
  }
}
