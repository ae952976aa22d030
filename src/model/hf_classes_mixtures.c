// Rows of the table of classes (hf_classes.c) for further mixtures of experts, and dense models of their
// families: DeepSeek V4, GLM 4 of 2024, Solar Open, InternLM3, Ling 2 and Step 3.5.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "model/hf_impl.h"

static const char config_name[] = "config.json";

// ---- DeepSeek V4 ----------------------------------------------------------------------------------------------------

// Published folders have names of their own; transformers saves most of them with "model." before.
#define LAYER "layers.*."
#define STREAMS(part) \
  {LAYER "hc_" part "_fn", "blk.*.hc_" part "_fn.weight", 0, 0}, \
    {LAYER "hc_" part "_base", "blk.*.hc_" part "_base.weight", 0, 0}, \
    {LAYER "hc_" part "_scale", "blk.*.hc_" part "_scale.weight", 0, 0}
#define COMPRESSOR(in, to) \
  {in "ape", to "_ape.weight", 0, 0}, {in "wkv", to "_kv", 0, 0}, {in "wgate", to "_gate", 0, 0}, \
    {in "norm", to "_norm", 0, 0}
#define HEAD_STREAM(name) \
  {"hc_head_" name, "output_hc_" name ".weight", 0, 0}, {"hc_head.hc_" name, "output_hc_" name ".weight", 0, 0}
static const hf_rule v4_rules[] = {
  {"embed", "token_embd", 0, 0},
  {"embed_tokens", "token_embd", 0, 0},
  {"norm", "output_norm", 0, 0},
  {"head", "output", 0, 0},
  {"lm_head", "output", 0, 0},
  HEAD_STREAM("fn"),
  HEAD_STREAM("base"),
  HEAD_STREAM("scale"),
  STREAMS("attn"),
  STREAMS("ffn"),
  {LAYER "attn.attn_sink", "blk.*.attn_sinks.weight", 0, 0},
  {LAYER "attn.wq_a", "blk.*.attn_q_a", 0, 0},
  {LAYER "attn.wq_b", "blk.*.attn_q_b", 0, 0},
  {LAYER "attn.q_norm", "blk.*.attn_q_a_norm", 0, 0},
  {LAYER "attn.wkv", "blk.*.attn_kv", 0, 0},
  {LAYER "attn.kv_norm", "blk.*.attn_kv_a_norm", 0, 0},
  {LAYER "attn.norm", "blk.*.attn_kv_a_norm", 0, 0},
  {LAYER "attn.wo_a", "blk.*.attn_output_a", 0, 0},
  {LAYER "attn.wo_b", "blk.*.attn_output_b", 0, 0},
  COMPRESSOR(LAYER "attn.compressor.", "blk.*.attn_compressor"),
  {LAYER "attn.indexer.wq_b", "blk.*.indexer.attn_q_b", 0, 0},
  {LAYER "attn.indexer.weights_proj", "blk.*.indexer.proj", 0, 0},
  COMPRESSOR(LAYER "attn.indexer.compressor.", "blk.*.indexer_compressor"),
  {LAYER "attn_norm", "blk.*.attn_norm", 0, 0},
  {LAYER "ffn_norm", "blk.*.ffn_norm", 0, 0},
  {LAYER "ffn.gate.tid2eid", "blk.*.ffn_gate_tid2eid.weight", HF_INTEGERS, 0},
  {LAYER "ffn.gate.bias", "blk.*.exp_probs_b.bias", 0, 0},
  {LAYER "ffn.gate.bias_vl", "blk.*.exp_probs_b_vl.bias", 0, 0},
  HF_EXPERTS_W(LAYER "ffn"),
  {LAYER "ffn.shared_experts.w1", "blk.*.ffn_gate_shexp", 0, 0},
  {LAYER "ffn.shared_experts.w2", "blk.*.ffn_down_shexp", 0, 0},
  {LAYER "ffn.shared_experts.w3", "blk.*.ffn_up_shexp", 0, 0},
  {"unused", NULL, HF_SKIP, 0},
  {0},
};
static const hf_key v4_keys[] = {
  {"rope.dimension_count", HF_U32, "qk_rope_head_dim"},
  {"attention.q_lora_rank", HF_U32, "q_lora_rank"},
  {"attention.sliding_window", HF_U32, "sliding_window"},
  {"expert_feed_forward_length", HF_U32, "moe_intermediate_size"},
  {"expert_shared_count", HF_U32, "n_shared_experts"},
  {"expert_weights_scale", HF_F32_KEY, "routed_scaling_factor"},
  {"expert_weights_norm", HF_BOOL, "norm_topk_prob"},
  {"attention.indexer.head_count", HF_U32, "index_n_heads"},
  {"attention.indexer.key_length", HF_U32, "index_head_dim"},
  {"attention.indexer.top_k", HF_U32, "index_topk"},
  {"attention.output_group_count", HF_U32, "o_groups"},
  {"attention.output_lora_rank", HF_U32, "o_lora_rank"},
  {"attention.compress_rope_freq_base", HF_F32_KEY, "compress_rope_theta"},
  {"hyper_connection.count", HF_U32, "hc_mult"},
  {"hyper_connection.sinkhorn_iterations", HF_U32, "hc_sinkhorn_iters"},
  {"hyper_connection.epsilon", HF_F32_KEY, "hc_eps"},
  {"hash_layer_count", HF_U32, "num_hash_layers"},
  {0},
};

