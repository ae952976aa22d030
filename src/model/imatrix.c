// Reads files of weights for quantisation: see imatrix.h. A GGUF file holds NAME.in_sum2, sums of squares, and
// NAME.counts, the number of summands, once for each matrix of the tensor. The older kind is a list without a header:
// the number of entries, each with the length of its name, the name, how often it was added to, the number of values,
// and the values, which are means times that number of additions; newer files end with the number of chunks and the
// text's name.
#define _GNU_SOURCE
#include "model/imatrix.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/mapped.h"
#include "model/gguf.h"

enum { MOST_ENTRIES = 1 << 20, LONGEST_NAME = 1 << 12 };

static int compare_names(const void *a, const void *b) {
  return strcmp(((const imatrix_entry *)a)->name, ((const imatrix_entry *)b)->name);
}

// Sorts and checks the entries.
static int sort_and_check(imatrix *m, const char *path, error *err) {
  if (!m->n) return error_set(err, "%s: holds no weights", path);
  qsort(m->at, m->n, sizeof *m->at, compare_names);
  for (size_t i = 0; i < m->n; i++) {
    const imatrix_entry *e = &m->at[i];
    if (i && !strcmp(e->name, m->at[i - 1].name))
      return error_set(err, "%s: holds the weights of '%.100s' twice", path, e->name);
    for (size_t k = 0; k < e->n; k++)
      if (!isfinite(e->weights[k]) || e->weights[k] < 0)
        return error_set(err, "%s: a weight of '%.100s' is %g", path, e->name, (double)e->weights[k]);
  }
  return 0;
}

// ---- GGUF -----------------------------------------------------------------------------------------------------------

static int add_sums(imatrix *m, const gguf *g, const gguf_tensor *t, const char *path, error *err) {
  static const char tail[] = ".in_sum2";
  size_t len = strlen(t->name), n = (size_t)(t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3]);
  if (len <= sizeof tail - 1 || strcmp(t->name + len - (sizeof tail - 1), tail)) return 0;
  char *name = arena_strndup(m->mem, t->name, len - (sizeof tail - 1));
  const gguf_tensor *c = gguf_tensor_find(g, arena_printf(m->mem, "%s.counts", name));
  if (!c) return error_set(err, "%s: tensor '%s' has no counts", path, t->name);
  size_t n_counts = (size_t)(c->ne[0] * c->ne[1] * c->ne[2] * c->ne[3]);
  if (t->format->id != FORMAT_F32 || c->format->id != FORMAT_F32 || n % n_counts)
    return error_set(err, "%s: tensor '%s' does not fit its counts", path, t->name);
  float *w = ARENA_ARRAY(m->mem, float, n), count;
  memcpy(w, t->data, n * sizeof *w);
  for (size_t i = 0; i < n; i++) {
    memcpy(&count, (const char *)c->data + i / (n / n_counts) * sizeof count, sizeof count);
    w[i] = count > 0 ? w[i] / roundf(count) : 1;           // experts that were never chosen: nothing is known
  }
  m->at[m->n++] = (imatrix_entry){name, w, n};
  return 0;
}

static int read_gguf(imatrix *m, const char *path, error *err) {
  gguf *g;
  const gguf_value *names;
  uint32_t chunks;
  if (gguf_open(path, &g, err)) return -1;
  m->at = ARENA_ARRAY(m->mem, imatrix_entry, gguf_n_tensors(g));
  int status =
    gguf_strs_opt(g, "imatrix.datasets", &names, err) || gguf_u32_opt(g, "imatrix.chunk_count", 0, &chunks, err) ? -1
                                                                                                                 : 0;
  for (size_t i = 0; !status && i < gguf_n_tensors(g); i++) status = add_sums(m, g, gguf_tensor_at(g, i), path, err);
  if (!status && names && names->a.n)
    m->dataset = arena_strndup(m->mem, gguf_elem_str(names, 0).at, gguf_elem_str(names, 0).n);
  if (!status) m->chunks = chunks;
  if (!status) status = gguf_check_size(g, err);
  gguf_close(g);
  return status;
}

