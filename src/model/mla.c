// Multi-head latent attention. Keys and values of all heads are linear in one short vector per position: c (normed,
// `latent` elements), and k_pe, the rotated part of the key, which all heads share. So the cache holds only [c | k_pe]
// per position, and each head's matrices are applied to the query and to the output instead:
//
//   q_nope . (K_h c) = (K_h^T q_nope) . c          sum_t p_t (V_h c_t) = V_h (sum_t p_t c_t)
//
// The rest is ordinary attention with one head of keys [c | k_pe], whose values are its first elements, in the same
// memory.
//
// Layers with a window may have sizes of their own (part_window_mla).
//
// Files have K_h^T and V_h for each head (attn_k_b, attn_v_b). Older files have K_h and V_h together (attn_kv_b), which
// is then summed over its rows.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <math.h>
#include "model/dequant.h"
#include "model/model_impl.h"
#include "model/stored.h"

// YaRN corrects the size of scores: if the file has a multiplier, only through the factor of the query's scale;
// otherwise the rotated parts grow as well.
static int load_scale(loader *l, mla *a) {
  double log_mul, attn, given;
  rope *r = &l->m->rope[ROPE_GLOBAL];
  if (key_number_or(l, "rope.scaling.yarn_log_multiplier", 0, -1e3, 1e3, &log_mul) ||
      key_number_or(l, "rope.scaling.attn_factor", 1, 1e-3, 1e3, &attn) ||
      key_number_or(l, "rope.scaling.yarn_attn_factor", 0, 1e-3, 1e3, &given))
    return -1;
  bool yarn = r->ramp != 0 && r->scale > 1;
  double by = !yarn ? 1 : 1 + (log_mul != 0 ? log_mul : 0.1) * log(r->scale);
  r->attn = attn * (yarn && given != 0 ? given : yarn && log_mul == 0 ? by : 1);
  a->scale = l->m->attention_scale != 0 ? l->m->attention_scale : by * by / sqrt(a->nope + a->rope);
  return 0;
}

static int load_mla(loader *l, layer *y) {
  mla *a = &y->mla;
  int64_t d = l->m->n_embd, heads = y->n_head;
  bool both = has_key(l, "attention.key_length_mla");
  // layers with a window may have sizes of their own
  bool near = y->mixer == &part_window_mla;
  int q = y->head_dim;
  a->v = y->v_dim;
  a->rope = l->m->rope[ROPE_GLOBAL].dim;
  if (want_heads(l, y)) return -1;
  if (key_count(l, near ? "attention.kv_lora_rank_swa" : "attention.kv_lora_rank", 1, 1 << 14, &a->latent) ||
      (both &&
       (key_count(l, near ? "attention.value_length_mla_swa" : "attention.value_length_mla", 1, 1 << 14, &a->v) ||
        key_count(l, near ? "attention.key_length_mla_swa" : "attention.key_length_mla", 1, 1 << 14, &q))))
    return -1;
  int turning = y->rope == ROPE_NONE ? a->rope : l->m->rope[y->rope].dim;
  if (turning != a->rope)
    return gguf_fail(l->f, key(l, "rope.dimension_count_swa"), l->err,
                     "%d, but latent attention rotates rope.dimension_count = %d elements in all layers", turning,
                     a->rope);
  if (q <= a->rope)
    return gguf_fail(l->f, key(l, both ? "attention.key_length_mla" : "attention.key_length"), l->err,
                     "%d leaves nothing beside rope.dimension_count = %d", q, a->rope);
  a->nope = q - a->rope;
  y->n_kv = 1; y->head_dim = a->latent + a->rope; y->v_dim = a->latent;
  if (load_scale(l, a) || want_matrix(l, y, W_ATTN_Q, d, heads * q, WANT_OPTIONAL)) return -1;
  if (!y->w[W_ATTN_Q].weight) {
    int rank;
    if (key_count(l, "attention.q_lora_rank", 1, 1 << 20, &rank) || want_matrix(l, y, W_ATTN_Q_A, d, rank, 0) ||
        want_vector(l, y, W_ATTN_Q_A_NORM, rank, 0) || want_matrix(l, y, W_ATTN_Q_B, rank, heads * q, 0))
      return -1;
  }
  if (want_matrix(l, y, W_ATTN_KV_A_MQA, d, y->head_dim, 0) || want_vector(l, y, W_ATTN_KV_A_NORM, a->latent, 0) ||
      want(l, y, W_ATTN_K_B, a->nope, a->latent, heads, WANT_OPTIONAL)) return -1;
  if (y->w[W_ATTN_K_B].weight ? want(l, y, W_ATTN_V_B, a->latent, a->v, heads, 0)
                              : want_matrix(l, y, W_ATTN_KV_B, a->latent, heads * (a->nope + a->v), 0))
    return -1;
  if (want_matrix(l, y, W_ATTN_OUTPUT, heads * a->v, d, 0)) return -1;
  int64_t gates = heads * (y->head_gates ? 1 : a->v);
  if (l->m->arch->flags & ARCH_OUT_GATE && want_matrix(l, y, W_ATTN_GATE, d, gates, 0)) return -1;
  if (l->m->arch->flags & ARCH_SINKS && want_vector(l, y, W_ATTN_SINKS, heads, 0)) return -1;
  if (l->m->arch->rotated_key_norm && want_vector(l, y, W_ATTN_K_NORM, a->rope, 0)) return -1;
  if (kv_load(l, y, KV_KEYS)) return -1;
  return !l->m->top_k || near ? 0 : l->m->block_size ? pool_indexer_load(l, y) : indexer_load(l, y);
}

