// The table of classes: what a model of transformers becomes in a GGUF file.  A class is a row: its architecture, the
// keys that only it has, how its tensors are called, and what no row can say.  What all classes have in common stands
// first; the values that a class takes where config.json is silent are JSON in its row.
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include "model/hf_impl.h"

// ---- values of config.json ------------------------------------------------------------------------------------------

static const char config_name[] = "config.json";

json_t *hf_value(const hf *h, const char *names, const char **name) {
  for (const char *at = names; *at;) {
    size_t n = strcspn(at, " ");
    json_t *v = json_object_get(h->text, arena_strndup(h->arena, at, n));
    if (v) {
      *name = arena_strndup(h->arena, at, n);
      return json_is_null(v) ? NULL : v;
    }
    at += n + strspn(at + n, " ");
  }
  return NULL;
}

int hf_u32(const hf *h, const char *names, uint32_t *out, bool *found, error *err) {
  const char *name;
  const json_t *v = hf_value(h, names, &name);
  *found = v;
  if (!v) return 0;
  if (!json_is_integer(v)) return hf_fail(h, config_name, name, err, "is not a whole number");
  json_int_t n = json_integer_value(v);
  if (n < 0 || n > UINT32_MAX)
    return hf_fail(h, config_name, name, err, "%" JSON_INTEGER_FORMAT " is not from 0 to %u", n, UINT32_MAX);
  *out = (uint32_t)n;
  return 0;
}

int hf_need_u32(const hf *h, const char *names, uint32_t *out, error *err) {
  bool found;
  if (hf_u32(h, names, out, &found, err)) return -1;
  if (!found || !*out)
    return hf_fail(h, config_name, arena_strndup(h->arena, names, strcspn(names, " ")), err,
                   found ? "is 0" : "is missing");
  return 0;
}

int hf_number_in(const hf *h, const json_t *in, const char *key, double *out, bool *found, error *err) {
  const json_t *v = json_object_get(in, key);
  *found = v && !json_is_null(v);
  if (!*found) return 0;
  if (!json_is_number(v)) return hf_fail(h, config_name, key, err, "is not a number");
  *out = json_number_value(v);
  return isfinite(*out) ? 0 : hf_fail(h, config_name, key, err, "is not a finite number");
}

int hf_f64(const hf *h, const char *names, double *out, bool *found, error *err) {
  const char *name;
  *found = hf_value(h, names, &name);
  return *found ? hf_number_in(h, h->text, name, out, found, err) : 0;
}

const char *hf_arch_key(const hf *h, const char *key) {
  return arena_printf(h->arena, "%s.%s", h->class->arch, key);
}

// ---- what all have --------------------------------------------------------------------------------------------------

static const hf_key common_keys[] = {
  {"block_count", HF_U32, "n_layers num_hidden_layers n_layer num_layers"},
  {"context_length", HF_U32,
   "max_position_embeddings n_ctx n_positions max_length max_sequence_length model_max_length"},
  {"embedding_length", HF_U32, "hidden_size n_embd dim"},
  {"feed_forward_length", HF_U32, "intermediate_size n_inner hidden_dim"},
  {"attention.head_count", HF_U32, "num_attention_heads n_head n_heads"},
  {"attention.head_count_kv", HF_U32, "num_key_value_heads n_kv_heads"},
  {"attention.layer_norm_rms_epsilon", HF_F32_KEY, "rms_norm_eps norm_eps"},
  {"attention.layer_norm_epsilon", HF_F32_KEY, "layer_norm_eps layer_norm_epsilon norm_epsilon"},
  {"expert_count", HF_U32, "num_local_experts num_experts n_routed_experts"},
  {"expert_used_count", HF_U32, "num_experts_per_tok num_experts_per_token top_k_experts"},
  {"attention.key_length", HF_U32, "head_dim"},
  {"attention.value_length", HF_U32, "head_dim"},
  {0},
};

