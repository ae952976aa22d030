// Hyper-connections: the residual stream has several rows, all of which begin as the embedding. Before each part
// (attention or feed-forward) they are summed by one set of factors, and the part's output is added to each row by
// another set. Both are sigmoids of a product with all rows, normed as one; the head's input is a sum of the same kind,
// or the mean of the rows (GLM 5). In some models (DeepSeek V4) the rows are mixed before the addition by a matrix from
// the same product.
//
// Input: x {T, rows, n_embd}. The stream is stored between parts, since a norm runs over it (schedule/store.c).
#include <string.h>
#include "model/model_impl.h"
#include "model/stored.h"

enum { MAX_ROUNDS = 64 };

// Where rows are mixed, the factors of a part's output are at most 2; no key says so.
int hyper_keys(loader *l) {
  hyper *h = &l->m->hyper;
  if (!has_key(l, "hyper_connection.count")) return 0;
  if (key_count(l, "hyper_connection.count", 1, MAX_STREAM_ROWS, &h->n) ||
      key_count_or(l, "hyper_connection.sinkhorn_iterations", 0, 0, MAX_ROUNDS, &h->rounds) ||
      key_number(l, "hyper_connection.epsilon", 0, 1, &h->eps))
    return -1;
  if (!h->rounds) return key_number(l, "hyper_connection.magnitude", 0, 1e3, &h->magnitude);
  h->magnitude = 2;
  return 0;
}

// Loads a part's factors of the sum, of the addition and of the mixing; for the head, of the sum alone: parts is 2 or
// 1.
static int load_factors(loader *l, layer *y, const enum tensor_id id[3], int parts) {
  int64_t n = l->m->hyper.n, all = parts * n;
  bool mixes = y && l->m->hyper.rounds;
  if (mixes) all += n * n;
  return want_matrix(l, y, id[0], n * l->m->n_embd, all, 0) || want_vector(l, y, id[1], all, 0) ||
             want_vector(l, y, id[2], parts + mixes, 0)
           ? -1
           : 0;
}

static const enum tensor_id of_mixer[] = {W_HC_ATTN_FN, W_HC_ATTN_BASE, W_HC_ATTN_SCALE},
                            of_ff[] = {W_HC_FFN_FN, W_HC_FFN_BASE, W_HC_FFN_SCALE},
                            of_head[] = {W_OUTPUT_HC_FN, W_OUTPUT_HC_BASE, W_OUTPUT_HC_SCALE};

static const enum tensor_id low_of_mixer[] = {W_HC_ATTN_NORM, W_HC_ATTN_DOWN, W_HC_ATTN_UP, W_HC_ATTN_INJECT},
                            low_of_ff[] = {W_HC_FFN_NORM, W_HC_FFN_DOWN, W_HC_FFN_UP, W_HC_FFN_INJECT},
                            low_of_head[] = {W_OUTPUT_HC_NORM, W_OUTPUT_HC_DOWN, W_OUTPUT_HC_UP, W_NONE};

static int load_low(loader *l, layer *y, const enum tensor_id id[4]) {
  const hyper *h = &l->m->hyper;
  int64_t all = (int64_t)h->n * l->m->n_embd;
  return want_vector(l, y, id[0], all, 0) || want_matrix(l, y, id[1], all, h->low_rank, 0) ||
             want_matrix(l, y, id[2], h->low_rank, all, 0) || (id[3] && want_matrix(l, y, id[3], all, h->n, 0))
           ? -1
           : 0;
}

int hyper_load(loader *l) {
  model *m = l->m;
  if (!m->hyper.n) return 0;
  for (int i = 0; m->hyper.low_rank && i < m->n_layer; i++)
    if (load_low(l, &m->layers[i], low_of_mixer) || load_low(l, &m->layers[i], low_of_ff)) return -1;
  if (m->hyper.low_rank) return load_low(l, NULL, low_of_head);
  for (int i = 0; i < m->n_layer; i++)
    if (load_factors(l, &m->layers[i], of_mixer, 2) || load_factors(l, &m->layers[i], of_ff, 2)) return -1;
  return m->hyper.averaged ? 0 : load_factors(l, NULL, of_head, 1);
}

// The product with all rows of x {T', rows, n_embd}, as one, that the factors are made of
static tensor *product_of_rows(const build *b, const layer *y, const enum tensor_id id[3], tensor *x) {
  graph *g = b->g;
  tensor *all = t_reshape(g, x, DIMS(x->shape->dim[0], n_(b, (int64_t)b->m->hyper.n * b->m->n_embd)));
  return makes_several(g, linear(b, y, id[0], t_rmsnorm(g, all, NULL, b->m->eps)));
}

