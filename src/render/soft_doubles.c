// Emulated doubles for a language without them: see soft_doubles.h.
//
// The text uses only what C, OpenCL C and Metal's language share; three words that differ are defined before it. Most
// work is done by fma: a sum is fma(a, 1, b), a product is fma(a, b, -0). A number is m * 2^e with an integer m. Wider
// results are kept in 128 bits, or in 64 bits and a flag for lost bits (rest), until they are rounded once.
#include "render/soft_doubles.h"

static const char functions[] =
  // parts of a number with absolute value m * 2^e
  "F64_FUNCTION int f64_zeros(ulong x) {\n"
  "  uint high = (uint)(x >> 32);\n"
  "  return high ? (int)clz(high) : 32 + (int)clz((uint)x);\n"
  "}\n"
  "F64_FUNCTION int f64_e(ulong x) { int f = (int)(x >> 52) & 0x7ff; return (f ? f : 1) - 1075; }\n"
  "F64_FUNCTION ulong f64_m(ulong x) {\n"
  "  ulong m = x & 0xffffffffffffful;\n"
  "  return (x >> 52 & 0x7ff) ? m | 0x10000000000000ul : m;\n"
  "}\n"
  "F64_FUNCTION bool f64_is_nan(ulong x) { return (x & 0x7ffffffffffffffful) > 0x7ff0000000000000ul; }\n"
  // m without its last bits, rounded to nearest, ties to even
  "F64_FUNCTION ulong f64_round(ulong m, int drop, bool rest) {\n"
  "  if (drop > 64) return 0;\n"
  "  ulong q = drop < 64 ? m >> drop : 0, cut = drop < 64 ? m << (64 - drop) : m, half_way = 0x8000000000000000ul;\n"
  "  return q + (cut > half_way || (cut == half_way && (rest || (q & 1))) ? 1 : 0);\n"
  "}\n"
  "F64_FUNCTION ulong f64_pack(ulong sign, int e, ulong m, bool rest) {\n"
  "  if (!m) return sign;\n"
  "  int n = f64_zeros(m), field = e - n + 1086;\n"
  "  if (field >= 0x7ff) return sign | 0x7ff0000000000000ul;\n"
  "  int drop = field > 0 ? 11 : 12 - field;\n"
  "  return sign | (((ulong)(field > 0 ? field - 1 : 0) << 52) + f64_round(m << n, drop, rest));\n"
  "}\n"
  "F64_FUNCTION ulong f64_pack128(ulong sign, int e, ulong hi, ulong lo) {\n"
  "  if (!hi) return f64_pack(sign, e, lo, false);\n"
  "  int n = f64_zeros(hi);\n"
  "  ulong m = n ? hi << n | lo >> (64 - n) : hi;\n"
  "  return f64_pack(sign, e + 64 - n, m, (lo << n) != 0);\n"
  "}\n"
  "F64_FUNCTION ulong f64_fma(ulong a, ulong b, ulong c) {\n"
  "  const ulong top = 0x8000000000000000ul, inf = 0x7ff0000000000000ul, nan = 0x7ff8000000000000ul;\n"
  "  ulong s = (a ^ b) & top, t = c & top, x = a & ~top, y = b & ~top, z = c & ~top;\n"
  "  if (x > inf || y > inf || z > inf) return nan;\n"
  "  if (x == inf || y == inf) return !x || !y || (z == inf && s != t) ? nan : s | inf;\n"
  "  if (z == inf) return c;\n"
  "  if (!x || !y) return z ? c : s & t;\n"
  "  int e = f64_e(x) + f64_e(y);\n"
  "  ulong m = f64_m(x), n = f64_m(y), m0 = m & 0xffffffff, m1 = m >> 32, n0 = n & 0xffffffff, n1 = n >> 32;\n"
  "  ulong low = m0 * n0, one = m1 * n0 + (low >> 32), two = m0 * n1 + (one & 0xffffffff);\n"
  "  ulong hi = m1 * n1 + (one >> 32) + (two >> 32), lo = two << 32 | (low & 0xffffffff);\n"
  "  int k = (hi ? f64_zeros(hi) : 64 + f64_zeros(lo)) - 1;\n"
  "  if (k >= 64) { hi = lo << (k - 64); lo = 0; } else { hi = hi << k | lo >> (64 - k); lo <<= k; }\n"
  "  e -= k;\n"
  "  if (!z) return f64_pack128(s, e, hi, lo);\n"
  // both now have their first bit at 126: shift down the one with the smaller exponent
  "  ulong zh = f64_m(z), zl = 0;\n"
  "  int j = f64_zeros(zh) - 1, f = f64_e(z) - j - 64;\n"
  "  zh <<= j;\n"
  "  if (f > e || (f == e && (zh > hi || (zh == hi && !lo)))) {\n"
  "    ulong u = hi; hi = zh; zh = u;\n"
  "    u = lo; lo = zl; zl = u;\n"
  "    u = s; s = t; t = u;\n"
  "    int v = e; e = f; f = v;\n"
  "  }\n"
  "  int d = e - f;\n"
  "  bool rest = false;\n"
  "  if (d >= 128) { rest = true; zh = zl = 0; }\n"
  "  else if (d >= 64) {\n"
  "    rest = zl || (d > 64 && zh << (128 - d));\n"
  "    zl = zh >> (d - 64);\n"
  "    zh = 0;\n"
  "  } else if (d) { rest = zl << (64 - d); zl = zl >> d | zh << (64 - d); zh >>= d; }\n"
  "  zl |= rest ? 1 : 0;\n"
  "  if (s == t) { ulong sum = lo + zl; hi += zh + (sum < lo ? 1 : 0); lo = sum; }\n"
  "  else { ulong less = lo - zl; hi -= zh + (lo < zl ? 1 : 0); lo = less; }\n"
  "  return hi | lo ? f64_pack128(s, e, hi, lo) : 0;\n"
  "}\n"
  "F64_FUNCTION ulong f64_neg(ulong a) { return a ^ 0x8000000000000000ul; }\n"
  "F64_FUNCTION ulong f64_add(ulong a, ulong b) { return f64_fma(a, 0x3ff0000000000000ul, b); }\n"
  "F64_FUNCTION ulong f64_sub(ulong a, ulong b) { return f64_add(a, f64_neg(b)); }\n"
  "F64_FUNCTION ulong f64_mul(ulong a, ulong b) { return f64_fma(a, b, 0x8000000000000000ul); }\n"
  "F64_FUNCTION ulong f64_div(ulong a, ulong b) {\n"
  "  const ulong top = 0x8000000000000000ul, inf = 0x7ff0000000000000ul, nan = 0x7ff8000000000000ul;\n"
  "  ulong s = (a ^ b) & top, x = a & ~top, y = b & ~top;\n"
  "  if (x > inf || y > inf || (x == inf && y == inf) || (!x && !y)) return nan;\n"
  "  if (x == inf || !y) return s | inf;\n"
  "  if (!x || y == inf) return s;\n"
  "  ulong m = f64_m(x), n = f64_m(y), q = 0;\n"
  "  int i = f64_zeros(m) - 11, j = f64_zeros(n) - 11, e = f64_e(x) - i - f64_e(y) + j;\n"
  "  m <<= i;\n"
  "  n <<= j;\n"
  "  for (int bit = 0; bit < 56; bit++) {\n"
  "    q <<= 1;\n"
  "    if (m >= n) { m -= n; q |= 1; }\n"
  "    m <<= 1;\n"
  "  }\n"
  "  return f64_pack(s, e - 55, q, m != 0);\n"
  "}\n"
  "F64_FUNCTION ulong f64_sqrt(ulong a) {\n"
  "  const ulong inf = 0x7ff0000000000000ul, nan = 0x7ff8000000000000ul;\n"
  "  if (!(a << 1) || a == inf) return a;\n"
  "  if (a > inf) return nan;\n"
  "  ulong m = f64_m(a), root = 0, left = 0;\n"
  "  int i = f64_zeros(m) - 11, e = f64_e(a) - i;\n"
  "  m <<= i;\n"
  "  if (e & 1) { m <<= 1; e--; }\n"
  "  for (int bit = 0; bit < 56; bit++) {\n"
  "    left = left << 2 | (bit < 27 ? m >> (52 - 2 * bit) & 3 : 0);\n"
  "    ulong next = root << 2 | 1;\n"
  "    root <<= 1;\n"
  "    if (left >= next) { left -= next; root |= 1; }\n"
  "  }\n"
  "  return f64_pack(0, e / 2 - 29, root, left != 0);\n"
  "}\n"
  "F64_FUNCTION bool f64_less(ulong a, ulong b) {\n"
  "  const ulong top = 0x8000000000000000ul;\n"
  "  if (f64_is_nan(a) || f64_is_nan(b) || !((a | b) & ~top)) return false;\n"
  "  return (a & top ? ~a : a | top) < (b & top ? ~b : b | top);\n"
  "}\n"
  "F64_FUNCTION bool f64_equal(ulong a, ulong b) { return !f64_is_nan(a) && !f64_is_nan(b) && (a == b || !((a | b) << "
  "1)); "
  "}\n"
  "F64_FUNCTION ulong f64_max(ulong a, ulong b) { return f64_less(a, b) ? b : a; }\n"
  "F64_FUNCTION ulong f64_min(ulong a, ulong b) { return f64_less(b, a) ? b : a; }\n"
  "F64_FUNCTION ulong f64_trunc(ulong a) {\n"
  "  int f = (int)(a >> 52) & 0x7ff;\n"
  "  return f < 1023 ? a & 0x8000000000000000ul : f >= 1075 ? a : a & ~((1ul << (1075 - f)) - 1);\n"
  "}\n"
  "F64_FUNCTION ulong f64_floor(ulong a) {\n"
  "  ulong t = f64_trunc(a);\n"
  "  return a >> 63 && t != a ? f64_add(t, 0xbff0000000000000ul) : t;\n"
  "}\n"
  "F64_FUNCTION ulong f64_of_ulong(ulong x) { return f64_pack(0, 0, x, false); }\n"
  "F64_FUNCTION ulong f64_of_long(long x) {\n"
  "  return x < 0 ? f64_pack(0x8000000000000000ul, 0, 0 - (ulong)x, false) : f64_pack(0, 0, (ulong)x, false);\n"
  "}\n"
  "F64_FUNCTION ulong f64_of_float(float x) {\n"
  "  uint b = F64_UINT_OF(x), f = b >> 23 & 0xff, m = b & 0x7fffff;\n"
  "  ulong sign = (ulong)(b >> 31) << 63;\n"
  "  if (f == 0xff) return m ? 0x7ff8000000000000ul : sign | 0x7ff0000000000000ul;\n"
  "  return f64_pack(sign, (int)(f ? f : 1) - 150, f ? m | 0x800000 : m, false);\n"
  "}\n"
  // out of range: any value
  "F64_FUNCTION ulong f64_to_ulong(ulong a) {\n"
  "  int e = f64_e(a);\n"
  "  ulong m = f64_m(a);\n"
  "  return e > 11 || e < -63 ? 0 : e >= 0 ? m << e : m >> -e;\n"
  "}\n"
  "F64_FUNCTION long f64_to_long(ulong a) { ulong m = f64_to_ulong(a); return (long)(a >> 63 ? 0 - m : m); }\n"
  "F64_FUNCTION float f64_to_float(ulong a) {\n"
  "  uint sign = (uint)(a >> 63) << 31;\n"
  "  ulong m = f64_m(a);\n"
  "  if (f64_is_nan(a)) return F64_FLOAT_OF(sign | 0x7fc00000u);\n"
  "  if (!m) return F64_FLOAT_OF(sign);\n"
  "  int n = f64_zeros(m), field = f64_e(a) - n + 190;\n"
  "  if (field >= 0xff) return F64_FLOAT_OF(sign | 0x7f800000u);\n"
  "  int drop = field > 0 ? 40 : 41 - field;\n"
  "  return F64_FLOAT_OF(sign | (((uint)(field > 0 ? field - 1 : 0) << 23) + (uint)f64_round(m << n, drop, "
  "false)));\n"
  "}\n";

