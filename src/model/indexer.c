// Chooses the positions that a token reads, in models trained for it ("lightning indexer"). A few small query heads
// meet one key per position. The positive parts of their products are summed with the token's weights for the heads:
//
//   score(position) = sum over heads h of  w_h max(0, q_h . k)
//
// The top_k positions with the largest scores are read, the others are masked; on equal scores the earlier position is
// chosen. If the context has at most top_k positions, all are read and the graph has no indexer.
//
// Scores are only compared. So common factors are left out, and so is the Hadamard matrix by which some models rotate
// queries and keys before rounding them to a few bits: it preserves every product.
//
// The k-th largest score is found by counting. As an integer of equal order it has 8 digits of 4 bits; each digit is
// found in one pass over the scores, as the largest one for which at least k scores are not below the number so far. Of
// the scores equal to it, those before a position are read, which is found in the same manner. Counts do not depend on
// an order, so the choice does not depend on how a prompt is chunked.
#include <math.h>
#include <stdio.h>
#include "model/model_impl.h"
#include "model/stored.h"

enum { DIGIT = 4, DIGITS = 1 << DIGIT };
#define EPS 1e-6                            // files have no key for it

int indexer_sizes(loader *l, indexer *i) {
  int turning = l->m->rope[ROPE_GLOBAL].dim;
  if (key_count(l, "attention.indexer.head_count", 1, 1 << 14, &i->heads) ||
      key_count(l, "attention.indexer.key_length", 1, 1 << 14, &i->n))
    return -1;
  return i->n < turning ? gguf_fail(l->f, l->key, l->err, "%d elements; rope.dimension_count says that %d of them turn",
                                    i->n, turning)
                        : 0;
}

bool indexer_is_there(const loader *l, const layer *y) {
  char name[64];
  snprintf(name, sizeof name, "blk.%d.indexer.proj.weight", y->block);
  return gguf_tensor_find(l->f, name);
}

int indexer_is_own(loader *l, const layer *y, bool *own) {
  uint32_t each[MODEL_MAX_LAYERS];
  if (key_flags(l, "attention.indexer.types", each)) return -1;
  const gguf_value *list = gguf_find(l->f, l->key);
  bool left_out = y->index >= l->m->n_layer && list->type == GGUF_ARRAY && list->a.n == (size_t)l->m->n_layer;
  *own = left_out ? indexer_is_there(l, y) : each[y->index];
  return 0;
}

int indexer_load(loader *l, layer *y) {
  indexer *i = &y->indexer;
  bool own = y->kv_from == y->index;
  unsigned flags = own ? 0 : WANT_OPTIONAL;
  int rank;
  if (key_count(l, "attention.q_lora_rank", 1, 1 << 20, &rank) || indexer_sizes(l, i)) return -1;
  if (want_matrix(l, y, W_INDEXER_PROJ, l->m->n_embd, i->heads, flags) ||
      want_matrix(l, y, W_INDEXER_K, l->m->n_embd, i->n, flags) ||
      want_vector(l, y, W_INDEXER_K_NORM, i->n, own ? WANT_BIAS : flags) ||
      want_matrix(l, y, W_INDEXER_Q_B, rank, (int64_t)i->heads * i->n, flags))
    return -1;
  return own ? kv_load(l, y, KV_INDEX) : 0;
}

int block_indexer_load(loader *l, layer *y) {
  indexer *i = &y->indexer;
  model *m = l->m;
  char name[64];
  snprintf(name, sizeof name, "blk.%d.indexer.q_proj.weight", y->block);
  if (!m->block_size || !gguf_tensor_find(l->f, name)) return 0;
  if (indexer_sizes(l, i)) return -1;
  if (i->heads != y->n_kv)
    return gguf_fail(l->f, key(l, "attention.indexer.head_count"), l->err, "%d, but attention.head_count_kv = %d",
                     i->heads, y->n_kv);
  if (want_matrix(l, y, W_INDEXER_Q_PROJ, m->n_embd, (int64_t)i->heads * i->n, 0) ||
      want_matrix(l, y, W_INDEXER_K_PROJ, m->n_embd, i->n, 0) || want_vector(l, y, W_INDEXER_Q_NORM, i->n, 0) ||
      want_vector(l, y, W_INDEXER_K_NORM, i->n, 0))
    return -1;
  layer small = *y;
  small.n_kv = 1;
  return kv_load(l, &small, KV_INDEX);
}

bool indexer_chooses(const model *m, int64_t n_ctx) {
  return m->top_k && n_ctx > m->top_k * (int64_t)(m->block_size ? m->block_size : 1);
}

// Maps x to an integer above 0 of equal order; 0 and -0 give equal integers.
static tensor *ordered(graph *g, tensor *x) {
  tensor *bits = t_bitcast(g, x, DT_U32), *sign = uop_int(g, DT_U32, 1ll << 31);
  return t_where(g, t_op2(g, OP_CMPLT, x, t_float(g, 0)), t_op2(g, OP_XOR, bits, uop_int(g, DT_U32, UINT32_MAX)),
                 t_op2(g, OP_OR, bits, sign));
}

