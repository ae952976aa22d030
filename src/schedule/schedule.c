// The scheduling pipeline, one call per step: see schedule.h. The cost model is in fuse.c, index arithmetic in
// rangeify.c, the memory planner in memory_plan.c.
#include "schedule/schedule.h"
#include <stdlib.h>
#include <string.h>
#include "base/env.h"
#include "graph/record.h"
#include "graph/verify.h"
#include "schedule/flash.h"
#include "schedule/fuse.h"
#include "schedule/memory_plan.h"

// Kernels that differ only in their buffers share one form: an expression over parameters, built once. order: for each
// parameter the number of its buffer, in the order in which see() visits buffers.
typedef struct form { uop *ast; int n_bufs, *order; bool *written, each; } form;
// bufs: in the order of see(), the written buffer first; deps: kernels whose results it reads; after: kernels that it
// must not overtake
typedef struct raw_kernel { uop *root, **bufs; const form *form; VEC(int) deps, after; int level; } raw_kernel;
typedef struct reader { struct reader *next; int kernel; } reader;
// shared: stages that other kernels fill; readers: buffer version -> kernels that read it
typedef struct builder {
  graph *g;
  arena *mem;
  fusion f;
  VEC(raw_kernel) kernels;
  VEC(uop *) shared;
  map kernel_of, readers;
  smap forms;
} builder;

// --- kernels as expressions -----------------------------------------------------------------------------------------

static uop *lower_kernel(builder *b, uop *root) {
  graph *g = b->g;
  lowering l = {.f = &b->f, .mem = b->mem};
  uop *ranges[2 + MAX_DIMS], *target, *value;
  size_t n = 2;
  place at = {.n = root->shape->n};
  for (int i = 0; i < at.n; i++) {
    bool one = uop_is_int(root->shape->dim[i], 1);
    at.idx[i] = one ? uop_idx(g, 0) : uop_range(g, root->shape->dim[i], i, AXIS_LOOP);
    if (!one) ranges[n++] = at.idx[i];
  }
  if (root->op == OP_ASSIGN) {
    uop *view = root->src[0];
    place p = at, q;
    for (; is_view(view); view = view->src[0], p = q) view_place(&l, view, &p, &q);
    die_if(p.valid, "assign to a padded view");
    target = uop_index(g, uop_viewed(view), flat_index(g, view->shape, &p));
    value = lower(&l, root->src[1], &at);
  } else {
    l.self = root;
    target = uop_index(g, map_ptr(&b->f.stored, root), temp_index(g, root->shape, &at));
    value = lower(&l, root, &at);
  }
  lowering_free(&l);
  ranges[0] = target;
  ranges[1] = simplify(g, value);
  return uop_new(g, OP_STORE, DT_VOID, 1, ranges, n, (uarg){0});
}

// --- dependencies ---------------------------------------------------------------------------------------------------

// Collects the kernels that the value of u (computed inside kernel k) waits for, and the buffer versions that it reads.
static void collect_deps(builder *b, uop *u, bool top, map *seen, int k) {
  if (map_has(seen, u)) return;
  map_put(seen, u, (void *)1);
  void *index;
  raw_kernel *raw = &b->kernels.at[k];
  if (!top && map_get(&b->kernel_of, (uint64_t)(uintptr_t)u, &index) && (intptr_t)index != k) {
    vec_push(&raw->deps, (int)(intptr_t)index);
    return;
  }
  if (u->op == OP_AFTER)                              // a read of a buffer version waits for all stores that made it
    for (uop *v = u; v->op == OP_AFTER; v = v->src[0])
      for (size_t i = 1; i < v->nsrc; i++)
        if (map_get(&b->kernel_of, (uint64_t)(uintptr_t)v->src[i], &index)) vec_push(&raw->deps, (int)(intptr_t)index);
  if (u->op == OP_AFTER || u->op == OP_BUFFER) {
    reader *r = ARENA_NEW(b->mem, reader);
    *r = (reader){map_ptr(&b->readers, u), k};
    map_put(&b->readers, u, r);
    return;
  }
  // a store does not read its target, but the stores that made the target's version come first
  if (u->op == OP_ASSIGN) {
    uop *view = u->src[0];
    for (; is_view(view); view = view->src[0]) if (view->op == OP_GATHER) collect_deps(b, view->src[1], false, seen, k);
    for (; view->op == OP_AFTER; view = view->src[0])
      for (size_t i = 1; i < view->nsrc; i++)
        if (map_get(&b->kernel_of, (uint64_t)(uintptr_t)view->src[i], &index))
          vec_push(&raw->deps, (int)(intptr_t)index);
    collect_deps(b, u->src[1], false, seen, k);
    return;
  }
  for (size_t i = 0; i < u->nsrc; i++) collect_deps(b, u->src[i], false, seen, k);
}