// A tensor as one matrix per head, {heads, rows, columns}
static tensor *per_head(const build *b, const layer *y, enum tensor_id id, int64_t rows) {
  const gguf_tensor *t = gguf_tensor_at(b->m->file, (size_t)y->w[id].weight - 1);
  return t_reshape_i(b->g, dequant(b->g, t->format, y->w[id].weight - 1, y->n_head * rows, t->ne[0]), 3,
                     (int64_t[]){y->n_head, rows, t->ne[0]});
}

// x {T, heads, n} times w {heads, rows, n}: {T, heads, rows}
tensor *heads_product(const build *b, tensor *x, tensor *w) {
  graph *g = b->g;
  uop *heads = w->shape->dim[0], *rows = w->shape->dim[1], *n = w->shape->dim[2], *one = n_(b, 1);
  tensor *p = t_mul(g, t_reshape(g, x, DIMS(b->T, heads, one, n)), t_reshape(g, w, DIMS(one, heads, rows, n)));
  return t_reshape(g, t_reduce(g, p, OP_ADD, 3), DIMS(b->T, heads, rows));
}

// heads_product for w {heads, n, rows}
static tensor *heads_product_across(const build *b, tensor *x, tensor *w) {
  graph *g = b->g;
  uop *heads = w->shape->dim[0], *n = w->shape->dim[1], *rows = w->shape->dim[2], *one = n_(b, 1);
  tensor *p = t_mul(g, t_reshape(g, x, DIMS(b->T, heads, n, one)), t_reshape(g, w, DIMS(one, heads, n, rows)));
  return t_reshape(g, t_reduce(g, p, OP_ADD, 2), DIMS(b->T, heads, rows));
}

static tensor *key_side(const build *b, const layer *y, tensor *q) {          // {T, heads, nope} to {T, heads, latent}
  const mla *a = &y->mla;
  if (y->w[W_ATTN_K_B].weight) return heads_product(b, q, per_head(b, y, W_ATTN_K_B, a->latent));
  return heads_product_across(b, q, t_slice_i(b->g, per_head(b, y, W_ATTN_KV_B, a->nope + a->v), 1, 0, a->nope));
}

static tensor *value_side(const build *b, const layer *y, tensor *o) {        // {T, heads, latent} to {T, heads, v}
  const mla *a = &y->mla;
  if (y->w[W_ATTN_V_B].weight) return heads_product(b, o, per_head(b, y, W_ATTN_V_B, a->v));
  return heads_product(b, o, t_slice_i(b->g, per_head(b, y, W_ATTN_KV_B, a->nope + a->v), 1, a->nope, a->v));
}

