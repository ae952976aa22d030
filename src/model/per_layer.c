// Per-layer embeddings (Gemma 3n and 4): besides the vector that enters the stream, a token has a short vector for
// every layer. Each is mixed with a projection of the first layer's input, and a gate made of the layer's output
// decides how much of it is added.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <math.h>
#include "model/model_impl.h"
#include "model/stored.h"

int per_layer_load(loader *l) {
  model *m = l->m;
  int64_t n = m->n_own, d = m->n_embd;
  if (!n) return 0;
  if (want_matrix(l, NULL, W_PER_LAYER_TOKEN_EMBD, n * m->n_layer, m->n_vocab, 0) ||
      want_matrix(l, NULL, W_PER_LAYER_MODEL_PROJ, d, n * m->n_layer, 0) ||
      want_vector(l, NULL, W_PER_LAYER_PROJ_NORM, n, 0))
    return -1;
  for (int i = 0; i < m->n_layer; i++) {
    layer *y = &m->layers[i];
    if (want_matrix(l, y, W_INP_GATE, d, n, 0) || want_matrix(l, y, W_PROJ, n, d, 0) ||
        want_vector(l, y, W_POST_NORM, d, 0))
      return -1;
  }
  return 0;
}

void per_layer_enter(build *b, tensor *ids, tensor *x) {
  graph *g = b->g;
  const model *m = b->m;
  if (!m->n_own) return;
  uop *dims[] = {b->T, n_(b, m->n_layer), n_(b, m->n_own)};
  tensor *made = t_scale(g, linear(b, NULL, W_PER_LAYER_MODEL_PROJ, x), 1 / sqrt(m->n_embd));
  made = norm(b, NULL, W_PER_LAYER_PROJ_NORM, t_reshape(g, made, 3, dims));
  tensor *own = t_scale(g, t_gather(g, weight(b, NULL, W_PER_LAYER_TOKEN_EMBD), ids), sqrt(m->n_own));
  b->own = ahead(g, t_scale(g, t_add(g, made, t_reshape(g, own, 3, dims)), M_SQRT1_2));
}

tensor *per_layer_adds(build *b, const layer *y, tensor *x) {
  graph *g = b->g;
  tensor *own = t_reshape(g, t_slice_i(g, b->own, 1, y->index, 1), DIMS(b->T, n_(b, b->m->n_own)));
  tensor *h = t_mul(g, activate(b, y, linear(b, y, W_INP_GATE, x)), own);
  return norm(b, y, W_POST_NORM, linear(b, y, W_PROJ, h));
}
