// Recurrences in which every channel of a key decays separately: Kimi's delta attention, and RWKV 7 and 6. A head has a
// state S {k, v}. A token lets each of the k rows decay and adds to them; tokens are processed in blocks, as in
// recurrent.c. The factor that is left of row s of a block at token t is exp(sum(t) - sum(s)) for each channel, where
// the sums are over logarithms of decays. So a product of a read vector with a written one runs over channels, with
// that as an additional factor.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <math.h>
#include "model/recurrent.h"
#include "model/stored.h"

enum { STATE_MORE = STATE_VALUE + 1 };

// --- reading a block and a state -------------------------------------------------------------------------------------

typedef struct heads { int64_t n, k, v; } heads;

static tensor *split_heads(build *b, tensor *x, int64_t n, int64_t width) {
  return t_reshape(b->g, x, DIMS(x->shape->dim[0], n_(b, n), n_(b, width)));
}
static tensor *join_heads(build *b, tensor *x) {
  return t_reshape(b->g, x, DIMS(x->shape->dim[0], idx_mul(b->g, x->shape->dim[1], x->shape->dim[2])));
}

// x {T, H k} times keys {rows, H k} of the rows before each token (itself: and its own), decayed until sum {T, H k}:
// {T, rows, H}
static tensor *meet(build *b, const block *blk, const heads *h, tensor *x, tensor *sum, tensor *keys, tensor *sums,
                    bool itself) {
  graph *g = b->g;
  uop *one = n_(b, 1), *rows = keys->shape->dim[0], *H = n_(b, h->n), *K = n_(b, h->k);
  tensor *since = t_sub(g, t_reshape(g, sum, DIMS(b->T, one, H, K)), t_reshape(g, sums, DIMS(one, rows, H, K)));
  tensor *left = t_exp(g, t_where(g, t_reshape(g, not_later(b, blk, rows, itself), DIMS(b->T, rows, one, one)), since,
                                  t_float(g, -INFINITY)));
  tensor *p =
    t_mul(g, t_mul(g, t_reshape(g, x, DIMS(b->T, one, H, K)), t_reshape(g, keys, DIMS(one, rows, H, K))), left);
  return t_reshape(g, t_reduce(g, p, OP_ADD, 3), DIMS(b->T, rows, H));
}

// values {rows, H, v}, weighted by weights {T, rows, H}: {T, H, v}
static tensor *weighed(build *b, const heads *h, tensor *weights, tensor *values) {
  graph *g = b->g;
  uop *one = n_(b, 1), *rows = weights->shape->dim[1], *H = n_(b, h->n), *V = n_(b, h->v);
  tensor *p = t_mul(g, t_reshape(g, weights, DIMS(b->T, rows, H, one)), t_reshape(g, values, DIMS(one, rows, H, V)));
  return t_reshape(g, t_reduce(g, p, OP_ADD, 1), DIMS(b->T, H, V));
}

// What x {T, H k} reads from the state S {H, k, v} before the block, decayed until sum: {T, H, v}
static tensor *read_state(build *b, const heads *h, tensor *S, tensor *x, tensor *sum) {
  graph *g = b->g;
  uop *one = n_(b, 1), *H = n_(b, h->n), *K = n_(b, h->k), *V = n_(b, h->v);
  x = t_mul(g, x, t_exp(g, sum));
  tensor *p = t_mul(g, t_reshape(g, S, DIMS(one, H, K, V)), t_reshape(g, x, DIMS(b->T, H, K, one)));
  return t_reshape(g, t_reduce(g, p, OP_ADD, 2), DIMS(b->T, H, V));
}

