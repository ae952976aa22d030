// Rows of the table of classes (hf_classes.c) for decoders with LayerNorm: GPT-2, GPT-NeoX, Phi 1 and 2, StableLM,
// OLMo, Nemotron, Falcon, BLOOM, MPT and DBRX; and Apertus. Most of them have one matrix for queries, keys and values
// of each group of heads; files have all queries first, then all keys, then all values.
#include <string.h>
#include "model/hf_impl.h"

static const char config_name[] = "config.json";

// One matrix for all three: a group of heads has its queries, then its keys, then its values.
#define OF_HEADS "num_attention_heads num_attention_heads num_attention_heads num_attention_heads"
#define OF_GROUPS "num_key_value_heads num_attention_heads num_key_value_heads num_key_value_heads"
#define LAYER "layers.*."
#define BLOCK "model.layers.*."
#define H "h.*."

// ---- GPT-2 ----------------------------------------------------------------------------------------------------------

static const hf_rule gpt2_rules[] = {
  {"wte", "token_embd", 0, 0},
  {"wpe", "position_embd", 0, 0},
  {"ln_f", "output_norm", 0, 0},
  {H "ln_1", "blk.*.attn_norm", 0, 0},
  {H "ln_2", "blk.*.ffn_norm", 0, 0},
  {H "attn.bias", NULL, HF_SKIP, 0},                       // the causal mask
  {H "attn.masked_bias", NULL, HF_SKIP, 0},
  {H "attn.c_attn", "blk.*.attn_qkv", HF_TURNED, 0},
  {H "attn.c_proj", "blk.*.attn_output", HF_TURNED, 0},
  {H "mlp.c_fc", "blk.*.ffn_up", HF_TURNED, 0},
  {H "mlp.c_proj", "blk.*.ffn_down", HF_TURNED, 0},
  {0},
};

// ---- GPT-NeoX -------------------------------------------------------------------------------------------------------

static const hf_rule gptneox_rules[] = {
  {"embed_in", "token_embd", 0, 0},
  {"final_layer_norm", "output_norm", 0, 0},
  {"embed_out", "output", 0, 0},
  {LAYER "input_layernorm", "blk.*.attn_norm", 0, 0},
  {LAYER "post_attention_layernorm", "blk.*.ffn_norm", 0, 0},
  {LAYER "attention.query_key_value", "blk.*.attn_qkv", HF_UNGROUP, OF_HEADS},
  {LAYER "attention.dense", "blk.*.attn_output", 0, 0},
  {LAYER "mlp.dense_h_to_4h", "blk.*.ffn_up", 0, 0},
  {LAYER "mlp.dense_4h_to_h", "blk.*.ffn_down", 0, 0},
  {LAYER "attention.bias", NULL, HF_SKIP, 0},
  {LAYER "attention.masked_bias", NULL, HF_SKIP, 0},
  {LAYER "attention.rotary_emb.inv_freq", NULL, HF_SKIP, 0},
  {0},
};
static const hf_key parallel_keys[] = {{"use_parallel_residual", HF_BOOL, "use_parallel_residual"}, {0}};

// ---- Phi, StableLM, Nemotron, Apertus -------------------------------------------------------------------------------

static const hf_rule phi2_rules[] = {
  {"model.final_layernorm", "output_norm", 0, 0},
  {BLOCK "self_attn.dense", "blk.*.attn_output", 0, 0},
  {BLOCK "mlp.fc1", "blk.*.ffn_up", 0, 0},
  {BLOCK "mlp.fc2", "blk.*.ffn_down", 0, 0},
  {0},
};

static const hf_rule stablelm_rules[] = {
  {BLOCK "self_attn.q_layernorm.norms.#", "blk.*.attn_q_norm", HF_STACK, "num_attention_heads"},
  {BLOCK "self_attn.k_layernorm.norms.#", "blk.*.attn_k_norm", HF_STACK, "num_key_value_heads"},
  {0},
};