// Queries are rounded to half precision, like the keys: llama.cpp does so, and the choices of a later router may depend
// on it.
static tensor *query(const build *b, tensor *x, double scale) {
  x = t_scale(b->g, x, scale);
  return one_form(b->g, b->s->exact ? x : t_cast(b->g, t_cast(b->g, x, DT_F16), DT_F32));
}

// The positions that an indexer chose, of this layer or of an earlier one; NULL: all are read.
static tensor *chosen_of(build *b, const layer *y, tensor *x, tensor *q) {
  if (y->mixer == &part_window_mla || !indexer_chooses(b->m, b->s->n_ctx)) return NULL;
  if (y->kv_from == y->index)
    b->kept[y->index].chosen = b->m->block_size ? pool_indexer_choice(b, y, x, q) : indexer_choice(b, y, x, q);
  return b->kept[y->kv_from].chosen;
}

// k_pe of kv, the product that keys and values are made from
static tensor *rotated_key(build *b, const layer *y, tensor *kv) {
  const mla *a = &y->mla;
  tensor *k = t_reshape(b->g, t_slice_i(b->g, kv, 1, a->latent, a->rope), DIMS(b->T, n_(b, 1), n_(b, a->rope)));
  if (y->w[W_ATTN_K_NORM].weight) k = norm(b, y, W_ATTN_K_NORM, k);
  return rope_turn(b, y, k, 1, a->rope);
}

static tensor *mla_attention(build *b, const layer *y, tensor *x) {
  graph *g = b->g;
  const mla *a = &y->mla;
  int64_t q_dim = a->nope + a->rope;
  uop *T = b->T, *heads = n_(b, y->n_head), *one = n_(b, 1);
  tensor *q = x;
  if (y->w[W_ATTN_Q_A].weight) q = norm(b, y, W_ATTN_Q_A_NORM, linear(b, y, W_ATTN_Q_A, x));
  tensor *low = q;
  q = linear(b, y, y->w[W_ATTN_Q].weight ? W_ATTN_Q : W_ATTN_Q_B, q);
  q = t_reshape(g, q, DIMS(T, heads, n_(b, q_dim)));
  tensor *kv = linear(b, y, W_ATTN_KV_A_MQA, x);
  tensor *c = read_by_many(g, norm(b, y, W_ATTN_KV_A_NORM, t_slice_i(g, kv, 1, 0, a->latent)));
  c = t_reshape(g, c, DIMS(T, one, n_(b, a->latent)));
  tensor *K = kv_store(b, y, KV_KEYS, a->rope ? t_cat_last(g, c, rotated_key(b, y, kv)) : c);
  tensor *q_c = scaled_by_position(b, y, key_side(b, y, t_slice_i(g, q, 2, 0, a->nope)));
  tensor *s = scores(b, y, query(b, q_c, a->scale), t_slice_i(g, K, 2, 0, a->latent));
  if (a->rope) {
    tensor *q_pe = scaled_by_position(b, y, rope_turn(b, y, t_slice_i(g, q, 2, a->nope, a->rope), y->n_head, a->rope));
    s = t_add(g, s, scores(b, y, query(b, q_pe, a->scale), t_slice_i(g, K, 2, a->latent, a->rope)));
  }
  tensor *chosen = chosen_of(b, y, x, low);
  if (chosen) s = t_where(g, chosen, s, t_float(g, -INFINITY));
  sight of = seen_positions(b, y, s, t_slice_i(g, K, 2, 0, a->latent));
  of.as_keys = true;
  tensor *o = attend_to(b, y, &of, 1);
  o = value_side(b, y, t_reshape(g, o, DIMS(T, heads, n_(b, a->latent))));
  if (y->w[W_ATTN_GATE].weight)
    o = t_mul(g, o, t_reshape(g, sigmoid(g, linear(b, y, W_ATTN_GATE, x)),
                              DIMS(T, heads, y->head_gates ? one : n_(b, a->v))));
  return linear(b, y, W_ATTN_OUTPUT, t_reshape(g, o, DIMS(T, n_(b, (int64_t)y->n_head * a->v))));
}

const part part_mla = {load_mla, mla_attention};
const part part_window_mla = {load_mla, mla_attention};
