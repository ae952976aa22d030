// Turns a validated GGUF file into a checked model description: see model.h. Keys and tensors are read once, here and
// in the `load` functions of the parts; a description that passes is consistent.
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/attempt.h"
#include "model/model_impl.h"

static const char *const names[] = {
  [W_NONE] = "",
#define T(id, name) [W_##id] = name,
  TENSORS(T)
#undef T
};

// A shape that does not fit: the tensor, the requested shape, and a bit mask of the wrong axes.
typedef struct misfit { const char *name; const int64_t *ne; unsigned wrong; } misfit;

static bool size_differs(const misfit *of, const int64_t ne[3]) {
  for (int i = 0; i < 3; i++) if (of->wrong >> i & 1 && of->ne[i] != ne[i]) return true;
  return false;
}

// Whether the requested shape depends on this key: with another number for the key, another size is requested. Several
// numbers are tried, since many are inconsistent with the file's other keys.
static bool sets_shape(const loader *l, const gguf_kv *kv, const misfit *of) {
  uint32_t v = 1;
  if (kv->value.type != GGUF_ARRAY && gguf_u32(l->f, kv->key, &v, NULL)) return false;
  const int64_t more[] = {v, -(int64_t)(v / 2), 1, -1, 2};
  bool found = false;
  for (size_t i = 0; i < COUNT(more) && !found; i++) {
    trial t = {.key = kv->key, .name = of->name, .more = more[i]};
    loader other = {.f = l->f, .m = xcalloc(1, sizeof *l->m), .trial = &t, .all = l->all};
    other.claimed = xcalloc(gguf_n_tensors(l->f) + 1, sizeof *other.claimed);
    other.uses = xcalloc(gguf_n_kv(l->f) + 1, sizeof *other.uses);
    other.m->file = l->f;
    l->all(&other);
    found = t.asked && size_differs(of, t.ne);
    model_close(other.m);
    free(other.claimed);
    free(other.uses);
  }
  return found;
}

// The keys that a shape comes from, for a message. They are found by trying, which is always correct, unlike a list.
static void keys_behind(const loader *l, const misfit *of, str *out) {
  size_t prefix = strlen(l->m->arch->name);
  for (size_t i = 0; i < gguf_n_kv(l->f) && l->err; i++) {
    const gguf_kv *kv = gguf_kv_at(l->f, i);
    if (!l->uses[i] || strncmp(kv->key, l->m->arch->name, prefix) || kv->value.type == GGUF_STRING ||
        !sets_shape(l, kv, of))
      continue;
    str_addf(out, "%s%s = ", out->n ? ", " : "", kv->key);
    gguf_value_print(out, &kv->value, 4);
  }
}

// Checks that the tensor exists (unless optional), with this shape and a type that has an expression.
static int check_tensor(loader *l, const char *name, const int64_t ne[3], unsigned flags, int *out) {
  const gguf_tensor *t = gguf_tensor_find(l->f, name);
  if (!t) return flags & WANT_OPTIONAL ? 0 : gguf_fail(l->f, NULL, l->err, "tensor '%s' is missing", name);
  if (l->trial && !strcmp(name, l->trial->name)) {
    memcpy(l->trial->ne, ne, sizeof l->trial->ne);
    l->trial->asked = true;
    return -1;
  }
  bool fourth = flags & WANT_FOURTH && t->ne[2] == 1, kernel = flags & WANT_KERNEL;
  bool last = kernel ? t->ne[3] != ne[2] : t->ne[2 + fourth] != ne[2] || t->ne[3 - fourth] != 1;
  int64_t second = kernel ? ne[0] : ne[1];
  bool differs = t->ne[1] != second || (kernel && t->ne[2] != ne[1] / ne[0]);
  unsigned wrong = (unsigned)(t->ne[0] != ne[0]) | (unsigned)differs << 1 | (unsigned)last << 2;
  if (wrong && !l->trial) {
    char third[48] = "";
    str why = {0};
    if (kernel) snprintf(third, sizeof third, ", %lld, %lld", (long long)(ne[1] / ne[0]), (long long)ne[2]);
    else if (ne[2] != 1) snprintf(third, sizeof third, ", %lld", (long long)ne[2]);
    keys_behind(l, &(misfit){name, ne, wrong}, &why);
    int r =
      gguf_fail(l->f, NULL, l->err, "tensor '%s' has shape {%lld, %lld, %lld, %lld}, expected {%lld, %lld%s}%s%s%s",
                name, (long long)t->ne[0], (long long)t->ne[1], (long long)t->ne[2], (long long)t->ne[3],
                (long long)ne[0], (long long)second, third, why.n ? " (" : "", str_c(&why), why.n ? ")" : "");
    str_free(&why);
    return r;
  }
  attempt_about("tensor", t->name);
  bool numbers = flags & WANT_INTEGERS && t->format->id == FORMAT_I32;
  if (!t->format->computes && !numbers)
    return gguf_fail(l->f, NULL, l->err, "tensor '%s' has type %s, which cannot be computed with yet", name,
                     t->format->name);
  *out = (int)gguf_tensor_index(l->f, t) + 1;
  l->claimed[*out - 1] = true;
  return 0;
}

