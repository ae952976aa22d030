// Rows of the table of classes (hf_classes.c) for mixtures of experts: DeepSeek, dots3-note, Granite, GLM 4, dots,
// MiniMax, Phi, EXAONE, Hy3, Hy4, AFMoE and Ernie, and Ernie's dense models. DeepSeek's attention (MLA) keeps a small
// vector for each token: the matrix that makes keys and values from it is split in two, and the key part is transposed,
// as in GGUF files.
#include <math.h>
#include <string.h>
#include "model/hf_impl.h"

#define BLOCK "model.layers.*."
#define EXPERTS(n) \
  HF_EXPERTS(BLOCK n), HF_SHARED_EXPERT(BLOCK n ".shared_experts"), \
  {BLOCK n ".gate.e_score_correction_bias", "blk.*.exp_probs_b.bias", 0, 0}

static const char config_name[] = "config.json";

// ---- DeepSeek -------------------------------------------------------------------------------------------------------

#define DEEPSEEK_RULES HF_LATENT(BLOCK "self_attn"), EXPERTS("mlp")
static const hf_rule deepseek_rules[] = {DEEPSEEK_RULES, {0}};

#define DEEPSEEK_KEYS \
  {"vocab_size", HF_U32, "vocab_size"}, \
    {"leading_dense_block_count", HF_U32, "first_k_dense_replace"}, \
    {"attention.q_lora_rank", HF_U32, "q_lora_rank"}, \
    {"attention.kv_lora_rank", HF_U32, "kv_lora_rank"}, \
    {"attention.value_length", HF_U32, "kv_lora_rank"}, \
    {"attention.value_length_mla", HF_U32, "v_head_dim"}, \
    {"rope.dimension_count", HF_U32, "qk_rope_head_dim"}, \
    {"expert_feed_forward_length", HF_U32, "moe_intermediate_size intermediate_size"}, \
    {"expert_shared_count", HF_U32, "n_shared_experts"}, \
    {"expert_weights_scale", HF_F32_KEY, "routed_scaling_factor"}
static const hf_key deepseek_keys[] = {DEEPSEEK_KEYS, {0}};

// YaRN's weight of the logarithm of the factor. Files have one key for the folder's two values.
static int put_log_weight(hf *h, error *err) {
  double all, own;
  bool found, found_own;
  if (hf_rope_number(h, "mscale_all_dim", NULL, &all, &found, err) ||
      hf_rope_number(h, "mscale", NULL, &own, &found_own, err))
    return -1;
  if (found && !(found_own && all == own))
    return hf_fail(h, config_name, "mscale", err, "is not mscale_all_dim, but files of %s have one key for both",
                   h->class->arch);
  if (found) gguf_head_f32(h->head, hf_arch_key(h, "rope.scaling.yarn_log_multiplier"), (float)(0.1 * all));
  return 0;
}

// In files all heads share one key and one value: the small vector of a token.
static int deepseek_more(hf *h, error *err) {
  uint32_t rank, turned, plain;
  const char *name;
  if (hf_need_u32(h, "kv_lora_rank", &rank, err) || hf_need_u32(h, "qk_rope_head_dim", &turned, err) ||
      hf_need_u32(h, "qk_nope_head_dim", &plain, err))
    return -1;
  gguf_head_u32(h->head, hf_arch_key(h, "attention.head_count_kv"), 1);
  if (hf_put_computed(h, "attention.key_length", (uint64_t)rank + turned, "kv_lora_rank", err) ||
      hf_put_computed(h, "attention.key_length_mla", (uint64_t)plain + turned, "qk_nope_head_dim", err))
    return -1;
  if (json_is_true(hf_value(h, "norm_topk_prob", &name)))
    gguf_head_bool(h->head, hf_arch_key(h, "expert_weights_norm"), true);
  return put_log_weight(h, err);
}

// ---- dots3-note -----------------------------------------------------------------------------------------------------

// DeepSeek's attention in two sizes: layers with a window have keys of their own (swa_*), the others have an indexer.
// The published model multiplies normed small vectors by a number that only depends on sizes: so are the norms'
// weights.
#define OF_LAYER(all, window) all "|" window
static const hf_rule dots3_rules[] = {
  {BLOCK "self_attn.q_a_layernorm", "blk.*.attn_q_a_norm", HF_TIMES, "q_times"},
  {BLOCK "self_attn.kv_a_layernorm", "blk.*.attn_kv_a_norm", HF_TIMES, OF_LAYER("kv_times", "swa_kv_times")},
  {BLOCK "self_attn.kv_b_proj", "blk.*.attn_k_b", HF_FIRST_TURNED,
   OF_LAYER("num_attention_heads qk_nope_head_dim", "swa_num_attention_heads swa_qk_nope_head_dim")},
  {BLOCK "self_attn.kv_b_proj", "blk.*.attn_v_b", HF_REST,
   OF_LAYER("num_attention_heads qk_nope_head_dim", "swa_num_attention_heads swa_qk_nope_head_dim")},
  {BLOCK "self_attn.k_rope_only_layernorm", "blk.*.attn_k_norm", 0, 0},
  {BLOCK "self_attn.g_proj", "blk.*.attn_gate", 0, 0},
  {"model.mtp.embed_tokens", NULL, HF_SKIP, 0},
  DEEPSEEK_RULES,
  HF_INDEXER(BLOCK "self_attn.indexer."),
  {0},
};
static const hf_key dots3_keys[] = {
  DEEPSEEK_KEYS,
  {"expert_weights_norm", HF_BOOL, "norm_topk_prob"},
  {"attention.sliding_window", HF_U32, "sliding_window_size sliding_window"},
  {"attention.kv_lora_rank_swa", HF_U32, "swa_kv_lora_rank"},
  {"attention.value_length_swa", HF_U32, "swa_kv_lora_rank"},
  {"attention.value_length_mla_swa", HF_U32, "swa_v_head_dim"},
  {"attention.indexer.head_count", HF_U32, "index_n_heads"},
  {"attention.indexer.key_length", HF_U32, "index_head_dim"},
  {"attention.indexer.top_k", HF_U32, "index_topk"},
  {0},
};