static tensor *turned(const build *b, const layer *y, tensor *x, int64_t heads) {
  const indexer *i = &y->indexer;
  return i->turns_last ? rope_turn_last(b, y, x, heads, i->n, i->turns_halves)
                       : rope_turn_as(b, y, x, heads, i->n, i->turns_halves);
}

// Scores {T, 1, 1, 1, seen} as such integers; 0 for positions that the token must not read.
static tensor *scored(build *b, const layer *y, const index_keys *k) {
  graph *g = b->g;
  layer small = *y;
  small.n_head = y->indexer.heads;
  small.n_kv = 1;
  uop *one = n_(b, 1), *heads = n_(b, y->indexer.heads), *page = n_(b, k->page), *pages = k->pages;
  // page by page, as in attention
  tensor *s = t_reshape(g, scores(b, &small, k->q, k->K), DIMS(b->T, heads, pages, page));
  s = t_stage(g, t_op2(g, OP_MAX, t_permute(g, s, (int[]){2, 0, 1, 3}), t_float(g, 0)), false);
  if (k->by) s = t_mul(g, s, t_reshape(g, k->by, DIMS(one, b->T, heads, one)));
  s = ordered(g, t_reduce(g, s, OP_ADD, 2));
  tensor *later = t_op2(g, OP_CMPLT, t_reshape(g, k->last, DIMS(one, b->T, one, one)),
                        t_reshape(g, k->at, DIMS(pages, one, one, page)));
  s = t_where(g, later, uop_int(g, DT_U32, 0), s);
  return t_reshape(g, t_permute(g, s, (int[]){1, 2, 0, 3}), DIMS(b->T, one, one, one, idx_mul(g, pages, page)));
}

// The indexer's queries and keys: keys from x, queries from q, the input of the query matrices
static index_keys of_positions(build *b, const layer *y, tensor *x, tensor *q) {
  graph *g = b->g;
  const indexer *i = &y->indexer;
  uop *one = n_(b, 1), *heads = n_(b, i->heads), *n = n_(b, i->n);
  tensor *k = t_layernorm(g, linear(b, y, W_INDEXER_K, x), weight(b, y, W_INDEXER_K_NORM), i->eps != 0 ? i->eps : EPS);
  k = t_reshape(g, t_add(g, k, bias(b, y, W_INDEXER_K_NORM)), DIMS(b->T, one, n));
  tensor *K = kv_store(b, y, KV_INDEX, turned(b, y, makes_several(g, k), 1));
  q = t_reshape(g, linear(b, y, W_INDEXER_Q_B, q), DIMS(b->T, heads, n));
  q = turned(b, y, q, i->heads);
  tensor *by = t_reshape(g, linear(b, y, W_INDEXER_PROJ, x), DIMS(b->T, heads));
  return (index_keys){q, K, by, kv_seen_at(b, y), own_at(b), idx_div(g, kv_seen(b, y), n_(b, b->s->page)), b->s->page};
}

static tensor *count_true(graph *g, tensor *of) {
  return t_reduce(g, t_cast(g, of, DT_I32), OP_ADD, 4);
}

// The values 1, 2, .. of a digit whose lowest bit is `shift`: {1, DIGITS - 1, 1, 1, 1}
static tensor *steps(const build *b, int shift) {
  graph *g = b->g;
  tensor *d = t_add(g, t_iota(g, n_(b, DIGITS - 1)), n_(b, 1));
  d = t_op2(g, OP_SHL, t_cast(g, d, DT_U32), uop_int(g, DT_U32, shift));
  return t_reshape(g, d, DIMS(n_(b, 1), n_(b, DIGITS - 1), n_(b, 1), n_(b, 1), n_(b, 1)));
}

// Appends a digit to so_far {T, 1, heads, 1, 1}: the number of steps that are `enough` {T, DIGITS - 1, heads, 1, 1}
static tensor *with_digit(const build *b, tensor *so_far, tensor *enough, int shift) {
  graph *g = b->g;
  tensor *digit = t_reduce(g, t_cast(g, enough, DT_U32), OP_ADD, 1);
  return t_add(g, so_far, t_op2(g, OP_SHL, digit, uop_int(g, DT_U32, shift)));
}