int want_scale(loader *l, const layer *y, enum tensor_id id) {
  if (y->w[id].scale) return 0;
  return gguf_fail(l->f, NULL, l->err, "tensor 'blk.%d.%s.scale' is missing", y->block, names[id]);
}

int want_heads(loader *l, const layer *y) {
  if (y->n_head > 0) return 0;
  int n;
  if (!has_key(l, "attention.head_count")) return key_count(l, "attention.head_count", 1, 1 << 14, &n);
  return gguf_fail(l->f, l->key, l->err, "is 0 for layer %d, which has attention", y->index);
}

// The prefix of the names of layers' tensors, before "blk."
const char *before_blocks(const loader *l, const layer *y) {
  return l->prefix ? l->prefix : y->blocks ? y->blocks : l->m->arch->blocks ? l->m->arch->blocks : "";
}

int want(loader *l, layer *y, enum tensor_id id, int64_t ne0, int64_t ne1, int64_t ne2, unsigned flags) {
  char stem[80], full[96];
  tensor_ref *r = y ? &y->w[id] : &l->m->w[id];
  bool own = !strncmp(names[id], "mm.", 3) || !strncmp(names[id], "model.", 6) || !strncmp(names[id], "resampler.", 10);
  const char *before = own ? "" : y ? before_blocks(l, y) : l->prefix ? l->prefix : "";
  const char *number = strchr(names[id], '#');           // the layer's number, if the name has another form
  if (y && number)
    snprintf(stem, sizeof stem, "%s%.*s%d%s", before, (int)(number - names[id]), names[id], y->block, number + 1);
  else if (y && y->within)
    snprintf(stem, sizeof stem, "%sblk.%d.%d.%s", before, y->block, y->within - 1, names[id]);
  else if (y) snprintf(stem, sizeof stem, "%sblk.%d.%s", before, y->block, names[id]);
  else snprintf(stem, sizeof stem, "%s%s", before, names[id]);
  r->weight_is_vector = flags & WANT_VECTOR;
  if (flags & WANT_BARE) return check_tensor(l, stem, (int64_t[]){ne0, ne1, ne2}, flags, &r->weight);
  bool each = flags & WANT_EACH;
  r->bias_is_vector = flags & WANT_VECTOR || (ne2 == 1 && !each);
  snprintf(full, sizeof full, "%s.weight", stem);
  if (check_tensor(l, full, (int64_t[]){ne0, ne1, ne2}, flags, &r->weight)) return -1;
  snprintf(full, sizeof full, "%s.bias", stem);
  const int64_t of_rows[] = {ne1, ne2, 1}, of_each[] = {ne0, each ? ne1 : 1, 1};
  if (check_tensor(l, full, each || flags & WANT_VECTOR ? of_each : of_rows, flags & WANT_BIAS ? 0 : WANT_OPTIONAL,
                   &r->bias))
    return -1;
  snprintf(full, sizeof full, "%s.scale", stem);
  if (check_tensor(l, full, (int64_t[]){flags & WANT_SCALE ? ne0 : ne2, 1, 1}, flags & WANT_SCALE ? 0 : WANT_OPTIONAL,
                   &r->scale))
    return -1;
  for (int i = 0; l->m->arch->clipped && i < 4; i++) {
    snprintf(full, sizeof full, "%s.%s_%s", stem, i < 2 ? "input" : "output", i % 2 ? "max" : "min");
    if (check_tensor(l, full, (int64_t[]){1, 1, 1}, WANT_OPTIONAL, &r->clip[i])) return -1;
  }
  return 0;
}

