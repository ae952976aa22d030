// Weights stored as small integers with scales and zeros: GPTQ, AWQ, MLX, and compressed-tensors (pack-quantized).
//
// Input: the folder's tensors, and config.json's quantization_config (MLX: quantization). A matrix of codes is replaced
// by one tensor X.weight of floats, whose rows are computed on demand; its scales and zeros are marked as taken.
// Invariant: each number is what the library that wrote the folder computes, as F32. Offsets are checked when the
// folder is opened; indices stored in a file are clamped when they are read.
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include "graph/half.h"
#include "model/hf_impl.h"

enum hf_packing { PACKED_GPTQ = 1, PACKED_AWQ, PACKED_MLX, PACKED_COMPRESSED };

struct hf_packed {
  enum hf_packing kind;
  const unsigned char *codes;
  const hf_source *scales, *zeros;               // zeros NULL: plus is each zero
  const hf_source *order;                        // the group of each column, or NULL: groups are adjacent columns
  int64_t rows, columns;                         // of the matrix
  int64_t groups;                                // per row
  int64_t of_group;                              // columns per scale
  uint32_t bits, plus;                           // bits of a code; plus: added to a zero
};

static const char config_name[] = "config.json";

// ---- config.json ----------------------------------------------------------------------------------------------------

static int positive(const hf *h, const json_t *in, const char *key, uint32_t usual, uint32_t *out, error *err) {
  const json_t *v = json_object_get(in, key);
  *out = usual;
  if (!v || json_is_null(v)) return 0;
  json_int_t n = json_is_integer(v) ? json_integer_value(v) : -1;
  if (n < 1 || n > 1 << 20)
    return hf_fail(h, config_name, key, err, "is not a whole number from 1 to %d", 1 << 20);
  *out = (uint32_t)n;
  return 0;
}

static int has_bits(const hf *h, uint32_t bits, error *err) {
  bool is_known = bits == 2 || bits == 4 || bits == 8;
  if (h->packing.kind == PACKED_AWQ) is_known = bits == 4;   // AWQ's order within a word is defined only for these
  return is_known ? 0 : hf_fail(h, config_name, "bits", err, "codes of %u bits are not read", bits);
}

// Returns whether a word without spaces is in a list separated by spaces.
static bool is_among(const char *of, const char *word) {
  size_t n = strlen(word);
  if (!n || strchr(word, ' ')) return false;
  for (const char *at = of; (at = strstr(at, word)); at++)
    if ((at == of || at[-1] == ' ') && (at[n] == ' ' || !at[n])) return true;
  return false;
}

static int must_say(const hf *h, const json_t *q, const char *key, const char *words, error *err) {
  const char *is = json_string_value(json_object_get(q, key));
  char quoted[64];
  if (!is || is_among(words, is)) return 0;
  return hf_fail(h, config_name, key, err, "'%s' is not read (but %s)",
                 gguf_quote(quoted, sizeof quoted, is, strlen(is)), words);
}

static int read_method(hf *h, const json_t *q, const char *method, error *err) {
  uint32_t bits;
  if (!strcmp(method, "gptq")) {
    h->packing.kind = PACKED_GPTQ;
    if (must_say(h, q, "checkpoint_format", "gptq gptq_v2", err)) return -1;
    const char *version = json_string_value(json_object_get(q, "checkpoint_format"));
    h->packing.plus = !version || strcmp(version, "gptq_v2");
  } else {
    h->packing.kind = PACKED_AWQ;
    if (must_say(h, q, "version", "gemm GEMM", err)) return -1;
  }
  if (positive(h, q, hf_in(q, "bits") ? "bits" : "w_bit", 4, &bits, err) || has_bits(h, bits, err)) return -1;
  h->packing.bits = bits;
  const char *group = hf_in(q, "group_size") ? "group_size" : "q_group_size";
  const json_t *size = json_object_get(q, group);
  if (json_is_integer(size) && json_integer_value(size) == -1) return 0;
  return positive(h, q, group, 128, &h->packing.group, err);
}

