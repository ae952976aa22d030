// Layers of Gemma 4's sound encoder (a conformer): half a feed-forward, attention to the preceding rows, a convolution
// over rows, half a feed-forward. A row depends on no later row. Four frames become one row.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <float.h>
#include <math.h>
#include "model/model_impl.h"
#include "model/projector_impl.h"
#include "model/stored.h"

enum { SEEN = 12 /* rows that a row sees, its own included */ };

// For each row, the row `by` rows before it; zeros before the first one.
static tensor *shifted_rows(const build *b, tensor *x, int64_t by) {
  return by ? t_slice(b->g, t_pad(b->g, x, 0, by, 0), 0, n_(b, 0), x->shape->dim[0]) : x;
}

static int load_half(loader *l, layer *y, enum tensor_id before, enum tensor_id up, enum tensor_id down,
                     enum tensor_id behind) {
  int64_t n = l->m->n_embd;
  return want_vector(l, y, before, n, 0) || want_matrix(l, y, up, n, y->n_ff, 0) ||
             want_matrix(l, y, down, y->n_ff, n, 0) || want_vector(l, y, behind, n, 0)
           ? -1
           : 0;
}

static int load_conformer(loader *l, layer *y) {
  int64_t n = l->m->n_embd;
  const gguf_tensor *taps = gguf_tensor_find(l->f, "a.blk.0.conv_dw.weight");
  return load_half(l, y, W_FFN_NORM, W_FFN_UP, W_FFN_DOWN, W_FFN_POST_NORM) ||
             want_matrix(l, y, W_ATTN_Q, n, n, 0) || want_matrix(l, y, W_ATTN_K, n, n, 0) ||
             want_matrix(l, y, W_ATTN_V, n, n, 0) || want_matrix(l, y, W_ATTN_OUT, n, n, 0) ||
             want_matrix(l, y, W_ATTN_K_REL, n, n, 0) || want_vector(l, y, W_PER_DIM_SCALE, y->head_dim, 0) ||
             want_vector(l, y, W_NORM_CONV, n, 0) || want_matrix(l, y, W_CONV_PW1, n, 2 * n, 0) ||
             want_matrix(l, y, W_CONV_DW, taps ? min_i64(taps->ne[0], 32) : 5, n, 0) ||
             want_vector(l, y, W_CONV_NORM, n, 0) || want_matrix(l, y, W_CONV_PW2, n, n, 0) ||
             load_half(l, y, W_FFN_NORM_1, W_FFN_UP_1, W_FFN_DOWN_1, W_FFN_POST_NORM_1) ||
             want_vector(l, y, W_LN2, n, 0)
           ? -1
           : 0;
}

static tensor *half(const build *b, const layer *y, const enum tensor_id id[4], tensor *x) {
  graph *g = b->g;
  tensor *made = linear(b, y, id[2], t_silu(g, linear(b, y, id[1], norm(b, y, id[0], x))));
  return t_add(g, x, t_scale(g, norm(b, y, id[3], made), 0.5));
}

// {heads, head, SEEN}: added to the keys for each distance: a product of sines and cosines of the distance.
static tensor *keys_of_distances(const build *b, const layer *y) {
  graph *g = b->g;
  int64_t n = b->m->n_embd, half = n / 2;
  double step = -log2(10000) / (double)max_i64(half - 1, 1);
  tensor *freq = t_op1(g, OP_EXP2, t_scale(g, t_cast(g, t_iota(g, n_(b, half)), DT_F64), step));
  tensor *at = t_reshape(g, t_cast(g, t_iota(g, n_(b, SEEN)), DT_F64), DIMS(n_(b, SEEN), n_(b, 1)));
  tensor *angle = t_mul(g, at, freq);
  tensor *cosine = t_op1(g, OP_SIN, t_add(g, angle, uop_float(g, DT_F64, M_PI_2)));
  at = t_cat_last(g, t_cast(g, t_op1(g, OP_SIN, angle), DT_F32), t_cast(g, cosine, DT_F32));
  at = t_swap(g, linear(b, y, W_ATTN_K_REL, at), 0, 1);
  return t_reshape(g, at, DIMS(n_(b, y->n_head), n_(b, y->head_dim), n_(b, SEEN)));
}