// The group of pages of layers with this window; m->n_groups: none so far.
int window_group(const model *m, int window) {
  int g = 0;
  while (g < m->n_groups && m->group_window[g] != window) g++;
  return g;
}

static void add_group(model *m, int window) {
  int g = window_group(m, window);
  if (g < m->n_groups) return;
  die_if(g == MODEL_GROUPS, "layers have more than %d different windows", MODEL_GROUPS);
  m->group_window[m->n_groups++] = window;
}

int state(loader *l, layer *y, enum dtype dt, int64_t per_position, int64_t fixed) {
  model *m = l->m;
  if (y->state < 0) y->state = (int)m->states.n;
  if (!per_position) m->recurrent = true;
  vec_push(&m->states, ((state_kind){dt, per_position, fixed, y->window, y->every ? y->every : 1}));
  if (per_position) add_group(m, y->window);
  return (int)m->states.n - 1;
}

// A factor; 0 in a file means none, as does a missing key.
static int load_factor(loader *l, const char *rest, double none, double *out) {
  if (key_number_or(l, rest, 0, -1e6, 1e6, out)) return -1;
  if (*out == 0) *out = none;
  return 0;
}

// Pairs of a head in sections, one per coordinate of an image position. For text three sections have the same
// positions, and the fourth has none.
static int load_sections(loader *l) {
  model *m = l->m;
  uint32_t each[4];
  if (!(m->arch->flags & ARCH_SECTIONS)) return 0;
  if (key_count_or(l, "n_deepstack_layers", 0, 0, (uint32_t)m->n_layer, &m->n_deep)) return -1;
  if (!has_key(l, "rope.dimension_sections")) return 0;
  if (gguf_u32_each(l->f, l->key, COUNT(each), each, l->err)) return -1;
  if (each[3]) return gguf_fail(l->f, l->key, l->err, "a fourth section of %u, where a text has no position", each[3]);
  for (int i = 0; i < 3; i++)
    if (each[i] > 1 << 13) return gguf_fail(l->f, l->key, l->err, "a section of %u pairs", each[i]);
  m->neox |= each[0] && each[1];
  m->sections_mixed = m->arch->has & HAS_MIXED_SECTIONS;
  for (int i = 0; i < 3 && (each[1] || each[2]); i++) m->sections[i] = (int)each[i];
  return 0;
}

// How a vector is made of a whole text, and whether a position sees later ones.
static int load_pooling(loader *l) {
  model *m = l->m;
  m->pooling = POOLING_UNSAID;
  if (has_key(l, "pooling_type") && key_count(l, "pooling_type", 0, POOLING_COUNT - 1, &m->pooling)) return -1;
  if (!m->arch->encoder) return 0;
  bool causal;
  if (gguf_bool_opt(l->f, key(l, "attention.causal"), false, &causal, l->err)) return -1;
  return causal ? gguf_fail(l->f, l->key, l->err, "true, but a model of this kind sees each text as a whole") : 0;
}

// Files name the epsilon of a model's norms after their kind of norm. Some converters write only the other name.
static int load_epsilon(loader *l) {
  static const char *const called[] = {"attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon"};
  int own = l->m->arch->flags & ARCH_LAYER_NORM && !(l->m->arch->has & HAS_RMS_KEY);
  bool other = !has_key(l, called[own]) && has_key(l, called[!own]);
  return key_number(l, called[other ? !own : own], FLT_MIN, 1, &l->m->eps);
}