// Groups at .. at + n of a product, each of `size`, times a number per group, plus a bias: {T', n, size}
static tensor *scaled_groups(const build *b, const layer *y, const enum tensor_id id[3], tensor *made, int64_t at,
                             const int64_t group[3]) {
  graph *g = b->g;
  int64_t from = group[0], n = group[1], size = group[2];
  uop *one = n_(b, 1), *N = n_(b, n), *S = n_(b, size);
  tensor *by = t_reshape(g, t_slice_i(g, weight(b, y, id[2]), 0, from, n), DIMS(one, N, one)),
         *more = t_reshape(g, t_slice_i(g, weight(b, y, id[1]), 0, at, n * size), DIMS(one, N, S));
  return t_add(g, t_mul(g, t_reshape(g, t_slice_i(g, made, 1, at, n * size), DIMS(made->shape->dim[0], N, S)), by),
               more);
}

// {T', parts, rows}: sigmoids
static tensor *factors(const build *b, const layer *y, const enum tensor_id id[3], tensor *made, int parts) {
  return sigmoid(b->g, scaled_groups(b, y, id, made, 0, (int64_t[]){0, parts, b->m->hyper.n}));
}

// The sum over i of a[i * step] by[i]; by NULL: all factors are 1
static tensor *sum_of_few(graph *g, tensor *const *a, int step, tensor *const *by, int n) {
  tensor *sum = NULL;
  for (int i = 0; i < n; i++) {
    tensor *term = by[i] ? t_mul(g, a[i * step], by[i]) : a[i * step];
    sum = sum ? t_add(g, sum, term) : term;
  }
  return sum;
}

// What each row gives to each, {T, rows, rows}: softmaxes whose columns and rows are divided by their sums in turn
// (Sinkhorn). The divisions amount to a factor per row and per column, computed element by element: sums of four
// terms need no loops.
static tensor *mixing(const build *b, const layer *y, const enum tensor_id id[3], tensor *made) {
  graph *g = b->g;
  const hyper *h = &b->m->hyper;
  int n = h->n;
  uop *N = n_(b, n), *one = n_(b, 1);
  tensor *a[MAX_STREAM_ROWS * MAX_STREAM_ROWS], *of_row[MAX_STREAM_ROWS] = {0}, *of_column[MAX_STREAM_ROWS] = {0},
    *eps = t_float(g, h->eps);
  tensor *all = t_reshape(g, scaled_groups(b, y, id, made, 2 * n, (int64_t[]){2, 1, n * n}), DIMS(b->T, N, N));
  all = t_add(g, t_softmax(g, all, 2), eps);
  for (int i = 0; i < n * n; i++)
    a[i] = t_reshape(g, t_slice_i(g, t_slice_i(g, all, 1, i / n, 1), 2, i % n, 1), DIMS(b->T));
  for (int round = 0; round < 2 * h->rounds - 1; round++) {
    bool rows = round % 2;
    tensor **own = rows ? of_row : of_column, **other = rows ? of_column : of_row, *next[MAX_STREAM_ROWS];
    for (int i = 0; i < n; i++) {
      tensor *sum = sum_of_few(g, rows ? &a[i * n] : &a[i], rows ? 1 : n, other, n);
      if (own[i]) sum = t_mul(g, sum, own[i]);
      next[i] = t_op2(g, OP_FDIV, own[i] ? own[i] : t_float(g, 1), t_add(g, sum, eps));
    }
    memcpy(own, next, (size_t)n * sizeof *next);
  }
  tensor *both[2 * MAX_STREAM_ROWS];
  for (int i = 0; i < n; i++) {
    both[i] = of_row[i] ? of_row[i] : t_broadcast(g, t_float(g, 1), a[0]->shape);
    both[n + i] = of_column[i];
  }
  tensor *by = t_stack_last(g, both, 2 * n);
  return t_mul(g, t_mul(g, all, t_reshape(g, t_slice_i(g, by, 1, 0, n), DIMS(b->T, N, one))),
               t_reshape(g, t_slice_i(g, by, 1, n, n), DIMS(b->T, one, N)));
}

// The sum of the rows by the first part of the factors, {T', n_embd}
static tensor *summed(const build *b, tensor *x, tensor *by) {
  graph *g = b->g;
  uop *T = x->shape->dim[0], *n = n_(b, b->m->hyper.n), *one = n_(b, 1), *d = n_(b, b->m->n_embd);
  by = t_add(g, t_reshape(g, t_slice_i(g, by, 1, 0, 1), DIMS(T, n, one)), t_float(g, b->m->hyper.eps));
  return t_reshape(g, t_reduce(g, t_mul(g, x, by), OP_ADD, 1), DIMS(T, d));
}

