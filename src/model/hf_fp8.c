// 8-bit weights with scales. A matrix W of F8_E4M3 (or I8) has a tensor of scales next to it; each scale multiplies the
// weights of a block:
//
//   quant_method "fp8"                  W_scale_inv, blocks of weight_block_size; without that one scale for all;
//                                       DeepSeek V4 names it X.scale, for X.weight, and stores powers of two (F8_E8M0)
//   "modelopt", "compressed-tensors"    W_scale, one for all, for each row, or for blocks of block_structure
//
// W may be a stack of matrices, each with its own blocks. hf_blocks.c reads matrices of 4 bits.
//
// Output: hf_source.scale, and parts of rows as floats (hf_scaled). Invariant: every matrix of F8_E4M3 has scales, and
// all scales have a matrix.
#include <math.h>
#include <string.h>
#include "model/hf_impl.h"
#include "model/quantise.h"

static const char config_name[] = "config.json";

// ---- config.json ----------------------------------------------------------------------------------------------------

static bool says(const char *a, const char *b) { return a && b && !strcmp(a, b); }

// compressed-tensors: whether all groups have float weights, or 8-bit integers.
static bool has_known_groups(json_t *groups) {
  const char *name;
  json_t *group;
  json_object_foreach(groups, name, group) {
    const json_t *w = json_object_get(group, "weights");
    json_int_t bits = json_integer_value(json_object_get(w, "num_bits"));
    if (!says(json_string_value(json_object_get(w, "type")), "float") && bits != 8) return false;
  }
  return json_object_size(groups) > 0;
}

// Detects the kind of scales. Of the many kinds, hf_packed.c, hf_blocks.c and this file read some; others are errors.
int hf_read_scaling(hf *h, error *err) {
  const char *name, *fmt;
  const json_t *q = hf_value(h, "quantization_config", &name);
  char quoted[64];
  if (h->packing.kind) return 0;
  const char *key = q ? "quantization_config" : "quantization", *method = NULL;
  if (!q) q = hf_value(h, key, &name);
  if (!q) return hf_read_modelopt(h, err);
  method = json_string_value(json_object_get(q, "quant_method"));
  fmt = json_string_value(json_object_get(q, "fmt"));
  h->method = says(method, "fp8") && (!fmt || !strcmp(fmt, "e4m3")) ? HF_FP8
              : says(method, "mxfp4")                               ? HF_MXFP4
              : says(method, "modelopt")                            ? HF_MODELOPT
              : says(method, "compressed-tensors") && has_known_groups(json_object_get(q, "config_groups"))
                ? HF_COMPRESSED
                : HF_FLOATS;
  if (h->method) return 0;
  return hf_fail(h, config_name, key, err,
                 "%s weights are not read yet: take the folder with BF16, F16 or F32 weights, or a GGUF file",
                 method ? gguf_quote(quoted, sizeof quoted, method, strlen(method)) : "MLX's or other quantised");
}

// Reads a block's rows and columns from a list of config.json. Without the list there is a scale per row, or one for
// all.
static int read_block(const hf *h, int64_t block[2], error *err) {
  const char *name, *key = h->method == HF_FP8 ? "weight_block_size" : "block_structure";
  json_t *q = hf_value(h, "quantization_config", &name), *groups = json_object_get(q, "config_groups");
  if (h->method != HF_FP8)
    q = json_object_get(json_object_iter_value(json_object_iter(groups)), "weights");
  q = json_object_get(q, key);
  block[0] = block[1] = INT64_MAX;
  if (!q || json_is_null(q)) return 0;
  for (size_t i = 0; i < 2; i++) {
    const json_t *n = json_array_get(q, i);
    if (json_array_size(q) != 2 || !json_is_integer(n) || json_integer_value(n) < 1)
      return hf_fail(h, config_name, arena_printf(h->arena, "quantization_config.%s", key), err,
                     "is not two numbers from 1 on");
    block[i] = json_integer_value(n);
  }
  return 0;
}

// ---- a matrix and its scales ----------------------------------------------------------------------------------------

static int64_t scale_blocks(int64_t n, int64_t block) { return n / block + (n % block != 0); }

static const char *file_with(const hf *h, const hf_source *s) { return h->files.at[s->file].name; }

// The number of matrices in a stack, and their rows and columns.
static void stack_sizes(const hf_source *w, int64_t n[3]) {
  n[0] = w->n_dims == 3 ? w->shape[0] : 1;
  n[1] = w->shape[w->n_dims - 2];
  n[2] = w->shape[w->n_dims - 1];
}

static bool has_sizes(const hf_source *s, const int64_t n[3], uint32_t n_dims) {
  int64_t all = 1;
  bool same = s->n_dims == n_dims;
  for (uint32_t i = 0; i < s->n_dims; i++) {
    same = same && s->shape[i] == n[3 - n_dims + i];
    all = s->shape[i] == 0 || all > INT32_MAX ? 0 : all * s->shape[i];
  }
  return same || (s->n_dims < 2 && all == n[0] * n[1] * n[2]);
}

// The ranks among which the rows of a fused matrix of queries, keys and values were shared out before its blocks were
// scaled: each has blocks of its own. 0: a number that is not known.
static int64_t scale_ranks(const hf_source *w, const hf_source *s, int64_t block) {
  static const int64_t known[] = {8, 4};
  for (size_t i = 0; i < COUNT(known); i++)
    if (s->n_dims == 2 && w->n_dims == 2 && w->shape[0] % known[i] == 0 &&
        s->shape[0] == known[i] * scale_blocks(w->shape[0] / known[i], block))
      return known[i];
  return 0;
}