// Layers that choose experts by a table of tokens have no use for the bias. What reads pictures is left out.
static const char *v4_name(const hf *h, const char *name) {
  static const char *const beside[] = {"vision.", "aligner.", "image_"};
  json_int_t by_token = json_integer_value(json_object_get(h->text, "num_hash_layers"));
  for (size_t i = 0; i < COUNT(beside); i++) if (!strncmp(name, beside[i], strlen(beside[i]))) return "unused";
  const char *digits = strpbrk(name, "0123456789");
  return digits && hf_ends_in(name, ".ffn.gate.bias") && strtol(digits, NULL, 10) < by_token ? "unused" : name;
}

// transformers saves the rotation of layers with entries, and that of the others, as two groups. Only the first may be
// scaled, and its scaling does not change sizes.
static int read_v4_rotation(hf *h, error *err) {
  json_t *both = json_object_get(h->text, "rope_parameters"), *plain = hf_in(both, "main"),
         *entries = hf_in(both, "compress"), *theta;
  const char *type = json_string_value(hf_in(plain, "rope_type"));
  double factor = 1;
  bool found;
  if (type && strcmp(type, "default"))
    return hf_fail(h, config_name, "rope_type", err, "'%.40s' of main, which is not scaled in files of %s", type,
                   h->class->arch);
  if ((theta = hf_in(entries, "rope_theta"))) json_object_set(h->text, "compress_rope_theta", theta);
  if ((theta = hf_in(plain, "rope_theta"))) json_object_set(h->text, "rope_theta", theta);
  if (entries) json_object_set_new(h->text, "rope_parameters", entries = json_deep_copy(entries));
  else entries = json_is_object(both) ? both : json_object_get(h->text, "rope_scaling");
  json_object_del(plain ? entries : NULL, "rope_theta");
  if (hf_number_in(h, entries, "attention_factor", &factor, &found, err)) return -1;
  type = hf_rope_type(h);
  if (factor != 1 || (plain && type && !strcmp(type, "yarn") && !found))
    return hf_fail(h, config_name, "attention_factor", err, "is not 1, which files of %s mean", h->class->arch);
  json_object_del(entries, "attention_factor");
  return 0;
}

// The number of layers whose experts are chosen by a table of tokens, which come first.
static int read_hash_layers(hf *h, error *err) {
  hf_layers y;
  uint32_t n = 0, layers;
  bool found;
  if (hf_read_layers(h, "mlp_layer_types", "moe hash_moe", false, &y, err) ||
      hf_u32(h, "num_hash_layers", &n, &found, err) || hf_need_u32(h, "num_hidden_layers", &layers, err))
    return -1;
  if (!y.of) n = found ? n : 3;
  else for (n = 0; n < y.n && y.of[n]; n++) {}
  if (y.of && memchr(y.of + n, 1, y.n - n))
    return hf_fail(h, config_name, "mlp_layer_types", err, "has 'hash_moe' after 'moe'");
  json_object_set_new(h->text, "num_hash_layers", json_integer(n < layers ? n : layers));
  return 0;
}

