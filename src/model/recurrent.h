// Shared by the recurrences: the rows of a block, and the triangular system of a delta rule. recurrent.c explains
// blocks.
#ifndef WEFT_RECURRENT_H
#define WEFT_RECURRENT_H
#include "model/model_impl.h"

enum { DELTA_BLOCK = 32, MAMBA_BLOCK = 64 };
// A layer's states; the last four have one row per position of a block.
enum { STATE_CONV, STATE_SSM, STATE_DECAY, STATE_SUM, STATE_KEY, STATE_VALUE };

// The rows of this run: from .. end; full: the block ends with it
typedef struct block { int64_t size; uop *from, *end; tensor *full; } block;

block block_of(build *b, int64_t size);
int rows_state(loader *l, layer *y, int64_t size, int64_t width);          // memory for rows of blocks of this size
// Appends x {T, ...} to the rows of earlier runs in the layer's i-th state. Returns all rows of the block so far {end,
// ...} or, with `all`, all rows that a block can have.
tensor *keep_rows(build *b, const layer *y, int i, const block *k, tensor *x, bool all);
// The state at the block's first position
tensor *state_before(build *b, const layer *y, int i, const block *k, int n, const int64_t *dims);
// Whether a row of the block is before each token, or (itself) is that token: {T, rows}
tensor *not_later(build *b, const block *k, uop *rows, bool itself);
// The sums of {end, H} over all rows up to each token: {T, H}
tensor *added_up(build *b, const block *k, tensor *log_decay);
uop *rows_done(build *b, const block *k);                                  // rows that enter the state
// The factor that is left of each such row at the end of the block {rows, H}, and of the state before it {1, H}
tensor *left_at_end(build *b, const block *k, tensor *sum, tensor *sums, uop *rows, tensor **of_state);
// Solves d(t) = r(t) - sum over s < t of A(t, s) d(s), with r {T, H, v} and A {T, block, H}, and stores d as rows of
// the layer's STATE_VALUE. Returns all rows of the block so far {end, H, v}
tensor *solve(build *b, const layer *y, const block *k, tensor *A, tensor *r);
// A recurrence whose heads decay as a whole: v {T, inner} is added by tokens, by B {T, groups x state}; C, of the same
// shape as B, reads. sum {T, H}: sums of the logarithms of decays from the block's beginning; sums {end, H}: those of
// all its rows; dt {end, H}: the weight of each row, NULL: 1. memory, keys, values: numbers of the layer's states
typedef struct fading { tensor *v, *B, *C, *sum, *sums, *dt; int memory, keys, values; } fading;
// The tokens' outputs, {T, H, p}, with the sizes of y->ssm; advances these states.
tensor *read_fading(build *b, const layer *y, const block *k, const fading *f);
#endif
