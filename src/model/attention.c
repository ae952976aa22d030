// Attention with heads of keys and values, each for one or several heads of queries, and its two caches.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <math.h>
#include "model/model_impl.h"

// The K cache lies in pages of KV_PAGE positions, {page, kv, head_dim, position in page}: scores of neighbouring positions lie side
// by side, and memory is touched as the context grows. Seen here as {kv, head_dim, ctx}.
enum { KV_PAGE = 64, CACHE_K = 0, CACHE_V = 1 };

static int load(loader *l, layer *y) {
  model *m = l->m;
  unsigned f = m->arch->flags, bias = f & ARCH_QKV_BIAS ? WANT_BIAS : 0, normed = f & ARCH_QK_NORM ? 0 : WANT_OPTIONAL;
  if (y->n_head < 1) return gguf_fail(l->f, key(l, "attention.head_count"), l->err, "is 0 for layer %d, which has attention", y->index);
  if (y->n_kv < 1 || y->n_head % y->n_kv)
    return gguf_fail(l->f, key(l, "attention.head_count_kv"), l->err, "%d does not divide attention.head_count = %d", y->n_kv, y->n_head);
  if (y->head_dim % 2) return gguf_fail(l->f, key(l, "attention.key_length"), l->err, "%d is odd", y->head_dim);
  int64_t d = m->n_embd, kv = (int64_t)y->n_kv * y->head_dim, v = (int64_t)y->n_kv * y->v_dim;
  if (want_matrix(l, y, W_ATTN_Q, d, (int64_t)y->n_head * y->head_dim, bias) || want_matrix(l, y, W_ATTN_K, d, kv, bias) || want_matrix(l, y, W_ATTN_V, d, v, bias) ||
      want_matrix(l, y, W_ATTN_OUTPUT, (int64_t)y->n_head * y->v_dim, d, 0) || want_vector(l, y, W_ATTN_Q_NORM, y->head_dim, normed) ||
      want_vector(l, y, W_ATTN_K_NORM, y->head_dim, normed)) return -1;
  state(l, y, DT_F16, kv, 0);
  state(l, y, DT_F16, v, 0);
  return 0;
}

static tensor *k_view(const build *b, const layer *y, tensor *cache) {
  tensor *pages = t_reshape_i(b->g, cache, 4, (int64_t[]){b->ctx / KV_PAGE, y->n_kv, y->head_dim, KV_PAGE});
  return t_reshape_i(b->g, t_permute(b->g, pages, (int[]){1, 2, 0, 3}), 3, (int64_t[]){y->n_kv, y->head_dim, b->ctx});
}

static tensor *store_k(build *b, const layer *y, tensor *k) {
  graph *g = b->g;
  int64_t half = y->head_dim / 2;
  tensor *cache = state_buffer(b, y, CACHE_K), *view = t_slice(g, k_view(b, y, cache), 2, b->pos, b->T), *value;
  if (b->m->rope.dim == y->head_dim) {
    bool neox = b->m->arch->flags & ARCH_NEOX;
    view = t_reshape(g, view, DIMS(n_(b, y->n_kv), n_(b, neox ? 2 : half), n_(b, neox ? half : 2), b->T));
    if (neox) view = t_swap(g, view, 1, 2);
    value = t_permute(g, rope_pairs(b, k, y->n_kv, y->head_dim), (int[]){1, 2, 3, 0});
  } else {
    value = t_permute(g, rope_turn(b, k, y->n_kv, y->head_dim), (int[]){1, 2, 0});
  }
  tensor *next = t_assign(g, view, value);
  vec_push(&b->effects, next);
  return t_slice(g, k_view(b, y, next), 2, n_(b, 0), b->C);
}