// Norms are stored without 1; each of their tensors, biases among them, is a rule's.
static const hf_rule nemotron_rules[] = {
  {"model.norm.weight", "output_norm.weight", HF_PLUS_ONE, 0},
  {BLOCK "input_layernorm.weight", "blk.*.attn_norm.weight", HF_PLUS_ONE, 0},
  {BLOCK "post_attention_layernorm.weight", "blk.*.ffn_norm.weight", HF_PLUS_ONE, 0},
  {0},
};
static const hf_key nemotron_keys[] = {
  {"vocab_size", HF_U32, "vocab_size"},
  {"attention.layer_norm_epsilon", HF_F32_KEY, "norm_eps"},
  {0},
};

static int nemotron_more(hf *h, error *err) {
  double factor;
  bool found;
  if (hf_rope_number(h, "factor", "factor", &factor, &found, err)) return -1;
  const char *said = hf_rope_type(h), *type = found ? "linear" : "none";
  h->rotation_read = said && !strcmp(said, type);
  gguf_head_str(h->head, hf_arch_key(h, "rope.scaling.type"), type, strlen(type));
  if (found) gguf_head_f32(h->head, hf_arch_key(h, "rope.scaling.factor"), (float)factor);
  return 0;
}

static const hf_rule apertus_rules[] = {
  {BLOCK "attention_layernorm", "blk.*.attn_norm", 0, 0},
  {BLOCK "feedforward_layernorm", "blk.*.ffn_norm", 0, 0},
  {BLOCK "mlp.act_fn.alpha_n", "xielu.alpha_n", HF_KEY, 0},
  {BLOCK "mlp.act_fn.alpha_p", "xielu.alpha_p", HF_KEY, 0},
  {BLOCK "mlp.act_fn.beta", "xielu.beta", HF_KEY, 0},
  {BLOCK "mlp.act_fn.eps", "xielu.eps", HF_KEY, 0},
  {0},
};
static const hf_key vocab_keys[] = {{"vocab_size", HF_U32, "vocab_size"}, {0}};

// ---- OLMo -----------------------------------------------------------------------------------------------------------

static const hf_rule olmo_rules[] = {HF_WOVEN, {0}};
static const hf_key olmo_keys[] = {{"attention.clamp_kqv", HF_F32_KEY, "clip_qkv"}, {0}};

// ---- Falcon ---------------------------------------------------------------------------------------------------------

static const hf_rule falcon_rules[] = {
  {"word_embeddings", "token_embd", 0, 0},
  {"ln_f", "output_norm", 0, 0},
  {H "input_layernorm", "blk.*.attn_norm", 0, 0},
  {H "ln_mlp", "blk.*.attn_norm", 0, 0},
  {H "ln_attn", "blk.*.attn_norm_2", 0, 0},
  {H "self_attention.query_key_value", "blk.*.attn_qkv", HF_UNGROUP, OF_GROUPS},
  {H "self_attention.dense", "blk.*.attn_output", 0, 0},
  {H "mlp.dense_h_to_4h", "blk.*.ffn_up", 0, 0},
  {H "mlp.dense_4h_to_h", "blk.*.ffn_down", 0, 0},
  {0},
};

// Older folders give the key heads by a switch: one, or as many as queries. They may also have num_kv_heads, which does
// not count then.
static int falcon_prepare(hf *h, error *err) {
  const char *name;
  bool grouped = json_is_true(hf_value(h, "new_decoder_architecture", &name));
  bool one = !json_is_false(hf_value(h, "multi_query", &name));
  uint32_t heads, n = 1;
  bool found;
  if (hf_need_u32(h, "num_attention_heads", &heads, err)) return -1;
  if (grouped && hf_u32(h, "num_kv_heads n_head_kv", &n, &found, err)) return -1;
  if (grouped ? !found : !one) n = heads;
  json_object_set_new(h->text, "num_key_value_heads", json_integer(n));
  return 0;
}

static int falcon_more(hf *h, error *err) {
  (void)err;
  gguf_head_str(h->head, hf_arch_key(h, "tensor_data_layout"), "jploski", 7);
  return 0;
}

// ---- BLOOM ----------------------------------------------------------------------------------------------------------

