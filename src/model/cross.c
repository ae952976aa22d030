// Decoders that read a source: an encoder turns a text into rows of floats, and each decoder layer reads these between
// its attention and its feed-forward (T5).
//
// In a sequence the rows of the source come first, then the tokens of the answer. A layer has one cache of keys and
// values: at the positions of the source it has those of cross-attention, computed once per row; at later positions
// those of the answer's tokens. So pages, forks and saved sequences need nothing special. No cached row of a source
// depends on another one: a source can be split into runs anywhere. model_graph.c says which graph computes what.
#include <math.h>
#include "model/model_impl.h"
#include "model/stored.h"

// An answer begins with BOS unless the file names another token.
static int load_start(loader *l) {
  static const char bos[] = "tokenizer.ggml.bos_token_id";
  uint32_t start;
  if (has_key(l, "decoder_start_token_id") || !gguf_find(l->f, bos))
    return key_count(l, "decoder_start_token_id", 0, INT32_MAX, &l->m->starts);
  if (gguf_u32(l->f, bos, &start, l->err)) return -1;
  l->m->starts = (int)min_i64(start, INT32_MAX);
  return 0;
}

// block_count is that of the encoder. Encoder and decoder together have at most as many layers as a model can have.
int source_keys(loader *l) {
  enum { MOST = MODEL_MAX_LAYERS / 2 };
  model *m = l->m;
  if (key_count(l, "block_count", 1, MOST, &m->n_encoder) ||
      key_count_or(l, "decoder_block_count", (uint32_t)m->n_encoder, 1, MOST, &m->n_layer))
    return -1;
  m->n_block = m->n_layer;
  return load_start(l);
}

int source_load_ends(loader *l) {
  const model *m = l->m;
  if (m->starts >= m->n_vocab)
    return gguf_fail(l->f, key(l, "decoder_start_token_id"), l->err, "%d is outside the vocabulary of %d", m->starts,
                     m->n_vocab);
  return want_norm(l, NULL, W_ENC_OUTPUT_NORM);
}

// --- self-attention of a decoder -------------------------------------------------------------------------------------

static int decoder_weights(loader *l, layer *y) {
  return heads_weights(l, y) || want_matrix(l, y, W_ATTN_O, (int64_t)y->n_head * y->v_dim, l->m->n_embd, 0) ||
             distances_table(l, y, W_DEC_ATTN_REL_B) || kv_load(l, y, KV_KEYS) || kv_load(l, y, KV_VALUES)
           ? -1
           : 0;
}

// {T, heads, n}, as another product reads it
static tensor *heads_of(build *b, const layer *y, enum tensor_id id, tensor *x, int heads, int n) {
  return t_reshape(b->g, read_in_parts(b->g, linear(b, y, id, x)), DIMS(b->T, n_(b, heads), n_(b, n)));
}

static tensor *queries(build *b, const layer *y, enum tensor_id id, tensor *x) {
  tensor *q = heads_of(b, y, id, x, y->n_head, y->head_dim);
  return kv_turned(b, t_scale(b->g, q, b->m->attention_scale), y->head_dim);
}

typedef struct made { enum tensor_id k, v; } made;
static void keep_both(build *b, const layer *y, made by, tensor *x) {
  struct kept *kept = &b->kept[y->index];
  kept->K = kv_store(b, y, KV_KEYS, kv_turned(b, heads_of(b, y, by.k, x, y->n_kv, y->head_dim), y->head_dim));
  kept->V =
    kv_store(b, y, KV_VALUES, t_reshape(b->g, linear(b, y, by.v, x), DIMS(b->T, n_(b, y->n_kv), n_(b, y->v_dim))));
}

// For each token: whether a position belongs to its source, {T, 1, 1, 1, seen}. Timed kernels have no source; then the
// first position counts, so that no sum is empty.
static tensor *in_source(build *b, const layer *y) {
  tensor *n = t_op2(b->g, OP_MAX, b->source, n_(b, 1));
  n = t_reshape(b->g, n, DIMS(b->T, n_(b, 1), n_(b, 1), n_(b, 1), n_(b, 1)));
  return t_op2(b->g, OP_CMPLT, kv_seen_at(b, y), n);
}

static tensor *decoder_attention(build *b, const layer *y, tensor *x) {
  graph *g = b->g;
  tensor *q = queries(b, y, W_ATTN_Q, x);
  keep_both(b, y, (made){W_ATTN_K, W_ATTN_V}, x);
  const struct kept *kept = &b->kept[y->index];
  tensor *s = scores(b, y, q, kept->K), *before = t_sub(g, own_at(b), kv_seen_at(b, y));
  s = by_range(b, y, s, &(ranges){.away = before, .none = W_DEC_ATTN_REL_B});
  s = t_where(g, in_source(b, y), t_float(g, -INFINITY), s);
  return linear(b, y, W_ATTN_O, attend(b, y, s, kept->V));
}

const part part_t5_decoder = {decoder_weights, decoder_attention};

// --- attention to the source -----------------------------------------------------------------------------------------

// Some files still have a table of distances here, from early models; no model of this kind reads it.
static int cross_weights(loader *l, layer *y) {
  int64_t d = l->m->n_embd, q = (int64_t)y->n_head * y->head_dim, k = (int64_t)y->n_kv * y->head_dim,
          v = (int64_t)y->n_kv * y->v_dim;
  int failed = want_matrix(l, y, W_CROSS_ATTN_REL_B, y->n_head, l->m->n_near, WANT_OPTIONAL);
  y->w[W_CROSS_ATTN_REL_B] = (tensor_ref){0};            // ignored
  return failed || want_matrix(l, y, W_CROSS_ATTN_Q, d, q, 0) || want_matrix(l, y, W_CROSS_ATTN_K, d, k, 0) ||
             want_matrix(l, y, W_CROSS_ATTN_V, d, v, 0) ||
             want_matrix(l, y, W_CROSS_ATTN_O, (int64_t)y->n_head * y->v_dim, d, 0)
           ? -1
           : 0;
}

static tensor *cross_attention(build *b, const layer *y, tensor *x) {
  graph *g = b->g;
  const struct kept *kept = &b->kept[y->index];
  tensor *s = scores(b, y, queries(b, y, W_CROSS_ATTN_Q, x), kept->K);
  s = t_where(g, in_source(b, y), s, t_float(g, -INFINITY));
  return linear(b, y, W_CROSS_ATTN_O, attend(b, y, s, kept->V));
}

const part part_cross_attention = {cross_weights, cross_attention};

// --- the source ------------------------------------------------------------------------------------------------------

tensor *source_through(build *b, tensor *x) {
  const model *m = b->m;
  for (int i = 0; i < m->n_encoder; i++) x = through(b, &m->layers[m->n_layer + i], x);
  return x;
}

void source_keep(build *b) {
  for (int i = 0; i < b->m->n_layer; i++)
    keep_both(b, &b->m->layers[i], (made){W_CROSS_ATTN_K, W_CROSS_ATTN_V}, b->floats);
}
