// How positions rotate queries and keys: which keys and factors of a file say what config.json says of it. Contexts
// beyond the trained one are scaled in several ways (rope_type); one that no key says is an error, not left out.
#include <math.h>
#include <string.h>
#include "model/hf_impl.h"

static const char config_name[] = "config.json";

const json_t *hf_rope(const hf *h) {
  const char *name;
  const json_t *rope = hf_value(h, "rope_parameters rope_scaling", &name);
  const json_t *full = hf_in(rope, "full_attention"), *chosen = hf_in(rope, "indexed_attention");
  return full ? full : chosen ? chosen : rope;
}

// A number of the rope group, or, if absent, the key `beside` of config.json itself.
int hf_rope_number(const hf *h, const char *key, const char *beside, double *out, bool *found, error *err) {
  if (hf_number_in(h, hf_rope(h), key, out, found, err)) return -1;
  return *found || !beside ? 0 : hf_f64(h, beside, out, found, err);
}

const char *hf_rope_type(const hf *h) {
  const json_t *rope = hf_rope(h);
  const char *type = json_string_value(json_object_get(rope, "rope_type"));
  return type ? type : json_string_value(json_object_get(rope, "type"));
}

static int put_rope_number(hf *h, const char *from, const char *to, bool needed, error *err) {
  double v;
  bool found;
  if (hf_rope_number(h, from, NULL, &v, &found, err)) return -1;
  if (found) gguf_head_f32(h->head, hf_arch_key(h, to), (float)v);
  return found || !needed ? 0 : hf_fail(h, config_name, from, err, "is missing in what it says of rotation");
}

static int put_old_context(hf *h, error *err) {
  double v;
  bool found;
  if (hf_rope_number(h, "original_max_position_embeddings", "original_max_position_embeddings", &v, &found, err))
    return -1;
  if (!found || v < 1 || v > UINT32_MAX)
    return hf_fail(h, config_name, "original_max_position_embeddings", err, "is missing, or no number of positions");
  gguf_head_u32(h->head, hf_arch_key(h, "rope.scaling.original_context_length"), (uint32_t)v);
  return 0;
}

// The weight of the logarithm in the factor of attention may be two numbers, whose quotient counts if both are there.
static int put_log_weights(hf *h, error *err) {
  double factor, all = 0, own = 0;
  bool found;
  if (hf_rope_number(h, "factor", NULL, &factor, &found, err) ||
      hf_rope_number(h, "mscale", NULL, &own, &found, err) ||
      hf_rope_number(h, "mscale_all_dim", NULL, &all, &found, err))
    return -1;
  if (h->class->own_log_weight || hf_in(hf_rope(h), "attention_factor") || own == 0 || all == 0) return 0;
  double attn = factor > 1 ? (1 + 0.1 * own * log(factor)) / (1 + 0.1 * all * log(factor)) : 1;
  gguf_head_f32(h->head, hf_arch_key(h, "rope.scaling.yarn_attn_factor"), (float)attn);
  return 0;
}

// Whether the ramp covers whole pairs is said if it is not what files of the architecture mean.
static int put_truncate(hf *h, error *err) {
  const json_t *v = hf_in(hf_rope(h), "truncate");
  if (!v) return 0;
  if (!json_is_boolean(v)) return hf_fail(h, config_name, "truncate", err, "is not true or false");
  if (json_is_true(v) != strcmp(h->class->arch, "gpt-oss"))
    gguf_head_bool(h->head, hf_arch_key(h, "rope.scaling.yarn_truncate"), json_is_true(v));
  return 0;
}

static int put_yarn(hf *h, error *err) {
  const char *attn = hf_in(hf_rope(h), "attention_factor") ? "attention_factor" : "attn_factor";
  return put_log_weights(h, err) || put_truncate(h, err) ||
             put_rope_number(h, "factor", "rope.scaling.factor", true, err) || put_old_context(h, err) ||
             put_rope_number(h, "extrapolation_factor", "rope.scaling.yarn_ext_factor", false, err) ||
             put_rope_number(h, attn, "rope.scaling.yarn_attn_factor", false, err) ||
             put_rope_number(h, "beta_fast", "rope.scaling.yarn_beta_fast", false, err) ||
             put_rope_number(h, "beta_slow", "rope.scaling.yarn_beta_slow", false, err)
           ? -1
           : 0;
}

