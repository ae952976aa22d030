// Weights laid out for the kernels that read them (codegen/stream.h), filled once, when a plan is built. See
// plan_impl.h.
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include "device/plan_impl.h"

// bytes of a stream that are filled before the file's pages are given back
enum { FILL_PIECE = 32 << 20 };

typedef struct filling {
  const program_stream *s;
  unsigned char *raw, *at;
  uint64_t raw_bytes;
  int64_t id;
  int kernel[COUNT(((program_stream *)NULL)->fill)];
} filling;

uint64_t plan_layout(const program_stream *s) {
  uint64_t h = (uint64_t)s->bytes;
  for (int i = 0; i < s->n_fills; i++) h = hash_bytes(s->fill[i], strlen(s->fill[i]), h);
  return h;
}

bool plan_same_layouts(const program *a, const program *b) {
  bool same = a->n_streams == b->n_streams;
  for (int i = 0; same && i < a->n_streams; i++)
    same = a->streams[i].param == b->streams[i].param && plan_layout(&a->streams[i]) == plan_layout(&b->streams[i]);
  return same;
}

static int fill_streams(plan *p, filling *fills, size_t n, const plan_options *o, error *err) {
  graph *g = graph_new(NULL);
  map index = {0};
  VEC(uop *) asts = {0};
  error e = {0};
  const runtime *run = p->d->run;
  for (size_t i = 0; i < n; i++)
    for (int j = 0; j < fills[i].s->n_fills; j++) {
      uop *ast = uop_parse(g, fills[i].s->fill[j], strlen(fills[i].s->fill[j]), &e);
      if (!ast || ast->op != OP_SINK) die("a filling kernel that does not parse: %s", e.text);
      if (!map_has(&index, ast)) { map_put(&index, ast, (void *)(intptr_t)asts.n); vec_push(&asts, ast); }
      fills[i].kernel[j] = (int)(intptr_t)map_ptr(&index, ast);
    }
  device_kernel *kernels = xcalloc(asts.n + 1, sizeof *kernels);
  code_image *code = NULL;
  int r = plan_compile(p->d, g, asts.at, kernels, (int)asts.n, true, o, &p->stats, err) ||
              p->d->run->link(p->d, kernels, (int)asts.n, &code, err)
            ? -1
            : 0;
  double all = 0, done = 0;
  for (size_t i = 0; i < n; i++) all += (double)fills[i].s->bytes;
  for (size_t i = 0; i < n && !r; i++) {
    int64_t pieces = fills[i].s->bytes / FILL_PIECE + 1;
    for (int64_t at = 0; at < pieces && !r; at++) {
      size_t from = (size_t)(fills[i].s->bytes / pieces * at),
             to = at + 1 == pieces ? (size_t)fills[i].s->bytes : (size_t)(fills[i].s->bytes / pieces * (at + 1));
      if (!fills[i].s->n_fills)
        r = run->lay_out(p, NULL, fills[i].at, fills[i].raw, fills[i].raw_bytes, (int64_t)from, (int64_t)to, err);
      for (int j = 0; j < fills[i].s->n_fills && !r; j++) {
        const device_kernel *k = &kernels[fills[i].kernel[j]];
        int64_t tiles = program_eval(k->p, k->p->tiles, NULL);
        r = run->lay_out(p, k, fills[i].at, fills[i].raw, fills[i].raw_bytes, tiles * at / pieces,
                         tiles * (at + 1) / pieces, err);
      }
      done += (double)fills[i].s->bytes / (double)pieces;
      if (o->filled)
        o->filled(o->ctx, fills[i].id, (double)at / (double)pieces, (double)(at + 1) / (double)pieces, done / all);
    }
  }
  code_unmap(code);
  plan_free_kernels(kernels, (int)asts.n);
  free(kernels);
  vec_free(&asts);
  map_free(&index);
  graph_free(g);
  return r;
}

// Of argument `number` of a kernel; 0: it has none of that number.
uint64_t plan_bytes(uop *ast, int number) {
  uint64_t size = 0;
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &ast, 1);
  for (size_t i = 0; i < l.n; i++)
    if (l.at[i]->op == OP_PARAM && l.at[i]->a == number)
      size = (uint64_t)l.at[i]->b * (uint64_t)dtype_size((enum dtype)l.at[i]->dt);
  arena_free(a);
  return size;
}

static void *own_memory(plan *p, uint64_t size, error *err) {
  void *at = p->d->run->alloc(p->d, size, PAGES_HUGE, err);
  if (at) vec_push(&p->streams, ((own_stream){at, size}));
  return at;
}

int plan_bind_streams(plan *p, const schedule *s, const plan_options *o, error *err) {
  VEC(filling) fills = {0};
  int r = 0;
  for (int i = 0; i < s->n_kernels && !r; i++) {
    step *t = &p->steps[i];
    for (int j = 0; j < t->k->p->n_streams && !r; j++) {
      const program_stream *w = &t->k->p->streams[j];
      int64_t id = s->kernels[i].bufs[w->param];
      bool filled = false;
      void *at = o->stream ? o->stream(o->ctx, id, plan_layout(w), w->bytes, &filled) : NULL;
      if (!at && !(at = own_memory(p, (uint64_t)w->bytes, err))) { r = -1; break; }
      if (!filled)
        vec_push(&fills, ((filling){.s = w,
                                    .raw = t->bufs[w->param],
                                    .raw_bytes = plan_bytes(s->kernels[i].ast, w->param),
                                    .at = at,
                                    .id = id}));
      for (int n = 0; n < p->n_threads; n++) t->bufs[n * t->n_bufs + w->param] = at;
    }
  }
  if (!r && fills.n) r = fill_streams(p, fills.at, fills.n, o, err);
  vec_free(&fills);
  return r;
}