static tensor *store_v(build *b, const layer *y, tensor *v) {        // cache {ctx, kv, v_dim}
  graph *g = b->g;
  const int64_t dims[] = {b->ctx, y->n_kv, y->v_dim};
  tensor *next = t_assign(g, t_slice(g, t_reshape_i(g, state_buffer(b, y, CACHE_V), 3, dims), 0, b->pos, b->T), v);
  vec_push(&b->effects, next);
  return t_slice(g, t_reshape_i(g, next, 3, dims), 0, n_(b, 0), b->C);
}

tensor *attend(build *b, const layer *y, tensor *q, tensor *K, tensor *V) {
  graph *g = b->g;
  int64_t kv = y->n_kv, per = y->n_head / y->n_kv, d = y->head_dim, dv = y->v_dim;
  // scores {T, kv, per, 1, C}
  tensor *qs = t_reshape(g, q, DIMS(b->T, n_(b, kv), n_(b, per), n_(b, d), n_(b, 1)));
  tensor *ks = t_cast(g, t_reshape(g, K, DIMS(n_(b, 1), n_(b, kv), n_(b, 1), n_(b, d), b->C)), DT_F32);
  tensor *s = t_reduce(g, t_mul(g, qs, ks), OP_ADD, 3);
  tensor *seen = t_reshape(g, t_add(g, t_iota(g, b->T), b->pos), DIMS(b->T, n_(b, 1), n_(b, 1), n_(b, 1), n_(b, 1)));
  s = t_where(g, t_op2(g, OP_CMPLT, seen, t_iota(g, b->C)), t_float(g, -INFINITY), s);
  // softmax over positions, divided after the sum over V
  tensor *e = t_exp(g, t_sub(g, s, t_reduce(g, s, OP_MAX, 4)));
  tensor *total = t_reshape(g, t_reduce(g, e, OP_ADD, 4), DIMS(b->T, n_(b, kv), n_(b, per), n_(b, 1)));
  tensor *es = t_reshape(g, e, DIMS(b->T, n_(b, kv), n_(b, per), b->C, n_(b, 1)));
  tensor *vs = t_cast(g, t_reshape(g, t_swap(g, V, 0, 1), DIMS(n_(b, 1), n_(b, kv), n_(b, 1), b->C, n_(b, dv))), DT_F32);
  tensor *o = t_reshape(g, t_reduce(g, t_mul(g, es, vs), OP_ADD, 3), DIMS(b->T, n_(b, kv), n_(b, per), n_(b, dv)));
  return t_reshape(g, t_op2(g, OP_FDIV, o, total), DIMS(b->T, n_(b, y->n_head * dv)));
}

static tensor *attention(build *b, const layer *y, tensor *x) {
  graph *g = b->g;
  int64_t d = y->head_dim;
  unsigned f = b->m->arch->flags;
  tensor *q = t_reshape(g, linear(b, y, W_ATTN_Q, x), DIMS(b->T, n_(b, y->n_head), n_(b, d)));
  tensor *k = t_reshape(g, linear(b, y, W_ATTN_K, x), DIMS(b->T, n_(b, y->n_kv), n_(b, d)));
  tensor *v = t_reshape(g, linear(b, y, W_ATTN_V, x), DIMS(b->T, n_(b, y->n_kv), n_(b, y->v_dim)));
  // Rows are finished first where a norm runs over them, and where neighbouring rows rotate together: integer dot products want
  // neighbours in lanes.
  bool normed = f & ARCH_QK_NORM;
  if (normed || !(f & ARCH_NEOX)) { q = t_contiguous(g, q); k = t_contiguous(g, k); }
  if (normed) { q = norm(b, y, W_ATTN_Q_NORM, q); k = norm(b, y, W_ATTN_K_NORM, k); }
  q = rope_turn(b, t_scale(g, q, 1 / sqrt((double)d)), y->n_head, d);
  tensor *K = store_k(b, y, k), *V = store_v(b, y, v);
  return linear(b, y, W_ATTN_OUTPUT, attend(b, y, q, K, V));
}

const part part_attention = {load, attention};