// What rows with keys {rows, H k}, values {rows, H, v} and the factors left {rows, H k} add to the state: {H, k, v}
static tensor *added_to_state(build *b, const heads *h, tensor *keys, tensor *values, tensor *left, uop *rows) {
  graph *g = b->g;
  uop *one = n_(b, 1), *H = n_(b, h->n), *K = n_(b, h->k), *V = n_(b, h->v);
  tensor *k = t_mul(g, t_slice(g, keys, 0, n_(b, 0), rows), left);
  tensor *p = t_mul(g, t_reshape(g, k, DIMS(rows, H, K, one)),
                    t_reshape(g, t_slice(g, values, 0, n_(b, 0), rows), DIMS(rows, H, one, V)));
  return t_reshape(g, t_reduce(g, p, OP_ADD, 0), DIMS(H, K, V));
}

static tensor *unit(build *b, const heads *h, tensor *x, double least, double by) {
  graph *g = b->g;
  x = split_heads(b, x, h->n, h->k);
  tensor *length = t_op2(g, OP_MAX, t_op1(g, OP_SQRT, t_reduce(g, t_mul(g, x, x), OP_ADD, 2)), t_float(g, least));
  return join_heads(b, read_by_many(g, t_scale(g, t_op2(g, OP_FDIV, x, length), by)));
}

static void load_block(loader *l, layer *y, const heads *h) {
  state(l, y, DT_F32, 0, h->n * h->k * h->v);
  for (int i = 0; i < 3; i++) rows_state(l, y, DELTA_BLOCK, h->n * h->k);
  rows_state(l, y, DELTA_BLOCK, h->n * h->v);
  if (!l->m->block || l->m->block > DELTA_BLOCK) l->m->block = DELTA_BLOCK;
}

// --- Kimi's delta attention ------------------------------------------------------------------------------------------
// The gated delta rule of recurrent.c, with a decay per channel, and separate convolutions of queries, keys and values.

static int kda_load(loader *l, layer *y) {
  int n;
  if (want_heads(l, y)) return -1;
  if (key_count(l, "kda.head_dim", 1, 1 << 12, &n) || key_count(l, "ssm.conv_kernel", 2, 64, &y->taps)) return -1;
  heads h = {y->n_head, n, n};
  int64_t d = l->m->n_embd, inner = h.n * n, f = y->full_products ? inner : n;
  char name[64];
  snprintf(name, sizeof name, "blk.%d.ssm_a", y->block);
  const gguf_tensor *a = gguf_tensor_find(l->f, name);
  bool flat = a && a->ne[0] == h.n;                            // a vector, or a column
  y->head_dim = n;
  for (int i = 0; i < 3; i++) {
    if (want_matrix(l, y, W_ATTN_Q + i, d, inner, 0) || want(l, y, W_SSM_CONV1D_Q + i, y->taps, 1, inner, 0)) return -1;
  }
  if (want_matrix(l, y, W_SSM_F_A, d, f, 0) ||
      (y->full_gate ? want_matrix(l, y, W_SSM_G, d, inner, 0) : want_matrix(l, y, W_SSM_G_A, d, f, 0)) ||
      want_matrix(l, y, W_SSM_BETA, d, h.n, 0) || want(l, y, W_SSM_A, flat ? h.n : 1, flat ? 1 : h.n, 1, WANT_BARE) ||
      want_vector(l, y, W_SSM_DT, inner, WANT_OPTIONAL | WANT_BIAS) || want_vector(l, y, W_SSM_NORM, n, 0) ||
      want_matrix(l, y, W_ATTN_OUTPUT, inner, d, 0))
    return -1;
  if (!y->full_products && (want_matrix(l, y, W_SSM_F_B, n, inner, 0) ||
                            (!y->full_gate && want_matrix(l, y, W_SSM_G_B, n, inner, 0))))
    return -1;
  ring_state(l, y, y->taps - 1, inner);
  load_block(l, y, &h);
  for (int i = 0; i < 2; i++) ring_state(l, y, y->taps - 1, inner);
  return 0;
}

static tensor *through_two(build *b, const layer *y, enum tensor_id first, enum tensor_id second, tensor *x) {
  x = linear(b, y, first, x);
  return y->w[second].weight ? linear(b, y, second, x) : x;
}

