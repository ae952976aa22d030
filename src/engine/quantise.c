// weft_quantize: converts the tensors of a file to other formats. It first decides the format of each tensor
// (model/quant_recipe.h), then makes the headers of the new files, then reads tensors, converts them to floats,
// quantises them on all threads and writes them, one slab of rows at a time. A run that is stopped or runs out of disk
// space keeps complete tensors; the same command resumes. Look next: quantise_read.c (quantised tensors back to
// floats).
#define _GNU_SOURCE
#define PCRE2_CODE_UNIT_WIDTH 8
#include "engine/quantise.h"
#include <errno.h>
#include <math.h>
#include <pcre2.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/newfile.h"
#include "base/sha256.h"
#include "device/team.h"
#include "engine/rows_version.h"
#include "engine/sized.h"
#include "model/gguf_write.h"
#include "model/imatrix.h"
#include "model/quant_recipe.h"
#include "model/quantise.h"
#include "weft.h"

enum {
  SLAB = 1 << 22 /* values in memory at once */,
  PIECE = 1 << 14 /* values that a thread takes at once, at least */
};

typedef struct target { gguf_head *head; newfile *file; char *path; } target;

typedef struct job {
  const weft_quantize_options *o;
  gguf *in;
  quant_recipe_wish wish;
  imatrix weights;                         // mem NULL: none
  size_t n;                                // number of tensors, in the order of writing:
  const gguf_tensor **tensors;
  quant_recipe_choice *choices;
  uint64_t *bytes;                         // size of each in its new format
  target *targets;
  size_t n_targets;
  team *team;
  reader *reader;
  float *values;                           // a slab of the input, for block formats
  unsigned char *made;                     // a slab of the output
  double done, all;                        // values
  bool leave;                              // keep complete tensors for the next run
  weft_quantize_result *r;
} job;

// ---- what is asked for ----------------------------------------------------------------------------------------------

static const struct format *writable(const char *name, const char *what, error *err) {
  const struct format *f = format_by_name(name);
  if (f && quantise_can(f)) return f;
  error_set(err, f ? "%s: tensors cannot be written as %s" : "%s: '%.60s' is not a format of tensors", what,
            f ? f->name : name);
  return NULL;
}

static int read_wish(job *j, error *err) {
  const weft_quantize_options *o = j->o;
  quant_recipe_wish *w = &j->wish;
  w->pure = o->pure;
  w->leave_output = o->leave_output;
  if (o->type && !quant_recipe_find(o->type, &w->of))
    return error_set(err, "'%.60s' is not a type that can be written", o->type);
  if (o->output_type && !(w->output = writable(o->output_type, "output.weight", err))) return -1;
  return o->embedding_type && !(w->embedding = writable(o->embedding_type, "token_embd.weight", err)) ? -1 : 0;
}

static bool found_in(const char *name, const char *const *parts, size_t n) {
  for (size_t i = 0; i < n; i++) if (strstr(name, parts[i])) return true;
  return false;
}

// Reads the importance weights, without excluded tensors.
static int read_weights(job *j, error *err) {
  const weft_quantize_options *o = j->o;
  imatrix *m = &j->weights;
  size_t n = 0;
  if (!o->imatrix) return 0;
  if (imatrix_open(o->imatrix, m, err)) return -1;
  for (size_t i = 0; i < m->n; i++) {
    const char *name = m->at[i].name;
    if (o->n_include ? found_in(name, o->include, o->n_include) : !found_in(name, o->exclude, o->n_exclude))
      m->at[n++] = m->at[i];
  }
  j->wish.weighted = n > 0;
  j->r->n_weights = m->n = n;
  return 0;
}

// ---- which tensors become what --------------------------------------------------------------------------------------

static int layer_in(const char *name) {
  int layer = -1;
  return sscanf(name, "blk.%d.", &layer) == 1 ? layer : -1;
}

