// Half precision on the host: conversions between double and the two 16-bit float formats, rounding to nearest even.
// For constants, the interpreter and tests; kernels convert with instructions or rules.
#ifndef WEFT_HALF_H
#define WEFT_HALF_H
#include "graph/uop.h"
uint16_t half_from_double(double v, int mant_bits, int exp_bits);
double half_to_double(uint16_t h, int mant_bits, int exp_bits);
static inline uint16_t f16_from_double(double v) { return half_from_double(v, 10, 5); }
static inline uint16_t bf16_from_double(double v) { return half_from_double(v, 7, 8); }
static inline double f16_to_double(uint16_t h) { return half_to_double(h, 10, 5); }
static inline double bf16_to_double(uint16_t h) { return half_to_double(h, 7, 8); }
double dtype_round(enum dtype d, double v);      // rounds v to a float dtype; unchanged for others
#endif
