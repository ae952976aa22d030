// Converts a Hugging Face folder to the tensors and keys of a GGUF file: see hf.h. hf_open is the list of steps.
//
// A rule names each tensor of the folder; a tensor without a rule is an error. A rule describes an order of rows, so
// any row of the file can be computed from the mapping alone.
#define _GNU_SOURCE
#include "model/hf.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include "base/inuse.h"
#include "base/plain.h"
#include "model/hf_impl.h"
#include "model/quantise.h"

enum { ALIGNMENT = 32, EXPERTS_MOST = 1 << 16 };

// ---- tensors --------------------------------------------------------------------------------------------------------

static hf_made *new_made(hf *h, const char *name, const hf_source *s) {
  hf_made m = {.t = {.name = name, .n_dims = 1, .ne = {1, 1, 1, 1}, .from = s->format}, .step = 1};
  const hf_source **parts = ARENA_ARRAY(h->arena, const hf_source *, 1);
  parts[0] = s;
  m.parts = parts;
  m.n_parts = 1;
  m.t.n_dims = s->n_dims ? s->n_dims : 1;
  for (uint32_t i = 0; i < s->n_dims; i++) m.t.ne[s->n_dims - 1 - i] = s->shape[i];
  m.rows = m.t.ne[1] * m.t.ne[2] * m.t.ne[3];
  vec_push(&h->made, m);
  smap_set(&h->made_by_name, name, strlen(name), (void *)(uintptr_t)h->made.n);
  return &h->made.at[h->made.n - 1];
}

hf_made *hf_add_values(hf *h, const char *name, const float *values, int64_t n) {
  hf_made m = {.t = {.name = name, .n_dims = 1, .ne = {n, 1, 1, 1}, .from = format_by_id(FORMAT_F32)},
               .values = values, .rows = 1, .step = 1};
  vec_push(&h->made, m);
  return &h->made.at[h->made.n - 1];
}

static const char *file_of(const hf *h, const hf_source *s) { return h->files.at[s->file].name; }

// Transposes each matrix, and takes every second row from `first` on, or all (halved false).
static int turn_matrices(hf *h, hf_made *m, const hf_source *s, bool halved, int64_t first, error *err) {
  int64_t rows = m->t.ne[0];
  if (m->t.n_dims == 1 && !halved) return 0;               // a bias
  if ((m->t.n_dims != 3 && halved) || m->t.n_dims > 3 || (halved && rows % 2))
    return hf_fail(h, file_of(h, s), s->name, err, "is not a matrix for each expert with pairs of rows");
  m->t.ne[0] = m->t.ne[1];
  m->t.ne[1] = halved ? rows / 2 : rows;
  m->rows = m->t.ne[1] * m->t.ne[2];
  m->turned = true;
  m->first = first;
  m->step = halved ? 2 : 1;
  return 0;
}

// Transposes each matrix, and takes one half of its rows.
static int turn_half(hf *h, hf_made *m, const hf_source *s, bool rest, error *err) {
  if (turn_matrices(h, m, s, true, 0, err)) return -1;
  m->stored = 2 * m->t.ne[1];
  m->first = rest ? m->t.ne[1] : 0;
  m->step = 1;
  return 0;
}

static int take_every_second(hf *h, hf_made *m, const hf_source *s, int64_t first, error *err) {
  if (m->t.ne[0] % 2) return hf_fail(h, file_of(h, s), s->name, err, "its rows are not of pairs");
  m->t.ne[0] /= 2;
  m->first = first;
  m->step = 2;
  return 0;
}

static hf_made *made_before(const hf *h, const char *name) {
  void *number;
  return smap_get(&h->made_by_name, name, strlen(name), &number) ? &h->made.at[(uintptr_t)number - 1] : NULL;
}

static int is_made_twice(const hf *h, const hf_source *s, const char *to, error *err) {
  return hf_fail(h, file_of(h, s), s->name, err, "becomes '%s', and another tensor does, too", to);
}

static void squeeze(hf_made *m) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < m->t.n_dims; i++) if (m->t.ne[i] != 1) m->t.ne[n++] = m->t.ne[i];
  for (uint32_t i = n; i < GGUF_MAX_DIMS; i++) m->t.ne[i] = 1;
  m->t.n_dims = n ? n : 1;
  m->rows = m->t.ne[1] * m->t.ne[2] * m->t.ne[3];
}

// Adds one expert's matrix (or one head's vector) at its place in the stack.
static int stack_expert(hf *h, const hf_source *s, const hf_rule *r, const char *to, uint32_t expert, error *err) {
  static const char experts[] = "num_local_experts num_experts n_routed_experts moe_num_experts";
  int64_t elements = s->n_dims ? s->shape[s->n_dims - 1] : 0;
  bool flat = r->op & HF_SQUEEZED && elements && !s->scale && !s->packed &&
              s->end - s->begin == (uint64_t)elements * s->format->bytes;
  uint32_t n, dims = flat || (r->heads && s->n_dims == 1) ? 1 : 2, made_dims = flat ? 4 : dims + 1;
  hf_made *m = made_before(h, to);
  if (hf_need_u32(h, r->heads ? r->heads : experts, &n, err)) return -1;
  if (expert >= n || n > EXPERTS_MOST)
    return hf_fail(h, file_of(h, s), s->name, err, "config.json says that there are %u %s", n,
                   !r->heads ? "experts" : dims == 1 ? "heads" : "matrices");
  if (s->n_dims != dims && !flat)
    return hf_fail(h, file_of(h, s), s->name, err, "is no %s", r->heads ? "vector" : "matrix");
  if (m && (m->n_parts != n || m->t.n_dims != made_dims)) return is_made_twice(h, s, to, err);
  if (!m) {
    // each expert must have its own tensor, so memory is bounded by the number of tensors in the folder
    if ((h->n_stacked += n) > h->sources.n)
      return hf_fail(h, file_of(h, s), s->name, err, "experts are missing: there are %zu tensors in all", h->sources.n);
    m = new_made(h, to, s);
    m->parts = ARENA_ARRAY(h->arena, const hf_source *, n);
    m->n_parts = n;
    if (flat) squeeze(m);
    m->t.n_dims = made_dims;
    m->t.ne[made_dims - 1] = n;
  }
  if (m->t.ne[0] != elements || (dims == 2 && m->t.ne[1] != s->shape[0]) || m->t.from != s->format ||
      m->parts[expert])
    return hf_fail(h, file_of(h, s), s->name, err, "has another shape or type than that of another expert");
  m->parts[expert] = s;
  return 0;
}

