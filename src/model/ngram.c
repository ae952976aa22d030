// N-gram embeddings (Qwen4-Exp): in one layer, before its mixer, a token adds rows of a large table to the stream. The
// rows are found by hashes of the token and the ones before it: for each n of 2 .. size, several heads each have a
// range of the table.
//
//   mixed(n) = t(0) m(0) ^ t(1) m(1) ^ .. ^ t(n-1) m(n-1)      row = offset(head) + mixed(n) mod rows(head)
//
// where t(i) is the token i places back. An end-of-text token ends what is before it: from there on t is that token, as
// before the beginning. The rows of all heads make a value, which each row of the stream weighs by a gate, and a short
// convolution over the values, whose taps are `size` positions apart.
//
// States of the layer after those of its mixer: the last tokens, as numbers that are 0 for end-of-text, and the last
// inputs of the convolution. Both are rings (convolution.c), whose rows before the beginning are 0.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <math.h>
#include "model/model_impl.h"
#include "model/stored.h"

static int64_t hash_heads(const ngram *n) { return (int64_t)(n->size - 1) * n->per_size; }
static int64_t conv_back(const ngram *n) { return (int64_t)(n->taps - 1) * n->size; }

// The first n integers of an array, each in 1 .. INT64_MAX (zeros: 0 as well)
static int read_integers(loader *l, const char *rest, int64_t n, bool zeros, int64_t *out) {
  const gguf_value *v = gguf_find(l->f, key(l, rest));
  if (!v || v->type != GGUF_ARRAY || v->a.n < (size_t)n)
    return gguf_fail(l->f, l->key, l->err, "is no array of at least %lld integers", (long long)n);
  for (int64_t i = 0; i < n; i++) {
    gguf_value e = gguf_elem(v, (size_t)i);
    bool has_sign = v->elem == GGUF_INT32 || v->elem == GGUF_INT64,
         integer = has_sign || v->elem == GGUF_UINT32 || v->elem == GGUF_UINT64;
    if (!integer || (has_sign ? e.i < !zeros : e.u < (uint64_t)!zeros || e.u > INT64_MAX))
      return gguf_fail(l->f, l->key, l->err, "element %lld is no integer in %d..2^63-1", (long long)i, !zeros);
    out[i] = has_sign ? e.i : (int64_t)e.u;
  }
  return 0;
}

// Products of a token with its factor stay below 2^63, as the factors of published models do.
static int check_hashes(loader *l, const ngram *n) {
  for (int i = 0; i < n->size; i++)
    if (n->factor[i] > INT64_MAX / l->m->n_vocab)
      return gguf_fail(l->f, key(l, "ple.layer_multipliers"), l->err, "%lld times a token may exceed 63 bits",
                       (long long)n->factor[i]);
  for (int64_t h = 0; h < hash_heads(n); h++)
    if (n->offset[h] > INT32_MAX || n->rows[h] > INT32_MAX)
      return gguf_fail(l->f, key(l, "ple.head_offsets"), l->err, "head %lld: rows %lld + %lld of a table", (long long)h,
                       (long long)n->offset[h], (long long)n->rows[h]);
  return 0;
}

int ngram_keys(loader *l) {
  ngram *n = &l->m->ngram;
  int64_t at;
  if (!has_key(l, "ple.layers")) return 0;
  const gguf_value *v = gguf_find(l->f, l->key);
  if (v->type == GGUF_ARRAY && v->a.n != 1)
    return gguf_fail(l->f, l->key, l->err, "%zu layers (only one is supported)", v->a.n);
  has_key(l, "ple.image_token_id");                      // counts as read: of images alone
  if (read_integers(l, "ple.layers", 1, true, &at) ||
      key_count(l, "ple.ngram_size", 2, NGRAM_SIZE, &n->size) ||
      key_count(l, "ple.heads_per_ngram", 1, (uint32_t)(NGRAM_HEADS / (n->size - 1)), &n->per_size) ||
      key_count(l, "ple.conv_kernel", 1, 64, &n->taps) || key_count(l, "ple.eos_token_id", 0, 1 << 24, &n->eos) ||
      key_count(l, "embedding_length_per_layer_input", 1, 1 << 16, &n->width) ||
      read_integers(l, "ple.layer_multipliers", n->size, false, n->factor) ||
      read_integers(l, "ple.head_offsets", hash_heads(n), true, n->offset) ||
      read_integers(l, "ple.head_vocab_sizes", hash_heads(n), false, n->rows))
    return -1;
  n->layer = (int)at;
  return 0;
}

