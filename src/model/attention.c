// Attention with one key and value head per group of query heads, and its two caches.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <math.h>
#include "model/model_impl.h"
#include "model/stored.h"

// Sliding windows: their length in positions, and which layers have one, as a period or as one number per layer (1: it
// has).
int layers_slide(loader *l) {
  model *m = l->m;
  int window, period = m->arch->period;
  uint32_t each[MODEL_MAX_LAYERS] = {0};       // the extra block after the last layer may be listed, too
  if (!period) return 0;
  if (key_count_or(l, "attention.sliding_window", (uint32_t)m->window, 0, 1u << 30, &window)) return -1;
  const gguf_value *pattern = gguf_find(l->f, key(l, "attention.sliding_window_pattern"));
  bool listed = pattern && pattern->type == GGUF_ARRAY;
  if (listed && key_flags(l, "attention.sliding_window_pattern", each)) return -1;
  if (pattern && !listed && key_count(l, "attention.sliding_window_pattern", 0, MODEL_MAX_LAYERS, &period)) return -1;
  if (period == PERIOD_LISTED && window && !pattern)
    return gguf_fail(l->f, key(l, "attention.sliding_window"), l->err,
                     "%d, but attention.sliding_window_pattern does not say which layers have it", window);
  // A window as long as the context hides nothing, and nothing else depends on it. Where only some layers have a
  // window, they may have other heads and another rope.
  bool all = m->arch->period == PERIOD_ALL || (!period && !listed && !(m->arch->flags & ARCH_SWA_PLAIN_ROPE));
  if (all && m->arch->period < 0 && window >= m->n_ctx_train) {
    m->n_ctx_max = window;
    window = 0;
  }
  if (period == PERIOD_ALL) period = 0;
  int head_dim = 0, v_dim = 0;
  if (window && (key_count_or(l, "attention.key_length_swa", (uint32_t)m->layers[0].head_dim, 2, 1 << 14, &head_dim) ||
                 key_count_or(l, "attention.value_length_swa", (uint32_t)m->layers[0].v_dim, 1, 1 << 14, &v_dim)))
    return -1;
  int global = m->arch->flags & ARCH_GLOBAL_FIRST ? 0 : period - 1;
  for (int i = 0; window && i < model_n_blocks(m); i++) {
    // The extra block after the layers (mtp.c) sees everything unless it is listed.
    if (listed ? !each[i] : i == m->n_layer || (period && i % period == global)) {
      bool rotates = i == m->n_layer || (m->arch->flags & ARCH_DENSE_ROPE && m->layers[i].ff == &part_dense);
      if (m->arch->flags & ARCH_GLOBAL_NO_ROPE && !rotates) m->layers[i].rope = ROPE_NONE;
      continue;
    }
    m->layers[i].window = window;
    m->layers[i].head_dim = head_dim;
    m->layers[i].v_dim = v_dim;
    if (m->layers[i].rope == ROPE_GLOBAL) m->layers[i].rope = ROPE_SLIDING;
  }
  return 0;
}

// The last layers may have no keys and values of their own. They read those of the last earlier layer with the same
// window, or without one.
int layers_share(loader *l) {
  model *m = l->m;
  int shared;
  if (!(m->arch->flags & ARCH_SHARED_KV)) return 0;
  if (key_count_or(l, "attention.shared_kv_layers", 0, 0, (uint32_t)m->n_layer - 1, &shared)) return -1;
  int first = m->n_layer - shared;
  for (int i = first; i < m->n_layer; i++) {
    layer *y = &m->layers[i];
    int from = first - 1;
    while (from >= 0 && m->layers[from].window != y->window) from--;
    if (from < 0 || m->layers[from].n_kv != y->n_kv)
      return gguf_fail(l->f, key(l, "attention.shared_kv_layers"), l->err,
                       "%d, but no layer before has keys and values for layer %d", shared, i);
    y->mixer = &part_shared_attention;
    y->kv_from = from;
  }
  return 0;
}