// Adds a part of a matrix that is cut by rows. All parts but the last have as many rows.
static int join_part(hf *h, const hf_source *s, const hf_rule *r, const char *to, uint32_t part, error *err) {
  uint32_t n;
  hf_made *m = made_before(h, to);
  if (hf_need_u32(h, r->heads, &n, err)) return -1;
  if (part >= n || n > h->sources.n || s->n_dims != 2)
    return hf_fail(h, file_of(h, s), s->name, err, "is no matrix, or not one of %u parts (%s)", n, r->heads);
  if (!m) {
    m = new_made(h, to, s);
    m->parts = ARENA_ARRAY(h->arena, const hf_source *, n);
    m->n_parts = n;
    m->t.ne[1] = m->rows = 0;
  }
  if (m->t.n_dims != 2 || m->t.ne[0] != s->shape[1] || m->t.from != s->format || m->n_parts != n || m->parts[part])
    return hf_fail(h, file_of(h, s), s->name, err, "has another width or type than that of another part");
  m->parts[part] = s;
  m->t.ne[1] += s->shape[0];
  if (m->rows < s->shape[0]) m->rows = s->shape[0];
  return 0;
}

static int check_parts(const hf *h, const hf_made *m, error *err) {
  for (size_t k = 0; k < m->n_parts; k++) {
    if (!m->parts[k])
      return error_set(err, "%s: %s %zu of '%s' is missing", h->shown, m->t.n_dims == 2 ? "part" : "expert", k,
                       m->t.name);
    bool joined = m->t.n_dims == 2 && m->parts[k]->n_dims == 2;            // otherwise a stack of vectors or matrices
    if (joined && k + 1 < m->n_parts && m->parts[k]->shape[0] != m->rows)
      return hf_fail(h, file_of(h, m->parts[k]), m->parts[k]->name, err, "has other rows than another part");
  }
  return 0;
}

// Sets a key with the integers of a tensor.
static int add_integers(hf *h, const hf_source *s, const char *to, error *err) {
  enum { MOST = 1 << 16 };
  size_t n = (size_t)(s->end - s->begin) / sizeof(uint64_t);
  if (strcmp(s->dtype, "I64") || s->n_dims != 1 || !n || n > MOST)
    return hf_fail(h, file_of(h, s), s->name, err, "is not a list of integers of 64 bits");
  uint64_t *v = ARENA_ARRAY(h->arena, uint64_t, n + 1);
  memcpy(v, s->data, n * sizeof *v);
  for (size_t i = 0; i < n; i++)
    if (v[i] > INT64_MAX) return hf_fail(h, file_of(h, s), s->name, err, "number %zu is negative", i);
  gguf_head_u64s(h->head, hf_arch_key(h, to), v, n);
  return 0;
}

// Sets a layer's number in a key that has a number of each layer.
static int add_to_key(hf *h, const hf_source *s, const char *to, error *err) {
  const char *digits = strpbrk(s->name, "0123456789");
  unsigned long layer = digits ? strtoul(digits, NULL, 10) : HF_LAYERS_MOST;
  size_t i = 0;
  if (layer >= h->n_layers || h->n_layers > HF_LAYERS_MOST || s->scale || s->packed ||
      s->end - s->begin != s->format->bytes)
    return hf_fail(h, file_of(h, s), s->name, err, "is not one number of one of %u layers", h->n_layers);
  while (i < h->numbers.n && strcmp(h->numbers.at[i].key, to)) i++;
  if (i == h->numbers.n)
    vec_push(&h->numbers, ((hf_numbers){to, ARENA_ARRAY(h->arena, float, h->n_layers), 0}));
  floats_from(s->format, s->data, 1, &h->numbers.at[i].of_layer[layer]);
  h->numbers.at[i].n++;
  return 0;
}

static int put_layer_numbers(hf *h, error *err) {
  for (size_t i = 0; i < h->numbers.n; i++) {
    const hf_numbers *of = &h->numbers.at[i];
    if (of->n != h->n_layers)
      return error_set(err, "%s: '%s' is there for %u of %u layers", h->shown, of->key, of->n, h->n_layers);
    gguf_head_f32s(h->head, of->key, of->of_layer, of->n);
  }
  return 0;
}

// Makes a matrix of a list of numbers.
static int put_in_rows(hf *h, hf_made *m, const hf_source *s, const char *key, error *err) {
  uint32_t rows = 1;
  if (key && hf_need_u32(h, key, &rows, err)) return -1;
  if (m->t.n_dims != 1 || m->t.ne[0] > INT32_MAX || m->t.ne[0] % rows)
    return hf_fail(h, file_of(h, s), s->name, err, "is not a list of numbers for %u rows", rows);
  if (!key) rows = (uint32_t)m->t.ne[0];
  m->t.ne[0] /= rows;
  m->t.ne[1] = m->rows = rows;
  m->t.n_dims = 2;
  return 0;
}

static void put_flat(hf_made *m) {
  m->t.ne[0] *= m->rows;
  m->t.ne[1] = m->t.ne[2] = m->t.ne[3] = m->rows = 1;
  m->t.n_dims = 1;
}

static int put_fourth(hf *h, hf_made *m, const hf_source *s, error *err) {
  squeeze(m);
  if (m->t.n_dims != 2) return hf_fail(h, file_of(h, s), s->name, err, "is no matrix");
  m->t.ne[3] = m->t.ne[1];
  m->t.ne[1] = 1;
  m->t.n_dims = 4;
  return 0;
}