// transformers saves sizes that differ from the others' for each layer by its number. Puts those of layers with a
// window under the names of published folders.
static int read_dots3_layers(hf *h, const hf_layers *y, error *err) {
  static const char key[] = "per_layer_config";
  static const char *const sizes[] = {"num_attention_heads", "num_key_value_heads", "q_lora_rank", "kv_lora_rank",
                                      "head_dim", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"};
  const json_t *each = json_object_get(h->text, key), *of = NULL;
  if (!json_is_object(each)) return 0;
  for (uint32_t i = 0; i < y->n; i++) {
    const json_t *own = json_object_get(each, arena_printf(h->arena, "%u", i));
    if ((own != NULL) != y->of[i] || (own && of && !json_equal(own, of)))
      return hf_fail(h, config_name, key, err, "has other layers than those with a window, or several sizes");
    if (own) of = own;
  }
  for (size_t i = 0; i < COUNT(sizes) && of; i++) {
    json_t *v = hf_in(of, sizes[i]);
    if (!v) v = hf_in(h->text, sizes[i]);
    if (v) json_object_set(h->text, arena_printf(h->arena, "swa_%s", sizes[i]), v);
  }
  return 0;
}

// Sets the factor of a norm's weights, sqrt(width / rank).
static int set_dots3_factor(hf *h, const char *rank_key, const char *to, error *err) {
  const char *name;
  uint32_t width, rank;
  if (hf_need_u32(h, "hidden_size", &width, err) || hf_need_u32(h, rank_key, &rank, err)) return -1;
  bool as_is = json_is_false(hf_value(h, "apply_mla_qkv_lora_rescale", &name));
  json_object_set_new(h->text, to, json_pack("[[i,f,f]]", INT32_MAX, as_is ? 1 : sqrt((double)width / rank), 1.0));
  return 0;
}

static int prepare_dots3(hf *h, error *err) {
  if (hf_read_layers(h, "layer_types", "full_attention|indexed_attention sliding_attention", true, &h->kinds, err) ||
      read_dots3_layers(h, &h->kinds, err) || hf_read_dense_layers(h, err))
    return -1;
  json_object_del(h->text, "head_dim");
  return set_dots3_factor(h, "q_lora_rank", "q_times", err) || set_dots3_factor(h, "kv_lora_rank", "kv_times", err) ||
             set_dots3_factor(h, "swa_kv_lora_rank", "swa_kv_times", err) ||
             hf_check_equal(h, "num_key_value_heads", "num_attention_heads", err) ||
             hf_check_equal(h, "swa_num_key_value_heads", "swa_num_attention_heads", err) ||
             hf_check_equal(h, "swa_q_lora_rank", "q_lora_rank", err) ||
             hf_check_equal(h, "swa_qk_rope_head_dim", "qk_rope_head_dim", err)
           ? -1
           : 0;
}

static int put_dots3_layers(hf *h, error *err) {
  uint32_t n = h->kinds.n;
  int32_t heads[2];
  if (hf_need_i32(h, "num_attention_heads", &heads[0], err) ||
      hf_need_i32(h, "swa_num_attention_heads", &heads[1], err))
    return -1;
  int32_t *each = ARENA_ARRAY(h->arena, int32_t, n);
  bool *near = ARENA_ARRAY(h->arena, bool, n), *chooses = ARENA_ARRAY(h->arena, bool, n);
  for (uint32_t i = 0; i < n; i++) {
    near[i] = h->kinds.of[i];
    chooses[i] = !near[i];
    each[i] = heads[near[i]];
  }
  gguf_head_i32s(h->head, hf_arch_key(h, "attention.head_count"), each, n);
  gguf_head_bools(h->head, hf_arch_key(h, "attention.sliding_window_pattern"), near, n);
  gguf_head_bools(h->head, hf_arch_key(h, "attention.indexer.types"), chooses, n);
  return 0;
}

static int dots3_more(hf *h, error *err) {
  uint32_t rank, turned, plain, shared, experts, all;
  bool found;
  if (hf_need_u32(h, "swa_kv_lora_rank", &rank, err) || hf_need_u32(h, "swa_qk_rope_head_dim", &turned, err) ||
      hf_need_u32(h, "swa_qk_nope_head_dim", &plain, err) || hf_need_u32(h, "moe_intermediate_size", &experts, err) ||
      hf_u32(h, "moe_shared_expert_intermediate_size shared_experts_intermediate_size", &shared, &found, err) ||
      hf_need_u32(h, "n_shared_experts", &all, err))
    return -1;
  if (found && shared != experts &&
      hf_put_computed(h, "expert_shared_feed_forward_length", (uint64_t)shared * all, "n_shared_experts", err))
    return -1;
  if (hf_put_computed(h, "attention.key_length_swa", (uint64_t)rank + turned, "swa_kv_lora_rank", err) ||
      hf_put_computed(h, "attention.key_length_mla_swa", (uint64_t)plain + turned, "swa_qk_nope_head_dim", err))
    return -1;
  return deepseek_more(h, err) || put_dots3_layers(h, err) ? -1 : 0;
}

// ---- Granite --------------------------------------------------------------------------------------------------------

// Gate and up of each expert are one matrix; so are those of the shared expert.
static const hf_rule granite_rules[] = {
  HF_WOVEN,
  {BLOCK "block_sparse_moe.router.layer", "blk.*.ffn_gate_inp", 0, 0},
  {BLOCK "block_sparse_moe.input_linear", "blk.*.ffn_gate_exps", HF_FIRST, 0},
  {BLOCK "block_sparse_moe.input_linear", "blk.*.ffn_up_exps", HF_REST, 0},
  {BLOCK "block_sparse_moe.output_linear", "blk.*.ffn_down_exps", 0, 0},
  {BLOCK "shared_mlp.input_linear", "blk.*.ffn_gate_shexp", HF_FIRST, 0},
  {BLOCK "shared_mlp.input_linear", "blk.*.ffn_up_shexp", HF_REST, 0},
  {BLOCK "shared_mlp.output_linear", "blk.*.ffn_down_shexp", 0, 0},
  {0},
};

static const hf_key granite_keys[] = {
  HF_GRANITE_KEYS, {"expert_shared_feed_forward_length", HF_U32, "shared_intermediate_size"}, {0}};

// ---- Granite Switch -------------------------------------------------------------------------------------------------

// Dense, with adapters in the file. Stacks of their matrices begin with one of zeros, for text without an adapter.
#define A_AND_B(from, to, a, b, heads) \
  {from a, to ".lora_a", HF_ZERO_FIRST, NULL}, {from b, to ".lora_b", HF_ZERO_FIRST, heads}
#define SLICE(from, to, n, heads) A_AND_B(from, to, ".lora_A_slices." n, ".lora_B_slices." n, heads)
#define QKV BLOCK "self_attn.qkv_proj"
#define GATE_UP BLOCK "shared_mlp.input_linear"
static const hf_rule switch_rules[] = {
  {QKV ".base_layer", "blk.*.attn_qkv", HF_WEAVE_QK, "num_attention_heads num_key_value_heads"},
  SLICE(QKV, "blk.*.attn_q", "0", "num_attention_heads"),
  SLICE(QKV, "blk.*.attn_k", "1", "num_key_value_heads"),
  SLICE(QKV, "blk.*.attn_v", "2", NULL),
  {BLOCK "self_attn.o_proj.base_layer", "blk.*.attn_output", 0, 0},
  A_AND_B(BLOCK "self_attn.o_proj", "blk.*.attn_output", ".lora_A", ".lora_B", NULL),
  {GATE_UP ".base_layer", "blk.*.ffn_gate", HF_FIRST, 0},
  {GATE_UP ".base_layer", "blk.*.ffn_up", HF_REST, 0},
  SLICE(GATE_UP, "blk.*.ffn_gate", "0", NULL),
  SLICE(GATE_UP, "blk.*.ffn_up", "1", NULL),
  {BLOCK "shared_mlp.output_linear.base_layer", "blk.*.ffn_down", 0, 0},
  A_AND_B(BLOCK "shared_mlp.output_linear", "blk.*.ffn_down", ".lora_A", ".lora_B", NULL),
  {"model.adapter_token_ids", NULL, HF_SKIP, 0},
  {"model.control_to_substitute_lut", NULL, HF_SKIP, 0},
  {"lm_head", NULL, HF_SKIP, 0},
  {0},
};
static const hf_key switch_keys[] = {
  HF_GRANITE_KEYS,
  {"expert_shared_feed_forward_length", HF_U32, "shared_intermediate_size"},
  {"adapters.count", HF_U32, "num_adapters"},
  {"adapters.lora_rank", HF_U32, "max_lora_rank"},
  {"adapters.router_gain", HF_F32_KEY, "control_token_gain"},
  {0},
};

// One of the layers that config.json counts is the router's cache.
static int prepare_switch(hf *h, error *err) {
  uint32_t layers;
  if (hf_need_u32(h, "num_hidden_layers", &layers, err) || hf_all_attend(h, err) ||
      hf_check_equal(h, "shared_intermediate_size", "intermediate_size", err))
    return -1;
  json_object_set_new(h->text, "num_hidden_layers", json_integer((json_int_t)layers - 1));
  json_object_set_new(h->text, "num_experts_per_tok", json_integer(0));
  return 0;
}

static int put_token_ids(hf *h, const char *from, const char *to, error *err) {
  const json_t *list = json_object_get(h->text, from), *v;
  uint32_t n;
  size_t i;
  if (hf_need_u32(h, "num_adapters", &n, err)) return -1;
  if (json_array_size(list) != n) return hf_fail(h, config_name, from, err, "is not a list of %u tokens", n);
  int32_t *ids = ARENA_ARRAY(h->arena, int32_t, n);
  json_array_foreach(list, i, v) {
    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > INT32_MAX)
      return hf_fail(h, config_name, from, err, "has what is no token at %zu", i);
    ids[i] = (int32_t)json_integer_value(v);
  }
  gguf_head_i32s(h->head, hf_arch_key(h, to), ids, n);
  return 0;
}

