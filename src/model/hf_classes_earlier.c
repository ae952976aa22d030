// Rows of the table of classes (hf_classes.c) for decoders of 2023 and 2024, most of which are Python code in their
// folders: DeepSeek 1, Ling 1, InternLM2, Baichuan, Orion and Qwen 1. Several have queries, keys and values in one
// matrix, which becomes three.
#include <string.h>
#include "model/hf_impl.h"

#define BLOCK "model.layers.*."
static const char config_name[] = "config.json";

static void put_text_key(hf *h, const char *key, const char *text) {
  gguf_head_str(h->head, hf_arch_key(h, key), text, strlen(text));
}

// Sets a value under another name, unless that has one, and removes the first name.
static void move_value(hf *h, const char *from, const char *to) {
  json_t *v = hf_in(h->text, from);
  if (v && !hf_in(h->text, to)) json_object_set(h->text, to, v);
  json_object_del(h->text, from);
}

// One part of a matrix of queries, keys and values: queries of all heads, then keys, then values.
#define PARTS " 1 num_attention_heads num_key_value_heads num_key_value_heads"
#define WOVEN_PARTS(from) \
  {from, "blk.*.attn_q", HF_HEADS_OF | HF_WOVEN_HALVES, "0" PARTS}, \
    {from, "blk.*.attn_k", HF_HEADS_OF | HF_WOVEN_HALVES, "1" PARTS}, {from, "blk.*.attn_v", HF_HEADS_OF, "2" PARTS}

// ---- DeepSeek 1 and Ling 1 ------------------------------------------------------------------------------------------

static const hf_rule deepseek1_rules[] = {
  HF_WOVEN, HF_EXPERTS(BLOCK "mlp"), HF_SHARED_EXPERT(BLOCK "mlp.shared_experts"), {0}};
static const hf_rule ling1_rules[] = {
  {"model.word_embeddings", "token_embd", 0, 0},
  WOVEN_PARTS(BLOCK "attention.query_key_value"),
  {BLOCK "attention.dense", "blk.*.attn_output", 0, 0},
  HF_EXPERTS(BLOCK "mlp"),
  HF_SHARED_EXPERT(BLOCK "mlp.shared_experts"),
  {0},
};
#define MIXTURE_KEYS \
  {"vocab_size", HF_U32, "vocab_size"}, {"leading_dense_block_count", HF_U32, "first_k_dense_replace"}, \
    {"expert_feed_forward_length", HF_U32, "moe_intermediate_size"}
static const hf_key deepseek1_keys[] = {MIXTURE_KEYS, {"expert_shared_count", HF_U32, "n_shared_experts"}, {0}};
static const hf_key ling1_keys[] = {
  MIXTURE_KEYS,
  {"expert_shared_count", HF_U32, "num_shared_experts"},
  {"expert_weights_norm", HF_BOOL, "norm_topk_prob"},
  {0},
};

static int ling1_more(hf *h, error *err) {
  gguf_head_f32(h->head, hf_arch_key(h, "expert_weights_scale"), 1);
  return hf_put_rope_dims(h, 1, err);
}

static int deepseek1_more(hf *h, error *err) {
  put_text_key(h, "rope.scaling.type", "none");
  h->rotation_read = false;
  return ling1_more(h, err);
}

// ---- InternLM2 ------------------------------------------------------------------------------------------------------

// A group has its queries, then its key, then its value.
#define GROUPS " num_key_value_heads num_attention_heads num_key_value_heads num_key_value_heads"
static const hf_rule internlm2_rules[] = {
  {"model.tok_embeddings", "token_embd", 0, 0},
  {"output", "output", 0, 0},
  {BLOCK "attention_norm", "blk.*.attn_norm", 0, 0},
  {BLOCK "ffn_norm", "blk.*.ffn_norm", 0, 0},
  {BLOCK "attention.wqkv", "blk.*.attn_q", HF_HEADS_OF | HF_WOVEN_HALVES, "0" GROUPS},
  {BLOCK "attention.wqkv", "blk.*.attn_k", HF_HEADS_OF | HF_WOVEN_HALVES, "1" GROUPS},
  {BLOCK "attention.wqkv", "blk.*.attn_v", HF_HEADS_OF, "2" GROUPS},
  {BLOCK "attention.wo", "blk.*.attn_output", 0, 0},
  {BLOCK "feed_forward.w1", "blk.*.ffn_gate", 0, 0},
  {BLOCK "feed_forward.w2", "blk.*.ffn_down", 0, 0},
  {BLOCK "feed_forward.w3", "blk.*.ffn_up", 0, 0},
  {0},
};

// Scaling that depends on the length begins beyond the context that the file has.
static int internlm2_more(hf *h, error *err) {
  const char *type = hf_rope_type(h);
  (void)err;
  if (type && !strcmp(type, "dynamic")) h->rotation_read = true;
  return 0;
}

// ---- Baichuan and Orion ---------------------------------------------------------------------------------------------

static const char layout[] = "Meta AI original pth";
static const hf_rule baichuan_rules[] = {WOVEN_PARTS(BLOCK "self_attn.W_pack"), {0}};
// Version 2 divides each row of the head by its length.
static const hf_rule baichuan2_rules[] = {
  WOVEN_PARTS(BLOCK "self_attn.W_pack"), {"lm_head", "output", HF_UNIT_ROWS, 0}, {0}};
static const hf_key orion_keys[] = {
  {"context_length", HF_U32, "max_sequence_length max_position_embeddings model_max_length"}, {0}};

