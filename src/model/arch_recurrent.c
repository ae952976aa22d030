// Rows of the table of architectures (arch.c) in which some or all layers are recurrences or convolutions.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <math.h>
#include <stdio.h>
#include "model/arch_impl.h"

// Files of this kind store the last norm under another norm's name.
static int lfm2(loader *l) {
  if (gguf_tensor_find(l->f, "token_embd_norm.weight")) l->m->output_norm = W_TOKEN_EMBD_NORM;
  return 0;
}

static int lfm2_layer(loader *l, layer *y) {
  (void)l;
  if (!y->n_kv) y->mixer = &part_short_conv;
  return 0;
}

static int granitehybrid_layer(loader *l, layer *y) {
  if (!y->n_kv) y->mixer = &part_mamba2;
  return experts_if_any(l, y);
}

// Each layer is a single part; the block that predicts a further token has two, attention and then experts.
static int nemotron_h_layer(loader *l, layer *y) {
  y->rope = ROPE_NONE;
  if (y->index == l->m->n_layer) {
    y->ff_norm = W_POST_ATTENTION_NORM;
  } else if (y->n_ff) {
    y->mixer = NULL;
    y->ff_norm = W_ATTN_NORM;
  } else {
    y->ff = NULL;
    if (!y->n_kv) y->mixer = &part_mamba2;
  }
  return 0;
}

// Which layers are recurrent: a period, or one number per layer.
static int recurrent_but(loader *l, layer *y, uint32_t every, const part *p) {
  int interval;
  uint32_t each[MODEL_MAX_LAYERS];
  bool listed = has_key(l, "attention.recurrent_layers");
  if (key_count_or(l, "full_attention_interval", every, 1, MODEL_MAX_LAYERS, &interval) ||
      (listed && key_flags(l, "attention.recurrent_layers", each)))
    return -1;
  if (y->index < l->m->n_layer && (listed ? each[y->index] != 0 : (y->index + 1) % interval != 0)) y->mixer = p;
  return 0;
}

static int qwen3next_layer(loader *l, layer *y) {
  return recurrent_but(l, y, 4, &part_delta_net) || experts_if_any(l, y) ? -1 : 0;
}

static int minimax_01_layer(loader *l, layer *y) {
  return recurrent_but(l, y, 8, &part_lightning) || all_moe(l, y) ? -1 : 0;
}

enum { QWEN3NEXT = ARCH_NEOX | ARCH_QK_NORM | ARCH_GATED_Q | ARCH_FFN_NORM_LATE | ARCH_SECTIONS };

static int bare_attention(loader *l) {
  l->m->no_rope = true;
  return 0;
}

// Layers without key heads have a recurrence. Attention has no rope: the recurrence is the only information about
// positions.
static int kimi_layer(loader *l, layer *y) {
  if (!y->n_kv) y->mixer = &part_kda;
  else y->mixer = &part_mla;
  y->moe.norm = true;
  return dense_first(l, y);
}

static int kimi_k3(loader *l) {
  model *m = l->m;
  int failed = key_count_or(l, "attn_res.block_size", 0, 0, MODEL_MAX_LAYERS, &m->bank_every) ||
             key_number(l, "activation.situ_beta", 1e-3, 1e6, &m->situ) ||
             key_number(l, "activation.situ_linear_beta", -1e6, 1e6, &m->situ_up) || bare_attention(l);
  m->situ_up = fmax(m->situ_up, 0);
  return failed ? -1 : 0;
}

static int kimi_k3_layer(loader *l, layer *y) {
  y->safe_decay = has_key(l, "kda.gate_lower_bound");
  if (y->safe_decay && key_number(l, "kda.gate_lower_bound", -1e3, 0, &y->least_decay)) return -1;
  y->full_gate = y->negated = y->moe.latent_normed = true;
  y->moe.gating = GATING_SIGMOID;
  if (!y->n_kv) y->mixer = &part_kda;
  else y->mixer = &part_mla;
  return dense_first(l, y);
}

