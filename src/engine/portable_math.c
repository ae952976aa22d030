// Portable exp, log and random numbers: see portable_math.h. exp and log reduce their argument to a short interval and
// sum a series until the terms vanish; results are accurate to a few units in the last place.
#include "engine/portable_math.h"
#include <math.h>
#include <string.h>

// Eight at a time, so that compilers vectorise. Adding 1.5 * 2^52 rounds to an integer and leaves it in the lowest
// bits.
static void exp_8(double *x) {
  static const double over[] = {1,      1,      1. / 2, 1. / 3,  1. / 4,  1. / 5,  1. / 6,
                                1. / 7, 1. / 8, 1. / 9, 1. / 10, 1. / 11, 1. / 12, 1. / 13};
  enum { N = 8 };
  double r[N], sum[N], t[N], scale[N];
  uint64_t bits[N];
  for (int j = 0; j < N; j++) r[j] = x[j] > -700 ? x[j] : -700;
  for (int j = 0; j < N; j++) r[j] = r[j] > 700 ? 700 : r[j];
  for (int j = 0; j < N; j++) t[j] = r[j] * 1.4426950408889634 + 0x1.8p52;
  for (int j = 0; j < N; j++) r[j] -= (t[j] - 0x1.8p52) * 0.6931471805599453;
  for (int j = 0; j < N; j++) sum[j] = 1;
  for (int i = 13; i >= 1; i--)
    for (int j = 0; j < N; j++) sum[j] = 1 + sum[j] * (r[j] * over[i]);
  memcpy(bits, t, sizeof bits);
  for (int j = 0; j < N; j++) bits[j] = (bits[j] + 1023) << 52;      // 2^k: -1010 <= k <= 1010
  memcpy(scale, bits, sizeof scale);
  for (int j = 0; j < N; j++) x[j] = x[j] > -700 ? sum[j] * scale[j] : 0;
}

void portable_exps(double *x, size_t n) {
  size_t i = 0;
  for (; i + 8 <= n; i += 8) exp_8(x + i);
  double rest[8] = {0};
  memcpy(rest, x + i, (n - i) * sizeof *x);
  exp_8(rest);
  memcpy(x + i, rest, (n - i) * sizeof *x);
}

double portable_exp(double x) {
  double one[8] = {x};
  exp_8(one);
  return one[0];
}

// log m = 2 artanh((m - 1) / (m + 1)), for m within a factor of sqrt(2) of 1.
double portable_log(double x) {
  int e;
  double m = frexp(x, &e);                           // exact
  if (m < 0.7071067811865476) { m *= 2; e--; }
  double t = (m - 1) / (m + 1), t2 = t * t, sum = 0;
  for (int i = 25; i >= 1; i -= 2) sum = sum * t2 + 1. / i;
  return 2 * t * sum + e * 0.6931471805599453;
}

double portable_pow(double base, double exponent) { return portable_exp(exponent * portable_log(base)); }


static uint64_t next_u64(uint64_t s[4]) {
  uint64_t out = rotl_u64(s[0] + s[3], 23) + s[0], t = s[1] << 17;
  s[2] ^= s[0]; s[3] ^= s[1]; s[1] ^= s[2]; s[0] ^= s[3];
  s[2] ^= t;
  s[3] = rotl_u64(s[3], 45);
  return out;
}

void rng_seed(struct rng *r, uint64_t seed) {        // splitmix64
  for (int i = 0; i < 4; i++) {
    uint64_t z = seed += 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    r->s[i] = z ^ z >> 31;
  }
}

double rng_unit(struct rng *r) { return (double)(next_u64(r->s) >> 11) * 0x1p-53; }