// The activation of a feed-forward if a file names one, by its own name or by that of its gated form.
static int load_activation(loader *l) {
  static const struct { const char *name; enum activation act;
  } known[] = {{"silu", ACT_SILU}, {"swish", ACT_SILU}, {"swiglu", ACT_SILU}, {"gelu", ACT_GELU}, {"geglu", ACT_GELU},
               {"gelu_new", ACT_GELU}, {"gelu_fast", ACT_GELU}, {"gelu_pytorch_tanh", ACT_GELU}, {"relu", ACT_RELU},
               {"reglu", ACT_RELU}, {"relu2", ACT_RELU2}, {"relu_squared", ACT_RELU2}};
  gguf_string name;
  char text[64];
  l->m->act = l->m->arch->act;
  if (!has_key(l, "hidden_activation")) return 0;
  if (gguf_str(l->f, l->key, &name, l->err)) return -1;
  for (size_t i = 0; i < COUNT(known); i++)
    if (equals_text(name, known[i].name)) { l->m->act = known[i].act; return 0; }
  return gguf_fail(l->f, l->key, l->err, "'%s' is not known (known: silu, gelu, relu, relu2)",
                   gguf_quote(text, sizeof text, name.at, name.n));
}

static int load_keys(loader *l) {
  model *m = l->m;
  if (key_count(l, "block_count", 1, MODEL_MAX_LAYERS, &m->n_layer) ||
      key_count(l, "embedding_length", 1, 1 << 20, &m->n_embd) ||
      key_count_or(l, "context_length", 2048, 1, 1u << 30, &m->n_ctx_train) ||
      load_epsilon(l) || load_activation(l) ||
      load_factor(l, "embedding_scale", 1, &m->embedding_scale) ||
      load_factor(l, "residual_scale", 1, &m->residual_scale) || load_factor(l, "logit_scale", 1, &m->logit_scale) ||
      load_factor(l, "attention.scale", 0, &m->attention_scale) ||
      load_factor(l, "attn_logit_softcapping", 0, &m->attention_cap) ||
      load_factor(l, "final_logit_softcapping", 0, &m->logit_cap))
    return -1;
  if (m->arch->flags & ARCH_LOGITS_DIVIDED) m->logit_scale = 1 / m->logit_scale;
  m->n_block = m->n_layer;
  m->value_scale = 1;
  m->output_norm = W_OUTPUT_NORM;
  m->parallel = m->arch->flags & ARCH_PARALLEL;
  m->neox = m->arch->flags & ARCH_NEOX;
  if (m->arch->flags & ARCH_POSITIONS || m->arch->encoder) m->n_ctx_max = m->n_ctx_train;
  return load_sections(l) || load_pooling(l) || (m->arch->keys && m->arch->keys(l)) ? -1 : 0;
}

int want_norm(loader *l, layer *y, enum tensor_id id) {
  char name[80];
  unsigned bare = 0;               // some files lack ".weight" here
  if (!id || l->m->arch->flags & ARCH_BARE_NORMS) return 0;
  if (y && !l->prefix && snprintf(name, sizeof name, "blk.%d.%s", y->block, names[id]) && gguf_tensor_find(l->f, name))
    bare = WANT_BARE;
  return want_vector(l, y, id, l->m->n_embd, bare | bias_if(l, HAS_NORM_BIAS));
}

