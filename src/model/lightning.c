// Lightning attention (MiniMax-01): linear attention whose heads forget at fixed rates. A head has a memory {v, k}.
// Each token lets it decay by a factor of the head and the layer, adds v k, and reads it with q, its own part included;
// recurrent.c says how tokens of a block are processed together. Nothing rotates. Rows of q, k and v are one product, a
// head's three parts adjacent.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <math.h>
#include "model/recurrent.h"
#include "model/stored.h"

enum { MEMORY, KEYS, VALUES };

static int lightning_load(loader *l, layer *y) {
  model *m = l->m;
  if (want_heads(l, y)) return -1;
  int64_t d = m->n_embd, inner = (int64_t)y->n_head * y->head_dim;
  y->ssm = (ssm){.inner = (int)inner, .state = y->head_dim, .heads = y->n_head, .groups = y->n_head};
  state(l, y, DT_F32, 0, inner * y->head_dim);
  for (int i = 0; i < 2; i++) rows_state(l, y, MAMBA_BLOCK, inner);
  if (!m->block || m->block > MAMBA_BLOCK) m->block = MAMBA_BLOCK;
  return want_matrix(l, y, W_ATTN_QKV, d, 3 * inner, 0) || want_matrix(l, y, W_ATTN_GATE, d, inner, 0) ||
             want_vector(l, y, W_ATTN_NORM_2, inner, 0) || want_matrix(l, y, W_ATTN_OUTPUT, inner, d, 0)
           ? -1
           : 0;
}

// Logarithms of what is left of each head at the block's rows from .. from + rows, since its beginning: {rows, H}. Head
// h of H loses 2^(-8 (h + 1) / H) with each token, in later layers a smaller part of that.
static tensor *faded(const build *b, const layer *y, uop *from, uop *rows) {
  graph *g = b->g;
  int n = b->m->n_layer, h = y->n_head;
  double rate = n > 1 ? 1 - (double)y->index / (n - 1) + 1e-5 : 1 + 1e-5;
  tensor *nth = t_add(g, t_cast(g, t_iota(g, n_(b, h)), DT_F32), t_float(g, 1)),
         *loss = t_scale(g, t_op1(g, OP_EXP2, t_scale(g, nth, -8.0 / h)), -rate);
  tensor *row = t_cast(g, t_add(g, t_iota(g, rows), idx_add(g, from, n_(b, 1))), DT_F32);
  return t_mul(g, t_reshape(g, row, DIMS(rows, n_(b, 1))), t_reshape(g, loss, DIMS(n_(b, 1), n_(b, h))));
}

static tensor *lightning(build *b, const layer *y, tensor *x) {
  graph *g = b->g;
  int64_t d = y->head_dim, inner = y->ssm.inner;
  uop *H = n_(b, y->n_head), *all = n_(b, inner);
  tensor *qkv = t_silu(g, linear(b, y, W_ATTN_QKV, x)), *of[3];
  qkv = t_reshape(g, qkv, DIMS(b->T, H, n_(b, 3 * d)));
  for (int i = 0; i < 3; i++) of[i] = t_reshape(g, t_slice_i(g, qkv, 2, i * d, d), DIMS(b->T, all));
  block k = block_of(b, MAMBA_BLOCK);
  fading f = {.C = of[0],
              .B = of[1],
              .v = of[2],
              .sum = faded(b, y, k.from, b->T),
              .sums = faded(b, y, n_(b, 0), k.end),
              .memory = MEMORY,
              .keys = KEYS,
              .values = VALUES};
  tensor *out = t_reshape(g, read_fading(b, y, &k, &f), DIMS(b->T, all));
  // the authors' norm has an epsilon of its own
  out = t_mul(g, norm_by(b, y, W_ATTN_NORM_2, out, 1e-6), sigmoid(g, ahead(g, linear(b, y, W_ATTN_GATE, x))));
  return linear(b, y, W_ATTN_OUTPUT, out);
}

const part part_lightning = {lightning_load, lightning};