static int switch_more(hf *h, error *err) {
  return put_token_ids(h, "adapter_token_ids", "adapters.token_ids_activate", err) ||
             put_token_ids(h, "adapter_substitute_token_ids", "adapters.token_ids_substitute", err) ||
             hf_llama_more(h, err)
           ? -1
           : 0;
}

// ---- GLM 4 MoE ------------------------------------------------------------------------------------------------------

static const hf_rule glm4_rules[] = {
  {BLOCK "post_attention_layernorm", "blk.*.post_attention_norm", 0, 0},
  EXPERTS("mlp"),
  HF_NEXTN,
  {0},
};

static const hf_key glm4_keys[] = {
  {"expert_feed_forward_length", HF_U32, "moe_intermediate_size"},
  {"expert_shared_count", HF_U32, "n_shared_experts"},
  {"leading_dense_block_count", HF_U32, "first_k_dense_replace"},
  {"expert_weights_scale", HF_F32_KEY, "routed_scaling_factor"},
  {"expert_weights_norm", HF_BOOL, "norm_topk_prob"},
  {0},
};

static int glm4_moe_more(hf *h, error *err) {
  gguf_head_u32(h->head, hf_arch_key(h, "expert_gating_func"), 2);
  return hf_put_nextn(h, err) || hf_glm4_more(h, err) ? -1 : 0;
}

// ---- DeepSeek V3.2 and GLM 5 ----------------------------------------------------------------------------------------

// DeepSeek's attention; an indexer chooses the positions that a token reads.
static const hf_rule indexed_rules[] = {
  DEEPSEEK_RULES,
  HF_NEXTN,
  HF_INDEXER(BLOCK "self_attn.indexer."),
  {0},
};
static const hf_key indexed_keys[] = {
  DEEPSEEK_KEYS,
  {"attention.indexer.head_count", HF_U32, "index_n_heads"},
  {"attention.indexer.key_length", HF_U32, "index_head_dim"},
  {"attention.indexer.top_k", HF_U32, "index_topk"},
  {0},
};

int hf_put_indexer_types(hf *h, error *err) {
  hf_layers y;
  if (hf_read_layers(h, "indexer_types", "shared full", false, &y, err)) return -1;
  if (!y.of) return 0;
  bool *own = ARENA_ARRAY(h->arena, bool, y.n);
  for (uint32_t i = 0; i < y.n; i++) own[i] = y.of[i];
  gguf_head_bools(h->head, hf_arch_key(h, "attention.indexer.types"), own, y.n);
  return 0;
}

static int indexed_more(hf *h, error *err) {
  return deepseek_more(h, err) || hf_put_nextn(h, err) || hf_put_indexer_types(h, err) ? -1 : 0;
}

// ---- GLM 4.7 Flash --------------------------------------------------------------------------------------------------

static const hf_rule glm_lite_rules[] = {DEEPSEEK_RULES, HF_NEXTN, {0}};

static int glm_lite_more(hf *h, error *err) { return deepseek_more(h, err) || hf_put_nextn(h, err) ? -1 : 0; }

// ---- Hy4 ------------------------------------------------------------------------------------------------------------

// DeepSeek's attention with gates and sinks, in several streams. transformers saves other names of gates and streams
// than published folders have.
#define STREAMS(in, to) \
  {BLOCK in "hc_fn", "blk.*." to "_fn.weight", 0, 0}, {BLOCK in "hc_base", "blk.*." to "_base.weight", 0, 0}, \
    {BLOCK in "hc_scale", "blk.*." to "_scale.weight", 0, 0}
#define HEAD_STREAMS(in) \
  {in "hc_head_fn", "output_hc_fn.weight", 0, 0}, {in "hc_head_base", "output_hc_base.weight", 0, 0}, \
    {in "hc_head_scale", "output_hc_scale.weight", 0, 0}