// By layer, tensors without a layer first, and within a layer by name; if the file is split, in the order of the input
// files.
static int by_layer(const void *a, const void *b) {
  const gguf_tensor *x = *(const gguf_tensor *const *)a, *y = *(const gguf_tensor *const *)b;
  int lx = layer_in(x->name), ly = layer_in(y->name);
  return lx != ly ? (lx > ly) - (lx < ly) : strcmp(x->name, y->name);
}
static int by_offset(const void *a, const void *b) {
  const gguf_tensor *x = *(const gguf_tensor *const *)a, *y = *(const gguf_tensor *const *)b;
  return x->shard != y->shard ? (x->shard > y->shard) - (x->shard < y->shard)
                              : (x->offset > y->offset) - (x->offset < y->offset);
}

// Sets the format of each tensor from the first matching expression.
static int match_names(const job *j, const char *asked, const struct format **manual, error *err) {
  const char *equals = strrchr(asked, '=');
  int code;
  PCRE2_SIZE at;
  if (!equals || equals == asked) return error_set(err, "'%.100s' is not of the form expression=format", asked);
  const struct format *f = writable(equals + 1, "a tensor", err);
  if (!f) return -1;
  pcre2_code *re =
    pcre2_compile((PCRE2_SPTR)asked, (PCRE2_SIZE)(equals - asked), PCRE2_UTF | PCRE2_CASELESS, &code, &at, NULL);
  if (!re) {
    PCRE2_UCHAR why[128] = "";
    pcre2_get_error_message(code, why, sizeof why);
    return error_set(err, "'%.100s': %s at character %zu", asked, (const char *)why, (size_t)at + 1);
  }
  pcre2_match_data *m = pcre2_match_data_create_from_pattern(re, NULL);
  int status = 0;
  for (size_t i = 0; i < j->n && !status; i++) {
    const char *name = j->tensors[i]->name;
    int found = manual[i] ? PCRE2_ERROR_NOMATCH
                          : pcre2_match(re, (PCRE2_SPTR)name, PCRE2_ZERO_TERMINATED, 0, 0, m, NULL);
    if (found >= 0) manual[i] = f;
    else if (found != PCRE2_ERROR_NOMATCH) {
      PCRE2_UCHAR why[128] = "";
      pcre2_get_error_message(found, why, sizeof why);
      status = error_set(err, "'%.100s', at the name %.100s: %s", asked, name, (const char *)why);
    }
  }
  pcre2_match_data_free(m);
  pcre2_code_free(re);
  return status;
}

// Can this tensor have the chosen format?
static int check_choice(const job *j, const gguf_tensor *t, const quant_recipe_choice *c, error *err) {
  if (c->format == t->format) return 0;
  if (!t->format->computes)
    return gguf_fail(j->in, NULL, err, "tensor '%s' is %s, which cannot be converted", t->name, t->format->name);
  if (!quantise_can(c->format))
    return gguf_fail(j->in, NULL, err, "tensor '%s' would be %s, which cannot be written", t->name, c->format->name);
  if (t->format->block > 1 && !j->o->allow_requantize)
    return gguf_fail(
      j->in, NULL, err,
      "tensor '%s' is quantised already (%s): take the original file, or --allow-requantize, which loses more", t->name,
      t->format->name);
  const imatrix_entry *w = j->weights.mem ? imatrix_find(&j->weights, t->name) : NULL;
  if (w && w->n != (uint64_t)t->ne[0] * (uint64_t)t->ne[2] && strcmp(t->name, "token_embd.weight"))
    return error_set(err, "%s: %zu weights for tensor '%s', which has %lld inputs: they are those of another model",
                     j->o->imatrix, w->n, t->name, (long long)(t->ne[0] * t->ne[2]));
  if (c->needs_weights && !w && !j->o->dry_run)
    return gguf_fail(j->in, NULL, err,
                     "tensor '%s' as %s is worthless without importance weights: give them with --imatrix", t->name,
                     c->format->name);
  return 0;
}

