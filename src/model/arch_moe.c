// Rows of the table of architectures (arch.c) in which some or all layers of every model have experts, and the choice
// of those layers for all tables.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdio.h>
#include "model/arch_impl.h"

enum { STEP35 = ARCH_NEOX | ARCH_QK_NORM_MAYBE | ARCH_OUT_GATE | ARCH_SWA_PLAIN_ROPE };
enum { COHERE2MOE = ARCH_LAYER_NORM | ARCH_PARALLEL | ARCH_GLOBAL_FIRST | ARCH_GLOBAL_NO_ROPE | ARCH_DENSE_ROPE };

int experts_if_any(loader *l, layer *y) {
  int n;
  if (key_count_or(l, "expert_count", 0, 0, 1 << 20, &n)) return -1;
  if (n) { y->ff = &part_moe; y->moe.norm = true; }
  return 0;
}

int all_moe(loader *l, layer *y) {
  (void)l;
  y->ff = &part_moe;
  y->moe.norm = true;
  return 0;
}

// Layers have experts if the file has a router for them: no key says which.
int experts_if_routed(loader *l, layer *y) {
  char name[64];
  snprintf(name, sizeof name, "blk.%d.ffn_gate_inp.weight", y->block);
  if (gguf_tensor_find(l->f, name)) y->ff = &part_moe;
  return 0;
}

// The key counts leading dense layers. The extra block after the last layer (mtp.c) is decided by its own tensors.
int dense_first(loader *l, layer *y) {
  int dense;
  if (!has_key(l, "leading_dense_block_count") || y->index == l->m->n_layer) return experts_if_routed(l, y);
  if (key_count(l, "leading_dense_block_count", 0, MODEL_MAX_LAYERS, &dense)) return -1;
  if (y->index >= dense) y->ff = &part_moe;
  return 0;
}

int plain_moe(loader *l, layer *y) {
  (void)l;
  y->ff = &part_moe;
  return 0;
}

static int glm4moe(loader *l, layer *y) {
  y->moe.gating = GATING_SIGMOID;
  return dense_first(l, y);
}

static int gpt_oss(loader *l, layer *y) {
  y->moe.gating = GATING_SOFTMAX_CHOSEN;
  y->moe.clamped = true;
  return plain_moe(l, y);
}

static int deepseek2_layer(loader *l, layer *y) {
  y->mixer = &part_mla;
  return dense_first(l, y);
}

static int deepseek2(loader *l) { return mtp_find(l) || warmer(l) ? -1 : 0; }

// A token reads only the best positions before it, at most top_k: indexer.c.
static int sparse(loader *l) {
  return key_count(l, "attention.indexer.top_k", 1, 1u << 30, &l->m->top_k) || mtp_find(l) ? -1 : 0;
}

// A layer without an indexer uses the positions that the last indexer before it chose.
static int sparse_layer(loader *l, layer *y, bool own) {
  if (y->index && !own) y->kv_from = y[-1].kv_from;
  y->mixer = &part_mla;
  y->moe.gating = GATING_SIGMOID;
  return dense_first(l, y);
}

static int deepseek32_layer(loader *l, layer *y) {
  y->indexer.turns_halves = true;
  return sparse_layer(l, y, indexer_is_there(l, y));
}

// Newer files say which layers have indexers. Older files of the models with 2^20 positions have indexer tensors in all
// layers, but only those of the first two layers and of every fourth layer from the third on are used.
static int glm_dsa_layer(loader *l, layer *y) {
  bool own;
  if (has_key(l, "attention.indexer.types")) return indexer_is_own(l, y, &own) || sparse_layer(l, y, own) ? -1 : 0;
  bool few = l->m->n_ctx_train >= 1 << 20, meant = !few || y->index < 2 || y->index % 4 == 2;
  return sparse_layer(l, y, meant && indexer_is_there(l, y));
}

// Layers with a window have latent attention with sizes of their own; the others have indexers.
static int dots3note(loader *l) {
  has_key(l, "attention.indexer.types");               // counts as read: the layers without a window
  return key_count(l, "attention.sliding_window", 1, 1u << 30, &l->m->window) || sparse(l) ? -1 : 0;
}

