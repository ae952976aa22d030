// Adapters that a model's file has, chosen by tokens of the text (Granite Switch). Each adapter has an activating
// token; from that token on, the products of all layers get the adapter's additions, as those of adapter.c. An
// activating token is embedded as another token, its substitute.
//
// Files have the matrices of all adapters as matrices of experts: number 0 is zeros, for text without an adapter. The
// number of the adapter that is active at each position follows from the positions before it, so that a cache, a
// position's own number, is enough: one number per position, 0 for most. Authors read it by attention with one head,
// whose scores are `gain` for activating tokens and -gain for others: the mean of the numbers seen, rounded.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <math.h>
#include "model/dequant.h"
#include "model/model_impl.h"
#include "model/stored.h"

// Matrices B follow matrices A in the list of tensors.
static const struct { enum tensor_id of, a; } pairs[] = {
  {W_ATTN_Q, W_ATTN_Q_LORA_A}, {W_ATTN_K, W_ATTN_K_LORA_A}, {W_ATTN_V, W_ATTN_V_LORA_A},
  {W_ATTN_OUTPUT, W_ATTN_OUTPUT_LORA_A}, {W_FFN_GATE, W_FFN_GATE_LORA_A}, {W_FFN_UP, W_FFN_UP_LORA_A},
  {W_FFN_DOWN, W_FFN_DOWN_LORA_A},
};
enum { QKV = 3 };          // the first ones belong to one product if queries, keys and values are one

int switch_keys(loader *l) {
  switcher *s = &l->m->switcher;
  has_key(l, "expert_used_count");                     // counts as read: 0, as a file of this kind is dense
  return key_count(l, "adapters.count", 1, SWITCH_MOST, &s->n) ||
             key_count(l, "adapters.lora_rank", 1, 4096, &s->rank) ||
             gguf_u32_each(l->f, key(l, "adapters.token_ids_activate"), (size_t)s->n, s->token, l->err) ||
             gguf_u32_each(l->f, key(l, "adapters.token_ids_substitute"), (size_t)s->n, s->substitute, l->err) ||
             key_number_or(l, "adapters.router_gain", 15, 0, 1e3, &s->gain)
           ? -1
           : 0;
}

// ---- the number of each position's adapter --------------------------------------------------------------------------

// The first layer as the cache of numbers sees it
static layer numbers_layer(const model *m, const layer *y) {
  layer small = kv_index_layer(m, y);
  small.indexer.n = 1;
  return small;
}

static int load_numbers(loader *l, layer *y) {
  const switcher *s = &l->m->switcher;
  for (int i = 0; i < s->n; i++)
    if (s->substitute[i] >= (uint32_t)l->m->n_vocab)
      return gguf_fail(l->f, key(l, "adapters.token_ids_substitute"), l->err,
                       "%u is not in the vocabulary of %d tokens", s->substitute[i], l->m->n_vocab);
  layer small = *y;
  small.n_kv = small.indexer.n = 1;
  return kv_load(l, &small, KV_INDEX);
}

static tensor *is_token(const build *b, tensor *ids, uint32_t token) {
  return t_op2(b->g, OP_CMPEQ, ids, uop_int(b->g, DT_I32, (int64_t)token));
}

tensor *switch_ids(const build *b, tensor *ids) {
  const switcher *s = &b->m->switcher;
  tensor *out = ids;
  for (int i = 0; i < s->n; i++)
    out = t_where(b->g, is_token(b, ids, s->token[i]), uop_int(b->g, DT_I32, (int64_t)s->substitute[i]), out);
  return out;
}

// Of this run's tokens: the adapter that a token activates, or 0
static tensor *activated(const build *b) {
  graph *g = b->g;
  tensor *ids = token_ids(b), *out = t_float(g, 0);
  for (int i = 0; i < b->m->switcher.n; i++)
    out = t_where(g, is_token(b, ids, b->m->switcher.token[i]), t_float(g, i + 1), out);
  out = t_reshape(g, out, DIMS(b->T, n_(b, 1)));
  return b->is_floats ? t_where(g, b->is_floats, t_float(g, 0), out) : out;
}

