// The decoder as a tensor graph: embedding, layers of attention and feed-forward, head. Written as one would write it on paper;
// which of it becomes a kernel is the scheduler's business. T: number of tokens in this run, C: number of positions seen so far.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <math.h>
#include <stdlib.h>
#include "model/dequant.h"
#include "model/model.h"

typedef struct build {
  const model *m;
  const model_shape *s;
  graph *g;
  uop *T, *C, *pos;
  int64_t ctx;
  tensor *cos, *sin;         // {T, 1, rope_dim / 2}
  VEC(uop *) effects;
} build;

#define DIMS(...) (int)COUNT(((uop *[]){__VA_ARGS__})), (uop *[]){__VA_ARGS__}
static uop *n_(const build *b, int64_t v) { return uop_idx(b->g, v); }

// The tensor of a name in the file and its index, or NULL.
static const gguf_tensor *find(const build *b, const char *name, int layer, const char *kind, int64_t *index) {
  char full[96];
  if (layer >= 0) snprintf(full, sizeof full, "blk.%d.%s.%s", layer, name, kind);
  else snprintf(full, sizeof full, "%s.%s", name, kind);
  const gguf_tensor *t = gguf_tensor_find(b->m->file, full);
  for (*index = 0; t && gguf_tensor_at(b->m->file, (size_t)*index) != t;) ++*index;
  return t;
}

static tensor *weight(const build *b, const char *name, int layer, const char *kind) {
  int64_t i;
  const gguf_tensor *t = find(b, name, layer, kind, &i);
  if (!t) return NULL;
  tensor *w = dequant(b->g, t->format, i, t->ne[1], t->ne[0]);
  return t->n_dims == 1 ? t_reshape(b->g, w, 1, &w->shape->dim[1]) : w;
}

static tensor *linear(const build *b, tensor *x, const char *name, int layer) {
  tensor *y = t_matmul(b->g, x, weight(b, name, layer, "weight"));
  tensor *bias = weight(b, name, layer, "bias"), *scale = weight(b, name, layer, "scale");      // scale: of the whole tensor, as NVFP4 files have them
  if (scale) y = t_mul(b->g, y, scale);
  return bias ? t_add(b->g, y, bias) : y;
}

static tensor *norm(const build *b, tensor *x, const char *name, int layer) { return t_rmsnorm(b->g, x, weight(b, name, layer, "weight"), b->m->eps); }

// Angles in f64: position times base^(-2i/d), over the file's frequency factors where it has some.
static void rope_tables(build *b) {
  graph *g = b->g;
  const model *m = b->m;
  int64_t half = m->rope_dim / 2;
  tensor *i = t_cast(g, t_iota(g, n_(b, half)), DT_F64);
  tensor *freq = t_op1(g, OP_EXP2, t_scale(g, i, -2.0 / m->rope_dim * log2(m->rope_base)));
  tensor *factors = weight(b, "rope_freqs", -1, "weight");
  if (factors) freq = t_op2(g, OP_FDIV, freq, t_cast(g, factors, DT_F64));
  tensor *p = t_cast(g, t_add(g, t_iota(g, b->T), b->pos), DT_F64);
  tensor *angle = t_mul(g, t_reshape(g, p, DIMS(b->T, n_(b, 1), n_(b, 1))), t_scale(g, freq, 1 / m->rope_scale));
  b->sin = t_cast(g, t_op1(g, OP_SIN, angle), DT_F32);
  b->cos = t_cast(g, t_op1(g, OP_SIN, t_add(g, angle, uop_float(g, DT_F64, M_PI_2))), DT_F32);
}

// x {T, heads, head_dim}: pairs of the first rope_dim elements turn by their angle; the rest stays. As pairs: {T, heads, head_dim/2, 2},
// where [.., i, 0] and [.., i, 1] are the two elements of pair i, wherever they lie in the head.
static tensor *pairs_of(const build *b, tensor *x, int64_t heads) {
  int64_t half = b->m->head_dim / 2;
  if (!(b->m->arch->flags & ARCH_NEOX)) return t_reshape(b->g, x, DIMS(b->T, n_(b, heads), n_(b, half), n_(b, 2)));
  return t_swap(b->g, t_reshape(b->g, x, DIMS(b->T, n_(b, heads), n_(b, 2), n_(b, half))), 2, 3);
}

