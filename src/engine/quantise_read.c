// Converts quantised rows to floats: a graph with one format's expression, scheduled, compiled and run like any other.
// Plans are kept, since models need few different ones.
#include "engine/quantise.h"
#include <stdlib.h>
#include <string.h>
#include "compile/compile.h"
#include "device/device.h"
#include "model/codebook.h"
#include "model/dequant.h"

enum { RAW, OUT, PAST_END = 64 /* bytes that a kernel may read after its input */ };

typedef struct way {
  const struct format *format;
  int64_t rows, cols;
  graph *g;
  schedule s;
  plan *p;
  uint64_t raw_bytes;
  unsigned char *raw /* the device's */;
  float *out;
} way;
struct reader { int n_threads; device *d; VEC(way *) ways; };

reader *reader_new(int n_threads) {
  reader *r = xcalloc(1, sizeof *r);
  r->n_threads = n_threads;
  return r;
}

static void free_way(device *d, way *s) {
  plan_free(s->p);
  if (s->g) graph_free(s->g);
  device_release(d, s->raw, s->raw_bytes);
  free(s->out);
  free(s);
}

void reader_free(reader *r) {
  if (!r) return;
  for (size_t i = 0; i < r->ways.n; i++) free_way(r->d, r->ways.at[i]);
  vec_free(&r->ways);
  device_close(r->d);
  free(r);
}

static void *way_buffer(void *ctx, int64_t id) {
  way *s = ctx;
  return codebook_is(id) ? codebook_data(id) : id == RAW ? (void *)s->raw : (void *)s->out;
}

static int build_way(reader *r, way *s, uint64_t n_bytes, error *err) {
  uint64_t n = (uint64_t)s->rows * (uint64_t)s->cols;
  s->raw_bytes = n_bytes + PAST_END;
  s->raw = device_alloc(r->d, s->raw_bytes, PAGES_PLAIN, err);
  s->out = malloc(n * sizeof *s->out + PAST_END);
  if (!s->raw) return -1;
  if (!s->out) return error_set(err, "no memory for %llu values at once", (unsigned long long)n);
  s->g = graph_new(NULL);
  tensor *w = dequant(s->g, s->format, RAW, s->rows, s->cols);
  uop *store = t_assign(
    s->g, t_reshape_i(s->g, t_buffer(s->g, OUT, DT_F32, s->rows * s->cols), 2, (int64_t[]){s->rows, s->cols}), w);
  compile_graph(s->g, uop_new(s->g, OP_SINK, DT_VOID, 1, &store, 1, (uarg){0}), &r->d->target,
                &(compile_choices){.exact = true, .in_place = true}, &s->s);
  return plan_build(r->d, s->g, &s->s, &(plan_options){.buffer = way_buffer, .ctx = s}, &s->p, err);
}

int reader_floats(reader *r, const struct format *f, const unsigned char *raw, int64_t most, int64_t rows, int64_t cols,
                  float *out, error *err) {
  way *s = NULL;
  uint64_t row;
  if (!r->d && device_open(r->n_threads, 0, &r->d, err)) return -1;
  die_if(!format_row_bytes(f, (uint64_t)cols, &row),
         "rows of %lld are no whole blocks of %s", (long long)cols, f->name);
  for (size_t i = 0; i < r->ways.n; i++)
    if (r->ways.at[i]->format == f && r->ways.at[i]->rows == most && r->ways.at[i]->cols == cols) s = r->ways.at[i];
  if (!s) {
    s = xcalloc(1, sizeof *s);
    *s = (way){.format = f, .rows = most, .cols = cols};
    vec_push(&r->ways, s);
    if (build_way(r, s, row * (uint64_t)most, err)) return -1;
  }
  device_write(r->d, s->raw, raw, row * (uint64_t)rows);
  plan_run(s->p, NULL, 0);
  if (device_check(r->d, err)) return -1;
  memcpy(out, s->out, (size_t)(rows * cols) * sizeof *out);
  return 0;
}
