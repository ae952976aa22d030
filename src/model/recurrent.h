// What recurrences share: rows of a block, and the triangular system of a delta rule. recurrent.c says what a block is.
#ifndef WEFT_RECURRENT_H
#define WEFT_RECURRENT_H
#include "model/model_impl.h"

enum { DELTA_BLOCK = 32 };
// of a layer; the last four: rows of a block
enum { STATE_CONV, STATE_SSM, STATE_DECAY, STATE_SUM, STATE_KEY, STATE_VALUE };

// Rows of this run: from .. end; full: whether the block ends with it
typedef struct block { int64_t size; uop *from, *end; tensor *full; } block;

block block_of(build *b, int64_t size);
int rows_state(loader *l, layer *y, int64_t size, int64_t width);          // memory for rows of blocks of this size
// Puts x {T, ...} behind the rows of earlier runs, in the layer's i-th state: all rows of the block so far {end, ...},
// or (all) all that a block can have.
tensor *keep_rows(build *b, const layer *y, int i, const block *k, tensor *x, bool all);
// at the block's first position
tensor *state_before(build *b, const layer *y, int i, const block *k, int n, const int64_t *dims);
// whether a row of the block comes before each token, or is it: {T, rows}
tensor *not_later(build *b, const block *k, uop *rows, bool itself);
// {end, H}, of all rows until each token: {T, H}
tensor *added_up(build *b, const block *k, tensor *log_decay);
uop *rows_done(build *b, const block *k);                                  // rows that go into the state
// What of each such row is left when the block ends {rows, H}, and of the state before it {1, H}
tensor *left_at_end(build *b, const block *k, tensor *sum, tensor *sums, uop *rows, tensor **of_state);
// d(t) = r(t) - sum over s < t of A(t, s) d(s), with r {T, H, v} and A {T, block, H}. They become rows of the layer's
// STATE_VALUE; all of the block's so far {end, H, v}
tensor *solve(build *b, const layer *y, const block *k, tensor *A, tensor *r);
#endif