// A store waits for every kernel that reads the version that it overwrites.
static void find_hazards(builder *b) {
  for (size_t i = 0; i < b->kernels.n; i++) {
    uop *root = b->kernels.at[i].root;
    if (root->op != OP_ASSIGN) continue;
    uop *view = root->src[0];
    while (is_view(view)) view = view->src[0];
    for (reader *r = map_ptr(&b->readers, view); r; r = r->next)
      if (r->kernel != (int)i) vec_push(&b->kernels.at[i].after, r->kernel);
  }
}

static void find_deps(builder *b) {
  for (size_t i = 0; i < b->kernels.n; i++) {
    map seen = {0};
    collect_deps(b, b->kernels.at[i].root, true, &seen, (int)i);
    map_free(&seen);
  }
  find_hazards(b);
}

// --- small kernels --------------------------------------------------------------------------------------------------

enum { EACH_ELEMENTS = 1 << 14, EACH_STEPS = 1 << 17, EACH_WEIGHTS = 1 << 16 };

// Total steps of a reduction including the loops around it, whose lengths are constants.
static double steps_of(const uop *reduce) {
  double n = 1;
  const uop_list around = uop_ranges(reduce);
  for (size_t i = 0; i < around.n; i++) n *= (double)around.at[i]->src[0]->a;
  for (size_t i = (size_t)uop_first_range(reduce); i < reduce->nsrc; i++) n *= (double)reduce->src[i]->src[0]->a;
  return n;
}

// Is it cheaper if every thread computes the whole kernel than if all threads wait at a barrier?
static bool is_small(const builder *b, const uop *root, uop *store) {
  if (root->op == OP_ASSIGN) return false;
  double n = 1;
  for (int i = 0; i < root->shape->n; i++) {
    if (root->shape->dim[i]->op != OP_CONST) return false;
    n *= (double)root->shape->dim[i]->a;
  }
  if (n > EACH_ELEMENTS) return false;
  uop_list all = uop_toposort(b->mem, &store, 1);
  double steps = 0;
  for (size_t i = 0; i < all.n; i++) {
    const uop *u = all.at[i];
    bool weight = u->op == OP_BUFFER && u->memory == MEMORY_WEIGHT;
    if (weight && u->b * dtype_size((enum dtype)u->dt) > EACH_WEIGHTS) return false;
    if (u->op == OP_RANGE && u->src[0]->op != OP_CONST) return false;
    if (u->op == OP_REDUCE) steps += steps_of(u);
  }
  return steps <= EACH_STEPS;
}

static int kernel_level(builder *b, int i, unsigned char *state) {
  raw_kernel *k = &b->kernels.at[i];
  if (state[i] == 2) return k->level;
  die_if(state[i] == 1,
         "kernels wait for each other in a circle: a buffer is read after a store that the reader feeds");
  state[i] = 1;
  int level = 0;
  for (size_t j = 0; j < k->deps.n; j++) {
    bool own = !b->kernels.at[k->deps.at[j]].form->each;
    level = (int)max_i64(level, own + kernel_level(b, k->deps.at[j], state));
  }
  for (size_t j = 0; j < k->after.n; j++) level = (int)max_i64(level, 1 + kernel_level(b, k->after.at[j], state));
  state[i] = 2;
  return k->level = level;
}

// --- kernels over parameters ----------------------------------------------------------------------------------------