static const hf_rule bloom_rules[] = {
  {"word_embeddings", "token_embd", 0, 0},
  {"word_embeddings_layernorm", "token_embd_norm", 0, 0},
  {"ln_f", "output_norm", 0, 0},
  {H "input_layernorm", "blk.*.attn_norm", 0, 0},
  {H "post_attention_layernorm", "blk.*.ffn_norm", 0, 0},
  {H "self_attention.query_key_value", "blk.*.attn_qkv", HF_UNGROUP, OF_HEADS},
  {H "self_attention.dense", "blk.*.attn_output", 0, 0},
  {H "mlp.dense_h_to_4h", "blk.*.ffn_up", 0, 0},
  {H "mlp.dense_4h_to_h", "blk.*.ffn_down", 0, 0},
  {0},
};
static const hf_key bloom_keys[] = {{"context_length", HF_U32, "seq_length"}, {0}};

// ---- MPT ------------------------------------------------------------------------------------------------------------

#define OF_MPT "blocks.*."
static const hf_rule mpt_rules[] = {
  {"wte", "token_embd", 0, 0},
  {"norm_f", "output_norm", 0, 0},
  {OF_MPT "norm_1", "blk.*.attn_norm", 0, 0},
  {OF_MPT "norm_2", "blk.*.ffn_norm", 0, 0},
  {OF_MPT "attn.Wqkv", "blk.*.attn_qkv", 0, 0},
  {OF_MPT "attn.out_proj", "blk.*.attn_output", 0, 0},
  {OF_MPT "attn.q_ln", "blk.*.attn_q_norm", 0, 0},
  {OF_MPT "attn.k_ln", "blk.*.attn_k_norm", 0, 0},
  {OF_MPT "ffn.up_proj", "blk.*.ffn_up", 0, 0},
  {OF_MPT "ffn.down_proj", "blk.*.ffn_down", 0, 0},
  {0},
};
static const hf_key mpt_keys[] = {{"context_length", HF_U32, "max_seq_len"}, {0}};

// The settings of attention are a group of their own. Without ALiBi there would be positions to learn (wpe).
static int mpt_more(hf *h, error *err) {
  static const char group[] = "attn_config";
  const char *name;
  const json_t *in = hf_value(h, group, &name);
  double limit, bias = 8, heads, scale;
  bool limited, found, grouped, scaled;
  if (!json_is_object(in)) return hf_fail(h, config_name, group, err, "is missing, or is not an object");
  if (!json_is_true(json_object_get(in, "alibi")))
    return hf_fail(h, config_name, "alibi", err, "is not true: files of %s have no other positions", h->class->arch);
  if (hf_number_in(h, in, "clip_qkv", &limit, &limited, err) ||
      hf_number_in(h, in, "alibi_bias_max", &bias, &found, err) ||
      hf_number_in(h, in, "kv_n_heads", &heads, &grouped, err) ||
      hf_number_in(h, in, "softmax_scale", &scale, &scaled, err))
    return -1;
  const json_t *prefix = hf_in(in, "prefix_lm");
  if (scaled || (prefix && !json_is_false(prefix)))
    return hf_fail(h, config_name, scaled ? "softmax_scale" : "prefix_lm", err, "files of %s have no key for it",
                   h->class->arch);
  if (grouped && !(heads >= 1 && heads <= UINT16_MAX))
    return hf_fail(h, config_name, "kv_n_heads", err, "is not a number of heads");
  if (grouped) gguf_head_u32(h->head, hf_arch_key(h, "attention.head_count_kv"), (uint32_t)heads);
  if (limited) gguf_head_f32(h->head, hf_arch_key(h, "attention.clamp_kqv"), (float)limit);
  gguf_head_f32(h->head, hf_arch_key(h, "attention.max_alibi_bias"), (float)bias);
  return 0;
}

// ---- DBRX -----------------------------------------------------------------------------------------------------------