bool ngram_in(const model *m, const layer *y) { return m->ngram.size && y->index == m->ngram.layer; }

static int load_ngrams(loader *l, layer *y) {
  const ngram *n = &l->m->ngram;
  int64_t d = l->m->n_embd, all = d * l->m->hyper.n, made = n->width * hash_heads(n), most = 0;
  if (part_delta_net.load(l, y) || check_hashes(l, n)) return -1;
  const gguf_tensor *t = gguf_tensor_find(l->f, "per_layer_token_embd.weight");
  for (int64_t h = 0; h < hash_heads(n); h++) most = max_i64(most, n->offset[h] + n->rows[h]);
  if (t && t->ne[1] > most) most = t->ne[1];             // converters fill the table up
  if (want_matrix(l, NULL, W_PER_LAYER_TOKEN_EMBD, n->width, most, 0) || want_matrix(l, y, W_PLE_KEY, made, all, 0) ||
      want_matrix(l, y, W_PLE_VALUE, made, d, 0) || want_vector(l, y, W_PLE_NORM_KEY, all, 0) ||
      want_vector(l, y, W_PLE_NORM_QUERY, all, 0) || want_vector(l, y, W_PLE_NORM_CONV, all, 0) ||
      want_matrix(l, y, W_PLE_CONV1D, n->taps, all, 0))
    return -1;
  y->ngram_state = (int)l->m->states.n - y->state;
  ring_state(l, y, n->size - 1, 1);
  ring_state(l, y, conv_back(n), all);
  return 0;
}

// The tokens 0 .. size - 1 places back, {T} each, as differences from the end-of-text token
static void recent_tokens(build *b, const layer *y, tensor **t) {
  graph *g = b->g;
  const ngram *n = &b->m->ngram;
  tensor *own = t_cast(g, t_sub(g, token_ids(b), uop_int(g, DT_I32, n->eos)), DT_F32);
  own = t_reshape(g, own, DIMS(b->T, n_(b, 1)));
  for (int i = 0; i < n->size; i++) {
    t[i] = i ? ring_earlier(b, y, y->ngram_state, n->size - 1, i, own) : own;
    if (i > 1) t[i] = t_where(g, t_op2(g, OP_CMPEQ, t[i - 1], t_float(g, 0)), t_float(g, 0), t[i]);
  }
  ring_keep(b, y, y->ngram_state, n->size - 1, own);
}

// Rows of the table, {T, heads}
static tensor *rows_of_table(build *b, const layer *y) {
  graph *g = b->g;
  const ngram *n = &b->m->ngram;
  tensor *t[NGRAM_SIZE], *row[NGRAM_HEADS], *mixed = NULL;
  recent_tokens(b, y, t);
  for (int i = 0, h = 0; i < n->size; i++) {
    tensor *id = t_add(g, t_cast(g, t[i], DT_I64), uop_int(g, DT_I64, n->eos));
    tensor *term = t_op2(g, OP_MUL, t_reshape(g, id, DIMS(b->T)), uop_int(g, DT_I64, n->factor[i]));
    mixed = mixed ? t_op2(g, OP_XOR, mixed, term) : term;
    for (int k = 0; i && k < n->per_size; k++, h++)
      row[h] = t_add(g, t_op2(g, OP_MOD, mixed, uop_int(g, DT_I64, n->rows[h])), uop_int(g, DT_I64, n->offset[h]));
  }
  return t_cast(g, makes_several(g, t_stack_last(g, row, (int)hash_heads(n))), DT_IDX);
}

