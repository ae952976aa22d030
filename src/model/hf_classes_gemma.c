// The classes of Gemma 3n, and of Gemma 4: two kinds of layers, each with its own head size and rope; embeddings per
// layer; layers that reuse the keys and values of an earlier one; experts next to a dense part. See hf_classes.c.
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include "model/hf_impl.h"

static const char config_name[] = "config.json";

typedef struct gemma_layers { uint32_t n; bool *near; } gemma_layers;      // near: it has a sliding window

// Reads layer_types; the default is full attention in every sixth layer. The last layer always has full attention.
static int read_layers(const hf *h, gemma_layers *y, error *err) {
  hf_layers said;
  if (hf_read_layers(h, "layer_types", "full_attention sliding_attention", false, &said, err)) return -1;
  y->n = said.n;
  y->near = ARENA_ARRAY(h->arena, bool, y->n);
  for (uint32_t i = 0; i + 1 < y->n; i++) y->near[i] = said.of ? said.of[i] : (i + 1) % 6 != 0;
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
  h->rotation_read = true;
  return 0;
}

static int gemma4_more(hf *h, error *err) {
  gemma_layers y;
  uint32_t own = 0, full;
  bool found;
  const char *name, *both = json_string_value(hf_value(h, "use_bidirectional_attention", &name));
  if (both ? strcmp(both, "vision") : json_is_true(hf_value(h, "use_bidirectional_attention", &name)))
    return hf_fail(h, config_name, name, err, "'%.40s', but files of %s have no key for it", both ? both : "true",
                   h->class->arch);
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
// What layers of Gemma 3n and 4 have besides: norms, and an input of each token's own.
#define PER_LAYER \
  {BLOCK "post_attention_layernorm", "blk.*.post_attention_norm", 0, 0}, \
    {BLOCK "pre_feedforward_layernorm", "blk.*.ffn_norm", 0, 0}, \
    {BLOCK "post_feedforward_layernorm", "blk.*.post_ffw_norm", 0, 0}, \
    {"model.embed_tokens_per_layer", "per_layer_token_embd", HF_PADDED, "vocab_size"}, \
    {"model.per_layer_model_projection", "per_layer_model_proj", 0, 0}, \
    {"model.per_layer_projection_norm", "per_layer_proj_norm", 0, 0}, \
    {BLOCK "per_layer_input_gate", "blk.*.inp_gate", 0, 0}, {BLOCK "per_layer_projection", "blk.*.proj", 0, 0}, \
    {BLOCK "post_per_layer_input_norm", "blk.*.post_norm", 0, 0}
static const hf_rule gemma4_rules[] = {
  PER_LAYER,
  {BLOCK "pre_feedforward_layernorm_2", "blk.*.pre_ffw_norm_2", 0, 0},
  {BLOCK "post_feedforward_layernorm_1", "blk.*.post_ffw_norm_1", 0, 0},
  {BLOCK "post_feedforward_layernorm_2", "blk.*.post_ffw_norm_2", 0, 0},
  {BLOCK "layer_scalar", "blk.*.layer_output_scale.weight", 0, 0},
  {BLOCK "router.proj", "blk.*.ffn_gate_inp", 0, 0},
  {BLOCK "router.scale", "blk.*.ffn_gate_inp.scale", 0, 0},
  {BLOCK "router.per_expert_scale", "blk.*.ffn_down_exps.scale", 0, 0},
  {BLOCK "experts.gate_up_proj", "blk.*.ffn_gate_up_exps.weight", 0, 0},
  {BLOCK "experts.down_proj", "blk.*.ffn_down_exps.weight", 0, 0},
  {0},
};

// ---- Gemma 3n -------------------------------------------------------------------------------------------------------

#define ALTUP BLOCK "altup."
#define LAUREL BLOCK "laurel."
static const hf_rule gemma3n_rules[] = {
  PER_LAYER,
  {"model.altup_projections.#", "altup_proj", HF_STACK, "altup_matrices"},
  {"model.altup_unembed_projections.#", "altup_unembd_proj", HF_STACK, "altup_matrices"},
  {ALTUP "correct_output_scale", "blk.*.altup_correct_scale.weight", 0, 0},
  {ALTUP "correction_coefs", "blk.*.altup_correct_coef", 0, 0},
  {ALTUP "prediction_coefs", "blk.*.altup_predict_coef", 0, 0},
  {ALTUP "modality_router", "blk.*.altup_router", 0, 0},
  {ALTUP "router_norm", "blk.*.altup_router_norm", 0, 0},
  {LAUREL "linear_left", "blk.*.laurel_l", 0, 0},
  {LAUREL "linear_right", "blk.*.laurel_r", 0, 0},
  {LAUREL "post_laurel_norm", "blk.*.laurel_post_norm", 0, 0},
  {0},
};
static const hf_key gemma3n_keys[] = {
  {"final_logit_softcapping", HF_F32_KEY, "final_logit_softcapping"},
  {"altup.active_idx", HF_U32, "altup_active_idx"},
  {"altup.num_inputs", HF_U32, "altup_num_inputs"},
  {"embedding_length_per_layer_input", HF_U32, "hidden_size_per_layer_input"},
  {"attention.shared_kv_layers", HF_U32, "num_kv_shared_layers"},
  {0},
};

// One of the streams is not projected. The width of the dense part may be a list with a number of each layer.
static int prepare_gemma3n(hf *h, error *err) {
  uint32_t streams;
  json_t *widths = json_object_get(h->text, "intermediate_size");
  if (hf_need_u32(h, "altup_num_inputs", &streams, err)) return -1;
  json_object_set_new(h->text, "altup_matrices", json_integer((json_int_t)streams - 1));
  if (!json_array_size(widths)) return 0;
  json_object_set(h->text, "widths", widths);
  json_object_set(h->text, "intermediate_size", json_array_get(widths, 0));
  return 0;
}

static int put_widths(hf *h, error *err) {
  const json_t *list = json_object_get(h->text, "widths");
  if (!list) return 0;
  bool good = json_array_size(list) == h->n_layers && h->n_layers <= HF_LAYERS_MOST;
  int32_t *n = ARENA_ARRAY(h->arena, int32_t, json_array_size(list));
  for (uint32_t i = 0; good && i < h->n_layers; i++) {
    json_int_t width = json_integer_value(json_array_get(list, i));
    good = width > 0 && width <= INT32_MAX;
    n[i] = (int32_t)width;
  }
  if (!good) return hf_fail(h, config_name, "intermediate_size", err, "is not a list of %u widths", h->n_layers);
  gguf_head_i32s(h->head, hf_arch_key(h, "feed_forward_length"), n, h->n_layers);
  return 0;
}

// How many standard deviations above the mean a share of a normal distribution ends, in floats: the inverse of erf by
// Newton's steps, which come from below.
static float deviations(float share) {
  double y = fabs((double)(2 * share - 1)), x = 0;
  if (y >= 1) x = INFINITY;
  for (int i = 0; i < 100 && y < 1; i++) x -= (erf(x) - y) * exp(x * x) * 0.88622692545275801365;
  float inverse = (float)x;
  return (share < 0.5F ? -inverse : inverse) * 1.41421356F;
}

// Values of the dense part's gates that are fewer deviations above their mean become 0.
static int put_cuts(hf *h, error *err) {
  static const char key[] = "activation_sparsity_pattern";
  enum { SPARSE = 10 };
  const json_t *said = json_object_get(h->text, key);
  bool has = said && !json_is_null(said), is_list = json_is_array(said);
  if (h->n_layers > HF_LAYERS_MOST || (is_list && json_array_size(said) != h->n_layers))
    return hf_fail(h, config_name, key, err, "is not a list of %u layers, of %d at most", h->n_layers, HF_LAYERS_MOST);
  float *cuts = ARENA_ARRAY(h->arena, float, h->n_layers);
  for (uint32_t i = 0; i < h->n_layers; i++) {
    const json_t *v = is_list ? json_array_get(said, i) : said;
    double share = has ? json_number_value(v) : h->n_layers > SPARSE && i < SPARSE ? 0.95 : 0;
    if ((has && !json_is_number(v)) || !(share >= 0 && share < 1))
      return hf_fail(h, config_name, key, err, "has what is not from 0 to 1");
    cuts[i] = deviations((float)share);
  }
  gguf_head_f32s(h->head, hf_arch_key(h, "activation_sparsity_scale"), cuts, h->n_layers);
  return 0;
}

static int gemma3n_more(hf *h, error *err) {
  return put_widths(h, err) || put_cuts(h, err) || hf_put_windows(h, 5, err) ? -1 : 0;
}

// ---- the rows -------------------------------------------------------------------------------------------------------

#define GEMMA3N \
  "{\"rms_norm_eps\":1e-6,\"rope_theta\":1e6,\"rope_local_base_freq\":1e4,\"head_dim\":256,\"sliding_window\":512," \
  "\"max_position_embeddings\":32768,\"hidden_size_per_layer_input\":256,\"altup_num_inputs\":4," \
  "\"altup_active_idx\":0,\"num_kv_shared_layers\":15,\"final_logit_softcapping\":30.0}"
#define GEMMA4 \
  "{\"rms_norm_eps\":1e-6,\"head_dim\":256,\"sliding_window\":512,\"max_position_embeddings\":131072," \
  "\"hidden_size_per_layer_input\":256,\"rope_parameters\":{\"sliding_attention\":{\"rope_type\":\"default\"," \
  "\"rope_theta\":10000.0},\"full_attention\":{\"rope_type\":\"proportional\",\"partial_rotary_factor\":0.25," \
  "\"rope_theta\":1000000.0}}}"
const hf_class hf_classes_gemma[] = {
  {.name = "Gemma4ForCausalLM",
   .arch = "gemma4",
   .vocab = HF_VOCAB_GEMMA4,
   .defaults = GEMMA4,
   .own_scaling = true,
   .musts = "hidden_activation=gelu_pytorch_tanh attention_bias=false",
   .keys = gemma4_keys,
   .rules = gemma4_rules,
   .more = gemma4_more},
  {.name = "Gemma3nForCausalLM",
   .arch = "gemma3n",
   .vocab = HF_VOCAB_GEMMA,
   .defaults = GEMMA3N,
   .prepare = prepare_gemma3n,
   .musts = "hidden_activation=gelu_pytorch_tanh attention_bias=false altup_correct_scale=true altup_active_idx=0 "
            "use_bidirectional_attention=false",
   .keys = gemma3n_keys,
   .rules = gemma3n_rules,
   .more = gemma3n_more},
  {.name = "Gemma3nForConditionalGeneration", .like = "Gemma3nForCausalLM", .seeing = true},
  {.name = "Gemma4ForConditionalGeneration", .like = "Gemma4ForCausalLM", .seeing = true},
  {0},
};