static int prepare_v4(hf *h, error *err) {
  uint32_t size;
  double share = 0.125;
  bool found;
  if (read_v4_rotation(h, err) || read_hash_layers(h, err) || hf_need_u32(h, "head_dim", &size, err) ||
      hf_f64(h, "partial_rotary_factor", &share, &found, err))
    return -1;
  if (hf_in(h->text, "qk_rope_head_dim")) return 0;
  if (!(share > 0 && share <= 1)) return hf_fail(h, config_name, "partial_rotary_factor", err, "is not from 0 to 1");
  json_object_set_new(h->text, "qk_rope_head_dim", json_integer((json_int_t)(size * share)));
  return 0;
}

// Positions for each entry, by names of kinds.
static int check_rates(const hf *h, error *err) {
  static const struct { const char *in, *key; uint32_t must; } rates[] = {
    {"compress_rates", "compressed_sparse_attention", 4}, {"compress_rates", "heavily_compressed_attention", 128},
    {NULL, "compress_rate_csa", 4}, {NULL, "compress_rate_hca", 128}};
  for (size_t i = 0; i < COUNT(rates); i++) {
    const json_t *group = rates[i].in ? json_object_get(h->text, rates[i].in) : h->text;
    double v = rates[i].must;
    bool found;
    if (hf_number_in(h, group, rates[i].key, &v, &found, err)) return -1;
    if (v != rates[i].must)
      return hf_fail(h, config_name, rates[i].key, err, "%g, but files of %s are of %u", v, h->class->arch,
                     rates[i].must);
  }
  return 0;
}

// Positions for each entry of each layer. Lists of numbers go on with layers that predict further tokens.
static int put_v4_layers(hf *h, error *err) {
  static const char key[] = "compress_ratios";
  static const int32_t of_kind[] = {0, 4, 128};
  const json_t *list = hf_in(h->text, key);
  hf_layers y;
  if (list && !json_is_array(list)) return hf_fail(h, config_name, key, err, "is not a list");
  if (check_rates(h, err) ||
      hf_read_layers(h, "layer_types",
                     "sliding_attention compressed_sparse_attention heavily_compressed_attention", false, &y, err))
    return -1;
  size_t n = y.of || !json_array_size(list) ? y.n : json_array_size(list);
  if (n < y.n || n > HF_LAYERS_MOST) return hf_fail(h, config_name, key, err, "is not a list of %u layers", y.n);
  int32_t *each = ARENA_ARRAY(h->arena, int32_t, n);
  for (size_t i = 0; i < n; i++) {
    const json_t *v = json_array_get(list, i);
    json_int_t said = json_integer_value(v);
    each[i] = y.of ? of_kind[y.of[i]] : v ? (int32_t)said : i < 2 || i % 2 == 0 ? 128 : 4;
    if (!y.of && v && (!json_is_integer(v) || (said != 0 && said != 4 && said != 128)))
      return hf_fail(h, config_name, key, err, "has what is neither 0, 4 nor 128 at %zu", i);
  }
  gguf_head_i32s(h->head, hf_arch_key(h, "attention.compress_ratios"), each, n);
  return 0;
}

static int v4_more(hf *h, error *err) {
  double limit = 0;
  bool found;
  uint32_t width, streams;
  if (put_v4_layers(h, err) || hf_f64(h, "swiglu_limit", &limit, &found, err) ||
      hf_need_u32(h, "hidden_size", &width, err) || hf_need_u32(h, "hc_mult", &streams, err))
    return -1;
  float *each = ARENA_ARRAY(h->arena, float, h->n_layers);
  for (uint32_t i = 0; i < h->n_layers; i++) each[i] = (float)limit;
  gguf_head_f32s(h->head, hf_arch_key(h, "swiglu_clamp_exp"), each, h->n_layers);
  gguf_head_f32s(h->head, hf_arch_key(h, "swiglu_clamp_shexp"), each, h->n_layers);
  return hf_put_computed(h, "embedding_length_out", (uint64_t)width * streams, "hc_mult", err);
}