static int bailingmoe3_layer(loader *l, layer *y) {
  bool safe;
  if (gguf_bool_opt(l->f, key(l, "kda.safe_gate"), true, &safe, l->err) ||
      key_number(l, "kda.gate_lower_bound", -1e3, 0, &y->least_decay))
    return -1;
  if (!safe) return gguf_fail(l->f, key(l, "kda.safe_gate"), l->err, "false is not supported");
  y->safe_decay = y->full_products = y->head_gates = true;
  if (!y->n_kv) y->mixer = &part_kda;
  else y->mixer = &part_mla;
  return dense_first(l, y);
}

// Attention has no rope at all. A token reads only the best pools of positions, and those after the last whole pool.
static int glm5_next(loader *l) {
  model *m = l->m;
  int chosen;
  bool tail;
  if (bare_attention(l) || mtp_find(l) || hyper_keys(l) ||
      key_count(l, "attention.indexer.kpool", 1, MODEL_PAGE, &m->block_size) ||
      gguf_bool_opt(l->f, key(l, "attention.indexer.kpool_select_tail"), true, &tail, l->err))
    return -1;
  if (!tail) return gguf_fail(l->f, l->key, l->err, "false is not supported");
  if (MODEL_PAGE % m->block_size)
    return gguf_fail(l->f, key(l, "attention.indexer.kpool"), l->err, "%d does not divide a page of %d positions",
                     m->block_size, MODEL_PAGE);
  if (key_count(l, "attention.indexer.top_k", 1, 1u << 30, &chosen)) return -1;
  if (chosen % m->block_size)
    return gguf_fail(l->f, l->key, l->err, "%d is no multiple of attention.indexer.kpool = %d", chosen, m->block_size);
  m->top_k = chosen / m->block_size;
  m->hyper.averaged = true;
  return 0;
}

// Layers without an indexer of their own use the choice of the last layer before them that has one. In files made by
// llama.cpp limits of experts' gates hold for the dense feed-forward as well.
static int glm5_next_layer(loader *l, layer *y) {
  bool own = true;
  if ((has_key(l, "attention.indexer.types") && indexer_is_own(l, y, &own)) ||
      key_number_or(l, "attention.layer_norm_epsilon", 1e-6, 0, 1, &y->indexer.eps) || gated_limits(l, y))
    return -1;
  if (!has_key(l, "swiglu_clamp_shexp")) y->moe.shared_limit = y->moe.limit;
  y->safe_decay = y->negated = has_key(l, "kda.gate_lower_bound");
  if (y->safe_decay && key_number(l, "kda.gate_lower_bound", -1e3, 0, &y->least_decay)) return -1;
  y->mixer = y->n_kv ? &part_mla : &part_kda;
  for (int i = y->index - 1; y->n_kv && !own && y->kv_from == y->index && i >= 0; i--)
    if (l->m->layers[i].mixer == &part_mla) y->kv_from = l->m->layers[i].kv_from;
  y->moe.gating = GATING_SIGMOID;
  y->moe.limit_first = true;
  return dense_first(l, y);
}

// The positions per pool, which all layers with attention have in common. llama.cpp's converter writes 0 for all layers
// if transformers knows the class. Such a file does not say what is read beyond the budget, so its context ends there.
static int qwen4exp_pools(loader *l) {
  model *m = l->m;
  uint32_t ratios[MODEL_MAX_LAYERS];
  int chosen, size = 0;
  if (gguf_u32_each(l->f, key(l, "attention.compress_ratios"), (size_t)m->n_block, ratios, l->err)) return -1;
  for (int i = 0; i < m->n_layer; i++) {
    if (!ratios[i]) continue;
    if (ratios[i] > MODEL_PAGE || MODEL_PAGE % ratios[i])
      return gguf_fail(l->f, l->key, l->err, "%u does not divide a page of %d positions", ratios[i], MODEL_PAGE);
    if (size && (int)ratios[i] != size)
      return gguf_fail(l->f, l->key, l->err, "%d and %u (layers with different pools are not supported)", size,
                       ratios[i]);
    size = (int)ratios[i];
  }
  if (key_count(l, "attention.indexer.top_k", size ? (uint32_t)size : 1, 1u << 30, &chosen)) return -1;
  m->block_size = size;
  m->top_k = size ? chosen / size : 0;
  if (!size && chosen < m->n_ctx_train) m->n_ctx_max = chosen;
  return 0;
}