static const hf_rule hy_v4_rules[] = {
  HF_LATENT(BLOCK "self_attn"),
  HF_INDEXER(BLOCK "self_attn.indexer."),
  {BLOCK "self_attn.linear_gate", "blk.*.attn_gate", 0, 0},
  {BLOCK "self_attn.learnable_sink_param", "blk.*.attn_sinks.weight", 0, 0},
  STREAMS("hc_attn_layer.hc_pre.", "hc_attn"),
  STREAMS("hc_pre.hc_attn_layer.", "hc_attn"),
  STREAMS("hc_mlp_layer.hc_pre.", "hc_ffn"),
  STREAMS("hc_pre.hc_mlp_layer.", "hc_ffn"),
  HEAD_STREAMS("model.hc_head."),
  HEAD_STREAMS("model.hc_pre.hc_head."),
  {BLOCK "mlp.linear_gate", "blk.*.ffn_gate", 0, 0},
  {BLOCK "mlp.shared_experts.linear_gate", "blk.*.ffn_gate_shexp", 0, 0},
  {BLOCK "mlp.experts.gate_up_proj", "blk.*.ffn_gate_exps.weight", HF_FIRST, 0},
  {BLOCK "mlp.experts.gate_up_proj", "blk.*.ffn_up_exps.weight", HF_REST, 0},
  {BLOCK "mlp.experts.down_proj", "blk.*.ffn_down_exps.weight", 0, 0},
  EXPERTS("mlp"),
  {0},
};
static const hf_key hy_v4_keys[] = {
  DEEPSEEK_KEYS,
  {"hyper_connection.count", HF_U32, "hc_mult"},
  {"hyper_connection.epsilon", HF_F32_KEY, "hc_eps"},
  {"hyper_connection.magnitude", HF_F32_KEY, "hc_magnitude"},
  {"attention.indexer.head_count", HF_U32, "index_n_heads"},
  {"attention.indexer.key_length", HF_U32, "index_head_dim"},
  {"attention.indexer.top_k", HF_U32, "index_topk"},
  {0},
};

static int prepare_hy_v4(hf *h, error *err) {
  static const char *const ones[] = {"n_group", "topk_group"};
  const char *name;
  for (size_t i = 0; i < COUNT(ones); i++)
    if (json_integer_value(json_object_get(h->text, ones[i])) == 1) json_object_del(h->text, ones[i]);
  h->f32_head = json_is_true(hf_value(h, "enable_lm_head_fp32", &name));
  return hf_read_dense_layers(h, err);
}

// The limit of experts' gates is that of each layer; 0: no limit.
static int hy_v4_more(hf *h, error *err) {
  double limit = 0;
  bool found;
  gguf_head_u32(h->head, hf_arch_key(h, "expert_gating_func"), 2);
  if (deepseek_more(h, err) || hf_put_indexer_types(h, err) || hf_f64(h, "swiglu_limit", &limit, &found, err))
    return -1;
  if (!(limit > 0)) return 0;
  float *each = ARENA_ARRAY(h->arena, float, h->n_layers);
  for (uint32_t i = 0; i < h->n_layers; i++) each[i] = (float)limit;
  gguf_head_f32s(h->head, hf_arch_key(h, "swiglu_clamp_exp"), each, h->n_layers);
  return 0;
}

// ---- Ernie ----------------------------------------------------------------------------------------------------------

static const hf_rule ernie_rules[] = {
  {BLOCK "mlp.moe_statics.e_score_correction_bias", "blk.*.exp_probs_b.bias", 0, 0},
  EXPERTS("mlp"),
  {0},
};

static const hf_key ernie_keys[] = {
  {"expert_count", HF_U32, "moe_num_experts"},
  {"expert_used_count", HF_U32, "moe_k"},
  {"interleave_moe_layer_step", HF_U32, "moe_layer_interval"},
  {"leading_dense_block_count", HF_U32, "moe_layer_start_index"},
  {"expert_feed_forward_length", HF_U32, "moe_intermediate_size"},
  {"expert_shared_count", HF_U32, "moe_num_shared_experts"},
  {0},
};

// The shared experts together are one expert of their total width.
static int ernie_more(hf *h, error *err) {
  uint32_t of_one, n = 0;
  bool found;
  if (hf_need_u32(h, "moe_intermediate_size", &of_one, err) || hf_u32(h, "moe_num_shared_experts", &n, &found, err))
    return -1;
  if (!n) return 0;
  return hf_put_computed(h, "expert_shared_feed_forward_length", (uint64_t)n * of_one, "moe_num_shared_experts", err);
}

// ---- dots and MiniMax -----------------------------------------------------------------------------------------------

static const hf_rule dots_rules[] = {EXPERTS("mlp"), {0}};

#define MINIMAX_EXPERTS \
  {BLOCK "block_sparse_moe.e_score_correction_bias", "blk.*.exp_probs_b.bias", 0, 0}, \
    HF_EXPERTS_W(BLOCK "block_sparse_moe")
#define MINIMAX_KEYS \
  {"expert_feed_forward_length", HF_U32, "intermediate_size"}, {"rope.dimension_count", HF_U32, "rotary_dim"}
static const hf_rule minimax_rules[] = {MINIMAX_EXPERTS, {0}};
static const hf_key minimax_keys[] = {MINIMAX_KEYS, {0}};

// Folders give the rotated part of a head as a number or as a share, or as both.
static int minimax_more(hf *h, error *err) {
  uint32_t rotated, size;
  double share;
  bool found;
  if (hf_u32(h, "rotary_dim", &rotated, &found, err)) return -1;
  if (!found) return hf_put_rotated(h, 1, err);
  if (hf_rope_number(h, "partial_rotary_factor", NULL, &share, &found, err) || !found) return found ? -1 : 0;
  if (hf_need_u32(h, "head_dim", &size, err)) return -1;
  if (floor(size * share) == rotated) return 0;
  return hf_fail(h, config_name, "partial_rotary_factor", err, "%g of %u elements are not rotary_dim, %u", share, size,
                 rotated);
}

// ---- MiniMax M3 -----------------------------------------------------------------------------------------------------

// 1 is added to norms; an indexer chooses blocks of positions.
static const hf_rule minimax_m3_rules[] = {
  {"model.norm", "output_norm", HF_PLUS_ONE, 0},
  {BLOCK "input_layernorm", "blk.*.attn_norm", HF_PLUS_ONE, 0},
  {BLOCK "post_attention_layernorm", "blk.*.ffn_norm", HF_PLUS_ONE, 0},
  {BLOCK "self_attn.q_norm", "blk.*.attn_q_norm", HF_PLUS_ONE, 0},
  {BLOCK "self_attn.k_norm", "blk.*.attn_k_norm", HF_PLUS_ONE, 0},
  {BLOCK "self_attn.index_q_norm", "blk.*.indexer.q_norm", HF_PLUS_ONE, 0},
  {BLOCK "self_attn.index_k_norm", "blk.*.indexer.k_norm", HF_PLUS_ONE, 0},
  {BLOCK "self_attn.index_q_proj", "blk.*.indexer.q_proj", 0, 0},
  {BLOCK "self_attn.index_k_proj", "blk.*.indexer.k_proj", 0, 0},
  MINIMAX_EXPERTS,
  HF_SHARED_EXPERT(BLOCK "block_sparse_moe.shared_experts"),
  {0},
};
static const hf_key minimax_m3_keys[] = {
  MINIMAX_KEYS,
  {"expert_shared_count", HF_U32, "n_shared_experts"},
  {"expert_weights_scale", HF_F32_KEY, "routed_scaling_factor"},
  {"leading_dense_block_count", HF_U32, "first_k_dense_replace"},
  {"attention.indexer.head_count", HF_U32, "index_n_heads"},
  {"attention.indexer.key_length", HF_U32, "index_head_dim"},
  {"attention.indexer.top_k", HF_U32, "index_topk_blocks"},
  {"attention.indexer.block_size", HF_U32, "index_block_size"},
  {"attention.indexer.local_blocks", HF_U32, "index_local_blocks"},
  {0},
};