// The weights of its heads: the products that make queries, keys and values from the stream, and their norms
int heads_weights(loader *l, layer *y) {
  model *m = l->m;
  unsigned f = m->arch->flags, bias = bias_if(l, HAS_QKV_BIAS);
  if (want_heads(l, y)) return -1;
  if (y->n_kv < 1 || y->n_head % y->n_kv)
    return gguf_fail(l->f, key(l, "attention.head_count_kv"), l->err, "%d does not divide attention.head_count = %d",
                     y->n_kv, y->n_head);
  if (y->head_dim % 2) return gguf_fail(l->f, key(l, "attention.key_length"), l->err, "%d is odd", y->head_dim);
  // a draft's layer reads the embedding beside the stream
  int64_t d = (int64_t)m->n_embd * (m->arch->drafts == DRAFTS_CHAIN ? 2 : 1), q = (int64_t)y->n_head * y->head_dim,
          k = (int64_t)y->n_kv * y->head_dim, v = (int64_t)y->n_kv * y->v_dim;
  int64_t q_rows = f & ARCH_GATED_Q ? 2 * q : q;
  if (want_matrix(l, y, W_ATTN_QKV, d, q_rows + k + v, WANT_OPTIONAL)) return -1;
  if (y->w[W_ATTN_QKV].weight) {
    if (bias && !y->w[W_ATTN_QKV].bias)
      return gguf_fail(l->f, NULL, l->err, "tensor 'blk.%d.attn_qkv.bias' is missing", y->block);
  } else {
    if (want_matrix(l, y, W_ATTN_Q, d, q_rows, bias)) return -1;
    if (m->arch->has & HAS_QKV_BIAS_MAYBE) bias = y->w[W_ATTN_Q].bias ? WANT_BIAS : 0;
    if (want_matrix(l, y, W_ATTN_K, d, k, m->arch->has & HAS_BARE_KEYS ? 0 : bias) ||
        want_matrix(l, y, W_ATTN_V, d, v, bias | (f & ARCH_V_MAYBE_K && !y->window && k == v ? WANT_OPTIONAL : 0)))
      return -1;
    bool others = y->w[W_ATTN_K].bias || y->w[W_ATTN_V].bias;
    if (m->arch->has & HAS_QKV_BIAS_MAYBE && !bias && others)
      return gguf_fail(l->f, NULL, l->err, "tensor 'blk.%d.attn_q.bias' is missing", y->block);
  }
  if (f & (ARCH_QK_NORM | ARCH_QK_NORM_ALL | ARCH_QK_NORM_MAYBE)) {
    bool all = f & ARCH_QK_NORM_ALL;
    if (want_vector(l, y, W_ATTN_Q_NORM, all ? q : y->head_dim, f & ARCH_QK_NORM_MAYBE ? WANT_OPTIONAL : 0)) return -1;
    if (y->w[W_ATTN_Q_NORM].weight && want_vector(l, y, W_ATTN_K_NORM, all ? k : y->head_dim, 0)) return -1;
  }
  return 0;
}

int attention_weights(loader *l, layer *y) {
  model *m = l->m;
  unsigned f = m->arch->flags;
  int64_t d = m->n_embd, v = (int64_t)y->n_head * y->v_dim;
  if (heads_weights(l, y) || want_matrix(l, y, W_ATTN_OUTPUT, v, d, bias_if(l, HAS_OUT_BIAS))) return -1;
  int64_t gates = y->head_gates ? y->n_head : v;
  if (f & ARCH_OUT_GATE && want_matrix(l, y, W_ATTN_GATE, d, gates, 0)) return -1;
  if (m->arch->has & HAS_Q_GAIN && want_matrix(l, y, W_ATTN_Q_NORM, 1, y->n_head, 0)) return -1;
  if (f & ARCH_QK_NORM_EACH) {
    unsigned each = m->arch->centred_heads ? WANT_EACH : 0;
    if (want_matrix(l, y, W_ATTN_Q_NORM, y->head_dim, y->n_head, WANT_OPTIONAL | each)) return -1;
    if (y->w[W_ATTN_Q_NORM].weight && want_matrix(l, y, W_ATTN_K_NORM, y->head_dim, y->n_kv, each)) return -1;
  }
  if (m->arch->has & HAS_SUB_NORMS && want_vector(l, y, W_ATTN_SUB_NORM, v, 0)) return -1;
  if (f & ARCH_SINKS && want_vector(l, y, W_ATTN_SINKS, y->n_head, m->arch->has & HAS_SINKS_MAYBE ? WANT_OPTIONAL : 0))
    return -1;
  return 0;
}

