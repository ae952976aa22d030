// quantise: rows of floats as blocks of a format, the way back from dequant.h.  A format that can be written has a row
// in the table of quantise.c; the others can only be read.  How a block is chosen is fixed: files come out as those of
// llama.cpp, byte for byte.  Where they do not: IQ3_S behind a group of zeros, where that writes what follows to other
// places; NVFP4 with scales from 256 on, which that makes 448; IQ1_M where ways are equally good but for rounding, and
// in groups of zeros.
//
// Invariant: the result depends on one row's values and weights alone, in single precision and in the order that the
// code gives, so that rows can be made by any number of threads. Look next: quantise_fit.h (codes and scale for a group
// of values), quantise_k.c, quantise_iq.c, quantise_grid.c.
#ifndef WEFT_QUANTISE_H
#define WEFT_QUANTISE_H
#include "model/format.h"

bool quantise_can(const struct format *f);
bool quantise_needs_weights(const struct format *f);       // so few bits that without weights the result is worthless
// n values (a multiple of f->block) as n / f->block blocks at out.  weights: how much an error of each of the n values
// matters, all of them at least 0, or NULL.  Values must be finite.  False: a scale is too large for the format.
bool quantise_row(const struct format *f, const float *x, const float *weights, int64_t n, unsigned char *out);

// f32, f16 and bf16 in bulk; false where another format would need its expression.
bool floats_from(const struct format *f, const unsigned char *in, int64_t n, float *out);
#endif
