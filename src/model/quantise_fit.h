// Codes and a scale for a small group of values, so that the weighted sum of squared errors is small. Each function
// tries some scales and keeps the best, with sums in single precision from the first value to the last: another order
// would give other files.
#ifndef WEFT_QUANTISE_FIT_H
#define WEFT_QUANTISE_FIT_H
#include <math.h>
#include <string.h>
#include "base/base.h"

enum { GROUP_MAX = 32, SUPER = 256 };

uint16_t half_bits(float v);                       // to the nearest f16, ties to even
float half_value(uint16_t h);

// To the nearest integer, ties to even; |v| < 2^22.
static inline int nearest(float v) {
  float shifted = v + 12582912.f;                  // 1.5 * 2^23: the integer is in the low bits
  int bits;
  memcpy(&bits, &shifted, sizeof bits);
  return (bits & 0x7fffff) - 0x400000;
}
static inline int clamp(int v, int low, int high) { return v < low ? low : v > high ? high : v; }

static inline void put_half(unsigned char *p, float v) {
  uint16_t h = half_bits(v);
  memcpy(p, &h, sizeof h);
}
static inline float get_half(const unsigned char *p) {
  uint16_t h;
  memcpy(&h, p, sizeof h);
  return half_value(h);
}

// The value of largest magnitude; 0 if all are (nearly) 0.
float farthest(const float *x, int n);
float sum_of_squares(const float *x, int64_t n);

// x = scale * (code - half), codes from 0 to 2 half - 1. Returns the scale.
float fit_symmetric(const float *x, const float *weights, int n, int half, uint8_t *codes);
// fit_symmetric with weights x * x: starts from the scale of the value of largest magnitude, and changes one code at a
// time as long as that helps.
float fit_by_steps(const float *x, int n, int half, uint8_t *codes);
// x = scale * code for values of at least 0, codes from 0 to top.
float fit_positive(const float *x, const float *weights, int n, int top, uint8_t *codes);
// x = scale * code - *min, *min at least 0. Tries steps + 1 scales, (first + i * step + top) / range for all i; by the
// sum of absolute errors if `absolute`, else of squares.
struct affine_search { float first, step; int steps; bool absolute; };
float fit_affine(const float *x, const float *weights, int n, int top, const struct affine_search *s, uint8_t *codes,
                 float *min);
#endif
