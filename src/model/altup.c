// Alternating updates (Gemma 3n): the residual stream has several rows, and a layer computes only one of them, the
// active row. Before a layer every row is predicted as a weighted sum of all rows. After it, the difference between the
// layer's output for the active row and its prediction corrects all rows. The coefficients are computed from the active
// row. A low-rank product (LAuReL) runs in parallel with attention, and the layer's own embedding is added to the rows
// that it did not compute.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <math.h>
#include "model/dequant.h"
#include "model/model_impl.h"
#include "model/stored.h"

enum { LAUREL_RANK = 64 };        // fixed: the file has no key for it

int altup_load(loader *l) {
  model *m = l->m;
  int64_t d = m->n_embd, n = m->n_rows;
  if (!n) return 0;
  if (want(l, NULL, W_ALTUP_PROJ, d, d, n - 1, 0) || want(l, NULL, W_ALTUP_UNEMBD_PROJ, d, d, n - 1, 0)) return -1;
  for (int i = 0; i < m->n_layer; i++) {
    layer *y = &m->layers[i];
    if (want_matrix(l, y, W_ALTUP_ROUTER, d, n, 0) || want_vector(l, y, W_ALTUP_ROUTER_NORM, d, 0) ||
        want_matrix(l, y, W_ALTUP_PREDICT_COEF, n, n * n, 0) || want_matrix(l, y, W_ALTUP_CORRECT_COEF, n, n, 0) ||
        want_vector(l, y, W_ALTUP_CORRECT_SCALE, d, 0) || want_matrix(l, y, W_LAUREL_L, d, LAUREL_RANK, 0) ||
        want_matrix(l, y, W_LAUREL_R, LAUREL_RANK, d, 0) || want_vector(l, y, W_LAUREL_POST_NORM, d, 0))
      return -1;
  }
  return 0;
}

// Matrix i of a tensor of several {n_embd, n_embd} matrices
static tensor *matrix(const build *b, enum tensor_id id, int64_t i) {
  int64_t d = b->m->n_embd, at = b->m->w[id].weight - 1;
  const struct format *f = gguf_tensor_at(b->m->file, (size_t)at)->format;
  return dequant_rows(b->g, f, (int)at, (b->m->n_rows - 1) * d, i * d, d, d);
}

static tensor *row(const build *b, tensor *x, int64_t i) {
  return t_reshape(b->g, t_slice_i(b->g, x, 1, i, 1), DIMS(x->shape->dim[0], x->shape->dim[2]));
}

// x, scaled to the root mean square of `like`
static tensor *as_large(const build *b, tensor *x, tensor *like) {
  graph *g = b->g;
  double n = b->m->n_embd;
  tensor *is = t_scale(g, t_reduce(g, t_mul(g, x, x), OP_ADD, 1), 1 / n),
         *wanted = t_scale(g, t_reduce(g, t_mul(g, like, like), OP_ADD, 1), 1 / n);
  return t_mul(g, x, t_op1(g, OP_SQRT, t_op2(g, OP_FDIV, wanted, t_op2(g, OP_MAX, is, t_float(g, 1e-5)))));
}

tensor *altup_enter(build *b, tensor *x) {
  graph *g = b->g;
  int n = b->m->n_rows;
  if (!n) return x;
  tensor *rows[MAX_STREAM_ROWS] = {x};
  for (int i = 1; i < n; i++) rows[i] = as_large(b, t_matmul(g, x, matrix(b, W_ALTUP_PROJ, i - 1)), x);
  return one_form(g, t_permute(g, t_stack_last(g, rows, n), (int[]){0, 2, 1}));
}

tensor *altup_leave(const build *b, tensor *x) {
  graph *g = b->g;
  int n = b->m->n_rows;
  if (!n) return x;
  tensor *first = row(b, x, 0), *sum = first;
  for (int i = 1; i < n; i++)
    sum = t_add(g, sum, as_large(b, t_matmul(g, row(b, x, i), matrix(b, W_ALTUP_UNEMBD_PROJ, i - 1)), first));
  return t_scale(g, sum, 1.0 / n);
}

// The input of the coefficients: {T, rows} from x {T, n_embd}
static tensor *modalities(build *b, const layer *y, tensor *x) {
  graph *g = b->g;
  tensor *in = t_scale(g, norm(b, y, W_ALTUP_ROUTER_NORM, x), 1.0 / b->m->n_embd);
  return soft_cap(b, linear(b, y, W_ALTUP_ROUTER, in), 1);
}

static tensor *predicted(build *b, const layer *y, tensor *x) {
  graph *g = b->g;
  uop *n = n_(b, b->m->n_rows), *d = n_(b, b->m->n_embd), *one = n_(b, 1);
  tensor *by = linear(b, y, W_ALTUP_PREDICT_COEF, modalities(b, y, row(b, x, 0)));
  tensor *sum =
    t_reduce(g, t_mul(g, t_reshape(g, by, DIMS(b->T, n, n, one)), t_reshape(g, x, DIMS(b->T, one, n, d))), OP_ADD, 2);
  return t_add(g, x, t_reshape(g, sum, DIMS(b->T, n, d)));
}

tensor *altup_through(build *b, const layer *y, tensor *x) {
  graph *g = b->g;
  uop *n = n_(b, b->m->n_rows), *d = n_(b, b->m->n_embd), *one = n_(b, 1);
  tensor *rows = predicted(b, y, x), *active = row(b, rows, 0),
         *in = norm(b, y, y->mixer_norm, active);
  tensor *thin = linear(b, y, W_LAUREL_R, linear(b, y, W_LAUREL_L, in));
  thin = t_add(g, in, norm(b, y, W_LAUREL_POST_NORM, thin));
  tensor *mixed = t_add(g, active, norm(b, y, y->mixer_post, y->mixer->graph(b, y, in)));
  mixed = t_scale(g, t_add(g, mixed, thin), M_SQRT1_2);
  tensor *ff = y->ff->graph(b, y, norm(b, y, y->ff_norm, mixed));
  tensor *made = t_add(g, mixed, norm(b, y, y->ff_post, ff));
  tensor *by = t_add(g, linear(b, y, W_ALTUP_CORRECT_COEF, modalities(b, y, made)), t_float(g, 1));
  tensor *beyond =
    t_mul(g, t_reshape(g, t_sub(g, made, active), DIMS(b->T, one, d)), t_reshape(g, by, DIMS(b->T, n, one)));
  rows = t_add(g, rows, beyond);
  tensor *own = per_layer_adds(b, y, t_mul(g, row(b, rows, 0), weight(b, y, W_ALTUP_CORRECT_SCALE)));
  tensor *others =
    t_op2(g, OP_CMPLT, t_float(g, 0.5), t_reshape(g, t_cast(g, t_iota(g, n), DT_F32), DIMS(one, n, one)));
  rows = t_add(g, rows, t_where(g, others, t_reshape(g, own, DIMS(b->T, one, d)), t_float(g, 0)));
  return controlled(b, y, rows);
}