// Sections of the rope do not matter for text. Norms are parts of the stream's mixing.
static int qwen4exp(loader *l) {
  model *m = l->m;
  has_key(l, "rope.dimension_sections");
  if (key_count(l, "hyper_connection.count", 2, MAX_STREAM_ROWS, &m->hyper.n) ||
      key_count(l, "hyper_connection.low_rank", 1, 1 << 16, &m->hyper.low_rank) || mtp_find(l) || ngram_keys(l) ||
      qwen4exp_pools(l))
    return -1;
  m->output_norm = W_NONE;
  return 0;
}

static int qwen4exp_layer(loader *l, layer *y) {
  const model *m = l->m;
  if (qwen3next_layer(l, y)) return -1;
  y->moe.norm = y->ssm.sigmoid_gate = true;
  if (y->mixer == &part_delta_net) {
    if (ngram_in(m, y)) y->mixer = &part_delta_net_ngrams;
    return 0;
  }
  y->compressed.ratio = m->block_size;
  if (!m->block_size && pool_indexer_weights(l, y)) return -1;
  return ngram_in(m, y) ? gguf_fail(l->f, key(l, "ple.layers"), l->err, "layer %d has attention", y->index) : 0;
}

static int rwkv7_layer(loader *l, layer *y) {
  (void)l;
  y->mixer = &part_rwkv7;
  y->ff = &part_channel_mix;
  y->ff_norm = W_ATTN_NORM_2;
  return 0;
}

// Every few layers the output is halved; the weights of later layers are made for that.
static int rwkv6_layer(loader *l, layer *y) {
  int every;
  if (key_count_or(l, "rescale_every_n_layers", 0, 0, MODEL_MAX_LAYERS, &every) || rwkv7_layer(l, y)) return -1;
  y->mixer = &part_rwkv6;
  y->halved = every && (y->index + 1) % every == 0;
  return 0;
}

// Derived from Qwen 2: only attention is replaced by another mixer.
static int arwkv7_layer(loader *l, layer *y) {
  (void)l;
  y->mixer = &part_rwkv7;
  return 0;
}

static int rwkv6qwen2_layer(loader *l, layer *y) {
  (void)l;
  y->mixer = &part_rwkv6;
  return 0;
}

static int mamba2_layer(loader *l, layer *y) {
  (void)l;
  y->mixer = &part_mamba2;
  y->ff = NULL;
  return 0;
}

static int mamba_layer(loader *l, layer *y) {
  (void)l;
  y->mixer = &part_mamba;
  y->ff = NULL;
  return 0;
}

static int jamba_layer(loader *l, layer *y) {
  if (!y->n_kv) y->mixer = &part_mamba;
  return experts_if_routed(l, y);
}

static int lfm2moe_layer(loader *l, layer *y) {
  if (dense_first(l, y) || lfm2_layer(l, y)) return -1;
  y->moe.norm = true;
  return 0;
}

static int falcon_h1_layer(loader *l, layer *y) {
  (void)l;
  y->mixer = &part_attention_and_mamba2;
  return 0;
}

static int nemotron_h_moe_layer(loader *l, layer *y) {
  nemotron_h_layer(l, y);
  if (y->ff) y->ff = &part_moe;
  y->moe.gating = GATING_SIGMOID;
  return 0;
}

static int plamo2_layer(loader *l, layer *y) {
  (void)l;
  if (!y->n_kv) y->mixer = &part_plamo_mamba;
  return 0;
}