// The vocabulary size is the number of rows of the embedding.
static int load_ends(loader *l) {
  model *m = l->m;
  const gguf_tensor *e = gguf_tensor_find(l->f, "token_embd.weight");
  if (!e) return gguf_fail(l->f, NULL, l->err, "tensor 'token_embd.weight' is missing");
  if (e->ne[1] > INT32_MAX)
    return gguf_fail(l->f, NULL, l->err, "tensor 'token_embd.weight' has %lld rows", (long long)e->ne[1]);
  m->n_vocab = (int)e->ne[1];
  const gguf_value *tokens = gguf_find(l->f, "tokenizer.ggml.tokens");
  if (tokens && tokens->type == GGUF_ARRAY && tokens->a.n != (size_t)m->n_vocab)
    return gguf_fail(l->f, "tokenizer.ggml.tokens", l->err, "%zu tokens, but tensor 'token_embd.weight' has %d rows",
                     tokens->a.n, m->n_vocab);
  if ((m->arch->encoder && encoder_load_ends(l)) || (m->n_encoder && source_load_ends(l)) || ranking_load(l)) return -1;
  return want_matrix(l, NULL, W_TOKEN_EMBD, m->n_embd, m->n_vocab, 0) ||
             want_matrix(l, NULL, W_OUTPUT, m->n_embd, m->n_vocab,
                         (m->arch->has & HAS_HEAD ? 0 : WANT_OPTIONAL) | bias_if(l, HAS_HEAD_BIAS)) ||
             want_norm(l, NULL, m->output_norm) ||
             (m->arch->flags & ARCH_EMBD_NORM && !m->arch->bare_embd_norm && want_norm(l, NULL, W_TOKEN_EMBD_NORM)) ||
             (m->arch->flags & ARCH_POSITIONS && want_matrix(l, NULL, W_POSITION_EMBD, m->n_embd, m->n_ctx_train, 0))
           ? -1
           : 0;
}

// The head sizes of keys and values. If the file does not say, the heads of the first layer with attention together are
// as long as the stream.
static int head_sizes(loader *l, const uint32_t heads[MODEL_MAX_LAYERS], int *head_dim, int *v_dim) {
  int n = l->m->n_embd, i = 0;
  while (i < l->m->n_block - 1 && !heads[i]) i++;
  uint32_t some = heads[i] ? heads[i] : 1, size = (uint32_t)n / some;
  if (!has_key(l, "attention.key_length") && (uint32_t)n % some)
    return gguf_fail(l->f, key(l, "attention.head_count"), l->err, "%u does not divide embedding_length = %d", some, n);
  return key_count_or(l, "attention.key_length", size, 2, 1 << 14, head_dim) ||
             key_count_or(l, "attention.value_length", size, 1, 1 << 14, v_dim)
           ? -1
           : 0;
}

// What each layer is, before its parts load their tensors: the number of heads may differ between layers, their size
// may not.
static int describe_layers(loader *l) {
  model *m = l->m;
  uint32_t head[MODEL_MAX_LAYERS] = {0}, kv[MODEL_MAX_LAYERS], ff[MODEL_MAX_LAYERS] = {0};
  if (has_key(l, "attention.head_count") && key_counts(l, "attention.head_count", 0, 1 << 14, head)) return -1;
  memcpy(kv, head, sizeof kv);
  if (has_key(l, "attention.head_count_kv") && key_counts(l, "attention.head_count_kv", 0, 1 << 14, kv)) return -1;
  if (has_key(l, "feed_forward_length") && key_counts(l, "feed_forward_length", 0, 1 << 24, ff)) return -1;
  int head_dim, v_dim;
  if (head_sizes(l, head, &head_dim, &v_dim)) return -1;
  unsigned f = m->arch->flags;
  m->layers = xcalloc((size_t)model_n_blocks(m), sizeof *m->layers);
  for (int i = 0; i < model_n_blocks(m); i++) {
    layer *y = &m->layers[i];
    bool behind = m->n_encoder && i >= m->n_layer;
    int of = i % m->n_block;
    *y = (layer){.index = i,
                 .block = behind ? i - m->n_layer : of,
                 .mixer = m->arch->encoder ? &part_encoder_attention : &part_attention,
                 .ff = &part_dense,
                 .n_head = (int)head[of],
                 .n_kv = (int)kv[of],
                 .head_dim = head_dim,
                 .v_dim = v_dim,
                 .n_ff = (int)ff[of],
                 .rope = f & ARCH_POSITIONS || m->no_rope ? ROPE_NONE : ROPE_GLOBAL,
                 .state = -1,
                 .kv_from = i,
                 .cut = -INFINITY};
    y->mixer_norm = f & ARCH_NO_PRE_NORMS ? W_NONE : W_ATTN_NORM;
    y->ff_norm = f & ARCH_NO_PRE_NORMS ? W_NONE : f & ARCH_FFN_NORM_LATE ? W_POST_ATTENTION_NORM : W_FFN_NORM;
    y->mixer_post = f & ARCH_POST_NORMS ? W_POST_ATTENTION_NORM : W_NONE;
    y->ff_post = f & ARCH_POST_NORMS ? W_POST_FFW_NORM : W_NONE;
    if (m->arch->layer && m->arch->layer(l, y)) return -1;
  }
  return rope_load(l, head_dim) || layers_slide(l) || layers_share(l) ? -1 : 0;
}

