// Weights copied into the layouts in which kernels read them (schedule/layout.h), once, when a plan is built. See
// plan_impl.h.
#define _GNU_SOURCE
#include <stdlib.h>
#include "base/attempt.h"
#include "device/plan_impl.h"
#include "schedule/layout.h"

// bytes of a copy that are filled before the file's pages are given back
enum { FILL_PIECE = 32 << 20 };

// One copy: of weight `id`, from `raw` to `at`; kernel: which of those that fill, -1: plain.
typedef struct filling { const layout *l; unsigned char *raw, *at; int64_t id; int kernel; } filling;
typedef struct fillings { filling *at; size_t n, cap; } fillings;

// In pieces, so that memory never holds much more than one copy of the weights.
static int fill_one(plan *p, const filling *f, const device_kernel *kernels, double before, double all,
                    const plan_options *o, error *err) {
  const runtime *run = p->d->run;
  const layout *l = f->l;
  const device_kernel *k = f->kernel < 0 ? NULL : &kernels[f->kernel];
  int64_t pieces = l->bytes / FILL_PIECE + 1, tiles = k ? program_eval(k->p, k->p->tiles, NULL) : pieces;
  for (int64_t i = 0; i < pieces; i++) {
    int64_t from = tiles * i / pieces, to = tiles * (i + 1) / pieces;
    if (o->stops && o->stops(o->ctx)) return error_set(err, "loading was stopped");
    if (!k) { from = l->bytes / pieces * i; to = i + 1 == pieces ? l->bytes : l->bytes / pieces * (i + 1); }
    if (run->lay_out(p, k, f->at, f->raw, (uint64_t)(l->elems * dtype_size(l->dt)), from, to, err)) return -1;
    double done = (double)(i + 1) / (double)pieces;
    if (o->filled)
      o->filled(o->ctx, f->id, (double)i / (double)pieces, done, (before + (double)l->bytes * done) / all);
  }
  return 0;
}

typedef struct fill_kernels { fillings *f; graph *g; VEC(uop *) asts; } fill_kernels;

static void find_fillings(void *ctx) {
  fill_kernels *k = ctx;
  map index = {0};
  k->g = graph_new(NULL);
  for (size_t i = 0; i < k->f->n; i++) {
    filling *f = &k->f->at[i];
    uop *ast = layout_filling(k->g, f->l);
    f->kernel = -1;
    if (!ast) continue;
    if (!map_has(&index, ast)) { map_put(&index, ast, (void *)(intptr_t)k->asts.n); vec_push(&k->asts, ast); }
    f->kernel = (int)(intptr_t)map_ptr(&index, ast);
  }
  map_free(&index);
}

static int fill_all(plan *p, fillings *f, const plan_options *o, error *err) {
  fill_kernels k = {.f = f};
  double all = 0, before = 0;
  for (size_t i = 0; i < f->n; i++) all += (double)f->at[i].l->bytes;
  if (attempt(ATTEMPT_OWNS, find_fillings, &k, err)) return -1;
  device_kernel *kernels = xcalloc(k.asts.n + 1, sizeof *kernels);
  code_image *code = NULL;
  int n = (int)k.asts.n;
  int r = plan_compile(p->d, k.g, k.asts.at, kernels, n, true, o, &p->stats, err) ||
              p->d->run->link(p->d, kernels, n, &code, err)
            ? -1
            : 0;
  for (size_t i = 0; i < f->n && !r; before += (double)f->at[i++].l->bytes)
    r = fill_one(p, &f->at[i], kernels, before, all, o, err);
  code_unmap(code);
  plan_free_kernels(kernels, n);
  free(kernels);
  vec_free(&k.asts);
  graph_free(k.g);
  return r;
}

static void *own_memory(plan *p, uint64_t size, error *err) {
  void *at = p->d->run->alloc(p->d, size, PAGES_HUGE, err);
  if (at) vec_push(&p->copies, ((own_copy){at, size}));
  return at;
}

// The copy of a weight becomes argument `param` of a step; what is not in it yet is to be filled.
static int bind_one(plan *p, step *t, int param, filling *f, const plan_options *o, fillings *fills, error *err) {
  bool filled = false;
  f->at = o->stream ? o->stream(o->ctx, f->id, f->l->hash, f->l->bytes, &filled) : NULL;
  if (!f->at && !(f->at = own_memory(p, (uint64_t)f->l->bytes, err))) return -1;
  f->raw = t->bufs[param];
  if (!filled) vec_push(fills, *f);
  for (int n = 0; n < p->n_threads; n++) t->bufs[n * t->n_bufs + param] = f->at;
  return 0;
}

int plan_bind_layouts(plan *p, const schedule *s, const plan_options *o, error *err) {
  fillings fills = {0};
  int r = 0;
  for (int i = 0; i < s->n_kernels && !r; i++) {
    const sched_kernel *k = &s->kernels[i];
    for (int b = 0; k->layouts && b < k->n_bufs && !r; b++)
      if (k->layouts[b])
        r = bind_one(p, &p->steps[i], b, &(filling){.l = k->layouts[b], .id = k->bufs[b]}, o, &fills, err);
  }
  if (!r && fills.n) r = fill_all(p, &fills, o, err);
  vec_free(&fills);
  return r;
}