static int put_kernels(hf *h, hf_made *m, const hf_source *s, error *err) {
  squeeze(m);
  if (m->t.n_dims != 2) return hf_fail(h, file_of(h, s), s->name, err, "is not a kernel for each channel");
  m->t.ne[2] = m->t.ne[1];
  m->t.ne[1] = 1;
  m->t.n_dims = 4;
  return 0;
}

static int pad_rows(hf *h, hf_made *m, const hf_source *s, const char *key, error *err) {
  uint32_t n;
  if (hf_need_u32(h, key, &n, err)) return -1;
  if (m->t.n_dims != 2) return hf_fail(h, file_of(h, s), s->name, err, "is no matrix");
  if (n <= m->t.ne[1]) return 0;
  if (s->blocks) return hf_fail(h, file_of(h, s), s->name, err, "has fewer rows than %s, and is of 4-bit blocks", key);
  m->padded = m->t.ne[1];
  m->t.ne[1] = m->rows = n;
  return 0;
}

// Makes a stack of matrices that are stored one after the other.
static int put_matrices(hf *h, hf_made *m, const hf_source *s, const hf_rule *r, error *err) {
  uint32_t n;
  if (hf_need_u32(h, r->heads, &n, err)) return -1;
  if (m->t.n_dims != 2 || m->t.ne[1] % n)
    return hf_fail(h, file_of(h, s), s->name, err, "is not %u matrices (%s)", n, r->heads);
  m->t.ne[1] /= n;
  m->t.ne[2] = n;
  m->t.n_dims = 3;
  return (r->op & HF_OP_MASK) == HF_MATRICES_TURNED ? turn_matrices(h, m, s, false, 0, err) : 0;
}

// Sets the factors of a matrix's rows.
static int put_times(hf *h, hf_made *m, const hf_source *s, const char *key, error *err) {
  json_t *list = json_object_get(h->text, hf_words_of_layer(h, key, s->name)), *part;
  size_t n = json_array_size(list), i;
  hf_times *times = ARENA_ARRAY(h->arena, hf_times, n + 1);
  int64_t end = 0;
  json_array_foreach(list, i, part) {
    times[i].end = json_integer_value(json_array_get(part, 0));
    for (size_t k = 0; k < 2; k++) times[i].by[k] = (float)json_number_value(json_array_get(part, k + 1));
    if (times[i].end <= end)
      return hf_fail(h, file_of(h, s), s->name, err, "config.json says that a part of it has no rows");
    end = times[i].end;
  }
  if (m->t.n_dims > 2 || end < m->t.ne[1] || (n > 1 && end != m->t.ne[1]))
    return hf_fail(h, file_of(h, s), s->name, err, "has other rows than the parts with factors in config.json");
  m->times = times;
  return 0;
}

static const unsigned char *raw_row(const hf_made *m, int64_t r, unsigned char *scratch);

// Sets the lengths of a matrix's columns, summed in doubles, plus what keeps those of zeros from dividing by zero.
static int measure_columns(hf *h, hf_made *m, const hf_source *s, error *err) {
  const float least = 1e-7f;
  if (m->t.n_dims != 2 || s->blocks)
    return hf_fail(h, file_of(h, s), s->name, err, "is no matrix, or is of 4-bit blocks, and columns have lengths");
  size_t n = (size_t)m->t.ne[0];
  float *x = xmalloc(n * sizeof *x), *by = ARENA_ARRAY(h->arena, float, n);
  double *sums = xcalloc(n, sizeof *sums);
  unsigned char *scratch = xmalloc(2 * n * sizeof *x);
  for (int64_t r = 0; r < m->t.ne[1]; r++) {
    floats_from(m->t.from, raw_row(m, r, scratch), m->t.ne[0], x);
    for (size_t i = 0; i < n; i++) sums[i] += (double)x[i] * (double)x[i];
  }
  for (size_t i = 0; i < n; i++) by[i] = (float)sqrt(sums[i]) + least;
  m->by_columns = by;
  free(x);
  free(sums);
  free(scratch);
  return 0;
}

// Applies a rule to a tensor, which has the folder's shape so far.
static int follow_rule(hf *h, hf_made *m, const hf_source *s, const hf_rule *r, error *err) {
  m->minus_exp = r->op & HF_MINUS_EXP;
  m->exp = r->op & HF_EXP;
  m->wide = r->op & HF_WIDE;
  if (r->op & HF_SQUEEZED) squeeze(m);
  switch (r->op & HF_OP_MASK) {
  case HF_ROWS_EVEN:
  case HF_ROWS_ODD:
  case HF_WEAVE:
  case HF_WEAVE_QK:
  case HF_TILE:
  case HF_TILE_IN_ROWS:
  case HF_FROM_ROW:
  case HF_RANKS:
  case HF_PART:
  case HF_HEADS_OF:
  case HF_WEAVE_HALF:
  case HF_WEAVE_IN_ROWS:
  case HF_UNGROUP:
  case HF_COLLECT:
  case HF_COLLECT_LAST: return hf_set_order(h, m, s, r, err);
  case HF_FIRST:
  case HF_REST:
  case HF_FIRST_TURNED: return hf_split(h, m, s, r, err);
  case HF_PLUS_ONE: m->plus = 1; return 0;
  case HF_UNIT_ROWS: m->unit = true; return 0;
  case HF_UNIT_COLUMNS: return measure_columns(h, m, s, err);
  case HF_IN_ROWS: return put_in_rows(h, m, s, r->heads, err);
  case HF_KERNELS: return put_kernels(h, m, s, err);
  case HF_FLAT: put_flat(m); return 0;
  case HF_FOURTH: return put_fourth(h, m, s, err);
  case HF_ZERO_FIRST: return hf_zero_first(h, m, s, r, err);
  case HF_MATRICES:
  case HF_MATRICES_TURNED: return put_matrices(h, m, s, r, err);
  case HF_PADDED: return pad_rows(h, m, s, r->heads, err);
  case HF_TIMES: return put_times(h, m, s, r->heads, err);
  case HF_TURNED: return turn_matrices(h, m, s, false, 0, err);
  case HF_TURNED_EVEN: return turn_matrices(h, m, s, true, 0, err);
  case HF_TURNED_ODD: return turn_matrices(h, m, s, true, 1, err);
  case HF_TURNED_FIRST: return turn_half(h, m, s, false, err);
  case HF_TURNED_REST: return turn_half(h, m, s, true, err);
  case HF_EVEN: return take_every_second(h, m, s, 0, err);
  case HF_ODD: return take_every_second(h, m, s, 1, err);
  default: return 0;
  }
}