// {T, heads, head, SEEN}: for each row the rows that it sees, the nearest one first.
static tensor *seen_rows(const build *b, const layer *y, tensor *x) {
  tensor *all[SEEN];
  x = read_in_parts(b->g, x);
  for (int i = 0; i < SEEN; i++) all[i] = shifted_rows(b, x, i);
  return t_reshape(b->g, t_stack_last(b->g, all, SEEN), DIMS(b->T, n_(b, y->n_head), n_(b, y->head_dim), n_(b, SEEN)));
}

static tensor *conformer_attention(build *b, const layer *y, tensor *x) {
  graph *g = b->g;
  uop *heads = n_(b, y->n_head), *d = n_(b, y->head_dim), *one = n_(b, 1), *seen = n_(b, SEEN);
  tensor *q = t_reshape(g, linear(b, y, W_ATTN_Q, x), DIMS(b->T, heads, d));
  q = t_mul(g, t_scale(g, q, 1 / sqrt(y->head_dim) / log(2)), weight(b, y, W_PER_DIM_SCALE));
  tensor *k = t_scale(g, linear(b, y, W_ATTN_K, x), log(1 + exp(1)) / log(2));
  tensor *s = t_add(g, seen_rows(b, y, k), keys_of_distances(b, y));
  s = t_reduce(g, t_mul(g, t_reshape(g, q, DIMS(b->T, heads, d, one)), s), OP_ADD, 2);
  s = soft_cap(b, t_reshape(g, s, DIMS(b->T, heads, seen)), 50);
  tensor *at = t_reshape(g, t_iota(g, b->T), DIMS(b->T, one, one));
  s = t_where(g, t_op2(g, OP_CMPLT, at, t_iota(g, seen)), t_float(g, -FLT_MAX), s);
  tensor *share = t_reshape(g, t_softmax(g, s, 2), DIMS(b->T, heads, one, seen));
  x = t_reduce(g, t_mul(g, seen_rows(b, y, linear(b, y, W_ATTN_V, x)), share), OP_ADD, 3);
  return linear(b, y, W_ATTN_OUT, t_reshape(g, x, DIMS(b->T, n_(b, b->m->n_embd))));
}
const part part_conformer = {load_conformer, conformer_attention};

tensor *conformer_before(build *b, const layer *y, tensor *x) {
  return half(b, y, (enum tensor_id[]){W_FFN_NORM, W_FFN_UP, W_FFN_DOWN, W_FFN_POST_NORM}, x);
}

// Files name the norm before the convolution conv_norm and the one after it norm_conv.
tensor *conformer_behind(build *b, const layer *y, tensor *x) {
  graph *g = b->g;
  int64_t n = b->m->n_embd;
  tensor *both = linear(b, y, W_CONV_PW1, norm(b, y, W_CONV_NORM, x)), *kernel = weight(b, y, W_CONV_DW), *sum = NULL;
  tensor *in = t_mul(g, t_slice_i(g, both, 1, 0, n), sigmoid(g, t_slice_i(g, both, 1, n, n)));
  for (int64_t i = 0, taps = kernel->shape->dim[1]->a; i < taps; i++) {
    tensor *tap = t_reshape_i(g, t_slice_i(g, kernel, 1, i, 1), 1, &n);
    tap = t_mul(g, shifted_rows(b, in, taps - 1 - i), tap);
    sum = sum ? t_add(g, sum, tap) : tap;
  }
  sum = t_silu(g, norm(b, y, W_NORM_CONV, sum));
  x = t_add(g, x, linear(b, y, W_CONV_PW2, sum));
  x = half(b, y, (enum tensor_id[]){W_FFN_NORM_1, W_FFN_UP_1, W_FFN_DOWN_1, W_FFN_POST_NORM_1}, x);
  return norm(b, y, W_LN2, x);
}

