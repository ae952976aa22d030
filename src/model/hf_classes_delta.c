// Rows of the table of classes (hf_classes.c) for models with Kimi's delta attention: Kimi Linear, Kimi K3, Ling 3 and
// GLM 5.3 Flash.
// Most layers are a recurrence; the others have DeepSeek's attention, without positions. Sizes of the recurrence are in
// a group of config.json (linear_attn_config), as published, or beside the others, as transformers writes them.
#include <stdlib.h>
#include <string.h>
#include "model/hf_impl.h"

static const char config_name[] = "config.json", group_name[] = "linear_attn_config";

// ---- the recurrence -------------------------------------------------------------------------------------------------

#define BLOCK "model.layers.*."
#define KDA(in) \
  {in ".q_conv1d", "blk.*.ssm_conv1d_q", HF_KERNELS, 0}, {in ".k_conv1d", "blk.*.ssm_conv1d_k", HF_KERNELS, 0}, \
    {in ".v_conv1d", "blk.*.ssm_conv1d_v", HF_KERNELS, 0}, {in ".f_a_proj", "blk.*.ssm_f_a", 0, 0}, \
    {in ".f_b_proj", "blk.*.ssm_f_b", 0, 0}, {in ".g_a_proj", "blk.*.ssm_g_a", 0, 0}, \
    {in ".g_b_proj", "blk.*.ssm_g_b", 0, 0}, {in ".b_proj", "blk.*.ssm_beta", 0, 0}, \
    {in ".dt_bias", "blk.*.ssm_dt.bias", 0, 0}, {in ".o_norm", "blk.*.ssm_norm", 0, 0}
#define KDA_KEYS \
  {"vocab_size", HF_U32, "vocab_size"}, {"ssm.conv_kernel", HF_U32, "linear_conv_kernel_dim"}, \
    {"kda.head_dim", HF_U32, "linear_head_dim"}, {"attention.q_lora_rank", HF_U32, "q_lora_rank"}, \
    {"attention.kv_lora_rank", HF_U32, "kv_lora_rank"}, {"rope.dimension_count", HF_U32, "qk_rope_head_dim"}, \
    {"attention.value_length_mla", HF_U32, "v_head_dim"}, \
    {"expert_feed_forward_length", HF_U32, "moe_intermediate_size"}, \
    {"leading_dense_block_count", HF_U32, "first_k_dense_replace"}, \
    {"expert_weights_scale", HF_F32_KEY, "routed_scaling_factor"}

// Puts the group's sizes beside the others. Heads of the recurrence have to be as many as those of attention, since
// files have one key for both.
static int read_group(hf *h, error *err) {
  static const struct { const char *in, *to; } sizes[] = {{"head_dim", "linear_head_dim"},
                                                          {"num_heads", "linear_num_heads"},
                                                          {"short_conv_kernel_size", "linear_conv_kernel_dim"}};
  json_t *group = json_object_get(h->text, group_name);
  uint32_t heads, own;
  bool found;
  if (group && !json_is_null(group) && !json_is_object(group))
    return hf_fail(h, config_name, group_name, err, "is not an object");
  for (size_t i = 0; i < COUNT(sizes); i++) {
    json_t *v = hf_in(group, sizes[i].in);
    if (v) json_object_set(h->text, sizes[i].to, v);
  }
  if (hf_need_u32(h, "num_attention_heads", &heads, err) || hf_u32(h, "linear_num_heads", &own, &found, err))
    return -1;
  json_object_set_new(h->text, "num_key_value_heads", json_integer(1));      // one small vector for each token
  if (!found || own == heads) return 0;
  return hf_fail(h, config_name, "linear_num_heads", err, "%u is not num_attention_heads, %u", own, heads);
}

int hf_read_dense_layers(hf *h, error *err) {
  hf_layers y;
  uint32_t dense = 0;
  if (hf_read_layers(h, "mlp_layer_types", "sparse dense", false, &y, err)) return -1;
  if (!y.of) return 0;
  while (dense < y.n && y.of[dense]) dense++;
  if (memchr(y.of + dense, 1, y.n - dense))
    return hf_fail(h, config_name, "mlp_layer_types", err, "has a dense layer after one of experts");
  json_object_set_new(h->text, "first_k_dense_replace", json_integer((json_int_t)dense));
  return 0;
}