// Adds a vector of a head's size with one number.
static int add_full(hf *h, const char *to, const char *key, error *err) {
  enum { MOST = 1 << 16 };
  double v = 1;
  bool found;
  uint32_t n;
  if (hf_head_size(h, &n, err) || (key && hf_f64(h, key, &v, &found, err))) return -1;
  if (!n || n > MOST) return hf_fail(h, "config.json", "head_dim", err, "%u is not from 1 to %d", n, MOST);
  if (key && !found) return hf_fail(h, "config.json", key, err, "is missing");
  float *all = ARENA_ARRAY(h->arena, float, n);
  for (uint32_t i = 0; i < n; i++) all[i] = (float)v;
  hf_add_values(h, to, all, n);
  return 0;
}

// Adds a table of integers of 64 bits as one of 32 bits.
static int add_small_integers(hf *h, const hf_source *s, const char *to, error *err) {
  size_t n = (size_t)(s->end - s->begin) / sizeof(int64_t);
  if (strcmp(s->dtype, "I64") || s->n_dims > GGUF_MAX_DIMS || !n)
    return hf_fail(h, file_of(h, s), s->name, err, "is no table of integers of 64 bits");
  hf_source *small = ARENA_ARRAY(h->arena, hf_source, 1);
  int32_t *all = ARENA_ARRAY(h->arena, int32_t, n);
  for (size_t i = 0; i < n; i++) {
    int64_t v;
    memcpy(&v, s->data + i * sizeof v, sizeof v);
    if (v < INT32_MIN || v > INT32_MAX)
      return hf_fail(h, file_of(h, s), s->name, err, "number %zu, %" PRId64 ", is not of 32 bits", i, v);
    all[i] = (int32_t)v;
  }
  *small = *s;
  small->format = format_by_id(FORMAT_I32);
  small->data = (const unsigned char *)all;
  if (made_before(h, to)) return is_made_twice(h, s, to, err);
  new_made(h, to, small);
  return 0;
}

// Adds the product of two vectors. The other's name has "_norm" in the place of "_proj".
static int add_product(hf *h, const hf_source *s, const char *to, error *err) {
  enum { MOST = 1 << 20 };
  const char *end = "_proj.weight", *name;
  void *found;
  if (!hf_ends_in(s->name, end)) return hf_fail(h, file_of(h, s), s->name, err, "is no weight");
  name = arena_printf(h->arena, "%.*s_norm.weight", (int)(strlen(s->name) - strlen(end)), s->name);
  const hf_source *by = smap_get(&h->by_name, name, strlen(name), &found) ? found : NULL;
  if (!by) return hf_fail(h, file_of(h, s), s->name, err, "there is no %.200s", name);
  bool good = by->format && !by->scale && !s->scale && !by->packed && !s->packed;
  uint64_t n = good ? (s->end - s->begin) / s->format->bytes : 0;
  if (!n || n > MOST || n != (by->end - by->begin) / by->format->bytes)
    return hf_fail(h, file_of(h, s), s->name, err, "is not as long as %.200s, or longer than %d", name, MOST);
  float *a = ARENA_ARRAY(h->arena, float, n), *b = ARENA_ARRAY(h->arena, float, n);
  floats_from(s->format, s->data, (int64_t)n, a);
  floats_from(by->format, by->data, (int64_t)n, b);
  for (uint64_t i = 0; i < n; i++) a[i] *= b[i];
  hf_add_values(h, to, a, (int64_t)n);
  return 0;
}

static bool is_changed(const hf_made *m) {
  return m->plus != 0 || m->minus_exp || m->exp || m->unit || m->by_columns || m->times;
}

static int make_tensor(hf *h, const hf_source *s, const hf_rule *r, const char *to, uint32_t expert, error *err) {
  char quoted[128];
  if (strlen(to) > GGUF_MAX_NAME)
    return hf_fail(h, file_of(h, s), s->name, err, "its name would be too long: %s",
                   gguf_quote(quoted, sizeof quoted, to, strlen(to)));
  if ((r->op & HF_OP_MASK) == HF_FULL) return add_full(h, to, r->heads, err);
  if ((r->op & HF_OP_MASK) == HF_KEY_INTEGERS) return add_integers(h, s, to, err);
  if ((r->op & HF_OP_MASK) == HF_INTEGERS) return add_small_integers(h, s, to, err);
  if (!s->format) return hf_fail(h, file_of(h, s), s->name, err, "tensors of %s are not read", s->dtype);
  if (s->n_dims > GGUF_MAX_DIMS || s->begin == s->end)
    return hf_fail(h, file_of(h, s), s->name, err, "%u axes, or none of its elements: not a tensor of a model",
                   s->n_dims);
  if ((r->op & HF_OP_MASK) == HF_PRODUCT) return add_product(h, s, to, err);
  if ((r->op & HF_OP_MASK) == HF_STACK) return stack_expert(h, s, r, to, expert, err);
  if ((r->op & HF_OP_MASK) == HF_JOIN) return join_part(h, s, r, to, expert, err);
  if ((r->op & HF_OP_MASK) == HF_KEY) return add_to_key(h, s, to, err);
  if (made_before(h, to)) return (r->op & HF_OP_MASK) == HF_ONCE ? 0 : is_made_twice(h, s, to, err);
  hf_made *m = new_made(h, to, s);
  if (follow_rule(h, m, s, r, err)) return -1;
  bool apart = m->turned || m->step != 1 || m->ahead;
  bool shaped = r->op & HF_SQUEEZED || r->op == HF_KERNELS || r->op == HF_FLAT || r->op == HF_FOURTH;
  if ((s->packed && apart) || ((s->packed || s->scale) && shaped))
    return hf_fail(h, file_of(h, s), s->name, err, "becomes '%s' in another order, and has scales of blocks", to);
  if (s->blocks && (apart || is_changed(m) || !hf_keeps_groups(s->blocks, &m->columns)))
    m->t.from = format_by_id(FORMAT_F32);
  return 0;
}