#define BLOCK "model.layers.*."
static const hf_rule common_rules[] = {
  {"model.embed_tokens", "token_embd", 0, 0},
  {"model.norm", "output_norm", 0, 0},
  {"lm_head", "output", 0, 0},
  {BLOCK "input_layernorm", "blk.*.attn_norm", 0, 0},
  {BLOCK "post_attention_layernorm", "blk.*.ffn_norm", 0, 0},
  {BLOCK "self_attn.q_proj", "blk.*.attn_q", 0, 0},
  {BLOCK "self_attn.k_proj", "blk.*.attn_k", 0, 0},
  {BLOCK "self_attn.v_proj", "blk.*.attn_v", 0, 0},
  {BLOCK "self_attn.o_proj", "blk.*.attn_output", 0, 0},
  {BLOCK "self_attn.q_norm", "blk.*.attn_q_norm", 0, 0},
  {BLOCK "self_attn.k_norm", "blk.*.attn_k_norm", 0, 0},
  {BLOCK "mlp.gate_proj", "blk.*.ffn_gate", 0, 0},
  {BLOCK "mlp.up_proj", "blk.*.ffn_up", 0, 0},
  {BLOCK "mlp.down_proj", "blk.*.ffn_down", 0, 0},
  {BLOCK "self_attn.rotary_emb.inv_freq", NULL, HF_SKIP, 0},
  {0},
};

const json_t *hf_rope(const hf *h) {
  const char *name;
  const json_t *rope = hf_value(h, "rope_parameters rope_scaling", &name);
  const json_t *full = json_object_get(rope, "full_attention");
  return full ? full : rope;
}

// "factor" of the group or, of what all have, beside it.
static int rope_number(const hf *h, const char *key, const char *beside, double *out, bool *found, error *err) {
  if (hf_number_in(h, hf_rope(h), key, out, found, err)) return -1;
  return *found || !beside ? 0 : hf_f64(h, beside, out, found, err);
}

static const char *rope_type(const hf *h) {
  const json_t *rope = hf_rope(h);
  const char *type = json_string_value(json_object_get(rope, "rope_type"));
  return type ? type : json_string_value(json_object_get(rope, "type"));
}

static int put_rope_number(hf *h, const char *from, const char *to, bool needed, error *err) {
  double v;
  bool found;
  if (rope_number(h, from, NULL, &v, &found, err)) return -1;
  if (found) gguf_head_f32(h->head, hf_arch_key(h, to), (float)v);
  return found || !needed ? 0 : hf_fail(h, config_name, from, err, "is missing in what it says of rotation");
}

static int put_old_context(hf *h, error *err) {
  double v;
  bool found;
  if (rope_number(h, "original_max_position_embeddings", "original_max_position_embeddings", &v, &found, err))
    return -1;
  if (!found || v < 1 || v > UINT32_MAX)
    return hf_fail(h, config_name, "original_max_position_embeddings", err, "is missing, or no number of positions");
  gguf_head_u32(h->head, hf_arch_key(h, "rope.scaling.original_context_length"), (uint32_t)v);
  return 0;
}

static int put_yarn(hf *h, error *err) {
  const char *attn = json_object_get(hf_rope(h), "attention_factor") ? "attention_factor" : "attn_factor";
  return put_rope_number(h, "factor", "rope.scaling.factor", true, err) || put_old_context(h, err) ||
             put_rope_number(h, "extrapolation_factor", "rope.scaling.yarn_ext_factor", false, err) ||
             put_rope_number(h, attn, "rope.scaling.yarn_attn_factor", false, err) ||
             put_rope_number(h, "beta_fast", "rope.scaling.yarn_beta_fast", false, err) ||
             put_rope_number(h, "beta_slow", "rope.scaling.yarn_beta_slow", false, err)
           ? -1
           : 0;
}

static int put_scaling(hf *h, error *err) {
  const char *type = rope_type(h);
  char quoted[64];
  if (!type || !strcmp(type, "default") || !strcmp(type, "llama3")) return 0;
  if (strcmp(type, "linear") && strcmp(type, "yarn") && strcmp(type, "longrope") && strcmp(type, "su"))
    return hf_fail(h, config_name, "rope_type", err, "'%s' is not known",
                   gguf_quote(quoted, sizeof quoted, type, strlen(type)));
  bool both = !strcmp(type, "longrope") || !strcmp(type, "su");
  const char *name = both ? "longrope" : type;
  gguf_head_str(h->head, hf_arch_key(h, "rope.scaling.type"), name, strlen(name));
  if (both) return 0;
  return *type == 'y' ? put_yarn(h, err) : put_rope_number(h, "factor", "rope.scaling.factor", true, err);
}

