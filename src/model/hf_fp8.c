// Weights of 8 bits with a scale for each block (quant_method "fp8"): a matrix W of F8_E4M3 stands beside W_scale_inv,
// whose number of a block, weight_block_size rows by columns, multiplies the block's weights; without blocks there is
// one number for all.
//
// Output: hf_source.scale, and parts of rows as floats (hf_scaled). Invariant: every matrix of F8_E4M3 has its scales,
// and every one of those its matrix.
#include <math.h>
#include <string.h>
#include "model/hf_impl.h"
#include "model/quantise.h"

static const char of_scales[] = "_scale_inv";

// Four bits of exponent and three of mantissa; no infinity, and two codes that are no numbers.
static float e4m3(unsigned char code) {
  int e = code >> 3 & 15, m = code & 7;
  float v = e == 15 && m == 7 ? NAN : e ? ldexpf((float)(8 + m), e - 10) : ldexpf((float)m, -9);
  return code >> 7 ? -v : v;
}

static int read_block(const hf *h, int64_t block[2], error *err) {
  const json_t *q = json_object_get(h->config, "quantization_config"), *size = json_object_get(q, "weight_block_size");
  block[0] = block[1] = INT64_MAX;
  if (!size || json_is_null(size)) return 0;
  for (size_t i = 0; i < 2; i++) {
    const json_t *n = json_array_get(size, i);
    if (json_array_size(size) != 2 || !json_is_integer(n) || json_integer_value(n) < 1)
      return hf_fail(h, "config.json", "quantization_config.weight_block_size", err, "is not two numbers from 1 on");
    block[i] = json_integer_value(n);
  }
  return 0;
}

static int64_t scale_blocks(int64_t n, int64_t block) { return n / block + (n % block != 0); }

static const char *file_name(const hf *h, const hf_source *s) { return h->files.at[s->file].name; }

static int check_scale(const hf *h, const hf_source *w, const hf_source *s, const int64_t block[2], error *err) {
  if (strcmp(w->dtype, "F8_E4M3") || w->n_dims != 2)
    return hf_fail(h, file_name(h, w), w->name, err, "has scales, and is no matrix of F8_E4M3");
  if (!s->format) return hf_fail(h, file_name(h, s), s->name, err, "scales of %s are not read", s->dtype);
  int64_t rows = scale_blocks(w->shape[0], block[0]), columns = scale_blocks(w->shape[1], block[1]), n = 1;
  for (uint32_t i = 0; i < s->n_dims && i < HF_DIMS; i++) n = s->shape[i] == 0 ? 0 : n * s->shape[i];
  bool fits = rows == 1 && columns == 1 ? n == 1 : s->n_dims == 2 && s->shape[0] == rows && s->shape[1] == columns;
  if (!fits)
    return hf_fail(h, file_name(h, s), s->name, err,
                   "has another shape than %lld x %lld, the blocks of %lld x %lld weights", (long long)rows,
                   (long long)columns, (long long)w->shape[0], (long long)w->shape[1]);
  return 0;
}

static hf_source *source_named(const hf *h, const char *name, size_t n) {
  void *s;
  return smap_get(&h->by_name, name, n, &s) ? s : NULL;
}

static bool has_end(const char *name) {
  size_t n = strlen(name), k = sizeof of_scales - 1;
  return n > k && !strcmp(name + n - k, of_scales);
}

int hf_bind_scales(hf *h, error *err) {
  const char *method = json_string_value(json_object_get(json_object_get(h->config, "quantization_config"),
                                                         "quant_method"));
  int64_t block[2];
  if (!method || strcmp(method, "fp8")) return 0;
  if (read_block(h, block, err)) return -1;
  for (size_t i = 0; i < h->sources.n; i++) {
    hf_source *s = &h->sources.at[i];
    if (!has_end(s->name)) continue;
    hf_source *w = source_named(h, s->name, strlen(s->name) - (sizeof of_scales - 1));
    if (!w) return hf_fail(h, file_name(h, s), s->name, err, "there is no matrix that has these scales");
    if (check_scale(h, w, s, block, err)) return -1;
    w->scale = s;
    s->taken = true;
    memcpy(w->block, block, sizeof block);
  }
  for (size_t i = 0; i < h->sources.n; i++)
    if (!strcmp(h->sources.at[i].dtype, "F8_E4M3") && !h->sources.at[i].scale)
      return hf_fail(h, file_name(h, &h->sources.at[i]), h->sources.at[i].name, err, "has no scales (%s%s)",
                     h->sources.at[i].name, of_scales);
  return 0;
}

void hf_scaled(const hf_source *s, int64_t row, int64_t first, int64_t n, float *out) {
  int64_t columns = scale_blocks(s->shape[1], s->block[1]), above = row / s->block[0] * columns, block = -1;
  float scale = 0;
  for (int64_t i = first; i < first + n; i++) {
    if (i / s->block[1] != block) {
      block = i / s->block[1];
      floats_from(s->scale->format, s->scale->data + s->scale->format->bytes * (size_t)(above + block), 1, &scale);
    }
    out[i - first] = e4m3(s->data[row * s->shape[1] + i]) * scale;
  }
}