void soft_doubles_write(str *out, const struct soft_doubles_words *w) {
  str_addf(out, "#define F64_FUNCTION %s\n#define F64_UINT_OF %s\n#define F64_FLOAT_OF %s\n", w->function, w->uint_of,
           w->float_of);
  str_add(out, functions);
}

static const char *cast_double(cstyle *c, enum dtype from, enum dtype to, const char *x) {
  if (from == DT_F32) return cs_print(c, "f64_of_float(%s)", cs_bare(c, x));
  if (to == DT_F32) return cs_print(c, "f64_to_float(%s)", cs_bare(c, x));
  if (to == DT_F64) return cs_print(c, from == DT_U64 ? "f64_of_ulong(%s)" : "f64_of_long(%s)", cs_bare(c, x));
  if (to == DT_U64) return cs_print(c, "f64_to_ulong(%s)", cs_bare(c, x));
  return cs_print(c, "((%s)f64_to_long(%s))", c->d->scalars[to], cs_bare(c, x));
}

const char *soft_doubles_call(cstyle *c, enum op op, enum dtype from, enum dtype to, const char *const *x) {
  static const char *const names[OP_COUNT] = {
    [OP_ADD] = "add",   [OP_SUB] = "sub",   [OP_MUL] = "mul",     [OP_FDIV] = "div",    [OP_MAX] = "max",
    [OP_MIN] = "min",   [OP_NEG] = "neg",   [OP_SQRT] = "sqrt",   [OP_TRUNC] = "trunc", [OP_FLOOR] = "floor",
    [OP_FMA] = "fma",   [OP_CMPLT] = "less", [OP_CMPEQ] = "equal", [OP_CMPNE] = "equal"};
  if (op == OP_CAST) return cast_double(c, from, to, x[0]);
  if (!names[op]) return NULL;
  const char *a = cs_bare(c, x[0]), *f = names[op];
  if (op == OP_NEG || op == OP_SQRT || op == OP_TRUNC || op == OP_FLOOR) return cs_print(c, "f64_%s(%s)", f, a);
  if (op == OP_FMA) return cs_print(c, "f64_fma(%s, %s, %s)", a, cs_bare(c, x[1]), cs_bare(c, x[2]));
  return cs_print(c, op == OP_CMPNE ? "(!f64_%s(%s, %s))" : "f64_%s(%s, %s)", f, a, cs_bare(c, x[1]));
}
