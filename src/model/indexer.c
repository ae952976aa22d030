// Which positions a token reads, where a model has learned to choose ("lightning indexer"). A few small heads of
// queries meet one key of each position, and what is positive of their products is summed by weights that the token has
// for the heads:
//
//   score(position) = sum over heads h of  w_h max(0, q_h . k)
//
// The top_k positions of the largest scores are read, the others are masked; of equal scores the earlier position goes
// first. As long as there are no more than top_k, all are read, and nothing of this is in the graph.
//
// Scores are only compared. So factors that all have are left out, and so is the Hadamard matrix by which some turn
// queries and keys before they round them to a few bits: it keeps every product.
//
// The k-th largest score is found by counting: as an integer of the same order it has 8 digits of 4 bits, and the next
// digit is the number of those with which as many scores as k, or more, are not below the number so far. Each digit is
// a pass over the scores. Of those that are equal to it, the first ones up to a position are read, which is found in
// the same way. Counts do not depend on an order, so that the choice is the same however a prompt is cut.
#include "model/model_impl.h"
#include "model/stored.h"

enum { DIGIT = 4, DIGITS = 1 << DIGIT };
#define EPS 1e-6                            // no file says it

int indexer_load(loader *l, layer *y) {
  indexer *i = &y->indexer;
  bool own = y->kv_from == y->index;
  unsigned flags = own ? 0 : WANT_OPTIONAL;
  int rank, turning = l->m->rope[ROPE_GLOBAL].dim;
  if (key_count(l, "attention.q_lora_rank", 1, 1 << 20, &rank) ||
      key_count(l, "attention.indexer.head_count", 1, 1 << 14, &i->heads) ||
      key_count(l, "attention.indexer.key_length", 1, 1 << 14, &i->n))
    return -1;
  if (i->n < turning)
    return gguf_fail(l->f, l->key, l->err, "%d elements, of which rope.dimension_count = %d turn", i->n, turning);
  if (want_matrix(l, y, W_INDEXER_PROJ, l->m->n_embd, i->heads, flags) ||
      want_matrix(l, y, W_INDEXER_K, l->m->n_embd, i->n, flags) ||
      want_vector(l, y, W_INDEXER_K_NORM, i->n, own ? WANT_BIAS : flags) ||
      want_matrix(l, y, W_INDEXER_Q_B, rank, (int64_t)i->heads * i->n, flags))
    return -1;
  return own ? kv_load(l, y, KV_INDEX) : 0;
}

bool indexer_chooses(const model *m, int64_t n_ctx) { return m->top_k && n_ctx > m->top_k; }

// An integer above 0 of the same order as x, which has no sign where it is 0.
static tensor *ordered(graph *g, tensor *x) {
  tensor *bits = t_bitcast(g, x, DT_U32), *sign = uop_int(g, DT_U32, 1ll << 31);
  return t_where(g, t_op2(g, OP_CMPLT, x, t_float(g, 0)), t_op2(g, OP_XOR, bits, uop_int(g, DT_U32, UINT32_MAX)),
                 t_op2(g, OP_OR, bits, sign));
}