#define OF_DBRX "blocks.*."
static const hf_rule dbrx_rules[] = {
  {"wte", "token_embd", 0, 0},
  {"norm_f", "output_norm", 0, 0},
  {OF_DBRX "norm_attn_norm.norm_1", "blk.*.attn_norm", 0, 0},
  {OF_DBRX "norm_attn_norm.norm_2", "blk.*.attn_output_norm", 0, 0},
  {OF_DBRX "norm_attn_norm.attn.Wqkv", "blk.*.attn_qkv", 0, 0},
  {OF_DBRX "norm_attn_norm.attn.out_proj", "blk.*.attn_output", 0, 0},
  {OF_DBRX "ffn.router.layer", "blk.*.ffn_gate_inp", 0, 0},
  {OF_DBRX "ffn.experts.mlp.w1", "blk.*.ffn_gate_exps.weight", HF_MATRICES, "num_experts"},
  {OF_DBRX "ffn.experts.mlp.v1", "blk.*.ffn_up_exps.weight", HF_MATRICES, "num_experts"},
  {OF_DBRX "ffn.experts.mlp.w2", "blk.*.ffn_down_exps.weight", HF_MATRICES_TURNED, "num_experts"},
  {0},
};
static const hf_key dbrx_keys[] = {
  {"context_length", HF_U32, "max_seq_len"}, {"attention.clamp_kqv", HF_F32_KEY, "clip_qkv"}, {0}};

// Sizes of attention and of experts are in groups of their own.
static int prepare_dbrx(hf *h, error *err) {
  static const char *const sizes[][3] = {{"attn_config", "kv_n_heads", "num_key_value_heads"},
                                         {"attn_config", "clip_qkv", "clip_qkv"},
                                         {"ffn_config", "ffn_hidden_size", "intermediate_size"},
                                         {"ffn_config", "moe_num_experts", "num_experts"},
                                         {"ffn_config", "moe_top_k", "num_experts_per_tok"}};
  for (size_t i = 0; i < COUNT(sizes); i++) {
    json_t *group = json_object_get(h->text, sizes[i][0]), *v = hf_in(group, sizes[i][1]);
    if (!json_is_object(group))
      return hf_fail(h, config_name, sizes[i][0], err, "is missing, or is not an object");
    if (v) json_object_set(h->text, sizes[i][2], v);
  }
  return 0;
}

static int dbrx_more(hf *h, error *err) {
  const json_t *attn = json_object_get(h->text, "attn_config"), *ffn = json_object_get(h->text, "ffn_config");
  const char *act = json_string_value(json_object_get(json_object_get(ffn, "ffn_act_fn"), "name"));
  double base, norm = 1;
  bool found, normed;
  if (hf_number_in(h, attn, "rope_theta", &base, &found, err) ||
      hf_number_in(h, ffn, "moe_normalize_expert_weights", &norm, &normed, err))
    return -1;
  if (act && strcmp(act, "silu")) return hf_fail(h, config_name, "ffn_act_fn", err, "'%.40s' is not silu", act);
  if (norm != 1 || (!normed && json_object_get(ffn, "moe_normalize_expert_weights")))
    return hf_fail(h, config_name, "moe_normalize_expert_weights", err, "is not 1, but files of %s have no key for it",
                   h->class->arch);
  if (found) gguf_head_f32(h->head, hf_arch_key(h, "rope.freq_base"), (float)base);
  return 0;
}

// ---- the rows -------------------------------------------------------------------------------------------------------