static int dots3note_layer(loader *l, layer *y) {
  uint32_t near[MODEL_MAX_LAYERS] = {0};
  if (key_flags(l, "attention.sliding_window_pattern", near)) return -1;
  y->head_gates = true;
  y->moe.gating = GATING_SIGMOID;
  if (near[y->index]) y->mixer = &part_window_mla;
  else y->mixer = &part_mla;
  return dense_first(l, y);
}

int gated_limits(loader *l, layer *y) {
  experts *e = &y->moe;
  if (has_key(l, "swiglu_clamp_exp") && number_at(l, l->key, y->index, 0, 1e6, &e->limit)) return -1;
  return has_key(l, "swiglu_clamp_shexp") ? number_at(l, l->key, y->index, 0, 1e6, &e->shared_limit) : 0;
}

// The model has an indexer if the file says how many positions it chooses. A key says which layers have one; without it
// all have.
static int hy_v4(loader *l) {
  return hyper_keys(l) || (has_key(l, "attention.indexer.top_k") ? sparse(l) : mtp_find(l)) ? -1 : 0;
}

static int hy_v4_layer(loader *l, layer *y) {
  bool own = true;
  if (has_key(l, "attention.indexer.types") && indexer_is_own(l, y, &own)) return -1;
  y->indexer.turns_last = true;
  y->indexer.eps = l->m->eps;
  y->moe.limit_first = true;
  return gated_limits(l, y) || sparse_layer(l, y, own) ? -1 : 0;
}

// The number of positions per entry, for each layer. Files may have more numbers than layers.
static int compress_ratio(loader *l, int i, int *out) {
  const gguf_value *v = gguf_find(l->f, key(l, "attention.compress_ratios"));
  int n = l->m->n_layer;
  if (!v || v->type != GGUF_ARRAY || v->a.n < (size_t)n || (v->elem != GGUF_INT32 && v->elem != GGUF_UINT32))
    return gguf_fail(l->f, l->key, l->err, "is no array of %d integers", n);
  gguf_value e = gguf_elem(v, (size_t)i);
  int64_t ratio = v->elem == GGUF_INT32 ? e.i : (int64_t)e.u;
  if (ratio != 0 && ratio != 4 && ratio != 128)
    return gguf_fail(l->f, l->key, l->err, "%lld of layer %d is not known (known: 0, 4, 128)", (long long)ratio, i);
  *out = (int)ratio;
  return 0;
}

// Layers that read entries have their own rope base, with scaling. The other layers rotate without scaling.
static int deepseek4(loader *l) {
  model *m = l->m;
  m->base_key = "attention.compress_rope_freq_base";
  m->block_size = 4;                       // the indexer chooses among blocks of this many entries
  has_key(l, "attention.indexer.head_count");                  // counts as read: no layer may have chosen entries
  has_key(l, "attention.indexer.key_length");
  return hyper_keys(l) || key_number_or(l, "rope.freq_base", 10000, 1.001, 1e12, &m->base_swa) || mtp_find(l) ||
             key_count(l, "attention.sliding_window", 1, 1u << 30, &m->window) ||
             key_count(l, "attention.indexer.top_k", 1, 1u << 28, &m->top_k)
           ? -1
           : 0;
}