static int prepare_delta(hf *h, error *err) { return read_group(h, err) || hf_read_dense_layers(h, err) ? -1 : 0; }

// Sizes of DeepSeek's attention that are sums.
static int put_latent(hf *h, error *err) {
  uint32_t rank, rotated, plain;
  bool found;
  if (hf_need_u32(h, "kv_lora_rank", &rank, err) || hf_u32(h, "qk_rope_head_dim", &rotated, &found, err) ||
      hf_need_u32(h, "qk_nope_head_dim", &plain, err))
    return -1;
  if (!found) return hf_fail(h, config_name, "qk_rope_head_dim", err, "is missing");
  return hf_put_computed(h, "attention.key_length", (uint64_t)rank + rotated, "kv_lora_rank", err) ||
             hf_put_computed(h, "attention.key_length_mla", (uint64_t)plain + rotated, "qk_nope_head_dim", err)
           ? -1
           : 0;
}

// ---- Kimi Linear ----------------------------------------------------------------------------------------------------

#define MOE BLOCK "block_sparse_moe"
static const hf_rule kimi_rules[] = {
  KDA(BLOCK "self_attn"),
  {BLOCK "self_attn.A_log", "blk.*.ssm_a", HF_MINUS_EXP, 0},
  HF_LATENT(BLOCK "self_attn"),
  {MOE ".gate.e_score_correction_bias", "blk.*.exp_probs_b.bias", 0, 0},
  HF_EXPERTS_W(MOE),
  HF_SHARED_EXPERT(MOE ".shared_experts"),
  {MOE ".gate_proj", "blk.*.ffn_gate", 0, 0},              // transformers' name for the dense layers' parts
  {MOE ".up_proj", "blk.*.ffn_up", 0, 0},
  {MOE ".down_proj", "blk.*.ffn_down", 0, 0},
  {0},
};
static const hf_key kimi_keys[] = {KDA_KEYS, {"expert_shared_count", HF_U32, "num_shared_experts"}, {0}};

// Reads which layers attend: layer_types, or the group's list, which counts from 1.
static int read_kimi_layers(hf *h, hf_layers *y, error *err) {
  static const char key[] = "full_attn_layers";
  json_t *list = json_object_get(json_object_get(h->text, group_name), key), *v;
  size_t i;
  if (hf_read_layers(h, "layer_types", "linear_attention full_attention", false, y, err)) return -1;
  if (y->of) return 0;
  if (!json_array_size(list)) return hf_fail(h, config_name, key, err, "is missing, and so is layer_types");
  y->of = ARENA_ARRAY(h->arena, uint8_t, y->n);
  json_array_foreach(list, i, v) {
    json_int_t at = json_integer_value(v);
    if (at < 1 || at > y->n) return hf_fail(h, config_name, key, err, "has what is no layer from 1 to %u", y->n);
    y->of[at - 1] = 1;
  }
  return 0;
}

static int kimi_more(hf *h, error *err) {
  hf_layers y;
  return read_kimi_layers(h, &y, err) || hf_put_heads_of_layers(h, &y, 1, err) || put_latent(h, err) ? -1 : 0;
}

// ---- Kimi K3 --------------------------------------------------------------------------------------------------------

// What scores the stored streams is a norm's weights times a vector. The two kinds of layers have gates of one name.
#define STREAM_SCORE(from, to) \
  {from "_res_proj", to, HF_PRODUCT, 0}, {from "_res_norm", NULL, HF_SKIP, 0}