static int make_tensors(hf *h, error *err) {
  for (size_t i = 0; i < h->sources.n; i++) {
    const hf_source *s = &h->sources.at[i];
    const char *to = NULL;
    uint32_t expert;
    if (s->taken) continue;
    const hf_rule *r = hf_rule_for(h, s->name, NULL, &to, &expert, err);
    if (!r) return -1;
    for (; r; r = hf_rule_for(h, s->name, r, &to, &expert, err))
      if (r->op != HF_SKIP && make_tensor(h, s, r, to, expert, err)) return -1;
  }
  for (size_t i = 0; i < h->made.n; i++) if (check_parts(h, &h->made.at[i], err)) return -1;
  return put_layer_numbers(h, err);
}

// ---- 4-bit blocks ---------------------------------------------------------------------------------------------------

// Adds a factor for each part of a matrix, "X.scale", unless all are 1.
static void put_part_factors(hf *h, const hf_made *m, const char *end, bool of_input) {
  float *v = ARENA_ARRAY(h->arena, float, m->n_parts);
  double near = m->n_parts > 1 ? 1e-6 + 1e-5 : 1e-6;       // the converter's tolerance
  bool one = true;
  for (size_t i = 0; i < m->n_parts; i++) {
    v[i] = of_input ? m->parts[i]->input : m->parts[i]->factor;
    one = one && fabs((double)v[i] - 1) <= near;
  }
  int n = (int)strlen(m->t.name) - (int)strlen(".weight");
  if (!one) hf_add_values(h, arena_printf(h->arena, "%.*s%s", n, m->t.name, end), v, (int64_t)m->n_parts);
}

static bool is_of_integers(const hf_made *m) { return m->t.from->id == FORMAT_I32; }

// Moves integers and tensors that stay in blocks to the front, the latter each with its factors.
static void put_blocks_first(hf *h) {
  VEC(hf_made) all = {0};
  if (!h->blocks) return;
  for (size_t i = 0; i < h->made.n; i++) vec_push(&all, h->made.at[i]);
  h->made.n = 0;
  for (size_t i = 0; i < all.n; i++) if (is_of_integers(&all.at[i])) vec_push(&h->made, all.at[i]);
  for (size_t i = 0; i < all.n; i++) {
    const hf_made *m = &all.at[i];
    if (m->t.from->block == 1) continue;
    vec_push(&h->made, *m);
    if (m->t.from->id != FORMAT_NVFP4) continue;
    put_part_factors(h, m, ".scale", false);
    put_part_factors(h, m, ".input_scale", true);
  }
  for (size_t i = 0; i < all.n; i++)
    if (all.at[i].t.from->block == 1 && !is_of_integers(&all.at[i])) vec_push(&h->made, all.at[i]);
  vec_free(&all);
}

// ---- formats --------------------------------------------------------------------------------------------------------

// Returns whether a tensor is F32 in every file.
static bool stays_f32(const hf *h, const hf_tensor *t) {
  static const char *const ends[] = {"_norm.weight", "ffn_gate_inp.weight", "ffn_gate_inp_shexp.weight",
                                     "ssm_conv1d.weight", "ssm_conv1d_q.weight", "ssm_conv1d_k.weight",
                                     "ssm_conv1d_v.weight", "shortconv.conv.weight", "indexer.proj.weight",
                                     "altup_correct_coef.weight", "altup_predict_coef.weight",
                                     "time_mix_w1.weight", "time_mix_w2.weight", "time_mix_decay_w1.weight",
                                     "time_mix_decay_w2.weight", "time_mix_first.weight",
                                     "time_mix_lerp_fused.weight"},
                    *const streams[] = {"hc_attn_fn.weight", "hc_ffn_fn.weight", "indexer_compressor_ape.weight",
                                        "indexer_compressor_gate.weight"};
  bool adapter = hf_ends_in(t->name, ".lora_a") || hf_ends_in(t->name, ".lora_b");
  if (t->n_dims < 2 || (!adapter && !hf_ends_in(t->name, ".weight"))) return true;
  if (h->f32_head && !strcmp(t->name, "output.weight")) return true;
  if (h->class->f32 && !*h->class->f32) return false;
  if (h->class->f32 && strstr(t->name, h->class->f32)) return true;
  for (size_t i = 0; i < COUNT(ends); i++) if (hf_ends_in(t->name, ends[i])) return true;
  for (size_t i = 0; i < COUNT(streams) && !h->class->as_stored; i++)
    if (hf_ends_in(t->name, streams[i])) return true;
  return !strcmp(t->name, "position_embd.weight") || !strcmp(t->name, "token_types.weight");
}

static uint32_t stored_type(const hf *h, bool keep_f32) {
  for (size_t i = 0; i < h->sources.n; i++) {
    const hf_source *s = &h->sources.at[i];
    if (s->n_dims < 2 || !s->format || s->packed || s->scale || s->taken) continue;
    if (s->format->id != FORMAT_F32) return s->format->id;
    if (keep_f32) return FORMAT_F32;
  }
  for (size_t i = 0; i < h->sources.n; i++)                // only packed codes: the type of their scales
    if (h->sources.at[i].packed && h->sources.at[i].scaled_by->id == FORMAT_BF16) return FORMAT_BF16;
  return FORMAT_F16;
}

