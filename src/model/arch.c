// The table of architectures. A row says how a family differs from the plain decoder that model_graph.c builds;
// hyper-parameters come from the file, under the architecture's name. Rows of mixtures of experts are in arch_moe.c,
// rows of models with recurrent layers in arch_recurrent.c, rows of encoders in arch_encoder.c.
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

enum {
  GEMMA2 = ARCH_GEMMA2,
  OLMO2 = ARCH_NEOX | ARCH_QK_NORM_ALL | ARCH_NO_PRE_NORMS | ARCH_POST_NORMS | ARCH_SWA_PLAIN_ROPE
};

enum { GEMMA3N = GEMMA2 | ARCH_QK_NORM | ARCH_SWA_PLAIN_ROPE | ARCH_SHARED_KV | ARCH_V_NORM };
enum {
  GEMMA4 =
    GEMMA2 | ARCH_QK_NORM | ARCH_SWA_PLAIN_ROPE | ARCH_SHARED_KV | ARCH_V_NORM | ARCH_V_MAYBE_K | ARCH_LAYER_SCALE
};

// Older files of this kind have no keys for these factors.
static int minicpm(loader *l) {
  model *m = l->m;
  if (!has_key(l, "embedding_scale")) m->embedding_scale = 12;
  if (!has_key(l, "residual_scale")) m->residual_scale = 1.4 / sqrt(m->n_layer);
  if (!has_key(l, "logit_scale")) m->logit_scale = 256.0 / m->n_embd;
  return 0;
}

// Queries grow with the logarithm of the position divided by the original training context.
int warmer(loader *l) {
  return key_number_or(l, "attention.temperature_scale", 0, -1e3, 1e3, &l->m->temperature) ||
         key_count_or(l, "attention.temperature_length", 0, 0, 1u << 30, &l->m->temperature_length) ? -1 : 0;
}

static int latent_layer(loader *l, layer *y) {
  (void)l;
  y->mixer = &part_mla;
  return 0;
}

static int gptneox(loader *l) {
  return gguf_bool_opt(l->f, key(l, "use_parallel_residual"), true, &l->m->parallel, l->err);
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

int one_norm(loader *l, layer *y) {
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

// Layers may lack attention or have only its output product, and may lack the feed-forward.
static int deci_layer(loader *l, layer *y) {
  (void)l;
  if (!y->n_head) y->mixer = NULL;
  else if (!y->n_kv) y->mixer = &part_linear;
  if (!y->n_ff) y->ff = NULL;
  return 0;
}

// Limits of queries, keys and values
int qkv_limits(loader *l) { return key_number_or(l, "attention.clamp_kqv", 0, 0, 1e30, &l->m->qkv_limit); }

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

static int mpt(loader *l) {
  double bias;
  return qkv_limits(l) || key_number_or(l, "attention.max_alibi_bias", 0, 0, 1e3, &bias) || leans(l, bias) ? -1 : 0;
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
  {.name = "hunyuan-dense", .flags = ARCH_NEOX | ARCH_QK_NORM | ARCH_QK_NORM_LATE, .keys = hunyuan},
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
  {.name = "deci", .layer = deci_layer},
  {.name = "bitnet", .flags = ARCH_NEOX, .has = HAS_SUB_NORMS},
  {.name = "granite_swa",
   .flags = ARCH_LOGITS_DIVIDED | ARCH_SINKS,
   .period = PERIOD_LISTED,
   .keys = granite,
   .layer = granite_swa_layer},
  {.name = "graniteswitch", .flags = ARCH_LOGITS_DIVIDED, .keys = granite_switch, .layer = granite_switch_layer},
  {.name = "apertus",
   .flags = ARCH_NEOX | ARCH_QK_NORM | ARCH_PLAIN_FFN,
   .has = HAS_HEAD,
   .act = ACT_XIELU,
   .layer = apertus_layer},
  {.name = "olmo", .flags = ARCH_LAYER_NORM | ARCH_BARE_NORMS, .keys = qkv_limits},
  {.name = "plm", .flags = ARCH_PLAIN_FFN, .act = ACT_RELU2, .layer = latent_layer},
  {.name = "minicpm3", .flags = ARCH_NEOX | ARCH_LOGITS_DIVIDED, .keys = minicpm, .layer = latent_layer},
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
  {.name = "plamo3",
   .yarn_exact = true,
   .flags = ARCH_NEOX | ARCH_QK_NORM | ARCH_POST_NORMS | ARCH_SWA_PLAIN_ROPE,
   .period = 8,
   .keys = plamo3},
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
  {.name = "talkie",
   .skips = true,
   .flags = ARCH_NEOX | ARCH_BARE_NORMS | ARCH_EMBD_NORM | ARCH_LAYER_SCALE,
   .has = HAS_HEAD | HAS_Q_GAIN | HAS_PART_SCALES,
   .keys = talkie},
  {.name = "hrm_text", .flags = ARCH_NEOX | ARCH_BARE_NORMS | ARCH_OUT_GATE, .keys = hrm_text, .layer = hrm_text_layer},
  {.name = "starcoder", .flags = ARCH_LAYER_NORM | ARCH_PLAIN_FFN | ARCH_POSITIONS, .has = HAS_BIASES, .act = ACT_GELU},
  {.name = "cogvlm", .flags = ARCH_NEOX, .layer = cogvlm_layer},
  {.name = "chameleon",
   .centred_heads = true,
   .flags = ARCH_QK_NORM_EACH,
   .keys = chameleon,
   .layer = chameleon_layer},
  {.name = NULL},
};

static const arch *const tables[] = {table, arch_moe, arch_recurrent, arch_encoders, arch_drafts};

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
