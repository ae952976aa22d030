// Multi-token prediction (MTP, "nextn"): a block after the last layer that predicts the token after the next one. Its
// inputs are the embedding of the next token and the output of the model one position before (normed like the head's
// input, unless the architecture says otherwise), each through a norm of its own and then through one common product.
// The rest is a layer of the model's family, with the model's head or a head of its own. engine/draft_mtp.c drafts with
// it.
//
// Its cache entry of a position is made of the token there and of the model's output one position before, so it depends
// on the same tokens as the entries of all layers. So it is in the same pages, and every graph of the model writes it:
// the products for its keys and values, which are all that is needed, are a small part of a layer. The model's output
// is also kept in the pages, for each position. When the block continues from its own draft, it reads the output that
// it wrote there itself.
//
// Invariant: no result of the model depends on this block.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdio.h>
#include <string.h>
#include "model/model_impl.h"
#include "model/stored.h"

bool model_has_mtp(const model *m) { return m->mtp; }

static layer *block(const model *m) { return &m->layers[m->n_layer]; }

void model_drop_mtp(model *m) {
  if (!m->mtp) return;
  m->states.n = (size_t)block(m)->state;
  m->mtp = false;
}

// If there are several such blocks, only the first is read. A block that is only a layer is left out.
int mtp_find(loader *l) {
  model *m = l->m;
  int more, of, at = 0;
  if (key_count_or(l, "nextn_predict_layers", 0, 0, (uint32_t)m->n_layer - 1, &more)) return -1;
  m->n_layer -= more;
  for (size_t i = 0; more && i < gguf_n_tensors(l->f); i++) {
    const char *name = gguf_tensor_at(l->f, i)->name;
    if (sscanf(name, "blk.%d.%n", &of, &at) != 1 || of < m->n_layer) continue;
    l->claimed[i] = true;
    m->mtp |= of == m->n_layer && !strncmp(name + at, "nextn.", 6) && m->arch->has & HAS_MTP;
  }
  return 0;
}

int mtp_load(loader *l) {
  model *m = l->m;
  if (!m->mtp) return 0;
  layer *y = block(m);
  int64_t d = m->n_embd;
  if (want_matrix(l, y, W_NEXTN_EH_PROJ, 2 * d, d, 0) || want_vector(l, y, W_NEXTN_ENORM, d, 0) ||
      want_vector(l, y, W_NEXTN_HNORM, d, 0) || want_vector(l, y, W_NEXTN_SHARED_HEAD_NORM, d, WANT_OPTIONAL) ||
      want_matrix(l, y, W_NEXTN_EMBED_TOKENS, d, m->n_vocab, WANT_OPTIONAL) ||
      want_matrix(l, y, W_NEXTN_SHARED_HEAD_HEAD, d, m->n_vocab, WANT_OPTIONAL))
    return -1;
  // the name that some converters use
  tensor_ref *other = &y->w[W_LAYER_OUTPUT_NORM], *last = &y->w[W_NEXTN_SHARED_HEAD_NORM];
  if (!last->weight && want_vector(l, y, W_LAYER_OUTPUT_NORM, d, WANT_OPTIONAL)) return -1;
  if (!last->weight) {
    *last = *other;
    *other = (tensor_ref){0};
  }
  m->mtp_before = state(l, y, DT_BF16, d, 0) - y->state;
  return 0;
}

static int page_group(const build *b) { return window_group(b->m, block(b->m)->window); }

static tensor *kept_rows(const build *b) {
  int64_t dims[] = {b->s->pages * b->s->page, b->m->n_embd};
  return t_reshape_i(b->g, state_buffer(b, block(b->m), b->m->mtp_before), 2, dims);
}

// Stores x {T, n_embd} for these positions, and returns all stored rows.
static tensor *keep_hidden(build *b, tensor *x) {
  int64_t dims[] = {b->s->pages * b->s->page, b->m->n_embd};
  tensor *next = t_assign(b->g, t_gather(b->g, kept_rows(b), b->rows[page_group(b)]), t_cast(b->g, x, DT_BF16));
  vec_push(b->effects, next);
  return t_reshape_i(b->g, next, 2, dims);
}

// The input of the layer, where `all` is the stored rows. Before the first position there are zeros.
static tensor *entered(const build *b, tensor *all) {
  graph *g = b->g;
  const layer *y = block(b->m);
  enum tensor_id own = y->w[W_NEXTN_EMBED_TOKENS].weight ? W_NEXTN_EMBED_TOKENS : W_TOKEN_EMBD;
  tensor *e = with_floats(b, embedding(b, own == W_TOKEN_EMBD ? NULL : y, own, token_ids(b)));
  tensor *first = t_reshape(g, t_op2(g, OP_CMPLT, b->at, uop_idx(g, 1)), DIMS(b->T, n_(b, 1)));
  tensor *at = t_op2(g, OP_MAX, t_sub(g, b->at, uop_idx(g, 1)), uop_idx(g, 0));
  tensor *h = t_where(g, first, t_float(g, 0), t_cast(g, t_gather(g, all, cache_rows(b, at, page_group(b))), DT_F32));
  e = norm(b, y, W_NEXTN_ENORM, read_by_many(g, e));
  h = norm(b, y, W_NEXTN_HNORM, read_by_many(g, h));
  return linear(b, y, W_NEXTN_EH_PROJ, read_by_many(g, t_cat_last(g, e, h)));
}

void mtp_keep(build *b, tensor *x) {
  const model *m = b->m;
  tensor *all = keep_hidden(b, m->arch->mtp_bare ? x : norm(b, NULL, m->output_norm, x));
  through(b, block(m), entered(b, all));               // only its writes to the caches are needed
}

void mtp_predict(build *b) {
  const model *m = b->m;
  const layer *y = block(m);
  tensor *bare = through(b, y, entered(b, kept_rows(b))), *x;
  bool own_norm = y->w[W_NEXTN_SHARED_HEAD_NORM].weight, own_head = y->w[W_NEXTN_SHARED_HEAD_HEAD].weight;
  if (own_norm && m->arch->mtp_centred) x = t_layernorm(b->g, bare, weight(b, y, W_NEXTN_SHARED_HEAD_NORM), m->eps);
  else x = norm(b, own_norm ? y : NULL, own_norm ? W_NEXTN_SHARED_HEAD_NORM : m->output_norm, bare);
  keep_hidden(b, m->arch->mtp_bare ? bare : x);
  vec_push(b->effects, logits_of(b, own_head ? y : NULL, own_head ? W_NEXTN_SHARED_HEAD_HEAD : head_of(m), x));
}