// Logarithms {T, H k}: A softplus(x + dt), or the lower bound times a sigmoid
static tensor *kda_decay(build *b, const layer *y, const heads *h, tensor *x) {
  graph *g = b->g;
  tensor *f = split_heads(
    b, t_add(g, through_two(b, y, W_SSM_F_A, W_SSM_F_B, x), bias(b, y, W_SSM_DT)), h->n, h->k);
  tensor *A = t_reshape(g, weight(b, y, W_SSM_A), DIMS(n_(b, 1), n_(b, h->n), n_(b, 1)));
  if (y->negated) A = t_op1(g, OP_NEG, A);
  return join_heads(b, y->safe_decay ? t_scale(g, sigmoid(g, t_mul(g, f, A)), y->least_decay)
                                     : t_mul(g, softplus(g, f), A));
}

static tensor *kda(build *b, const layer *y, tensor *x) {
  graph *g = b->g;
  heads h = {y->n_head, y->head_dim, y->head_dim};
  uop *one = n_(b, 1), *H = n_(b, h.n);
  static const int convs[] = {STATE_CONV, STATE_MORE, STATE_MORE + 1};
  tensor *qkv[3];
  for (int i = 0; i < 3; i++)
    qkv[i] = one_form(
      g, t_silu(g, causal_conv(b, y, convs[i], W_SSM_CONV1D_Q + i, y->taps, linear(b, y, W_ATTN_Q + i, x))));
  block blk = block_of(b, DELTA_BLOCK);
  tensor *sum = added_up(b, &blk, keep_rows(b, y, STATE_DECAY, &blk, kda_decay(b, y, &h, x), false)),
         *sums = keep_rows(b, y, STATE_SUM, &blk, sum, true);
  tensor *q = unit(b, &h, qkv[0], b->m->eps, 1 / sqrt((double)h.k)), *k = unit(b, &h, qkv[1], b->m->eps, 1);
  tensor *keys = keep_rows(b, y, STATE_KEY, &blk, k, true),
         *S = state_before(b, y, STATE_SSM, &blk, 3, (int64_t[]){h.n, h.k, h.v});
  tensor *beta = ahead(g, sigmoid(g, linear(b, y, W_SSM_BETA, x)));
  // d(t) = beta (v(t) - what the memory returns for k(t))
  tensor *r = t_mul(g, t_sub(g, split_heads(b, qkv[2], h.n, h.v), read_state(b, &h, S, k, sum)),
                    t_reshape(g, beta, DIMS(b->T, H, one)));
  tensor *A = t_mul(g, meet(b, &blk, &h, k, sum, keys, sums, false), t_reshape(g, beta, DIMS(b->T, one, H)));
  tensor *d = solve(b, y, &blk, A, r);
  keys = t_slice(g, keys, 0, n_(b, 0), blk.end);
  sums = t_slice(g, sums, 0, n_(b, 0), blk.end);
  tensor *out = t_add(g, weighed(b, &h, meet(b, &blk, &h, q, sum, keys, sums, true), d), read_state(b, &h, S, q, sum));
  uop *rows = rows_done(b, &blk);
  tensor *fades, *left = left_at_end(b, &blk, sum, sums, rows, &fades);
  tensor *kept = t_mul(g, S, t_reshape(g, fades, DIMS(H, n_(b, h.k), one)));
  state_store(b, y, STATE_SSM, t_add(g, kept, added_to_state(b, &h, keys, d, left, rows)));
  tensor *gate = y->full_gate ? linear(b, y, W_SSM_G, x) : through_two(b, y, W_SSM_G_A, W_SSM_G_B, x);
  gate = sigmoid(g, split_heads(b, ahead(g, gate), h.n, h.v));
  return linear(b, y, W_ATTN_OUTPUT, join_heads(b, t_mul(g, norm(b, y, W_SSM_NORM, out), gate)));
}

const part part_kda = {kda_load, kda};