static const form *parametrise(builder *b, const uop *root, const map *numbers) {
  graph *g = b->g;
  uop *store = lower_kernel(b, (uop *)(uintptr_t)root);
  uop_list l = uop_toposort(b->mem, &store, 1);
  VEC(uop *) bufs = {0};
  map subst = {0};
  uop *out = store->src[0]->src[0];
  form *f = ARENA_NEW(b->mem, form);
  f->each = is_small(b, root, store);
  vec_push(&bufs, out);
  for (size_t i = 0; i < l.n; i++)
    if (l.at[i]->op == OP_BUFFER && l.at[i] != out) vec_push(&bufs, l.at[i]);
  f->n_bufs = (int)bufs.n;
  f->order = ARENA_ARRAY(b->mem, int, bufs.n);
  f->written = ARENA_ARRAY(b->mem, bool, bufs.n);
  for (size_t i = 0; i < bufs.n; i++) {
    f->written[i] = false;
    for (size_t j = 0; j < l.n; j++) f->written[i] |= l.at[j]->op == OP_STORE && l.at[j]->src[0]->src[0] == bufs.at[i];
  }
  for (size_t i = 0; i < bufs.n; i++) {
    const uop *u = bufs.at[i];
    uarg arg = {.a = (int64_t)i, .b = u->b, .memory = u->a >= TEMP_IDS ? MEMORY_TEMP : (enum memory_kind)u->memory};
    void *number;
    die_if(!map_get(numbers, (uint64_t)(uintptr_t)u, &number), "a kernel reads a buffer that is not below its tensor");
    f->order[i] = (int)(intptr_t)number;
    map_put(&subst, u, uop_new(g, OP_PARAM, (enum dtype)u->dt, 1, NULL, 0, arg));
  }
  store = uop_substitute(g, store, &subst);
  f->ast = uop_new(g, OP_SINK, DT_VOID, 1, &store, 1, (uarg){0});
  map_free(&subst);
  vec_free(&bufs);
  return f;
}

// Walks a kernel's tensors. key: everything that determines the kernel's form, as numbers; bufs: the buffers met, in
// order.
typedef struct seeing { builder *b; uop *root; VEC(uint64_t) key; VEC(uop *) bufs; map nodes, numbers; } seeing;

static void see_number(seeing *s, uint64_t n) { vec_push(&s->key, n); }

static void see_buffer(seeing *s, uop *buf, const shape *as) {
  if (!map_has(&s->numbers, buf)) { map_put(&s->numbers, buf, (void *)(intptr_t)s->bufs.n); vec_push(&s->bufs, buf); }
  see_number(s, OP_BUFFER | (uint64_t)buf->dt << 8 | (uint64_t)(buf->a >= TEMP_IDS) << 16);
  see_number(s, (uint64_t)(uintptr_t)map_ptr(&s->numbers, buf));
  see_number(s, (uint64_t)buf->b);
  see_number(s, buf->memory);
  see_number(s, (uint64_t)(uintptr_t)as);
}

// Visits u and what is below it down to memory, in the order of lower(). Scalars read no memory and are one node for
// all layers.
static void see(seeing *s, uop *u, bool top) {
  if (!u->shape) { see_number(s, OP_COUNT); see_number(s, (uint64_t)(uintptr_t)u); return; }
  void *number;
  if (map_get(&s->nodes, (uint64_t)(uintptr_t)u, &number)) {
    see_number(s, OP_COUNT + 1);
    see_number(s, (uint64_t)(uintptr_t)number);
    return;
  }
  map_put(&s->nodes, u, (void *)s->nodes.n);
  uop *buf = top ? NULL : map_ptr(&s->b->f.stored, u);
  if (buf && map_ptr(&s->b->f.home, u) == s->root) { see_buffer(s, buf, u->shape); buf = NULL; }
  if (buf || u->op == OP_BUFFER || u->op == OP_AFTER) { see_buffer(s, buf ? buf : uop_viewed(u), u->shape); return; }
  see_number(s, u->op | (uint64_t)u->dt << 8 | (uint64_t)u->lanes << 16 | (uint64_t)u->nsrc << 32);
  see_number(s, (uint64_t)u->a);
  see_number(s, (uint64_t)u->b);
  see_number(s, (uint64_t)(uintptr_t)u->s);
  see_number(s, (uint64_t)(uintptr_t)u->shape);
  for (size_t i = 0; i < u->nsrc; i++) see(s, u->src[i], false);
}