static int put_rope(hf *h, error *err) {
  const char *name;
  double v;
  bool found;
  if (put_scaling(h, err) || rope_number(h, "rope_theta", "rope_theta rotary_emb_base", &v, &found, err)) return -1;
  if (found) gguf_head_f32(h->head, hf_arch_key(h, "rope.freq_base"), (float)v);
  const json_t *near = json_object_get(hf_value(h, "rope_parameters", &name), "sliding_attention");
  if (hf_number_in(h, near, "rope_theta", &v, &found, err)) return -1;
  if (!found && hf_f64(h, "rope_local_base_freq local_rope_theta", &v, &found, err)) return -1;
  if (found) gguf_head_f32(h->head, hf_arch_key(h, "rope.freq_base_swa"), (float)v);
  return 0;
}

// ---- single classes -------------------------------------------------------------------------------------------------

// The share of a head that is turned, in elements.
static int put_rope_dims(hf *h, double share, error *err) {
  uint32_t n, width, heads;
  bool found;
  if (hf_u32(h, "head_dim", &n, &found, err)) return -1;
  if (!found) {
    if (hf_need_u32(h, "hidden_size", &width, err) || hf_need_u32(h, "num_attention_heads", &heads, err)) return -1;
    n = width / heads;
  }
  gguf_head_u32(h->head, hf_arch_key(h, "rope.dimension_count"), (uint32_t)(n * share));
  return 0;
}

enum { ROPE_MOST = 1 << 16 };

// Factors that llama3's rule gives the frequencies, in the order of computation that files have.
static int llama3_factors(hf *h, uint32_t dim, error *err) {
  double base = 10000, factor = 8, low = 1, high = 4, old = 8192;
  bool found;
  if (rope_number(h, "rope_theta", "rope_theta", &base, &found, err) ||
      rope_number(h, "factor", NULL, &factor, &found, err) ||
      rope_number(h, "low_freq_factor", NULL, &low, &found, err) ||
      rope_number(h, "high_freq_factor", NULL, &high, &found, err) ||
      rope_number(h, "original_max_position_embeddings", "original_max_position_embeddings", &old, &found, err))
    return -1;
  if (!(low > 0 && high > low && old > 0 && factor > 0))
    return hf_fail(h, config_name, "rope_type", err, "llama3 with factors that are no such");
  float *out = ARENA_ARRAY(h->arena, float, dim / 2 + 1);
  for (uint32_t i = 0; i < dim / 2; i++) {
    float freq = 1.0f / powf((float)base, (float)(2 * i) / (float)dim);
    double wavelength = (double)((float)(2 * 3.14159265358979323846) / freq);
    double smooth = (double)((float)old / (float)wavelength);
    smooth = (double)(((float)smooth - (float)low) / (float)(high - low));
    out[i] = wavelength < old / high ? 1 : wavelength > old / low ? (float)factor
             : 1.0f / ((1.0f - (float)smooth) / (float)factor + (float)smooth);
  }
  hf_add_values(h, "rope_freqs.weight", out, dim / 2);
  return 0;
}

static int llama_more(hf *h, error *err) {
  uint32_t dim, width, heads;
  bool found;
  if (put_rope_dims(h, 1, err)) return -1;
  const char *type = rope_type(h);
  if (!type || strcmp(type, "llama3")) return 0;
  if (hf_u32(h, "head_dim", &dim, &found, err)) return -1;
  if (!found) {
    if (hf_need_u32(h, "hidden_size", &width, err) || hf_need_u32(h, "num_attention_heads", &heads, err)) return -1;
    dim = width / heads;
  }
  if (dim > ROPE_MOST) return hf_fail(h, config_name, "head_dim", err, "%u is more than %d", dim, ROPE_MOST);
  return llama3_factors(h, dim, err);
}