static int choose_formats(job *j, error *err) {
  const weft_quantize_options *o = j->o;
  const struct format **manual = xcalloc(j->n + 1, sizeof *manual);
  int status = 0;
  j->tensors = xcalloc(j->n + 1, sizeof *j->tensors);
  j->choices = xcalloc(j->n + 1, sizeof *j->choices);
  for (size_t i = 0; i < j->n; i++) j->tensors[i] = gguf_tensor_at(j->in, i);
  qsort(j->tensors, j->n, sizeof *j->tensors, o->keep_split ? by_offset : by_layer);
  for (size_t i = 0; i < o->n_tensor_types && !status; i++) status = match_names(j, o->tensor_types[i], manual, err);
  if (!status && o->type) status = quant_recipe_choose(j->in, &j->wish, j->tensors, manual, j->n, j->choices, err);
  for (size_t i = 0; i < j->n && !status; i++) {
    if (!o->type) j->choices[i].format = j->tensors[i]->format;
    status = check_choice(j, j->tensors[i], &j->choices[i], err);
  }
  free(manual);
  return status;
}

// ---- the heads of the new files -------------------------------------------------------------------------------------

// Keys that say how data lies in the new files.
static bool is_of_layout(const char *key) {
  return !strcmp(key, "general.alignment") || !strncmp(key, "split.", strlen("split."));
}

// "key=int:1": all integers are unsigned, as in llama.cpp.
static int override(gguf_head *h, const char *asked, error *err) {
  size_t n;
  gguf_value v;
  if (gguf_parse_setting(asked, &n, &v, err)) return -1;
  char *key = xstrdup(asked);
  int status = 0;
  key[n] = 0;
  if (is_of_layout(key)) {
    status = error_set(err, "'%.100s': this key follows from how the file is written", asked);
    free(key);
    return status;
  }
  switch (v.type) {
  case GGUF_INT64:
    if (v.i > UINT32_MAX || v.i < -(int64_t)UINT32_MAX)
      status = error_set(err, "'%.100s': '%.60s' is no such value", asked, strchr(asked + n, ':') + 1);
    else gguf_head_u32(h, key, (uint32_t)(v.i < 0 ? -v.i : v.i));
    break;
  case GGUF_FLOAT64: gguf_head_f32(h, key, (float)v.f); break;
  case GGUF_BOOL: gguf_head_bool(h, key, v.b); break;
  default: gguf_head_str(h, key, v.s.at, v.s.n);
  }
  free(key);
  return status;
}

static void add_origin(const job *j, gguf_head *h) {
  const imatrix *m = &j->weights;
  gguf_head_str(h, "quantize.imatrix.file", j->o->imatrix, strnlen(j->o->imatrix, 127));
  if (m->dataset) gguf_head_str(h, "quantize.imatrix.dataset", m->dataset, strnlen(m->dataset, 127));
  gguf_head_u32(h, "quantize.imatrix.entries_count", (uint32_t)m->n);
  if (m->chunks > 0) gguf_head_u32(h, "quantize.imatrix.chunks_count", (uint32_t)m->chunks);
}

// Adds the model's metadata, with changes.
static int add_metadata(const job *j, gguf_head *h, error *err) {
  uint32_t file_type = j->wish.of.file_type;
  for (size_t i = 0; i < gguf_n_kv(j->in); i++) gguf_head_copy(h, gguf_kv_at(j->in, i));
  if (!j->o->type && gguf_u32_opt(j->in, "general.file_type", 0, &file_type, err)) return -1;
  gguf_head_u32(h, "general.quantization_version", 2);
  gguf_head_u32(h, "general.file_type", file_type);
  gguf_head_remove(h, "split.no");
  gguf_head_remove(h, "split.count");
  gguf_head_remove(h, "split.tensors.count");
  for (size_t i = 0; i < j->o->n_overrides; i++) if (override(h, j->o->overrides[i], err)) return -1;
  if (j->weights.n) add_origin(j, h);
  return 0;
}

