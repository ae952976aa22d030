// Rows of the table of classes (hf_classes.c) for models whose layers have windows in an order that the folder lists:
// Mellum 2, MiMo V2, Command A's mixtures, Laguna, Granite SWA and Muse Glimmer.
#include <string.h>
#include "model/hf_impl.h"

#define BLOCK "model.layers.*."
static const char config_name[] = "config.json";
static const char kinds_of_attention[] = "full_attention sliding_attention";

// Reads which layers have a window, if there is one.
static int put_listed_windows(hf *h, error *err) {
  uint32_t window;
  bool found;
  if (hf_u32(h, "sliding_window", &window, &found, err)) return -1;
  if (!found || !window) return hf_all_full(h, err);
  if (!json_array_size(json_object_get(h->text, "layer_types")))
    return hf_fail(h, config_name, "layer_types", err, "is missing");
  return hf_put_windows(h, 1, err);
}

// ---- Mellum 2 -------------------------------------------------------------------------------------------------------

static const hf_rule mellum_rules[] = {HF_EXPERTS(BLOCK "mlp"), {0}};
static const hf_key mellum_keys[] = {{"expert_feed_forward_length", HF_U32, "moe_intermediate_size"}, {0}};

// All layers have experts.
static int mellum_more(hf *h, error *err) {
  hf_layers y;
  const char *name;
  if (hf_read_layers(h, "mlp_layer_types", "sparse", false, &y, err)) return -1;
  return json_is_false(hf_value(h, "use_sliding_window", &name)) ? hf_all_full(h, err) : put_listed_windows(h, err);
}

// ---- MiMo V2 --------------------------------------------------------------------------------------------------------

#define ROWS(kv) "num_attention_heads*head_dim " kv "*head_dim " kv "*v_head_dim"
static const hf_rule mimo_rules[] = {
  {BLOCK "self_attn.qkv_proj", "blk.*.attn_qkv", HF_RANKS,
   ROWS("num_key_value_heads") "|" ROWS("swa_num_key_value_heads")},
  HF_EXPERTS(BLOCK "mlp"),
  {BLOCK "mlp.gate.e_score_correction_bias", "blk.*.exp_probs_b.bias", 0, 0},
  {BLOCK "self_attn.attention_sink_bias", "blk.*.attn_sinks.weight", 0, 0},
  {BLOCK "pre_mlp_layernorm", "blk.*.ffn_norm", 0, 0},
  {BLOCK "final_layernorm", "blk.*.layer_output_norm", 0, 0},
  HF_NEXTN,
  {0},
};
static const hf_key mimo_keys[] = {
  {"attention.sliding_window", HF_U32, "sliding_window"},
  {"attention.value_length", HF_U32, "v_head_dim"},
  {"attention.value_scale", HF_F32_KEY, "attention_value_scale"},
  {"expert_feed_forward_length", HF_U32, "moe_intermediate_size"},
  {0},
};

// Sizes of layers with a window, which files have no keys for.
static int check_window_sizes(hf *h, error *err) {
  static const char *const pairs[][2] = {{"swa_head_dim", "head_dim"}, {"swa_v_head_dim", "v_head_dim"},
                                         {"swa_num_attention_heads", "num_attention_heads"}};
  for (size_t i = 0; i < COUNT(pairs); i++)
    if (hf_in(h->text, pairs[i][0]) && hf_check_equal(h, pairs[i][0], pairs[i][1], err)) return -1;
  return 0;
}

// sliding_window_size counts the positions before the token, sliding_window the token as well.
static int prepare_mimo(hf *h, error *err) {
  uint32_t before;
  bool found;
  if (hf_name_layers(h, "hybrid_layer_pattern", "layer_types", kinds_of_attention, err) || check_window_sizes(h, err) ||
      hf_read_layers(h, "layer_types", kinds_of_attention, true, &h->kinds, err) ||
      hf_u32(h, "sliding_window_size", &before, &found, err))
    return -1;
  if (found) json_object_set_new(h->text, "sliding_window", json_integer((json_int_t)before + 1));
  if (!json_object_get(h->text, "attention_value_scale"))  // null: values have none
    return hf_fail(h, config_name, "attention_value_scale", err, "is missing");
  json_t *eps = hf_in(h->text, "layernorm_epsilon");
  if (eps) json_object_set(h->text, "rms_norm_eps", eps);
  return 0;
}

