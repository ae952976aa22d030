// Rows of the table of classes (hf_classes.c): Ministral 3, LFM2, HunYuan, Command R7B and StarCoder 2.
#include <math.h>
#include <string.h>
#include "model/hf_impl.h"

#define BLOCK "model.layers.*."
static const char config_name[] = "config.json";

// ---- Ministral 3 ----------------------------------------------------------------------------------------------------

static const hf_rule ministral_rules[] = {HF_WOVEN, {0}};
static const hf_key vocab_keys[] = {{"vocab_size", HF_U32, "vocab_size"}, {0}};

// Long contexts: YaRN's weight of the logarithm, and the temperature scale of queries.
static int ministral_more(hf *h, error *err) {
  double log_weight, warmer;
  bool found, found_warmer;
  if (hf_rope_number(h, "mscale_all_dim", NULL, &log_weight, &found, err) ||
      hf_rope_number(h, "llama_4_scaling_beta", NULL, &warmer, &found_warmer, err))
    return -1;
  if (found) gguf_head_f32(h->head, hf_arch_key(h, "rope.scaling.yarn_log_multiplier"), (float)log_weight);
  if (found_warmer) gguf_head_f32(h->head, hf_arch_key(h, "attention.temperature_scale"), (float)warmer);
  return hf_llama_more(h, err);
}

// ---- LFM2 -----------------------------------------------------------------------------------------------------------

#define LFM2 \
  {"model.embedding_norm", "token_embd_norm", 0, 0}, {BLOCK "operator_norm", "blk.*.attn_norm", 0, 0}, \
    {BLOCK "ffn_norm", "blk.*.ffn_norm", 0, 0}, {BLOCK "conv.conv", "blk.*.shortconv.conv", HF_SQUEEZED, 0}, \
    {BLOCK "conv.in_proj", "blk.*.shortconv.in_proj", 0, 0}, \
    {BLOCK "conv.out_proj", "blk.*.shortconv.out_proj", 0, 0}, \
    {BLOCK "self_attn.out_proj", "blk.*.attn_output", 0, 0}, \
    {BLOCK "self_attn.q_layernorm", "blk.*.attn_q_norm", 0, 0}, \
    {BLOCK "self_attn.k_layernorm", "blk.*.attn_k_norm", 0, 0}, {BLOCK "feed_forward.w1", "blk.*.ffn_gate", 0, 0}, \
    {BLOCK "feed_forward.w2", "blk.*.ffn_down", 0, 0}, {BLOCK "feed_forward.w3", "blk.*.ffn_up", 0, 0}
static const hf_rule lfm2_rules[] = {LFM2, {0}};
static const hf_rule lfm2moe_rules[] = {
  LFM2,
  {BLOCK "feed_forward.gate", "blk.*.ffn_gate_inp", 0, 0},
  {BLOCK "feed_forward.expert_bias", "blk.*.exp_probs_b.bias", 0, 0},
  {BLOCK "feed_forward.experts.#.w1", "blk.*.ffn_gate_exps", HF_STACK, 0},
  {BLOCK "feed_forward.experts.#.w2", "blk.*.ffn_down_exps", HF_STACK, 0},
  {BLOCK "feed_forward.experts.#.w3", "blk.*.ffn_up_exps", HF_STACK, 0},
  {0},
};
static const hf_key lfm2moe_keys[] = {
  {"vocab_size", HF_U32, "vocab_size"},
  {"shortconv.l_cache", HF_U32, "conv_L_cache"},
  {"expert_feed_forward_length", HF_U32, "moe_intermediate_size"},
  {"leading_dense_block_count", HF_U32, "num_dense_layers"},
  {0},
};
static const hf_key lfm2_keys[] = {
  {"vocab_size", HF_U32, "vocab_size"},
  {"shortconv.l_cache", HF_U32, "conv_L_cache"},
  {0},
};

