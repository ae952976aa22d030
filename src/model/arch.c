// The table of architectures. A row says how a family differs from the plain decoder that model_graph.c builds;
// hyper-parameters come from the file, under the architecture's name. Rows of encoders are in arch_encoder.c, rows of
// models with recurrent layers in arch_recurrent.c.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <math.h>
#include <string.h>
#include "model/arch_impl.h"

int gemma(loader *l) {
  l->m->embedding_scale = sqrt(l->m->n_embd);
  return 0;
}

// The largest model of each generation scales queries by n_embd / heads, which differs from its head size.
static int query_scale(loader *l, int largest) {
  model *m = l->m;
  int heads;
  if (m->n_layer != largest || m->attention_scale != 0) return 0;
  if (key_count(l, "attention.head_count", 1, (uint32_t)m->n_embd, &heads)) return -1;
  m->attention_scale = 1 / sqrt((double)(m->n_embd / heads));
  return 0;
}

static int gemma2(loader *l) {
  model *m = l->m;
  m->window = 4096;
  if (!has_key(l, "attn_logit_softcapping")) m->attention_cap = 50;
  if (!has_key(l, "final_logit_softcapping")) m->logit_cap = 30;
  return gemma(l) || query_scale(l, 46) ? -1 : 0;
}

static int gemma3(loader *l) {
  l->m->base_swa = 10000;
  return gemma(l) || query_scale(l, 62) ? -1 : 0;
}

// Files of these kinds can say that attention has no positions. Those of Granite 4 without recurrent layers have the
// keys of such layers.
int granite(loader *l) {
  static const char *const of_mamba[] = {"conv_kernel", "inner_size", "state_size", "time_step_rank", "group_count"};
  bool turns;
  char name[32];
  for (size_t i = 0; i < COUNT(of_mamba); i++) {
    snprintf(name, sizeof name, "ssm.%s", of_mamba[i]);
    has_key(l, name);
  }
  if (gguf_bool_opt(l->f, key(l, "rope.scaling.finetuned"), true, &turns, l->err)) return -1;
  l->m->no_rope = !turns;
  return 0;
}

int experts_if_any(loader *l, layer *y) {
  int n;
  if (key_count_or(l, "expert_count", 0, 0, 1 << 20, &n)) return -1;
  if (n) { y->ff = &part_moe; y->moe.norm = true; }
  return 0;
}

enum {
  GEMMA2 = ARCH_GEMMA2,
  OLMO2 = ARCH_NEOX | ARCH_QK_NORM_ALL | ARCH_NO_PRE_NORMS | ARCH_POST_NORMS | ARCH_SWA_PLAIN_ROPE
};

enum { GEMMA3N = GEMMA2 | ARCH_QK_NORM | ARCH_SWA_PLAIN_ROPE | ARCH_SHARED_KV | ARCH_V_NORM };
enum { STEP35 = ARCH_NEOX | ARCH_QK_NORM_MAYBE | ARCH_OUT_GATE | ARCH_SWA_PLAIN_ROPE };
enum {
  GEMMA4 =
    GEMMA2 | ARCH_QK_NORM | ARCH_SWA_PLAIN_ROPE | ARCH_SHARED_KV | ARCH_V_NORM | ARCH_V_MAYBE_K | ARCH_LAYER_SCALE
};
enum { COHERE2MOE = ARCH_LAYER_NORM | ARCH_PARALLEL | ARCH_GLOBAL_FIRST | ARCH_GLOBAL_NO_ROPE | ARCH_DENSE_ROPE };

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

// Older files of this kind have no keys for these factors.
static int minicpm(loader *l) {
  model *m = l->m;
  if (!has_key(l, "embedding_scale")) m->embedding_scale = 12;
  if (!has_key(l, "residual_scale")) m->residual_scale = 1.4 / sqrt(m->n_layer);
  if (!has_key(l, "logit_scale")) m->logit_scale = m->n_embd / 256.0;
  return 0;
}

// Queries grow with the logarithm of the position divided by the original training context.
static int warmer(loader *l) {
  return key_number_or(l, "attention.temperature_scale", 0, -1e3, 1e3, &l->m->temperature) ||
         key_count_or(l, "attention.temperature_length", 0, 0, 1u << 30, &l->m->temperature_length) ? -1 : 0;
}

static int deepseek2(loader *l) { return mtp_find(l) || warmer(l) ? -1 : 0; }

