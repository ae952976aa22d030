// Reports keys of the architecture that loading did not use. Each key describes the model, and ignoring it may give
// wrong answers. So such a file is an error, unless the key is in the table below with the reason why it has no effect.
//
// There is no list of used keys: key() of model_keys.c records each request, as want() does for tensors.
#include <string.h>
#include "model/model_impl.h"

// --- conditions under which a key's value has no effect in this file -------------------------------------------------

static bool value_as_number(const gguf_value *v, double *out) {
  switch (v->type) {
  case GGUF_BOOL: *out = v->b; return true;
  case GGUF_FLOAT32: case GGUF_FLOAT64: *out = v->f; return true;
  case GGUF_INT8: case GGUF_INT16: case GGUF_INT32: case GGUF_INT64: *out = (double)v->i; return true;
  case GGUF_UINT8: case GGUF_UINT16: case GGUF_UINT32: case GGUF_UINT64: *out = (double)v->u; return true;
  default: return false;
  }
}

static bool all_are(const gguf_value *v, double x) {
  double n;
  if (v->type != GGUF_ARRAY) return value_as_number(v, &n) && n == x;
  if (v->elem == GGUF_STRING) return false;
  for (size_t i = 0; i < v->a.n; i++) {
    gguf_value e = gguf_elem(v, i);
    if (!value_as_number(&e, &n) || n != x) return false;
  }
  return true;
}

static bool always(loader *l, const gguf_value *v) { (void)l; (void)v; return true; }
static bool if_zero(loader *l, const gguf_value *v) { (void)l; return all_are(v, 0); }
static bool if_one(loader *l, const gguf_value *v) { (void)l; return all_are(v, 1); }
static bool if_no_experts(loader *l, const gguf_value *v) {
  (void)v;
  for (int i = 0; i < l->m->n_layer; i++) if (l->m->layers[i].moe.n) return false;
  return true;
}
static bool if_nothing_turns(loader *l, const gguf_value *v) { (void)v; return l->m->arch->flags & ARCH_POSITIONS; }
static bool if_not_yarn(loader *l, const gguf_value *v) { (void)v; return l->m->rope[ROPE_GLOBAL].ramp == 0; }
static bool if_head_dim(loader *l, const gguf_value *v) { return all_are(v, l->m->layers[0].head_dim); }
static bool if_v_dim(loader *l, const gguf_value *v) { return all_are(v, l->m->layers[0].v_dim); }
static bool if_rope_dim(loader *l, const gguf_value *v) { return all_are(v, l->m->rope[ROPE_GLOBAL].dim); }
static bool if_parallel(loader *l, const gguf_value *v) { return all_are(v, l->m->parallel); }
static bool if_behind_all(loader *l, const gguf_value *v) {
  double n;
  return v->type != GGUF_ARRAY && value_as_number(v, &n) && (n == 0 || n >= l->m->n_ctx_train);
}

// --- the table -------------------------------------------------------------------------------------------------------