static int baichuan_more(hf *h, error *err) {
  put_text_key(h, "tensor_data_layout", layout);
  return hf_put_rope_dims(h, 1, err);
}

// Only the size of its vocabulary tells version 2 from version 1.
static int prepare_baichuan(hf *h, error *err) {
  enum { OF_VERSION_2 = 125696 };
  uint32_t n;
  bool found;
  if (hf_u32(h, "vocab_size", &n, &found, err)) return -1;
  if (!found || n != OF_VERSION_2) return 0;
  hf_class *version2 = ARENA_NEW(h->arena, hf_class);
  *version2 = *h->class;
  version2->rules = baichuan2_rules;
  h->class = version2;
  return 0;
}

// Folders call the epsilon that of RMS norms, but norms subtract the mean.
static int prepare_orion(hf *h, error *err) {
  (void)err;
  move_value(h, "rms_norm_eps", "layer_norm_eps");
  return 0;
}

static int orion_more(hf *h, error *err) {
  (void)err;
  put_text_key(h, "tensor_data_layout", layout);
  return 0;
}

// ---- Qwen 1 ---------------------------------------------------------------------------------------------------------

#define QWEN_LAYER "h.*."
static const hf_rule qwen1_rules[] = {
  {"wte", "token_embd", 0, 0},
  {"ln_f", "output_norm", 0, 0},
  {QWEN_LAYER "ln_1", "blk.*.attn_norm", 0, 0},
  {QWEN_LAYER "ln_2", "blk.*.ffn_norm", 0, 0},
  {QWEN_LAYER "attn.c_attn", "blk.*.attn_qkv", 0, 0},
  {QWEN_LAYER "attn.c_proj", "blk.*.attn_output", 0, 0},
  {QWEN_LAYER "mlp.w1", "blk.*.ffn_up", 0, 0},
  {QWEN_LAYER "mlp.w2", "blk.*.ffn_gate", 0, 0},
  {QWEN_LAYER "mlp.c_proj", "blk.*.ffn_down", 0, 0},
  {"rotary_emb.inv_freq", NULL, HF_SKIP, 0},
  {0},
};

// Folders call the epsilon of the norms, which are RMS norms, by another name. kv_channels is the size of a head.
static int prepare_qwen1(hf *h, error *err) {
  uint32_t size, width, heads;
  bool found;
  move_value(h, "layer_norm_epsilon", "rms_norm_eps");
  if (!hf_in(h->text, "rms_norm_eps")) json_object_set_new(h->text, "rms_norm_eps", json_real(1e-6));
  if (hf_need_u32(h, "hidden_size", &width, err) || hf_need_u32(h, "num_attention_heads", &heads, err) ||
      hf_u32(h, "kv_channels", &size, &found, err))
    return -1;
  if (!found || (uint64_t)size * heads == width) return 0;
  return hf_fail(h, config_name, "kv_channels", err, "%u is not hidden_size divided by num_attention_heads", size);
}

// ---- the rows -------------------------------------------------------------------------------------------------------

#define SILU "hidden_act=silu"
const hf_class hf_classes_earlier[] = {
  {.name = "DeepseekForCausalLM",
   .arch = "deepseek",
   .needs = "first_k_dense_replace n_shared_experts moe_intermediate_size",
   .musts = SILU " attention_bias=false mlp_bias=false norm_topk_prob=false moe_layer_freq=1 scoring_func=softmax",
   .defaults = "{\"rms_norm_eps\":1e-6,\"rope_theta\":10000.0}",
   .keys = deepseek1_keys,
   .rules = deepseek1_rules,
   .more = deepseek1_more},
  {.name = "BailingMoeForCausalLM",
   .arch = "bailingmoe",
   .needs = "first_k_dense_replace num_shared_experts moe_intermediate_size norm_topk_prob",
   .musts = SILU " use_bias=false use_qkv_bias=false norm_head=false multi_gate=false",
   .defaults = "{\"rms_norm_eps\":1e-6,\"rope_theta\":10000.0}",
   .keys = ling1_keys,
   .rules = ling1_rules,
   .more = ling1_more},
  {.name = "InternLM2ForCausalLM",
   .arch = "internlm2",
   .vocab = HF_VOCAB_INTERNLM2,
   .own_scaling = true,
   .musts = SILU " bias=false",
   .defaults = "{\"rms_norm_eps\":1e-6,\"rope_theta\":10000.0}",
   .rules = internlm2_rules,
   .more = internlm2_more},
  {.name = "BaichuanForCausalLM",
   .arch = "baichuan",
   .musts = SILU,
   .defaults = "{\"rms_norm_eps\":1e-6}",
   .prepare = prepare_baichuan,
   .rules = baichuan_rules,
   .more = baichuan_more},
  {.name = "BaiChuanForCausalLM", .like = "BaichuanForCausalLM"},             // the class's first name
  {.name = "OrionForCausalLM",
   .arch = "orion",
   .musts = SILU " attention_bias=false",
   .defaults = "{\"layer_norm_eps\":1e-5}",
   .prepare = prepare_orion,
   .keys = orion_keys,
   .more = orion_more},
  {.name = "QWenLMHeadModel",
   .arch = "qwen",
   .under = "transformer.",
   .vocab = HF_VOCAB_QWEN,
   .musts = "scale_attn_weights=true no_bias=true rotary_pct=1",
   .prepare = prepare_qwen1,
   .rules = qwen1_rules},
  {0},
};