static void choose_type(hf *h, enum hf_type type) {
  static const uint32_t named[] = {[HF_F32] = FORMAT_F32, [HF_F16] = FORMAT_F16, [HF_BF16] = FORMAT_BF16,
                                   [HF_Q8_0] = FORMAT_Q8_0};
  uint32_t id = type == HF_AUTO || type == HF_STORED ? stored_type(h, type == HF_STORED) : named[type];
  h->wish = format_by_id(id);
  h->file_type = id == FORMAT_F32 ? 0 : id == FORMAT_F16 ? 1 : id == FORMAT_BF16 ? 32 : 7;
  if (h->blocks && (id != FORMAT_Q8_0 || (h->blocks->id == FORMAT_MXFP4 && h->method != HF_MXFP4)))
    h->file_type = h->blocks->id == FORMAT_MXFP4 ? 38 : 39;
}

// Returns whether a tensor has the folder's type in every file.
static bool keeps_type(const hf *h, const hf_made *m) {
  uint32_t id = m->t.from->id;
  if (m->t.from->block > 1 || is_of_integers(m)) return true;
  return h->class->as_stored && m->t.n_dims > 1 && (id == FORMAT_F32 || id == FORMAT_BF16) && m->n_parts &&
         !m->parts[0]->scale && !m->parts[0]->packed && !hf_ends_in(m->t.name, "_norm.weight");
}

static int place_tensors(hf *h, error *err) {
  const struct format *f32 = format_by_id(FORMAT_F32), *f16 = format_by_id(FORMAT_F16);
  for (size_t i = 0; i < h->made.n; i++) {
    hf_tensor *t = &h->made.at[i].t;
    t->to = keeps_type(h, &h->made.at[i]) ? t->from : stays_f32(h, t) ? f32 : t->ne[0] % h->wish->block ? f16 : h->wish;
    if (gguf_head_tensor(h->head, t->name, t->n_dims, t->ne, t->to, &t->nbytes, err)) return -1;
  }
  return 0;
}

// ---- general keys ---------------------------------------------------------------------------------------------------

// Sets general.size_label: "0.6B" of all parameters; with experts "8x7B". Models with adapters have none.
static void put_size(hf *h) {
  for (size_t i = 0; i < h->made.n; i++) if (hf_ends_in(h->made.at[i].t.name, ".lora_a")) return;
  double all = 0, once = 0, experts = 0, n_experts = 0, n_stacks = 0;
  for (size_t i = 0; i < h->made.n; i++) {
    const hf_tensor *t = &h->made.at[i].t;
    double n = (double)t->ne[0] * (double)t->ne[1] * (double)t->ne[2] * (double)t->ne[3];
    bool bias = strstr(t->name, ".bias");
    all += n;
    if (!strstr(t->name, "_exps.") || t->n_dims < 3) { once += n; continue; }
    double of = (double)t->ne[bias ? 1 : 2];
    experts += n / of;
    n_experts += of;
    n_stacks++;
  }
  double count = n_stacks > 0 ? once + experts : all, unit = count > 1e12  ? 1e12
                                                             : count > 1e9 ? 1e9
                                                             : count > 1e6 ? 1e6
                                                                           : 1e3;
  char whole[32];
  int digits = plain_snprintf(whole, sizeof whole, "%.0f", rint(count / unit));
  if (*whole == '0') digits = 0;
  int fix = digits < 2 ? 2 - digits : 0;
  const char *sign = unit == 1e12 ? "T" : unit == 1e9 ? "B" : unit == 1e6 ? "M" : "K";
  const char *text = n_stacks > 0
    ? arena_printf(h->arena, "%.0fx%.*f%s", floor(n_experts / n_stacks), fix, count / unit, sign)
    : arena_printf(h->arena, "%.*f%s", fix, count / unit, sign);
  gguf_head_str(h->head, "general.size_label", text, strlen(text));
}

static void put_general(hf *h) {
  size_t n = strlen(h->dir);
  while (n > 1 && h->dir[n - 1] == '/') n--;
  size_t at = n;
  while (at && h->dir[at - 1] != '/') at--;
  gguf_head_str(h->head, "general.architecture", h->class->arch, strlen(h->class->arch));
  gguf_head_str(h->head, "general.type", "model", 5);
  gguf_head_str(h->head, "general.name", h->dir + at, n - at);
}

#define GENERATION "generation_config.json"

// Its sampling values for which GGUF files have keys.
static const struct sampling_key { const char *from, *to; bool whole; } sampling_keys[] = {
  {"top_k", "top_k", true}, {"top_p", "top_p", false}, {"min_p", "min_p", false},
  {"xtc_probability", "xtc_probability", false}, {"xtc_threshold", "xtc_threshold", false},
  {"temperature", "temp", false}, {"penalty_last_n", "penalty_last_n", true},
  {"repetition_penalty", "penalty_repeat", false}, {"mirostat", "mirostat", true},
  {"mirostat_tau", "mirostat_tau", false}, {"mirostat_eta", "mirostat_eta", false},
};

static int put_sampling_key(hf *h, const json_t *v, const struct sampling_key *k, error *err) {
  const char *to = arena_printf(h->arena, "general.sampling.%s", k->to);
  double x = json_number_value(v);
  if (!json_is_number(v) || fabs(x) > INT32_MAX || (k->whole && !json_is_integer(v)))
    return hf_fail(h, GENERATION, k->from, err, "is not a %s",
                   k->whole ? "whole number of 32 bits" : "number of 32 bits");
  if (k->whole) gguf_head_i32(h->head, to, (int32_t)json_integer_value(v));
  else gguf_head_f32(h->head, to, (float)x);
  return 0;
}

// Tokens that are never drawn. llama.cpp's converter takes them from this file, too, for some classes.
static int put_suppressed(hf *h, const json_t *v, error *err) {
  size_t n = json_array_size(v);
  int32_t *ids = ARENA_ARRAY(h->arena, int32_t, n);
  bool good = json_is_array(v);
  for (size_t i = 0; i < n && good; i++) {
    const json_t *id = json_array_get(v, i);
    json_int_t x = json_integer_value(id);
    good = json_is_integer(id) && x >= 0 && x <= INT32_MAX;
    ids[i] = (int32_t)x;
  }
  if (!good) return hf_fail(h, GENERATION, "suppress_tokens", err, "is no list of token ids");
  if (n) gguf_head_i32s(h->head, "tokenizer.ggml.suppress_tokens", ids, n);
  return 0;
}