static const hf_rule k3_rules[] = {
  STREAM_SCORE(BLOCK "self_attention", "blk.*.attn_res_score"),
  STREAM_SCORE(BLOCK "mlp", "blk.*.ffn_res_score"),
  STREAM_SCORE("model.output_attn", "output_res_score"),
  {"recurrent.layers.*.self_attn.g_proj", "blk.*.ssm_g", 0, 0},
  {BLOCK "self_attn.g_proj", "blk.*.attn_gate", 0, 0},
  {MOE ".routed_expert_down_proj", "blk.*.ffn_routed_down", 0, 0},
  {MOE ".routed_expert_up_proj", "blk.*.ffn_routed_up", 0, 0},
  {MOE ".routed_expert_norm", "blk.*.ffn_routed_norm", 0, 0},
  KDA(BLOCK "self_attn"),
  {BLOCK "self_attn.A_log", "blk.*.ssm_a", HF_SQUEEZED | HF_MINUS_EXP | HF_WIDE, 0},
  HF_LATENT(BLOCK "self_attn"),
  {MOE ".gate.e_score_correction_bias", "blk.*.exp_probs_b.bias", 0, 0},
  HF_EXPERTS_W(MOE),
  HF_SHARED_EXPERT(MOE ".shared_experts"),
  {0},
};
static const hf_key k3_keys[] = {
  KDA_KEYS,
  {"attention.value_length", HF_U32, "kv_lora_rank"},
  {"expert_shared_count", HF_U32, "num_shared_experts"},
  {"expert_weights_norm", HF_BOOL, "moe_renormalize"},
  {"expert_latent_length", HF_U32, "routed_expert_hidden_size"},
  {"activation.situ_beta", HF_F32_KEY, "activation_situ_beta"},
  {"activation.situ_linear_beta", HF_F32_KEY, "activation_situ_linear_beta"},
  {"attn_res.block_size", HF_U32, "attn_res_block_size"},
  {0},
};

static const char *k3_name(const hf *h, const char *name) {
  static const char layers[] = "model.layers.", gate[] = ".self_attn.g_proj.weight";
  if (strncmp(name, layers, strlen(layers)) || !hf_ends_in(name, gate)) return name;
  unsigned long layer = strtoul(name + strlen(layers), NULL, 10);
  return layer < h->kinds.n && !h->kinds.of[layer] ? arena_printf(h->arena, "recurrent.%s", name + strlen("model."))
                                                   : name;
}

static int prepare_k3(hf *h, error *err) {
  return prepare_delta(h, err) || read_kimi_layers(h, &h->kinds, err) ? -1 : 0;
}

static int k3_more(hf *h, error *err) {
  double least;
  bool found;
  if (hf_number_in(h, json_object_get(h->text, group_name), "gate_lower_bound", &least, &found, err)) return -1;
  if (found) gguf_head_f32(h->head, hf_arch_key(h, "kda.gate_lower_bound"), (float)least);
  return hf_put_heads_of_layers(h, &h->kinds, 1, err) || put_latent(h, err) ? -1 : 0;
}

// ---- Ling 3 ---------------------------------------------------------------------------------------------------------

// The recurrence's matrices have their full size. The two kinds of layers have gates of one name.
#define ATTENTION BLOCK "attention"
static const hf_rule ling3_rules[] = {
  {"model.word_embeddings", "token_embd", 0, 0},
  {"recurrent.layers.*.attention.g_proj", "blk.*.ssm_g_a", 0, 0},
  {ATTENTION ".g_proj", "blk.*.attn_gate", 0, 0},
  {ATTENTION ".f_proj", "blk.*.ssm_f_a", 0, 0},
  {ATTENTION ".A_log", "blk.*.ssm_a", HF_IN_ROWS | HF_EXP, 0},
  {ATTENTION ".q_proj", "blk.*.attn_q", 0, 0},
  {ATTENTION ".k_proj", "blk.*.attn_k", 0, 0},
  {ATTENTION ".v_proj", "blk.*.attn_v", 0, 0},
  {ATTENTION ".dense", "blk.*.attn_output", 0, 0},
  KDA(ATTENTION),
  HF_LATENT(ATTENTION),
  {BLOCK "mlp.gate.expert_bias", "blk.*.exp_probs_b.bias", 0, 0},
  {BLOCK "final_layernorm", "blk.*.layer_output_norm", 0, 0},
  HF_EXPERTS(BLOCK "mlp"),
  HF_SHARED_EXPERT(BLOCK "mlp.shared_experts"),
  HF_NEXTN,
  {0},
};
static const hf_key ling3_keys[] = {
  KDA_KEYS,
  {"kda.safe_gate", HF_BOOL, "kda_safe_gate"},
  {"kda.gate_lower_bound", HF_F32_KEY, "kda_lower_bound"},
  {"expert_shared_count", HF_U32, "num_shared_experts"},
  {"expert_shared_feed_forward_length", HF_U32, "moe_shared_expert_intermediate_size"},
  {"expert_weights_norm", HF_BOOL, "norm_topk_prob moe_renormalize"},
  {0},
};