// --- RWKV 7 ----------------------------------------------------------------------------------------------------------
// Inputs are a channel-wise mix of the token and the token before it. u(t) is what a(t) reads from the state before
// this token; the state decays, and k(t) v(t) and b(t) u(t) are added.

enum { RWKV_SHIFT = STATE_CONV, RWKV_B = STATE_MORE, RWKV_V };
enum { LERP_R, LERP_W, LERP_K, LERP_V, LERP_A, LERP_G, LERPS };

static int read_rank(loader *l, const char *rest, int *out) { return key_count(l, rest, 1, 1 << 16, out); }

// Heads of n elements each; n divides the embedding length.
static int set_wkv_heads(loader *l, layer *y, int n) {
  int64_t d = l->m->n_embd;
  if (d % n)
    return gguf_fail(l->f, key(l, "wkv.head_size"), l->err, "%d does not divide embedding_length = %lld", n,
                     (long long)d);
  y->n_head = (int)(d / n);
  y->head_dim = n;
  return 0;
}

// With a feed-forward of another kind (models derived from Qwen 2) only the mixer reads the token before, and heads may
// have no norm.
static bool mixes_channels(const layer *y) { return y->ff == &part_channel_mix; }

static int read_shifts(loader *l, const layer *y, int *out) {
  uint32_t n = mixes_channels(y) ? 2 : 1;
  return key_count_or(l, "token_shift_count", n, n, n, out);
}

static int want_heads_norm(loader *l, layer *y) {
  char name[64];
  snprintf(name, sizeof name, "blk.%d.time_mix_ln.weight", y->block);
  bool has = mixes_channels(y) || gguf_tensor_find(l->f, name);
  return has ? want_vector(l, y, W_TIME_MIX_LN, l->m->n_embd, WANT_BIAS) : 0;
}

static int rwkv7_load(loader *l, layer *y) {
  int n, decay, iclr, residual, gate, shifts;
  int64_t d = l->m->n_embd;
  bool mixes = mixes_channels(y);
  if (key_count(l, "wkv.head_size", 1, 1 << 12, &n) || read_rank(l, "attention.decay_lora_rank", &decay) ||
      read_rank(l, "attention.iclr_lora_rank", &iclr) ||
      read_rank(l, "attention.value_residual_mix_lora_rank", &residual) ||
      (mixes ? read_rank(l, "attention.gate_lora_rank", &gate)
             : key_count_or(l, "attention.gate_lora_rank", 0, 0, 1 << 16, &gate)) || read_shifts(l, y, &shifts))
    return -1;
  if (set_wkv_heads(l, y, n)) return -1;
  heads h = {d / n, n, n};
  if (!y->index) residual = iclr;              // unused in the first layer
  y->kv_from = 0;
  const struct {
    enum tensor_id id;
    int rank;
  } two[] = {{W_TIME_MIX_W1, decay}, {W_TIME_MIX_A1, iclr}, {W_TIME_MIX_V1, residual}, {W_TIME_MIX_G1, gate}};
  for (size_t i = 0; i < COUNT(two) - !gate; i++)
    if (want_matrix(l, y, two[i].id, d, two[i].rank, 0) || want_matrix(l, y, two[i].id + 1, two[i].rank, d, 0))
      return -1;
  for (enum tensor_id id = W_TIME_MIX_W0; id <= W_TIME_MIX_K_A; id++) if (want_vector(l, y, id, d, 0)) return -1;
  for (enum tensor_id id = W_TIME_MIX_RECEPTANCE; id <= W_TIME_MIX_OUTPUT; id++)
    if (want_matrix(l, y, id, d, d, 0)) return -1;
  if (want(l, y, W_TIME_MIX_LERP_FUSED, d, 1, gate ? LERPS : LERP_G, WANT_FOURTH) || want_heads_norm(l, y)) return -1;
  ring_state(l, y, 1, d);
  load_block(l, y, &h);
  for (int i = 0; i < 2; i++) rows_state(l, y, DELTA_BLOCK, d);
  return 0;
}