// Layers that predict further tokens have windows.
static int mimo_more(hf *h, error *err) {
  uint32_t n = h->kinds.n + h->n_further;
  int32_t heads[2];
  if (hf_need_i32(h, "num_key_value_heads", &heads[0], err) ||
      hf_need_i32(h, "swa_num_key_value_heads", &heads[1], err))
    return -1;
  int32_t *each = ARENA_ARRAY(h->arena, int32_t, n);
  bool *near = ARENA_ARRAY(h->arena, bool, n);
  for (uint32_t i = 0; i < n; i++) {
    near[i] = i >= h->kinds.n || h->kinds.of[i];
    each[i] = heads[near[i]];
  }
  gguf_head_i32s(h->head, hf_arch_key(h, "attention.head_count_kv"), each, n);
  gguf_head_bools(h->head, hf_arch_key(h, "attention.sliding_window_pattern"), near, n);
  return 0;
}

// ---- Command A's mixtures -------------------------------------------------------------------------------------------

static const hf_rule cohere_rules[] = {
  HF_EXPERTS(BLOCK "mlp"), HF_SHARED_EXPERT(BLOCK "mlp.shared_experts"), HF_NEXTN, {0}};
static const hf_key cohere_keys[] = {
  {"vocab_size", HF_U32, "vocab_size"},
  {"logit_scale", HF_F32_KEY, "logit_scale"},
  {"rope.dimension_count", HF_U32, "head_dim"},
  {"expert_feed_forward_length", HF_U32, "intermediate_size"},
  {"leading_dense_block_count", HF_U32, "first_k_dense_replace"},
  {"expert_weights_norm", HF_BOOL, "norm_topk_prob"},
  {0},
};

static int cohere_moe_more(hf *h, error *err) {
  uint32_t shared = 0, width = 0;
  bool found;
  const char *name, *by = json_string_value(hf_value(h, "expert_selection_fn", &name));
  if (!json_array_size(json_object_get(h->text, "layer_types")))
    return hf_fail(h, config_name, "layer_types", err, "is missing");
  if (hf_u32(h, "num_shared_experts", &shared, &found, err) || hf_u32(h, "shared_width", &width, &found, err) ||
      hf_put_nextn(h, err) || put_listed_windows(h, err))
    return -1;
  if (by && !strcmp(by, "softmax") && !json_is_true(hf_value(h, "norm_topk_prob", &name)))
    return hf_fail(h, config_name, "norm_topk_prob", err, "is false, but softmax is over the chosen experts");
  if (shared) {
    gguf_head_u32(h->head, hf_arch_key(h, "expert_shared_count"), shared);
    gguf_head_u32(h->head, hf_arch_key(h, "expert_shared_feed_forward_length"), width);
  }
  gguf_head_str(h->head, hf_arch_key(h, "rope.scaling.type"), "none", 4);
  return 0;
}

// ---- Laguna ---------------------------------------------------------------------------------------------------------

static const hf_rule laguna_rules[] = {
  HF_EXPERTS(BLOCK "mlp"),
  HF_SHARED_EXPERT(BLOCK "mlp.shared_expert"),
  {BLOCK "mlp.experts.e_score_correction_bias", "blk.*.exp_probs_b.bias", 0, 0},
  {BLOCK "self_attn.g_proj", "blk.*.attn_gate", 0, 0},
  {0},
};
static const hf_key laguna_keys[] = {
  {"vocab_size", HF_U32, "vocab_size"},
  {"expert_feed_forward_length", HF_U32, "moe_intermediate_size"},
  {"expert_shared_feed_forward_length", HF_U32, "shared_expert_intermediate_size"},
  {"expert_weights_scale", HF_F32_KEY, "moe_routed_scaling_factor"},
  {"leading_dense_block_count", HF_U32, "first_k_dense_replace"},
  {0},
};

