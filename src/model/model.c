// From a validated GGUF file to a checked model description: see model.h. Keys and tensors are looked at here and in the `load` functions
// of the parts, once; what passes is consistent.
#include <stdlib.h>
#include <string.h>
#include "model/model_impl.h"

static const char *const names[] = {
  [W_NONE] = "",
#define T(id, name) [W_##id] = name,
  TENSORS(T)
#undef T
};

// The tensor of this name must be there (unless optional), with this shape and a type that has an expression.
static int check(loader *l, const char *name, const int64_t ne[3], bool optional, int *out) {
  const gguf_tensor *t = gguf_tensor_find(l->f, name);
  if (!t) return optional ? 0 : gguf_fail(l->f, NULL, l->err, "tensor '%s' is missing", name);
  if (t->ne[0] != ne[0] || t->ne[1] != ne[1] || t->ne[2] != ne[2] || t->ne[3] != 1) {
    char third[32] = "";
    if (ne[2] != 1) snprintf(third, sizeof third, ", %lld", (long long)ne[2]);
    return gguf_fail(l->f, NULL, l->err, "tensor '%s' has shape {%lld, %lld, %lld, %lld}, expected {%lld, %lld%s}", name, (long long)t->ne[0],
                     (long long)t->ne[1], (long long)t->ne[2], (long long)t->ne[3], (long long)ne[0], (long long)ne[1], third);
  }
  if (!t->format->computes) return gguf_fail(l->f, NULL, l->err, "tensor '%s' has type %s, which cannot be computed with yet", name, t->format->name);
  *out = (int)gguf_tensor_index(l->f, t) + 1;
  return 0;
}

int want(loader *l, layer *y, enum tensor_id id, int64_t ne0, int64_t ne1, int64_t ne2, unsigned flags) {
  char stem[80], full[96];
  tensor_ref *r = y ? &y->w[id] : &l->m->w[id];
  if (y) snprintf(stem, sizeof stem, "blk.%d.%s", y->index, names[id]);
  else snprintf(stem, sizeof stem, "%s", names[id]);
  snprintf(full, sizeof full, "%s.weight", stem);
  if (check(l, full, (int64_t[]){ne0, ne1, ne2}, flags & WANT_OPTIONAL, &r->weight)) return -1;
  snprintf(full, sizeof full, "%s.bias", stem);
  bool vector = ne1 == 1 && ne2 == 1;
  if (check(l, full, vector ? (int64_t[]){ne0, 1, 1} : (int64_t[]){ne1, ne2, 1}, !(flags & WANT_BIAS), &r->bias)) return -1;
  snprintf(full, sizeof full, "%s.scale", stem);
  return check(l, full, (int64_t[]){ne2, 1, 1}, true, &r->scale);
}

int state(loader *l, layer *y, enum dtype dt, int64_t per_position, int64_t fixed) {
  model *m = l->m;
  if (y->state < 0) y->state = (int)m->states.n;
  if (!per_position) m->recurrent = true;
  vec_push(&m->states, ((state_kind){dt, per_position, fixed}));
  return (int)m->states.n - 1;
}

static int load_keys(loader *l) {
  model *m = l->m;
  return key_count(l, "block_count", 1, MODEL_MAX_LAYERS, &m->n_layer) || key_count(l, "embedding_length", 1, 1 << 20, &m->n_embd) ||
         key_count_or(l, "context_length", 2048, 1, 1u << 30, &m->n_ctx_train) ||
         key_number(l, "attention.layer_norm_rms_epsilon", 1e-12, 1, &m->eps) ? -1 : 0;
}

// The vocabulary has as many tokens as the embedding has rows.
static int load_ends(loader *l) {
  model *m = l->m;
  const gguf_tensor *e = gguf_tensor_find(l->f, "token_embd.weight");
  if (!e) return gguf_fail(l->f, NULL, l->err, "tensor 'token_embd.weight' is missing");
  if (e->ne[1] > INT32_MAX) return gguf_fail(l->f, NULL, l->err, "tensor 'token_embd.weight' has %lld rows", (long long)e->ne[1]);
  m->n_vocab = (int)e->ne[1];
  const gguf_value *tokens = gguf_find(l->f, "tokenizer.ggml.tokens");
  if (tokens && tokens->type == GGUF_ARRAY && tokens->a.n != (size_t)m->n_vocab)
    return gguf_fail(l->f, "tokenizer.ggml.tokens", l->err, "%zu tokens, but tensor 'token_embd.weight' has %d rows", tokens->a.n, m->n_vocab);
  return want_matrix(l, NULL, W_TOKEN_EMBD, m->n_embd, m->n_vocab, 0) || want_matrix(l, NULL, W_OUTPUT, m->n_embd, m->n_vocab, WANT_OPTIONAL) ||
         want_vector(l, NULL, W_OUTPUT_NORM, m->n_embd, 0) ? -1 : 0;
}

