// Rows of the table of classes (hf_classes.c): Ministral 3, LFM2, HunYuan, MiniCPM, Jais 2, HRM, Command R7B,
// EXAONE 3, StarCoder and StarCoder 2.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "model/hf_impl.h"

#define BLOCK "model.layers.*."
static const char config_name[] = "config.json";

// ---- Ministral 3 ----------------------------------------------------------------------------------------------------

static const hf_rule ministral_rules[] = {HF_WOVEN, {0}};
static const hf_key vocab_keys[] = {{"vocab_size", HF_U32, "vocab_size"}, {0}};

// Long contexts: YaRN's weight of the logarithm (files have one) and the temperature scale of queries.
static int ministral_more(hf *h, error *err) {
  double log_weight, own = 0, warmer;
  bool found, found_own, found_warmer;
  if (hf_rope_number(h, "mscale_all_dim", NULL, &log_weight, &found, err) ||
      hf_rope_number(h, "mscale", NULL, &own, &found_own, err) ||
      hf_rope_number(h, "llama_4_scaling_beta", NULL, &warmer, &found_warmer, err))
    return -1;
  if (found && own != log_weight)
    return hf_fail(h, config_name, "mscale", err, "is not mscale_all_dim, but files of %s have one key for both",
                   h->class->arch);
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
  {BLOCK "feed_forward.expert_bias", "blk.*.exp_probs_b.bias", 0, 0},
  HF_EXPERTS_W(BLOCK "feed_forward"),
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

// A layer attends, or is a convolution.
static int put_layers_with_heads(hf *h, error *err) {
  hf_layers y;
  if (hf_read_layers(h, "layer_types", "full_attention conv", true, &y, err)) return -1;
  return hf_put_heads_of_layers(h, &y, 0, err);
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

#define HUNYUAN \
  {BLOCK "self_attn.query_layernorm", "blk.*.attn_q_norm", 0, 0}, \
    {BLOCK "self_attn.key_layernorm", "blk.*.attn_k_norm", 0, 0}
static const hf_rule hunyuan_rules[] = {HUNYUAN, {0}};
static const hf_rule hunyuan_moe_rules[] = {
  HUNYUAN,
  {BLOCK "mlp.gate.wg", "blk.*.ffn_gate_inp", 0, 0},
  HF_EXPERTS(BLOCK "mlp"),
  HF_SHARED_EXPERT(BLOCK "mlp.shared_mlp"),
  {0},
};
static const hf_key hunyuan_moe_keys[] = {
  {"expert_used_count", HF_U32, "moe_topk num_experts_per_tok"},
  {"expert_shared_count", HF_U32, "num_shared_expert"},
  {"expert_feed_forward_length", HF_U32, "moe_intermediate_size"},
  {"expert_shared_feed_forward_length", HF_U32, "intermediate_size"},
  {0},
};

// Numbers of experts may be lists with one number per layer. In published folders these are equal.
static int prepare_hunyuan_moe(hf *h, error *err) {
  static const char *const keys[] = {"num_experts", "moe_topk", "num_shared_expert", "moe_intermediate_size"};
  for (size_t k = 0; k < COUNT(keys); k++) {
    json_t *list = json_object_get(h->text, keys[k]), *v;
    size_t i;
    json_array_foreach(list, i, v)
      if (!json_equal(v, json_array_get(list, 0)))
        return hf_fail(h, config_name, keys[k], err, "differs between layers");
    if (json_array_size(list)) json_object_set(h->text, keys[k], json_array_get(list, 0));
  }
  if (!hf_in(h->text, "moe_intermediate_size"))
    json_object_set(h->text, "moe_intermediate_size", json_object_get(h->text, "intermediate_size"));
  return 0;
}

// A factor of the base of rotation stands for a context of 256k, which config.json does not say.
static int hunyuan_more(hf *h, error *err) {
  enum { LONG = 256 * 1024 };
  double alpha, base = 10000;
  uint32_t size;
  bool found, found_alpha;
  const json_t *rope = hf_rope(h);
  const char *type =
    json_string_value(json_object_get(rope, hf_in(rope, "rope_type") ? "rope_type" : "type"));
  if (!type || !strcmp(type, "default")) return 0;
  if (strcmp(type, "dynamic")) return hf_fail(h, config_name, "rope_type", err, "'%.40s' is not dynamic", type);
  if (hf_need_u32(h, "head_dim", &size, err) || hf_rope_number(h, "alpha", NULL, &alpha, &found_alpha, err) ||
      hf_rope_number(h, "rope_theta", "rope_theta", &base, &found, err))
    return -1;
  if (!found_alpha)
    return hf_fail(h, config_name, "alpha", err, "is missing, and scaling by the length of a context is not known");
  if (size < 3 || !(alpha > 0))
    return hf_fail(h, config_name, "alpha", err, "%g and head_dim %u give no base", alpha, size);
  gguf_head_f32(h->head, hf_arch_key(h, "rope.freq_base"), (float)(base * pow(alpha, (double)size / (size - 2))));
  gguf_head_str(h->head, hf_arch_key(h, "rope.scaling.type"), "none", 4);
  h->rotation_read = true;
  gguf_head_f32(h->head, hf_arch_key(h, "rope.scaling.factor"), 1);
  gguf_head_u32(h->head, hf_arch_key(h, "rope.scaling.original_context_length"), LONG);
  gguf_head_u32(h->head, hf_arch_key(h, "context_length"), LONG);
  return 0;
}

// ---- EXAONE 3 and StarCoder -----------------------------------------------------------------------------------------

#define EXAONE_LAYER "transformer.h.*."
static const hf_rule exaone3_rules[] = {
  {"transformer.wte", "token_embd", 0, 0},
  {"transformer.ln_f", "output_norm", 0, 0},
  {EXAONE_LAYER "ln_1", "blk.*.attn_norm", 0, 0},
  {EXAONE_LAYER "ln_2", "blk.*.ffn_norm", 0, 0},
  {EXAONE_LAYER "attn.attention.q_proj", "blk.*.attn_q", 0, 0},
  {EXAONE_LAYER "attn.attention.k_proj", "blk.*.attn_k", 0, 0},
  {EXAONE_LAYER "attn.attention.v_proj", "blk.*.attn_v", 0, 0},
  {EXAONE_LAYER "attn.attention.out_proj", "blk.*.attn_output", 0, 0},
  {EXAONE_LAYER "attn.rotary.inv_freq", NULL, HF_SKIP, 0},
  {EXAONE_LAYER "mlp.c_fc_0", "blk.*.ffn_gate", 0, 0},
  {EXAONE_LAYER "mlp.c_fc_1", "blk.*.ffn_up", 0, 0},
  {EXAONE_LAYER "mlp.c_proj", "blk.*.ffn_down", 0, 0},
  {0},
};

// Folders call the epsilon of the norms, which are RMS norms, by another name.
static int prepare_exaone3(hf *h, error *err) {
  json_t *eps = hf_in(h->text, "layer_norm_epsilon");
  (void)err;
  if (eps && !hf_in(h->text, "rms_norm_eps")) json_object_set(h->text, "rms_norm_eps", eps);
  if (!hf_in(h->text, "rms_norm_eps")) json_object_set_new(h->text, "rms_norm_eps", json_real(1e-5));
  json_object_del(h->text, "layer_norm_epsilon");
  return 0;
}

static int exaone3_more(hf *h, error *err) { return hf_put_rotated(h, 1, err) || hf_put_llama3(h, err) ? -1 : 0; }

// All heads of queries have one of keys and values.
static const hf_rule starcoder_rules[] = {
  {EXAONE_LAYER "attn.bias", NULL, HF_SKIP, 0},
  {EXAONE_LAYER "attn.masked_bias", NULL, HF_SKIP, 0},
  {"transformer.wte", "token_embd", 0, 0},
  {"transformer.wpe", "position_embd", 0, 0},
  {"transformer.ln_f", "output_norm", 0, 0},
  {EXAONE_LAYER "ln_1", "blk.*.attn_norm", 0, 0},
  {EXAONE_LAYER "ln_2", "blk.*.ffn_norm", 0, 0},
  {EXAONE_LAYER "attn.c_attn", "blk.*.attn_qkv", 0, 0},
  {EXAONE_LAYER "attn.c_proj", "blk.*.attn_output", 0, 0},
  {EXAONE_LAYER "mlp.c_fc", "blk.*.ffn_up", 0, 0},
  {EXAONE_LAYER "mlp.c_proj", "blk.*.ffn_down", 0, 0},
  {0},
};

// ---- MiniCPM --------------------------------------------------------------------------------------------------------

// Reads a scale. null: the one that changes nothing.
static int read_scale(hf *h, const char *from, double usual, double neutral, double *out, error *err) {
  const json_t *v = json_object_get(h->text, from);
  bool found;
  *out = json_is_null(v) && v ? neutral : usual;
  if (hf_f64(h, from, out, &found, err)) return -1;
  return *out > 0 ? 0 : hf_fail(h, config_name, from, err, "%g is not positive", *out);
}

// The scales of all MiniCPM models.
typedef struct minicpm_scales { double embedding, residual, logit, depth, base; } minicpm_scales;

static int read_minicpm_scales(hf *h, minicpm_scales *s, error *err) {
  uint32_t width;
  if (hf_need_u32(h, "hidden_size", &width, err) || read_scale(h, "scale_emb", 12, 1, &s->embedding, err) ||
      read_scale(h, "scale_depth", 1.4, sqrt(h->n_layers), &s->depth, err) ||
      read_scale(h, "dim_model_base", 256, width, &s->base, err))
    return -1;
  s->residual = s->depth / sqrt(h->n_layers);
  s->logit = width / s->base;
  return 0;
}

static const hf_rule minicpm_rules[] = {HF_WOVEN, {0}};

static int minicpm_more(hf *h, error *err) {
  minicpm_scales s;
  uint32_t size;
  const char *type = hf_rope_type(h);
  if (read_minicpm_scales(h, &s, err) || hf_head_size(h, &size, err)) return -1;
  gguf_head_f32(h->head, hf_arch_key(h, "embedding_scale"), (float)s.embedding);
  gguf_head_f32(h->head, hf_arch_key(h, "residual_scale"), (float)s.residual);
  gguf_head_f32(h->head, hf_arch_key(h, "logit_scale"), (float)s.logit);
  if (type && (!strcmp(type, "longrope") || !strcmp(type, "su")))
    gguf_head_str(h->head, hf_arch_key(h, "rope.scaling.type"), "longrope", 8);
  return hf_put_longrope(h, size, err);
}

// ---- MiniCPM 3 and Jais 2 -------------------------------------------------------------------------------------------

// Scales have keys if they are others than the published model's, which files without keys mean. Files have the matrix
// that makes keys and values as one.
static const hf_rule minicpm3_rules[] = {
  HF_SMALL_VECTORS(BLOCK "self_attn"), {BLOCK "self_attn.kv_b_proj", "blk.*.attn_kv_b", 0, 0}, {0}};
static const hf_key minicpm3_keys[] = {
  {"vocab_size", HF_U32, "vocab_size"},
  {"attention.q_lora_rank", HF_U32, "q_lora_rank"},
  {"attention.kv_lora_rank", HF_U32, "kv_lora_rank"},
  {"rope.dimension_count", HF_U32, "qk_rope_head_dim"},
  {0},
};

static int prepare_minicpm3(hf *h, error *err) {
  (void)err;
  json_object_del(h->text, "head_dim");          // that of rotation
  return 0;
}

static int minicpm3_more(hf *h, error *err) {
  uint32_t plain, turned;
  minicpm_scales s;
  if (hf_need_u32(h, "qk_nope_head_dim", &plain, err) || hf_need_u32(h, "qk_rope_head_dim", &turned, err) ||
      read_minicpm_scales(h, &s, err))
    return -1;
  if (hf_put_computed(h, "attention.key_length", (uint64_t)plain + turned, "qk_nope_head_dim", err)) return -1;
  if (s.embedding != 12) gguf_head_f32(h->head, hf_arch_key(h, "embedding_scale"), (float)s.embedding);
  if (s.depth != 1.4) gguf_head_f32(h->head, hf_arch_key(h, "residual_scale"), (float)s.residual);
  if (s.base != 256) gguf_head_f32(h->head, hf_arch_key(h, "logit_scale"), (float)s.logit);
  return hf_put_longrope(h, turned, err);
}

// ---- HRM ------------------------------------------------------------------------------------------------------------

// Two stacks of layers, which run several times. In files the layers of H come after those of L.
#define FOUR(n) n "/4"
static const hf_rule hrm_rules[] = {
  {"model.z_L_init", "hrm.z_l_init", 0, 0},
  {BLOCK "attn.gqkv_proj", "blk.*.attn_gate", HF_PART, FOUR("0")},
  {BLOCK "attn.gqkv_proj", "blk.*.attn_q", HF_PART, FOUR("1")},
  {BLOCK "attn.gqkv_proj", "blk.*.attn_k", HF_PART, FOUR("2")},
  {BLOCK "attn.gqkv_proj", "blk.*.attn_v", HF_PART, FOUR("3")},
  {BLOCK "attn.o_proj", "blk.*.attn_output", 0, 0},
  {BLOCK "mlp.gate_up_proj", "blk.*.ffn_gate", HF_PART, "0/2"},
  {BLOCK "mlp.gate_up_proj", "blk.*.ffn_up", HF_PART, "1/2"},
  {0},
};
static const hf_key hrm_keys[] = {
  {"embedding_scale", HF_F32_KEY, "embedding_scale"},
  {"hrm.layers_per_stack", HF_U32, "num_layers_per_stack"},
  {"hrm.h_cycles", HF_U32, "H_cycles"},
  {"hrm.l_cycles", HF_U32, "L_cycles"},
  {"hrm.prefix_lm", HF_BOOL, "prefix_lm"},
  {0},
};

static const char *rename_hrm(const hf *h, const char *name) {
  static const char low[] = "model.L_module.layers.", high[] = "model.H_module.layers.";
  const char *from = !strncmp(name, low, strlen(low)) ? low : !strncmp(name, high, strlen(high)) ? high : NULL, *key;
  if (!from) return name;
  const char *digits = name + strlen(from);
  size_t n = strspn(digits, "0123456789");
  if (!n || n > 6 || (n > 1 && *digits == '0')) return name;
  long at = strtol(digits, NULL, 10);
  if (from == high) at += (long)json_integer_value(hf_value(h, "num_layers_per_stack", &key));
  return arena_printf(h->arena, "model.layers.%ld%s", at, digits + n);
}

// Published folders count the layers of a stack, folders of transformers all that run.
static int prepare_hrm(hf *h, error *err) {
  uint32_t layers, high, low;
  if (hf_need_u32(h, "num_layers_per_stack num_hidden_layers", &layers, err) ||
      hf_need_u32(h, "H_cycles", &high, err) || hf_need_u32(h, "L_cycles", &low, err))
    return -1;
  if (layers > HF_LAYERS_MOST || high > HF_LAYERS_MOST || low > HF_LAYERS_MOST)
    return hf_fail(h, config_name, "num_layers_per_stack", err, "%u layers in %u and %u cycles are more than %d",
                   layers, high, low, HF_LAYERS_MOST);
  json_object_set_new(h->text, "num_layers_per_stack", json_integer(layers));
  json_object_set_new(h->text, "num_hidden_layers", json_integer((json_int_t)layers * high * (low + 1)));
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
  h->rotation_read = false;
  return hf_check_pattern(h, 4, err) || hf_check_layers(h, 4, 3, err) ? -1 : 0;
}

// ---- StarCoder 2 ----------------------------------------------------------------------------------------------------

static const hf_rule starcoder2_rules[] = {
  {BLOCK "mlp.c_fc", "blk.*.ffn_up", 0, 0},
  {BLOCK "mlp.c_proj", "blk.*.ffn_down", 0, 0},
  {0},
};
static const hf_key starcoder2_keys[] = {{"attention.sliding_window", HF_U32, "sliding_window"}, {0}};

// ---- the rows -------------------------------------------------------------------------------------------------------

const hf_class hf_classes_more[] = {
  {.name = "Ministral3ForCausalLM",
   .arch = "mistral3",
   .vocab = HF_VOCAB_LLAMA,
   .musts = "hidden_act=silu sliding_window=none",
   .defaults = "{\"rms_norm_eps\":1e-5,\"rope_theta\":1000000.0}",
   .head_dim = true,
   .own_log_weight = true,
   .keys = vocab_keys,
   .rules = ministral_rules,
   .more = ministral_more},
  {.name = "Mistral3ForConditionalGeneration", .like = "Ministral3ForCausalLM", .seeing = true},
  {.name = "Lfm2ForCausalLM",
   .arch = "lfm2",
   .musts = "conv_bias=false",
   .defaults = "{\"norm_eps\":1e-5,\"rope_theta\":1000000.0,\"conv_L_cache\":3}",
   .keys = lfm2_keys,
   .rules = lfm2_rules,
   .more = lfm2_more},
  {.name = "LFM2ForCausalLM", .like = "Lfm2ForCausalLM"},                     // the class's first name
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
  {.name = "HunYuanMoEV1ForCausalLM",
   .like = "HunYuanDenseV1ForCausalLM",
   .arch = "hunyuan-moe",
   .vocab = HF_VOCAB_HUNYUAN_MOE,
   .musts = "hidden_act=silu attention_bias=false mlp_bias=false use_qk_norm=true use_cla=false use_mla=false "
            "use_mixed_mlp_moe=true moe_layer_num_skipped=0 norm_topk_prob=true group_limited_greedy=false",
   .defaults = "{\"rms_norm_eps\":1e-5,\"rope_theta\":10000.0,\"moe_topk\":1,\"num_shared_expert\":1}",
   .prepare = prepare_hunyuan_moe,
   .keys = hunyuan_moe_keys,
   .rules = hunyuan_moe_rules},
  {.name = "ExaoneForCausalLM",
   .arch = "exaone",
   .musts = "activation_function=silu hidden_act=silu attention_bias=false mlp_bias=false",
   .defaults = "{\"rope_theta\":500000.0}",
   .derived = "num_hidden_layers=num_layers",
   .prepare = prepare_exaone3,
   .rules = exaone3_rules,
   .more = exaone3_more},
  {.name = "GPTBigCodeForCausalLM",
   .arch = "starcoder",
   .musts = "activation_function=gelu_pytorch_tanh|gelu_new multi_query=true scale_attn_weights=true "
            "add_cross_attention=false",
   .defaults = "{\"layer_norm_epsilon\":1e-5,\"num_key_value_heads\":1}",
   .derived = "hidden_size=n_embd num_attention_heads=n_head num_hidden_layers=n_layer intermediate_size=n_inner "
              "intermediate_size=4*hidden_size",
   .rules = starcoder_rules},
  {.name = "MiniCPMForCausalLM",
   .arch = "minicpm",
   .own_scaling = true,
   .musts = "hidden_act=silu attention_bias=false mlp_bias=false num_experts=none",
   .defaults = "{\"rms_norm_eps\":1e-5,\"rope_theta\":10000.0}",
   .rules = minicpm_rules,
   .more = minicpm_more},
  {.name = "MiniCPM3ForCausalLM",
   .arch = "minicpm3",
   .own_scaling = true,
   .musts = "hidden_act=silu attention_bias=false mlp_bias=false",
   .defaults = "{\"rms_norm_eps\":1e-5,\"rope_theta\":10000.0}",
   .prepare = prepare_minicpm3,
   .keys = minicpm3_keys,
   .rules = minicpm3_rules,
   .more = minicpm3_more},
  {.name = "Jais2ForCausalLM",
   .arch = "jais2",
   .musts = "hidden_act=relu2 attention_bias=true mlp_bias=true",
   .defaults = "{\"layer_norm_eps\":1e-5,\"rope_theta\":500000.0}",
   .rotated = 1},
  {.name = "HrmTextForCausalLM",
   .arch = "hrm_text",
   .rotated = 1,
   .musts = "hidden_act=silu attention_bias=false mlp_bias=false",
   .defaults = "{\"rms_norm_eps\":1e-6,\"rope_theta\":10000.0}",
   .needs = "prefix_lm embedding_scale",
   .prepare = prepare_hrm,
   .rename = rename_hrm,
   .keys = hrm_keys,
   .rules = hrm_rules},
  {.name = "Cohere2ForCausalLM",
   .arch = "cohere2",
   .musts = "hidden_act=silu attention_bias=false",
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