// x {T, d}, mixed with the token before by a factor per channel
static tensor *mixed(build *b, tensor *x, tensor *step, tensor *by) {
  return t_add(b->g, x, t_mul(b->g, step, by));
}

static tensor *tanh_of(graph *g, tensor *x) {
  return t_sub(g, t_float(g, 1), t_op2(g, OP_FDIV, t_float(g, 2), t_add(g, t_exp(g, t_scale(g, x, 2)), t_float(g, 1))));
}

// Heads {T, H, v}, each normed separately, then times the weights for all
static tensor *heads_normed(build *b, const layer *y, tensor *x) {
  graph *g = b->g;
  if (!y->w[W_TIME_MIX_LN].weight) return join_heads(b, x);
  x = join_heads(b, ahead(g, t_layernorm(g, x, NULL, 64e-5)));
  return t_add(g, t_mul(g, x, weight(b, y, W_TIME_MIX_LN)), bias(b, y, W_TIME_MIX_LN));
}

static tensor *rwkv7(build *b, const layer *y, tensor *x) {
  graph *g = b->g;
  heads h = {y->n_head, y->head_dim, y->head_dim};
  uop *one = n_(b, 1), *H = n_(b, h.n);
  tensor *step = t_sub(g, row_before(b, y, RWKV_SHIFT, x), x),
         *lerp = weight(b, y, W_TIME_MIX_LERP_FUSED), *in[LERPS];
  bool gated = y->w[W_TIME_MIX_G1].weight;
  for (int i = 0; i < LERPS - !gated; i++)
    in[i] = mixed(b, x, step, t_reshape(g, t_slice_i(g, lerp, 0, i, 1), DIMS(x->shape->dim[1])));
  tensor *r = linear(b, y, W_TIME_MIX_RECEPTANCE, in[LERP_R]),
         *k = linear(b, y, W_TIME_MIX_KEY, in[LERP_K]),
         *v = makes_several(g, linear(b, y, W_TIME_MIX_VALUE, in[LERP_V]));
  tensor *w = linear(b, y, W_TIME_MIX_W2, tanh_of(g, linear(b, y, W_TIME_MIX_W1, in[LERP_W])));
  w = t_scale(g, sigmoid(g, t_add(g, w, weight(b, y, W_TIME_MIX_W0))), -0.606531);
  if (y->index) {                           // mix with the first layer's value
    tensor *more = linear(b, y, W_TIME_MIX_V2, linear(b, y, W_TIME_MIX_V1, in[LERP_V]));
    v = makes_several(
      g, t_add(g, v, t_mul(g, t_sub(g, b->kept[0].V, v), sigmoid(g, t_add(g, more, weight(b, y, W_TIME_MIX_V0))))));
  } else {
    b->kept[0].V = v;
  }
  tensor *gate = gated ? linear(b, y, W_TIME_MIX_G2, sigmoid(g, linear(b, y, W_TIME_MIX_G1, in[LERP_G]))) : NULL;
  tensor *rate = linear(b, y, W_TIME_MIX_A2, linear(b, y, W_TIME_MIX_A1, in[LERP_A]));
  rate = makes_several(g, sigmoid(g, t_add(g, rate, weight(b, y, W_TIME_MIX_A0))));
  tensor *kk = unit(b, &h, t_mul(g, k, weight(b, y, W_TIME_MIX_K_K)), 1e-12, 1),
         *a = t_op1(g, OP_NEG, kk);
  tensor *ka = t_mul(g, k, weight(b, y, W_TIME_MIX_K_A));
  k = t_add(g, k, t_sub(g, t_mul(g, rate, ka), ka));
  block blk = block_of(b, DELTA_BLOCK);
  tensor *sum = added_up(b, &blk, keep_rows(b, y, STATE_DECAY, &blk, w, false)),
         *sums = keep_rows(b, y, STATE_SUM, &blk, sum, true), *before = t_sub(g, sum, w);
  tensor *keys = keep_rows(b, y, STATE_KEY, &blk, k, true),
         *bs = keep_rows(b, y, RWKV_B, &blk, t_mul(g, kk, rate), true);
  tensor *values = keep_rows(b, y, RWKV_V, &blk, v, false),
         *S = state_before(b, y, STATE_SSM, &blk, 3, (int64_t[]){h.n, h.k, h.v});
  tensor *A = t_op1(g, OP_NEG, meet(b, &blk, &h, a, before, bs, sums, false));
  keys = t_slice(g, keys, 0, n_(b, 0), blk.end);
  bs = t_slice(g, bs, 0, n_(b, 0), blk.end);
  sums = t_slice(g, sums, 0, n_(b, 0), blk.end);
  values = split_heads(b, values, h.n, h.v);
  tensor *known =
    t_add(g, read_state(b, &h, S, a, before), weighed(b, &h, meet(b, &blk, &h, a, before, keys, sums, false), values));
  tensor *u = solve(b, y, &blk, A, known);
  tensor *out = t_add(g, weighed(b, &h, meet(b, &blk, &h, r, sum, keys, sums, true), values),
                      weighed(b, &h, meet(b, &blk, &h, r, sum, bs, sums, true), u));
  out = heads_normed(b, y, t_add(g, out, read_state(b, &h, S, r, sum)));
  uop *rows = rows_done(b, &blk);
  tensor *fades, *left = left_at_end(b, &blk, sum, sums, rows, &fades);
  tensor *kept = t_mul(g, S, t_reshape(g, fades, DIMS(H, n_(b, h.k), one)));
  state_store(b, y, STATE_SSM,
              t_add(g, t_add(g, kept, added_to_state(b, &h, keys, values, left, rows)),
                    added_to_state(b, &h, bs, u, left, rows)));
  tensor *own =
    t_reduce(g, split_heads(b, t_mul(g, t_mul(g, k, r), weight(b, y, W_TIME_MIX_R_K)), h.n, h.k), OP_ADD, 2);
  own = t_reshape(g, makes_several(g, own), DIMS(b->T, H, one));
  out = t_add(g, out, join_heads(b, t_mul(g, split_heads(b, v, h.n, h.v), own)));
  return linear(b, y, W_TIME_MIX_OUTPUT, gate ? t_mul(g, out, gate) : out);
}

