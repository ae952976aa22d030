// Measures the memory bandwidth: see limit.h. The reading kernel is compiled like any other: sums over the rows of a
// matrix of 32-bit integers, which the optimiser vectorises and shares among the threads. It is therefore a pure stream
// with the threads and huge pages of the kernels that are compared with it.
#include "compile/compile.h"
#include "device/limit.h"
#include <stdlib.h>
#include <string.h>
#include "device/memory.h"
#include "device/team.h"

enum { COLS = 4096, MIB = 1 << 20, MOST = 256, LEAST = 16 };    // in MiB
static const double AT_MOST_S = 0.3;
enum { AT_LEAST = 3 };                                          // runs

typedef struct area { unsigned char *data; int32_t sums[(int64_t)MOST * MIB / COLS / 4]; int64_t bytes; } area;

static void *area_buffer(void *ctx, int64_t id) { area *a = ctx; return id ? (void *)a->sums : (void *)a->data; }

// Fresh memory is one shared page of zeros, so every thread first writes to its part.
static void touch_part(void *ctx, int thread, int n) {
  area *a = ctx;
  int64_t from = a->bytes * thread / n, to = a->bytes * (thread + 1) / n;
  memset(a->data + from, 1, (size_t)(to - from));
}

static int measure_reads(device *d, area *a, double *gb_s, error *err) {
  int64_t rows = a->bytes / COLS / 4;
  graph *g = graph_new(NULL);
  tensor *x = t_reshape_i(g, t_buffer(g, 0, DT_I32, rows * COLS), 2, (int64_t[]){rows, COLS});
  tensor *y = t_assign(g, t_buffer(g, 1, DT_I32, rows), t_reshape_i(g, t_reduce(g, x, OP_ADD, 1), 1, &rows));
  schedule s;
  compile_graph(g, uop_new(g, OP_SINK, DT_VOID, 1, &y, 1, (uarg){0}), &d->target, &(compile_choices){0}, &s);
  plan *p;
  int r = plan_build(d, g, &s, &(plan_options){.buffer = area_buffer, .ctx = a}, &p, err);
  if (!r) {
    if (d->run->here) team_run(d->team, touch_part, a);
    else device_fill(d, a->data, 1, (size_t)a->bytes);
    plan_run(p, NULL, 0);
    bool runs = a->sums[0] != 0;                                // false for the null device
    double best = 1e30, began = now_s();
    for (int i = 0; runs && (i < AT_LEAST || now_s() - began < AT_MOST_S); i++) {
      double t = now_s();
      plan_run(p, NULL, 0);
      t = now_s() - t;
      if (t < best) best = t;
    }
    if (runs) *gb_s = (double)a->bytes / best / 1e9;
    for (int64_t i = 0; runs && i < rows; i++)
      if (a->sums[i] != (int32_t)(0x01010101u * COLS))
        r = error_set(err, "the memory limit: a sum of %d words is %d", COLS, a->sums[i]);
    plan_free(p);
  }
  graph_free(g);
  return r;
}

int device_read_limit(device *d, double *gb_s, error *err) {
  uint64_t have;
  *gb_s = 0;
  if (!d->target.vector_bytes) return 0;
  int64_t mib = MOST;
  if (!memory_available(&have, NULL)) while (mib > LEAST && (uint64_t)mib * MIB > have / 4) mib /= 2;
  area *a = xcalloc(1, sizeof *a);
  a->bytes = mib * MIB;
  a->data = device_alloc(d, (uint64_t)a->bytes, PAGES_HUGE, err);
  int r = a->data ? measure_reads(d, a, gb_s, err) : -1;
  device_release(d, a->data, (uint64_t)a->bytes);
  free(a);
  return r;
}