static int take_scale(const hf *h, hf_source *w, hf_source *s, const int64_t block[2], error *err) {
  int64_t n[3], blocks[3];
  if (hf_take_scale(h, w, s, err)) return -1;
  if ((strcmp(w->dtype, "F8_E4M3") && strcmp(w->dtype, "I8")) || (w->n_dims != 2 && w->n_dims != 3))
    return hf_fail(h, file_with(h, w), w->name, err, "has scales, and is no matrix of F8_E4M3");
  if (!s->format && !hf_is_e8m0(s))
    return hf_fail(h, file_with(h, s), s->name, err, "scales of %s are not read", s->dtype);
  memcpy(w->block, block, sizeof w->block);
  stack_sizes(w, n);
  // a scale per row
  if (h->method != HF_FP8 && block[0] == INT64_MAX && n[1] > 1 && s->n_dims && s->shape[0] == n[1]) w->block[0] = 1;
  bool ranked = h->class->ranked_qkv && hf_ends_in(w->name, ".qkv_proj.weight");
  if (ranked && !(w->ranks = scale_ranks(w, s, block[0])))
    return hf_fail(h, file_with(h, s), s->name, err, "is not of the blocks of 8 or 4 parts");
  for (int i = 0; i < 3; i++) blocks[i] = i ? scale_blocks(n[i], w->block[i - 1]) : n[0];
  if (ranked) blocks[1] = s->shape[0];
  if (!has_sizes(s, blocks, w->n_dims))
    return hf_fail(h, file_with(h, s), s->name, err,
                   "has another shape than %lld x %lld, the blocks of %lld x %lld weights", (long long)blocks[1],
                   (long long)blocks[2], (long long)n[1], (long long)n[2]);
  w->format = format_by_id(FORMAT_F32);
  return 0;
}

static int bind_scale(const hf *h, hf_source *s, size_t end, const int64_t block[2], error *err) {
  const char *name = arena_strndup(h->arena, s->name, strlen(s->name) - end);
  void *w;
  if (hf_ends_in(s->name, ".scale")) name = arena_printf(h->arena, "%s.weight", name);
  if (!smap_get(&h->by_name, name, strlen(name), &w))
    return hf_fail(h, file_with(h, s), s->name, err, "there is no matrix that has these scales");
  return take_scale(h, w, s, block, err);
}

int hf_bind_scales(hf *h, error *err) {
  const char *end = h->method == HF_FP8 ? "_scale_inv" : ".weight_scale", *added = strstr(end, "_scale");
  int64_t block[2];
  if (hf_bind_blocks(h, err)) return -1;
  if (h->method == HF_FLOATS || h->method == HF_MXFP4) return 0;
  if (read_block(h, block, err)) return -1;
  for (size_t i = 0; i < h->sources.n; i++) {
    hf_source *s = &h->sources.at[i];
    if (!s->taken && hf_ends_in(s->name, end) && bind_scale(h, s, strlen(added), block, err)) return -1;
    if (!s->taken && h->method == HF_FP8 && hf_is_e8m0(s) && hf_ends_in(s->name, ".scale") &&
        bind_scale(h, s, strlen(".scale"), block, err))
      return -1;
  }
  for (size_t i = 0; i < h->sources.n; i++) {
    const hf_source *s = &h->sources.at[i];
    if (!strcmp(s->dtype, "F8_E4M3") && !s->scale && !s->taken)
      return hf_fail(h, file_with(h, s), s->name, err, "has no scales (%s%s)", s->name, added);
  }
  return 0;
}

// ---- numbers --------------------------------------------------------------------------------------------------------

float hf_e4m3(unsigned char code) {
  int e = code >> 3 & 15, m = code & 7;
  float v = e == 15 && m == 7 ? NAN : e ? ldexpf((float)(8 + m), e - 10) : ldexpf((float)m, -9);
  return code >> 7 ? -v : v;
}

float hf_e8m0(unsigned char code) { return code == 255 ? NAN : ldexpf(1, code - 127); }

bool hf_is_e8m0(const hf_source *s) { return !strcmp(s->dtype, "F8_E8M0"); }

static float scale_at(const hf_source *s, int64_t i) {
  float v;
  if (!s->format) return hf_e8m0(s->data[i]);
  floats_from(s->format, s->data + s->format->bytes * (size_t)i, 1, &v);
  return v;
}

void hf_scaled(const hf_source *s, int64_t row, int64_t first, int64_t n, float *out) {
  int64_t size[3], block = -1;
  float scale = 0;
  if (s->blocks) {
    for (int64_t i = 0; i < n; i++) out[i] = hf_block_value(s, row, first + i);
    return;
  }
  stack_sizes(s, size);
  if (s->ranks) size[1] /= s->ranks;                       // blocks of each part, as those of a stack
  int64_t above = (row / size[1] * scale_blocks(size[1], s->block[0]) + row % size[1] / s->block[0]) *
                  scale_blocks(size[2], s->block[1]);
  bool whole = !strcmp(s->dtype, "I8");
  for (int64_t i = first; i < first + n; i++) {
    unsigned char code = s->data[row * size[2] + i];
    if (i / s->block[1] != block) {
      block = i / s->block[1];
      scale = scale_at(s->scale, above + block);
    }
    out[i - first] = (whole ? (float)(int8_t)code : hf_e4m3(code)) * scale;
  }
}