static int put_scaling(hf *h, error *err) {
  const char *type = hf_rope_type(h);
  char quoted[64];
  if (h->class->own_scaling || !type || !strcmp(type, "default") || !strcmp(type, "llama3")) return 0;
  if (strcmp(type, "linear") && strcmp(type, "yarn"))
    return hf_fail(h, config_name, "rope_type", err, "'%s' is not known",
                   gguf_quote(quoted, sizeof quoted, type, strlen(type)));
  gguf_head_str(h->head, hf_arch_key(h, "rope.scaling.type"), type, strlen(type));
  h->rotation_read = true;
  return *type == 'y' ? put_yarn(h, err) : put_rope_number(h, "factor", "rope.scaling.factor", true, err);
}

int hf_put_rope(hf *h, error *err) {
  const char *name;
  double v;
  bool found;
  if (put_scaling(h, err) ||
      hf_rope_number(h, "rope_theta", "rope_theta rotary_emb_base global_rope_theta", &v, &found, err))
    return -1;
  if (found) gguf_head_f32(h->head, hf_arch_key(h, "rope.freq_base"), (float)v);
  const json_t *near = json_object_get(hf_value(h, "rope_parameters", &name), "sliding_attention");
  const char *type = json_string_value(json_object_get(near, "rope_type"));
  char quoted[64];
  if (type && strcmp(type, "default"))
    return hf_fail(h, config_name, "rope_type", err, "'%s' of sliding_attention, which is not scaled in files of %s",
                   gguf_quote(quoted, sizeof quoted, type, strlen(type)), h->class->arch);
  if (hf_number_in(h, near, "rope_theta", &v, &found, err)) return -1;
  if (!found && hf_f64(h, "rope_local_base_freq local_rope_theta swa_rope_theta", &v, &found, err)) return -1;
  if (found) gguf_head_f32(h->head, hf_arch_key(h, "rope.freq_base_swa"), (float)v);
  return 0;
}

int hf_check_rotation(const hf *h, error *err) {
  const char *type = hf_rope_type(h);
  char quoted[64];
  if (h->rotation_read || !type || !strcmp(type, "default")) return 0;
  return hf_fail(h, config_name, "rope_type", err, "'%s', which files of %s do not have",
                 gguf_quote(quoted, sizeof quoted, type, strlen(type)), h->class->arch);
}

// ---- what is rotated, and factors of frequencies --------------------------------------------------------------------

// The number of elements of a head.
int hf_head_size(const hf *h, uint32_t *out, error *err) {
  uint32_t width, heads;
  bool found;
  if (hf_u32(h, "head_dim", out, &found, err)) return -1;
  if (found) return 0;
  if (hf_need_u32(h, "hidden_size d_model", &width, err) || hf_need_u32(h, "num_attention_heads n_heads", &heads, err))
    return -1;
  *out = width / heads;
  return 0;
}

int hf_put_rope_dims(hf *h, double share, error *err) {
  uint32_t n;
  if (hf_head_size(h, &n, err)) return -1;
  gguf_head_u32(h->head, hf_arch_key(h, "rope.dimension_count"), (uint32_t)(n * share));
  return 0;
}

enum { ROPE_MOST = 1 << 16 };

bool hf_are_llama3(double factor, double low, double high, double old) {
  const double most = 1e6, longest = 1e12;
  return factor >= 1 / most && factor <= most && low >= 1 / most && high > low && high <= most && old > 0 &&
         old <= longest;
}

// The frequency factors of llama3's rule, computed in the converter's order.
static int llama3_factors(hf *h, uint32_t dim, error *err) {
  double base = 10000, factor = 8, low = 1, high = 4, old = 8192;
  bool found;
  if (hf_rope_number(h, "rope_theta", "rope_theta", &base, &found, err) ||
      hf_rope_number(h, "factor", NULL, &factor, &found, err) ||
      hf_rope_number(h, "low_freq_factor", NULL, &low, &found, err) ||
      hf_rope_number(h, "high_freq_factor", NULL, &high, &found, err) ||
      hf_rope_number(h, "original_max_position_embeddings", "original_max_position_embeddings", &old, &found, err))
    return -1;
  if (!hf_are_llama3(factor, low, high, old))
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
  h->rotation_read = true;
  return 0;
}

int hf_put_llama3(hf *h, error *err) {
  uint32_t dim;
  const char *type = hf_rope_type(h);
  if (!type || strcmp(type, "llama3")) return 0;
  if (hf_head_size(h, &dim, err)) return -1;
  if (dim < 2 || dim > ROPE_MOST)
    return hf_fail(h, config_name, "head_dim", err, "%u is not from 2 to %d", dim, ROPE_MOST);
  return llama3_factors(h, dim, err);
}

int hf_llama_more(hf *h, error *err) { return hf_put_rope_dims(h, 1, err) || hf_put_llama3(h, err) ? -1 : 0; }

