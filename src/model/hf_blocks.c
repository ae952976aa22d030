// 4-bit weights in blocks for which GGUF has an equal format: a row of the file has the folder's codes and scales in
// another order, and no number changes.
//
//   MXFP4 (gpt-oss, quant_method "mxfp4"): X_blocks, 16 bytes for 32 weights, and X_scales, a power of two for each
//   MXFP4 (experts beside matrices of FP8, quant_method "fp8"): X.weight, I8 or U8, 16 bytes for 32 weights, and
//   X.scale
//     (DeepSeek V4) or X.weight_scale (MiMo), powers of two
//   MXFP4 ("compressed-tensors", format "mxfp4-pack-quantized"): X.weight_packed and X.weight_scale
//   NVFP4 ("modelopt"): X.weight, X.weight_scale (per 16 weights, F8_E4M3), X.weight_scale_2 (for all), X.input_scale
//   NVFP4 ("compressed-tensors"): X.weight_packed, X.weight_scale, and _global_scale, the reciprocals of the other two
//
// A byte of the folder has two adjacent weights. A byte of the file has weights half a block apart.
//
// Output: hf_source.blocks with the codes' scales, hf_block_row, hf_block_value. A tensor whose numbers change, whose
// order changes within weights of one scale, or whose width is not a multiple of a block, becomes floats.
#include <math.h>
#include <string.h>
#include "model/hf_impl.h"
#include "model/quantise.h"

enum { OF_MX = 32, OF_NV = 16, NV_GROUPS = 4 };            // weights per scale; groups per block of the file

static const char *file_with_blocks(const hf *h, const hf_source *s) { return h->files.at[s->file].name; }

// The tensor with another ending of the name; NULL: absent.
static hf_source *tensor_beside(const hf *h, const hf_source *s, const char *end, const char *other) {
  const char *name = arena_printf(h->arena, "%.*s%s", (int)(strlen(s->name) - strlen(end)), s->name, other);
  void *found;
  return smap_get(&h->by_name, name, strlen(name), &found) ? found : NULL;
}

// ---- config.json ----------------------------------------------------------------------------------------------------

// Reads hf_quant_config.json, since ModelOpt may describe the weights only there.
int hf_read_modelopt(hf *h, error *err) {
  json_t *said;
  if (hf_json(h, "hf_quant_config.json", false, &said, err)) return -1;
  const char *algo = json_string_value(json_object_get(json_object_get(said, "quantization"), "quant_algo"));
  if (algo) h->method = HF_MODELOPT;
  json_decref(said);
  return 0;
}

// ---- tensors --------------------------------------------------------------------------------------------------------

int hf_take_scale(const hf *h, hf_source *s, hf_source *scale, error *err) {
  if (s->scale)
    return hf_fail(h, file_with_blocks(h, s), s->name, err, "has scales twice: %.200s and %.200s", s->scale->name,
                   scale->name);
  const hf_source *both = scale->taken || scale->packed || scale->scale ? scale : s->taken || s->packed ? s : NULL;
  if (both)
    return hf_fail(h, file_with_blocks(h, both), both->name, err, "is a matrix with scales, and scales of another");
  scale->taken = true;
  s->scale = scale;
  return 0;
}

static int bind_mxfp4(const hf *h, hf_source *s, error *err) {
  hf_source *scale = tensor_beside(h, s, "_blocks", "_scales");
  bool fits = !strcmp(s->dtype, "U8") && s->n_dims == 4 && s->shape[3] == OF_MX / 2;
  if (!fits) return hf_fail(h, file_with_blocks(h, s), s->name, err, "is not blocks of %d bytes", OF_MX / 2);
  fits = scale && !strcmp(scale->dtype, "U8") && scale->n_dims == 3;
  for (int i = 0; i < 3 && fits; i++) fits = scale->shape[i] == s->shape[i];
  if (!fits) return hf_fail(h, file_with_blocks(h, s), s->name, err, "has no scales, or not one for each block");
  if (hf_take_scale(h, s, scale, err)) return -1;
  s->blocks = s->format = format_by_id(FORMAT_MXFP4);
  s->n_dims = 3;
  s->shape[2] *= OF_MX;
  return 0;
}