static const char *ling3_name(const hf *h, const char *name) {
  static const char layers[] = "model.layers.", gate[] = ".attention.g_proj.weight";
  if (strncmp(name, layers, strlen(layers)) || !hf_ends_in(name, gate)) return name;
  unsigned long layer = strtoul(name + strlen(layers), NULL, 10);
  return layer < h->kinds.n && !h->kinds.of[layer] ? arena_printf(h->arena, "recurrent.%s", name + strlen("model."))
                                                   : name;
}

// The size of a head is the recurrence's; transformers saves it under another name. The last layer of each group
// attends.
static int prepare_ling3(hf *h, error *err) {
  static const char key[] = "layer_group_size";
  uint32_t group;
  json_t *size = hf_in(h->text, "linear_head_dim"), *kernel = hf_in(h->text, "short_conv_kernel_size");
  if (size) json_object_set(h->text, "head_dim", size);
  else if (hf_in(h->text, "head_dim")) json_object_set(h->text, "linear_head_dim", hf_in(h->text, "head_dim"));
  if (kernel) json_object_set(h->text, "linear_conv_kernel_dim", kernel);
  json_object_set_new(h->text, "num_key_value_heads", json_integer(1));      // one small vector for each token
  if (hf_read_dense_layers(h, err) ||
      hf_read_layers(h, "layer_types", "linear_attention full_attention", false, &h->kinds, err))
    return -1;
  if (h->kinds.of) return 0;
  if (hf_need_u32(h, key, &group, err)) return -1;
  if (h->kinds.n % group)
    return hf_fail(h, config_name, key, err, "%u does not divide %u layers, and layer_types is missing", group,
                   h->kinds.n);
  h->kinds.of = ARENA_ARRAY(h->arena, uint8_t, h->kinds.n);
  for (uint32_t i = 0; i < h->kinds.n; i++) h->kinds.of[i] = (i + 1) % group == 0;
  return 0;
}

static int ling3_more(hf *h, error *err) {
  if (hf_put_nextn(h, err)) return -1;
  hf_layers all = {h->n_layers + h->n_further, NULL};
  all.of = ARENA_ARRAY(h->arena, uint8_t, all.n);
  for (uint32_t i = 0; i < all.n; i++) all.of[i] = i < h->kinds.n ? h->kinds.of[i] : 1;
  return hf_put_heads_of_layers(h, &all, 1, err) || put_latent(h, err) ||
             hf_put_limits(h, "expert_swiglu_limit_list", "swiglu_clamp_exp", 0, err) ||
             hf_put_limits(h, "share_expert_swiglu_limit_list", "swiglu_clamp_shexp", 0, err)
           ? -1
           : 0;
}

// ---- GLM 5.3 Flash --------------------------------------------------------------------------------------------------

#define INDEXER BLOCK "self_attn.indexer."
#define STREAMS(part) \
  {BLOCK "hc_" part "_fn", "blk.*.hc_" part "_fn.weight", 0, 0}, \
    {BLOCK "hc_" part "_base", "blk.*.hc_" part "_base.weight", 0, 0}, \
    {BLOCK "hc_" part "_scale", "blk.*.hc_" part "_scale.weight", 0, 0}
static const hf_rule glm_rules[] = {
  KDA(BLOCK "self_attn"),
  {BLOCK "self_attn.A_log", "blk.*.ssm_a", HF_SQUEEZED | HF_MINUS_EXP | HF_WIDE, 0},
  HF_LATENT(BLOCK "self_attn"),
  STREAMS("attn"),
  STREAMS("ffn"),
  {INDEXER "index_kpool_compress_ape", "blk.*.indexer_compressor_ape.weight", 0, 0},
  {INDEXER "index_kpool_compress_gate", "blk.*.indexer_compressor_gate.weight", 0, 0},
  HF_INDEXER(INDEXER),
  HF_NEXTN,
  {BLOCK "mlp.gate.e_score_correction_bias", "blk.*.exp_probs_b.bias", 0, 0},
  HF_EXPERTS(BLOCK "mlp"),
  HF_SHARED_EXPERT(BLOCK "mlp.shared_experts"),
  {0},
};
static const hf_key glm_keys[] = {
  KDA_KEYS,
  {"attention.value_length", HF_U32, "kv_lora_rank"},
  {"expert_shared_count", HF_U32, "n_shared_experts"},
  {"expert_weights_norm", HF_BOOL, "norm_topk_prob"},
  {"attention.indexer.head_count", HF_U32, "index_n_heads"},
  {"attention.indexer.key_length", HF_U32, "index_head_dim"},
  {"attention.indexer.top_k", HF_U32, "index_topk"},
  {"attention.indexer.kpool", HF_U32, "index_kpool"},
  {"attention.indexer.kpool_select_tail", HF_BOOL, "index_kpool_always_select_tail"},
  {"hyper_connection.count", HF_U32, "hc_mult"},
  {"hyper_connection.sinkhorn_iterations", HF_U32, "hc_sinkhorn_iters"},
  {"hyper_connection.epsilon", HF_F32_KEY, "hc_eps"},
  {0},
};