static void add_kernel(builder *b, uop *root) {
  raw_kernel k = {.root = root};
  seeing s = {.b = b, .root = root};
  see_buffer(&s, root->op == OP_ASSIGN ? uop_viewed(root->src[0]) : map_ptr(&b->f.stored, root), root->shape);
  see(&s, root, true);
  size_t bytes = s.key.n * sizeof *s.key.at;
  void *known;
  if (!smap_get(&b->forms, (const char *)s.key.at, bytes, &known)) {
    known = (void *)(uintptr_t)parametrise(b, root, &s.numbers);
    smap_set(&b->forms, memcpy(arena_alloc(b->mem, bytes), s.key.at, bytes), bytes, known);
  }
  k.form = known;
  k.bufs = ARENA_ARRAY(b->mem, uop *, s.bufs.n);
  memcpy(k.bufs, s.bufs.at, s.bufs.n * sizeof *k.bufs);
  map_put(&b->kernel_of, root, (void *)(intptr_t)b->kernels.n);
  for (size_t i = b->shared.n; i-- > 0;)
    if (map_ptr(&b->f.home, b->shared.at[i]) == root)
      map_put(&b->kernel_of, b->shared.at[i], (void *)(intptr_t)b->kernels.n);
  vec_push(&b->kernels, k);
  vec_free(&s.key); vec_free(&s.bufs);
  map_free(&s.nodes); map_free(&s.numbers);
}

static void fill_in(const builder *b, const raw_kernel *raw, sched_kernel *k) {
  const form *f = raw->form;
  *k = (sched_kernel){.ast = f->ast, .n_bufs = f->n_bufs, .level = raw->level, .each = f->each, .tensor = raw->root};
  k->bufs = ARENA_ARRAY(graph_arena(b->g), int64_t, f->n_bufs);
  k->written = ARENA_ARRAY(graph_arena(b->g), bool, f->n_bufs);
  for (int i = 0; i < f->n_bufs; i++) k->bufs[i] = raw->bufs[f->order[i]]->a;
  memcpy(k->written, f->written, (size_t)f->n_bufs * sizeof *k->written);
}

static int by_level(const void *p, const void *q) {
  const sched_kernel *a = p, *b = q;
  return a->level != b->level ? (a->level < b->level ? -1 : 1) : a->order - b->order;
}

static void find_temps(builder *b, schedule *s) {
  map index = {0};
  VEC(sched_temp) temps = {0};
  for (int i = 0; i < s->n_kernels; i++)
    for (int j = 0; j < s->kernels[i].n_bufs; j++) {
      int64_t id = s->kernels[i].bufs[j];
      if (id < TEMP_IDS) continue;
      void *at;
      if (!map_get(&index, (uint64_t)id, &at)) {
        at = (void *)(intptr_t)temps.n;
        map_set(&index, (uint64_t)id, at);
        vec_push(&temps, ((sched_temp){.id = id}));
      }
    }
  for (size_t i = 0; i < b->kernels.n; i++) {
    const form *f = b->kernels.at[i].form;
    for (int j = 0; j < f->n_bufs; j++) {
      uop *buf = b->kernels.at[i].bufs[f->order[j]];
      void *at;
      if (!f->written[j] || buf->a < TEMP_IDS || !map_get(&index, (uint64_t)buf->a, &at)) continue;
      sched_temp *t = &temps.at[(intptr_t)at];
      t->dt = (enum dtype)buf->dt;
      t->elems = buf->b;
      t->each = f->each;
      die_if(!mul_i64(buf->b, dtype_size(t->dt), &t->bytes), "an intermediate of more than 2^63 bytes");
    }
  }
  s->n_temps = (int)temps.n;
  s->temps = ARENA_ARRAY(graph_arena(b->g), sched_temp, temps.n);
  if (temps.n) memcpy(s->temps, temps.at, temps.n * sizeof *temps.at);
  vec_free(&temps);
  map_free(&index);
}