const part part_rwkv7 = {rwkv7_load, rwkv7};

// --- RWKV 6 ----------------------------------------------------------------------------------------------------------
// The mix of each of the five inputs with the token before is computed from both. The state decays and k(t) v(t) is
// added. A token reads the state before it, plus its own part times `first`. In models derived from Qwen 2 it reads the
// state after its own part was added, k is reduced by the part that decays, and several heads share keys.

enum { MIX_W, MIX_K, MIX_V, MIX_R, MIX_G, MIXES };

static int rwkv6_load(loader *l, layer *y) {
  int n, extra, decay, shifts;
  int64_t d = l->m->n_embd;
  if (key_count(l, "wkv.head_size", 1, 1 << 12, &n) || read_rank(l, "time_mix_extra_dim", &extra) ||
      read_rank(l, "time_decay_extra_dim", &decay) || read_shifts(l, y, &shifts))
    return -1;
  if (set_wkv_heads(l, y, n)) return -1;
  heads h = {d / n, n, n};
  bool mixes = mixes_channels(y);
  if (mixes || !y->n_kv) y->n_kv = (int)h.n;
  if (h.n % y->n_kv)
    return gguf_fail(l->f, key(l, "attention.head_count_kv"), l->err, "%d does not divide the %lld heads", y->n_kv,
                     (long long)h.n);
  if (want_matrix(l, y, W_TIME_MIX_W1, d, MIXES * (int64_t)extra, 0) || want(l, y, W_TIME_MIX_W2, extra, d, MIXES, 0) ||
      want(l, y, W_TIME_MIX_LERP_X, d, 1, 1, 0) || want(l, y, W_TIME_MIX_LERP_FUSED, d, 1, MIXES, WANT_FOURTH) ||
      (mixes && want_matrix(l, y, W_TIME_MIX_FIRST, n, h.n, 0)) || want_vector(l, y, W_TIME_MIX_DECAY, d, 0) ||
      want_matrix(l, y, W_TIME_MIX_DECAY_W1, d, decay, 0) || want_matrix(l, y, W_TIME_MIX_DECAY_W2, decay, d, 0) ||
      want_matrix(l, y, W_TIME_MIX_GATE, d, d, 0))
    return -1;
  for (enum tensor_id id = W_TIME_MIX_RECEPTANCE; id <= W_TIME_MIX_OUTPUT; id++) {
    bool shared = id == W_TIME_MIX_KEY || id == W_TIME_MIX_VALUE;
    if (want_matrix(l, y, id, d, shared ? (int64_t)y->n_kv * n : d, 0)) return -1;
  }
  ring_state(l, y, 1, d);
  load_block(l, y, &h);
  return mixes ? want_heads_norm(l, y) : 0;
}