// The least logarithm of a decay: the group's, or -5, unless the group has none and says that the gate is not safe.
static int put_lower_bound(hf *h, error *err) {
  const json_t *group = json_object_get(h->text, group_name);
  double least = -5;
  bool found;
  if (hf_number_in(h, h->text, "linear_lower_bound", &least, &found, err)) return -1;
  if (json_object_get(group, "gate_lower_bound")) {
    if (hf_number_in(h, group, "gate_lower_bound", &least, &found, err)) return -1;
    if (!found) least = -5;
  } else found = found || !json_object_get(h->text, "linear_lower_bound");
  const json_t *safe = json_object_get(group, "safe_gate");
  if (found || (json_is_object(group) && !json_is_false(safe)))
    gguf_head_f32(h->head, hf_arch_key(h, "kda.gate_lower_bound"), (float)least);
  return 0;
}

// Which layers attend; blocks that predict further tokens do.
static int put_glm_layers(hf *h, uint32_t further, error *err) {
  hf_layers y, all;
  if (hf_read_layers(h, "layer_types", "linear_attention indexed_attention|full_attention", true, &y, err)) return -1;
  all.n = y.n + further;
  all.of = ARENA_ARRAY(h->arena, uint8_t, all.n);
  for (uint32_t i = 0; i < all.n; i++) all.of[i] = i < y.n ? y.of[i] : 1;
  return hf_put_heads_of_layers(h, &all, 1, err);
}

// Which layers have an indexer may also be a pattern. Only "each" is read.
static int put_glm_indexers(hf *h, error *err) {
  static const char *const others[] = {"index_topk_pattern", "index_topk_freq"};
  const char *name;
  for (size_t i = 0; i < COUNT(others) && !json_array_size(json_object_get(h->text, "indexer_types")); i++) {
    const json_t *v = hf_value(h, others[i], &name);
    if (v && !(json_is_integer(v) && json_integer_value(v) <= 1))
      return hf_fail(h, config_name, name, err, "is not known without indexer_types");
  }
  return hf_put_indexer_types(h, err);
}

static int put_glm_limits(hf *h, uint32_t blocks, error *err) {
  double limit;
  bool found;
  if (hf_f64(h, "swiglu_limit", &limit, &found, err) || !found) return found ? -1 : 0;
  float *each = ARENA_ARRAY(h->arena, float, blocks);
  for (uint32_t i = 0; i < blocks; i++) each[i] = (float)limit;
  gguf_head_f32s(h->head, hf_arch_key(h, "swiglu_clamp_exp"), each, blocks);
  gguf_head_f32s(h->head, hf_arch_key(h, "swiglu_clamp_shexp"), each, blocks);
  return 0;
}

static int prepare_glm(hf *h, error *err) {
  json_object_del(h->text, "head_dim");
  return prepare_delta(h, err);
}

static int glm_more(hf *h, error *err) {
  if (hf_put_nextn(h, err)) return -1;
  gguf_head_f32(h->head, hf_arch_key(h, "attention.layer_norm_epsilon"), 1e-6F);         // of the indexer's keys
  return put_glm_layers(h, h->n_further, err) || put_glm_indexers(h, err) || put_latent(h, err) ||
             put_lower_bound(h, err) || put_glm_limits(h, h->n_layers + h->n_further, err)
           ? -1
           : 0;
}

// ---- the rows -------------------------------------------------------------------------------------------------------

