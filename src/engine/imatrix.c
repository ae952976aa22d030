// weft_imatrix: computes an importance matrix while a model reads texts, and writes it in llama.cpp's format
// (model/imatrix.h reads it): for a tensor NAME the sums of squares of its inputs as NAME.in_sum2, and the number of
// tokens as NAME.counts; for experts separately.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/newfile.h"
#include "engine/engine.h"
#include "model/gguf_write.h"
#include "weft.h"

struct weft_imatrix {
  weft_model *m;
  const gguf *g;
  double **sums, **counts;                 // of each tensor; NULL: it has no input here
  uint32_t chunks;
};

weft_imatrix *weft_imatrix_new(weft_model *m) {
  weft_imatrix *w = xcalloc(1, sizeof *w);
  w->m = m;
  w->g = engine_gguf(weft_model_engine(m));
  w->sums = xcalloc(gguf_n_tensors(w->g) + 1, sizeof *w->sums);
  w->counts = xcalloc(gguf_n_tensors(w->g) + 1, sizeof *w->counts);
  return w;
}

void weft_imatrix_free(weft_imatrix *w) {
  if (!w) return;
  for (size_t i = 0; i < gguf_n_tensors(w->g); i++) { free(w->sums[i]); free(w->counts[i]); }
  free(w->sums); free(w->counts);
  free(w);
}

static void add_to_sums(void *ctx, size_t i, const float *sums, const float *counts, size_t tokens) {
  weft_imatrix *w = ctx;
  const gguf_tensor *t = gguf_tensor_at(w->g, i);
  size_t n = (size_t)t->ne[0] * (size_t)t->ne[2], n_counts = (size_t)t->ne[2];
  if (!w->sums[i]) {
    w->sums[i] = xcalloc(n, sizeof **w->sums);
    w->counts[i] = xcalloc(n_counts, sizeof **w->counts);
  }
  for (size_t k = 0; k < n; k++) w->sums[i][k] += sums[k];
  for (size_t k = 0; k < n_counts; k++) w->counts[i][k] += counts ? counts[k] : (double)tokens;
}

int weft_imatrix_add(weft_imatrix *w, const int32_t *ids, size_t n, weft_error *err) {
  if (weft_model_sums(w->m, ids, n, add_to_sums, w, err)) return -1;
  w->chunks++;
  return 0;
}

// ---- the file -------------------------------------------------------------------------------------------------------

static int add_head(gguf_head *h, const gguf_tensor *t, error *err) {
  char name[GGUF_MAX_NAME + 16];
  uint64_t bytes;
  int64_t sums[2] = {t->ne[0], t->ne[2]}, counts[2] = {1, t->ne[2]};
  const struct format *f = format_by_id(FORMAT_F32);
  snprintf(name, sizeof name, "%s.counts", t->name);
  if (strlen(name) > GGUF_MAX_NAME)
    return error_set(err, "tensor '%s': its name leaves no room for '.in_sum2'", t->name);
  if (gguf_head_tensor(h, name, 2, counts, f, &bytes, err)) return -1;
  snprintf(name, sizeof name, "%s.in_sum2", t->name);
  if (strlen(name) > GGUF_MAX_NAME)
    return error_set(err, "tensor '%s': its name leaves no room for '.in_sum2'", t->name);
  return gguf_head_tensor(h, name, 2, sums, f, &bytes, err);
}

static int add_floats(newfile *f, const gguf_head *h, const double *x, size_t n, error *err) {
  static const char zeros[64];
  for (size_t i = 0; i < n; i++) {
    float v = (float)x[i];
    if (newfile_add(f, &v, sizeof v, err)) return -1;
  }
  return newfile_add(f, zeros, (size_t)gguf_head_padding(h, n * sizeof(float)), err);
}

static int write_file(const weft_imatrix *w, newfile *f, const gguf_head *h, const gguf_tensor *const *order, size_t n,
                      error *err) {
  str head = {0};
  gguf_head_bytes(h, &head);
  int status = newfile_add(f, head.at, head.n, err);
  str_free(&head);
  for (size_t i = 0; i < n && !status; i++) {
    const gguf_tensor *t = order[i];
    size_t at = gguf_tensor_index(w->g, t);
    status = add_floats(f, h, w->counts[at], (size_t)t->ne[2], err) ||
                 add_floats(f, h, w->sums[at], (size_t)t->ne[0] * (size_t)t->ne[2], err)
               ? -1
               : 0;
  }
  return status;
}

// Checks that values are finite: a damaged weight shows here.
static int check_sums(const weft_imatrix *w, const gguf_tensor *t, error *err) {
  size_t at = gguf_tensor_index(w->g, t);
  for (int64_t k = 0; k < t->ne[0] * t->ne[2]; k++)
    if (!isfinite((float)w->sums[at][k]))
      return gguf_fail(w->g, NULL, err, "tensor '%s': input %lld was no number, or too large: the weights are damaged",
                       t->name, (long long)(k % t->ne[0]));
  return 0;
}

int weft_imatrix_write(const weft_imatrix *w, const char *path, const char *dataset, int chunk, weft_error *err) {
  error e = {0};
  newfile *f;
  const gguf_tensor **order = xcalloc(gguf_n_tensors(w->g) + 1, sizeof *order);
  gguf_head *h = gguf_head_new(32);
  size_t n = 0;
  int status = 0;
  for (size_t i = 0; i < gguf_n_tensors(w->g); i++) if (w->sums[i]) order[n++] = gguf_tensor_at(w->g, i);
  qsort(order, n, sizeof *order, gguf_by_name);
  gguf_head_str(h, "general.type", "imatrix", 7);
  gguf_head_strs(h, "imatrix.datasets", &dataset, dataset != NULL);
  gguf_head_u32(h, "imatrix.chunk_count", w->chunks);
  gguf_head_u32(h, "imatrix.chunk_size", (uint32_t)chunk);
  for (size_t i = 0; i < n && !status; i++) status = check_sums(w, order[i], &e) || add_head(h, order[i], &e) ? -1 : 0;
  if (!status) status = newfile_open(path, &f, &e);
  if (!status) {
    status = write_file(w, f, h, order, n, &e);
    if (status) newfile_discard(f);
    else status = newfile_commit(f, &e);
  }
  gguf_head_free(h);
  free(order);
  if (status && err) memcpy(err->text, e.text, sizeof err->text);
  return status;
}