static int deepseek4_layer(loader *l, layer *y) {
  int by_token, n;
  // Multimodal models have a second bias of the experts' probabilities, used for images, in all layers. Text does not
  // use it.
  bool sees = y->index && l->m->layers[0].w[W_EXP_PROBS_B_VL].bias;
  if (key_count(l, "expert_count", 1, 1 << 20, &n) ||
      want_vector(l, y, W_EXP_PROBS_B_VL, n, WANT_OPTIONAL | (sees ? WANT_BIAS : 0)) ||
      key_count_or(l, "hash_layer_count", 0, 0, MODEL_MAX_LAYERS, &by_token) ||
      compress_ratio(l, y->index, &y->compressed.ratio) || gated_limits(l, y))
    return -1;
  if (!has_key(l, "swiglu_clamp_shexp")) y->moe.shared_limit = y->moe.limit;
  y->mixer = !y->compressed.ratio ? &part_near : y->compressed.ratio == 4 ? &part_sparse_entries : &part_entries;
  y->rope = y->compressed.ratio ? ROPE_GLOBAL : ROPE_SLIDING;
  y->window = l->m->window;
  y->n_kv = 1;
  y->v_dim = y->head_dim;
  y->ff = y->index < by_token ? &part_moe_by_token : &part_moe;
  y->moe.gating = GATING_SQRT_SOFTPLUS;
  y->moe.norm = y->moe.limit_first = true;
  return 0;
}

static int phimoe_layer(loader *l, layer *y) {
  y->moe.gating = GATING_NEAR;
  return plain_moe(l, y);
}

static int ernie_moe(loader *l, layer *y) {
  int dense, step;
  if (key_count_or(l, "leading_dense_block_count", 0, 0, MODEL_MAX_LAYERS, &dense) ||
      key_count_or(l, "interleave_moe_layer_step", 1, 1, MODEL_MAX_LAYERS, &step))
    return -1;
  y->moe.gating = GATING_SOFTMAX;
  y->moe.norm = true;
  if (y->index >= dense && (y->index + 1) % step == 0) y->ff = &part_moe;
  return 0;
}

static int step35(loader *l) {
  l->m->base_swa = 10000;
  l->m->half_turns = true;
  return mtp_find(l);
}

static int step35_layer(loader *l, layer *y) {
  experts *e = &y->moe;
  if (gated_limits(l, y)) return -1;
  y->head_gates = true;
  e->gating = GATING_SIGMOID;
  e->norm = true;                         // as in afmoe
  return dense_first(l, y);
}

static int mimo2(loader *l) {
  l->m->base_swa = 10000;
  return mtp_find(l) || key_number_or(l, "attention.value_scale", 1, -1e3, 1e3, &l->m->value_scale) ? -1 : 0;
}

static int mimo2_layer(loader *l, layer *y) {
  y->moe.gating = GATING_SIGMOID;
  y->moe.norm = true;
  return experts_if_routed(l, y);
}

// Chunks of 8192 positions and the values that belong to them have no keys. The model with 128 experts has no query
// norms.
static int llama4(loader *l) {
  model *m = l->m;
  int n, window;
  if (key_count(l, "expert_count", 1, 1 << 20, &n) ||
      key_count_or(l, "attention.sliding_window", 8192, 1, 1u << 30, &window))
    return -1;
  m->bare_qk_norm = n != 128;
  m->window = m->temperature_length = 8192;
  m->temperature = 0.1;
  m->temperature_from = 1;
  return 0;
}

static int llama4_layer(loader *l, layer *y) {
  int step;
  if (key_count(l, "interleave_moe_layer_step", 0, MODEL_MAX_LAYERS, &step)) return -1;
  if (!step || (y->index + 1) % step) return 0;
  y->ff = &part_moe;
  y->moe.gating = GATING_SIGMOID;
  y->moe.weighted_in = true;
  y->moe.shared = 1;
  return 0;
}

// Older files of this kind have none of these keys.
static int grok(loader *l) {
  model *m = l->m;
  int length;
  if (!has_key(l, "embedding_scale")) m->embedding_scale = 78.38367176906169;
  if (!has_key(l, "logit_scale")) m->logit_scale = 0.5773502691896257;
  if (!has_key(l, "attn_logit_softcapping")) m->attention_cap = 30;
  if (key_number_or(l, "attention.output_scale", 0.08838834764831845, 1e-6, 1e6, &m->attention_scale) ||
      key_count_or(l, "attention.temperature_length", 0, 0, 1u << 30, &length))
    return -1;
  if (length && length < m->n_ctx_train) m->n_ctx_max = length;         // scores grow beyond it
  return 0;
}

