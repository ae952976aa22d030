// Rows of the table of architectures (arch.c) that read a text in both directions; encoder.c has their attention. Most
// compute only embeddings; the last ones denoise texts (engine/denoise.c). One has a decoder as well (cross.c).
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <math.h>
#include <stdio.h>
#include "model/arch_impl.h"

// Encoders with post-norms: norms follow the residual additions of attention and feed-forward, and there is none at the
// end.
static int norms_after(loader *l) {
  l->m->output_norm = W_NONE;
  return 0;
}

static int norms_after_layer(loader *l, layer *y) {
  (void)l;
  y->mixer_last = W_ATTN_OUTPUT_NORM;
  y->ff_last = W_LAYER_OUTPUT_NORM;
  return 0;
}

static int nomic_bert_moe_layer(loader *l, layer *y) {
  int step;
  if (key_count_or(l, "moe_every_n_layers", 0, 0, MODEL_MAX_LAYERS, &step)) return -1;
  if (step && y->index % step == 1) y->ff = &part_moe;
  return norms_after_layer(l, y);
}

static int jina_bert_v2(loader *l) { return leans(l, 8) || norms_after(l) ? -1 : 0; }

// Some have a second norm after attention.
static int jina_bert_v2_layer(loader *l, layer *y) {
  char name[64];
  snprintf(name, sizeof name, "blk.%d.attn_norm_2.weight", y->block);
  if (gguf_tensor_find(l->f, name)) y->mixer_again = W_ATTN_NORM_2;
  return norms_after_layer(l, y);
}

// The embedding is normed, and the first layer reads the result without another norm.
static int modern_bert_layer(loader *l, layer *y) {
  (void)l;
  if (!y->index) y->mixer_norm = W_NONE;
  return 0;
}

static int neo_bert(loader *l) {
  l->m->output_norm = W_ENC_OUTPUT_NORM;
  return 0;
}

// Scores are not divided by the root of the head size. Older files have no gate.
static int t5_encoder(loader *l) {
  model *m = l->m;
  m->output_norm = W_ENC_OUTPUT_NORM;
  m->no_rope = true;
  if (m->attention_scale == 0) m->attention_scale = 1;
  if (!has_key(l, "hidden_activation") && !gguf_tensor_find(l->f, "enc.blk.0.ffn_gate.weight")) m->act = ACT_RELU;
  return distances_load(l);
}

// With a decoder. If the head is the embedding matrix, its input is divided by the root of n_embd.
static int t5(loader *l) {
  model *m = l->m;
  if (source_keys(l) || t5_encoder(l)) return -1;
  m->output_norm = W_DEC_OUTPUT_NORM;
  if (!gguf_tensor_find(l->f, "output.weight")) m->logit_scale /= sqrt((double)m->n_embd);
  return 0;
}

static int t5_both_layers(loader *l, layer *y) {
  bool encoder = y->index >= l->m->n_layer;
  y->blocks = encoder ? "enc." : "dec.";
  y->mixer = encoder ? &part_t5_attention : &part_t5_decoder;
  y->cross = encoder ? NULL : &part_cross_attention;
  return 0;
}

static int t5_layer(loader *l, layer *y) {
  (void)l;
  y->mixer = &part_t5_attention;
  return 0;
}

static int gemma_embedding(loader *l) {
  l->m->base_swa = 10000;
  return gemma(l);
}

enum {
  BERT = ARCH_LAYER_NORM | ARCH_NO_PRE_NORMS | ARCH_EMBD_NORM,
  MODERN_BERT = ARCH_LAYER_NORM | ARCH_EMBD_NORM | ARCH_NEOX | ARCH_GLOBAL_FIRST
};
enum {
  JINA_BERT_V2 = BERT | ARCH_QK_NORM_ALL | ARCH_QK_NORM_MAYBE,
  GEMMA_EMBEDDING = ARCH_GEMMA2 | ARCH_QK_NORM | ARCH_SWA_PLAIN_ROPE
};

const arch arch_encoders[] = {
  {.name = "bert",
   .flags = BERT | ARCH_PLAIN_FFN | ARCH_POSITIONS,
   .has = HAS_BIASES,
   .act = ACT_GELU,
   .encoder = true,
   .keys = norms_after,
   .layer = norms_after_layer},
  {.name = "nomic-bert",
   .flags = BERT | ARCH_NEOX,
   .has = HAS_NORM_BIAS,
   .encoder = true,
   .keys = norms_after,
   .layer = norms_after_layer},
  {.name = "nomic-bert-moe",
   .flags = BERT | ARCH_NEOX | ARCH_PLAIN_FFN,
   .has = HAS_NORM_BIAS | HAS_QKV_BIAS | HAS_OUT_BIAS,
   .act = ACT_GELU,
   .encoder = true,
   .keys = norms_after,
   .layer = nomic_bert_moe_layer},
  {.name = "jina-bert-v2",
   .flags = JINA_BERT_V2,
   .has = HAS_NORM_BIAS | HAS_QKV_BIAS | HAS_OUT_BIAS,
   .act = ACT_GELU,
   .encoder = true,
   .keys = jina_bert_v2,
   .layer = jina_bert_v2_layer},
  {.name = "jina-bert-v3",
   .flags = BERT | ARCH_NEOX | ARCH_PLAIN_FFN,
   .has = HAS_BIASES,
   .act = ACT_GELU,
   .encoder = true,
   .keys = norms_after,
   .layer = norms_after_layer},
  {.name = "eurobert", .flags = ARCH_NEOX, .encoder = true},
  {.name = "llama-embed", .encoder = true},
  {.name = "neo-bert", .encoder = true, .keys = neo_bert},
  {.name = "t5encoder",
   .has = HAS_GATE_MAYBE,
   .act = ACT_GELU,
   .blocks = "enc.",
   .encoder = true,
   .keys = t5_encoder,
   .layer = t5_layer},
  {.name = "t5",
   .has = HAS_GATE_MAYBE,
   .act = ACT_GELU,
   .has_source = true,
   .keys = t5,
   .layer = t5_both_layers},
  {.name = "modern-bert",
   .flags = MODERN_BERT,
   .act = ACT_GELU,
   .encoder = true,
   .period = 3,
   .layer = modern_bert_layer},
  {.name = "gemma-embedding",
   .flags = GEMMA_EMBEDDING,
   .act = ACT_GELU,
   .encoder = true,
   .period = 6,
   .keys = gemma_embedding},
  {.name = "dream", .flags = ARCH_NEOX, .has = HAS_QKV_BIAS, .encoder = true, .denoises = true},
  {.name = "llada", .has = HAS_QKV_BIAS_MAYBE, .encoder = true, .denoises = true},
  {.name = "llada-moe",
   .flags = ARCH_NEOX | ARCH_QK_NORM,
   .has = HAS_HEAD,
   .encoder = true,
   .denoises = true,
   .layer = plain_moe},
  {.name = "rnd1", .flags = ARCH_NEOX | ARCH_QK_NORM, .encoder = true, .denoises = true, .layer = all_moe},
  {.name = NULL},
};