// Published folders have the indexer's sizes in a group, and layers by numbers.
static int prepare_minimax_m3(hf *h, error *err) {
  static const char *const sizes[][2] = {{"sparse_num_index_heads", "index_n_heads"},
                                         {"sparse_index_dim", "index_head_dim"},
                                         {"sparse_block_size", "index_block_size"},
                                         {"sparse_topk_blocks", "index_topk_blocks"},
                                         {"sparse_local_block", "index_local_blocks"}};
  json_t *group = json_object_get(h->text, "sparse_attention_config");
  for (size_t i = 0; i < COUNT(sizes); i++) {
    json_t *v = hf_in(group, sizes[i][0]);
    if (v) json_object_set(h->text, sizes[i][1], v);
  }
  return hf_name_layers(h, "moe_layer_freq", "mlp_layer_types", "dense sparse", err) || hf_read_dense_layers(h, err)
           ? -1
           : 0;
}

static int minimax_m3_more(hf *h, error *err) {
  gguf_head_bool(h->head, hf_arch_key(h, "expert_weights_norm"), true);
  return minimax_more(h, err);
}

// ---- Phi 3.5 MoE ----------------------------------------------------------------------------------------------------

static const hf_rule phimoe_rules[] = {HF_EXPERTS_W(BLOCK "block_sparse_moe"), {0}};

// Folders give the factor of attention for long contexts; files have one for short and long ones.
static int phimoe_more(hf *h, error *err) {
  double near, far;
  bool found, found_far;
  if (hf_phi3_more(h, err) || hf_rope_number(h, "short_mscale", NULL, &near, &found, err) ||
      hf_rope_number(h, "long_mscale", NULL, &far, &found_far, err))
    return -1;
  if (found != found_far || (found && near != far))
    return hf_fail(h, config_name, "short_mscale", err, "is not long_mscale, but files of %s have one key for both",
                   h->class->arch);
  if (found) gguf_head_f32(h->head, hf_arch_key(h, "rope.scaling.attn_factor"), (float)far);
  return 0;
}

// ---- EXAONE MoE -----------------------------------------------------------------------------------------------------

static const hf_rule exaone_rules[] = {
  EXPERTS("mlp"),
  {BLOCK "mlp.e_score_correction_bias", "blk.*.exp_probs_b.bias", 0, 0},
  {BLOCK "eh_proj", "blk.*.nextn.eh_proj", 0, 0},
  {BLOCK "enorm", "blk.*.nextn.enorm", 0, 0},
  {BLOCK "hnorm", "blk.*.nextn.hnorm", 0, 0},
  {BLOCK "shared_head.norm", "blk.*.nextn.shared_head_norm", 0, 0},
  {0},
};
static const hf_key exaone_keys[] = {
  {"vocab_size", HF_U32, "vocab_size"},
  {"expert_feed_forward_length", HF_U32, "moe_intermediate_size"},
  {"expert_shared_count", HF_U32, "num_shared_experts"},
  {"expert_shared_feed_forward_length", HF_U32, "shared_width"},
  {"expert_weights_scale", HF_F32_KEY, "routed_scaling_factor"},
  {"expert_weights_norm", HF_BOOL, "norm_topk_prob"},
  {"leading_dense_block_count", HF_U32, "first_k_dense_replace first_last_k_dense_replace"},
  {0},
};

static int exaone_more(hf *h, error *err) {
  if (!h->n_further) gguf_head_u32(h->head, hf_arch_key(h, "nextn_predict_layers"), 0);
  gguf_head_str(h->head, hf_arch_key(h, "rope.scaling.type"), "none", 4);
  return hf_put_windows(h, 4, err);
}

// ---- Hy3 ------------------------------------------------------------------------------------------------------------

static const hf_rule hy_v3_rules[] = {
  {BLOCK "mlp.router.gate", "blk.*.ffn_gate_inp", 0, 0},
  {BLOCK "mlp.expert_bias", "blk.*.exp_probs_b", 0, 0},
  HF_EXPERTS(BLOCK "mlp"),
  HF_SHARED_EXPERT(BLOCK "mlp.shared_mlp"),
  {BLOCK "final_layernorm", "blk.*.nextn.shared_head_norm", 0, 0},
  HF_NEXTN,
  {0},
};
static const hf_key hy_v3_keys[] = {
  {"expert_feed_forward_length", HF_U32, "moe_intermediate_size"},
  {"expert_shared_feed_forward_length", HF_U32, "shared_width"},
  {"expert_weights_norm", HF_BOOL, "route_norm"},
  {"expert_weights_scale", HF_F32_KEY, "router_scaling_factor"},
  {0},
};

static int hy_v3_more(hf *h, error *err) {
  gguf_head_u32(h->head, hf_arch_key(h, "expert_gating_func"), 2);
  return hf_put_nextn(h, err);
}

// ---- AFMoE ----------------------------------------------------------------------------------------------------------

static const hf_rule afmoe_rules[] = {
  {BLOCK "post_attention_layernorm", "blk.*.post_attention_norm", 0, 0},
  {BLOCK "pre_mlp_layernorm", "blk.*.ffn_norm", 0, 0},
  {BLOCK "post_mlp_layernorm", "blk.*.post_ffw_norm", 0, 0},
  {BLOCK "self_attn.gate_proj", "blk.*.attn_gate", 0, 0},
  {BLOCK "mlp.router.gate", "blk.*.ffn_gate_inp", 0, 0},
  {BLOCK "mlp.expert_bias", "blk.*.exp_probs_b.bias", 0, 0},
  EXPERTS("mlp"),
  {0},
};
static const hf_key afmoe_keys[] = {
  {"vocab_size", HF_U32, "vocab_size"},
  {"expert_shared_count", HF_U32, "num_shared_experts"},
  {"expert_feed_forward_length", HF_U32, "moe_intermediate_size"},
  {"leading_dense_block_count", HF_U32, "num_dense_layers"},
  {"expert_weights_norm", HF_BOOL, "route_norm"},
  {"expert_weights_scale", HF_F32_KEY, "route_scale"},
  {"attention.sliding_window", HF_U32, "sliding_window"},
  {0},
};