static tensor *rope_pairs(const build *b, tensor *x, int64_t heads) {
  graph *g = b->g;
  int64_t half = b->m->head_dim / 2;
  tensor *p = pairs_of(b, x, heads), *part[2];
  for (int i = 0; i < 2; i++) part[i] = t_reshape(g, t_slice_i(g, p, 3, i, 1), DIMS(b->T, n_(b, heads), n_(b, half)));
  tensor *re = t_sub(g, t_mul(g, part[0], b->cos), t_mul(g, part[1], b->sin));
  tensor *im = t_add(g, t_mul(g, part[0], b->sin), t_mul(g, part[1], b->cos));
  return t_stack_last(g, (tensor *[]){re, im}, 2);
}

// Pairs back to {T, heads, head_dim}
static tensor *unpaired(const build *b, tensor *p, int64_t heads) {
  if (b->m->arch->flags & ARCH_NEOX) p = t_swap(b->g, p, 2, 3);
  return t_reshape(b->g, p, DIMS(b->T, n_(b, heads), n_(b, b->m->head_dim)));
}

// Rope over part of the head: the rotated part as pairs, the rest beside it.
static tensor *rope_partial(build *b, tensor *x, int64_t heads) {
  graph *g = b->g;
  int64_t r = b->m->rope_dim, d = b->m->head_dim;
  model part = *b->m;
  part.head_dim = (int)r;
  build inner = *b;
  inner.m = &part;
  tensor *turned = unpaired(&inner, rope_pairs(&inner, t_slice_i(g, x, 2, 0, r), heads), heads);
  return t_cat_last(g, turned, t_slice_i(g, x, 2, r, d - r));
}

// The K cache lies in pages of KV_PAGE positions, {page, kv, head_dim, position in page}: scores of neighbouring positions lie side
// by side, and memory is touched as the context grows. Seen here as {kv, head_dim, ctx}.
enum { KV_PAGE = 64 };

static tensor *k_view(const build *b, tensor *cache) {
  const model *m = b->m;
  tensor *pages = t_reshape_i(b->g, cache, 4, (int64_t[]){b->ctx / KV_PAGE, m->n_kv, m->head_dim, KV_PAGE});
  return t_reshape_i(b->g, t_permute(b->g, pages, (int[]){1, 2, 0, 3}), 3, (int64_t[]){m->n_kv, m->head_dim, b->ctx});
}

static tensor *store_k(build *b, tensor *k, int64_t id) {
  graph *g = b->g;
  const model *m = b->m;
  int64_t half = m->head_dim / 2;
  tensor *cache = t_buffer(g, id, DT_F16, model_kv_elements(m, b->ctx)), *view = t_slice(g, k_view(b, cache), 2, b->pos, b->T), *value;
  if (m->rope_dim == m->head_dim) {
    bool neox = m->arch->flags & ARCH_NEOX;
    view = t_reshape(g, view, DIMS(n_(b, m->n_kv), n_(b, neox ? 2 : half), n_(b, neox ? half : 2), b->T));
    if (neox) view = t_swap(g, view, 1, 2);
    value = t_permute(g, rope_pairs(b, k, m->n_kv), (int[]){1, 2, 3, 0});
  } else {
    value = t_permute(g, rope_partial(b, k, m->n_kv), (int[]){1, 2, 0});
  }
  tensor *next = t_assign(g, view, value);
  vec_push(&b->effects, next);
  return t_slice(g, k_view(b, next), 2, n_(b, 0), b->C);
}

static tensor *store_v(build *b, tensor *v, int64_t id) {        // cache {ctx, kv, head_dim}
  graph *g = b->g;
  const model *m = b->m;
  const int64_t dims[] = {b->ctx, m->n_kv, m->head_dim};
  tensor *next = t_assign(g, t_slice(g, t_reshape_i(g, t_buffer(g, id, DT_F16, model_kv_elements(m, b->ctx)), 3, dims), 0, b->pos, b->T), v);
  vec_push(&b->effects, next);
  return t_slice(g, t_reshape_i(g, next, 3, dims), 0, n_(b, 0), b->C);
}