static int put_sampling(hf *h, error *err) {
  json_t *said;
  int status = hf_json(h, GENERATION, false, &said, err);
  for (size_t i = 0; said && i < COUNT(sampling_keys) && !status; i++) {
    const json_t *v = json_object_get(said, sampling_keys[i].from);
    if (v && !json_is_null(v)) status = put_sampling_key(h, v, &sampling_keys[i], err);
  }
  const json_t *suppressed = json_object_get(said, "suppress_tokens");
  if (suppressed && !json_is_null(suppressed) && !status) status = put_suppressed(h, suppressed, err);
  json_decref(said);
  return status;
}

// A head that config.json announces has to be there: files without one use the embeddings. Classes with encoders may
// say it for one of their models alone.
static int check_output_tensor(const hf *h, error *err) {
  static const char key[] = "tie_word_embeddings";
  if (h->class->alone || h->class->bare || h->class->seeing || !json_is_false(json_object_get(h->text, key))) return 0;
  for (size_t i = 0; i < h->made.n; i++) if (!strcmp(h->made.at[i].t.name, "output.weight")) return 0;
  return hf_fail(h, "config.json", key, err, "is false, but the folder has no tensor lm_head.weight");
}

// ---- open -----------------------------------------------------------------------------------------------------------

static int read_folder(hf *h, enum hf_type type, error *err) {
  if (hf_json(h, "config.json", true, &h->config, err) || hf_find_class(h, err) || hf_open_weights(h, err) ||
      hf_unpack(h, err) || hf_bind_scales(h, err))
    return -1;
  choose_type(h, type);
  h->head = gguf_head_new(ALIGNMENT);
  put_general(h);
  if (put_sampling(h, err) || hf_put_keys(h, err) || make_tensors(h, err) || check_output_tensor(h, err)) return -1;
  put_blocks_first(h);
  if (place_tensors(h, err)) return -1;
  put_size(h);
  gguf_head_u32(h->head, "general.file_type", h->file_type);
  gguf_head_u32(h->head, "general.quantization_version", 2);
  return hf_put_vocab(h, err);
}

int hf_open(const char *dir, enum hf_type type, hf **out, error *err) {
  size_t n = strlen(dir), limit = 300;                     // a longer path would leave no room for the error text
  struct stat st;
  *out = NULL;
  if (stat(dir, &st) || !S_ISDIR(st.st_mode)) return error_set(err, "%.300s: is not a folder", dir);
  hf *h = xcalloc(1, sizeof *h);
  hf_seen_list seen = {0};
  h->seen = &seen;
  h->arena = arena_new();
  h->dir = arena_strdup(h->arena, dir);
  h->shown = n <= limit ? h->dir : arena_printf(h->arena, "...%s", dir + n - limit);
  int status = hf_check_whole(h, err) || read_folder(h, type, err) || hf_check(h, err) || hf_check_whole(h, err) ||
                   hf_check_unchanged(h, err)
                 ? -1 : 0;
  h->seen = NULL;
  vec_free(&seen);
  if (status) hf_close(h);
  else *out = h;
  return status;
}

void hf_close(hf *h) {
  if (!h) return;
  hf_close_files(h);
  gguf_head_free(h->head);
  str_free(&h->names);
  json_decref(h->text);
  json_decref(h->config);
  vec_free(&h->made);
  vec_free(&h->numbers);
  smap_free(&h->made_by_name);
  arena_free(h->arena);
  free(h);
}

const gguf_head *hf_head(const hf *h) { return h->head; }
size_t hf_n_tensors(const hf *h) { return h->made.n; }

const hf_tensor *hf_tensor_at(const hf *h, size_t i) {
  die_if(i >= h->made.n, "hf: tensor %zu of %zu", i, h->made.n);
  return &h->made.at[i].t;
}

// ---- rows -----------------------------------------------------------------------------------------------------------

// Gathers elements that are not contiguous: a column of a matrix, or every second element of a row.
static const unsigned char *gather_elements(const hf_made *m, const hf_source *s, int64_t r, void *scratch) {
  uint64_t bytes = m->t.from->bytes;
  int64_t n = m->t.ne[0], rows = m->t.ne[1], columns = m->stored ? m->stored : (m->turned ? rows : n) * m->step;
  for (int64_t i = 0; i < n; i++) {
    int64_t row = m->turned ? hf_ordered(&m->order, r / rows * n + i) : r;
    int64_t column = (m->turned ? r % rows : i) * m->step + m->first;
    if (s->scale) hf_scaled(s, row, column, 1, (float *)scratch + i);
    else memcpy((char *)scratch + bytes * (uint64_t)i, s->data + bytes * (uint64_t)(row * columns + column), bytes);
  }
  return scratch;
}

static const unsigned char *row_of_source(const hf_made *m, const hf_source *s, int64_t row, void *scratch) {
  if (s->scale) hf_scaled(s, row, 0, m->t.ne[0], scratch);
  else if (s->packed) hf_packed_row(s->packed, row, scratch);
  else return s->data + (uint64_t)m->t.from->bytes * (uint64_t)m->t.ne[0] * (uint64_t)row;
  return scratch;
}

// A row in the folder's format; scratch: room for two rows.
static const unsigned char *raw_row(const hf_made *m, int64_t r, unsigned char *scratch) {
  uint64_t bytes = m->t.from->bytes;
  if (r < m->ahead || (m->padded && r >= m->padded)) return memset(scratch, 0, bytes * (uint64_t)m->t.ne[0]);
  r -= m->ahead;
  const hf_source *s = m->parts[r / m->rows];
  if (m->turned || m->step != 1) return gather_elements(m, s, r % m->rows, scratch);
  const unsigned char *row = row_of_source(m, s, hf_ordered(&m->order, r % m->rows), scratch);
  if (!m->columns.n) return row;
  scratch += bytes * (uint64_t)m->t.ne[0];
  for (int64_t i = 0; i < m->t.ne[0]; i++)
    memcpy(scratch + bytes * (uint64_t)i, row + bytes * (uint64_t)hf_ordered(&m->columns, i), bytes);
  return scratch;
}