// Whether compressed-tensors' weights of 4 bits are MXFP4's.
static bool packs_mxfp4(const hf *h) {
  const char *name, *format = json_string_value(json_object_get(hf_value(h, "quantization_config", &name), "format"));
  return h->method == HF_COMPRESSED && format && !strcmp(format, "mxfp4-pack-quantized");
}

// The matrix of 4-bit weights whose scales a tensor has; NULL: it is no such scales.
static hf_source *packed_with(const hf *h, const hf_source *scale) {
  static const char *const ends[][2] = {
    {".scale", ".weight"}, {".weight_scale", ".weight"}, {".weight_scale", ".weight_packed"}};
  if (!hf_is_e8m0(scale) && strcmp(scale->dtype, "U8")) return NULL;
  for (size_t i = 0; i < COUNT(ends); i++) {
    hf_source *s = hf_ends_in(scale->name, ends[i][0]) ? tensor_beside(h, scale, ends[i][0], ends[i][1]) : NULL;
    if (s && (!strcmp(s->dtype, "I8") || !strcmp(s->dtype, "U8"))) return s;
  }
  return NULL;
}

static int bind_pairs(hf *h, hf_source *scale, error *err) {
  hf_source *s = packed_with(h, scale);
  if (!s) return 0;
  if (hf_take_scale(h, s, scale, err)) return -1;
  if (s->n_dims != 2 || scale->n_dims != 2 || scale->shape[0] != s->shape[0] || s->shape[1] > INT32_MAX ||
      s->shape[1] * 2 != scale->shape[1] * OF_MX)
    return hf_fail(h, file_with_blocks(h, s), s->name, err, "has no scales, or not one for each %d weights", OF_MX);
  h->blocks = s->blocks = s->format = format_by_id(FORMAT_MXFP4);
  s->shape[1] *= 2;
  if (hf_ends_in(s->name, "_packed"))
    s->name = arena_strndup(h->arena, s->name, strlen(s->name) - strlen("_packed"));
  return 0;
}

// Reads a factor of all weights. divides: it is stored as the reciprocal.
static int read_factor(const hf *h, hf_source *s, bool divides, float *out, error *err) {
  *out = 1;
  if (!s) return 0;
  s->taken = true;
  bool one = s->n_dims == 0 || (s->n_dims == 1 && s->shape[0] == 1);
  if (!one || !s->format) return hf_fail(h, file_with_blocks(h, s), s->name, err, "is not one number");
  floats_from(s->format, s->data, 1, out);
  if (divides) *out = 1 / *out;
  return isfinite(*out) ? 0 : hf_fail(h, file_with_blocks(h, s), s->name, err, "is no finite number, or 0");
}

static int bind_nvfp4(const hf *h, hf_source *s, const char *end, error *err) {
  bool divides = h->method == HF_COMPRESSED;
  hf_source *scale = tensor_beside(h, s, end, ".weight_scale"),
            *all = tensor_beside(h, s, end, divides ? ".weight_global_scale" : ".weight_scale_2"),
            *in = tensor_beside(h, s, end, divides ? ".input_global_scale" : ".input_scale");
  bool fits = s->n_dims == 2 && scale && !strcmp(scale->dtype, "F8_E4M3") && scale->n_dims == 2 &&
              scale->shape[0] == s->shape[0] && s->shape[1] <= INT32_MAX && s->shape[1] * 2 == scale->shape[1] * OF_NV;
  if (!fits)
    return hf_fail(h, file_with_blocks(h, s), s->name, err, "has no scales, or not one for each %d weights", OF_NV);
  if (read_factor(h, all, divides, &s->factor, err) || read_factor(h, in, divides, &s->input, err)) return -1;
  if (hf_take_scale(h, s, scale, err)) return -1;
  s->blocks = format_by_id(FORMAT_NVFP4);
  s->shape[1] *= 2;
  s->format = s->shape[1] % (OF_NV * NV_GROUPS) ? format_by_id(FORMAT_F32) : s->blocks;
  s->name = arena_printf(h->arena, "%.*s.weight", (int)(strlen(s->name) - strlen(end)), s->name);
  return 0;
}

