// Data types: names, sizes, limits, and rounding of constants. See uop.h.
#include <math.h>
#include <string.h>
#include "graph/uop.h"
#include "graph/half.h"

static const struct { const char *name; int size; char kind; int64_t lo, hi; } types[DT_COUNT] = {
  [DT_VOID] = {"void", 0, 'v', INT64_MIN, INT64_MAX}, [DT_BOOL] = {"bool", 1, 'b', 0, 1},
  [DT_I8] = {"i8", 1, 'i', INT8_MIN, INT8_MAX},       [DT_U8] = {"u8", 1, 'u', 0, UINT8_MAX},
  [DT_I16] = {"i16", 2, 'i', INT16_MIN, INT16_MAX},   [DT_U16] = {"u16", 2, 'u', 0, UINT16_MAX},
  [DT_I32] = {"i32", 4, 'i', INT32_MIN, INT32_MAX},   [DT_U32] = {"u32", 4, 'u', 0, UINT32_MAX},
  [DT_I64] = {"i64", 8, 'i', INT64_MIN, INT64_MAX},   [DT_U64] = {"u64", 8, 'u', INT64_MIN, INT64_MAX},
  [DT_IDX] = {"idx", 8, 'i', INT64_MIN, INT64_MAX},   [DT_F16] = {"f16", 2, 'f', INT64_MIN, INT64_MAX},
  [DT_BF16] = {"bf16", 2, 'f', INT64_MIN, INT64_MAX}, [DT_F32] = {"f32", 4, 'f', INT64_MIN, INT64_MAX},
  [DT_F64] = {"f64", 8, 'f', INT64_MIN, INT64_MAX},
};

bool dtype_is_float(enum dtype d) { return types[d].kind == 'f'; }
bool dtype_is_int(enum dtype d) { return types[d].kind == 'i' || types[d].kind == 'u'; }
enum dtype dtype_unsigned(int64_t bytes) {
  switch (bytes) {
  case 1: return DT_U8;
  case 2: return DT_U16;
  case 4: return DT_U32;
  case 8: return DT_U64;
  default: die("no unsigned integer of %lld bytes", (long long)bytes);
  }
}

bool dtype_is_unsigned(enum dtype d) { return types[d].kind == 'u' || types[d].kind == 'b'; }
int dtype_size(enum dtype d) { return types[d].size; }
int64_t dtype_min(enum dtype d) { return types[d].lo; }
int64_t dtype_max(enum dtype d) { return types[d].hi; }
const char *dtype_name(enum dtype d) { return types[d].name; }

bool dtype_parse(const char *s, size_t n, enum dtype *d) {
  for (int i = 0; i < DT_COUNT; i++)
    if (strlen(types[i].name) == n && !memcmp(types[i].name, s, n)) { *d = (enum dtype)i; return true; }
  return false;
}

int64_t dtype_wrap(enum dtype d, int64_t v) {
  switch (d) {
  case DT_BOOL: return v != 0;
  case DT_I8: return (int8_t)v;
  case DT_U8: return (uint8_t)v;
  case DT_I16: return (int16_t)v;
  case DT_U16: return (uint16_t)v;
  case DT_I32: return (int32_t)v;
  case DT_U32: return (uint32_t)v;
  default: return v;
  }
}

uint16_t half_from_double(double v, int mant_bits, int exp_bits) {
  // rounds to nearest even directly from double, so that nothing is rounded twice
  uint64_t b;
  memcpy(&b, &v, 8);
  uint16_t sign = (uint16_t)(b >> 63 << 15);
  int bias = (1 << (exp_bits - 1)) - 1, emax = (1 << exp_bits) - 1;
  int e = (int)(b >> 52 & 2047);
  uint64_t m = b & ((1ull << 52) - 1);
  if (e == 2047) return (uint16_t)(sign | emax << mant_bits | (m ? 1 << (mant_bits - 1) | m >> (52 - mant_bits) : 0));
  if (!e) return sign;                                  // a subnormal double is far below either type
  int te = e - 1023 + bias, shift = 52 - mant_bits;
  m |= 1ull << 52;
  if (te <= 0) { shift += 1 - te; te = 0; if (shift > 62) return sign; }
  uint64_t q = m >> shift, rest = m & ((1ull << shift) - 1), halfway = 1ull << (shift - 1);
  if (rest > halfway || (rest == halfway && (q & 1))) q++;
  uint64_t r = te ? ((uint64_t)(te - 1) << mant_bits) + q : q;    // the hidden bit carries into the exponent
  if (r >= (uint64_t)emax << mant_bits) r = (uint64_t)emax << mant_bits;
  return (uint16_t)(sign | r);
}

double half_to_double(uint16_t h, int mant_bits, int exp_bits) {
  int bias = (1 << (exp_bits - 1)) - 1, emax = (1 << exp_bits) - 1, e = h >> mant_bits & emax,
      m = h & ((1 << mant_bits) - 1);
  // assembled from bits, since ldexp is many times slower. power: 2^(e - bias), for subnormals with the smallest e
  uint64_t power = (uint64_t)(1023 - bias + (e ? e : 1)) << 52;
  double v, scale;
  memcpy(&scale, &power, 8);
  power |= (uint64_t)m << (52 - mant_bits);
  memcpy(&v, &power, 8);
  v = e == emax ? (m ? NAN : INFINITY) : e ? v : v - scale;
  return h >> 15 ? -v : v;
}

double dtype_round(enum dtype d, double v) {
  switch (d) {
  case DT_F16: return f16_to_double(f16_from_double(v));
  case DT_BF16: return bf16_to_double(bf16_from_double(v));
  case DT_F32: return (double)(float)v;
  default: return v;
  }
}