// Sets the key heads of each layer: none for a convolution.
static int put_layers_with_heads(hf *h, error *err) {
  static const char key[] = "layer_types";
  uint32_t heads, n;
  const json_t *types = json_object_get(h->text, key);
  if (hf_need_u32(h, "num_key_value_heads", &heads, err) || hf_need_u32(h, "num_hidden_layers", &n, err)) return -1;
  if (n > HF_LAYERS_MOST || heads > INT32_MAX || json_array_size(types) != n)
    return hf_fail(h, config_name, key, err, "is not a list of %u layers, of %d at most", n, HF_LAYERS_MOST);
  int32_t *each = ARENA_ARRAY(h->arena, int32_t, n);
  for (uint32_t i = 0; i < n; i++) {
    const char *type = json_string_value(json_array_get(types, i));
    bool conv = type && !strcmp(type, "conv");
    if (!conv && (!type || strcmp(type, "full_attention")))
      return hf_fail(h, config_name, key, err, "has '%.40s'", type ? type : "what is no text");
    each[i] = conv ? 0 : (int32_t)heads;
  }
  gguf_head_i32s(h->head, hf_arch_key(h, "attention.head_count_kv"), each, n);
  return 0;
}

// Sets the width of the dense part: two thirds of the given one, times a factor, rounded up to a multiple.
static int put_width(hf *h, error *err) {
  uint32_t width, of = 256;
  double times = 1;
  bool found;
  const char *name;
  if (hf_need_u32(h, "block_ff_dim intermediate_size", &width, err) ||
      hf_u32(h, "block_multiple_of", &of, &found, err) || hf_f64(h, "block_ffn_dim_multiplier", &times, &found, err))
    return -1;
  if (width > INT32_MAX / 2 || !of || of > INT32_MAX / 2 || !(times > 0 && times <= 16))
    return hf_fail(h, config_name, "block_ff_dim", err,
                   "%u, block_ffn_dim_multiplier %g and block_multiple_of %u give no width", width, times, of);
  if (!json_is_false(hf_value(h, "block_auto_adjust_ff_dim", &name))) {
    uint64_t n = (uint64_t)(times * (2 * width / 3));
    width = (uint32_t)((n + of - 1) / of * of);
  }
  gguf_head_u32(h->head, hf_arch_key(h, "feed_forward_length"), width);
  return 0;
}

static int lfm2_more(hf *h, error *err) { return put_layers_with_heads(h, err) || put_width(h, err) ? -1 : 0; }

static int lfm2moe_more(hf *h, error *err) {
  gguf_head_u32(h->head, hf_arch_key(h, "expert_gating_func"), 2);
  return put_layers_with_heads(h, err);
}

// ---- HunYuan --------------------------------------------------------------------------------------------------------

static const hf_rule hunyuan_rules[] = {
  {BLOCK "self_attn.query_layernorm", "blk.*.attn_q_norm", 0, 0},
  {BLOCK "self_attn.key_layernorm", "blk.*.attn_k_norm", 0, 0},
  {0},
};

// A factor of the base of rotation stands for a context of 256k, which config.json does not say.
static int hunyuan_more(hf *h, error *err) {
  enum { LONG = 256 * 1024 };
  double alpha = 50, base = 10000;
  uint32_t size;
  bool found;
  const json_t *rope = hf_rope(h);
  const char *type =
    json_string_value(json_object_get(rope, json_object_get(rope, "rope_type") ? "rope_type" : "type"));
  if (!type || !strcmp(type, "default")) return 0;
  if (strcmp(type, "dynamic")) return hf_fail(h, config_name, "rope_type", err, "'%.40s' is not dynamic", type);
  if (hf_need_u32(h, "head_dim", &size, err) || hf_rope_number(h, "alpha", NULL, &alpha, &found, err) ||
      hf_rope_number(h, "rope_theta", "rope_theta", &base, &found, err))
    return -1;
  if (size < 3 || !(alpha > 0))
    return hf_fail(h, config_name, "alpha", err, "%g and head_dim %u give no base", alpha, size);
  gguf_head_f32(h->head, hf_arch_key(h, "rope.freq_base"), (float)(base * pow(alpha, (double)size / (size - 2))));
  gguf_head_str(h->head, hf_arch_key(h, "rope.scaling.type"), "none", 4);
  gguf_head_f32(h->head, hf_arch_key(h, "rope.scaling.factor"), 1);
  gguf_head_u32(h->head, hf_arch_key(h, "rope.scaling.original_context_length"), LONG);
  gguf_head_u32(h->head, hf_arch_key(h, "context_length"), LONG);
  return 0;
}

