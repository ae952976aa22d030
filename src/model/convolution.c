// Short convolutions over the sequence: each channel is the sum of its last few values, weighted. What a run needs of
// earlier ones are the last L - 1 rows, a state of fixed size; at position 0 they are zeros, so that a sequence begins
// without anybody clearing memory.
#include "model/model_impl.h"
#include "model/stored.h"

// Rows of `before` {L - 1, D} and then of x {T, D}, by index.
static tensor *rows_at(build *b, tensor *before, tensor *x, tensor *index) {
  graph *g = b->g;
  uop *n = before->shape->dim[0];
  tensor *early = t_gather(g, before, index), *late = t_gather(g, x, t_sub(g, index, n));
  tensor *is_early = t_op2(g, OP_CMPLT, t_reshape(g, index, DIMS(index->shape->dim[0], n_(b, 1))), n);
  return t_where(g, is_early, early, late);
}

tensor *causal_conv(build *b, const layer *y, int i, enum tensor_id id, int64_t taps, tensor *x) {
  graph *g = b->g;
  int64_t d = x->shape->dim[1]->a;
  tensor *before = state_rows(b, y, i, 2, (int64_t[]){taps - 1, d}), *w = weight(b, y, id), *add = bias(b, y, id),
         *sum = NULL;
  x = looked_up(g, x);                                    // by each tap, another row
  for (int64_t j = 0; j < taps; j++) {
    tensor *row = j == taps - 1 ? x : rows_at(b, before, x, t_add(g, t_iota(g, b->T), n_(b, j)));
    tensor *term = t_mul(g, row, t_reshape_i(g, t_slice_i(g, w, 1, j, 1), 1, (int64_t[]){d}));
    sum = sum ? t_add(g, sum, term) : term;
  }
  // stored by way of a temporary: all of it is known before any of the old rows is overwritten
  state_store(b, y, i, rows_at(b, before, x, t_add(g, t_iota(g, n_(b, taps - 1)), b->T)));
  return add ? t_add(g, sum, add) : sum;
}

tensor *row_before(build *b, const layer *y, int i, tensor *x) {
  graph *g = b->g;
  tensor *before = state_rows(b, y, i, 2, (int64_t[]){1, x->shape->dim[1]->a}),
         *rows = rows_at(b, before, x, t_iota(g, b->T));
  state_store(b, y, i, rows_at(b, before, x, t_add(g, t_iota(g, n_(b, 1)), b->T)));
  return rows;
}

// --- the mixer of LFM2: a convolution between two gates --------------------------------------------------------------

static int load_convolution(loader *l, layer *y) {
  int64_t d = l->m->n_embd;
  int taps;
  if (key_count(l, "shortconv.l_cache", 2, 64, &taps)) return -1;
  y->taps = taps;
  if (want_matrix(l, y, W_SHORTCONV_IN, d, 3 * d, 0) || want_matrix(l, y, W_SHORTCONV, taps, d, 0) ||
      want_matrix(l, y, W_SHORTCONV_OUT, d, d, 0))
    return -1;
  state(l, y, DT_F32, 0, (taps - 1) * d);
  return 0;
}

static tensor *short_conv(build *b, const layer *y, tensor *x) {
  graph *g = b->g;
  int64_t d = b->m->n_embd;
  tensor *all = read_in_parts(g, linear(b, y, W_SHORTCONV_IN, x));
  tensor *in = t_slice_i(g, all, 1, 0, d), *out = t_slice_i(g, all, 1, d, d), *v = t_slice_i(g, all, 1, 2 * d, d);
  return linear(b, y, W_SHORTCONV_OUT, t_mul(g, out, causal_conv(b, y, 0, W_SHORTCONV, y->taps, t_mul(g, in, v))));
}

const part part_short_conv = {load_convolution, short_conv};
