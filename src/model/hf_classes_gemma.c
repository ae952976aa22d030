// The classes of Gemma 4: two kinds of layers, each with its own head size and rope; embeddings per layer; layers that
// reuse the keys and values of an earlier one; experts next to a dense part. See hf_classes.c.
#include <inttypes.h>
#include <string.h>
#include "model/hf_impl.h"

static const char config_name[] = "config.json";

typedef struct gemma_layers { uint32_t n; bool *near; } gemma_layers;      // near: it has a sliding window

// Reads layer_types; the default is full attention in every sixth layer. The last layer always has full attention.
static int read_layers(const hf *h, gemma_layers *y, error *err) {
  static const char key[] = "layer_types";
  const json_t *types = json_object_get(h->text, key);
  if (hf_need_u32(h, "num_hidden_layers", &y->n, err)) return -1;
  if (y->n > HF_LAYERS_MOST || (json_array_size(types) && json_array_size(types) != y->n))
    return hf_fail(h, config_name, key, err, "is not a list of %u layers, of %d at most", y->n, HF_LAYERS_MOST);
  y->near = ARENA_ARRAY(h->arena, bool, y->n);
  for (uint32_t i = 0; i < y->n; i++) {
    const json_t *v = json_array_get(types, i);
    const char *type = json_string_value(v);
    y->near[i] = v ? type && !strcmp(type, "sliding_attention") : (i + 1) % 6 != 0;
    if (v && !y->near[i] && (!type || strcmp(type, "full_attention")))
      return hf_fail(h, config_name, key, err, "has '%.40s'", type ? type : "what is no text");
  }
  y->near[y->n - 1] = false;
  return 0;
}

// A size of the layers with full attention, from per_layer_config, which is indexed by layer number.
static int size_of_full(const hf *h, const gemma_layers *y, const char *key, uint32_t *out, bool *found, error *err) {
  const json_t *each = json_object_get(h->text, "per_layer_config");
  *found = false;
  for (uint32_t i = 0; i < y->n && !*found; i++) {
    char name[16];
    if (y->near[i]) continue;
    snprintf(name, sizeof name, "%u", i);
    const json_t *v = json_object_get(json_object_get(each, name), key);
    if (!v || json_is_null(v)) continue;
    if (!json_is_integer(v) || json_integer_value(v) < 1 || json_integer_value(v) > INT32_MAX)
      return hf_fail(h, config_name, "per_layer_config", err, "%s of layer %u is no count", key, i);
    *out = (uint32_t)json_integer_value(v);
    *found = true;
  }
  return 0;
}

static int put_head_sizes(hf *h, const gemma_layers *y, uint32_t *full, error *err) {
  uint32_t size;
  bool found;
  *full = 512;
  if (hf_need_u32(h, "head_dim", &size, err) || size_of_full(h, y, "head_dim", full, &found, err) ||
      (!found && hf_u32(h, "global_head_dim", full, &found, err)))
    return -1;
  gguf_head_u32(h->head, hf_arch_key(h, "attention.key_length"), *full);
  gguf_head_u32(h->head, hf_arch_key(h, "attention.value_length"), *full);
  gguf_head_u32(h->head, hf_arch_key(h, "attention.key_length_swa"), size);
  gguf_head_u32(h->head, hf_arch_key(h, "attention.value_length_swa"), size);
  gguf_head_u32(h->head, hf_arch_key(h, "rope.dimension_count"), *full);
  gguf_head_u32(h->head, hf_arch_key(h, "rope.dimension_count_swa"), size);
  return 0;
}

static void put_for_each(hf *h, const gemma_layers *y, const char *key, const int32_t *n) {
  gguf_head_i32s(h->head, hf_arch_key(h, key), n, y->n);
}

// Sets the numbers of key heads, if the two kinds of layers differ.
static int put_key_heads(hf *h, const gemma_layers *y, error *err) {
  uint32_t full = 0, near;
  bool found;
  const json_t *is_value = json_object_get(h->text, "attention_k_eq_v");
  if (hf_need_u32(h, "num_key_value_heads", &near, err) ||
      size_of_full(h, y, "num_key_value_heads", &full, &found, err) ||
      (!found && json_is_true(is_value) && hf_u32(h, "num_global_key_value_heads", &full, &found, err)))
    return -1;
  if (!found) return 0;
  if (near > INT32_MAX || full > INT32_MAX)
    return hf_fail(h, config_name, "num_key_value_heads", err, "%u or %u is too many", near, full);
  int32_t *n = ARENA_ARRAY(h->arena, int32_t, y->n);
  for (uint32_t i = 0; i < y->n; i++) n[i] = (int32_t)(y->near[i] ? near : full);
  put_for_each(h, y, "attention.head_count_kv", n);
  return 0;
}

// The last layers reuse keys and values; their dense part may be twice as wide.
static int put_sharing(hf *h, const gemma_layers *y, error *err) {
  uint32_t shared = 0, width;
  bool found;
  if (hf_u32(h, "num_kv_shared_layers", &shared, &found, err) || hf_need_u32(h, "intermediate_size", &width, err))
    return -1;
  if (shared > y->n)
    return hf_fail(h, config_name, "num_kv_shared_layers", err, "%u of %u layers", shared, y->n);
  gguf_head_u32(h->head, hf_arch_key(h, "attention.shared_kv_layers"), shared);
  if (!json_is_true(json_object_get(h->text, "use_double_wide_mlp"))) return 0;
  if (width > INT32_MAX / 2) return hf_fail(h, config_name, "intermediate_size", err, "%u is too much", width);
  int32_t *n = ARENA_ARRAY(h->arena, int32_t, y->n);
  for (uint32_t i = 0; i < y->n; i++) n[i] = (int32_t)(i < y->n - shared ? width : 2 * width);
  put_for_each(h, y, "feed_forward_length", n);
  return 0;
}