static const hf_key llama_keys[] = {{"vocab_size", HF_U32, "vocab_size"}, {0}};
static const hf_rule llama_rules[] = {
  {BLOCK "self_attn.q_proj", "blk.*.attn_q", HF_WEAVE, "num_attention_heads"},
  {BLOCK "self_attn.k_proj", "blk.*.attn_k", HF_WEAVE, "num_key_value_heads"},
  {0},
};
static const hf_key granite_keys[] = {
  {"vocab_size", HF_U32, "vocab_size"},
  {"attention.scale", HF_F32_KEY, "attention_multiplier"},
  {"embedding_scale", HF_F32_KEY, "embedding_multiplier"},
  {"residual_scale", HF_F32_KEY, "residual_multiplier"},
  {"logit_scale", HF_F32_KEY, "logits_scaling"},
  {0},
};

#define EPS6 "\"rms_norm_eps\":1e-6"
#define THETA(x) "\"rope_theta\":" x
static const hf_class classes[] = {
  {.name = "Qwen3ForCausalLM", .arch = "qwen3", .defaults = "{" EPS6 "," THETA("10000.0") ",\"head_dim\":128}"},
  {.name = "Qwen2ForCausalLM", .arch = "qwen2", .defaults = "{" EPS6 "," THETA("10000.0") "}"},
  {.name = "LlamaForCausalLM", .arch = "llama", .defaults = "{" EPS6 "," THETA("10000.0") "}", .head_dim = true,
   .keys = llama_keys, .rules = llama_rules, .more = llama_more},
  {.name = "MistralForCausalLM", .arch = "llama", .defaults = "{" EPS6 "," THETA("10000.0") "}", .head_dim = true,
   .keys = llama_keys, .rules = llama_rules, .more = llama_more},
  {.name = "GraniteForCausalLM", .arch = "granite", .defaults = "{" EPS6 "," THETA("10000.0") "}",
   .keys = granite_keys, .rules = llama_rules, .more = llama_more},
};

// ---- the class of a folder ------------------------------------------------------------------------------------------

// Blocks with scales and packed integers come in many kinds, none of which is read.
static int check_quantised(const hf *h, error *err) {
  const char *name, *method, *text;
  const json_t *q = json_object_get(h->config, "quantization_config");
  if (json_is_null(q)) q = NULL;
  text = q ? "quantization_config" : "quantization";
  if (!q) q = hf_value(h, "quantization_config quantization", &name);
  if (!q) q = json_object_get(h->config, "quantization");
  if (!q || json_is_null(q)) return 0;
  method = json_string_value(json_object_get(q, "quant_method"));
  char quoted[64];
  return hf_fail(h, config_name, text, err,
                 "%s weights are not read yet: take the folder with BF16, F16 or F32 weights, or a GGUF file",
                 method ? gguf_quote(quoted, sizeof quoted, method, strlen(method)) : "MLX's or other quantised");
}

static int fill_defaults(hf *h, error *err) {
  json_error_t e;
  const char *key, *name;
  json_t *v, *defaults = json_loads(h->class->defaults ? h->class->defaults : "{}", 0, &e);
  die_if(!defaults, "the defaults of %s are no JSON: %s", h->class->name, e.text);
  json_object_foreach(defaults, key, v) if (!json_object_get(h->text, key)) json_object_set(h->text, key, v);
  json_decref(defaults);
  if (!hf_value(h, "num_key_value_heads", &name) && (v = hf_value(h, "num_attention_heads", &name)))
    json_object_set(h->text, "num_key_value_heads", v);
  if (!h->class->head_dim || hf_value(h, "head_dim", &name)) return 0;
  uint32_t width, heads;
  if (hf_need_u32(h, "hidden_size", &width, err) || hf_need_u32(h, "num_attention_heads", &heads, err)) return -1;
  json_object_set_new(h->text, "head_dim", json_integer(width / heads));
  return 0;
}

static char *known_classes(const hf *h) {
  char *all = arena_strdup(h->arena, "");
  for (size_t i = 0; i < COUNT(classes); i++)
    all = arena_printf(h->arena, "%s%s%s", all, i ? ", " : "", classes[i].name);
  return all;
}

