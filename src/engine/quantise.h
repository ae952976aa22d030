// quantise: declarations shared by quantise.c and quantise_read.c.
#ifndef WEFT_ENGINE_QUANTISE_H
#define WEFT_ENGINE_QUANTISE_H
#include "base/base.h"
#include "model/format.h"

// Converts rows of quantised tensors to floats, by the expressions of model/dequant.h, compiled for this machine.
typedef struct reader reader;
reader *reader_new(int n_threads);         // never NULL; reader_free
void reader_free(reader *r);               // NULL is fine
// Converts `rows` rows of `cols` values. most: maximum rows, equal in all calls for a tensor, since it is compiled for
// that.
int reader_floats(reader *r, const struct format *f, const unsigned char *raw, int64_t most, int64_t rows, int64_t cols,
                  float *out, error *err);
#endif