// Layers with full attention rotate only the first frequencies of a head: the others are divided by a number so large
// that no rotation remains.
static int put_frequencies(hf *h, uint32_t size, error *err) {
  enum { SIZE_MOST = 1 << 16 };
  double share = 0.25;
  bool found;
  const char *type = json_string_value(json_object_get(hf_rope(h), "rope_type"));
  if (!type || strcmp(type, "proportional"))
    return hf_fail(h, config_name, "rope_type", err, "of full_attention is not proportional, as that of %s is",
                   h->class->arch);
  if (hf_rope_number(h, "partial_rotary_factor", NULL, &share, &found, err)) return -1;
  if (!(share >= 0 && share <= 1))
    return hf_fail(h, config_name, "partial_rotary_factor", err, "is not from 0 to 1");
  if (size < 2 || size > SIZE_MOST)
    return hf_fail(h, config_name, "global_head_dim", err, "%u is not from 2 to %d", size, SIZE_MOST);
  float *out = ARENA_ARRAY(h->arena, float, size / 2);
  for (uint32_t i = 0; i < size / 2; i++) out[i] = i < (uint32_t)(size * share / 2) ? 1 : 1e30f;
  hf_add_values(h, "rope_freqs.weight", out, size / 2);
  return 0;
}

static int gemma4_more(hf *h, error *err) {
  gemma_layers y;
  uint32_t own = 0, full;
  bool found;
  const char *both = json_string_value(json_object_get(h->text, "use_bidirectional_attention"));
  if (both && strcmp(both, "vision"))
    return hf_fail(h, config_name, "use_bidirectional_attention", err, "'%.40s', but files of %s have no key for it",
                   both, h->class->arch);
  if (read_layers(h, &y, err) || hf_u32(h, "hidden_size_per_layer_input", &own, &found, err)) return -1;
  gguf_head_u32(h->head, hf_arch_key(h, "embedding_length_per_layer_input"), own);
  gguf_head_bools(h->head, hf_arch_key(h, "attention.sliding_window_pattern"), y.near, y.n);
  return put_head_sizes(h, &y, &full, err) || put_key_heads(h, &y, err) || put_sharing(h, &y, err) ||
             put_frequencies(h, full, err)
           ? -1
           : 0;
}

static const hf_key gemma4_keys[] = {
  {"final_logit_softcapping", HF_F32_KEY, "final_logit_softcapping"},
  {"attention.sliding_window", HF_U32, "sliding_window"},
  {"expert_feed_forward_length", HF_U32, "expert_intermediate_size moe_intermediate_size"},
  {0},
};

#define BLOCK "model.layers.*."
static const hf_rule gemma4_rules[] = {
  {BLOCK "post_attention_layernorm", "blk.*.post_attention_norm", 0, 0},
  {BLOCK "pre_feedforward_layernorm", "blk.*.ffn_norm", 0, 0},
  {BLOCK "pre_feedforward_layernorm_2", "blk.*.pre_ffw_norm_2", 0, 0},
  {BLOCK "post_feedforward_layernorm", "blk.*.post_ffw_norm", 0, 0},
  {BLOCK "post_feedforward_layernorm_1", "blk.*.post_ffw_norm_1", 0, 0},
  {BLOCK "post_feedforward_layernorm_2", "blk.*.post_ffw_norm_2", 0, 0},
  {BLOCK "layer_scalar", "blk.*.layer_output_scale.weight", 0, 0},
  {BLOCK "router.proj", "blk.*.ffn_gate_inp", 0, 0},
  {BLOCK "router.scale", "blk.*.ffn_gate_inp.scale", 0, 0},
  {BLOCK "router.per_expert_scale", "blk.*.ffn_down_exps.scale", 0, 0},
  {BLOCK "experts.gate_up_proj", "blk.*.ffn_gate_up_exps.weight", 0, 0},
  {BLOCK "experts.down_proj", "blk.*.ffn_down_exps.weight", 0, 0},
  {"model.embed_tokens_per_layer", "per_layer_token_embd", 0, 0},
  {"model.per_layer_model_projection", "per_layer_model_proj", 0, 0},
  {"model.per_layer_projection_norm", "per_layer_proj_norm", 0, 0},
  {BLOCK "per_layer_input_gate", "blk.*.inp_gate", 0, 0},
  {BLOCK "per_layer_projection", "blk.*.proj", 0, 0},
  {BLOCK "post_per_layer_input_norm", "blk.*.post_norm", 0, 0},
  {0},
};

#define GEMMA4 \
  "{\"rms_norm_eps\":1e-6,\"head_dim\":256,\"sliding_window\":512,\"max_position_embeddings\":131072," \
  "\"hidden_size_per_layer_input\":256,\"rope_parameters\":{\"sliding_attention\":{\"rope_type\":\"default\"," \
  "\"rope_theta\":10000.0},\"full_attention\":{\"rope_type\":\"proportional\",\"partial_rotary_factor\":0.25," \
  "\"rope_theta\":1000000.0}}}"
#define ROW(class_, seeing_) \
  {.name = class_, .arch = "gemma4", .vocab = HF_VOCAB_GEMMA4, .defaults = GEMMA4, .own_scaling = true, \
   .musts = "hidden_activation=gelu_pytorch_tanh attention_bias=false", .seeing = seeing_, .keys = gemma4_keys, \
   .rules = gemma4_rules, .more = gemma4_more}
const hf_class hf_classes_gemma[] = {
  ROW("Gemma4ForCausalLM", false),
  ROW("Gemma4ForConditionalGeneration", true),
  {0},
};
