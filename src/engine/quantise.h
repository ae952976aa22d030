// quantise: what quantise.c and quantise_read.c share.
#ifndef WEFT_ENGINE_QUANTISE_H
#define WEFT_ENGINE_QUANTISE_H
#include "base/base.h"
#include "model/format.h"

// Rows of quantised tensors as floats, by the expressions of model/dequant.h, compiled for this machine.
typedef struct reader reader;
reader *reader_new(int n_threads);         // never NULL; reader_free
void reader_free(reader *r);               // NULL is fine
// `rows` rows of `cols` values, at most `most` of them: of one tensor always the same number, for which it is compiled.
int reader_floats(reader *r, const struct format *f, const unsigned char *raw, int64_t most, int64_t rows, int64_t cols,
                  float *out, error *err);
#endif
