// Checks the types of JSON values that are read as text, list or object: a value of another type would count as absent,
// and the model would compute something else. Input: config.json or tokenizer_config.json; output: nothing, or an error
// that names the key. Numbers are checked where they are read (hf_classes.c).
#include "model/hf_impl.h"

enum type { OBJECT, TEXT, FLAG, LIST, IDS, TOKEN };
struct typed { const char *key; enum type type; };

static const char *const expected[] = {
  [OBJECT] = "an object", [TEXT] = "a text", [FLAG] = "true or false", [LIST] = "a list",
  [IDS] = "a token id, or a list of them", [TOKEN] = "a text, or an object with its content",
};

// Keys of config.json and its text_config; then keys of their rope groups.
static const struct typed of_config[] = {
  {"text_config", OBJECT}, {"rope_parameters", OBJECT}, {"rope_scaling", OBJECT}, {"quantization_config", OBJECT},
  {"layer_types", LIST}, {"tie_word_embeddings", FLAG}, {"norm_topk_prob", FLAG}, {"attention_bias", FLAG},
  {"mlp_bias", FLAG}, {"bos_token_id", IDS}, {"eos_token_id", IDS}, {"pad_token_id", IDS},
  // of some classes
  {"sliding_window_layout", LIST}, {"rope_layout", LIST}, {"moe_layer_layout", LIST}, {"indexer_types", LIST},
  {"mlp_layer_types", LIST}, {"classifier_pooling", TEXT}, {"expert_selection_fn", TEXT}, {"norm_head", FLAG},
  {"moe_primary_router_apply_softmax", FLAG}, {"use_double_wide_mlp", FLAG}, {"attention_k_eq_v", FLAG},
  {"enable_lm_head_fp32", FLAG}, {"apply_mla_qkv_lora_rescale", FLAG}, {"use_qk_norm", FLAG},
  {"block_auto_adjust_ff_dim", FLAG}, {"new_decoder_architecture", FLAG}, {"multi_query", FLAG},
  {"mamba_rms_norm", FLAG}, {"mamba_norm_before_gate", FLAG}, {"scale_decoder_outputs", FLAG},
  {"use_sliding_window", FLAG}, {0},
};
static const struct typed of_rotation[] = {
  {"full_attention", OBJECT},    {"main", OBJECT},    {"compress", OBJECT}, {"indexed_attention", OBJECT},
  {"sliding_attention", OBJECT}, {"rope_type", TEXT}, {"type", TEXT},       {0},
};
static const struct typed of_settings[] = {
  {"bos_token", TOKEN}, {"eos_token", TOKEN}, {"unk_token", TOKEN}, {"sep_token", TOKEN}, {"pad_token", TOKEN},
  {"cls_token", TOKEN}, {"mask_token", TOKEN}, {"add_bos_token", FLAG}, {"add_eos_token", FLAG}, {0},
};

static bool json_has_type(const json_t *v, enum type type) {
  switch (type) {
    case OBJECT: return json_is_object(v);
    case TEXT: return json_is_string(v);
    case FLAG: return json_is_boolean(v);
    case LIST: return json_is_array(v);
    case TOKEN: return json_is_string(v) || (json_is_object(v) && json_is_string(json_object_get(v, "content")));
    default: break;
  }
  if (!json_is_array(v)) return json_is_integer(v);
  for (size_t i = 0; i < json_array_size(v); i++) if (!json_is_integer(json_array_get(v, i))) return false;
  return true;
}

static int check_typed(const hf *h, const char *file, const struct typed *t, const json_t *in, error *err) {
  for (; t->key; t++) {
    const json_t *v = json_object_get(in, t->key);
    if (v && !json_is_null(v) && !json_has_type(v, t->type))
      return hf_fail(h, file, t->key, err, "is not %s", expected[t->type]);
  }
  return 0;
}

static int check_rotation(const hf *h, const char *file, const json_t *in, error *err) {
  if (check_typed(h, file, of_rotation, in, err)) return -1;
  for (const struct typed *t = of_rotation; t->type == OBJECT && t->key; t++)
    if (check_typed(h, file, of_rotation, json_object_get(in, t->key), err)) return -1;
  return 0;
}

int hf_check_config(const hf *h, const json_t *config, error *err) {
  static const char file[] = "config.json";
  const json_t *parts[] = {config, json_object_get(config, "text_config")};
  for (size_t i = 0; i < COUNT(parts); i++)
    if (check_typed(h, file, of_config, parts[i], err) ||
        check_rotation(h, file, json_object_get(parts[i], "rope_parameters"), err) ||
        check_rotation(h, file, json_object_get(parts[i], "rope_scaling"), err)) return -1;
  return 0;
}

int hf_check_settings(const hf *h, const char *file, const json_t *settings, error *err) {
  return check_typed(h, file, of_settings, settings, err);
}