static int load_part(loader *l, layer *y, const part *p, enum tensor_id before, enum tensor_id after,
                     enum tensor_id last) {
  return p && (want_norm(l, y, before) || p->load(l, y) || want_norm(l, y, after) || want_norm(l, y, last)) ? -1 : 0;
}

static int load_layer(loader *l, layer *y) {
  if (load_part(l, y, y->mixer, y->mixer_norm, y->mixer_post, y->mixer_last) ||
      load_part(l, y, y->cross, W_CROSS_ATTN_NORM, W_NONE, W_NONE) ||
      load_part(l, y, y->ff, y->ff_norm, y->ff_post, y->ff_last) || want_norm(l, y, y->mixer_again))
    return -1;
  if (l->m->arch->has & HAS_PART_SCALES && (want_scale(l, y, W_ATTN_OUTPUT) || want_scale(l, y, W_FFN_DOWN))) return -1;
  // all layers have a factor, or none
  bool first = !y->index, scaled = l->m->layers[0].w[W_LAYER_OUTPUT_SCALE].weight;
  return l->m->arch->flags & ARCH_LAYER_SCALE && (first || scaled)
           ? want_vector(l, y, W_LAYER_OUTPUT_SCALE, 1, first && !l->m->arch->skips ? WANT_OPTIONAL : 0)
           : 0;
}

static bool same_parts(const model *m, const layer *a, const layer *b) {
  return a->mixer == b->mixer && a->ff == b->ff && a->mixer_norm == b->mixer_norm &&
         (!(m->arch->flags & ARCH_V_MAYBE_K || m->arch->has & HAS_SINKS_MAYBE) || !a->window == !b->window);
}

// Whether, by a list in the file, one of the layers uses the choice of another layer's indexer and has none itself.
static bool listed_apart(loader *l, const layer *a, const layer *b, int id) {
  bool of_pools = id >= W_INDEXER_COMPRESSOR_KV && id <= W_INDEXER_COMPRESSOR_NORM,
       of_indexer = (id >= W_INDEXER_K && id <= W_INDEXER_Q_B) || of_pools,
       differ = (a->kv_from == a->index) != (b->kv_from == b->index);
  return of_indexer && differ && has_key(l, "attention.indexer.types");
}

// Layers of the same parts have the same tensors: an optional tensor exists in all of them or in none. Scales of whole
// tensors depend on the tensor's type.
static int check_alike(loader *l) {
  const model *m = l->m;
  if (m->n_layer && m->layers[0].within) return 0;         // each has parts of its own
  for (int i = 1; i < model_n_blocks(m); i++) {
    const layer *y = &m->layers[i], *before = NULL;
    for (int j = i - 1; j >= 0 && !before; j--) if (same_parts(m, &m->layers[j], y)) before = &m->layers[j];
    for (int id = 0; before && id < W_NEXTN_EH_PROJ; id++) {        // later ids belong to a single block
      const tensor_ref *a = &before->w[id], *b = &y->w[id];
      bool weights = !a->weight != !b->weight;
      if ((!weights && !a->bias == !b->bias) || listed_apart(l, before, y, id)) continue;
      bool first = weights ? a->weight : a->bias;              // only one of the two has it
      const layer *has = first ? before : y, *lacks = first ? y : before;
      return gguf_fail(l->f, NULL, l->err, "tensor '%sblk.%d.%s.%s' is missing, which layer %d has",
                       before_blocks(l, lacks), lacks->block, names[id], weights ? "weight" : "bias", has->block);
    }
  }
  return 0;
}