// ---- the older kind -------------------------------------------------------------------------------------------------

typedef struct reader { const unsigned char *at; size_t left; } reader;

static const void *take_items(reader *r, uint64_t n) {
  const unsigned char *p = r->at;
  if (n > r->left) return NULL;
  r->at += n;
  r->left -= (size_t)n;
  return p;
}

static bool take_i32(reader *r, int32_t least, int32_t *out) {
  const void *p = take_items(r, sizeof *out);
  if (p) memcpy(out, p, sizeof *out);
  return p && *out >= least;
}

static const char *take_tensor_name(reader *r, arena *mem) {
  int32_t len;
  const char *p = take_i32(r, 1, &len) && len <= LONGEST_NAME ? take_items(r, (uint64_t)len) : NULL;
  return p ? arena_strndup(mem, p, (size_t)len) : NULL;
}

static bool take_entry(reader *r, arena *mem, imatrix_entry *e) {
  int32_t calls, n;
  const void *p = NULL;
  if ((e->name = take_tensor_name(r, mem)) && take_i32(r, INT32_MIN, &calls) && take_i32(r, 1, &n))
    p = take_items(r, (uint64_t)n * sizeof(float));
  if (!p) return false;
  float *w = ARENA_ARRAY(mem, float, n);
  memcpy(w, p, (size_t)n * sizeof *w);
  for (int32_t i = 0; calls > 0 && i < n; i++) w[i] /= (float)calls;
  e->weights = w;
  e->n = (size_t)n;
  return true;
}

static int read_list(imatrix *m, reader r, const char *path, error *err) {
  int32_t n, chunks;
  if (!take_i32(&r, 1, &n) || n > MOST_ENTRIES || (size_t)n > r.left / 16)
    return error_set(err, "%s: not a file of weights for quantisation (imatrix)", path);
  m->at = ARENA_ARRAY(m->mem, imatrix_entry, n);
  for (; m->n < (size_t)n; m->n++)
    if (!take_entry(&r, m->mem, &m->at[m->n]))
      return error_set(err, "%s: entry %zu of %d cannot be read: the file is cut, or no imatrix", path, m->n + 1, n);
  if (take_i32(&r, 1, &chunks)) {
    m->chunks = chunks;
    m->dataset = take_tensor_name(&r, m->mem);
  }
  return 0;
}

// ---- either ---------------------------------------------------------------------------------------------------------

static int read_any(imatrix *m, const char *path, int fd, error *err) {
  struct stat st;
  if (fstat(fd, &st)) return error_set(err, "%s: %s", path, strerror(errno));
  if (!S_ISREG(st.st_mode) || st.st_size < 4)
    return error_set(err, "%s: not a file of weights for quantisation (imatrix)", path);
  mapped *map = mapped_open(fd, (size_t)st.st_size);
  if (!map) return error_set(err, "%s: cannot be mapped: %s", path, strerror(errno));
  reader r = {mapped_bytes(map), (size_t)st.st_size};
  int status = memcmp(r.at, "GGUF", 4) ? read_list(m, r, path, err) : read_gguf(m, path, err);
  if (!mapped_is_whole(map))
    status = error_set(err, "%s: a part of it could not be read: it was cut, or its disk failed", path);
  mapped_close(map);
  return status;
}

int imatrix_open(const char *path, imatrix *out, error *err) {
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  if (fd < 0) return error_set(err, "%s: %s", path, strerror(errno));
  *out = (imatrix){.mem = arena_new()};
  int status = read_any(out, path, fd, err);
  close(fd);
  if (!status) status = sort_and_check(out, path, err);
  if (status) imatrix_close(out);
  return status;
}

void imatrix_close(imatrix *m) {
  arena_free(m->mem);
  *m = (imatrix){.mem = NULL};
}

const imatrix_entry *imatrix_find(const imatrix *m, const char *name) {
  return m->n ? bsearch(&(imatrix_entry){.name = name}, m->at, m->n, sizeof *m->at, compare_names) : NULL;
}
