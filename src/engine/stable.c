// Portable exp, log and random numbers: see stable.h.  exp and log reduce their argument to a short interval and sum a series
// there until the terms vanish; the results are good to a few units in the last place.
#include "engine/stable.h"
#include <math.h>
#include <string.h>

double stable_exp(double x) {
  static const double over[] = {1, 1, 1. / 2, 1. / 3, 1. / 4, 1. / 5, 1. / 6, 1. / 7, 1. / 8, 1. / 9, 1. / 10, 1. / 11, 1. / 12, 1. / 13};
  if (!(x > -700)) return 0;
  if (x > 700) x = 700;
  double k = floor(x * 1.4426950408889634 + 0.5), r = x - k * 0.6931471805599453, sum = 1;
  for (int i = 13; i >= 1; i--) sum = 1 + sum * (r * over[i]);
  uint64_t bits = (uint64_t)(1023 + (int)k) << 52;   // 2^k: -1010 <= k <= 1010
  double scale;
  memcpy(&scale, &bits, sizeof scale);
  return sum * scale;
}

// log m = 2 artanh((m - 1) / (m + 1)), for m within a factor of sqrt(2) of 1.
double stable_log(double x) {
  int e;
  double m = frexp(x, &e);                           // exact
  if (m < 0.7071067811865476) { m *= 2; e--; }
  double t = (m - 1) / (m + 1), t2 = t * t, sum = 0;
  for (int i = 25; i >= 1; i -= 2) sum = sum * t2 + 1. / i;
  return 2 * t * sum + e * 0.6931471805599453;
}

double stable_pow(double base, double exponent) { return stable_exp(exponent * stable_log(base)); }

static uint64_t rotl(uint64_t x, int k) { return x << k | x >> (64 - k); }

static uint64_t next(uint64_t s[4]) {
  uint64_t out = rotl(s[0] + s[3], 23) + s[0], t = s[1] << 17;
  s[2] ^= s[0]; s[3] ^= s[1]; s[1] ^= s[2]; s[0] ^= s[3];
  s[2] ^= t;
  s[3] = rotl(s[3], 45);
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

double rng_unit(struct rng *r) { return (double)(next(r->s) >> 11) * 0x1p-53; }