static int load_attention(loader *l, layer *y) {
  if (attention_weights(l, y)) return -1;
  return kv_load(l, y, KV_KEYS) || kv_load(l, y, KV_VALUES) ||
             (y->compressed.ratio ? pool_indexer_load(l, y) : block_indexer_load(l, y))
           ? -1
           : 0;
}

tensor *own_at(const build *b) {
  return t_reshape(b->g, b->at, DIMS(b->T, n_(b, 1), n_(b, 1), n_(b, 1), n_(b, 1)));
}

static tensor *store_k(build *b, const layer *y, tensor *k) {
  if (!kv_is_float(b->m, KV_KEYS) || !rope_whole(b, y, y->head_dim))
    return kv_store(b, y, KV_KEYS, kv_turned(b, rope_turn(b, y, k, y->n_kv, y->head_dim), y->head_dim));
  return kv_store_pairs(b, y, rope_pairs(b, y, k, y->n_kv, y->head_dim));
}

// Scores of positions that a token does not see become -inf: later positions, and those before its window.
static tensor *masked(build *b, const layer *y, tensor *s) {
  graph *g = b->g;
  tensor *own = own_at(b), *at = kv_seen_at(b, y);
  bool both = b->last && (b->m->both_ways == BOTH_ALL || (b->m->both_ways == BOTH_WINDOWS && y->window));
  tensor *last = both ? t_reshape(g, b->last, own->shape->n, own->shape->dim) : own;
  s = t_where(g, t_op2(g, OP_CMPLT, last, at), t_float(g, -INFINITY), s);
  if (b->m->unseen)
    s = t_where(g, t_op2(g, OP_CMPLT, at, t_op2(g, OP_MIN, own, n_(b, b->m->unseen))), t_float(g, -INFINITY), s);
  if (!y->window) return s;
  tensor *first = t_sub(g, own, n_(b, y->window - 1));
  if (b->m->arch->flags & ARCH_CHUNKS) first = t_mul(g, t_op2(g, OP_IDIV, own, n_(b, y->window)), n_(b, y->window));
  return t_where(g, t_op2(g, OP_CMPLT, at, first), t_float(g, -INFINITY), s);
}

// q {T, heads, d}, K {sequences, kv, d, seen}
tensor *scores(build *b, const layer *y, tensor *q, tensor *K) {
  graph *g = b->g;
  uop *kv = n_(b, y->n_kv), *per = n_(b, y->n_head / y->n_kv), *d = K->shape->dim[2], *one = n_(b, 1);
  tensor *qs = t_reshape(g, t_stage(g, t_reshape(g, q, DIMS(b->T, kv, per, d)), false), DIMS(b->T, kv, per, d, one)),
         *ks = t_reshape(g, K, DIMS(K->shape->dim[0], kv, one, d, K->shape->dim[3]));
  return t_reduce(g, t_mul(g, qs, ks), OP_ADD, 3);
}

// Slopes {1, kv, heads / kv, 1, 1} by which the scores of a head fall with the distance (ALiBi). They form a geometric
// series of ratio 2^(-alibi / n), with n the largest power of 2 that is at most the number of heads. The other heads
// have the values that 2n heads would have in between.
tensor *alibi_slopes(const build *b, const layer *y) {
  graph *g = b->g;
  int64_t n = 1, kv = y->n_kv;
  while (2 * n <= y->n_head) n *= 2;
  tensor *h = t_cast(g, t_iota(g, n_(b, y->n_head)), DT_F32);
  tensor *first = t_add(g, h, t_float(g, 1)), *between = t_sub(g, h, t_float(g, (double)n - 0.5));
  tensor *slope = t_op1(
    g, OP_EXP2,
    t_scale(g, t_where(g, t_op2(g, OP_CMPLT, h, t_float(g, (double)n)), first, between), -b->m->alibi / (double)n));
  return t_reshape(g, slope, DIMS(n_(b, 1), n_(b, kv), n_(b, y->n_head / kv), n_(b, 1), n_(b, 1)));
}

// Adds the slopes: scores fall for each position between a token and the position that it reads.
static tensor *add_alibi(build *b, const layer *y, tensor *s) {
  graph *g = b->g;
  if (b->m->alibi == 0) return s;
  tensor *own = own_at(b), *at = kv_seen_at(b, y);
  return t_add(g, s, t_mul(g, alibi_slopes(b, y), t_cast(g, t_sub(g, at, own), DT_F32)));
}