static tensor *through_part(build *b, const layer *y, const part *p, enum tensor_id before, const enum tensor_id id[3],
                            tensor *x) {
  graph *g = b->g;
  uop *n = n_(b, b->m->hyper.n), *one = n_(b, 1), *d = n_(b, b->m->n_embd);
  tensor *of = product_of_rows(b, y, id, x), *by = factors(b, y, id, of, 2),
         *made = p->graph(b, y, norm(b, y, before, summed(b, x, by)));
  tensor *after = t_scale(g, t_reshape(g, t_slice_i(g, by, 1, 1, 1), DIMS(b->T, n, one)), b->m->hyper.magnitude);
  if (b->m->hyper.rounds) {
    tensor *mix = t_reshape(g, mixing(b, y, id, of), DIMS(b->T, n, n, one));
    mix = t_reduce(g, t_mul(g, mix, t_reshape(g, x, DIMS(b->T, n, one, d))), OP_ADD, 1);
    x = t_reshape(g, mix, DIMS(b->T, n, d));
  } else {
    after = t_add(g, after, t_float(g, b->m->hyper.eps));
  }
  return t_add(g, x, t_mul(g, t_reshape(g, made, DIMS(b->T, one, d)), after));
}

// --- a factor per element, of low rank (Qwen4-Exp) -------------------------------------------------------------------
// Each row is normed by itself. A sigmoid of a product of low rank, made of all rows, multiplies each element; the part
// reads the mean of the rows. Its output is added to each row by a factor that is made of all rows, too.

// The normed rows {T', rows x n_embd}; *mean {T', n_embd}
static tensor *low_normed(const build *b, const layer *y, const enum tensor_id id[4], tensor *x, tensor **mean) {
  graph *g = b->g;
  int64_t rows = b->m->hyper.n, d = b->m->n_embd;
  uop *T = x->shape->dim[0], *R = n_(b, rows), *D = n_(b, d);
  tensor *w = t_reshape_i(g, weight(b, y, id[0]), 2, (int64_t[]){rows, d});
  tensor *normed = t_rmsnorm(g, x, w, b->m->eps),
         *flat = t_reshape(g, normed, DIMS(T, n_(b, rows * d)));
  tensor *low = t_silu(g, t_scale(g, linear(b, y, id[1], flat), 1.0 / (double)rows));
  tensor *gate = t_reshape(g, sigmoid(g, linear(b, y, id[2], low)), DIMS(T, R, D));
  tensor *sum = t_reduce(g, t_mul(g, normed, gate), OP_ADD, 1);
  *mean = t_reshape(g, t_scale(g, sum, 1.0 / (double)rows), DIMS(T, D));
  return flat;
}

static tensor *through_low(build *b, const layer *y, const part *p, const enum tensor_id id[4], tensor *x) {
  graph *g = b->g;
  uop *one = n_(b, 1), *R = n_(b, b->m->hyper.n), *D = n_(b, b->m->n_embd);
  tensor *in, *flat = low_normed(b, y, id, x, &in);
  tensor *by = sigmoid(g, t_scale(g, linear(b, y, id[3], flat), 1.0 / b->m->hyper.n)), *made = p->graph(b, y, in);
  by = t_reshape(g, t_scale(g, by, 2), DIMS(b->T, R, one));
  return t_add(g, x, t_mul(g, t_reshape(g, made, DIMS(b->T, one, D)), by));
}

static tensor *all_through_low(build *b, const layer *y, tensor *x) {
  if (ngram_in(b->m, y)) x = ngram_through(b, y, x);
  x = through_low(b, y, y->mixer, low_of_mixer, x);
  return controlled(b, y, through_low(b, y, y->ff, low_of_ff, x));
}

// --- the whole stream ------------------------------------------------------------------------------------------------

tensor *hyper_enter(const build *b, tensor *x) {
  graph *g = b->g;
  uop *n = n_(b, b->m->hyper.n), *one = n_(b, 1), *d = n_(b, b->m->n_embd);
  if (!b->m->hyper.n) return x;
  return t_expand(g, t_reshape(g, x, DIMS(b->T, one, d)), 3, (uop *[]){b->T, n, d});
}

tensor *hyper_through(build *b, const layer *y, tensor *x) {
  if (b->m->hyper.low_rank) return all_through_low(b, y, x);
  x = through_part(b, y, y->mixer, y->mixer_norm, of_mixer, x);
  return controlled(b, y, through_part(b, y, y->ff, y->ff_norm, of_ff, x));
}

tensor *hyper_leave(const build *b, tensor *x) {
  graph *g = b->g;
  const hyper *h = &b->m->hyper;
  if (h->low_rank) {
    tensor *mean;
    low_normed(b, NULL, low_of_head, x, &mean);
    return mean;
  }
  if (h->n && h->averaged)
    return t_reshape(g, t_scale(g, t_reduce(g, x, OP_ADD, 1), 1.0 / h->n),
                                 DIMS(x->shape->dim[0], n_(b, b->m->n_embd)));
  return h->n ? summed(b, x, factors(b, NULL, of_head, product_of_rows(b, NULL, of_head, x), 1)) : x;
}