static int put_heads_by_layer(hf *h, error *err) {
  static const char key[] = "num_attention_heads_per_layer";
  const json_t *list = json_object_get(h->text, key);
  uint32_t all;
  if (hf_need_u32(h, "num_attention_heads", &all, err)) return -1;
  bool listed = json_is_array(list) && json_array_size(list);
  if (h->n_layers > HF_LAYERS_MOST || (listed && json_array_size(list) != h->n_layers))
    return hf_fail(h, config_name, key, err, "is not a list of %u layers, of %d at most", h->n_layers, HF_LAYERS_MOST);
  int32_t *each = ARENA_ARRAY(h->arena, int32_t, h->n_layers);
  for (uint32_t i = 0; i < h->n_layers; i++) {
    const json_t *v = json_array_get(list, i);
    json_int_t n = !listed ? (json_int_t)all : json_is_integer(v) ? json_integer_value(v) : 0;
    if (n < 1 || n > INT32_MAX) return hf_fail(h, config_name, key, err, "has what is no number of heads at %u", i);
    each[i] = (int32_t)n;
  }
  gguf_head_i32s(h->head, hf_arch_key(h, "attention.head_count"), each, h->n_layers);
  return 0;
}

// Files without a list mean that each fourth layer, from the first one on, has no window.
static int put_laguna_windows(hf *h, error *err) {
  uint32_t window;
  bool found, usual = true;
  hf_layers y;
  if (hf_u32(h, "sliding_window", &window, &found, err)) return -1;
  if (!found || !window) return hf_all_full(h, err);
  if (hf_read_layers(h, "layer_types", kinds_of_attention, true, &y, err)) return -1;
  gguf_head_u32(h->head, hf_arch_key(h, "attention.sliding_window"), window);
  for (uint32_t i = 0; i < y.n; i++) usual = usual && y.of[i] == (i % 4 != 0);
  return usual ? 0 : hf_put_windows(h, 4, err);
}

// The share of a head that layers with a window rotate.
static int put_rotated_in_windows(hf *h, error *err) {
  const char *name;
  const json_t *near = hf_in(hf_value(h, "rope_parameters", &name), "sliding_attention");
  double share = 1;
  uint32_t size;
  bool found;
  if (!near) return 0;
  if (hf_number_in(h, near, "partial_rotary_factor", &share, &found, err) || hf_need_u32(h, "head_dim", &size, err))
    return -1;
  if (!(share > 0 && share <= 1))
    return hf_fail(h, config_name, "partial_rotary_factor", err, "is not from 0 to 1");
  gguf_head_u32(h->head, hf_arch_key(h, "rope.dimension_count_swa"), (uint32_t)(size * share));
  return 0;
}

static int laguna_more(hf *h, error *err) {
  gguf_head_bool(h->head, hf_arch_key(h, "expert_weights_norm"), true);
  gguf_head_u32(h->head, hf_arch_key(h, "expert_gating_func"), 2);
  return put_heads_by_layer(h, err) || put_laguna_windows(h, err) || put_rotated_in_windows(h, err) ? -1 : 0;
}

// ---- Granite SWA ----------------------------------------------------------------------------------------------------

#define SINKS {BLOCK "self_attn.sinks", "blk.*.attn_sinks.weight", 0, 0}
static const hf_rule granite_rules[] = {HF_WOVEN, SINKS, {0}};
// Gate and up of experts, and of the shared one, stay one matrix.
static const hf_rule granite_moe_rules[] = {
  HF_WOVEN,
  SINKS,
  {BLOCK "block_sparse_moe.router", "blk.*.ffn_gate_inp", 0, 0},
  {BLOCK "block_sparse_moe.router.layer", "blk.*.ffn_gate_inp", 0, 0},
  {BLOCK "block_sparse_moe.experts.gate_up_proj", "blk.*.ffn_gate_up_exps.weight", 0, 0},
  {BLOCK "block_sparse_moe.experts.down_proj", "blk.*.ffn_down_exps.weight", 0, 0},
  {BLOCK "block_sparse_moe.input_linear", "blk.*.ffn_gate_up_exps", 0, 0},
  {BLOCK "block_sparse_moe.output_linear", "blk.*.ffn_down_exps", 0, 0},
  {BLOCK "shared_mlp.input_linear", "blk.*.ffn_up_shexp", 0, 0},
  {BLOCK "shared_mlp.output_linear", "blk.*.ffn_down_shexp", 0, 0},
  {0},
};
static const hf_key granite_keys[] = {HF_GRANITE_KEYS, {0}};
static const hf_key granite_moe_keys[] = {
  HF_GRANITE_KEYS, {"expert_shared_feed_forward_length", HF_U32, "shared_intermediate_size"}, {0}};