// Computes in the precision of the stored type; bf16 is computed as f32, as everywhere.
static void round_values(const hf_made *m, float *x) {
  unsigned char half[2];
  const struct format *f16 = format_by_id(FORMAT_F16);
  for (int64_t i = 0; i < m->t.ne[0] && m->t.from == f16 && !m->wide; i++) {
    quantise_row(f16, &x[i], NULL, 1, half);
    floats_from(f16, half, 1, &x[i]);
  }
}

// Divides a row by its length, which is summed in doubles; a row of zeros stays.
static void divide_by_length(float *x, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
  double length = sum > 0 ? sqrt(sum) : 1;
  for (int64_t i = 0; i < n; i++) x[i] = (float)((double)x[i] / length);
}

static void change_values(const hf_made *m, int64_t r, float *x) {
  const hf_times *times = m->times;
  if (m->unit) divide_by_length(x, m->t.ne[0]);
  for (int64_t i = 0; i < m->t.ne[0] && m->by_columns; i++) x[i] /= m->by_columns[i];
  while (times && r >= times->end) times++;
  for (size_t k = 0; times && k < 2; k++) {
    for (int64_t i = 0; i < m->t.ne[0]; i++) x[i] *= times->by[k];
    round_values(m, x);
  }
  if (times) return;
  for (int64_t i = 0; i < m->t.ne[0]; i++) {
    float power = m->minus_exp || m->exp ? (float)exp((double)x[i]) : 0;
    x[i] = m->minus_exp ? -power : m->exp ? power : x[i] + m->plus;
  }
  round_values(m, x);
}

static int make_row(const hf *h, const hf_made *m, int64_t r, float *x, unsigned char *scratch, unsigned char *out,
                    error *err) {
  int64_t n = m->t.ne[0];
  if (m->t.from->block > 1) {
    hf_block_row(m->parts[r / m->rows], hf_ordered(&m->order, r % m->rows), &m->columns, out);
    return 0;
  }
  if (m->values) memcpy(x, m->values, (size_t)n * sizeof *x);
  else {
    const unsigned char *raw = raw_row(m, r, scratch);
    if (m->t.from == m->t.to && !is_changed(m)) {
      memcpy(out, raw, m->t.from->bytes * (size_t)n);
      return 0;
    }
    floats_from(m->t.from, raw, n, x);
    if (is_changed(m)) change_values(m, r, x);
  }
  if (m->t.to->id == FORMAT_F32) {
    memcpy(out, x, (size_t)n * sizeof *x);
    return 0;
  }
  for (int64_t i = 0; i < n; i++)
    if (!isfinite(x[i]))
      return error_set(err, "%s: tensor '%s': row %" PRId64 " has a value that is no number", h->shown, m->t.name, r);
  if (quantise_row(m->t.to, x, NULL, n, out)) return 0;
  return error_set(err, "%s: tensor '%s': row %" PRId64 " has values that are too large for %s", h->shown, m->t.name, r,
                   m->t.to->name);
}

int hf_rows(const hf *h, size_t i, int64_t first, int64_t n, unsigned char *out, error *err) {
  const hf_made *m = &h->made.at[i];
  uint64_t row;
  die_if(i >= h->made.n || !format_row_bytes(m->t.to, (uint64_t)m->t.ne[0], &row), "hf: no such rows");
  float *x = xmalloc((size_t)m->t.ne[0] * sizeof *x);
  unsigned char *scratch = m->values ? NULL : xmalloc(2 * (size_t)m->t.ne[0] * m->t.from->bytes);
  int status = 0;
  for (int64_t r = 0; r < n && !status; r++)
    status = make_row(h, m, first + r, x, scratch, out + row * (uint64_t)r, err);
  free(x);
  free(scratch);
  return status;
}

// ---- the whole file in memory ---------------------------------------------------------------------------------------

void hf_image_free(unsigned char *image, size_t n) {
  if (!image) return;
  inuse_drop(image);
  munmap(image, n);
}

static int fill_image(const hf *h, const str *head, unsigned char *image, error *err) {
  uint64_t at = head->n;
  memcpy(image, head->at, head->n);
  for (size_t i = 0; i < h->made.n; i++) {
    const hf_tensor *t = &h->made.at[i].t;
    if (hf_rows(h, i, 0, t->ne[1] * t->ne[2] * t->ne[3], image + at, err)) return -1;
    at += t->nbytes + gguf_head_padding(h->head, t->nbytes);
  }
  return hf_check(h, err);
}

static stamp stamp_of_folder(const hf *h, size_t n) {
  stamp s = {.size = n};
  for (size_t i = 0; i < h->files.n; i++) s.inode = hash_bytes(&h->files.at[i].stamp, sizeof(stamp), s.inode);
  return s;
}

int hf_image(const char *dir, unsigned char **out, size_t *n, stamp *of, char **names, error *err) {
  hf *h;
  str head = {0};
  *out = NULL;
  if (hf_open(dir, HF_STORED, &h, err)) return -1;
  gguf_head_bytes(h->head, &head);
  *n = head.n + gguf_head_data(h->head);
  unsigned char *image = mmap(NULL, *n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  int status = image == MAP_FAILED ? error_set(err, "%s: no memory for its %zu MB", h->shown, *n >> 20)
                                   : fill_image(h, &head, image, err);
  if (image != MAP_FAILED && status) munmap(image, *n);
  if (!status) {
    mprotect(image, *n, PROT_READ);
    *out = image;
    inuse_move(h, image);
    *of = stamp_of_folder(h, *n);
    *names = hf_key_names(h);
  }
  str_free(&head);
  hf_close(h);
  return status;
}