// Whether each of s {T, 1, heads, 1, n}, integers, is among the top_k largest of its last axis; at: indices there
static tensor *among_top_k(const build *b, tensor *s, tensor *at) {
  graph *g = b->g;
  int64_t k = b->m->top_k;
  tensor *kth = uop_int(g, DT_U32, 0), *first = kth, *one = uop_int(g, DT_U32, 1);
  for (int shift = 32 - DIGIT; shift >= 0; shift -= DIGIT) {
    tensor *below = t_sub(g, t_add(g, kth, steps(b, shift)), one);
    tensor *enough = t_op2(g, OP_CMPLT, uop_int(g, DT_I32, k - 1), count_true(g, t_op2(g, OP_CMPLT, below, s)));
    kth = with_digit(b, kth, enough, shift);
  }
  // of equal scores, all before index `first` are chosen
  tensor *above = t_op2(g, OP_CMPLT, kth, s), *equal = t_op2(g, OP_CMPEQ, s, kth);
  tensor *more = t_sub(g, uop_int(g, DT_I32, k + 1), count_true(g, above));
  int bits = DIGIT;
  while (b->s->ctx >> bits) bits += DIGIT;
  for (int shift = bits - DIGIT; shift >= 0; shift -= DIGIT) {
    tensor *before = t_op2(g, OP_CMPLT, at, t_add(g, first, steps(b, shift)));
    tensor *enough = t_op2(g, OP_CMPLT, count_true(g, t_op2(g, OP_AND, equal, before)), more);
    first = with_digit(b, first, enough, shift);
  }
  first = one_form(g, first);  // fused, attention's kernels would repeat the counting
  return t_op2(g, OP_OR, above, t_op2(g, OP_AND, equal, t_op2(g, OP_CMPLT, at, first)));
}

tensor *indexer_best(build *b, const layer *y, const index_keys *k) {
  return among_top_k(b, scored(b, y, k), t_cast(b->g, k->at, DT_U32));
}

tensor *indexer_choice(build *b, const layer *y, tensor *x, tensor *q) {
  index_keys k = of_positions(b, y, x, q);
  return indexer_best(b, y, &k);
}

// --- blocks of positions (MiniMax M3): each key head has a query of its own, and a block's score is that of its best
// position. The last blocks before a token are always chosen.

// q {T, heads, n}, normed and rotated
static tensor *index_query(build *b, const layer *y, enum tensor_id id, enum tensor_id by, tensor *x, int64_t heads) {
  int64_t n = y->indexer.n;
  tensor *q = t_reshape(b->g, linear(b, y, id, x), DIMS(b->T, n_(b, heads), n_(b, n)));
  q = t_rmsnorm(b->g, q, weight(b, y, by), b->m->eps);
  return rope_turn_as(b, y, q, heads, n, b->m->neox);
}

// Scores of blocks, {T, 1, heads, 1, blocks}, as integers; 0 for blocks after the token
static tensor *block_scores(build *b, const layer *y, const layer *small, tensor *x, tensor *number) {
  graph *g = b->g;
  const model *m = b->m;
  int64_t heads = y->indexer.heads;
  uop *one = n_(b, 1), *size = n_(b, m->block_size), *blocks = idx_div(g, kv_seen(b, y), size);
  tensor *K = kv_store(b, small, KV_INDEX, index_query(b, y, W_INDEXER_K_PROJ, W_INDEXER_K_NORM, x, 1));
  tensor *s = scores(b, small, index_query(b, y, W_INDEXER_Q_PROJ, W_INDEXER_Q_NORM, x, heads), K);
  s = t_where(g, t_op2(g, OP_CMPLT, own_at(b), kv_seen_at(b, y)), t_float(g, -INFINITY), s);
  s = t_reshape(g, s, DIMS(b->T, one, n_(b, heads), blocks, size));
  s = t_reshape(g, ordered(g, one_form(g, t_reduce(g, s, OP_MAX, 4))), DIMS(b->T, one, n_(b, heads), one, blocks));
  tensor *own = t_op2(g, OP_IDIV, own_at(b), size), *later = t_op2(g, OP_CMPLT, own, number),
         *local = t_op2(g, OP_CMPLT, t_sub(g, own, n_(b, m->local_blocks)), number);
  s = t_where(g, local, uop_int(g, DT_U32, UINT32_MAX), s);
  return t_where(g, later, uop_int(g, DT_U32, 0), s);
}

tensor *block_indexer_choice(build *b, const layer *y, tensor *x) {
  graph *g = b->g;
  layer small = kv_index_layer(b->m, y);
  small.n_head = y->indexer.heads;
  uop *one = n_(b, 1), *heads = n_(b, y->indexer.heads), *size = n_(b, b->m->block_size), *seen = kv_seen(b, y),
      *blocks = idx_div(g, seen, size);
  tensor *number = t_reshape(g, t_iota(g, blocks), DIMS(one, one, one, one, blocks));
  tensor *chosen = among_top_k(b, block_scores(b, y, &small, x, number), t_cast(g, number, DT_U32));
  chosen = t_expand(g, t_reshape(g, chosen, DIMS(b->T, heads, one, one, blocks, one)), 6,
                    (uop *[]){b->T, heads, one, one, blocks, size});
  return t_reshape(g, chosen, DIMS(b->T, heads, one, one, seen));
}