// compressed-tensors: all groups of matrices must have codes of one width, with scales of groups or rows.
static int read_compressed(hf *h, const json_t *q, error *err) {
  json_t *groups = json_object_get(q, "config_groups"), *of;
  const char *name;
  uint32_t bits, group = 0, n = 0;
  json_object_foreach(groups, name, of) {
    const json_t *w = json_object_get(of, "weights");
    const json_t *size = json_object_get(w, "group_size");
    bool whole = !size || json_is_null(size) || json_integer_value(size) == -1;
    h->packing.kind = PACKED_COMPRESSED;
    if (must_say(h, w, "type", "int", err) || must_say(h, w, "strategy", "group channel", err) ||
        positive(h, w, "num_bits", 4, &bits, err) || has_bits(h, bits, err) ||
        (!whole && positive(h, w, "group_size", 128, &group, err)))
      return -1;
    if (n++ && (bits != h->packing.bits || group != h->packing.group))
      return hf_fail(h, config_name, "config_groups", err, "matrices have codes of several kinds");
    h->packing.bits = bits;
    h->packing.group = group;
  }
  return n ? 0 : hf_fail(h, config_name, "config_groups", err, "is missing, or has no group");
}

int hf_read_packing(hf *h, error *err) {
  const char *key = "quantization_config";
  const json_t *q = json_object_get(h->config, key), *mlx = json_object_get(h->config, "quantization");
  uint32_t bits;
  if (!json_is_object(q)) q = json_object_get(json_object_get(h->config, "text_config"), key);
  const char *method = json_string_value(json_object_get(q, "quant_method"));
  if (method && (!strcmp(method, "gptq") || !strcmp(method, "awq"))) return read_method(h, q, method, err);
  const char *form = json_string_value(json_object_get(q, "format"));
  if (method && form && !strcmp(method, "compressed-tensors") && !strcmp(form, "pack-quantized"))
    return read_compressed(h, q, err);
  if (method || !json_is_object(mlx)) return 0;
  h->packing.kind = PACKED_MLX;
  h->packing.own = mlx;
  if (must_say(h, mlx, "mode", "affine", err) || positive(h, mlx, "bits", 4, &bits, err) || has_bits(h, bits, err) ||
      positive(h, mlx, "group_size", 64, &h->packing.group, err))
    return -1;
  h->packing.bits = bits;
  return 0;
}

// ---- tensors of a matrix --------------------------------------------------------------------------------------------

static const char *file_of_source(const hf *h, const hf_source *s) { return h->files.at[s->file].name; }

// A tensor of a matrix: the first n characters of s's name and an ending. NULL: absent.
static hf_source *belonging(const hf *h, const hf_source *s, size_t n, const char *end) {
  const char *name = arena_printf(h->arena, "%.*s%s", (int)n, s->name, end);
  void *found;
  return smap_get(&h->by_name, name, strlen(name), &found) ? found : NULL;
}

static int take_belonging(const hf *h, const hf_source *s, size_t n, const char *end, hf_source **out, error *err) {
  *out = belonging(h, s, n, end);
  if (!*out) return hf_fail(h, file_of_source(h, s), s->name, err, "'%.*s%s' is missing", (int)n, s->name, end);
  (*out)->taken = true;
  return 0;
}

static int has_shape(const hf *h, const hf_source *s, const char *dtypes, int64_t rows, int64_t columns, error *err) {
  int64_t r = s->n_dims ? s->shape[0] : 1, c = s->n_dims > 1 ? s->shape[1] : 1;
  if (is_among(dtypes, s->dtype) && s->n_dims == 2 && r == rows && c == columns) return 0;
  return hf_fail(h, file_of_source(h, s), s->name, err,
                 "%s, %" PRId64 " x %" PRId64 ", expected %s, %" PRId64 " x %" PRId64, s->dtype, r, c, dtypes, rows,
                 columns);
}

static const char floats[] = "F32 or F16 or BF16", words[] = "I32 or U32";

static uint32_t code_word(const unsigned char *data, int64_t i) {
  uint32_t v;
  memcpy(&v, data + 4 * i, sizeof v);
  return v;
}

// Turns the tensor of codes into a tensor of floats.
static void becomes_matrix(hf *h, hf_source *s, size_t n, hf_packed own) {
  hf_packed *p = arena_alloc(h->arena, sizeof *p);
  own.codes = s->data;
  *p = own;
  s->name = arena_printf(h->arena, "%.*s.weight", (int)n, s->name);
  s->format = format_by_id(FORMAT_F32);
  s->n_dims = 2;
  s->shape[0] = own.rows;
  s->shape[1] = own.columns;
  s->packed = p;
  s->scaled_by = own.scales->format;
}

