// Two alternating stacks of layers (HRM). The input of each is the sum of both stacks' last outputs; its output is
// normed without weights. The low stack, whose output begins as a learned vector, runs several times before the high
// stack, whose output begins as the embedding and is the input of the head.
//
// Input: the layers in the order of their use (model.stacks); several share a block of the file. Invariant: each layer
// has its own keys and values.
#include "model/model_impl.h"
#include "model/stored.h"

int stacks_load(loader *l) {
  return l->m->stacks.n ? want(l, NULL, W_HRM_Z_L_INIT, l->m->n_embd, 1, 1, WANT_VECTOR | WANT_BARE) : 0;
}

tensor *stacks_through(build *b, tensor *x) {
  graph *g = b->g;
  const model *m = b->m;
  tensor *high = x, *low = weight(b, NULL, W_HRM_Z_L_INIT);
  for (int i = 0, turn = 0; i < m->n_layer; turn++) {
    x = flows_on(g, t_add(g, high, low));
    for (int end = i + m->stacks.n; i < end; i++) x = through(b, &m->layers[i], x);
    x = flows_on(g, t_rmsnorm(g, x, NULL, m->eps));
    if (turn % (m->stacks.low + 1) == m->stacks.low) high = x;
    else low = x;
  }
  return high;
}