const hf_class hf_classes_delta[] = {
  {.name = "KimiLinearForCausalLM",
   .arch = "kimi-linear",
   .vocab = HF_VOCAB_KIMI,
   .musts = "hidden_act=silu attention_bias=false mla_use_nope=true moe_layer_freq=1 moe_renormalize=true "
            "norm_topk_prob=true num_expert_group=1 n_group=1 moe_router_activation_func=sigmoid "
            "num_nextn_predict_layers=0",
   .defaults = "{\"rms_norm_eps\":1e-5,\"linear_head_dim\":128,\"linear_conv_kernel_dim\":4,"
               "\"first_k_dense_replace\":1,\"routed_scaling_factor\":2.446,\"num_shared_experts\":1}",
   .prepare = prepare_delta,
   .keys = kimi_keys,
   .rules = kimi_rules,
   .more = kimi_more},
  {.name = "BailingMoeV3ForCausalLM",
   .arch = "bailingmoe3",
   .musts =
     "hidden_act=silu attention_bias=false use_bias=false use_qkv_bias=false kda_safe_gate=true no_kda_lora=true "
     "gated_attention_proj_granularity_type=head_wise score_function=sigmoid norm_head=false "
     "moe_router_enable_expert_bias=true",
   .derived = "num_shared_experts=n_shared_experts num_shared_experts=1 moe_shared_expert_intermediate_size="
              "moe_intermediate_size*num_shared_experts n_group=num_expert_group n_group=8 topk_group=4 "
              "num_nextn_predict_layers=num_mtp_layers",
   .defaults = "{\"rms_norm_eps\":1e-6,\"rope_theta\":6e6,\"kda_safe_gate\":true,\"kda_lower_bound\":-5.0,"
               "\"short_conv_kernel_size\":4,\"score_function\":\"sigmoid\",\"routed_scaling_factor\":2.5,"
               "\"first_k_dense_replace\":2,\"layer_group_size\":6,\"moe_renormalize\":true}",
   .prepare = prepare_ling3,
   .rename = ling3_name,
   .keys = ling3_keys,
   .rules = ling3_rules,
   .more = ling3_more},
  {.name = "BailingHybridForCausalLM", .like = "BailingMoeV3ForCausalLM"},  // as transformers saves it
  {.name = "KimiK3ForConditionalGeneration",
   .arch = "kimi-k3",
   .vocab = HF_VOCAB_KIMI_K3,
   .seeing = true,
   .needs = "hidden_act mla_use_nope linear_attn_config routed_scaling_factor num_shared_experts moe_renormalize "
            "activation_situ_beta activation_situ_linear_beta attn_res_block_size first_k_dense_replace",
   .musts = "hidden_act=situ attention_bias=false mla_use_nope=true moe_layer_freq=1 num_expert_group=1 n_group=1 "
            "moe_router_activation_func=sigmoid num_nextn_predict_layers=0",
   .defaults = "{\"rms_norm_eps\":1e-5,\"moe_router_activation_func\":\"sigmoid\"}",
   .prepare = prepare_k3,
   .rename = k3_name,
   .keys = k3_keys,
   .rules = k3_rules,
   .more = k3_more},
  {.name = "Glm5NextForConditionalGeneration",
   .arch = "glm5-next",
   .vocab = HF_VOCAB_GLM_MOE,
   .seeing = true,
   .musts = "hidden_act=silu attention_bias=false mla_use_nope=true mhc=true qk_rope_head_dim=0 scoring_func=sigmoid "
            "topk_method=noaux_tc",
   .defaults = "{\"rms_norm_eps\":1e-5,\"linear_head_dim\":128,\"linear_conv_kernel_dim\":4,\"qk_rope_head_dim\":0,"
               "\"first_k_dense_replace\":3,\"routed_scaling_factor\":2.5,\"n_shared_experts\":1,"
               "\"norm_topk_prob\":true,\"swiglu_limit\":10.0,\"hc_mult\":4,\"hc_sinkhorn_iters\":20,"
               "\"hc_eps\":1e-6,\"index_kpool\":16,\"index_kpool_always_select_tail\":true}",
   .prepare = prepare_glm,
   .keys = glm_keys,
   .rules = glm_rules,
   .more = glm_more},
  {0},
};