// x {T, rows of the stream, d}, each row normed by itself and multiplied by its part of a weight
static tensor *normed_rows(const build *b, const layer *y, enum tensor_id id, tensor *x) {
  int64_t n[] = {b->m->hyper.n, b->m->n_embd};
  return t_rmsnorm(b->g, x, t_reshape_i(b->g, weight(b, y, id), 2, n), b->m->eps);
}

// x {T, D} convolved with taps `size` positions apart
static tensor *far_conv(build *b, const layer *y, tensor *x) {
  graph *g = b->g;
  const ngram *n = &b->m->ngram;
  int64_t d = x->shape->dim[1]->a;
  int at = y->ngram_state + 1;
  tensor *w = weight(b, y, W_PLE_CONV1D), *sum = NULL;
  for (int64_t j = 0; j < n->taps; j++) {
    int64_t before = (n->taps - 1 - j) * n->size;
    tensor *row = before ? ring_earlier(b, y, at, conv_back(n), before, x) : x;
    tensor *term = t_mul(g, row, t_reshape_i(g, t_slice_i(g, w, 1, j, 1), 1, (int64_t[]){d}));
    sum = sum ? t_add(g, sum, term) : term;
  }
  ring_keep(b, y, at, conv_back(n), x);
  return sum;
}

tensor *ngram_through(build *b, const layer *y, tensor *x) {
  graph *g = b->g;
  const ngram *n = &b->m->ngram;
  int64_t d = b->m->n_embd, rows = b->m->hyper.n;
  uop *one = n_(b, 1), *R = n_(b, rows), *D = n_(b, d), *all = n_(b, rows * d);
  tensor *found = t_gather(g, weight(b, NULL, W_PER_LAYER_TOKEN_EMBD), rows_of_table(b, y));
  found = read_by_many(g, t_reshape(g, found, DIMS(b->T, n_(b, n->width * hash_heads(n)))));
  tensor *key = t_reshape(g, linear(b, y, W_PLE_KEY, found), DIMS(b->T, R, D)),
         *value = t_reshape(g, linear(b, y, W_PLE_VALUE, found), DIMS(b->T, one, D));
  tensor *s = t_mul(g, normed_rows(b, y, W_PLE_NORM_KEY, key),
                    normed_rows(b, y, W_PLE_NORM_QUERY, x));
  s = t_scale(g, t_reduce(g, s, OP_ADD, 2), 1 / sqrt((double)d));
  tensor *size = t_op1(g, OP_SQRT, t_op2(g, OP_MAX, t_op2(g, OP_MAX, s, t_op1(g, OP_NEG, s)), t_float(g, 1e-6)));
  tensor *zero = t_float(g, 0);
  s = t_where(g, t_op2(g, OP_CMPLT, s, zero), t_op1(g, OP_NEG, size),
              t_where(g, t_op2(g, OP_CMPLT, zero, s), size, zero));
  tensor *gated = makes_several(g, t_mul(g, read_by_many(g, value), t_reshape(g, sigmoid(g, s), DIMS(b->T, R, one))));
  tensor *flat = t_reshape(g, normed_rows(b, y, W_PLE_NORM_CONV, gated), DIMS(b->T, all));
  tensor *more = t_reshape(g, t_silu(g, far_conv(b, y, flat)), DIMS(b->T, R, D));
  return t_add(g, x, t_add(g, gated, more));
}

static tensor *delta_net_graph(build *b, const layer *y, tensor *x) { return part_delta_net.graph(b, y, x); }

const part part_delta_net_ngrams = {load_ngrams, delta_net_graph};
