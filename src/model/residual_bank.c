// Residual bank (Kimi K3): every few layers the residual stream is stored, and a new one begins with the attention's
// output. Each part, and the head, reads a weighted sum of the stream and all stored ones. The weights are a softmax of
// scores: each stream, normed, times a vector of the part.
//
// Input: model.bank_every. Invariant: the streams are stored, so that their sums have the same form for one token and
// for many.
#include "model/model_impl.h"
#include "model/stored.h"

int residual_bank_load(loader *l) {
  model *m = l->m;
  if (!m->bank_every) return 0;
  for (int i = 0; i < m->n_layer; i++)
    if (want_vector(l, &m->layers[i], W_ATTN_RES_SCORE, m->n_embd, 0) ||
        want_vector(l, &m->layers[i], W_FFN_RES_SCORE, m->n_embd, 0))
      return -1;
  return want_vector(l, NULL, W_OUTPUT_RES_SCORE, m->n_embd, 0);
}

// {T}
static tensor *residual_score(const build *b, tensor *x, tensor *by) {
  return t_reduce(b->g, t_rmsnorm(b->g, x, by, b->m->eps), OP_ADD, 1);
}

// The weighted sum of x {T, n_embd} and the stored streams
static tensor *with_banked(build *b, const layer *y, enum tensor_id id, tensor *x) {
  graph *g = b->g;
  int n = b->n_bank;
  if (!n) return x;
  tensor *by = weight(b, y, id), *sum = NULL;
  b->bank[n] = x;
  for (int i = 0; i <= n; i++)
    b->bank_score[i] = t_reshape(g, residual_score(b, b->bank[i], by), DIMS(b->T));
  tensor *share = one_form(g, t_softmax(g, t_stack_last(g, b->bank_score, n + 1), 1));
  for (int i = 0; i <= n; i++) {
    tensor *some = t_mul(g, b->bank[i], t_slice_i(g, share, 1, i, 1));
    sum = sum ? t_add(g, sum, some) : some;
  }
  return sum;
}

tensor *residual_bank_through(build *b, const layer *y, tensor *x) {
  graph *g = b->g;
  tensor *read = with_banked(b, y, W_ATTN_RES_SCORE, x);
  bool banked = y->index % b->m->bank_every == 0;
  if (banked) b->bank[b->n_bank++] = x;
  tensor *made = y->mixer->graph(b, y, norm(b, y, y->mixer_norm, read));
  x = banked ? made : t_add(g, x, made);
  read = with_banked(b, y, W_FFN_RES_SCORE, x);
  return controlled(b, y, t_add(g, x, y->ff->graph(b, y, norm(b, y, y->ff_norm, read))));
}

tensor *residual_bank_leave(build *b, tensor *x) { return with_banked(b, NULL, W_OUTPUT_RES_SCORE, x); }