static int latent_layer(loader *l, layer *y) {
  (void)l;
  y->mixer = &part_mla;
  return 0;
}

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

static bool has_indexer(const loader *l, const layer *y) {
  char name[64];
  snprintf(name, sizeof name, "blk.%d.indexer.proj.weight", y->block);
  return gguf_tensor_find(l->f, name);
}

static int deepseek32_layer(loader *l, layer *y) {
  y->indexer.turns_halves = true;
  return sparse_layer(l, y, has_indexer(l, y));
}

// Newer files say which layers have indexers. Older files of the models with 2^20 positions have indexer tensors in all
// layers, but only those of the first two layers and of every fourth layer from the third on are used.
static int glm_dsa_layer(loader *l, layer *y) {
  uint32_t own[MODEL_MAX_LAYERS];
  if (has_key(l, "attention.indexer.types"))
    return key_flags(l, "attention.indexer.types", own) || sparse_layer(l, y, own[y->index]) ? -1 : 0;
  bool few = l->m->n_ctx_train >= 1 << 20, meant = !few || y->index < 2 || y->index % 4 == 2;
  return sparse_layer(l, y, meant && has_indexer(l, y));
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
  uint32_t own[MODEL_MAX_LAYERS] = {0};
  bool listed = has_key(l, "attention.indexer.types");
  if (listed && key_flags(l, "attention.indexer.types", own)) return -1;
  y->indexer.turns_last = true;
  y->indexer.eps = l->m->eps;
  y->moe.limit_first = true;
  return gated_limits(l, y) || sparse_layer(l, y, !listed || own[y->index]) ? -1 : 0;
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

static int gptneox(loader *l) {
  return gguf_bool_opt(l->f, key(l, "use_parallel_residual"), true, &l->m->parallel, l->err);
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

static int hunyuan(loader *l) { return key_number_or(l, "rope.scaling.alpha", 0, 0, 1e6, &l->m->base_alpha); }

// The sections do not matter for text: each of the four counts its positions, as in the authors' code; llama.cpp leaves
// the fourth at 0.
static int hunyuan_vl(loader *l) {
  has_key(l, "rope.dimension_sections");
  return hunyuan(l);
}

// Files of this kind count the rows of gate and up together.
static int both_rows(loader *l, layer *y) {
  (void)l;
  y->n_ff /= 2;
  return 0;
}

static int one_norm(loader *l, layer *y) {
  (void)l;
  y->ff_norm = W_NONE;
  return 0;
}

// The larger of these models have a second norm, for attention.
static int falcon(loader *l, layer *y) {
  char name[64];
  snprintf(name, sizeof name, "blk.%d.attn_norm_2.weight", y->block);
  bool two = gguf_tensor_find(l->f, name);
  y->mixer_norm = two ? W_ATTN_NORM_2 : W_ATTN_NORM;
  y->ff_norm = two ? W_ATTN_NORM : W_NONE;
  return 0;
}

// Some of these models have no second norm: attention and feed-forward both read the output of the first one. The
// file's key for that applies to all layers.
static int stablelm(loader *l, layer *y) {
  char name[64];
  snprintf(name, sizeof name, "blk.%d.ffn_norm.weight", y->block);
  has_key(l, "use_parallel_residual");
  if (gguf_tensor_find(l->f, name)) return 0;
  y->ff_norm = W_NONE;
  l->m->parallel = true;
  return 0;
}

static int smollm3(loader *l, layer *y) {
  (void)l;
  if (y->index % 4 == 3) y->rope = ROPE_NONE;
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

// Layers may lack attention or have only its output product, and may lack the feed-forward.
static int deci_layer(loader *l, layer *y) {
  (void)l;
  if (!y->n_head) y->mixer = NULL;
  else if (!y->n_kv) y->mixer = &part_linear;
  if (!y->n_ff) y->ff = NULL;
  return 0;
}

// Limits of queries, keys and values
static int limits(loader *l) { return key_number_or(l, "attention.clamp_kqv", 0, 0, 1e30, &l->m->qkv_limit); }

// Scores that fall with the distance (ALiBi) are the only information about positions.
int leans(loader *l, double bias) {
  l->m->no_rope = true;
  l->m->alibi = bias;
  return 0;
}

// Norms of queries and keys already bound their scores.
static int unscaled(loader *l) {
  if (l->m->attention_scale == 0) l->m->attention_scale = 1;
  return gemma(l);
}

// Rows of one image attend to each other in both directions in layers with a window. The small models (E2B, E4B, those
// with per-layer embeddings) do so in no layer. No key says it.
static int gemma4(loader *l) {
  l->m->base_swa = 10000;
  if (key_count_or(l, "embedding_length_per_layer_input", 0, 0, 1 << 16, &l->m->n_own) || unscaled(l)) return -1;
  l->m->both_ways = l->m->n_own ? BOTH_NONE : BOTH_WINDOWS;
  return 0;
}

// Sizes and the cut are the same in all models; older files do not have keys for them.
static int gemma3n(loader *l) {
  model *m = l->m;
  int active;
  m->base_swa = 10000;
  if (!has_key(l, "final_logit_softcapping")) m->logit_cap = 30;
  return key_count_or(l, "embedding_length_per_layer_input", 256, 1, 1 << 16, &m->n_own) ||
             key_count_or(l, "altup.num_inputs", 4, 2, MAX_STREAM_ROWS, &m->n_rows) ||
             key_count_or(l, "altup.active_idx", 0, 0, 0, &active) || unscaled(l)
           ? -1
           : 0;
}

static int gemma3n_layer(loader *l, layer *y) {
  if (has_key(l, "activation_sparsity_scale")) return number_at(l, l->key, y->index, -INFINITY, 100, &y->cut);
  if (y->index < 10) y->cut = 1.6448536;        // 95 % of a normal distribution are below this many standard deviations
  return 0;
}

static int gemma4_layer(loader *l, layer *y) {
  int n;
  if (key_count_or(l, "expert_count", 0, 0, 1 << 20, &n)) return -1;
  if (!n) return 0;
  y->ff = &part_dense_and_moe;
  y->ff_norm = W_NONE;
  y->moe.gating = GATING_SOFTMAX;
  y->moe.norm = true;
  return 0;
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

static int mpt(loader *l) {
  double bias;
  return limits(l) || key_number_or(l, "attention.max_alibi_bias", 0, 0, 1e3, &bias) || leans(l, bias) ? -1 : 0;
}

static int bloom(loader *l) { return leans(l, 8); }

// The larger of the two sizes does not rotate; no key says so.
static int baichuan(loader *l) { return l->m->n_layer == 40 ? leans(l, 8) : 0; }

static int jais(loader *l) {
  double bias;
  return key_number_or(l, "attention.max_alibi_bias", 0, 0, 1e3, &bias) || leans(l, bias) ? -1 : 0;
}

static int jais_layer(loader *l, layer *y) {
  l->m->attention_scale = 1.0 / y->head_dim;
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

static int granite_swa_layer(loader *l, layer *y) {
  uint32_t each[MODEL_MAX_LAYERS];
  if (has_key(l, "attention.rope_pattern")) {
    if (key_flags(l, "attention.rope_pattern", each)) return -1;
    if (!each[y->index]) y->rope = ROPE_NONE;
  }
  return experts_if_any(l, y);
}

static int granite_switch(loader *l) { return granite(l) || switch_keys(l) ? -1 : 0; }

static int granite_switch_layer(loader *l, layer *y) {
  (void)l;
  y->mixer = &part_switched_attention;
  y->ff = &part_switched_dense;
  return 0;
}

static int cohere2moe_layer(loader *l, layer *y) {
  y->moe.gating = GATING_SIGMOID;
  y->moe.averaged = true;
  return dense_first(l, y) || one_norm(l, y) ? -1 : 0;
}

static int apertus_layer(loader *l, layer *y) {
  xielu *p = &y->xielu;
  double n, up;
  if (number_at(l, file_key(l, "xielu.alpha_n"), y->index, -1e3, 1e3, &n) ||
      number_at(l, file_key(l, "xielu.alpha_p"), y->index, -1e3, 1e3, &up) ||
      number_at(l, file_key(l, "xielu.beta"), y->index, -1e3, 1e3, &p->slope) ||
      number_at(l, file_key(l, "xielu.eps"), y->index, -1e3, 0, &p->edge))
    return -1;
  p->positive = log1p(exp(up));
  p->negative = p->slope + log1p(exp(n));
  return 0;
}

static int arctic_layer(loader *l, layer *y) {
  (void)l;
  y->ff = &part_dense_and_early_moe;
  y->moe.gating = GATING_SOFTMAX;
  y->moe.norm = true;
  return 0;
}

// The blocks of the file run several times, each time with their own keys and values.
static int nanbeige(loader *l) {
  model *m = l->m;
  int loops;
  if (key_count_or(l, "num_loops", 1, 1, (uint32_t)(MODEL_MAX_LAYERS / m->n_layer), &loops)) return -1;
  m->n_layer *= loops;
  return 0;
}

// The output of all blocks goes through the model's last norm before it enters the first block again.
static int nanbeige_layer(loader *l, layer *y) {
  bool skip;
  if (gguf_bool_opt(l->f, key(l, "skip_loop_final_norm"), false, &skip, l->err)) return -1;
  bool last = y->index == l->m->n_layer - 1;
  if (y->block == l->m->n_block - 1 && !last && !skip) y->leaves = W_OUTPUT_NORM;
  return 0;
}

static int plamo3(loader *l) {
  l->m->base_swa = 10000;
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

static int head_gates_layer(loader *l, layer *y) {
  (void)l;
  y->head_gates = true;
  return 0;
}

// Keys are normed without weights and queries are multiplied by a factor per head, both after rotation.
static int talkie(loader *l) {
  l->m->bare_qk_norm = true;
  return 0;
}

// Layers are counted as often as they run: the low stack several times, then the high stack once.
static int hrm_text(loader *l) {
  model *m = l->m;
  int cycles;
  bool prefix;
  if (key_count(l, "hrm.layers_per_stack", 1, MODEL_MAX_LAYERS, &m->stacks.n) ||
      key_count(l, "hrm.h_cycles", 1, MODEL_MAX_LAYERS, &cycles) ||
      key_count(l, "hrm.l_cycles", 1, MODEL_MAX_LAYERS, &m->stacks.low) ||
      gguf_bool_opt(l->f, key(l, "hrm.prefix_lm"), false, &prefix, l->err))
    return -1;
  int64_t n = (int64_t)m->stacks.n * cycles * (m->stacks.low + 1);
  if (n != m->n_layer)
    return gguf_fail(l->f, key(l, "block_count"), l->err, "%d, but stacks have %lld layers", m->n_layer, (long long)n);
  m->output_norm = W_NONE;
  return 0;
}

static int hrm_text_layer(loader *l, layer *y) {
  const stacks *s = &l->m->stacks;
  bool high = y->index / s->n % (s->low + 1) == s->low;
  y->block = y->index % s->n + (high ? s->n : 0);
  return 0;
}

static int grovemoe_layer(loader *l, layer *y) {
  (void)l;
  y->ff = &part_moe_in_groups;
  y->moe.norm = true;
  return 0;
}

// Each product has a second matrix for rows of images. Text does not use it.
static int cogvlm_layer(loader *l, layer *y) {
  int64_t d = l->m->n_embd, q = (int64_t)y->n_head * y->head_dim, kv = (int64_t)y->n_kv * (y->head_dim + y->v_dim);
  return want_matrix(l, y, W_VIS_ATTN_QKV, d, q + kv, 0) ||
             want_matrix(l, y, W_VIS_ATTN_OUTPUT, (int64_t)y->n_head * y->v_dim, d, 0) ||
             want_matrix(l, y, W_VIS_GATE, d, y->n_ff, 0) || want_matrix(l, y, W_VIS_UP, d, y->n_ff, 0) ||
             want_matrix(l, y, W_VIS_DOWN, y->n_ff, d, 0)
           ? -1
           : 0;
}

// The image tokens follow the first four.
static int chameleon(loader *l) {
  l->m->banned_from = 4;
  l->m->banned_to = 8196;
  return 0;
}

// The larger of these models have their norms after attention and feed-forward, under the names of the norms before
// them.
static int chameleon_layer(loader *l, layer *y) {
  bool behind;
  if (gguf_bool_opt(l->f, key(l, "swin_norm"), false, &behind, l->err)) return -1;
  if (behind) {
    y->mixer_post = y->mixer_norm;
    y->ff_post = y->ff_norm;
    y->mixer_norm = y->ff_norm = W_NONE;
  }
  return 0;
}

static const arch table[] = {
  {.name = "llama", .period = PERIOD_ALL, .layer = experts_if_any},
  {.name = "qwen2", .flags = ARCH_NEOX, .has = HAS_QKV_BIAS, .period = PERIOD_LISTED},
  {.name = "qwen3", .flags = ARCH_NEOX | ARCH_QK_NORM},
  {.name = "granite", .flags = ARCH_LOGITS_DIVIDED, .keys = granite, .layer = experts_if_any},
  {.name = "phi3", .flags = ARCH_NEOX, .period = PERIOD_ALL},
  {.name = "gemma", .flags = ARCH_NEOX, .act = ACT_GELU, .keys = gemma},
  {.name = "gemma2", .flags = GEMMA2, .act = ACT_GELU, .period = 2, .keys = gemma2},
  {.name = "gemma3",
   .flags = GEMMA2 | ARCH_QK_NORM | ARCH_SWA_PLAIN_ROPE,
   .act = ACT_GELU,
   .period = 6,
   .keys = gemma3},
  {.name = "olmo2", .flags = OLMO2, .has = HAS_HEAD, .period = 4},
  {.name = "starcoder2",
   .flags = ARCH_NEOX | ARCH_LAYER_NORM | ARCH_PLAIN_FFN,
   .has = HAS_BIASES,
   .act = ACT_GELU,
   .period = PERIOD_ALL},
  {.name = "gpt2", .flags = ARCH_LAYER_NORM | ARCH_PLAIN_FFN | ARCH_POSITIONS, .has = HAS_BIASES, .act = ACT_GELU},
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
  {.name = "qwen2vl", .flags = ARCH_NEOX | ARCH_SECTIONS, .has = HAS_QKV_BIAS},
  {.name = "qwen3vl", .flags = ARCH_NEOX | ARCH_QK_NORM | ARCH_SECTIONS, .has = HAS_MIXED_SECTIONS},
  {.name = "mistral3", .keys = warmer, .period = PERIOD_ALL, .layer = experts_if_any},
  {.name = "granitemoe", .flags = ARCH_LOGITS_DIVIDED, .keys = granite, .layer = experts_if_any},
  {.name = "minicpm", .flags = ARCH_LOGITS_DIVIDED, .keys = minicpm},
  {.name = "internlm2", .has = HAS_HEAD},
  {.name = "ernie4_5"},
  {.name = "smollm3", .layer = smollm3},
  {.name = "arcee", .flags = ARCH_PLAIN_FFN, .act = ACT_RELU2},
  {.name = "seed_oss", .flags = ARCH_NEOX | ARCH_FFN_NORM_LATE, .has = HAS_QKV_BIAS_MAYBE},
  {.name = "exaone", .flags = ARCH_NEOX},
  {.name = "exaone4",
   .flags = ARCH_NEOX | ARCH_QK_NORM | ARCH_NO_PRE_NORMS | ARCH_POST_NORMS | ARCH_GLOBAL_NO_ROPE,
   .period = 4},
  {.name = "glm4", .flags = ARCH_POST_NORMS | ARCH_SECTIONS, .has = HAS_MTP, .keys = mtp_find},
  {.name = "chatglm"},
  {.name = "openelm", .flags = ARCH_NEOX | ARCH_QK_NORM},
  {.name = "command-r", .flags = ARCH_LAYER_NORM | ARCH_PARALLEL | ARCH_QK_NORM_EACH, .layer = one_norm},
  {.name = "cohere2", .flags = ARCH_LAYER_NORM | ARCH_PARALLEL | ARCH_GLOBAL_NO_ROPE, .period = 4, .layer = one_norm},
  {.name = "stablelm",
   .flags = ARCH_NEOX | ARCH_LAYER_NORM | ARCH_QK_NORM_EACH,
   .has = HAS_HEAD | HAS_NORM_BIAS | HAS_QKV_BIAS_MAYBE,
   .layer = stablelm},
  {.name = "nemotron",
   .flags = ARCH_NEOX | ARCH_LAYER_NORM | ARCH_PLAIN_FFN,
   .has = HAS_HEAD | HAS_NORM_BIAS,
   .act = ACT_RELU2},
  {.name = "phi2",
   .flags = ARCH_NEOX | ARCH_LAYER_NORM | ARCH_PLAIN_FFN | ARCH_PARALLEL,
   .has = HAS_HEAD | HAS_HEAD_BIAS | HAS_BIASES,
   .act = ACT_GELU,
   .layer = one_norm},
  {.name = "gptj",
   .flags = ARCH_LAYER_NORM | ARCH_PLAIN_FFN | ARCH_PARALLEL,
   .has = HAS_HEAD | HAS_HEAD_BIAS | HAS_NORM_BIAS | HAS_FFN_BIAS,
   .act = ACT_GELU,
   .layer = one_norm},
  {.name = "gptneox",
   .flags = ARCH_NEOX | ARCH_LAYER_NORM | ARCH_PLAIN_FFN,
   .has = HAS_HEAD | HAS_BIASES,
   .act = ACT_GELU,
   .keys = gptneox},
  {.name = "olmoe", .flags = ARCH_NEOX | ARCH_QK_NORM_ALL, .has = HAS_HEAD, .layer = plain_moe},
  {.name = "ernie4_5-moe", .layer = ernie_moe},
  {.name = "hunyuan-dense", .flags = ARCH_NEOX | ARCH_QK_NORM | ARCH_QK_NORM_LATE, .keys = hunyuan},
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
  {.name = "orion", .flags = ARCH_NEOX | ARCH_LAYER_NORM, .has = HAS_HEAD | HAS_NORM_BIAS},
  {.name = "xverse", .has = HAS_HEAD},
  {.name = "qwen", .flags = ARCH_NEOX, .has = HAS_HEAD | HAS_QKV_BIAS, .layer = both_rows},
  {.name = "gemma3n", .flags = GEMMA3N, .act = ACT_GELU, .period = 5, .keys = gemma3n, .layer = gemma3n_layer},
  {.name = "gemma4",
   .flags = GEMMA4,
   .has = HAS_ROPE_FREQS | HAS_ROUTER_SCALE,
   .act = ACT_GELU,
   .period = PERIOD_LISTED,
   .keys = gemma4,
   .layer = gemma4_layer},
  {.name = "llama4", .flags = ARCH_CHUNKS | ARCH_GLOBAL_NO_ROPE, .period = 4, .keys = llama4, .layer = llama4_layer},
  {.name = "deci", .layer = deci_layer},
  {.name = "bitnet", .flags = ARCH_NEOX, .has = HAS_SUB_NORMS},
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
  {.name = "granite_swa",
   .flags = ARCH_LOGITS_DIVIDED | ARCH_SINKS,
   .period = PERIOD_LISTED,
   .keys = granite,
   .layer = granite_swa_layer},
  {.name = "graniteswitch", .flags = ARCH_LOGITS_DIVIDED, .keys = granite_switch, .layer = granite_switch_layer},
  {.name = "cohere2moe",
   .flags = COHERE2MOE,
   .has = HAS_MTP,
   .period = 4,
   .keys = mtp_find,
   .layer = cohere2moe_layer},
  {.name = "smallthinker",
   .flags = ARCH_NEOX | ARCH_EARLY_ROUTER | ARCH_GLOBAL_FIRST | ARCH_GLOBAL_NO_ROPE,
   .act = ACT_RELU,
   .period = 4,
   .layer = all_moe},
  {.name = "apertus",
   .flags = ARCH_NEOX | ARCH_QK_NORM | ARCH_PLAIN_FFN,
   .has = HAS_HEAD,
   .act = ACT_XIELU,
   .layer = apertus_layer},
  {.name = "olmo", .flags = ARCH_LAYER_NORM | ARCH_BARE_NORMS, .keys = limits},
  {.name = "dbrx", .flags = ARCH_NEOX | ARCH_LAYER_NORM, .has = HAS_HEAD, .keys = limits, .layer = dbrx_layer},
  {.name = "plm", .flags = ARCH_PLAIN_FFN, .act = ACT_RELU2, .layer = latent_layer},
  {.name = "minicpm3", .flags = ARCH_NEOX | ARCH_LOGITS_DIVIDED, .keys = minicpm, .layer = latent_layer},
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
  {.name = "codeshell",
   .flags = ARCH_NEOX | ARCH_LAYER_NORM | ARCH_PLAIN_FFN,
   .has = HAS_HEAD | HAS_BIASES,
   .act = ACT_GELU},
  {.name = "refact", .flags = ARCH_LAYER_NORM, .has = HAS_RMS_KEY, .keys = bloom},
  {.name = "jais", .flags = ARCH_LAYER_NORM, .has = HAS_HEAD | HAS_BIASES, .keys = jais, .layer = jais_layer},
  {.name = "jais2", .flags = ARCH_NEOX | ARCH_LAYER_NORM | ARCH_PLAIN_FFN, .has = HAS_BIASES, .act = ACT_RELU2},
  {.name = "plamo", .flags = ARCH_NEOX | ARCH_PARALLEL, .has = HAS_HEAD, .layer = one_norm},
  {.name = "pangu-embedded", .flags = ARCH_NEOX, .has = HAS_QKV_BIAS_MAYBE | HAS_OUT_BIAS},
  {.name = "maincoder", .flags = ARCH_QK_NORM | ARCH_QK_NORM_LATE},
  {.name = "hunyuan_vl", .flags = ARCH_NEOX | ARCH_QK_NORM | ARCH_QK_NORM_LATE, .keys = hunyuan_vl},
  {.name = "paddleocr", .flags = ARCH_SECTIONS},
  {.name = "baichuan", .has = HAS_HEAD, .keys = baichuan},
  {.name = "mpt",
   .flags = ARCH_LAYER_NORM | ARCH_PLAIN_FFN | ARCH_QK_NORM_ALL | ARCH_QK_NORM_MAYBE,
   .act = ACT_GELU,
   .keys = mpt},
  {.name = "bloom",
   .flags = ARCH_LAYER_NORM | ARCH_PLAIN_FFN | ARCH_EMBD_NORM,
   .has = HAS_BIASES,
   .act = ACT_GELU,
   .keys = bloom},
  {.name = "falcon",
   .flags = ARCH_NEOX | ARCH_LAYER_NORM | ARCH_PLAIN_FFN | ARCH_PARALLEL,
   .has = HAS_NORM_BIAS,
   .act = ACT_GELU,
   .layer = falcon},
  {.name = "nanbeige", .keys = nanbeige, .layer = nanbeige_layer},
  {.name = "mellum",
   .flags = ARCH_NEOX | ARCH_QK_NORM | ARCH_SWA_PLAIN_ROPE,
   .has = HAS_HEAD,
   .period = 4,
   .layer = mellum_layer},
  {.name = "plamo3",
   .yarn_exact = true,
   .flags = ARCH_NEOX | ARCH_QK_NORM | ARCH_POST_NORMS | ARCH_SWA_PLAIN_ROPE,
   .period = 8,
   .keys = plamo3},
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
  {.name = "muse-glimmer",
   .post_eps = 1e-8,
   .bare_embd_norm = true,
   .flags = ARCH_QK_NORM | ARCH_OUT_GATE | ARCH_POST_NORMS | ARCH_GLOBAL_NO_ROPE | ARCH_EMBD_NORM,
   .has = HAS_HEAD,
   .period = 4},
  {.name = "spark2_5",
   .flags = ARCH_NEOX | ARCH_OUT_GATE,
   .act = ACT_GELU,
   .period = PERIOD_LISTED,
   .layer = head_gates_layer},
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
  {.name = "talkie",
   .skips = true,
   .flags = ARCH_NEOX | ARCH_BARE_NORMS | ARCH_EMBD_NORM | ARCH_LAYER_SCALE,
   .has = HAS_HEAD | HAS_Q_GAIN | HAS_PART_SCALES,
   .keys = talkie},
  {.name = "deepseek2-ocr", .flags = ARCH_NEOX, .layer = dense_first},
  {.name = "hrm_text", .flags = ARCH_NEOX | ARCH_BARE_NORMS | ARCH_OUT_GATE, .keys = hrm_text, .layer = hrm_text_layer},
  {.name = "starcoder", .flags = ARCH_LAYER_NORM | ARCH_PLAIN_FFN | ARCH_POSITIONS, .has = HAS_BIASES, .act = ACT_GELU},
  {.name = "grovemoe", .flags = ARCH_NEOX | ARCH_QK_NORM, .layer = grovemoe_layer},
  {.name = "cogvlm", .flags = ARCH_NEOX, .layer = cogvlm_layer},
  {.name = "chameleon",
   .centred_heads = true,
   .flags = ARCH_QK_NORM_EACH,
   .keys = chameleon,
   .layer = chameleon_layer},
  {.name = NULL},
};

static const arch *const tables[] = {table, arch_recurrent, arch_encoders};

const arch *arch_at(size_t i) {
  for (size_t t = 0; t < COUNT(tables); t++)
    for (const arch *a = tables[t]; a->name; a++)
      if (!i--) return a;
  return NULL;
}

const arch *arch_find(const char *name, size_t n) {
  const arch *a;
  for (size_t i = 0; (a = arch_at(i)); i++)
    if (strlen(a->name) == n && !memcmp(a->name, name, n)) return a;
  return NULL;
}