// ---- GLM 4 of 2024, Solar Open and InternLM3 ------------------------------------------------------------------------

#define BLOCK "model.layers.*."
#define EXPERTS(n) \
  HF_EXPERTS(BLOCK n), HF_SHARED_EXPERT(BLOCK n ".shared_experts"), \
  {BLOCK n ".gate.e_score_correction_bias", "blk.*.exp_probs_b.bias", 0, 0}
static const hf_rule glm_rules[] = {{BLOCK "mlp.gate_up_proj", "blk.*.ffn_up", 0, 0}, {0}};

// Files have no key for the size of a head if it is the width divided by the heads.
static int prepare_chatglm(hf *h, error *err) {
  uint32_t width, heads, size;
  bool found;
  if (hf_need_u32(h, "hidden_size", &width, err) || hf_need_u32(h, "num_attention_heads", &heads, err) ||
      hf_u32(h, "head_dim", &size, &found, err))
    return -1;
  if (found && size == width / heads) json_object_del(h->text, "head_dim");
  return 0;
}

static const hf_rule solar_rules[] = {
  {BLOCK "post_attention_layernorm", "blk.*.post_attention_norm", 0, 0}, EXPERTS("mlp"), {0}};
static const hf_key solar_keys[] = {
  {"expert_feed_forward_length", HF_U32, "moe_intermediate_size"},
  {"expert_shared_count", HF_U32, "n_shared_experts"},
  {"expert_weights_scale", HF_F32_KEY, "routed_scaling_factor"},
  {"expert_weights_norm", HF_BOOL, "norm_topk_prob"},
  {0},
};

static int solar_more(hf *h, error *err) {
  gguf_head_u32(h->head, hf_arch_key(h, "expert_gating_func"), 2);
  return hf_put_rotated(h, 1, err);
}

static const hf_rule internlm3_rules[] = {HF_WOVEN, {0}};
static const hf_key internlm3_keys[] = {{"vocab_size", HF_U32, "vocab_size"}, {0}};

// Scaling that depends on the length begins beyond the context that the file has.
static int internlm3_more(hf *h, error *err) {
  const char *type = hf_rope_type(h);
  if (type && !strcmp(type, "dynamic")) h->rotation_read = true;
  return hf_put_rope_dims(h, 1, err);
}

// ---- Ling 2 ---------------------------------------------------------------------------------------------------------

static const hf_rule ling2_rules[] = {
  {"model.word_embeddings", "token_embd", 0, 0},
  {BLOCK "attention.query_key_value", "blk.*.attn_qkv", 0, 0},
  {BLOCK "attention.dense", "blk.*.attn_output", 0, 0},
  {BLOCK "attention.query_layernorm", "blk.*.attn_q_norm", 0, 0},
  {BLOCK "attention.key_layernorm", "blk.*.attn_k_norm", 0, 0},
  {BLOCK "mlp.gate.expert_bias", "blk.*.exp_probs_b.bias", 0, 0},
  {BLOCK "final_layernorm", "blk.*.layer_output_norm", 0, 0},
  HF_NEXTN,
  EXPERTS("mlp"),
  {0},
};
static const hf_key ling2_keys[] = {
  {"vocab_size", HF_U32, "vocab_size"},
  {"leading_dense_block_count", HF_U32, "first_k_dense_replace"},
  {"expert_feed_forward_length", HF_U32, "moe_intermediate_size"},
  {"expert_shared_count", HF_U32, "num_shared_experts"},
  {"expert_shared_feed_forward_length", HF_U32, "moe_shared_expert_intermediate_size"},
  {"expert_weights_scale", HF_F32_KEY, "routed_scaling_factor"},
  {"expert_weights_norm", HF_BOOL, "norm_topk_prob"},
  {0},
};