// ---- Command R7B ----------------------------------------------------------------------------------------------------

static const hf_key cohere2_keys[] = {
  {"logit_scale", HF_F32_KEY, "logit_scale"},
  {"attention.sliding_window", HF_U32, "sliding_window"},
  {"vocab_size", HF_U32, "vocab_size"},
  {0},
};

static int cohere2_more(hf *h, error *err) {
  gguf_head_str(h->head, hf_arch_key(h, "rope.scaling.type"), "none", 4);
  return hf_check_layers(h, 4, err);
}

// ---- StarCoder 2 ----------------------------------------------------------------------------------------------------

static const hf_rule starcoder2_rules[] = {
  {BLOCK "mlp.c_fc", "blk.*.ffn_up", 0, 0},
  {BLOCK "mlp.c_proj", "blk.*.ffn_down", 0, 0},
  {0},
};
static const hf_key starcoder2_keys[] = {{"attention.sliding_window", HF_U32, "sliding_window"}, {0}};

// ---- the rows -------------------------------------------------------------------------------------------------------

#define MINISTRAL(class_, seeing_) \
  {.name = class_, .arch = "mistral3", .musts = "hidden_act=silu sliding_window=none", .vocab = HF_VOCAB_LLAMA, \
   .seeing = seeing_, .defaults = "{\"rms_norm_eps\":1e-5,\"rope_theta\":1000000.0}", .head_dim = true, \
   .keys = vocab_keys, .rules = ministral_rules, .more = ministral_more}
const hf_class hf_classes_more[] = {
  MINISTRAL("Ministral3ForCausalLM", false),
  MINISTRAL("Mistral3ForConditionalGeneration", true),
  {.name = "Lfm2ForCausalLM",
   .arch = "lfm2",
   .musts = "conv_bias=false",
   .defaults = "{\"norm_eps\":1e-5,\"rope_theta\":1000000.0,\"conv_L_cache\":3}",
   .keys = lfm2_keys,
   .rules = lfm2_rules,
   .more = lfm2_more},
  {.name = "Lfm2MoeForCausalLM",
   .arch = "lfm2moe",
   .musts = "conv_bias=false norm_topk_prob=true use_expert_bias=true routed_scaling_factor=1",
   .defaults = "{\"norm_eps\":1e-5,\"rope_theta\":1000000.0,\"conv_L_cache\":3,\"num_dense_layers\":2}",
   .keys = lfm2moe_keys,
   .rules = lfm2moe_rules,
   .more = lfm2moe_more},
  {.name = "HunYuanDenseV1ForCausalLM",
   .arch = "hunyuan-dense",
   .vocab = HF_VOCAB_HUNYUAN,
   .own_scaling = true,
   .head_dim = true,
   .musts = "hidden_act=silu attention_bias=false",
   .defaults = "{\"rms_norm_eps\":1e-5,\"rope_theta\":10000.0}",
   .rules = hunyuan_rules,
   .more = hunyuan_more},
  {.name = "Cohere2ForCausalLM",
   .arch = "cohere2",
   .musts = "hidden_act=silu attention_bias=false sliding_window_pattern=4",
   .defaults =
     "{\"layer_norm_eps\":1e-5,\"rope_theta\":10000.0,\"logit_scale\":0.0625,\"sliding_window\":4096}",
   .rotated = 1,
   .keys = cohere2_keys,
   .more = cohere2_more},
  {.name = "Starcoder2ForCausalLM",
   .arch = "starcoder2",
   .musts = "hidden_act=gelu_pytorch_tanh use_bias=true norm_type=layer_norm",
   .defaults = "{\"norm_epsilon\":1e-5,\"rope_theta\":10000.0}",
   .keys = starcoder2_keys,
   .rules = starcoder2_rules},
  {0},
};