sight seen_positions(build *b, const layer *y, tensor *s, tensor *V) {
  graph *g = b->g;
  tensor *at = kv_seen_at(b, y);
  at = t_reshape(g, at, DIMS(at->shape->dim[0], n_(b, 1), n_(b, 1), kv_seen(b, y), n_(b, 1)));
  tensor *there = b->s->apart ? t_op2(g, OP_CMPLT, at, t_add(g, own_at(b), n_(b, 1))) : t_op2(g, OP_CMPLT, at, b->C);
  return (sight){.scores = masked(b, y, add_alibi(b, y, soft_cap(b, s, b->m->attention_cap))), .V = V, .there = there};
}

// Rows after the last position may hold anything, and 0 times NaN is NaN: such values are replaced by 0. {sequences,
// kv, 1, seen, v_dim}. If the result is stored, it has the layout of the cache, whose order is that of the sums over
// positions.
static tensor *values_there(const build *b, const layer *y, const sight *of) {
  graph *g = b->g;
  uop *sequences = of->V->shape->dim[0], *kv = n_(b, y->n_kv), *one = n_(b, 1), *all = of->scores->shape->dim[4],
      *dv = n_(b, y->v_dim);
  if (!of->there) return t_reshape(g, of->V, DIMS(sequences, kv, one, all, dv));
  if (!of->as_keys)
    return t_where(g, of->there, t_reshape(g, of->V, DIMS(sequences, kv, one, all, dv)), t_float(g, 0));
  tensor *v = t_reshape(g, of->V, DIMS(sequences, kv, one, dv, all));
  return t_swap(g, t_where(g, t_swap(g, of->there, 3, 4), v, t_float(g, 0)), 3, 4);
}

tensor *attend_to(build *b, const layer *y, const sight *of, int n) {
  graph *g = b->g;
  uop *kv = n_(b, y->n_kv), *per = n_(b, y->n_head / y->n_kv), *dv = n_(b, y->v_dim), *one = n_(b, 1);
  // Softmax over positions; the division follows the sum over V.
  tensor *sink = weight(b, y, W_ATTN_SINKS), *most = t_reduce(g, of[0].scores, OP_MAX, 4), *total = NULL, *sum = NULL;
  for (int i = 1; i < n; i++) most = t_op2(g, OP_MAX, most, t_reduce(g, of[i].scores, OP_MAX, 4));
  if (sink) {
    sink = t_reshape(g, sink, DIMS(one, kv, per, one, one));
    most = t_op2(g, OP_MAX, most, sink);
  }
  for (int i = 0; i < n; i++) {
    uop *all = of[i].scores->shape->dim[4];
    tensor *e = t_exp(g, t_sub(g, of[i].scores, most)), *own = t_reduce(g, e, OP_ADD, 4);
    total = total ? t_add(g, total, own) : own;
    tensor *es = t_reshape(g, e, DIMS(b->T, kv, per, all, one)), *vs = values_there(b, y, &of[i]);
    tensor *o = t_reshape(g, t_reduce(g, t_mul(g, es, vs), OP_ADD, 3), DIMS(b->T, kv, per, dv));
    sum = sum ? t_add(g, sum, o) : o;
  }
  if (sink) total = t_add(g, total, t_exp(g, t_sub(g, sink, most)));
  total = t_reshape(g, total, DIMS(b->T, kv, per, one));
  return t_reshape(g, t_op2(g, OP_FDIV, sum, total), DIMS(b->T, n_(b, (int64_t)y->n_head * y->v_dim)));
}

tensor *attend(build *b, const layer *y, tensor *s, tensor *V) {
  sight of = seen_positions(b, y, s, V);
  return attend_to(b, y, &of, 1);
}

// q {T, heads, n} times 1 + temperature log(1 + floor((position + from) / length))
tensor *scaled_by_position(build *b, const layer *y, tensor *q) {
  graph *g = b->g;
  if (b->m->temperature == 0 || (b->m->arch->flags & ARCH_CHUNKS && y->rope != ROPE_NONE)) return q;
  int64_t length = b->m->temperature_length ? b->m->temperature_length : b->m->n_ctx_rope;
  tensor *at = t_cast(g, t_op2(g, OP_IDIV, t_add(g, b->at, n_(b, b->m->temperature_from)), n_(b, length)), DT_F32);
  tensor *by = t_scale(g, t_op1(g, OP_LOG2, t_add(g, at, t_float(g, 1))), M_LN2 * b->m->temperature);
  return t_mul(g, q, t_reshape(g, t_add(g, by, t_float(g, 1)), DIMS(b->T, n_(b, 1), n_(b, 1))));
}