// Folders give the rotated part of a head as a share; rotary_dim, if there, must be equal.
static int ling2_more(hf *h, error *err) {
  uint32_t rotated, size;
  double share = 0.5;
  bool found;
  if (hf_put_rotated(h, share, err) || hf_put_nextn(h, err) || hf_u32(h, "rotary_dim", &rotated, &found, err))
    return -1;
  if (!found) return 0;
  if (hf_head_size(h, &size, err) ||
      hf_rope_number(h, "partial_rotary_factor", "partial_rotary_factor rotary_pct rope_pct", &share, &found, err))
    return -1;
  if ((uint32_t)(size * share) == rotated) return 0;
  return hf_fail(h, config_name, "rotary_dim", err, "%u, but %g of %u elements are rotated", rotated, share, size);
}

// ---- Step 3.5 -------------------------------------------------------------------------------------------------------

// 1 is added to all norms. Layers with a window have heads of their own, and rotate otherwise.
static const hf_rule step_rules[] = {
  {"model.norm", "output_norm", HF_PLUS_ONE, 0},
  {BLOCK "input_layernorm", "blk.*.attn_norm", HF_PLUS_ONE, 0},
  {BLOCK "post_attention_layernorm", "blk.*.ffn_norm", HF_PLUS_ONE, 0},
  {BLOCK "self_attn.q_norm", "blk.*.attn_q_norm", HF_PLUS_ONE, 0},
  {BLOCK "self_attn.k_norm", "blk.*.attn_k_norm", HF_PLUS_ONE, 0},
  {BLOCK "self_attn.g_proj", "blk.*.attn_gate", 0, 0},
  {BLOCK "moe.gate", "blk.*.ffn_gate_inp", 0, 0},
  {BLOCK "moe.router_bias", "blk.*.exp_probs_b.bias", 0, 0},
  {BLOCK "moe.gate_proj", "blk.*.ffn_gate_exps", 0, 0},
  {BLOCK "moe.up_proj", "blk.*.ffn_up_exps", 0, 0},
  {BLOCK "moe.down_proj", "blk.*.ffn_down_exps", 0, 0},
  HF_SHARED_EXPERT(BLOCK "share_expert"),
  {BLOCK "enorm", "blk.*.nextn.enorm", HF_PLUS_ONE, 0},
  {BLOCK "hnorm", "blk.*.nextn.hnorm", HF_PLUS_ONE, 0},
  {BLOCK "transformer.shared_head.norm", "blk.*.nextn.shared_head_norm", HF_PLUS_ONE, 0},
  {BLOCK "transformer.shared_head.output", "blk.*.nextn.shared_head_head", 0, 0},
  HF_NEXTN,
  {0},
};
static const hf_key step_keys[] = {
  {"attention.sliding_window", HF_U32, "sliding_window"},
  {"expert_feed_forward_length", HF_U32, "moe_intermediate_size"},
  {"expert_shared_feed_forward_length", HF_U32, "share_expert_dim"},
  {"expert_weights_scale", HF_F32_KEY, "moe_router_scaling_factor"},
  {"expert_weights_norm", HF_BOOL, "norm_expert_weight"},
  {"leading_dense_block_count", HF_U32, "first_k_dense_replace"},
  {"moe_every_n_layers", HF_U32, "moe_every_n_layer"},
  {0},
};

// Kinds of layers, and of those that predict further tokens, which lists go on with (h->kinds).
static int read_step_layers(hf *h, error *err) {
  static const char key[] = "layer_types";
  const json_t *list = json_object_get(h->text, key);
  uint32_t layers, n = (uint32_t)json_array_size(list);
  if (hf_need_u32(h, "num_hidden_layers", &layers, err)) return -1;
  if (n < layers || n > HF_LAYERS_MOST) return hf_fail(h, config_name, key, err, "is not a list of %u layers", layers);
  h->kinds = (hf_layers){n, ARENA_ARRAY(h->arena, uint8_t, n)};
  for (uint32_t i = 0; i < n; i++) {
    const char *name = json_string_value(json_array_get(list, i));
    h->kinds.of[i] = name && !strcmp(name, "sliding_attention");
    if (!name || (!h->kinds.of[i] && strcmp(name, "full_attention")))
      return hf_fail(h, config_name, key, err, "has '%.40s'", name ? name : "what is no text");
  }
  return 0;
}