// A name that ends in '*' matches all names with that prefix. A name may have several rows; one match is enough.
typedef struct harmless { const char *name; bool (*when)(loader *l, const gguf_value *v); const char *why; } harmless;
static const harmless table[] = {
  {"vocab_size", always, "the embedding has a row for each token"},
  {"tensor_data_layout", always, "a converter's note about the order of rows"},
  {"embedding_length_out", always, "the length of a vector of a whole text"},
  {"dense_*", always, "what follows a vector of a whole text"},
  {"classifier.*", always, "of a classifier of whole texts"},
  {"deepstack_mapping", always, "where images enter"},
  {"vision.*", always, "of the part for images"},
  {"audio.*", always, "of the part for sound"},
  {"mm.*", always, "of the parts for images and sound"},
  {"attention.causal", if_one, "each position sees the ones before it"},
  {"attention.layer_norm_epsilon", always, "no norm here subtracts the mean"},
  {"attention.layer_norm_rms_epsilon", always, "all norms here subtract the mean"},
  {"attention.sliding_window", if_behind_all, "the window is as long as the context"},
  {"attention.sliding_window_pattern", always, "there is no window"},
  {"attention.key_length_swa", if_head_dim, "heads are of one size"},
  {"attention.value_length_swa", if_v_dim, "heads are of one size"},
  {"attention.max_alibi_bias", if_zero, "no bias of scores"},
  {"attention.clamp_kqv", if_zero, "no limit of queries, keys and values"},
  {"attention.output_scale", if_one, "a factor of 1"},
  {"attention.value_scale", if_one, "a factor of 1"},
  {"attention.shared_kv_layers", if_zero, "each layer has keys and values of its own"},
  {"attention.temperature_scale", if_zero, "queries do not grow"},
  {"attention.temperature_length", always, "queries do not grow"},
  {"attention.indexer.types", if_one, "every layer has an indexer"},
  {"attention.q_lora_rank", if_zero, "queries are one product"},
  {"rope.*", if_nothing_turns, "positions are learned"},
  {"rope.dimension_count_swa", if_rope_dim, "all layers rotate as many elements"},
  {"rope.dimension_sections", if_zero, "no sections"},
  {"rope.scaling.finetuned", always, "how the model came to its context"},
  {"rope.scaling.alpha", if_zero, "no such scaling"},
  {"rope.scaling.yarn_*", if_not_yarn, "no YaRN"},
  {"use_parallel_residual", if_parallel, "as files of this kind are"},
  {"router_logit_softcapping", if_zero, "no limit of the router"},
  {"swin_norm", if_zero, "norms are where they usually are"},
  {"swiglu_clamp_*", if_zero, "no limit of the feed-forward"},
  {"embedding_length_per_layer_input", if_zero, "layers have no embeddings of their own"},
  {"nextn_predict_layers", if_zero, "no blocks for further tokens"},
  {"full_attention_interval", if_one, "all layers are alike"},
  {"leading_dense_block_count", if_no_experts, "no experts"},
  {"leading_dense_block_count", if_zero, "all layers are alike"},
  {"interleave_moe_layer_step", if_no_experts, "no experts"},
  {"interleave_moe_layer_step", if_one, "all layers are alike"},
  {"moe_*", if_no_experts, "no experts"},
  {"moe_every_n_layers", if_one, "all layers are alike"},
  {"moe_latent_size", if_zero, "experts read the stream as it is"},
  {"expert_*", if_no_experts, "no experts"},
  {"expert_chunk_feed_forward_length", if_zero, "no experts in chunks"},
  {"expert_group_scale", if_one, "a factor of 1"},
};

static bool is_named(const char *name, const char *pattern) {
  size_t n = strlen(pattern);
  return pattern[n - 1] == '*' ? !strncmp(name, pattern, n - 1) : !strcmp(name, pattern);
}

static const char *why_harmless(loader *l, const char *name, const gguf_value *v) {
  for (size_t i = 0; i < COUNT(table); i++)
    if (is_named(name, table[i].name) && table[i].when(l, v)) return table[i].why;
  return NULL;
}

static int refuse_key(loader *l, const gguf_kv *kv) {
  str value = {0};
  gguf_value_print(&value, &kv->value, 8);
  gguf_fail(l->f, kv->key, l->err, "%s changes what this model computes and is not supported", str_c(&value));
  str_free(&value);
  return -1;
}

int check_keys(loader *l) {
  size_t prefix = strlen(l->m->arch->name);
  const gguf_kv *first = NULL;
  for (size_t i = 0; i < gguf_n_kv(l->f); i++) {
    const gguf_kv *kv = gguf_kv_at(l->f, i);
    if (l->uses[i] || strncmp(kv->key, l->m->arch->name, prefix) || kv->key[prefix] != '.') continue;
    const char *why = why_harmless(l, kv->key + prefix + 1, &kv->value);
    if (!why && !first) first = kv;
    l->uses[i] = why ? why : MODEL_KEY_REFUSED;
  }
  return first ? refuse_key(l, first) : 0;
}