void schedule_place_temps(schedule *s) {
  map index = {0};
  for (int i = 0; i < s->n_temps; i++) {
    map_set(&index, (uint64_t)s->temps[i].id, &s->temps[i]);
    s->temps[i].first = s->n_levels;
    s->temps[i].last = 0;
  }
  for (int i = 0; i < s->n_kernels; i++)
    for (int j = 0; j < s->kernels[i].n_bufs; j++) {
      void *at;
      if (!map_get(&index, (uint64_t)s->kernels[i].bufs[j], &at)) continue;
      sched_temp *t = at;
      t->first = (int)min_i64(t->first, s->kernels[i].level);
      t->last = (int)max_i64(t->last, s->kernels[i].level);
    }
  map_free(&index);
  plan_memory(s);
}

static void print_schedule(const schedule *s) {
  for (int i = 0; i < s->n_kernels; i++) {
    str t = {0};
    const sched_kernel *k = &s->kernels[i];
    uop_print_expr(&t, k->ast);
    fprintf(stderr, "schedule: level %3d kernel %3d, %d buffers: %.400s\n", k->level, i, k->n_bufs, str_c(&t));
    str_free(&t);
  }
  fprintf(stderr, "schedule: %d kernels in %d dispatches, %d graph ops, arena %.2f MiB\n", s->n_kernels, s->n_levels,
          s->graph_ops, (double)s->arena_bytes / (1 << 20));
}

void schedule_graph(graph *g, uop *sink, schedule *out) {
  builder b = {.g = g, .mem = arena_new(), .f = {.g = g}};
  *out = (schedule){0};
  if (env_int(ENV_SPEC)) verify(g, sink, STAGE_TENSOR, "tensor graph");
  sink = flash_attention(g, sink);
  record_mark(g, sink, "flash attention");
  if (env_int(ENV_SPEC)) verify(g, sink, STAGE_TENSOR, "flash attention");
  fuse_decide(&b.f, sink, b.mem);
  uop_list order = uop_toposort(b.mem, &sink, 1);
  for (size_t i = 0; i < order.n; i++) {
    uop *u = order.at[i];
    unsigned f = op_flags((enum op)u->op);
    if (u->shape && ((f & OPF_ELEMENTWISE) || u->op == OP_REDUCE_AXIS || u->op == OP_GATHER)) out->graph_ops++;
    if (map_has(&b.f.home, u)) vec_push(&b.shared, u);
    else if (u->op == OP_ASSIGN || map_has(&b.f.stored, u)) add_kernel(&b, u);
  }
  find_deps(&b);
  unsigned char *state = ARENA_ARRAY(b.mem, unsigned char, b.kernels.n);
  out->n_kernels = (int)b.kernels.n;
  out->kernels = ARENA_ARRAY(graph_arena(g), sched_kernel, b.kernels.n);
  for (size_t i = 0; i < b.kernels.n; i++) {
    out->n_levels = (int)max_i64(out->n_levels, 1 + kernel_level(&b, (int)i, state));
    fill_in(&b, &b.kernels.at[i], &out->kernels[i]);
    out->kernels[i].order = (int)i;
  }
  if (out->n_kernels) qsort(out->kernels, b.kernels.n, sizeof *out->kernels, by_level);
  find_temps(&b, out);
  schedule_place_temps(out);
  if (debug_level() >= 1) print_schedule(out);
  for (size_t i = 0; i < b.kernels.n; i++) { vec_free(&b.kernels.at[i].deps); vec_free(&b.kernels.at[i].after); }
  vec_free(&b.kernels);
  vec_free(&b.shared);
  map_free(&b.f.home);
  map_free(&b.f.stored); map_free(&b.f.height); map_free(&b.kernel_of); map_free(&b.readers);
  smap_free(&b.forms);
  arena_free(b.mem);
}
