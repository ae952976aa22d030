// The dense feed-forward: down(act(gate x) * up x).
#include "model/model_impl.h"

static int load(loader *l, layer *y) {
  int64_t d = l->m->n_embd;
  if (!y->n_ff) {             // missing, or 0 for this layer: the getter says which
    int n;
    return key_count(l, "feed_forward_length", 1, 1 << 24, &n);
  }
  return want_matrix(l, y, W_FFN_GATE, d, y->n_ff, 0) || want_matrix(l, y, W_FFN_UP, d, y->n_ff, 0) || want_matrix(l, y, W_FFN_DOWN, y->n_ff, d, 0) ? -1 : 0;
}

static tensor *feed_forward(build *b, const layer *y, tensor *x) {
  tensor *gate = t_silu(b->g, linear(b, y, W_FFN_GATE, x));
  return linear(b, y, W_FFN_DOWN, t_mul(b->g, gate, linear(b, y, W_FFN_UP, x)));
}

const part part_dense = {load, feed_forward};