// The number of the adapter that is active at each token, {T, 1}, I32
static tensor *active(build *b, const layer *y) {
  graph *g = b->g;
  const switcher *s = &b->m->switcher;
  layer of = numbers_layer(b->m, y);
  uop *one = n_(b, 1);
  tensor *all = kv_store(b, &of, KV_INDEX, t_reshape(g, activated(b), DIMS(b->T, one, one)));
  all = t_reshape(g, all, DIMS(all->shape->dim[0], one, one, one, all->shape->dim[3]));
  tensor *at = own_at(b), *seen = t_where(g, t_op2(g, OP_CMPLT, at, kv_seen_at(b, &of)), t_float(g, 0), all);
  tensor *each = t_where(g, t_op2(g, OP_CMPLT, t_float(g, 0), seen), t_float(g, 1), t_float(g, 0));
  // sums of integers: exact in any order
  tensor *sum = t_reduce(g, seen, OP_ADD, 4), *count = t_reduce(g, each, OP_ADD, 4),
         *others = t_sub(g, t_cast(g, t_add(g, at, n_(b, 1)), DT_F32), count);
  tensor *mean = t_op2(g, OP_FDIV, sum, t_add(g, count, t_scale(g, others, exp(-2 * s->gain))));
  tensor *number = t_op1(g, OP_FLOOR, t_add(g, t_op2(g, OP_MIN, mean, t_float(g, s->n)), t_float(g, 0.5)));
  return t_reshape(g, t_cast(g, number, DT_I32), DIMS(b->T, one));
}

// ---- products -------------------------------------------------------------------------------------------------------

static int want_pair(loader *l, layer *y, int i, int64_t in, int64_t out) {
  const switcher *s = &l->m->switcher;
  return want(l, y, pairs[i].a, in, s->rank, s->n + 1, WANT_BARE) ||
             want(l, y, pairs[i].a + 1, s->rank, out, s->n + 1, WANT_BARE)
           ? -1
           : 0;
}

// x {T, in} times the matrix of each token's adapter: {T, rows}
static tensor *times_of_adapter(const build *b, const layer *y, enum tensor_id id, tensor *x) {
  graph *g = b->g;
  const gguf_tensor *t = gguf_tensor_at(b->m->file, (size_t)y->w[id].weight - 1);
  uop *one = n_(b, 1), *rows = n_(b, t->ne[1]), *in = n_(b, t->ne[0]);
  tensor *w = dequant_chosen(g, t->format, y->w[id].weight - 1, t->ne[2], t->ne[1], t->ne[0], b->adapter);
  w = t_reshape(g, w, DIMS(b->T, one, rows, in));
  tensor *p = t_reduce(g, t_mul(g, t_reshape(g, x, DIMS(b->T, one, one, in)), w), OP_ADD, 3);
  return t_reshape(g, p, DIMS(b->T, rows));
}

static tensor *adapter_adds(const build *b, const layer *y, int i, tensor *x) {
  return one_form(b->g,
                  times_of_adapter(b, y, pairs[i].a + 1, read_by_many(b->g, times_of_adapter(b, y, pairs[i].a, x))));
}

tensor *switch_adds(const build *b, const layer *y, enum tensor_id id, tensor *x, tensor *out) {
  graph *g = b->g;
  tensor *add = NULL;
  for (size_t i = 0; i < COUNT(pairs); i++) {
    if (pairs[i].of != id && (id != W_ATTN_QKV || i >= QKV)) continue;
    tensor *own = adapter_adds(b, y, (int)i, x);
    add = add ? t_cat_last(g, add, own) : own;
  }
  return add ? t_add(g, out, add) : out;
}

// ---- parts ----------------------------------------------------------------------------------------------------------

static int load_attention_switched(loader *l, layer *y) {
  int64_t d = l->m->n_embd, q = (int64_t)y->n_head * y->head_dim, k = (int64_t)y->n_kv * y->head_dim,
          v = (int64_t)y->n_kv * y->v_dim;
  return part_attention.load(l, y) || (!y->index && load_numbers(l, y)) || want_pair(l, y, 0, d, q) ||
             want_pair(l, y, 1, d, k) || want_pair(l, y, 2, d, v) ||
             want_pair(l, y, QKV, (int64_t)y->n_head * y->v_dim, d)
           ? -1
           : 0;
}

static tensor *attention_switched(build *b, const layer *y, tensor *x) {
  if (!y->index) b->adapter = active(b, y);
  return part_attention.graph(b, y, x);
}

const part part_switched_attention = {load_attention_switched, attention_switched};

static int load_dense_switched(loader *l, layer *y) {
  int64_t d = l->m->n_embd, f = y->n_ff;
  return part_dense.load(l, y) || (!y->w[W_FFN_GATE].weight && want_matrix(l, y, W_FFN_GATE, d, f, 0)) ||
             want_pair(l, y, QKV + 1, d, f) || want_pair(l, y, QKV + 2, d, f) || want_pair(l, y, QKV + 3, f, d)
           ? -1
           : 0;
}

static tensor *dense_switched(build *b, const layer *y, tensor *x) { return part_dense.graph(b, y, x); }

const part part_switched_dense = {load_dense_switched, dense_switched};