const arch arch_recurrent[] = {
  {.name = "granitehybrid", .flags = ARCH_LOGITS_DIVIDED, .keys = granite, .layer = granitehybrid_layer},
  {.name = "nemotron_h", .flags = ARCH_PLAIN_FFN, .act = ACT_RELU2, .layer = nemotron_h_layer},
  {.name = "qwen3next",
   .flags = QWEN3NEXT | ARCH_DELTA_NEIGHBOURS,
   .has = HAS_SHARED_GATE | HAS_MTP,
   .keys = mtp_find,
   .layer = qwen3next_layer},
  {.name = "qwen35",
   .flags = QWEN3NEXT,
   .has = HAS_MIXED_SECTIONS | HAS_MTP,
   .keys = mtp_find,
   .layer = qwen3next_layer},
  {.name = "qwen35moe",
   .flags = QWEN3NEXT,
   .has = HAS_SHARED_GATE | HAS_MIXED_SECTIONS | HAS_MTP,
   .keys = mtp_find,
   .layer = qwen3next_layer},
  {.name = "lfm2", .flags = ARCH_NEOX | ARCH_QK_NORM, .period = PERIOD_ALL, .keys = lfm2, .layer = lfm2_layer},
  {.name = "lfm2moe", .flags = ARCH_NEOX | ARCH_QK_NORM, .has = HAS_PROBS_BIAS, .keys = lfm2, .layer = lfm2moe_layer},
  {.name = "minimax-01", .carries_norms = true, .flags = ARCH_NEOX, .layer = minimax_01_layer},
  {.name = "mamba", .layer = mamba_layer},
  {.name = "jamba", .has = HAS_SSM_NORMS, .keys = bare_attention, .layer = jamba_layer},
  {.name = "mamba2", .has = HAS_CONV_BIAS, .layer = mamba2_layer},
  {.name = "falcon-h1", .flags = ARCH_NEOX, .layer = falcon_h1_layer},
  {.name = "nemotron_h_moe",
   .mtp_centred = true,
   .flags = ARCH_PLAIN_FFN,
   .has = HAS_PROBS_BIAS | HAS_MTP,
   .act = ACT_RELU2,
   .keys = mtp_find,
   .layer = nemotron_h_moe_layer},
  {.name = "kimi-linear", .has = HAS_HEAD | HAS_PROBS_BIAS, .keys = bare_attention, .layer = kimi_layer},
  {.name = "kimi-k3",
   .flags = ARCH_OUT_GATE,
   .has = HAS_HEAD | HAS_PROBS_BIAS,
   .act = ACT_SITU,
   .keys = kimi_k3,
   .layer = kimi_k3_layer},
  {.name = "bailingmoe3",
   .flags = ARCH_OUT_GATE,
   .has = HAS_PROBS_BIAS | HAS_MTP,
   .keys = mtp_find,
   .layer = bailingmoe3_layer},
  {.name = "glm5-next", .has = HAS_HEAD | HAS_PROBS_BIAS, .keys = glm5_next, .layer = glm5_next_layer},
  {.name = "qwen4exp",
   .flags = ARCH_NEOX | ARCH_QK_NORM | ARCH_GATED_Q | ARCH_NO_PRE_NORMS,
   .has = HAS_SHARED_GATE,
   .keys = qwen4exp,
   .layer = qwen4exp_layer},
  {.name = "rwkv7",
   .flags = ARCH_LAYER_NORM | ARCH_EMBD_NORM,
   .has = HAS_HEAD | HAS_NORM_BIAS,
   .act = ACT_RELU2,
   .keys = bare_attention,
   .layer = rwkv7_layer},
  {.name = "rwkv6",
   .flags = ARCH_LAYER_NORM | ARCH_EMBD_NORM,
   .has = HAS_HEAD | HAS_NORM_BIAS,
   .act = ACT_RELU2,
   .keys = bare_attention,
   .layer = rwkv6_layer},
  {.name = "arwkv7", .has = HAS_HEAD, .keys = bare_attention, .layer = arwkv7_layer},
  {.name = "rwkv6qwen2", .has = HAS_HEAD, .keys = bare_attention, .layer = rwkv6qwen2_layer},
  {.name = "plamo2", .flags = ARCH_NEOX | ARCH_QK_NORM_EACH | ARCH_POST_NORMS, .layer = plamo2_layer},
  {.name = NULL},
};