// x {2 rows, bins, n} convolved with 3 x 3 taps at every other frame and bin, normed over outputs: {rows, bins / 2, ..}
static tensor *halved(const build *b, uop *rows, const enum tensor_id id[2], tensor *x) {
  graph *g = b->g;
  uop *two = n_(b, 2);
  int64_t n = x->shape->dim[2]->a, bins = x->shape->dim[1]->a;
  tensor *pairs = t_reshape(g, x, DIMS(rows, two, n_(b, bins), n_(b, n))), *near[9];
  for (int i = 0; i < 9; i++) {
    tensor *at = t_reshape(g, t_slice_i(g, pairs, 1, i / 3 != 1, 1), DIMS(rows, n_(b, bins), n_(b, n)));
    if (i < 3) at = shifted_rows(b, at, 1);
    at = t_slice_i(g, t_pad(g, at, 1, 1, 1), 1, i % 3, bins);
    at = t_slice_i(g, t_reshape(g, at, DIMS(rows, n_(b, bins / 2), two, n_(b, n))), 2, 0, 1);
    near[i] = t_reshape(g, at, DIMS(rows, n_(b, bins / 2), n_(b, n)));
  }
  x = t_reshape(g, t_stack_last(g, near, 9), DIMS(rows, n_(b, bins / 2), n_(b, 9 * n)));
  x = t_reshape(g, x, DIMS(idx_mul(g, rows, n_(b, bins / 2)), n_(b, 9 * n)));
  tensor *scale = weight(b, NULL, id[1]);
  int64_t out = scale->shape->dim[0]->a;
  x = t_matmul(g, x, t_reshape_i(g, weight(b, NULL, id[0]), 2, (int64_t[]){out, 9 * n}));
  x = t_op2(g, OP_MAX, t_layernorm(g, x, scale, b->m->eps), t_float(g, 0));
  return t_reshape(g, x, DIMS(rows, n_(b, bins / 2), n_(b, out)));
}

// Outputs of the first convolution after the end of the sound are 0 for the second one.
tensor *conformer_frames(build *b, uop *chunks) {
  graph *g = b->g;
  uop *pairs = idx_mul(g, chunks, n_(b, 2)), *one = n_(b, 1), *mel = n_(b, b->m->eye.mel);
  tensor *valid = t_reshape(g, t_cast(g, place_of(b, 0, b->T), DT_IDX), DIMS(b->T, one));
  valid = t_op2(g, OP_CMPLT, t_mul(g, t_iota(g, n_(b, 2)), uop_idx(g, 2)), valid);
  tensor *x = t_reshape(g, chunked_input(b, chunks), DIMS(idx_mul(g, chunks, n_(b, 4)), mel, one));
  x = halved(b, pairs, (enum tensor_id[]){W_CONV1D_0, W_CONV1D_0_NORM}, x);
  x = t_where(g, t_reshape(g, valid, DIMS(pairs, one, one)), x, t_float(g, 0));
  x = halved(b, chunks, (enum tensor_id[]){W_CONV1D_1, W_CONV1D_1_NORM}, x);
  int64_t n = x->shape->dim[1]->a * x->shape->dim[2]->a;
  return linear(b, NULL, W_INPUT_PROJECTION, t_reshape(g, x, DIMS(b->T, n_(b, n))));
}

int conformer_load(loader *l) {
  model *m = l->m;
  projector_facts *f = &m->eye;
  const gguf_tensor *first = gguf_tensor_find(l->f, "a.conv1d.0.norm.weight"),
                    *last = gguf_tensor_find(l->f, "a.conv1d.1.norm.weight"),
                    *end = gguf_tensor_find(l->f, "a.pre_encode.out.weight");
  int64_t c = first ? min_i64(first->ne[0], 1 << 14) : 1, d = last ? min_i64(last->ne[0], 1 << 14) : 1,
          out = end ? end->ne[1] : 1;
  *f = (projector_facts){.mel = f->mel, .merge = 1, .stack = 1, .chunk = 4, .halvings = 2, .chunk_window = 1,
                         .frames = 3000};
  if (f->mel % 4) return gguf_fail(l->f, key(l, "num_mel_bins"), l->err, "%d is not a multiple of 4", f->mel);
  return want_vector(l, NULL, W_CONV1D_0_NORM, c, 0) || want_vector(l, NULL, W_CONV1D_1_NORM, d, 0) ||
             want(l, NULL, W_CONV1D_0, 3, 3, c, WANT_BARE | WANT_KERNEL) ||
             want(l, NULL, W_CONV1D_1, 3, 3 * c, d, WANT_BARE | WANT_KERNEL) ||
             want_matrix(l, NULL, W_INPUT_PROJECTION, d * (f->mel / 4), m->n_embd, 0) ||
             want_matrix(l, NULL, W_PRE_ENCODE_OUT, m->n_embd, out, WANT_BIAS) ||
             want_matrix(l, NULL, W_MM_A_INPUT_PROJECTION, out, m->n_embd_out, 0)
           ? -1
           : 0;
}

tensor *conformer_graph(build *b, tensor *x) {
  x = t_rmsnorm(b->g, linear(b, NULL, W_PRE_ENCODE_OUT, x), NULL, b->m->eps);
  return linear(b, NULL, W_MM_A_INPUT_PROJECTION, x);
}