// A list with a number of each layer: one for those of each kind. Absent: *found is false.
static int read_by_kind(const hf *h, const char *key, double out[2], bool *found, error *err) {
  const json_t *list = json_object_get(h->text, key);
  bool known[2] = {false, false};
  *found = json_array_size(list) >= h->kinds.n;
  if (json_is_array(list) && !*found)
    return hf_fail(h, config_name, key, err, "is not a list of %u layers", h->kinds.n);
  for (uint32_t i = 0; i < h->kinds.n && *found; i++) {
    const json_t *v = json_array_get(list, i);
    uint8_t kind = h->kinds.of[i];
    if (!hf_is_float(v) || (known[kind] && json_number_value(v) != out[kind]))
      return hf_fail(h, config_name, key, err, "has another number than other layers of its kind at %u", i);
    out[kind] = json_number_value(v);
    known[kind] = true;
  }
  return 0;
}

// Bases of rotation, and the rotated shares of heads; files have one share.
static int read_step_rotation(hf *h, error *err) {
  double base[2] = {10000, 10000}, share[2] = {0.5, 1};
  bool listed, shared, found;
  const json_t *both = json_object_get(h->text, "rope_parameters"), *near = hf_in(both, "sliding_attention");
  const json_t *shares = hf_in(h->text, "partial_rotary_factors");
  if (shares && !json_is_array(shares))
    return hf_fail(h, config_name, "partial_rotary_factors", err, "is not a list of %u layers", h->kinds.n);
  if (read_by_kind(h, "partial_rotary_factors", share, &shared, err)) return -1;
  if (!shared) share[0] = share[1] = 1;
  if (hf_number_in(h, hf_in(both, "full_attention"), "partial_rotary_factor", &share[0], &found, err) ||
      hf_number_in(h, near, "partial_rotary_factor", &share[1], &found, err))
    return -1;
  if (share[0] != 0.5 || share[1] != 1)
    return hf_fail(h, config_name, "partial_rotary_factors", err,
                   "are %g, and %g in layers with a window, but files of %s are of 0.5 and 1", share[0], share[1],
                   h->class->arch);
  if (read_by_kind(h, "rope_theta", base, &listed, err)) return -1;
  if (listed) json_object_set_new(h->text, "rope_theta", json_real(base[0]));
  else if (hf_f64(h, "rope_theta", &base[1], &found, err)) return -1;
  if (!near) json_object_set_new(h->text, "swa_rope_theta", json_real(base[1]));
  return 0;
}

// The first layers are dense: by a list of kinds, or of the layers with experts.
static int read_step_dense(hf *h, error *err) {
  static const char key[] = "moe_layers_enum";
  const json_t *list = hf_in(h->text, key);
  const char *text = json_string_value(list);
  uint32_t layers, first = 3;
  if (json_array_size(json_object_get(h->text, "mlp_layer_types"))) return hf_read_dense_layers(h, err);
  if (hf_need_u32(h, "num_hidden_layers", &layers, err)) return -1;
  if (list && !text) return hf_fail(h, config_name, key, err, "is not a text");
  char *end = NULL;
  uint32_t at = 0;
  for (uint32_t i = 0; text && *text; text = *end == ',' ? end + 1 : end, i++) {
    long v = strtol(text, &end, 10);
    if (!i) first = at = (uint32_t)v;
    if (end == text || v < 0 || v != (long)at++ || (*end && *end != ','))
      return hf_fail(h, config_name, key, err, "are not all layers from the first of them on");
  }
  if (end && at != layers) return hf_fail(h, config_name, key, err, "do not end with the last layer");
  json_object_set_new(h->text, "first_k_dense_replace", json_integer(first < layers ? first : layers));
  return 0;
}

static int prepare_step(hf *h, error *err) {
  const json_t *other = json_object_get(h->text, "attention_other_setting");
  json_t *heads = hf_in(other, "num_attention_heads"), *groups = hf_in(other, "num_attention_groups");
  if (heads) json_object_set(h->text, "num_sliding_attention_heads", heads);
  if (groups) json_object_set(h->text, "num_sliding_attention_groups", groups);
  return read_step_layers(h, err) || read_step_rotation(h, err) || read_step_dense(h, err) ? -1 : 0;
}

