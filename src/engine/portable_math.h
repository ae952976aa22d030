// portable_math: functions with identical results on every machine. libm's exp, log and pow differ between versions in
// the last bit, which could change a sampled token; these use only IEEE additions, multiplications and divisions. The
// generator is xoshiro256++.
#ifndef WEFT_STABLE_H
#define WEFT_STABLE_H
#include "base/base.h"

double portable_exp(double x);                     // 0 below -700, e^700 above 700; NaN gives 0
void portable_exps(double *x, size_t n);           // of n numbers, in place
double portable_log(double x);                     // of a finite x > 0
double portable_pow(double base, double exponent); // base > 0

struct rng { uint64_t s[4]; };
void rng_seed(struct rng *r, uint64_t seed);
double rng_unit(struct rng *r);                  // [0, 1), 53 bits
#endif
