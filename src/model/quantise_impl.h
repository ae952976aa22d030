// Private to the quantise files: one function per format, which converts a row of n values to blocks at out; weights
// may be NULL.
#ifndef WEFT_QUANTISE_IMPL_H
#define WEFT_QUANTISE_IMPL_H
#include "model/quantise.h"
#include "model/quantise_fit.h"

typedef void quantiser(const float *x, const float *weights, int64_t n, unsigned char *out);
quantiser quantise_q2_k, quantise_q3_k, quantise_q4_k, quantise_q5_k, quantise_q6_k;       // quantise_k.c
quantiser quantise_iq4_nl, quantise_iq4_xs;                                                // quantise_iq.c
// quantise_grid.c
quantiser quantise_iq2_xxs, quantise_iq2_xs, quantise_iq2_s, quantise_iq3_xxs, quantise_iq3_s;
quantiser quantise_iq1_s, quantise_iq1_m;

void put_nibbles(unsigned char *out, const uint8_t *codes);                                // 32 codes in 16 bytes
void row_weights(const float *x, const float *weights, int n, float mean_square, float *out);
extern const struct affine_search wide_search;  // the search that is used with weights
#endif