static int afmoe_more(hf *h, error *err) { return hf_check_layers(h, 4, 3, err) || hf_llama_more(h, err) ? -1 : 0; }

// ---- MiniMax-01 and M1: lightning attention -------------------------------------------------------------------------

static const hf_rule minimax_01_rules[] = {
  {BLOCK "self_attn.qkv_proj", "blk.*.attn_qkv", 0, 0},
  {BLOCK "self_attn.output_gate", "blk.*.attn_gate", 0, 0},
  {BLOCK "self_attn.norm", "blk.*.attn_norm_2", 0, 0},
  {BLOCK "self_attn.slope_rate", NULL, HF_SKIP, 0},
  {BLOCK "self_attn.query_decay", NULL, HF_SKIP, 0},
  {BLOCK "self_attn.key_decay", NULL, HF_SKIP, 0},
  {BLOCK "self_attn.diagonal_decay", NULL, HF_SKIP, 0},
  {BLOCK "self_attn.out_proj", "blk.*.attn_output", 0, 0},
  HF_EXPERTS_W(BLOCK "block_sparse_moe"),
  {0},
};

// Files have one factor of the stream for all parts, and none of parts' outputs.
static int put_stream_factor(hf *h, error *err) {
  static const char *const names[] = {"layernorm_full_attention_alpha full_attn_alpha_factor",
                                      "layernorm_linear_attention_alpha linear_attn_alpha_factor",
                                      "layernorm_mlp_alpha mlp_alpha_factor"},
                    *const ones[] = {"layernorm_full_attention_beta full_attn_beta_factor",
                                     "layernorm_linear_attention_beta linear_attn_beta_factor",
                                     "layernorm_mlp_beta mlp_beta_factor"};
  double of[3] = {1, 1, 1}, one[3] = {1, 1, 1};
  bool found;
  for (int i = 0; i < 3; i++) {
    if (hf_f64(h, names[i], &of[i], &found, err) || hf_f64(h, ones[i], &one[i], &found, err)) return -1;
    if (of[i] != of[0] || one[i] != 1)
      return hf_fail(h, config_name, names[i], err, "and its beta are %g and %g: files have one alpha (%g), and beta 1",
                     of[i], one[i], of[0]);
  }
  gguf_head_f32(h->head, hf_arch_key(h, "residual_scale"), (float)of[0]);
  return 0;
}

// Which layers are recurrent is said only if it is not the default: all but every eighth.
static int put_lightning_layers(hf *h, error *err) {
  const char *name;
  const json_t *list = hf_value(h, "attn_type_list layer_types", &name);
  uint32_t n;
  if (!list) return 0;
  if (hf_need_u32(h, "num_hidden_layers", &n, err)) return -1;
  if (n > HF_LAYERS_MOST || json_array_size(list) != n)
    return hf_fail(h, config_name, name, err, "is not a list of %u layers, of %d at most", n, HF_LAYERS_MOST);
  bool *each = ARENA_ARRAY(h->arena, bool, n), usual = true;
  for (uint32_t i = 0; i < n; i++) {
    const json_t *v = json_array_get(list, i);
    const char *type = json_is_integer(v) ? (json_integer_value(v) ? "full_attention" : "linear_attention")
                                          : json_string_value(v);
    each[i] = type && !strcmp(type, "linear_attention");
    if (!each[i] && (!type || strcmp(type, "full_attention")))
      return hf_fail(h, config_name, name, err, "has '%.40s'", type ? type : "what is no text");
    usual &= each[i] == ((i + 1) % 8 != 0);
  }
  if (!usual) gguf_head_bools(h->head, hf_arch_key(h, "attention.recurrent_layers"), each, n);
  return 0;
}

static int minimax_01_more(hf *h, error *err) {
  return put_stream_factor(h, err) || put_lightning_layers(h, err) || minimax_more(h, err) ? -1 : 0;
}

// ---- Llama 4 --------------------------------------------------------------------------------------------------------

static const hf_rule llama4_rules[] = {
  {BLOCK "feed_forward.gate_proj", "blk.*.ffn_gate", 0, 0},
  {BLOCK "feed_forward.up_proj", "blk.*.ffn_up", 0, 0},
  {BLOCK "feed_forward.down_proj", "blk.*.ffn_down", 0, 0},
  {BLOCK "feed_forward.router", "blk.*.ffn_gate_inp", 0, 0},
  {BLOCK "feed_forward.experts.gate_up_proj", "blk.*.ffn_gate_exps.weight", HF_TURNED_FIRST, 0},
  {BLOCK "feed_forward.experts.gate_up_proj", "blk.*.ffn_up_exps.weight", HF_TURNED_REST, 0},
  {BLOCK "feed_forward.experts.down_proj", "blk.*.ffn_down_exps.weight", HF_TURNED, 0},
  HF_SHARED_EXPERT(BLOCK "feed_forward.shared_expert"),
  {0},
};
static const hf_key llama4_keys[] = {
  {"vocab_size", HF_U32, "vocab_size"},
  {"feed_forward_length", HF_U32, "intermediate_size_mlp"},
  {"expert_feed_forward_length", HF_U32, "intermediate_size"},
  {"interleave_moe_layer_step", HF_U32, "interleave_moe_layer_step"},
  {0},
};

// Layers have experts at equal distances; norms of queries and keys are known from the number of experts.
static int llama4_more(hf *h, error *err) {
  static const char kinds[] = "full_attention chunked_attention", chunk[] = "attention_chunk_size";
  uint32_t step, experts;
  hf_layers y;
  size_t i;
  json_t *list = json_object_get(h->text, "moe_layers"), *v;
  const char *name;
  if (hf_need_u32(h, "interleave_moe_layer_step", &step, err) ||
      hf_need_u32(h, "num_local_experts", &experts, err) || hf_read_layers(h, "layer_types", kinds, false, &y, err))
    return -1;
  for (uint32_t k = 0; y.of && k < y.n; k++)
    if (y.of[k] != ((k + 1) % 4 != 0))
      return hf_fail(h, config_name, "layer_types", err, "is not chunked but for each fourth layer");
  if (json_is_null(json_object_get(h->text, chunk)) && json_object_get(h->text, chunk))
    return hf_fail(h, config_name, chunk, err, "is null, but layers of %s are chunked", h->class->arch);
  if (!json_is_null(list) && list && json_array_size(list) != h->n_layers / step)
    return hf_fail(h, config_name, "moe_layers", err, "is not of every layer in %u", step);
  json_array_foreach(list, i, v)
    if (!json_is_integer(v) || json_integer_value(v) != (json_int_t)((i + 1) * step - 1))
      return hf_fail(h, config_name, "moe_layers", err, "is not of every layer in %u", step);
  bool normed = !json_is_false(hf_value(h, "use_qk_norm", &name));
  if (normed != (experts != 128))
    return hf_fail(h, config_name, "use_qk_norm", err, "is %s, but files of %s with %u experts are of %s",
                   normed ? "true" : "false", h->class->arch, experts, normed ? "false" : "true");
  return hf_check_positions(h, 4, err) || hf_llama_more(h, err) ? -1 : 0;
}

