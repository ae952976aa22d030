// Dequantisation as a filter, for tests/python/test_formats.py: raw blocks on stdin, float32 on stdout, through a
// graph, a schedule and a plan, as the engine would run it.
//
//     dequant_tool FORMAT ROWS COLS < blocks > floats      DEV, NOOPT, RENDER, WEFT_CPU and SPEC apply
//     dequant_tool --list                                   formats that compute: name, elements and bytes of a block,
//     bytes of a row's
//                                                       head, rows together
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "compile/compile.h"
#include "device/device.h"
#include "device/memory.h"
#include "model/codebook.h"
#include "model/dequant.h"

enum { RAW, OUT, N_BUFFERS };
typedef struct memory { void *at[N_BUFFERS]; } memory;

static void *buffer(void *ctx, int64_t id) { return codebook_is(id) ? codebook_data(id) : ((memory *)ctx)->at[id]; }

static void list(void) {
  for (uint32_t id = 0; id < FORMAT_IDS; id++) {
    const struct format *f = format_by_id(id);
    if (f && f->computes) printf("%s %u %u %u %u\n", f->name, f->block, f->bytes, f->head, f->rows);
  }
}

_Noreturn static void fail(const char *what, const error *err) {
  fprintf(stderr, "dequant_tool: %s%s\n", what, err ? err->text : "");
  exit(1);
}

static void run(device *d, graph *g, uop *const *effects, int n, memory *m) {
  uop *sink = uop_new(g, OP_SINK, DT_VOID, 1, effects, (size_t)n, (uarg){0});
  schedule s;
  plan *p;
  error err = {0};
  compile_graph(g, sink, &d->target, &(compile_choices){.exact = true, .in_place = true}, &s);
  if (plan_build(d, g, &s, &(plan_options){.buffer = buffer, .ctx = m}, &p, &err)) fail("", &err);
  plan_run(p, NULL, 0);
  plan_free(p);
}

int main(int argc, char **argv) {
  if (argc == 2 && !strcmp(argv[1], "--list")) { list(); return 0; }
  const struct format *f = argc == 4 ? format_by_name(argv[1]) : NULL;
  if (!f || !f->computes) fail("usage: dequant_tool FORMAT ROWS COLS | --list", NULL);
  int64_t rows = atoll(argv[2]), cols = atoll(argv[3]);
  uint64_t row_bytes;
  if (rows < 1 || cols < 1 || rows > 1 << 20 || cols > 1 << 24 || !format_row_bytes(f, (uint64_t)cols, &row_bytes))
    fail("bad size", NULL);
  size_t n = (size_t)rows * row_bytes, n_out = (size_t)(rows * cols);
  memory m;
  // as the engine has it: no more than 64 bytes may be read past the end
  m.at[RAW] = xcalloc(n + 64, 1);
  m.at[OUT] = xcalloc(n_out + 16, sizeof(float));
  if (fread(m.at[RAW], 1, n, stdin) != n || fgetc(stdin) != EOF) fail("stdin does not hold as many blocks", NULL);
  error err = {0};
  device *d;
  if (device_open(1, 0, &d, &err)) fail("", &err);
  graph *g = graph_new(NULL);
  tensor *w = dequant(g, f, RAW, rows, cols);
  uop *store = t_assign(g, t_reshape_i(g, t_buffer(g, OUT, DT_F32, rows * cols), 2, (int64_t[]){rows, cols}), w);
  run(d, g, &store, 1, &m);
  if (fwrite(m.at[OUT], sizeof(float), n_out, stdout) != n_out) fail("cannot write", NULL);
  graph_free(g);
  device_close(d);
  for (int i = 0; i < N_BUFFERS; i++) free(m.at[i]);
  return 0;
}