// Takes the group of each column.
static int take_groups(const hf *h, hf_source *order, hf_packed *p, error *err) {
  order->taken = true;
  if (order->n_dims != 1 || order->shape[0] != p->columns || strcmp(order->dtype, "I32"))
    return hf_fail(h, file_of_source(h, order), order->name, err, "is not %" PRId64 " numbers of I32", p->columns);
  for (int64_t i = 0; i < p->columns; i++)
    if (code_word(order->data, i) >= p->groups)
      return hf_fail(h, file_of_source(h, order), order->name, err,
                     "element %" PRId64 " is %" PRId32 ", and there are %" PRId64 " groups", i,
                     (int32_t)code_word(order->data, i), p->groups);
  p->order = order;
  return 0;
}

// A word has GPTQ's codes of eight rows of the transposed matrix, or AWQ's of eight columns.
static int find_transposed(hf *h, hf_source *s, size_t n, error *err) {
  hf_source *zeros, *scales, *order = belonging(h, s, n, ".g_idx");
  bool is_gptq = h->packing.kind == PACKED_GPTQ;
  int64_t of_word = 32 / h->packing.bits;
  if (take_belonging(h, s, n, ".qzeros", &zeros, err) || take_belonging(h, s, n, ".scales", &scales, err)) return -1;
  if (s->n_dims != 2 || !is_among(words, s->dtype) || scales->n_dims != 2 || s->shape[0] < 1 || s->shape[1] < 1 ||
      s->shape[0] > INT32_MAX || s->shape[1] > INT32_MAX)
    return hf_fail(h, file_of_source(h, s), s->name, err, "is no matrix of %s, or its scales are none", words);
  hf_packed p = {.kind = h->packing.kind, .scales = scales, .zeros = zeros, .bits = h->packing.bits,
                 .plus = h->packing.plus, .groups = scales->shape[0]};
  p.columns = is_gptq ? s->shape[0] * of_word : s->shape[0];
  p.rows = is_gptq ? s->shape[1] : s->shape[1] * of_word;
  p.of_group = h->packing.group ? h->packing.group : p.columns;
  if (p.groups != p.columns / p.of_group + (p.columns % p.of_group != 0) || p.rows % of_word)
    return hf_fail(h, file_of_source(h, scales), scales->name, err,
                   "%" PRId64 " groups of %" PRId64 " do not fit %" PRId64 " columns, or words %" PRId64 " rows",
                   p.groups, p.of_group, p.columns, p.rows);
  if (has_shape(h, scales, floats, p.groups, p.rows, err) ||
      has_shape(h, zeros, words, p.groups, p.rows / of_word, err))
    return -1;
  if (order && is_gptq && take_groups(h, order, &p, err)) return -1;
  becomes_matrix(h, s, n, p);
  return 0;
}

// The bits and group size of one matrix, if config.json has special ones. MLX writes a boolean if there are none.
static int own_packing(const hf *h, const char *name, size_t n, uint32_t *bits, uint32_t *group, error *err) {
  const char *matrix = arena_strndup(h->arena, name, n);
  const json_t *own = json_object_get(h->packing.own, matrix);
  if (own && !json_is_object(own) && !json_is_boolean(own))
    return hf_fail(h, config_name, matrix, err, "is neither an object nor true or false");
  return positive(h, own, "bits", h->packing.bits, bits, err) || has_bits(h, *bits, err) ||
                 positive(h, own, "group_size", h->packing.group, group, err)
           ? -1
           : 0;
}

static int find_mlx(hf *h, hf_source *s, size_t n, error *err) {
  hf_source *zeros, *scales;
  uint32_t bits, group;
  if (own_packing(h, s->name, n, &bits, &group, err) || take_belonging(h, s, n, ".scales", &scales, err) ||
      take_belonging(h, s, n, ".biases", &zeros, err))
    return -1;
  if (s->n_dims != 2 || strcmp(s->dtype, "U32") || scales->n_dims != 2 || s->shape[1] > INT32_MAX)
    return hf_fail(h, file_of_source(h, s), s->name, err, "is no matrix of U32, or its scales are none");
  hf_packed p = {.kind = PACKED_MLX, .scales = scales, .zeros = zeros, .bits = bits, .rows = s->shape[0],
                 .columns = s->shape[1] * (32 / bits), .groups = scales->shape[1]};
  if (p.groups < 1 || p.columns % p.groups || p.columns / p.groups != group)
    return hf_fail(h, file_of_source(h, scales), scales->name, err,
                   "%" PRId64 " groups of %u do not fit %" PRId64 " columns of %u bits", p.groups, group, p.columns,
                   bits);
  p.of_group = p.columns / p.groups;
  if (has_shape(h, scales, floats, p.rows, p.groups, err) ||
      has_shape(h, zeros, scales->dtype, p.rows, p.groups, err))
    return -1;
  becomes_matrix(h, s, n, p);
  return 0;
}