// Keys or values {T, kv n}, repeated for the heads that share them
static tensor *of_sharing(build *b, const layer *y, tensor *x) {
  graph *g = b->g;
  uop *kv = n_(b, y->n_kv), *n = n_(b, y->head_dim), *per = n_(b, y->n_head / y->n_kv);
  if (y->n_kv == y->n_head) return x;
  x = t_expand(g, t_reshape(g, x, DIMS(b->T, kv, n_(b, 1), n)), 4, (uop *[]){b->T, kv, per, n});
  return t_reshape(g, x, DIMS(b->T, n_(b, (int64_t)y->n_head * y->head_dim)));
}

static tensor *rwkv6(build *b, const layer *y, tensor *x) {
  graph *g = b->g;
  heads h = {y->n_head, y->head_dim, y->head_dim};
  uop *one = n_(b, 1), *H = n_(b, h.n);
  int64_t d = b->m->n_embd, extra = gguf_tensor_at(b->m->file, (size_t)y->w[W_TIME_MIX_W2].weight - 1)->ne[0];
  tensor *step = t_sub(g, row_before(b, y, RWKV_SHIFT, x), x),
         *lerp = weight(b, y, W_TIME_MIX_LERP_FUSED), *w2 = weight(b, y, W_TIME_MIX_W2), *in[MIXES];
  tensor *made = tanh_of(g, linear(b, y, W_TIME_MIX_W1, mixed(b, x, step, weight(b, y, W_TIME_MIX_LERP_X))));
  for (int i = 0; i < MIXES; i++) {
    tensor *by = t_matmul(g, t_slice_i(g, made, 1, i * extra, extra), t_slice_i(g, w2, 0, i * d, d));
    in[i] = mixed(b, x, step, t_add(g, by, t_reshape_i(g, t_slice_i(g, lerp, 0, i, 1), 1, &d)));
  }
  tensor *r = linear(b, y, W_TIME_MIX_RECEPTANCE, in[MIX_R]),
         *k = of_sharing(b, y, linear(b, y, W_TIME_MIX_KEY, in[MIX_K])),
         *v = of_sharing(b, y, linear(b, y, W_TIME_MIX_VALUE, in[MIX_V])),
         *gate = linear(b, y, W_TIME_MIX_GATE, in[MIX_G]);
  bool mixes = mixes_channels(y);
  gate = ahead(g, mixes ? t_silu(g, gate) : sigmoid(g, gate));
  tensor *w =
    linear(b, y, W_TIME_MIX_DECAY_W2, tanh_of(g, linear(b, y, W_TIME_MIX_DECAY_W1, in[MIX_W])));
  w = makes_several(g, t_op1(g, OP_NEG, t_exp(g, t_add(g, w, weight(b, y, W_TIME_MIX_DECAY)))));
  if (!mixes) k = t_mul(g, k, t_sub(g, t_float(g, 1), t_exp(g, w)));
  block blk = block_of(b, DELTA_BLOCK);
  tensor *sum = added_up(b, &blk, keep_rows(b, y, STATE_DECAY, &blk, w, false)),
         *sums = keep_rows(b, y, STATE_SUM, &blk, sum, false), *before = mixes ? t_sub(g, sum, w) : sum;
  tensor *keys = keep_rows(b, y, STATE_KEY, &blk, k, false),
         *values = split_heads(b, keep_rows(b, y, STATE_VALUE, &blk, v, false), h.n, h.v);
  tensor *S = state_before(b, y, STATE_SSM, &blk, 3, (int64_t[]){h.n, h.k, h.v});
  tensor *out =
    t_add(g, weighed(b, &h, meet(b, &blk, &h, r, before, keys, sums, !mixes), values), read_state(b, &h, S, r, before));
  if (mixes) {
    tensor *own = t_reduce(g,
                           t_mul(g, split_heads(b, t_mul(g, r, k), h.n, h.k),
                                 t_reshape(g, weight(b, y, W_TIME_MIX_FIRST), DIMS(one, H, n_(b, h.k)))),
                           OP_ADD, 2);
    out = t_add(g, out, t_mul(g, split_heads(b, v, h.n, h.v), t_reshape(g, own, DIMS(b->T, H, one))));
  } else {
    out = t_scale(g, out, 1 / sqrt((double)h.k));
  }
  uop *rows = rows_done(b, &blk);
  tensor *fades, *left = left_at_end(b, &blk, sum, sums, rows, &fades);
  tensor *kept = t_mul(g, S, t_reshape(g, fades, DIMS(H, n_(b, h.k), one)));
  state_store(b, y, STATE_SSM, t_add(g, kept, added_to_state(b, &h, keys, values, left, rows)));
  return linear(b, y, W_TIME_MIX_OUTPUT, t_mul(g, heads_normed(b, y, out), gate));
}

