// quantise: converts rows of floats to blocks of a format, the inverse of dequant.h. A format that can be written has a
// row in the table of quantise.c; the others can only be read. The choice of a block is fixed: files are byte-identical
// to those of llama.cpp. Exceptions: IQ3_S after a group of zeros, where llama.cpp writes the following groups to other
// places; NVFP4 with scales from 256 on, which llama.cpp changes to 448; IQ1_M where alternatives differ only by
// rounding, and in groups of zeros.
//
// Invariant: the result depends on one row's values and weights alone, in single precision and in the order of the
// code, so that rows can be converted by any number of threads. Look next: quantise_fit.h (codes and scale for a group
// of values), quantise_k.c, quantise_iq.c, quantise_grid.c.
#ifndef WEFT_QUANTISE_H
#define WEFT_QUANTISE_H
#include "model/format.h"

bool quantise_can(const struct format *f);
bool quantise_needs_weights(const struct format *f);       // so few bits that the result is unusable without weights
// Converts n values (a multiple of f->block) to n / f->block blocks at out. weights: the importance of an error of each
// of the n values, all at least 0, or NULL. Values must be finite. False: a scale is too large for the format.
bool quantise_row(const struct format *f, const float *x, const float *weights, int64_t n, unsigned char *out);

// Converts f32, f16 and bf16 in bulk; false for formats that need an expression.
bool floats_from(const struct format *f, const unsigned char *in, int64_t n, float *out);
#endif