static int make_heads(job *j, const char *out, error *err) {
  bool split = j->o->keep_split && gguf_n_shards(j->in) > 1;
  uint32_t alignment = gguf_shard_at(j->in, 0)->alignment;
  j->n_targets = split ? gguf_n_shards(j->in) : 1;
  j->targets = xcalloc(j->n_targets, sizeof *j->targets);
  j->bytes = xcalloc(j->n + 1, sizeof *j->bytes);
  for (size_t i = 0; i < j->n_targets; i++) {
    target *t = &j->targets[i];
    str path = {0};
    size_t len = strlen(out);
    if (split) {
      if (len > 5 && !strcmp(out + len - 5, ".gguf")) len -= 5;
      str_addf(&path, "%.*s-%05zu-of-%05zu.gguf", (int)len, out, i + 1, j->n_targets);
    } else str_add(&path, out);
    t->path = path.at;
    t->head = gguf_head_new(alignment);
    if (!i && add_metadata(j, t->head, err)) return -1;
    if (!split) continue;
    if (i && alignment != 32) gguf_head_u32(t->head, "general.alignment", alignment);
    gguf_head_u16(t->head, "split.no", (uint16_t)i);
    gguf_head_u16(t->head, "split.count", (uint16_t)j->n_targets);
    gguf_head_i32(t->head, "split.tensors.count", (int32_t)j->n);
  }
  for (size_t i = 0; i < j->n; i++) {
    const gguf_tensor *t = j->tensors[i];
    if (gguf_head_tensor(j->targets[split ? t->shard : 0].head, t->name, t->n_dims, t->ne, j->choices[i].format,
                         &j->bytes[i], err))
      return -1;
    j->all += (double)t->ne[0] * (double)t->ne[1] * (double)t->ne[2] * (double)t->ne[3];
  }
  return 0;
}

// A hash of everything that determines the new files: this program, the input files, the weights, and the headers.
static void job_identity(const job *j, const str *heads, char hex[65]) {
  sha256 s;
  sha256_begin(&s);
  sha256_add(&s, ROWS_VERSION, strlen(ROWS_VERSION));
  for (size_t i = 0; i < gguf_n_shards(j->in); i++)
    sha256_add(&s, &gguf_shard_at(j->in, i)->stamp, sizeof(stamp));
  for (size_t i = 0; i < j->weights.n; i++) {
    const imatrix_entry *w = &j->weights.at[i];
    sha256_add(&s, w->name, strlen(w->name) + 1);
    sha256_add(&s, w->weights, w->n * sizeof *w->weights);
  }
  for (size_t i = 0; i < j->n_targets; i++) sha256_add(&s, str_c(&heads[i]), heads[i].n);
  sha256_end(&s, hex);
}

static int open_target(target *t, const char *what, const str *head, error *err) {
  if (newfile_resume(t->path, what, &t->file, err)) return -1;
  if (newfile_kept(t->file, head->n)) return 0;
  if (!newfile_add(t->file, head->at, head->n, err) && !newfile_piece(t->file, err)) return 0;
  newfile_discard(t->file);
  t->file = NULL;
  return -1;
}

static int open_files(job *j, error *err) {
  str *heads = xcalloc(j->n_targets, sizeof *heads);
  char what[65];
  int status = 0;
  for (size_t i = 0; i < j->n_targets; i++) gguf_head_bytes(j->targets[i].head, &heads[i]);
  job_identity(j, heads, what);
  for (size_t i = 0; i < j->n_targets && !status; i++) status = open_target(&j->targets[i], what, &heads[i], err);
  for (size_t i = 0; i < j->n_targets; i++) str_free(&heads[i]);
  free(heads);
  return status;
}