// Scores {T, 1, 1, 1, seen} as such integers, 0 of positions behind the token.
static tensor *scored(build *b, const layer *y, tensor *x, tensor *q) {
  graph *g = b->g;
  const indexer *i = &y->indexer;
  layer small = *y;
  small.n_head = i->heads;
  uop *one = n_(b, 1), *heads = n_(b, i->heads), *n = n_(b, i->n);
  tensor *k = t_layernorm(g, linear(b, y, W_INDEXER_K, x), weight(b, y, W_INDEXER_K_NORM), EPS);
  k = t_reshape(g, t_add(g, k, bias(b, y, W_INDEXER_K_NORM)), DIMS(b->T, one, n));
  tensor *K = kv_store(b, y, KV_INDEX, rope_turn_as(b, y, makes_several(g, k), 1, i->n, i->turns_halves));
  q = t_reshape(g, linear(b, y, W_INDEXER_Q_B, q), DIMS(b->T, heads, n));
  q = rope_turn_as(b, y, q, i->heads, i->n, i->turns_halves);
  tensor *by = t_reshape(g, linear(b, y, W_INDEXER_PROJ, x), DIMS(b->T, heads));
  // page by page, as attention does it
  uop *page = n_(b, b->s->page), *pages = idx_div(g, kv_seen(b, y), page);
  tensor *s = t_reshape(g, scores(b, &small, q, K), DIMS(b->T, heads, pages, page));
  s = t_stage(g, t_op2(g, OP_MAX, t_permute(g, s, (int[]){2, 0, 1, 3}), t_float(g, 0)), false);
  s = ordered(g, t_reduce(g, t_mul(g, s, t_reshape(g, by, DIMS(one, b->T, heads, one))), OP_ADD, 2));
  tensor *later = t_op2(g, OP_CMPLT, t_reshape(g, own_at(b), DIMS(one, b->T, one, one)),
                        t_reshape(g, kv_seen_at(b, y), DIMS(pages, one, one, page)));
  s = t_where(g, later, uop_int(g, DT_U32, 0), s);
  return t_reshape(g, t_permute(g, s, (int[]){1, 2, 0, 3}), DIMS(b->T, one, one, one, kv_seen(b, y)));
}

static tensor *count_true(graph *g, tensor *of) {
  return t_reduce(g, t_cast(g, of, DT_I32), OP_ADD, 4);
}

// The numbers 1, 2, .. of a digit whose lowest bit is `shift`: {1, DIGITS - 1, 1, 1, 1}
static tensor *steps(const build *b, int shift) {
  graph *g = b->g;
  tensor *d = t_add(g, t_iota(g, n_(b, DIGITS - 1)), n_(b, 1));
  d = t_op2(g, OP_SHL, t_cast(g, d, DT_U32), uop_int(g, DT_U32, shift));
  return t_reshape(g, d, DIMS(n_(b, 1), n_(b, DIGITS - 1), n_(b, 1), n_(b, 1), n_(b, 1)));
}

// so_far {T, 1, 1, 1, 1} and the digit behind it: as many steps as are `enough` {T, DIGITS - 1, 1, 1, 1}
static tensor *with_digit(const build *b, tensor *so_far, tensor *enough, int shift) {
  graph *g = b->g;
  tensor *digit = t_reduce(g, t_cast(g, enough, DT_U32), OP_ADD, 1);
  return t_add(g, so_far, t_op2(g, OP_SHL, digit, uop_int(g, DT_U32, shift)));
}

tensor *indexer_choice(build *b, const layer *y, tensor *x, tensor *q) {
  graph *g = b->g;
  int64_t k = b->m->top_k;
  tensor *s = scored(b, y, x, q), *kth = uop_int(g, DT_U32, 0), *first = kth, *one = uop_int(g, DT_U32, 1);
  for (int shift = 32 - DIGIT; shift >= 0; shift -= DIGIT) {
    tensor *below = t_sub(g, t_add(g, kth, steps(b, shift)), one);
    tensor *enough = t_op2(g, OP_CMPLT, uop_int(g, DT_I32, k - 1), count_true(g, t_op2(g, OP_CMPLT, below, s)));
    kth = with_digit(b, kth, enough, shift);
  }
  // of those that are equal, all before position `first`
  tensor *above = t_op2(g, OP_CMPLT, kth, s), *equal = t_op2(g, OP_CMPEQ, s, kth),
         *at = t_cast(g, kv_seen_at(b, y), DT_U32);
  tensor *more = t_sub(g, uop_int(g, DT_I32, k + 1), count_true(g, above));
  int bits = DIGIT;
  while (b->s->ctx >> bits) bits += DIGIT;
  for (int shift = bits - DIGIT; shift >= 0; shift -= DIGIT) {
    tensor *before = t_op2(g, OP_CMPLT, at, t_add(g, first, steps(b, shift)));
    tensor *enough = t_op2(g, OP_CMPLT, count_true(g, t_op2(g, OP_AND, equal, before)), more);
    first = with_digit(b, first, enough, shift);
  }
  first = one_form(g, first);                             // of attention's sums, whose kernels would count as well
  return t_op2(g, OP_OR, above, t_op2(g, OP_AND, equal, t_op2(g, OP_CMPLT, at, first)));
}