static double score_scale(const build *b, const layer *y) {
  return b->m->attention_scale != 0 ? b->m->attention_scale : 1 / sqrt((double)y->head_dim);
}

static tensor *limited(const build *b, tensor *x) {
  graph *g = b->g;
  double most = b->m->qkv_limit;
  return most == 0 ? x : t_op2(g, OP_MAX, t_op2(g, OP_MIN, x, t_float(g, most)), t_float(g, -most));
}

// The output of attention, times a factor per element or per head.
static tensor *through_gate(const build *b, const layer *y, tensor *gate, tensor *out) {
  graph *g = b->g;
  gate = b->m->arch->softplus_gate ? softplus(g, gate) : sigmoid(g, gate);
  if (!y->head_gates) return t_mul(g, out, gate);
  tensor *heads = t_reshape(g, out, DIMS(b->T, n_(b, y->n_head), n_(b, y->v_dim)));
  return t_reshape(g, t_mul(g, heads, t_reshape(g, gate, DIMS(b->T, n_(b, y->n_head), n_(b, 1)))),
                   DIMS(b->T, n_(b, (int64_t)y->n_head * y->v_dim)));
}

static tensor *attention(build *b, const layer *y, tensor *x) {
  graph *g = b->g;
  unsigned f = b->m->arch->flags;
  int64_t d = y->head_dim, nq = y->n_head * d * (f & ARCH_GATED_Q ? 2 : 1), nk = y->n_kv * d,
          nv = (int64_t)y->n_kv * y->v_dim;
  tensor *q, *k, *v, *gate = NULL;
  if (y->w[W_ATTN_QKV].weight) {
    tensor *all = limited(b, linear(b, y, W_ATTN_QKV, x));
    q = t_slice_i(g, all, 1, 0, nq); k = t_slice_i(g, all, 1, nq, nk); v = t_slice_i(g, all, 1, nq + nk, nv);
  } else {
    q = limited(b, linear(b, y, W_ATTN_Q, x)); k = limited(b, linear(b, y, W_ATTN_K, x));
    v = y->w[W_ATTN_V].weight ? limited(b, linear(b, y, W_ATTN_V, x)) : k;
  }
  if (f & ARCH_GATED_Q) {
    tensor *both = t_reshape(g, q, DIMS(b->T, n_(b, y->n_head), n_(b, 2 * d)));
    q = t_reshape(g, t_slice_i(g, both, 2, 0, d), DIMS(b->T, n_(b, y->n_head * d)));
    gate = t_reshape(g, t_slice_i(g, both, 2, d, d), DIMS(b->T, n_(b, y->n_head * d)));
  }
  if (f & ARCH_OUT_GATE) gate = ahead(g, linear(b, y, W_ATTN_GATE, x));
  bool normed = y->w[W_ATTN_Q_NORM].weight, all_heads = normed && f & ARCH_QK_NORM_ALL, heads = normed && !all_heads;
  if (all_heads) {
    q = norm(b, y, W_ATTN_Q_NORM, q);
    k = norm(b, y, W_ATTN_K_NORM, k);
  }
  q = t_reshape(g, q, DIMS(b->T, n_(b, y->n_head), n_(b, d)));
  k = t_reshape(g, k, DIMS(b->T, n_(b, y->n_kv), n_(b, d)));
  v = t_reshape(g, v, DIMS(b->T, n_(b, y->n_kv), n_(b, y->v_dim)));
  if (f & ARCH_V_NORM) v = t_rmsnorm(g, v, NULL, b->m->eps);
  bool bare = b->m->bare_qk_norm && y->rope != ROPE_NONE, late = f & ARCH_QK_NORM_LATE || bare;
  if (heads && !late) { q = norm(b, y, W_ATTN_Q_NORM, q); k = norm(b, y, W_ATTN_K_NORM, k); }
  double scale = score_scale(b, y);
  tensor *K, *V;
  if (late) {
    q = scaled_by_position(b, y,
                           t_scale(g, norm(b, y, W_ATTN_Q_NORM, one_form(g, rope_turn(b, y, q, y->n_head, d))), scale));
    k = norm(b, y, W_ATTN_K_NORM, one_form(g, rope_turn(b, y, k, y->n_kv, d)));
    K = kv_store(b, y, KV_KEYS, kv_turned(b, k, d));
  } else {
    q = rope_turn(b, y, scaled_by_position(b, y, t_scale(g, q, scale)), y->n_head, d);
    K = store_k(b, y, k);
  }
  V = kv_store(b, y, KV_VALUES, v);
  b->kept[y->index].K = K;
  b->kept[y->index].V = V;
  tensor *s = scores(b, y, kv_turned(b, q, d), K);
  if (y->indexer.heads && indexer_chooses(b->m, b->s->n_ctx))
    s = t_where(g, y->compressed.ratio ? pool_indexer_choice(b, y, x, x) : block_indexer_choice(b, y, x), s,
                t_float(g, -INFINITY));
  tensor *out = attend(b, y, s, V);
  if (y->w[W_ATTN_SUB_NORM].weight) out = norm(b, y, W_ATTN_SUB_NORM, out);
  if (gate) out = through_gate(b, y, gate, out);
  out = linear(b, y, W_ATTN_OUTPUT, out);
  return b->m->value_scale == 1 ? out : t_scale(g, out, b->m->value_scale);
}