int hf_find_class(hf *h, error *err) {
  const json_t *list = json_object_get(h->config, "architectures");
  const char *name = json_string_value(json_array_get(list, 0));
  char quoted[96];
  if (!name) return hf_fail(h, config_name, "architectures", err, "is missing, or names no class");
  for (size_t i = 0; i < COUNT(classes); i++) if (!strcmp(classes[i].name, name)) h->class = &classes[i];
  if (!h->class)
    return hf_fail(h, config_name, "architectures", err, "folders of %s are not read (but those of %s); a GGUF file is",
                   gguf_quote(quoted, sizeof quoted, name, strlen(name)), known_classes(h));
  json_t *inner = json_object_get(h->config, "text_config");
  if (json_is_object(inner)) {
    h->text = json_copy(h->config);
    json_object_update(h->text, inner);
  } else h->text = json_copy(h->config);
  return check_quantised(h, err) || fill_defaults(h, err) ? -1 : 0;
}

static int put_class_key(hf *h, const hf_key *k, error *err) {
  uint32_t n;
  double v;
  bool found;
  const char *name, *to = hf_arch_key(h, k->to);
  if (k->kind == HF_U32) {
    if (hf_u32(h, k->from, &n, &found, err)) return -1;
    if (found) gguf_head_u32(h->head, to, n);
  } else if (k->kind == HF_F32_KEY) {
    if (hf_f64(h, k->from, &v, &found, err)) return -1;
    if (found) gguf_head_f32(h->head, to, (float)v);
  } else {
    const json_t *b = hf_value(h, k->from, &name);
    if (b && !json_is_boolean(b)) return hf_fail(h, config_name, name, err, "is not true or false");
    if (b) gguf_head_bool(h->head, to, json_is_true(b));
  }
  return 0;
}

int hf_put_keys(hf *h, error *err) {
  uint32_t layers;
  if (hf_need_u32(h, "num_hidden_layers n_layers n_layer num_layers", &layers, err)) return -1;
  for (const hf_key *k = common_keys; k->to; k++) if (put_class_key(h, k, err)) return -1;
  if (put_rope(h, err)) return -1;
  for (const hf_key *k = h->class->keys; k && k->to; k++) if (put_class_key(h, k, err)) return -1;
  return h->class->more ? h->class->more(h, err) : 0;
}

// ---- names of tensors -----------------------------------------------------------------------------------------------

// Whether the name is the pattern, in which * stands for a number; *number: that.
static bool matches_rule(const char *pattern, const char *name, size_t n, const char **number, size_t *digits) {
  size_t i = 0;
  for (; *pattern; pattern++) {
    if (*pattern != '*') {
      if (i == n || name[i++] != *pattern) return false;
      continue;
    }
    *number = name + i;
    while (i < n && name[i] >= '0' && name[i] <= '9') i++;
    *digits = (size_t)(name + i - *number);
    if (!*digits || *digits > 9) return false;
  }
  return i == n;
}

static const char *put_number(const hf *h, const char *to, const char *number, size_t digits, const char *rest) {
  const char *star = strchr(to, '*');
  if (!star) return arena_printf(h->arena, "%s%s", to, rest);
  return arena_printf(h->arena, "%.*s%.*s%s%s", (int)(star - to), to, (int)digits, number, star + 1, rest);
}

static const hf_rule *in_rules(const hf *h, const hf_rule *rules, const char *name, size_t n, const char **to) {
  const char *number = "";
  size_t digits = 0;
  for (const hf_rule *r = rules; r && r->from; r++) {
    bool whole = r->to && strlen(r->to) > 7 && !strcmp(r->to + strlen(r->to) - 7, ".weight");
    if (!matches_rule(r->from, name, whole ? strlen(name) : n, &number, &digits) &&
        !(r->op == HF_SKIP && matches_rule(r->from, name, strlen(name), &number, &digits)))
      continue;
    if (r->to) *to = put_number(h, r->to, number, digits, whole ? "" : name + n);
    return r;
  }
  return NULL;
}

const hf_rule *hf_rule_for(const hf *h, const char *name, const char **to, error *err) {
  size_t n = strlen(name);
  if (n > 7 && !strcmp(name + n - 7, ".weight")) n -= 7;
  else if (n > 5 && !strcmp(name + n - 5, ".bias")) n -= 5;
  const hf_rule *r = in_rules(h, h->class->rules, name, n, to);
  if (!r) r = in_rules(h, common_rules, name, n, to);
  if (!r) error_set(err, "%s: tensor '%.200s' is not one that %s has", h->shown, name, h->class->name);
  return r;
}