// Heads of each layer, and which have a window.
static int put_step_heads(hf *h, error *err) {
  static const char *const names[2][2] = {
    {"num_attention_heads", "num_sliding_attention_heads num_attention_heads"},
    {"num_key_value_heads", "num_sliding_attention_groups num_key_value_heads"}};
  static const char *const to[] = {"attention.head_count", "attention.head_count_kv"};
  uint32_t n = h->n_layers + h->n_further;
  bool *near = ARENA_ARRAY(h->arena, bool, n);
  for (uint32_t i = 0; i < n; i++) near[i] = i < h->kinds.n && h->kinds.of[i];
  for (int k = 0; k < 2; k++) {
    int32_t of[2], *each = ARENA_ARRAY(h->arena, int32_t, n);
    if (hf_need_i32(h, names[k][0], &of[0], err) || hf_need_i32(h, names[k][1], &of[1], err)) return -1;
    for (uint32_t i = 0; i < n; i++) each[i] = of[near[i]];
    gguf_head_i32s(h->head, hf_arch_key(h, to[k]), each, n);
  }
  gguf_head_bools(h->head, hf_arch_key(h, "attention.sliding_window_pattern"), near, n);
  return 0;
}

// llama3's factors of frequencies, of the rotated half of a head; the others are 1, for layers with a window.
static int put_step_factors(hf *h, error *err) {
  enum { SIZE_MOST = 1 << 16 };
  static const char *const names[] = {"rope_theta", "factor", "low_freq_factor", "high_freq_factor",
                                      "original_max_position_embeddings"};
  double of[] = {10000, 8, 1, 4, 8192};
  uint32_t size;
  bool found;
  const char *type = hf_rope_type(h);
  if (!type || strcmp(type, "llama3")) return 0;
  if (hf_head_size(h, &size, err)) return -1;
  for (size_t i = 0; i < COUNT(names); i++)
    if (hf_rope_number(h, names[i], i ? NULL : names[i], &of[i], &found, err)) return -1;
  if (!hf_are_llama3(of[1], of[2], of[3], of[4]) || size < 4 || size > SIZE_MOST)
    return hf_fail(h, config_name, "rope_type", err, "llama3 with factors that are no such");
  float *out = ARENA_ARRAY(h->arena, float, size / 2);
  uint32_t rotated = size / 2;
  for (uint32_t i = 0; i < size / 2; i++) {
    float freq = 1.0F / powf((float)of[0], (float)(2 * i) / (float)rotated);
    double length = 2 * 3.14159265358979323846 / (double)freq, smooth = (of[4] / length - of[2]) / (of[3] - of[2]);
    bool plain = 2 * i >= rotated || length < of[4] / of[3];
    out[i] = plain ? 1 : length > of[4] / of[2] ? (float)of[1] : (float)(1 / ((1 - smooth) / of[1] + smooth));
  }
  hf_add_values(h, "rope_freqs.weight", out, size / 2);
  h->rotation_read = true;
  return 0;
}

static int step_more(hf *h, error *err) {
  return hf_put_nextn(h, err) || put_step_heads(h, err) || put_step_factors(h, err) ||
             hf_put_limits(h, "swiglu_limits", "swiglu_clamp_exp", h->n_layers, err) ||
             hf_put_limits(h, "swiglu_limits_shared", "swiglu_clamp_shexp", h->n_layers, err)
           ? -1
           : 0;
}

// ---- the rows -------------------------------------------------------------------------------------------------------