// Without a list each fourth layer, from the first one on, has no window.
static int prepare_granite(hf *h, error *err) {
  uint32_t n;
  json_object_del(h->text, "head_dim");
  if (json_array_size(json_object_get(h->text, "layer_types"))) return 0;
  if (hf_need_u32(h, "num_hidden_layers", &n, err)) return -1;
  if (n > HF_LAYERS_MOST)
    return hf_fail(h, config_name, "num_hidden_layers", err, "%u is more than %d", n, HF_LAYERS_MOST);
  json_t *names = json_array();
  json_object_set_new(h->text, "layer_types", names);
  for (uint32_t i = 0; i < n; i++)
    json_array_append_new(names, json_string(i % 4 ? "sliding_attention" : "full_attention"));
  return 0;
}

// Which layers rotate: the base of those that do not is 0, the others have one base.
static int put_turning(hf *h, error *err) {
  static const char bases[] = "layer_rope_theta", flags[] = "no_rope_layers";
  json_t *list = json_object_get(h->text, flags), *v;
  const char *key = json_array_size(list) ? flags : bases;
  double base = 0, usual = 0;
  bool found;
  size_t i, n = json_array_size(list = json_object_get(h->text, key));
  if (!n) return 0;
  if (hf_rope_number(h, "rope_theta", "rope_theta", &usual, &found, err)) return -1;
  if (n != h->n_layers || n > HF_LAYERS_MOST)
    return hf_fail(h, config_name, key, err, "is not a list of %u layers, of %d at most", h->n_layers, HF_LAYERS_MOST);
  bool *turns = ARENA_ARRAY(h->arena, bool, n), all = key == bases;
  json_array_foreach(list, i, v) {
    double of = json_is_boolean(v) ? json_is_true(v) : json_number_value(v);
    if (!(json_is_number(v) || json_is_boolean(v)) || of < 0 || (base != 0 && of != 0 && of != base))
      return hf_fail(h, config_name, key, err, "has another number than one and 0 at %zu", i);
    turns[i] = of != 0;
    all = all && turns[i];
    if (of != 0) base = of;
  }
  if (key == bases && base != 0 && base != usual) gguf_head_f32(h->head, hf_arch_key(h, "rope.freq_base"), (float)base);
  if (!all) gguf_head_bools(h->head, hf_arch_key(h, "attention.rope_pattern"), turns, n);
  return 0;
}

static int granite_swa_more(hf *h, error *err) {
  return put_listed_windows(h, err) || hf_llama_more(h, err) || put_turning(h, err) ? -1 : 0;
}

// ---- Muse Glimmer ---------------------------------------------------------------------------------------------------

// 1 is added to the norms of layers. Queries and keys have norms without weights, and queries one factor.
#define QUERIES BLOCK "self_attn.q_proj.weight"
static const hf_rule muse_rules[] = {
  {BLOCK "input_layernorm", "blk.*.attn_norm", HF_PLUS_ONE, 0},
  {BLOCK "post_attention_layernorm", "blk.*.post_attention_norm", HF_PLUS_ONE, 0},
  {BLOCK "pre_feedforward_layernorm", "blk.*.ffn_norm", HF_PLUS_ONE, 0},
  {BLOCK "post_feedforward_layernorm", "blk.*.post_ffw_norm", HF_PLUS_ONE, 0},
  {QUERIES, "blk.*.attn_q_norm.weight", HF_FULL, "qk_scale_factor"},
  {QUERIES, "blk.*.attn_k_norm.weight", HF_FULL, NULL},
  {QUERIES, "blk.*.attn_q.weight", HF_WEAVE, "num_attention_heads"},
  HF_WOVEN,
  {BLOCK "self_attn.gate_proj", "blk.*.attn_gate", 0, 0},
  {0},
};
static const hf_key muse_keys[] = {
  {"final_logit_softcapping", HF_F32_KEY, "final_logit_softcapping"},
  {"logit_scale", HF_F32_KEY, "output_multiplier"},
  {0},
};

// Layers without a window do not rotate, the others have the model's base.
static int muse_more(hf *h, error *err) {
  static const char key[] = "layer_rope_theta";
  json_t *list = json_object_get(h->text, key), *v;
  hf_layers y;
  double base = 0;
  bool found;
  size_t i;
  if (put_listed_windows(h, err) || hf_read_layers(h, "layer_types", kinds_of_attention, true, &y, err) ||
      hf_rope_number(h, "rope_theta", "rope_theta", &base, &found, err))
    return -1;
  json_array_foreach(list, i, v)
    if (i >= y.n || !json_is_number(v) || json_number_value(v) != (y.of[i] ? base : 0))
      return hf_fail(h, config_name, key, err, "has another base than files of %s at %zu", h->class->arch, i);
  return 0;
}