static int grok_layer(loader *l, layer *y) {
  char name[64];
  snprintf(name, sizeof name, "blk.%d.ffn_up.weight", y->block);
  y->ff = gguf_tensor_find(l->f, name) ? &part_dense_with_moe : &part_moe;
  snprintf(name, sizeof name, "blk.%d.layer_output_norm.weight", y->block);
  y->mixer_post = W_ATTN_OUTPUT_NORM;
  y->ff_post = gguf_tensor_find(l->f, name) ? W_LAYER_OUTPUT_NORM : W_POST_FFW_NORM;
  y->moe.gating = GATING_SOFTMAX;
  y->moe.norm = true;
  return 0;
}

static int dbrx_layer(loader *l, layer *y) {
  y->ff_norm = W_ATTN_OUTPUT_NORM;
  return all_moe(l, y);
}

// All released models divide the chosen weights by their sum, and transformers always does. Their configurations do not
// mention it, so converted files have no expert_weights_norm, for which llama.cpp assumes false.
static int afmoe_layer(loader *l, layer *y) {
  y->moe.gating = GATING_SIGMOID;
  y->moe.norm = true;
  return dense_first(l, y);
}

// Norms are RMS norms if the file has their epsilon.
static int cohere2moe(loader *l) {
  model *m = l->m;
  double eps;
  if (key_number_or(l, "attention.layer_norm_rms_epsilon", 0, 0, 1, &eps)) return -1;
  m->rms_norms = eps > 0;
  if (m->rms_norms) m->eps = eps;
  return mtp_find(l);
}

static int cohere2moe_layer(loader *l, layer *y) {
  y->moe.gating = GATING_SIGMOID;
  y->moe.averaged = true;
  return dense_first(l, y) || one_norm(l, y) ? -1 : 0;
}

static int arctic_layer(loader *l, layer *y) {
  (void)l;
  y->ff = &part_dense_and_early_moe;
  y->moe.gating = GATING_SOFTMAX;
  y->moe.norm = true;
  return 0;
}

// A layer is dense, or has experts if the file has a router for it.
static int mellum_layer(loader *l, layer *y) {
  y->moe.norm = true;
  return experts_if_routed(l, y);
}

static int sigmoid_moe_layer(loader *l, layer *y) {
  y->moe.gating = GATING_SIGMOID;
  y->moe.norm = true;
  return dense_first(l, y);
}

// Gates are per head or per element of a head; the tensor's size says which.
static int laguna_layer(loader *l, layer *y) {
  char name[64];
  snprintf(name, sizeof name, "blk.%d.attn_gate.weight", y->block);
  const gguf_tensor *gate = gguf_tensor_find(l->f, name);
  y->head_gates = gate && gate->ne[1] == y->n_head;
  y->moe.shared = 1;
  return sigmoid_moe_layer(l, y);
}

// A token reads only the best blocks of positions, at most top_k: indexer.c. A block never crosses a page of keys.
static int minimax_m3(loader *l) {
  model *m = l->m;
  if (!has_key(l, "attention.indexer.top_k")) return 0;
  has_key(l, "attention.indexer.head_count");                  // for layers with experts: a model may have none
  has_key(l, "attention.indexer.key_length");
  if (key_count(l, "attention.indexer.top_k", 1, 1u << 20, &m->top_k) ||
      key_count(l, "attention.indexer.block_size", 1, MODEL_PAGE, &m->block_size) ||
      key_count_or(l, "attention.indexer.local_blocks", 0, 0, (uint32_t)m->top_k, &m->local_blocks))
    return -1;
  return MODEL_PAGE % m->block_size
           ? gguf_fail(l->f, key(l, "attention.indexer.block_size"), l->err,
                       "%d does not divide a page of %d positions", m->block_size, MODEL_PAGE)
           : 0;
}

static int minimax_m3_layer(loader *l, layer *y) {
  y->moe.gating = GATING_SIGMOID;
  y->moe.clamped = true;
  return dense_first(l, y);
}

static int maple_layer(loader *l, layer *y) {
  y->moe.limit_first = true;
  return gated_limits(l, y) || all_moe(l, y) ? -1 : 0;
}