int hf_bind_blocks(hf *h, error *err) {
  static const char *const unused[] = {".input_scale", ".k_scale", ".v_scale", ".activation_scale"};
  const char *end = h->method == HF_COMPRESSED ? ".weight_packed" : ".weight";
  bool of_two = (h->method == HF_COMPRESSED && !packs_mxfp4(h)) || h->method == HF_MODELOPT;
  for (size_t i = 0; i < h->sources.n; i++) {
    hf_source *s = &h->sources.at[i];
    if (h->method == HF_MXFP4 && hf_ends_in(s->name, "_blocks") && bind_mxfp4(h, s, err)) return -1;
    if (of_two && hf_ends_in(s->name, end) && !strcmp(s->dtype, "U8") && bind_nvfp4(h, s, end, err)) return -1;
    if ((h->method == HF_FP8 || packs_mxfp4(h)) && bind_pairs(h, s, err)) return -1;
    if (s->blocks) h->blocks = s->blocks;
  }
  for (size_t i = 0; h->method && i < h->sources.n; i++)
    for (size_t k = 0; k < COUNT(unused); k++)
      if (hf_ends_in(h->sources.at[i].name, unused[k])) h->sources.at[i].taken = true;
  return 0;
}

// ---- rows -----------------------------------------------------------------------------------------------------------

static unsigned code_at(const unsigned char *pairs, int64_t i) { return (unsigned)pairs[i / 2] >> 4 * (i % 2) & 15; }

// Packs 2n codes from adjacent pairs into n bytes with codes n apart.
static void put_codes(const unsigned char *pairs, int n, unsigned char *out) {
  for (int i = 0; i < n; i++) out[i] = (unsigned char)(code_at(pairs, i) | code_at(pairs, i + n) << 4);
}

static int weights_per_scale(const struct format *blocks) { return blocks->id == FORMAT_MXFP4 ? OF_MX : OF_NV; }

bool hf_keeps_groups(const struct format *blocks, const hf_order *columns) {
  int of = weights_per_scale(blocks);
  for (size_t i = 0; i < columns->n; i++) {
    const hf_slice *s = &columns->at[i];
    if (s->first % of || s->n[2] % of || s->apart[2] != 1 || s->apart[0] % of || s->apart[1] % of) return false;
  }
  return true;
}

void hf_block_row(const hf_source *s, int64_t row, const hf_order *order, unsigned char *out) {
  bool mx = s->blocks->id == FORMAT_MXFP4;
  int64_t columns = s->shape[s->n_dims - 1], of = weights_per_scale(s->blocks);
  const unsigned char *codes = s->data + row * (columns / 2), *scales = s->scale->data + row * (columns / of);
  for (int64_t b = 0; b < columns / s->blocks->block; b++, out += s->blocks->bytes) {
    if (mx) {
      int64_t group = hf_ordered(order, b * OF_MX) / OF_MX;
      out[0] = scales[group];
      put_codes(codes + group * (OF_MX / 2), OF_MX / 2, out + 1);
      continue;
    }
    for (int g = 0; g < NV_GROUPS; g++) {
      int64_t group = hf_ordered(order, (b * NV_GROUPS + g) * OF_NV) / OF_NV;
      out[g] = scales[group] & 0x7f;
      put_codes(codes + group * (OF_NV / 2), OF_NV / 2, out + NV_GROUPS + g * (OF_NV / 2));
    }
  }
}

float hf_block_value(const hf_source *s, int64_t row, int64_t column) {
  static const float sizes[] = {0, .5f, 1, 1.5f, 2, 3, 4, 6};
  int64_t columns = s->shape[s->n_dims - 1], of = weights_per_scale(s->blocks);
  unsigned code = code_at(s->data + row * (columns / 2), column);
  unsigned char scale = s->scale->data[row * (columns / of) + column / of];
  float v = code & 8 ? -sizes[code & 7] : sizes[code & 7];
  return s->blocks->id == FORMAT_MXFP4 ? v * hf_e8m0(scale) : v * hf_e4m3(scale) * s->factor;
}