// The rows and columns of a matrix: weight_shape.
static int read_matrix_shape(const hf *h, const hf_source *s, int64_t out[2], error *err) {
  if (s->n_dims == 1 && s->shape[0] == 2 && (!strcmp(s->dtype, "I64") || !strcmp(s->dtype, "I32")))
    for (int i = 0; i < 2; i++) {
      int32_t half;
      if (s->dtype[1] == '6') memcpy(&out[i], s->data + 8 * i, sizeof out[i]);
      else {
        memcpy(&half, s->data + 4 * i, sizeof half);
        out[i] = half;
      }
    }
  if (out[0] > 0 && out[1] > 0 && out[0] <= INT32_MAX && out[1] <= INT32_MAX) return 0;
  return hf_fail(h, file_of_source(h, s), s->name, err, "is not a number of rows and of columns");
}

// A word has codes of one row. Zeros are packed along columns, if there are some.
static int find_compressed(hf *h, hf_source *s, size_t n, error *err) {
  hf_source *scales, *said, *zeros = belonging(h, s, n, ".weight_zero_point"),
                            *order = belonging(h, s, n, ".weight_g_idx");
  int64_t of_word = 32 / h->packing.bits, sizes[2] = {0, 0};
  if (take_belonging(h, s, n, ".weight_scale", &scales, err) || take_belonging(h, s, n, ".weight_shape", &said, err) ||
      read_matrix_shape(h, said, sizes, err))
    return -1;
  hf_packed p = {.kind = PACKED_COMPRESSED, .scales = scales, .zeros = zeros, .bits = h->packing.bits,
                 .plus = zeros ? 0 : 1u << (h->packing.bits - 1), .rows = sizes[0], .columns = sizes[1]};
  p.of_group = h->packing.group ? h->packing.group : p.columns;
  p.groups = p.columns / p.of_group + (p.columns % p.of_group != 0);
  if (has_shape(h, s, words, p.rows, (p.columns + of_word - 1) / of_word, err) ||
      has_shape(h, scales, floats, p.rows, p.groups, err) ||
      (zeros && has_shape(h, zeros, words, (p.rows + of_word - 1) / of_word, p.groups, err)))
    return -1;
  if (zeros) zeros->taken = true;
  if (order && take_groups(h, order, &p, err)) return -1;
  becomes_matrix(h, s, n, p);
  return 0;
}

static bool cut_ending(const char *name, const char *end, size_t *n) {
  size_t whole = strlen(name), m = strlen(end);
  *n = whole >= m ? whole - m : 0;
  return whole >= m && !strcmp(name + *n, end);
}

// Checks that the name is not a norm's: norms are floats in every folder.
static int is_matrix_name(const hf *h, const hf_source *s, size_t n, error *err) {
  static const char norm[] = "norm";
  size_t m = sizeof norm - 1;
  if (n < m || strncmp(s->name + n - m, norm, m)) return 0;
  return hf_fail(h, file_of_source(h, s), s->name, err, "a norm is not read from codes");
}

int hf_unpack(hf *h, error *err) {
  size_t n;
  for (size_t i = 0; i < h->sources.n; i++) {
    hf_source *s = &h->sources.at[i];
    int status = 0;
    switch (h->packing.kind) {
    case PACKED_GPTQ:
    case PACKED_AWQ:
      if (cut_ending(s->name, ".qweight", &n)) status = is_matrix_name(h, s, n, err) || find_transposed(h, s, n, err);
      break;
    case PACKED_COMPRESSED:
      if (cut_ending(s->name, ".weight_packed", &n))
        status = is_matrix_name(h, s, n, err) || find_compressed(h, s, n, err);
      break;
    case PACKED_MLX:
      if (cut_ending(s->name, ".weight", &n) && belonging(h, s, n, ".scales"))
        status = is_matrix_name(h, s, n, err) || find_mlx(h, s, n, err);
      break;
    }
    if (status) return -1;
  }
  return 0;
}