static int grovemoe_layer(loader *l, layer *y) {
  (void)l;
  y->ff = &part_moe_in_groups;
  y->moe.norm = true;
  return 0;
}

const arch arch_moe[] = {
  {.name = "deepseek2", .has = HAS_MTP, .keys = deepseek2, .layer = deepseek2_layer},
  {.name = "deepseek4",
   .yarn_bare = true,
   .flags = ARCH_SWA_PLAIN_ROPE,
   .has = HAS_HEAD | HAS_PROBS_BIAS,
   .keys = deepseek4,
   .layer = deepseek4_layer},
  {.name = "qwen2moe", .flags = ARCH_NEOX, .has = HAS_HEAD | HAS_QKV_BIAS | HAS_SHARED_GATE, .layer = plain_moe},
  {.name = "qwen3moe", .flags = ARCH_NEOX | ARCH_QK_NORM, .layer = all_moe},
  {.name = "glm4moe",
   .flags = ARCH_NEOX | ARCH_QK_NORM_MAYBE | ARCH_FFN_NORM_LATE | ARCH_SECTIONS,
   .has = HAS_QKV_BIAS_MAYBE | HAS_PROBS_BIAS | HAS_MTP,
   .keys = mtp_find,
   .layer = glm4moe},
  {.name = "gpt-oss",
   .yarn_exact = true,
   .flags = ARCH_NEOX | ARCH_SINKS | ARCH_FFN_NORM_LATE,
   .has = HAS_HEAD | HAS_QKV_BIAS | HAS_OUT_BIAS | HAS_EXPERT_BIAS,
   .period = 2,
   .layer = gpt_oss},
  {.name = "olmoe", .flags = ARCH_NEOX | ARCH_QK_NORM_ALL, .has = HAS_HEAD, .layer = plain_moe},
  {.name = "ernie4_5-moe", .layer = ernie_moe},
  {.name = "hunyuan-moe", .flags = ARCH_NEOX | ARCH_QK_NORM | ARCH_QK_NORM_LATE, .layer = all_moe},
  {.name = "dots1", .flags = ARCH_NEOX | ARCH_QK_NORM, .has = HAS_HEAD, .layer = dense_first},
  {.name = "deepseek", .layer = dense_first},
  {.name = "bailingmoe", .has = HAS_HEAD, .layer = dense_first},
  {.name = "bailingmoe2",
   .flags = ARCH_NEOX | ARCH_QK_NORM,
   .has = HAS_HEAD,
   .keys = mtp_find,
   .layer = dense_first},
  {.name = "exaone-moe",
   .flags = ARCH_NEOX | ARCH_QK_NORM | ARCH_GLOBAL_NO_ROPE,
   .has = HAS_HEAD,
   .period = 4,
   .keys = mtp_find,
   .layer = dense_first},
  {.name = "llama4", .flags = ARCH_CHUNKS | ARCH_GLOBAL_NO_ROPE, .period = 4, .keys = llama4, .layer = llama4_layer},
  {.name = "step35",
   .mtp_bare = true,
   .flags = STEP35,
   .has = HAS_HEAD | HAS_MTP,
   .period = PERIOD_LISTED,
   .keys = step35,
   .layer = step35_layer},
  {.name = "mimo2",
   .mtp_bare = true,
   .flags = ARCH_NEOX | ARCH_SINKS,
   .has = HAS_HEAD | HAS_SINKS_MAYBE | HAS_MTP,
   .period = PERIOD_LISTED,
   .keys = mimo2,
   .layer = mimo2_layer},
  {.name = "qwen3vlmoe",
   .flags = ARCH_NEOX | ARCH_QK_NORM | ARCH_SECTIONS,
   .has = HAS_MIXED_SECTIONS,
   .layer = all_moe},
  {.name = "minimax-m2", .flags = ARCH_NEOX | ARCH_QK_NORM_ALL, .has = HAS_HEAD | HAS_PROBS_BIAS, .layer = all_moe},
  {.name = "mistral4", .keys = deepseek2, .layer = deepseek2_layer},
  {.name = "afmoe",
   .flags = ARCH_NEOX | ARCH_QK_NORM | ARCH_OUT_GATE | ARCH_POST_NORMS | ARCH_GLOBAL_NO_ROPE,
   .has = HAS_PROBS_BIAS,
   .period = 4,
   .keys = gemma,
   .layer = afmoe_layer},
  {.name = "cohere2moe",
   .flags = COHERE2MOE,
   .has = HAS_MTP,
   .period = 4,
   .keys = cohere2moe,
   .layer = cohere2moe_layer},
  {.name = "smallthinker",
   .flags = ARCH_NEOX | ARCH_EARLY_ROUTER | ARCH_GLOBAL_FIRST | ARCH_GLOBAL_NO_ROPE,
   .act = ACT_RELU,
   .period = 4,
   .layer = all_moe},
  {.name = "dbrx", .flags = ARCH_NEOX | ARCH_LAYER_NORM, .has = HAS_HEAD, .keys = qkv_limits, .layer = dbrx_layer},
  {.name = "deepseek32", .has = HAS_MTP, .keys = sparse, .layer = deepseek32_layer},
  {.name = "glm-dsa", .has = HAS_MTP, .keys = sparse, .layer = glm_dsa_layer},
  {.name = "dots3note",
   .rotated_key_norm = true,
   .flags = ARCH_OUT_GATE,
   .has = HAS_PROBS_BIAS,
   .period = PERIOD_LISTED,
   .keys = dots3note,
   .layer = dots3note_layer},
  {.name = "grok", .flags = ARCH_NEOX, .act = ACT_GELU, .keys = grok, .layer = grok_layer},
  {.name = "phimoe",
   .flags = ARCH_NEOX | ARCH_LAYER_NORM,
   .has = HAS_RMS_KEY | HAS_HEAD | HAS_HEAD_BIAS | HAS_NORM_BIAS | HAS_QKV_BIAS | HAS_OUT_BIAS,
   .period = PERIOD_ALL,
   .layer = phimoe_layer},
  {.name = "mellum",
   .flags = ARCH_NEOX | ARCH_QK_NORM | ARCH_SWA_PLAIN_ROPE,
   .has = HAS_HEAD,
   .period = 4,
   .layer = mellum_layer},
  {.name = "hy_v3",
   .flags = ARCH_NEOX | ARCH_QK_NORM,
   .has = HAS_PROBS_BIAS | HAS_MTP,
   .keys = mtp_find,
   .layer = sigmoid_moe_layer},
  {.name = "hy_v4",
   .flags = ARCH_OUT_GATE | ARCH_SINKS,
   .has = HAS_HEAD | HAS_PROBS_BIAS,
   .keys = hy_v4,
   .layer = hy_v4_layer},
  {.name = "arctic", .layer = arctic_layer},
  {.name = "laguna",
   .softplus_gate = true,
   .flags = ARCH_NEOX | ARCH_QK_NORM | ARCH_OUT_GATE | ARCH_SWA_PLAIN_ROPE | ARCH_GLOBAL_FIRST,
   .has = HAS_PROBS_BIAS,
   .period = 4,
   .layer = laguna_layer},
  {.name = "minimax-m3",
   .flags = ARCH_NEOX | ARCH_QK_NORM,
   .has = HAS_HEAD | HAS_PROBS_BIAS,
   .keys = minimax_m3,
   .layer = minimax_m3_layer},
  {.name = "maple",
   .flags = ARCH_NEOX | ARCH_QK_NORM | ARCH_GLOBAL_NO_ROPE,
   .has = HAS_HEAD,
   .period = PERIOD_LISTED,
   .layer = maple_layer},
  {.name = "deepseek2-ocr", .flags = ARCH_NEOX, .layer = dense_first},
  {.name = "grovemoe", .flags = ARCH_NEOX | ARCH_QK_NORM, .layer = grovemoe_layer},
  {.name = NULL},
};