// What each layer is, before its parts look at their tensors: numbers of heads may differ, sizes of heads may not.
static int describe_layers(loader *l) {
  model *m = l->m;
  uint32_t head[MODEL_MAX_LAYERS], kv[MODEL_MAX_LAYERS], ff[MODEL_MAX_LAYERS] = {0};
  if (key_counts(l, "attention.head_count", 0, 1 << 14, head)) return -1;
  memcpy(kv, head, sizeof kv);
  if (has_key(l, "attention.head_count_kv") && key_counts(l, "attention.head_count_kv", 0, 1 << 14, kv)) return -1;
  if (has_key(l, "feed_forward_length") && key_counts(l, "feed_forward_length", 0, 1 << 24, ff)) return -1;
  uint32_t most = 1;
  for (int i = 0; i < m->n_layer; i++) most = head[i] > most ? head[i] : most;
  if (!has_key(l, "attention.key_length") && (uint32_t)m->n_embd % most)
    return gguf_fail(l->f, key(l, "attention.head_count"), l->err, "%u does not divide embedding_length = %d", most, m->n_embd);
  int head_dim, v_dim;
  if (key_count_or(l, "attention.key_length", (uint32_t)m->n_embd / most, 2, 1 << 14, &head_dim) ||
      key_count_or(l, "attention.value_length", (uint32_t)head_dim, 1, 1 << 14, &v_dim)) return -1;
  m->layers = xcalloc((size_t)m->n_layer, sizeof *m->layers);
  for (int i = 0; i < m->n_layer; i++) {
    layer *y = &m->layers[i];
    *y = (layer){.index = i, .mixer = &part_attention, .ff = &part_dense, .mixer_norm = W_ATTN_NORM, .ff_norm = W_FFN_NORM, .n_head = (int)head[i],
                 .n_kv = (int)kv[i], .head_dim = head_dim, .v_dim = v_dim, .n_ff = (int)ff[i], .state = -1};
    if (m->arch->layer && m->arch->layer(l, y)) return -1;
  }
  return rope_load(l, head_dim);
}

static int load_layer(loader *l, layer *y) {
  int64_t d = l->m->n_embd;
  return (y->mixer && (want_vector(l, y, y->mixer_norm, d, 0) || y->mixer->load(l, y))) ||
         (y->ff && (want_vector(l, y, y->ff_norm, d, 0) || y->ff->load(l, y))) ? -1 : 0;
}

static int load(loader *l) {
  gguf_string a;
  char text[96];
  if (gguf_str(l->f, "general.architecture", &a, l->err)) return -1;
  l->m->arch = arch_find(a.at, a.n);
  if (!l->m->arch) {
    str known = {0};
    for (size_t i = 0; arch_at(i); i++) str_addf(&known, "%s%s", i ? ", " : "", arch_at(i)->name);
    gguf_fail(l->f, "general.architecture", l->err, "'%s' is not known (known: %s)", gguf_quote(text, sizeof text, a.at, a.n), str_c(&known));
    str_free(&known);
    return -1;
  }
  if (load_keys(l) || describe_layers(l) || load_ends(l)) return -1;
  for (int i = 0; i < l->m->n_layer; i++) if (load_layer(l, &l->m->layers[i])) return -1;
  return 0;
}

int model_open(const gguf *file, model **out, error *err) {
  model *m = xcalloc(1, sizeof *m);
  m->file = file;
  loader l = {.f = file, .m = m, .err = err};
  if (load(&l)) { model_close(m); return -1; }
  *out = m;
  return 0;
}

void model_close(model *m) {
  if (!m) return;
  free(m->layers);
  vec_free(&m->states);
  free(m);
}

int model_n_layer(const model *m) { return m->n_layer; }
int model_n_vocab(const model *m) { return m->n_vocab; }
int model_n_ctx_train(const model *m) { return m->n_ctx_train; }
int model_n_states(const model *m) { return (int)m->states.n; }
bool model_is_recurrent(const model *m) { return m->recurrent; }

// Limits of the keys (2^14 heads of 2^14 elements, 2^30 positions) keep the product within 64 bits.
uint64_t model_state_bytes(const model *m, int i, int64_t ctx) {
  const state_kind *k = &m->states.at[i];
  return (uint64_t)(k->per_position * ctx + k->fixed) * (uint64_t)dtype_size(k->dtype);
}