static tensor *attention(build *b, tensor *x, int layer) {
  graph *g = b->g;
  const model *m = b->m;
  int64_t kv = m->n_kv, per = m->n_head / m->n_kv, d = m->head_dim;
  tensor *q = t_reshape(g, linear(b, x, "attn_q", layer), DIMS(b->T, n_(b, m->n_head), n_(b, d)));
  tensor *k = t_reshape(g, linear(b, x, "attn_k", layer), DIMS(b->T, n_(b, kv), n_(b, d)));
  tensor *v = t_reshape(g, linear(b, x, "attn_v", layer), DIMS(b->T, n_(b, kv), n_(b, d)));
  // Rows are finished first where a norm runs over them, and where neighbouring rows rotate together: integer dot products want
  // neighbours in lanes.
  bool normed = m->arch->flags & ARCH_QK_NORM;
  if (normed || !(m->arch->flags & ARCH_NEOX)) { q = t_contiguous(g, q); k = t_contiguous(g, k); }
  if (normed) { q = norm(b, q, "attn_q_norm", layer); k = norm(b, k, "attn_k_norm", layer); }
  q = t_scale(g, q, 1 / sqrt((double)d));
  q = m->rope_dim == d ? unpaired(b, rope_pairs(b, q, m->n_head), m->n_head) : rope_partial(b, q, m->n_head);
  tensor *K = store_k(b, k, model_buffer_id(m, BUF_CACHE + 2 * layer)), *V = store_v(b, v, model_buffer_id(m, BUF_CACHE + 2 * layer + 1));
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
  tensor *vs = t_cast(g, t_reshape(g, t_swap(g, V, 0, 1), DIMS(n_(b, 1), n_(b, kv), n_(b, 1), b->C, n_(b, d))), DT_F32);
  tensor *o = t_reshape(g, t_reduce(g, t_mul(g, es, vs), OP_ADD, 3), DIMS(b->T, n_(b, kv), n_(b, per), n_(b, d)));
  o = t_op2(g, OP_FDIV, o, total);
  return linear(b, t_reshape(g, o, DIMS(b->T, n_(b, m->n_head * d))), "attn_output", layer);
}

static tensor *feed_forward(build *b, tensor *x, int layer) {
  tensor *gate = t_silu(b->g, linear(b, x, "ffn_gate", layer));
  return linear(b, t_mul(b->g, gate, linear(b, x, "ffn_up", layer)), "ffn_down", layer);
}

uop *model_graph(const model *m, graph *g, const model_shape *s) {
  build b = {.m = m, .s = s, .g = g, .ctx = s->ctx};
  b.T = s->chunk > 1 ? uop_var(g, "n", 1, s->chunk) : uop_idx(g, 1);
  b.pos = uop_var(g, "pos", 0, s->ctx - s->chunk);
  b.C = idx_add(g, b.pos, b.T);
  rope_tables(&b);
  tensor *ids = t_slice(g, t_buffer(g, model_buffer_id(m, BUF_IDS), DT_I32, s->chunk), 0, uop_idx(g, 0), b.T);
  // what flows from layer to layer is stored, whatever that costs: sums over it then have one form for one token and for many
  tensor *x = t_contiguous(g, t_gather(g, weight(&b, "token_embd", -1, "weight"), ids));
  for (int i = 0; i < m->n_layer; i++) {
    x = t_contiguous(g, t_add(g, x, attention(&b, norm(&b, x, "attn_norm", i), i)));
    x = t_contiguous(g, t_add(g, x, feed_forward(&b, norm(&b, x, "ffn_norm", i), i)));
  }
  if (s->logits) {
    tensor *last = t_slice(g, x, 0, idx_sub(g, b.T, uop_idx(g, 1)), uop_idx(g, 1));
    tensor *logits = t_reshape_i(g, linear(&b, norm(&b, last, "output_norm", -1), m->tied ? "token_embd" : "output", -1), 1, (int64_t[]){m->n_vocab});
    vec_push(&b.effects, t_assign(g, t_buffer(g, model_buffer_id(m, BUF_LOGITS), DT_F32, m->n_vocab), logits));
  }
  uop *sink = uop_new(g, OP_SINK, DT_VOID, 1, b.effects.at, b.effects.n, (uarg){0});
  free(b.effects.at);
  return sink;
}
