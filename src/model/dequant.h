// What the bytes of a quantised tensor mean, as tensor expressions.
#ifndef WEFT_DEQUANT_H
#define WEFT_DEQUANT_H
#include "graph/graph.h"
#include "model/format.h"

// The F32 tensor {rows, cols} of `rows` rows of `cols` elements of this format; buffer `id` holds the file's bytes,
// unchanged. Dies unless f->computes and cols is a multiple of f->block. The order of operations is that of the gguf
// Python package. I32 values become floats, too.
tensor *dequant(graph *g, const struct format *f, int64_t id, int64_t rows, int64_t cols);
// Rows from `from` on of a tensor of `all` rows. They are addressed as rows of the buffer, so that a product with them
// is like any other.
tensor *dequant_rows(graph *g, const struct format *f, int64_t id, int64_t all, int64_t from, int64_t rows,
                     int64_t cols);
// For a tensor that holds `matrices` matrices one after another, those that `chosen` (integers) names: F32 {shape of
// chosen.., rows, cols}. A number out of bounds is clamped. No weight is copied: the choice becomes part of the address
// that a product reads.
tensor *dequant_chosen(graph *g, const struct format *f, int64_t id, int64_t matrices, int64_t rows, int64_t cols,
                       tensor *chosen);
enum dtype dequant_buffer_dtype(const struct format *f);       // element type of that buffer: the format's own, or U8
#endif
