// Short convolutions over the sequence: each channel is a weighted sum of its last few values. A run needs the last L -
// 1 rows of earlier runs, a state of fixed size. Rows before position 0 are zeros, so a sequence begins without
// clearing memory.
//
// The state is a ring: the row of position p is at p modulo the ring's length. It has MODEL_BACK rows more than a run
// needs, so that a sequence that goes back by up to that many positions still finds the rows before them.
#include "model/model_impl.h"

static int64_t ring_rows(int64_t needed) { return needed + MODEL_BACK; }

void ring_state(loader *l, layer *y, int64_t needed, int64_t width) {
  state(l, y, DT_F32, 0, ring_rows(needed) * width);
}

// Where the n positions from `first` on are stored (first >= -needed), as row numbers in the layer's i-th state, all
// slots counted.
static tensor *ring_places(build *b, int64_t needed, uop *first, uop *n) {
  graph *g = b->g;
  tensor *rows = n_(b, ring_rows(needed)), *at = t_add(g, t_iota(g, n), idx_add(g, first, rows));
  return t_add(g, t_mul(g, t_cast(g, b->slot, DT_IDX), rows), t_op2(g, OP_MOD, at, rows));
}

static tensor *recent_rows(build *b, const layer *y, int i, int64_t needed, int64_t width) {
  int64_t dims[] = {b->s->slots * ring_rows(needed), width};
  return t_reshape_i(b->g, state_buffer(b, y, i), 2, dims);
}

// For each row of x {T, D} the row `before` rows earlier; before <= needed.
tensor *ring_earlier(build *b, const layer *y, int i, int64_t needed, int64_t before, tensor *x) {
  graph *g = b->g;
  uop *first = idx_sub(g, b->pos, n_(b, before)), *one = n_(b, 1);
  tensor *old = t_gather(g, recent_rows(b, y, i, needed, x->shape->dim[1]->a), ring_places(b, needed, first, b->T)),
         *row = t_iota(g, b->T), *column = t_reshape(g, row, DIMS(b->T, one));
  tensor *is_none = t_op2(g, OP_CMPLT, t_add(g, column, b->pos), n_(b, before));
  tensor *is_old = t_op2(g, OP_CMPLT, column, n_(b, before));
  return t_where(g, is_old, t_where(g, is_none, t_float(g, 0), old), t_gather(g, x, t_sub(g, row, n_(b, before))));
}

// Writes the last rows of x {T, D} into the ring, as many as it has.
void ring_keep(build *b, const layer *y, int i, int64_t needed, tensor *x) {
  graph *g = b->g;
  uop *rows = n_(b, ring_rows(needed)), *n = idx_min(g, b->T, rows);
  // T - n, in a form whose least value the interval analysis finds
  uop *from = idx_max(g, idx_sub(g, b->T, rows), n_(b, 0));
  tensor *ring = recent_rows(b, y, i, needed, x->shape->dim[1]->a);
  tensor *to = t_gather(g, ring, ring_places(b, needed, idx_add(g, b->pos, from), n));
  vec_push(b->effects, t_assign(g, to, t_slice(g, x, 0, from, n)));
}

tensor *causal_conv(build *b, const layer *y, int i, enum tensor_id id, int64_t taps, tensor *x) {
  graph *g = b->g;
  int64_t d = x->shape->dim[1]->a;
  tensor *w = weight(b, y, id), *add = bias(b, y, id), *sum = NULL;
  for (int64_t j = 0; j < taps; j++) {
    tensor *row = j == taps - 1 ? x : ring_earlier(b, y, i, taps - 1, taps - 1 - j, x);
    tensor *term = t_mul(g, row, t_reshape_i(g, t_slice_i(g, w, 1, j, 1), 1, (int64_t[]){d}));
    sum = sum ? t_add(g, sum, term) : term;
  }
  ring_keep(b, y, i, taps - 1, x);
  return add ? t_add(g, sum, add) : sum;
}

tensor *row_before(build *b, const layer *y, int i, tensor *x) {
  tensor *rows = ring_earlier(b, y, i, 1, 1, x);
  ring_keep(b, y, i, 1, x);
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
  ring_state(l, y, taps - 1, d);
  return 0;
}

static tensor *short_conv(build *b, const layer *y, tensor *x) {
  graph *g = b->g;
  int64_t d = b->m->n_embd;
  tensor *all = linear(b, y, W_SHORTCONV_IN, x);
  tensor *in = t_slice_i(g, all, 1, 0, d), *out = t_slice_i(g, all, 1, d, d), *v = t_slice_i(g, all, 1, 2 * d, d);
  return linear(b, y, W_SHORTCONV_OUT, t_mul(g, out, causal_conv(b, y, 0, W_SHORTCONV, y->taps, t_mul(g, in, v))));
}

const part part_short_conv = {load_convolution, short_conv};