// Tensors that no part claimed mean that the model computes something that this program does not know: an answer
// without them would be wrong. Scales of activations are exempt, since activations are quantised here.
static int check_claimed(loader *l) {
  for (size_t i = 0; i < gguf_n_tensors(l->f); i++) {
    const char *name = gguf_tensor_at(l->f, i)->name, *last = strrchr(name, '.');
    bool others = l->m->projector && !projector_has_tensor(l->m->projector, name);
    if (!l->claimed[i] && !others && !(last && !strcmp(last, ".input_scale")))
      return gguf_fail(l->f, NULL, l->err, "tensor '%s' is not one that %s is known to have", name,
                       l->m->projector ? l->m->projector->name : l->m->arch->name);
  }
  return 0;
}

// A message cannot hold all names: it shows those with the same beginning.
static int unknown_arch(loader *l, gguf_string a) {
  char text[96];
  str alike = {0};
  size_t n = 0;
  for (; arch_at(n); n++)
    if (a.n >= 3 && !strncmp(arch_at(n)->name, a.at, 3))
      str_addf(&alike, "%s%s", alike.n ? ", " : "; alike: ", arch_at(n)->name);
  gguf_fail(l->f, "general.architecture", l->err, "'%s' is not known (%zu others are%s)",
            gguf_quote(text, sizeof text, a.at, a.n), n, str_c(&alike));
  str_free(&alike);
  return -1;
}

int load_layers(loader *l) {
  for (int i = 0; i < model_n_blocks(l->m); i++) if (load_layer(l, &l->m->layers[i])) return -1;
  return 0;
}

int check_all(loader *l) { return check_claimed(l) || check_keys(l) || check_alike(l) ? -1 : 0; }

static int load_all(loader *l) {
  gguf_string a;
  if (gguf_str(l->f, "general.architecture", &a, l->err)) return -1;
  l->m->arch = arch_find(a.at, a.n);
  if (!l->m->arch) return unknown_arch(l, a);
  if (load_keys(l) || describe_layers(l) || (l->m->arch->drafts ? draft_load_ends(l) : load_ends(l)) || load_layers(l))
    return -1;
  return mtp_load(l) || per_layer_load(l) || altup_load(l) || stacks_load(l) || hyper_load(l) ||
             residual_bank_load(l) || check_all(l)
           ? -1
           : 0;
}

typedef struct opening {
  int (*all)(loader *l);
  const gguf *file;
  model_kv kv;
  const char **uses;
  model *m;
  error *err;
} opening;

static void try_open(void *ctx) {
  opening *o = ctx;
  model *m = xcalloc(1, sizeof *m);
  m->file = o->file;
  m->kv = o->kv;
  loader l = {.f = o->file,
              .m = m,
              .err = o->err,
              .claimed = xcalloc(gguf_n_tensors(o->file) + 1, sizeof *l.claimed),
              .uses = o->uses,
              .all = o->all};
  int failed = o->all(&l);
  free(l.claimed);
  if (failed) model_close(m);
  else o->m = m;
}

int open_by(int (*all)(loader *l), const gguf *file, model_kv kv, const char **uses, model **out, error *err) {
  opening o = {.all = all, .file = file, .kv = kv, .uses = uses, .err = err};
  error why = {0};
  if (attempt(ATTEMPT_OWNS, try_open, &o, &why)) return error_set(err, "%s: %s", gguf_path(file), why.text);
  if (!o.m) return -1;
  *out = o.m;
  return 0;
}

int model_open(const gguf *file, model_kv kv, model **out, error *err) {
  const char **uses = xcalloc(gguf_n_kv(file) + 1, sizeof *uses);
  int status = open_by(load_all, file, kv, uses, out, err);
  free(uses);
  return status;
}

void model_key_uses(const gguf *file, const char **uses) {
  model *m = NULL;
  for (size_t i = 0; i < gguf_n_kv(file); i++) uses[i] = NULL;
  open_by(load_all, file, (model_kv){0}, uses, &m, NULL);
  model_close(m);
}

void model_close(model *m) {
  if (!m) return;
  adapters_free(m);
  control_free(m);
  model_close(m->draft);
  free(m->drafter.ids);
  free(m->layers);
  free(m->fits_bf16);
  vec_free(&m->states);
  free(m);
}

