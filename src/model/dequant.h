// What the bytes of a quantised tensor mean, as tensor expressions.
#ifndef WEFT_DEQUANT_H
#define WEFT_DEQUANT_H
#include "graph/graph.h"
#include "model/format.h"

// The F32 tensor {rows, cols} that `rows` rows of `cols` elements of this format stand for; buffer `id` holds the file's bytes, unchanged.
// Dies unless f->computes and cols is a multiple of f->block. The order of operations is that of the gguf Python package.
// With `tiled` the buffer holds them in the order of dequant_retile instead.
tensor *dequant(graph *g, const struct format *f, int64_t id, int64_t rows, int64_t cols, bool tiled);

// x {T, cols} F32 times that matrix: {T, rows}, with x rounded to 8 bits, one scale per group of dequant_group elements, and exact
// integer sums inside a group. Association of what is left: per block, scale of the weights times scale of x times the sum.
tensor *dequant_dot(graph *g, const struct format *f, int64_t id, int64_t rows, int64_t cols, bool tiled, tensor *x);
// The group of activations that share a scale (the format's block), or 0 where the format has no integer form.
int dequant_group(const struct format *f);

// A weight laid out for lanes: tiles of 16 rows, and within a block of a tile the same bytes of 16 rows side by side, in the units
// in which a kernel takes them (4 codes, 2-byte scales). Same bytes, another order. True where that is possible.
bool dequant_can_tile(const struct format *f, int64_t rows);
// Appends the stores that fill buffer `tiled` from buffer `raw` (both rows * cols elements of the format) to effects[0..max); returns how many.
int dequant_retile(graph *g, const struct format *f, int64_t raw, int64_t tiled, int64_t rows, int64_t cols, uop **effects, int max);
enum dtype dequant_buffer_dtype(const struct format *f);       // element type of that buffer: the format's own, or U8
#endif