// ---- the rows -------------------------------------------------------------------------------------------------------

const hf_class hf_classes_windows[] = {
  {.name = "MellumForCausalLM",
   .arch = "mellum",
   .no_mtp = true,
   .musts = "hidden_act=silu attention_bias=false norm_topk_prob=true",
   .defaults = "{\"rms_norm_eps\":1e-6}",
   .keys = mellum_keys,
   .rules = mellum_rules,
   .more = mellum_more},
  {.name = "MiMoV2FlashForCausalLM",
   .arch = "mimo2",
   .further = true,
   .rotated = 0.334,
   .derived = "swa_num_key_value_heads=2*num_key_value_heads",
   .musts = "hidden_act=silu attention_bias=false norm_topk_prob=true routed_scaling_factor=1 scoring_func=sigmoid "
            "topk_method=noaux_tc n_group=1 topk_group=1 attention_projection_layout=split|fused_qkv",
   .ranked_qkv = true,
   .defaults = "{\"rms_norm_eps\":1e-5,\"rope_theta\":5e6,\"swa_rope_theta\":1e4,\"scoring_func\":\"sigmoid\"}",
   .prepare = prepare_mimo,
   .keys = mimo_keys,
   .rules = mimo_rules,
   .more = mimo_more},
  {.name = "MiMoV2ForCausalLM", .like = "MiMoV2FlashForCausalLM", .seeing = true},
  {.name = "Cohere2MoeForCausalLM",
   .arch = "cohere2moe",
   .musts = "hidden_act=silu attention_bias=false "
            "shared_expert_combination_strategy=average",
   .defaults = "{\"layer_norm_eps\":1e-5,\"rope_theta\":10000.0,\"logit_scale\":0.0625,\"head_dim\":128,"
               "\"sliding_window\":4096,\"expert_selection_fn\":\"softmax\",\"norm_topk_prob\":true,"
               "\"first_k_dense_replace\":0}",
   .derived = "shared_width=intermediate_size*num_shared_experts",
   .prepare = hf_read_dense_layers,
   .keys = cohere_keys,
   .rules = cohere_rules,
   .more = cohere_moe_more},
  {.name = "LagunaForCausalLM",
   .arch = "laguna",
   .vocab = HF_VOCAB_LAGUNA,
   .rotated = 1,
   .musts = "hidden_act=silu attention_bias=false gating=true|per-head|per-element moe_router_logit_softcapping=0 "
            "moe_apply_router_weight_on_input=false",
   .defaults = "{\"rms_norm_eps\":1e-6,\"head_dim\":128,\"moe_routed_scaling_factor\":1.0,"
               "\"first_k_dense_replace\":1}",
   .prepare = hf_read_dense_layers,
   .keys = laguna_keys,
   .rules = laguna_rules,
   .more = laguna_more},
  {.name = "GraniteSWAForCausalLM",
   .like = "GraniteForCausalLM",
   .arch = "granite_swa",
   .musts = "hidden_act=silu attention_bias=false mlp_bias=false",
   .defaults = "{\"rms_norm_eps\":1e-5,\"rope_theta\":10000.0,\"sliding_window\":128}",
   .prepare = prepare_granite,
   .keys = granite_keys,
   .rules = granite_rules,
   .more = granite_swa_more},
  {.name = "MuseGlimmerForConditionalGeneration",
   .arch = "muse-glimmer",
   .vocab = HF_VOCAB_MUSE,
   .seeing = true,
   .musts = "hidden_activation=silu attention_bias=false post_norm_eps=1e-08",
   .defaults = "{\"rms_norm_eps\":1e-5,\"rope_theta\":500000.0,\"head_dim\":128,\"sliding_window\":2048,"
               "\"final_logit_softcapping\":20.0,\"output_multiplier\":0.19611613513818404,"
               "\"qk_scale_factor\":3.87}",
   .keys = muse_keys,
   .rules = muse_rules,
   .more = muse_more},
  {.name = "GraniteMoeSWAForCausalLM",
   .like = "GraniteSWAForCausalLM",
   .defaults = "{\"rms_norm_eps\":1e-6,\"rope_theta\":10000.0,\"sliding_window\":128}",
   .keys = granite_moe_keys,
   .rules = granite_moe_rules},
  {0},
};