// ---- rows -----------------------------------------------------------------------------------------------------------

static float float_of(const hf_source *s, int64_t i) {
  uint16_t half;
  float v;
  if (s->format->id == FORMAT_F32) {
    memcpy(&v, s->data + 4 * i, sizeof v);
    return v;
  }
  memcpy(&half, s->data + 2 * i, sizeof half);
  return (float)(s->format->id == FORMAT_F16 ? f16_to_double(half) : bf16_to_double(half));
}

// Rounds to the type of the scales: MLX rounds after the product and after the sum.
static float rounded_as(const hf_source *s, float v) {
  if (s->format->id == FORMAT_F16) return (float)f16_to_double(f16_from_double((double)v));
  return s->format->id == FORMAT_BF16 ? (float)bf16_to_double(bf16_from_double((double)v)) : v;
}

static void mlx_row(const hf_packed *p, int64_t r, float *out) {
  int64_t of_word = 32 / p->bits;
  uint32_t mask = (1u << p->bits) - 1;
  for (int64_t c = 0; c < p->columns; c++) {
    int64_t group = r * p->groups + c / p->of_group;
    uint32_t code = code_word(p->codes, (r * p->columns + c) / of_word) >> (uint32_t)(c % of_word) * p->bits & mask;
    float v = rounded_as(p->scales, (float)code * float_of(p->scales, group));
    out[c] = rounded_as(p->scales, v + float_of(p->zeros, group));
  }
}

// The position of a column within a word in AWQ's order.
static uint32_t awq_part(int64_t column) {
  static const unsigned char part[] = {0, 4, 1, 5, 2, 6, 3, 7};
  return part[column % 8];
}

static void column_row(const hf_packed *p, int64_t r, float *out) {
  int64_t of_word = 32 / p->bits, group = 0, known = -1;
  uint32_t mask = (1u << p->bits) - 1, part = p->kind == PACKED_AWQ ? awq_part(r) : (uint32_t)(r % of_word);
  float scale = 0, zero = 0;
  for (int64_t c = 0; c < p->columns; c++) {
    group = p->order ? min_i64(code_word(p->order->data, c), p->groups - 1) : c / p->of_group;
    if (group != known) {
      scale = float_of(p->scales, group * p->rows + r);
      zero = (float)((code_word(p->zeros->data, (group * p->rows + r) / of_word) >> part * p->bits & mask) + p->plus);
      known = group;
    }
    uint32_t word = p->kind == PACKED_AWQ ? code_word(p->codes, (c * p->rows + r) / of_word)
                                          : code_word(p->codes, c / of_word * p->rows + r),
             at = p->kind == PACKED_AWQ ? part : (uint32_t)(c % of_word);
    out[c] = scale * ((float)(word >> at * p->bits & mask) - zero);
  }
}

static void compressed_row(const hf_packed *p, int64_t r, float *out) {
  int64_t of_word = 32 / p->bits, words_of_row = (p->columns + of_word - 1) / of_word;
  uint32_t mask = (1u << p->bits) - 1, zero = p->plus;
  for (int64_t c = 0; c < p->columns; c++) {
    int64_t group = p->order ? min_i64(code_word(p->order->data, c), p->groups - 1) : c / p->of_group;
    uint32_t code = code_word(p->codes, r * words_of_row + c / of_word) >> (uint32_t)(c % of_word) * p->bits & mask;
    if (p->zeros)
      zero = code_word(p->zeros->data, r / of_word * p->groups + group) >> (uint32_t)(r % of_word) * p->bits & mask;
    out[c] = float_of(p->scales, r * p->groups + group) * ((float)code - (float)zero);
  }
}

void hf_packed_row(const hf_packed *p, int64_t r, float *out) {
  switch (p->kind) {
  case PACKED_MLX: mlx_row(p, r, out); break;
  case PACKED_COMPRESSED: compressed_row(p, r, out); break;
  case PACKED_GPTQ:
  case PACKED_AWQ: column_row(p, r, out); break;
  }
}