// ---- the tensors ----------------------------------------------------------------------------------------------------

// A slab of rows, with its source and destination.
typedef struct slab {
  const struct format *from, *to;
  const unsigned char *raw;                // rows in the file's format
  const float *values;                     // or as floats; NULL: use raw
  const float *weights;                    // importance weights of the tensor's matrices; NULL: none
  unsigned char *out;
  int64_t first, rows, cols, per_matrix, matrices;
  uint64_t row_from, row_to;
  _Atomic int64_t next;
  _Atomic int64_t bad, large;              // a row with a non-finite value; one whose scale is too large; -1: none
} slab;

static bool all_finite(const float *x, int64_t n) {
  for (int64_t i = 0; i < n; i++) if (!isfinite(x[i])) return false;
  return true;
}

static void quantise_piece(void *ctx, int thread, int n_threads) {
  slab *s = ctx;
  int64_t step = s->cols < PIECE ? PIECE / s->cols : 1, at;
  float *own = s->values ? NULL : xmalloc((size_t)s->cols * sizeof *own);
  (void)thread; (void)n_threads;
  while ((at = atomic_fetch_add(&s->next, step)) < s->rows) {
    for (int64_t r = at; r < at + step && r < s->rows; r++) {
      const float *x = s->values ? s->values + r * s->cols : own;
      const float *w = s->weights ? s->weights + (s->first + r) / s->per_matrix % s->matrices * s->cols : NULL;
      if (!s->values) floats_from(s->from, s->raw + (uint64_t)r * s->row_from, s->cols, own);
      if (!all_finite(x, s->cols)) atomic_store(&s->bad, r);
      else if (!quantise_row(s->to, x, w, s->cols, s->out + (uint64_t)r * s->row_to)) atomic_store(&s->large, r);
    }
  }
  free(own);
}

static bool worth_keeping(const job *j) { return j->r->n_done && newfile_part(j->targets[0].file); }

// A full disk keeps complete tensors; other errors would recur.
static int unwritten(job *j) {
  j->leave = worth_keeping(j);
  return -1;
}

static bool go_on(job *j, double values) {
  j->done += values;
  if (j->o->progress && !j->o->progress(j->o->ctx, j->all > 0 ? j->done / j->all : 1)) j->r->stopped = true;
  return !j->r->stopped;
}

// Rows that are stored together are converted together.
static int64_t slab_rows(const gguf_tensor *t) {
  int64_t rows = max_i64(1, min_i64(t->ne[1] * t->ne[2] * t->ne[3], SLAB / t->ne[0])), together = t->format->rows;
  return (rows + together - 1) / together * together;
}

static int convert_tensor(job *j, const gguf_tensor *t, const struct format *to, newfile *file, error *err) {
  const imatrix_entry *w = j->weights.mem ? imatrix_find(&j->weights, t->name) : NULL;
  int64_t rows = t->ne[1] * t->ne[2] * t->ne[3], most = slab_rows(t);
  slab s = {.from = t->format,
            .to = to,
            .out = j->made,
            .cols = t->ne[0],
            .per_matrix = t->ne[1],
            .matrices = t->ne[2],
            .bad = -1,
            .large = -1};
  bool fits = w && w->n == (uint64_t)t->ne[0] * (uint64_t)t->ne[2];
  s.weights = fits ? w->weights : NULL;
  // which files never have
  j->r->n_missed += j->weights.n && !fits && strcmp(t->name, "token_embd.weight") && strcmp(t->name, "output.weight");
  format_row_bytes(t->format, (uint64_t)s.cols, &s.row_from);
  format_row_bytes(to, (uint64_t)s.cols, &s.row_to);
  for (; s.first < rows; s.first += s.rows) {
    s.rows = min_i64(most, rows - s.first);
    s.raw = (const unsigned char *)t->data + (uint64_t)s.first * s.row_from;
    s.values = t->format->block > 1 ? j->values : NULL;
    s.next = 0;
    if (s.values && reader_floats(j->reader, t->format, s.raw, most, s.rows, s.cols, j->values, err)) return -1;
    team_run(j->team, quantise_piece, &s);
    if (gguf_check_size(j->in, err)) return -1;
    if (s.bad >= 0)
      return gguf_fail(j->in, NULL, err, "tensor '%s': row %lld holds a value that is no number", t->name,
                       (long long)(s.first + s.bad));
    if (s.large >= 0)
      return gguf_fail(j->in, NULL, err, "tensor '%s': row %lld has values that are too large for %s", t->name,
                       (long long)(s.first + s.large), to->name);
    if (newfile_add(file, j->made, (size_t)s.rows * s.row_to, err)) return unwritten(j);
    if (!go_on(j, (double)s.rows * (double)s.cols)) return 0;
  }
  return 0;
}

