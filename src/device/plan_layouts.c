// Packs weights into the layouts in which kernels read them (schedule/layout.h), once, when a plan is built. See
// plan_impl.h.
#define _GNU_SOURCE
#include <stdlib.h>
#include "base/attempt.h"
#include "graph/symbolic.h"
#include "device/plan_impl.h"
#include "schedule/layout.h"

// bytes of a copy that are packed before the file's pages are released
enum { FILL_PIECE = 32 << 20 };

// One copy: of weight `id`, from `raw` to `at`; kernel: index of the packing kernel, -1: a plain copy. later: packed on
// demand.
typedef struct filling {
  const layout *l;
  unsigned char *raw, *at;
  int64_t id;
  int kernel;
  demand_weight *later;
} filling;
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
    if (run->pack_weight(p, k, f->at, f->raw, (uint64_t)(l->elems * dtype_size(l->dt)), from, to, err)) return -1;
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
  for (size_t i = 0; i < f->n; i++) if (!f->at[i].later) all += (double)f->at[i].l->bytes;
  if (attempt(ATTEMPT_OWNS, find_fillings, &k, err)) return -1;
  device_kernel *kernels = xcalloc(k.asts.n + 1, sizeof *kernels);
  code_image *code = NULL;
  int n = (int)k.asts.n;
  int r = plan_compile(p->d, k.g, k.asts.at, kernels, n, true, o, &p->stats, err) ||
              p->d->run->link(p->d, kernels, n, &code, err)
            ? -1
            : 0;
  for (size_t i = 0; i < f->n && !r; i++) {
    const filling *one = &f->at[i];
    if (one->later) { demand_fill_by(one->later, one->kernel < 0 ? NULL : &kernels[one->kernel]); continue; }
    r = fill_one(p, one, kernels, before, all, o, err);
    before += (double)one->l->bytes;
  }
  vec_free(&k.asts);
  if (p->demand) { demand_keep(p->demand, k.g, kernels, n, code); return r; }
  code_unmap(code);
  plan_free_kernels(kernels, n);
  free(kernels);
  graph_free(k.g);
  return r;
}

static void *own_memory(plan *p, uint64_t size, error *err) {
  void *at = p->d->run->alloc(p->d, size, PAGES_HUGE, err);
  if (at) vec_push(&p->copies, ((own_copy){at, size}));
  return at;
}

// --- on demand -------------------------------------------------------------------------------------------------------

// A number without conversions and clamps around it.
static const uop *plain_number(const uop *u) {
  while (u->op == OP_CAST || ((u->op == OP_MIN || u->op == OP_MAX) && u->src[1]->op == OP_CONST)) u = u->src[0];
  return u;
}

// The argument of a kernel with the numbers of the matrices that it reads of argument `weight`; -1 if they are not
// numbers that another kernel has stored.
static int chooser_of(uop *ast, int weight) {
  arena *mem = arena_new();
  uop_list l = uop_toposort(mem, &ast, 1);
  int found = -1;
  bool sound = true;
  for (size_t i = 0; i < l.n && sound; i++) {
    const uop *u = l.at[i], *at = u->op == OP_LOAD ? u->src[0] : NULL;
    idx_sum s;
    int choices = 0;
    if (!at || at->src[0]->op != OP_PARAM || at->src[0]->a != weight) continue;
    uop *index = at->src[1]->op == OP_WHERE ? at->src[1]->src[1] : at->src[1];
    sound = idx_sum_of(index, &s);
    for (int t = 0; sound && t < s.n; t++) {
      const uop *atom = plain_number(s.atom[t]);
      if (atom->op != OP_LOAD) continue;
      const uop *from = atom->src[0]->src[0];
      sound = !choices++ && from->op == OP_PARAM && from->dt == DT_I32 && (found < 0 || found == (int)from->a);
      found = (int)from->a;
    }
    sound = sound && choices;
  }
  arena_free(mem);
  return sound ? found : -1;
}

// The last step before `at` that stores the buffer; -1 if there is none.
static int stored_by(const schedule *s, int at, int64_t id) {
  for (int i = at; i-- > 0;)
    for (int b = 0; b < s->kernels[i].n_bufs; b++)
      if (s->kernels[i].bufs[b] == id && s->kernels[i].written[b]) return i;
  return -1;
}

static int64_t elements_of(uop *ast, int param) {
  arena *mem = arena_new();
  uop_list l = uop_toposort(mem, &ast, 1);
  int64_t n = 0;
  for (size_t i = 0; i < l.n; i++) if (l.at[i]->op == OP_PARAM && l.at[i]->a == param) n = l.at[i]->b;
  arena_free(mem);
  return n;
}

// A weight that is loaded before step `i` runs, or before an earlier step that comes after everything it depends on.
static int bind_on_demand(plan *p, const schedule *s, int i, int param, int64_t matrices, filling *f, fillings *fills,
                          error *err) {
  const sched_kernel *k = &s->kernels[i];
  bool is_new = false;
  step *t = &p->steps[i];
  f->later = demand_weight_of(p->demand, f->id, f->l, matrices, f->raw, &is_new, err);
  if (!f->later) return -1;
  f->at = demand_memory(f->later);
  if (is_new) vec_push(fills, *f);
  int which = matrices > 1 ? chooser_of(k->ast, param) : -1;
  int64_t n = which < 0 ? 0 : elements_of(k->ast, which);
  int by = n > 0 && n <= matrices ? stored_by(s, i, k->bufs[which]) : -1;
  bool known = by >= 0 && (s->kernels[by].level < k->level || s->kernels[by].each);
  vec_push(&p->reads, ((demand_read){f->later, known ? (const int32_t *)(void *)t->bufs[which] : NULL, n}));
  int first = i;
  while (first >= 0 && !p->steps[first].brings) first--;
  t->brings |= first < 0 || s->kernels[first].level < k->level || (known && by >= first);
  return 0;
}

// Makes the packed weight argument `param` of a step; it is packed unless it already is.
static int bind_one(plan *p, const schedule *s, int i, int param, const plan_options *o, fillings *fills,
                    error *err) {
  step *t = &p->steps[i];
  const sched_kernel *k = &s->kernels[i];
  filling now = {.l = k->layouts[param], .id = k->bufs[param], .raw = t->bufs[param]}, *f = &now;
  bool filled = false;
  int64_t matrices = p->demand ? o->matrices(o->ctx, f->id) : 0;
  if (matrices) {
    if (bind_on_demand(p, s, i, param, matrices, f, fills, err)) return -1;
  } else f->at = o->stream ? o->stream(o->ctx, f->id, f->l->hash, f->l->bytes, &filled) : NULL;
  if (!f->at && !(f->at = own_memory(p, (uint64_t)f->l->bytes, err))) return -1;
  if (!matrices && !filled) vec_push(fills, *f);
  for (int n = 0; n < p->n_threads; n++) t->bufs[n * t->n_bufs + param] = f->at;
  return 0;
}

int plan_bind_layouts(plan *p, const schedule *s, const plan_options *o, error *err) {
  fillings fills = {0};
  int r = 0;
  for (int i = 0; i < s->n_kernels && !r; i++) {
    const sched_kernel *k = &s->kernels[i];
    p->steps[i].reads = p->reads.n;
    for (int b = 0; k->layouts && b < k->n_bufs && !r; b++)
      if (k->layouts[b]) r = bind_one(p, s, i, b, o, &fills, err);
  }
  if (!r && fills.n) r = fill_all(p, &fills, o, err);
  vec_free(&fills);
  return r;
}