int hf_put_rotated(hf *h, double usual, error *err) {
  static const char names[] = "partial_rotary_factor rotary_pct rope_pct";
  double share = usual;
  bool found;
  const char *name = "partial_rotary_factor";
  if (hf_rope_number(h, name, names, &share, &found, err)) return -1;
  if (share > 0 && share <= 1) return hf_put_rope_dims(h, share, err);
  if (!hf_in(hf_rope(h), name)) hf_value(h, names, &name);
  return hf_fail(h, config_name, name, err, "is not from 0 to 1");
}

int hf_glm4_more(hf *h, error *err) {
  if (hf_in(hf_rope(h), "mrope_section"))
    return hf_fail(h, config_name, "mrope_section", err, "positions of pictures are not known for this class");
  return hf_put_rotated(h, 0.5, err);
}

// Adds a list of frequency factors.
static int put_factors(hf *h, const char *key, const char *name, uint32_t n, error *err) {
  const json_t *list = json_object_get(hf_rope(h), key);
  if (n > ROPE_MOST || json_array_size(list) != n)
    return hf_fail(h, config_name, key, err, "is not a list of %u numbers", n);
  float *out = ARENA_ARRAY(h->arena, float, n + 1);
  for (size_t i = 0; i < n; i++) {
    const json_t *v = json_array_get(list, i);
    if (!hf_is_float(v)) return hf_fail(h, config_name, key, err, "has what is no number at %zu", i);
    out[i] = (float)json_number_value(v);
  }
  hf_add_values(h, name, out, n);
  return 0;
}

static int put_factor_lists(hf *h, uint32_t dims, error *err) {
  h->rotation_read = true;
  return put_factors(h, "long_factor", "rope_factors_long.weight", dims / 2, err) ||
             put_factors(h, "short_factor", "rope_factors_short.weight", dims / 2, err)
           ? -1
           : 0;
}

// The factor of attention in contexts that are `scale` times as long as the original one.
static double longrope_attention(double scale, double old) { return scale > 1 ? sqrt(1 + log(scale) / log(old)) : 1; }

static bool is_longrope(const char *type) { return type && (!strcmp(type, "longrope") || !strcmp(type, "su")); }

int hf_put_longrope(hf *h, uint32_t dims, error *err) {
  static const char key[] = "original_max_position_embeddings";
  uint32_t positions;
  double old = 0;
  bool found;
  if (!is_longrope(hf_rope_type(h))) return 0;
  if (hf_need_u32(h, "max_position_embeddings", &positions, err) || hf_rope_number(h, key, key, &old, &found, err))
    return -1;
  if (found && old != positions) {
    if (put_old_context(h, err)) return -1;
    gguf_head_f32(h->head, hf_arch_key(h, "rope.scaling.attn_factor"),
                  (float)longrope_attention(positions / old, old));
  }
  return put_factor_lists(h, dims, err);
}

// Contexts beyond the original one: two lists of factors, and one factor for attention.
static int phi3_longer(hf *h, double old, uint32_t dims, error *err) {
  const char *type = hf_rope_type(h);
  uint32_t positions;
  double attn = 1;
  if (!json_array_size(json_object_get(hf_rope(h), "long_factor"))) return 0;
  if (hf_need_u32(h, "n_positions max_position_embeddings", &positions, err)) return -1;
  double scale = positions / old;
  if (is_longrope(type)) attn = longrope_attention(scale, old);
  else if (type && !strcmp(type, "yarn")) attn = scale > 1 ? 0.1 * log(scale) + 1 : 1;
  else return hf_fail(h, config_name, "rope_type", err, "is not one that has factors");
  gguf_head_f32(h->head, hf_arch_key(h, "rope.scaling.attn_factor"), (float)attn);
  return put_factor_lists(h, dims, err);
}

int hf_phi3_more(hf *h, error *err) {
  double share = 1, old = 0;
  uint32_t width, heads, window = 0;
  bool found;
  if (put_old_context(h, err) || hf_need_u32(h, "hidden_size", &width, err) ||
      hf_need_u32(h, "num_attention_heads", &heads, err) || hf_u32(h, "sliding_window", &window, &found, err) ||
      hf_rope_number(h, "original_max_position_embeddings", "original_max_position_embeddings", &old, &found, err) ||
      hf_rope_number(h, "partial_rotary_factor", "partial_rotary_factor", &share, &found, err))
    return -1;
  if (!(share > 0 && share <= 1)) return hf_fail(h, config_name, "partial_rotary_factor", err, "is not from 0 to 1");
  uint32_t dims = (uint32_t)(share * width) / heads;
  gguf_head_u32(h->head, hf_arch_key(h, "rope.dimension_count"), dims);
  gguf_head_u32(h->head, hf_arch_key(h, "attention.sliding_window"), window);
  return phi3_longer(h, old, dims, err);
}