// ---- the rows -------------------------------------------------------------------------------------------------------

#define EPS6 "\"rms_norm_eps\":1e-6"
#define THETA(x) "\"rope_theta\":" x
const hf_class hf_classes_moe[] = {
  {.name = "DeepseekV2ForCausalLM",
   .own_log_weight = true,
   .arch = "deepseek2",
   .musts = "hidden_act=silu topk_method=greedy moe_layer_freq=1",
   .defaults = "{" EPS6 "," THETA("10000.0") ",\"first_k_dense_replace\":0,\"kv_lora_rank\":512,"
               "\"n_shared_experts\":0}",
   .no_mtp = true,
   .keys = deepseek_keys,
   .rules = deepseek_rules,
   .more = deepseek_more},
  {.name = "DeepseekV3ForCausalLM",
   .like = "DeepseekV2ForCausalLM",
   .musts = "hidden_act=silu topk_method=noaux_tc moe_layer_freq=1 rope_interleave=true"},
  {.name = "KimiK25ForConditionalGeneration", .like = "DeepseekV3ForCausalLM", .seeing = true},
  {.name = "KimiVLForConditionalGeneration", .like = "DeepseekV3ForCausalLM", .seeing = true},
  {.name = "Dots3NoteForCausalLM",
   .arch = "dots3note",
   .vocab = HF_VOCAB_DOTS3,
   .no_mtp = true,
   .prepare = prepare_dots3,
   .musts = "hidden_act=silu attention_bias=false mlp_bias=false topk_method=noaux_tc scoring_func=sigmoid n_group=1 "
            "topk_group=1 use_dsa=true normalization=RMSNorm final_norm=RMSNorm k_rope_only_layernorm=true "
            "attention_gate_type=headwise swa_attention_gate_type=headwise use_dynamic_rsf=false moe_gating_fp32=false "
            "moe_layer_freq=1 use_sliding_window=true",
   .defaults = "{\"rms_norm_eps\":1e-5,\"rope_theta\":8e7,\"swa_rope_theta\":50000.0,\"scoring_func\":\"sigmoid\","
               "\"n_shared_experts\":1,\"first_k_dense_replace\":1,\"routed_scaling_factor\":1.0,"
               "\"norm_topk_prob\":true,\"n_group\":1,\"topk_group\":1}",
   .keys = dots3_keys,
   .rules = dots3_rules,
   .more = dots3_more},
  {.name = "Dots3NoteForConditionalGeneration", .like = "Dots3NoteForCausalLM", .seeing = true},
  {.name = "Dots3NoteTextForCausalLM", .like = "Dots3NoteForCausalLM"},
  {.name = "GraniteSwitchForCausalLM",
   .arch = "graniteswitch",
   .vocab = HF_VOCAB_LLAMA,
   .seeing = true,                   // "model.switch." is skipped
   .prepare = prepare_switch,
   .needs = "attention_multiplier",
   .derived = "shared_intermediate_size=intermediate_size",
   .musts = "hidden_act=silu attention_bias=false position_embedding_type=rope num_local_experts=0 switch_type=single "
            "dual_stream=false ms_code_m=none ms_memory_gain=none tie_word_embeddings=true",
   .defaults = "{\"rms_norm_eps\":1e-6,\"rope_theta\":10000.0,\"control_token_gain\":15.0,\"max_lora_rank\":8}",
   .keys = switch_keys,
   .rules = switch_rules,
   .more = switch_more},
  {.name = "GraniteMoeForCausalLM",
   .like = "GraniteForCausalLM",
   .arch = "granitemoe",
   .keys = granite_keys,
   .rules = granite_rules},
  {.name = "GraniteMoeSharedForCausalLM", .like = "GraniteMoeForCausalLM"},
  {.name = "Glm4MoeForCausalLM",
   .vocab = HF_VOCAB_GLM_MOE,
   .arch = "glm4moe",
   .musts = "hidden_act=silu scoring_func=sigmoid",
   .defaults = "{\"rms_norm_eps\":1e-5," THETA("10000.0") ",\"head_dim\":128}",
   .keys = glm4_keys,
   .rules = glm4_rules,
   .more = glm4_moe_more},
  {.name = "DeepseekV32ForCausalLM",
   .own_log_weight = true,
   .arch = "deepseek32",
   .prepare = hf_read_dense_layers,
   .musts = "hidden_act=silu attention_bias=false mlp_bias=false scoring_func=sigmoid topk_method=noaux_tc "
            "partial_rotary_factor=1 moe_layer_freq=1",
   .defaults = "{" EPS6 "," THETA("10000.0") ",\"first_k_dense_replace\":0,\"kv_lora_rank\":512,"
               "\"n_shared_experts\":0}",
   .keys = indexed_keys,
   .rules = indexed_rules,
   .more = indexed_more},
  {.name = "GlmMoeDsaForCausalLM",
   .like = "DeepseekV32ForCausalLM",
   .vocab = HF_VOCAB_GLM_MOE,
   .arch = "glm-dsa",
   .defaults = "{\"rms_norm_eps\":1e-5," THETA("10000.0") ",\"first_k_dense_replace\":0,\"kv_lora_rank\":512}"},
  {.name = "Glm4MoeLiteForCausalLM",
   .like = "GlmMoeDsaForCausalLM",
   .arch = "deepseek2",
   .musts = "hidden_act=silu attention_bias=false mlp_bias=false scoring_func=sigmoid topk_method=noaux_tc "
            "partial_rotary_factor=1 rope_interleave=true",
   .defaults = "{\"rms_norm_eps\":1e-5," THETA("10000.0") ",\"first_k_dense_replace\":1,\"scoring_func\":\"sigmoid\","
               "\"n_shared_experts\":1,\"norm_topk_prob\":true}",
   .keys = deepseek_keys,
   .rules = glm_lite_rules,
   .more = glm_lite_more},
  {.name = "YoutuForCausalLM",                             // dense
   .like = "DeepseekV2ForCausalLM",
   .musts = "hidden_act=silu attention_bias=false mlp_bias=false rope_interleave=true n_routed_experts=none",
   .defaults = "{" EPS6 "," THETA("10000.0") ",\"kv_lora_rank\":512,\"n_shared_experts\":0}",
   .derived = "first_k_dense_replace=num_hidden_layers"},
  {.name = "HYV4ForCausalLM",
   .own_log_weight = true,
   .no_mtp = true,
   .arch = "hy_v4",
   .f32 = "output_hc_fn",
   .needs = "routed_scaling_factor swiglu_limit",
   .musts = "hidden_act=silu attention_bias=false mlp_bias=false n_group=1 topk_group=1",
   .defaults = "{\"rms_norm_eps\":1e-5," THETA("10000.0") ",\"first_k_dense_replace\":1,\"n_shared_experts\":1,"
               "\"norm_topk_prob\":true}",
   .prepare = prepare_hy_v4,
   .keys = hy_v4_keys,
   .rules = hy_v4_rules,
   .more = hy_v4_more},
  {.name = "HYV3ForCausalLM",
   .arch = "hy_v3",
   .musts = "hidden_act=silu attention_bias=false mlp_bias=false qk_norm=true moe_router_use_sigmoid=true "
            "moe_router_enable_expert_bias=true",
   .defaults = "{\"rms_norm_eps\":1e-5," THETA("11158840.0") ",\"num_shared_experts\":1,\"route_norm\":true}",
   .needs = "router_scaling_factor",
   .derived = "shared_width=moe_intermediate_size*num_shared_experts",
   .keys = hy_v3_keys,
   .rules = hy_v3_rules,
   .more = hy_v3_more},
  {.name = "Dots1ForCausalLM",
   .arch = "dots1",
   .musts = "hidden_act=silu scoring_func=sigmoid n_group=1",
   .defaults = "{" EPS6 "," THETA("10000.0") ",\"scoring_func\":\"sigmoid\",\"norm_topk_prob\":false}",
   .keys = glm4_keys,
   .rules = dots_rules,
   .more = hf_all_full},
  {.name = "MiniMaxM2ForCausalLM",
   .arch = "minimax-m2",
   .musts = "hidden_act=silu scoring_func=sigmoid use_qk_norm=true",
   .defaults = "{" EPS6 "," THETA("5e6") ",\"scoring_func\":\"sigmoid\"}",
   .keys = minimax_keys,
   .rules = minimax_rules,
   .more = minimax_more},
  {.name = "MiniMaxM3SparseForConditionalGeneration",
   .arch = "minimax-m3",
   .seeing = true,
   .no_mtp = true,
   .f32 = ".indexer.",
   .needs = "routed_scaling_factor",
   .musts = "hidden_act=silu|swigluoai scoring_func=sigmoid use_qk_norm=true use_gemma_norm=true swiglu_alpha=1.702 "
            "swiglu_limit=7 qk_norm_type=per_head",
   .defaults = "{" EPS6 "," THETA("5e6") ",\"scoring_func\":\"sigmoid\",\"n_shared_experts\":1,\"rotary_dim\":64,"
               "\"first_k_dense_replace\":0,\"head_dim\":128}",
   .prepare = prepare_minimax_m3,
   .keys = minimax_m3_keys,
   .rules = minimax_m3_rules,
   .more = minimax_m3_more},
  {.name = "MiniMaxM3SparseForCausalLM", .like = "MiniMaxM3SparseForConditionalGeneration"},
  {.name = "MiniMaxM3VLForCausalLM", .like = "MiniMaxM3SparseForConditionalGeneration"},
  {.name = "PhiMoEForCausalLM",
   .arch = "phimoe",
   .vocab = HF_VOCAB_PHI3,
   .own_scaling = true,
   .musts = "hidden_act=silu router_jitter_noise=0.01",
   .defaults = "{\"rms_norm_eps\":1e-5," THETA("1e6") ",\"original_max_position_embeddings\":4096}",
   .rules = phimoe_rules,
   .more = phimoe_more},
  {.name = "PhimoeForCausalLM", .like = "PhiMoEForCausalLM"},
  {.name = "ExaoneMoEForCausalLM",
   .arch = "exaone-moe",
   .further = true,
   .own_scaling = true,
   .musts = "hidden_act=silu scoring_func=sigmoid topk_method=noaux_tc",
   .defaults = "{\"rms_norm_eps\":1e-5," THETA("1e6") ",\"first_k_dense_replace\":0}",
   .derived = "shared_width=moe_intermediate_size*num_shared_experts",
   .keys = exaone_keys,
   .rules = exaone_rules,
   .more = exaone_more},
  {.name = "ExaoneMoeForCausalLM", .like = "ExaoneMoEForCausalLM"},
  {.name = "AfmoeForCausalLM",
   .arch = "afmoe",
   .vocab = HF_VOCAB_LLAMA,
   .musts = "hidden_act=silu attention_bias=false mup_enabled=true score_func=sigmoid global_attn_every_n_layers=4 "
            "n_group=1",
   .defaults = "{\"rms_norm_eps\":1e-5," THETA("10000.0") ",\"head_dim\":128,\"mup_enabled\":false,"
               "\"sliding_window\":1024}",
   .keys = afmoe_keys,
   .rules = afmoe_rules,
   .more = afmoe_more},
  {.name = "MiniMaxText01ForCausalLM",
   .arch = "minimax-01",
   .musts = "hidden_act=silu postnorm=true shared_intermediate_size=0 sliding_window=none",
   .defaults = "{\"rms_norm_eps\":1e-5," THETA("1e6") "}",
   .keys = minimax_keys + 1,
   .rules = minimax_01_rules,
   .more = minimax_01_more},
  {.name = "MiniMaxM1ForCausalLM", .like = "MiniMaxText01ForCausalLM"},
  {.name = "MiniMaxForCausalLM", .like = "MiniMaxText01ForCausalLM"},
  {.name = "Llama4ForCausalLM",
   .arch = "llama4",
   .musts = "hidden_act=silu attention_bias=false attention_chunk_size=8192 floor_scale=8192 attn_scale=0.1 "
            "attn_temperature_tuning=true|4 no_rope_layer_interval=4",
   .defaults = "{\"rms_norm_eps\":1e-5," THETA("500000.0") ",\"head_dim\":128,\"interleave_moe_layer_step\":1}",
   .keys = llama4_keys,
   .rules = llama4_rules,
   .more = llama4_more},
  {.name = "Llama4ForConditionalGeneration", .like = "Llama4ForCausalLM", .seeing = true},
  {.name = "Ernie4_5ForCausalLM",
   .vocab = HF_VOCAB_LLAMA,
   .arch = "ernie4_5",
   .musts = "hidden_act=silu",
   .defaults = "{\"rms_norm_eps\":1e-5," THETA("500000.0") ",\"head_dim\":128}"},
  {.name = "Ernie4_5_ForCausalLM", .like = "Ernie4_5ForCausalLM"},          // the class's first name
  {.name = "Ernie4_5_MoeForCausalLM",
   .like = "Ernie4_5ForCausalLM",
   .arch = "ernie4_5-moe",
   .no_mtp = true,
   .musts = "hidden_act=silu moe_norm_min=1e-12",
   .defaults = "{\"rms_norm_eps\":1e-5," THETA("500000.0") "}",
   .keys = ernie_keys,
   .rules = ernie_rules,
   .more = ernie_more},
  {0},
};