const part part_rwkv6 = {rwkv6_load, rwkv6};

// --- the feed-forward of RWKV, which reads a token and the one before it; the older kind has a gate ------------------

static int channel_load(loader *l, layer *y) {
  int64_t d = l->m->n_embd;
  if (!y->n_ff) return key_count(l, "feed_forward_length", 1, 1 << 24, &y->n_ff);
  y->ff_state = (int)l->m->states.n - y->state;
  ring_state(l, y, 1, d);
  if (y->mixer == &part_rwkv6 &&
      (want(l, y, W_CHANNEL_MIX_LERP_R, d, 1, 1, 0) || want_matrix(l, y, W_CHANNEL_MIX_RECEPTANCE, d, d, 0)))
    return -1;
  return want(l, y, W_CHANNEL_MIX_LERP_K, d, 1, 1, 0) || want_matrix(l, y, W_CHANNEL_MIX_KEY, d, y->n_ff, 0) ||
             want_matrix(l, y, W_CHANNEL_MIX_VALUE, y->n_ff, d, 0)
           ? -1
           : 0;
}

static tensor *channel_mix(build *b, const layer *y, tensor *x) {
  graph *g = b->g;
  tensor *step = t_sub(g, row_before(b, y, y->ff_state, x), x),
         *k = linear(b, y, W_CHANNEL_MIX_KEY, mixed(b, x, step, weight(b, y, W_CHANNEL_MIX_LERP_K)));
  tensor *out = linear(b, y, W_CHANNEL_MIX_VALUE, activate(b, y, k));
  if (!y->w[W_CHANNEL_MIX_RECEPTANCE].weight) return out;
  return t_mul(
    g, out, sigmoid(g, linear(b, y, W_CHANNEL_MIX_RECEPTANCE, mixed(b, x, step, weight(b, y, W_CHANNEL_MIX_LERP_R)))));
}

const part part_channel_mix = {channel_load, channel_mix};