#define GELU "gelu|gelu_new|gelu_fast|gelu_pytorch_tanh"
#define LN_EPS "\"layer_norm_eps\":1e-5"
#define THETA "\"rope_theta\":10000.0"
const hf_class hf_classes_norms[] = {
  {.name = "GPT2LMHeadModel",
   .arch = "gpt2",
   .under = "transformer.",
   .musts = "activation_function=" GELU " scale_attn_weights=true scale_attn_by_inverse_layer_idx=false "
            "add_cross_attention=false",
   .defaults = "{\"layer_norm_epsilon\":1e-5}",
   .derived = "hidden_size=n_embd num_attention_heads=n_head intermediate_size=n_inner intermediate_size=4*hidden_size",
   .rules = gpt2_rules},
  {.name = "GPTNeoXForCausalLM",
   .arch = "gptneox",
   .under = "gpt_neox.",
   .musts = "hidden_act=" GELU " attention_bias=true",
   .defaults = "{" LN_EPS "," THETA ",\"use_parallel_residual\":true}",
   .rotated = 0.25,
   .keys = parallel_keys,
   .rules = gptneox_rules},
  {.name = "PhiForCausalLM",
   .arch = "phi2",
   .vocab = HF_VOCAB_PHI2,
   .musts = "hidden_act=" GELU " qk_layernorm=false",
   .defaults = "{" LN_EPS "," THETA "}",
   .derived = "intermediate_size=4*hidden_size",
   .rotated = 0.5,
   .rules = phi2_rules},
  {.name = "StableLmForCausalLM",
   .arch = "stablelm",
   .musts = "hidden_act=silu",
   .defaults = "{" LN_EPS "," THETA ",\"use_parallel_residual\":false}",
   .rotated = 0.25,
   .keys = parallel_keys,
   .rules = stablelm_rules},
  {.name = "OlmoForCausalLM",
   .arch = "olmo",
   .musts = "hidden_act=silu attention_bias=false",
   .defaults = "{" LN_EPS "," THETA "}",
   .keys = olmo_keys,
   .rules = olmo_rules},
  {.name = "NemotronForCausalLM",
   .arch = "nemotron",
   .vocab = HF_VOCAB_NEMOTRON,
   .own_scaling = true,
   .musts = "hidden_act=relu2 attention_bias=false mlp_bias=false",
   .defaults = "{\"norm_eps\":1e-5," THETA "}",
   .rotated = 0.5,
   .keys = nemotron_keys,
   .rules = nemotron_rules,
   .more = nemotron_more},
  {.name = "ApertusForCausalLM",
   .arch = "apertus",
   .vocab = HF_VOCAB_LLAMA,
   .musts = "hidden_act=xielu",
   .defaults = "{\"rms_norm_eps\":1e-5," THETA "}",
   .keys = vocab_keys,
   .rules = apertus_rules,
   .more = hf_llama_more},
  {.name = "FalconForCausalLM",
   .arch = "falcon",
   .under = "transformer.",
   .prepare = falcon_prepare,
   .musts = "activation=" GELU " alibi=false bias=false parallel_attn=true",
   .defaults = "{\"layer_norm_epsilon\":1e-5," THETA ",\"max_position_embeddings\":2048}",
   .derived = "num_attention_heads=n_head intermediate_size=ffn_hidden_size intermediate_size=4*hidden_size",
   .rules = falcon_rules,
   .more = falcon_more},
  {.name = "BloomForCausalLM",
   .arch = "bloom",
   .under = "transformer.",
   .musts = "apply_residual_connection_post_layernorm=false",
   .defaults = "{\"layer_norm_epsilon\":1e-5,\"seq_length\":2048}",
   .derived = "hidden_size=n_embed num_attention_heads=n_head intermediate_size=4*hidden_size",
   .keys = bloom_keys,
   .rules = bloom_rules},
  {.name = "MPTForCausalLM",
   .arch = "mpt",
   .under = "transformer.",
   .alone = true,
   .musts = "expansion_ratio=4 no_bias=true learned_pos_emb=true layer_norm_epsilon=1e-05 logit_scale=none",
   .defaults = "{" LN_EPS "}",
   .derived = "hidden_size=d_model num_attention_heads=n_heads intermediate_size=4*hidden_size",
   .keys = mpt_keys,
   .rules = mpt_rules,
   .more = mpt_more},
  {.name = "MptForCausalLM", .like = "MPTForCausalLM"},
  {.name = "DbrxForCausalLM",
   .arch = "dbrx",
   .under = "transformer.",
   .f32 = "",
   .prepare = prepare_dbrx,
   .defaults = "{" LN_EPS "," THETA "}",
   .derived = "hidden_size=d_model num_attention_heads=n_heads",
   .keys = dbrx_keys,
   .rules = dbrx_rules,
   .more = dbrx_more},
  {0},
};