static int copy_tensor(job *j, const gguf_tensor *t, newfile *file, error *err) {
  enum { STEP = 16 << 20 };
  double values = (double)t->ne[0] * (double)t->ne[1] * (double)t->ne[2] * (double)t->ne[3];
  for (size_t at = 0, n; at < t->nbytes; at += n) {
    n = t->nbytes - at < STEP ? t->nbytes - at : STEP;
    if (newfile_add(file, (const unsigned char *)t->data + at, n, err)) return unwritten(j);
    if (gguf_check_size(j->in, err)) return -1;
    if (!go_on(j, values * ((double)n / (double)t->nbytes))) return 0;
  }
  return 0;
}

static void tell_kept(job *j, size_t i, bool kept) {
  const gguf_tensor *t = j->tensors[i];
  const quant_recipe_choice *c = &j->choices[i];
  weft_quantized q = {.number = i + 1,
                      .count = j->n,
                      .name = t->name,
                      .from = t->format->name,
                      .to = c->format->name,
                      .n_dims = t->n_dims,
                      .shape = {t->ne[0], t->ne[1], t->ne[2], t->ne[3]},
                      .bytes_from = t->nbytes,
                      .bytes_to = j->bytes[i],
                      .misfit = c->misfit,
                      .needs_weights = c->needs_weights,
                      .kept = kept};
  j->r->bytes_from += t->nbytes;
  j->r->bytes_to += j->bytes[i];
  j->r->misfits += c->misfit;
  j->r->needs_weights |= c->needs_weights;
  if (j->o->tensor) j->o->tensor(j->o->ctx, &q);
}

// Memory for the largest slab.
static int reserve_slab(job *j, error *err) {
  uint64_t values = 0, made = 0, row;
  for (size_t i = 0; i < j->n; i++) {
    const gguf_tensor *t = j->tensors[i];
    const struct format *to = j->choices[i].format;
    if (to == t->format) continue;
    uint64_t rows = (uint64_t)slab_rows(t), n = rows * (uint64_t)t->ne[0];
    format_row_bytes(to, (uint64_t)t->ne[0], &row);
    if (row * rows > made) made = row * rows;
    if (t->format->block > 1 && n > values) values = n;
  }
  j->made = malloc(made + 1);
  j->values = malloc(values * sizeof *j->values + 1);
  if (!j->made || !j->values)
    return error_set(err, "no memory for %llu bytes of one row",
                     (unsigned long long)(made + values * sizeof *j->values));
  j->team = team_new(j->o->threads, err);
  if (!j->team) return -1;
  j->reader = reader_new(team_size(j->team));
  return 0;
}