const part part_attention = {load_attention, attention};

// --- what remains of attention in some layers of Deci's models: the output product -----------------------------------

static int linear_load(loader *l, layer *y) { return want_matrix(l, y, W_ATTN_OUTPUT, l->m->n_embd, l->m->n_embd, 0); }
static tensor *only_output(build *b, const layer *y, tensor *x) { return linear(b, y, W_ATTN_OUTPUT, x); }

const part part_linear = {linear_load, only_output};

// --- attention and a recurrence in parallel (Falcon-H1): both read the same input ------------------------------------

static int hybrid_load(loader *l, layer *y) { return load_attention(l, y) || part_mamba2.load(l, y) ? -1 : 0; }

static tensor *hybrid(build *b, const layer *y, tensor *x) {
  layer beside = *y;
  beside.state += kv_states(b->m);
  return t_add(b->g, attention(b, y, x), part_mamba2.graph(b, &beside, x));
}

const part part_attention_and_mamba2 = {hybrid_load, hybrid};

// --- attention with the keys and values of another layer -------------------------------------------------------------

// Files may have the matrices for keys and values all the same; they are not used.
static int shared_load(loader *l, layer *y) {
  int64_t d = l->m->n_embd, q = (int64_t)y->n_head * y->head_dim, k = (int64_t)y->n_kv * y->head_dim,
          v = (int64_t)y->n_kv * y->v_dim;
  if (y->n_kv < 1 || y->n_head < 1 || y->n_head % y->n_kv)
    return gguf_fail(l->f, key(l, "attention.head_count_kv"), l->err, "%d does not divide attention.head_count = %d",
                     y->n_kv, y->n_head);
  return want_matrix(l, y, W_ATTN_Q, d, q, 0) || want_vector(l, y, W_ATTN_Q_NORM, y->head_dim, 0) ||
             want_matrix(l, y, W_ATTN_K, d, k, WANT_OPTIONAL) || want_matrix(l, y, W_ATTN_V, d, v, WANT_OPTIONAL) ||
             want_vector(l, y, W_ATTN_K_NORM, y->head_dim, WANT_OPTIONAL) ||
             want_matrix(l, y, W_ATTN_OUTPUT, (int64_t)y->n_head * y->v_dim, d, 0)
           ? -1
           : 0;
}

static tensor *shared_attention(build *b, const layer *y, tensor *x) {
  graph *g = b->g;
  const struct kept *of = &b->kept[y->kv_from];
  tensor *q =
    t_reshape(g, linear(b, y, W_ATTN_Q, x), DIMS(b->T, n_(b, y->n_head), n_(b, y->head_dim)));
  q = rope_turn(b, y, t_scale(g, norm(b, y, W_ATTN_Q_NORM, q), score_scale(b, y)), y->n_head, y->head_dim);
  return linear(b, y, W_ATTN_OUTPUT, attend(b, y, scores(b, y, kv_turned(b, q, y->head_dim), of->K), of->V));
}

const part part_shared_attention = {shared_load, shared_attention};