const hf_class hf_classes_mixtures[] = {
  {.name = "DeepseekV4ForCausalLM",
   .arch = "deepseek4",
   .no_mtp = true,
   .as_stored = true,
   .under = "model.",
   .rename = v4_name,
   .musts = "hidden_act=silu attention_bias=false mlp_bias=false scoring_func=sqrtsoftplus norm_topk_prob=true "
            "topk_method=noaux_tc n_group=1 num_key_value_heads=1",
   .defaults = "{\"rms_norm_eps\":1e-6,\"rope_theta\":10000.0,\"compress_rope_theta\":160000.0,\"head_dim\":512,"
               "\"num_key_value_heads\":1,\"q_lora_rank\":1024,\"n_shared_experts\":1,\"scoring_func\":"
               "\"sqrtsoftplus\",\"norm_topk_prob\":true,\"routed_scaling_factor\":1.5,\"swiglu_limit\":10.0,"
               "\"sliding_window\":128,\"hc_mult\":4,\"hc_sinkhorn_iters\":20,\"hc_eps\":1e-6,\"o_groups\":8,"
               "\"o_lora_rank\":1024,\"index_n_heads\":64,\"index_head_dim\":128,\"index_topk\":512}",
   .prepare = prepare_v4,
   .keys = v4_keys,
   .rules = v4_rules,
   .more = v4_more},
  {.name = "GlmForCausalLM",
   .arch = "chatglm",
   .vocab = HF_VOCAB_CHATGLM,
   .musts = "hidden_act=silu",
   .defaults = "{\"rms_norm_eps\":1.5625e-7,\"rope_theta\":10000.0,\"head_dim\":128}",
   .prepare = prepare_chatglm,
   .rules = glm_rules,
   .more = hf_glm4_more},
  {.name = "SolarOpenForCausalLM",
   .arch = "glm4moe",
   .vocab = HF_VOCAB_SOLAR,
   .musts = "hidden_act=silu attention_bias=false scoring_func=sigmoid use_qk_norm=false first_k_dense_replace=0",
   .defaults = "{\"rms_norm_eps\":1e-5,\"rope_theta\":1e6,\"head_dim\":128,\"n_shared_experts\":1,"
               "\"routed_scaling_factor\":1.0,\"norm_topk_prob\":true,\"n_group\":1,\"topk_group\":1}",
   .keys = solar_keys,
   .rules = solar_rules,
   .more = solar_more},
  {.name = "InternLM3ForCausalLM",
   .arch = "llama",
   .vocab = HF_VOCAB_INTERNLM3,
   .own_scaling = true,
   .musts = "hidden_act=silu attention_bias=false mlp_bias=false qkv_bias=false bias=false",
   .defaults = "{\"rms_norm_eps\":1e-5,\"rope_theta\":10000.0,\"head_dim\":128}",
   .head_dim = true,
   .keys = internlm3_keys,
   .rules = internlm3_rules,
   .more = internlm3_more},
  {.name = "BailingMoeV2ForCausalLM",
   .arch = "bailingmoe2",
   .needs = "routed_scaling_factor first_k_dense_replace num_shared_experts",
   .musts = "hidden_act=silu use_bias=false use_qkv_bias=false use_qk_norm=true score_function=sigmoid norm_head=false "
            "moe_router_enable_expert_bias=true use_rmsnorm=true use_sliding_window=false",
   .derived = "moe_shared_expert_intermediate_size=moe_intermediate_size*num_shared_experts",
   .defaults = "{\"rms_norm_eps\":1e-6,\"rope_theta\":600000.0,\"score_function\":\"sigmoid\","
               "\"norm_topk_prob\":true,\"n_group\":8,\"topk_group\":4}",
   .keys = ling2_keys,
   .rules = ling2_rules,
   .more = ling2_more},
  {.name = "Step3p5ForCausalLM",
   .arch = "step35",
   .needs = "sliding_window",
   .musts = "hidden_act=silu attention_bias=false mlp_bias=false moe_router_activation=sigmoid norm_expert_weight=true "
            "use_moe_router_bias=true use_head_wise_attn_gate=true use_qk_norm=true moe_every_n_layer=1",
   .derived = "num_key_value_heads=num_attention_groups n_routed_experts=moe_num_experts num_experts_per_tok=moe_top_k "
              "share_expert_dim=share_expert_dims",
   .defaults = "{\"rms_norm_eps\":1e-5,\"rope_theta\":10000.0,\"head_dim\":128,\"moe_every_n_layer\":1,"
               "\"moe_router_scaling_factor\":1.0}",
   .prepare = prepare_step,
   .keys = step_keys,
   .rules = step_rules,
   .more = step_more},
  {.name = "Step3p7ForConditionalGeneration", .like = "Step3p5ForCausalLM", .seeing = true},
  {0},
};