static int write_tensor(job *j, size_t i, target *to, error *err) {
  static const char zeros[4096];
  const gguf_tensor *t = j->tensors[i];
  const struct format *f = j->choices[i].format;
  if (t->format == f ? copy_tensor(j, t, to->file, err) : convert_tensor(j, t, f, to->file, err)) return -1;
  if (j->r->stopped) return 0;
  for (uint64_t left = gguf_head_padding(to->head, j->bytes[i]), n; left; left -= n) {
    n = left < sizeof zeros ? left : sizeof zeros;
    if (newfile_add(to->file, zeros, n, err)) return unwritten(j);
  }
  return newfile_piece(to->file, err) ? unwritten(j) : 0;
}

static int write_tensors(job *j, error *err) {
  j->leave = false;
  for (size_t i = 0; i < j->n && !j->r->stopped; i++) {
    const gguf_tensor *t = j->tensors[i];
    target *to = &j->targets[j->n_targets > 1 ? t->shard : 0];
    bool kept = newfile_kept(to->file, j->bytes[i] + gguf_head_padding(to->head, j->bytes[i]));
    tell_kept(j, i, kept);
    if (kept) go_on(j, (double)t->ne[0] * (double)t->ne[1] * (double)t->ne[2] * (double)t->ne[3]);
    else if (write_tensor(j, i, to, err)) return -1;
    if (kept || !j->r->stopped) j->r->n_done++;
    j->r->n_kept += kept;
  }
  j->leave = worth_keeping(j);
  return 0;
}

// ---- all of it ------------------------------------------------------------------------------------------------------

static int commit(job *j, error *err) {
  int status = 0;
  for (size_t i = 0; i < j->n_targets && !status; i++) {
    status = newfile_commit(j->targets[i].file, err);
    j->targets[i].file = NULL;
  }
  return status;
}

static int quantise_all(job *j, const char *in, const char *out, error *err) {
  if (read_wish(j, err) || gguf_open(in, &j->in, err)) return -1;
  j->n = gguf_n_tensors(j->in);
  j->r->n_params = gguf_n_params(j->in);
  if (!j->n) return gguf_fail(j->in, NULL, err, "has no tensors");
  if (read_weights(j, err) || choose_formats(j, err) || make_heads(j, out ? out : "", err)) return -1;
  if (j->o->dry_run) {
    for (size_t i = 0; i < j->n; i++) tell_kept(j, i, false);
    return 0;
  }
  j->leave = true;
  if (reserve_slab(j, err) || open_files(j, err) || write_tensors(j, err) || j->r->stopped)
    return j->r->stopped ? 0 : -1;
  return commit(j, err);
}

static void end_job(job *j) {
  for (size_t i = 0; i < j->n_targets; i++) {
    if (j->leave) newfile_leave(j->targets[i].file);
    else newfile_discard(j->targets[i].file);
    gguf_head_free(j->targets[i].head);
    free(j->targets[i].path);
  }
  reader_free(j->reader);
  team_free(j->team);
  if (j->weights.mem) imatrix_close(&j->weights);
  free(j->targets); free(j->tensors); free(j->choices); free(j->bytes); free(j->made); free(j->values);
  gguf_close(j->in);
}

int weft_quantize(const char *in, const char *out, const weft_quantize_options *opt, weft_quantize_result *result,
                  weft_error *err) {
  weft_quantize_options o = {0};
  weft_quantize_result unseen;
  error e = {0};
  if (TAKE_OPTIONS(&o, weft_quantize_options, ctx, opt, err)) return -1;
  job j = {.o = &o, .r = result ? result : &unseen};
  *j.r = (weft_quantize_result){.stopped = false};
  int status = quantise_all(&j, in, out, &e);
  end_job(&j);
  if (!j.leave) j.r->n_done = 0;
  if (status && err) memcpy(err->text, e.text, sizeof err->text);
  return status;
}

const char *weft_quantize_type(size_t i) {
  quant_recipe m;
  return quant_recipe_at(i, &m) ? format_recipe_name(m.file_type) : NULL;
}

const char *weft_quantize_find(const char *name) {
  quant_recipe m;
  return quant_recipe_find(name, &m) ? format_recipe_name(m.file_type) : NULL;
}