int model_n_layer(const model *m) { return m->n_layer; }
int model_n_blocks(const model *m) { return m->n_layer + m->mtp + m->n_encoder; }
int64_t model_attention_sums(const model *m) {
  int64_t most = 0;
  if (m->draft) most = model_attention_sums(m->draft);
  for (int i = 0; i < model_n_blocks(m); i++) {
    const layer *y = &m->layers[i];
    int v = y->mla.latent ? y->mla.latent : y->v_dim;
    most = max_i64(most, (int64_t)y->n_head * (v + 2));
  }
  return most;
}
int model_n_stream(const model *m) { return m->n_embd; }
int model_n_floats(const model *m) { return m->n_embd * (1 + m->n_deep); }
bool model_has_sections(const model *m) { return m->sections[1] || m->sections[2]; }
int model_n_vocab(const model *m) { return m->n_vocab; }
int model_n_ctx_train(const model *m) { return m->n_ctx_train; }
int model_n_ctx_max(const model *m) { return m->n_ctx_max; }
int model_variant(const model *m, int64_t n_ctx) {
  return indexer_chooses(m, n_ctx) | (m->w[W_ROPE_LONG].weight && n_ctx > m->n_ctx_rope) << 1;
}
bool model_is_encoder(const model *m) { return m->arch->encoder; }
bool model_denoises(const model *m) { return m->arch->denoises; }
bool model_kind_denoises(const char *name, size_t n) {
  const arch *a = arch_find(name, n);
  return a && a->denoises;
}
bool model_has_source(const model *m) { return m->arch->has_source; }
int32_t model_starts(const model *m) { return m->starts; }
int model_n_embd(const model *m) { return m->n_embd_out ? m->n_embd_out : m->n_embd; }
enum model_pooling model_pooling(const model *m) { return m->pooling; }
int model_n_states(const model *m) { return (int)m->states.n; }
int model_block(const model *m) { return m->block; }

// A complete block has been merged into the state at the beginning of the next one.
int model_back(const model *m, int first, int at) {
  int from = m->block ? at - at % m->block : 0, least = at - MODEL_BACK > from ? at - MODEL_BACK : from;
  return first > least ? first : least;
}

int64_t model_tokens_by_expert(const model *m, int64_t each) {
  int64_t most = 0;
  for (int i = 0; i < m->n_layer; i++) {
    const experts *e = &m->layers[i].moe;
    if (e->used) most = max_i64(most, (each * e->n + e->used - 1) / e->used);
  }
  return most;
}

int model_layer_block(const model *m, int i) { return m->layers[i].block; }

bool model_can_cut(const model *m, int at) {
  if (m->n_own || m->n_rows || m->hyper.n || m->bank_every || m->stacks.n || m->switcher.n || m->arch->skips ||
      m->n_layer > m->n_block || m->n_encoder)
    return false;
  for (int i = at; i < m->n_layer; i++) if (m->layers[i].kv_from < at) return false;
  return true;
}

int model_state_layer(const model *m, int i) {
  int of = 0;
  for (int y = 0; y < model_n_blocks(m); y++) if (m->layers[y].state >= 0 && m->layers[y].state <= i) of = y;
  return of;
}
bool model_is_recurrent(const model *m) { return m->recurrent; }
bool model_has_entries(const model *m) {
  for (size_t i = 0; i < m->states.n; i++) if (m->states.at[i].every > 1) return true;
  return false;
}

bool model_state_is_paged(const model *m, int i) { return m->states.at[i].per_position != 0; }
int model_n_groups(const model *m) { return m->n_groups; }
int model_group_window(const model *m, int g) { return m->group_window[g]; }
int model_state_group(const model *m, int i) { return window_group(m, m->states.at[i].window); }

// Limits of the keys (2^14 heads of 2^14 elements, 2^30 positions) keep the product within 64 bits.
uint64_t model_state_bytes(const model *m, int i, int64_t positions) {
  const state_kind *k = &m->states.at[i];
  int64_t rows = (positions + k->every - 1) / k->every;
  return (uint64_t)(k->per_position * rows + k->fixed) * (uint64_t)dtype_size(k->dtype);
}
