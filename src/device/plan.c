// Builds plans. Building compiles each distinct kernel once (layers share kernels; plan_kernels.c), assigns memory to
// every step and packs weights (plan_layouts.c); replay.c runs the plan.
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/attempt.h"
#include "base/os.h"
#include "device/memory.h"
#include "device/plan_impl.h"

enum { ARENA_ALIGN = 4096 };

void plan_arguments(const sched_kernel *k, plan_argument *args) {
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &(uop *){k->ast}, 1);
  for (size_t i = 0; i < l.n; i++) {
    const uop *u = l.at[i];
    if (u->op == OP_PARAM)
      args[u->a] =
        (plan_argument){(uint64_t)u->b * (uint64_t)dtype_size((enum dtype)u->dt), is_weight(u), k->written[u->a]};
  }
  arena_free(a);
}

static intptr_t temp_offset(const map *temps, int64_t id) {
  void *v;
  die_if(!map_get(temps, (uint64_t)id, &v), "an intermediate without a place");
  return (intptr_t)v;
}

typedef struct building {
  plan *p;
  const schedule *s;
  const plan_options *o;
  map unique, temps;
  int r;
  error *err;
} building;

// The arena shared by all threads, and the one of each thread.
static int64_t arena_shared(const schedule *s) { return (int64_t)round_up((size_t)s->arena_bytes, ARENA_ALIGN); }
static int64_t arena_own(const schedule *s) { return (int64_t)round_up((size_t)s->each_bytes, ARENA_ALIGN); }

uint64_t plan_arena_needed(const device *d, const schedule *s, bool prompt) {
  return (uint64_t)(arena_shared(s) + arena_own(s) * team_size(prompt ? d->prompt_team : d->team));
}

// Finds the distinct kernels of a schedule.
static void find_kernels(building *b) {
  plan *p = b->p;
  const schedule *s = b->s;
  p->asts = ARENA_ARRAY(p->mem, uop *, s->n_kernels + 1);
  p->stats = (plan_stats){.kernels = s->n_kernels,
                          .dispatches = s->n_levels,
                          .graph_ops = s->graph_ops,
                          .arena_bytes = s->arena_bytes};
  p->kernels = xcalloc((size_t)s->n_kernels, sizeof *p->kernels);
  for (int i = 0; i < s->n_kernels; i++)
    if (!is_gathering(s->kernels[i].ast) && !map_has(&b->unique, s->kernels[i].ast)) {
      map_put(&b->unique, s->kernels[i].ast, (void *)(intptr_t)p->stats.unique);
      p->asts[p->stats.unique++] = s->kernels[i].ast;
    }
}

static int by_variable_name(const void *p, const void *q) {
  return strcmp((*(uop *const *)p)->s, (*(uop *const *)q)->s);
}

// A step without code: its kernel has a name, and its tiles are the number of periods.
static void make_gathering(plan *p, const sched_kernel *k, step *t) {
  rank_step *r = ARENA_NEW(p->mem, rank_step);
  program *q = ARENA_NEW(p->mem, program);
  *q = (program){.name = "allgather", .graph = p->g, .mem = p->mem};
  *r = (rank_step){.of = ARENA_ARRAY(p->mem, gathered_buffer, k->n_bufs), .n = k->n_bufs, .k.p = q};
  uop_list l = uop_toposort(p->mem, &k->ast, 1);
  q->vars = ARENA_ARRAY(p->mem, uop *, l.n);
  for (size_t i = 0; i < l.n; i++) if (l.at[i]->op == OP_VAR) q->vars[q->n_vars++] = l.at[i];
  if (q->n_vars) qsort(q->vars, (size_t)q->n_vars, sizeof *q->vars, by_variable_name);
  int64_t moved = 0;
  for (int i = 0; i < r->n; i++) {
    gathering *what = &r->of[i].what;
    r->of[i].size = (size_t)dtype_size((enum dtype)k->ast->src[i]->src[0]->dt);
    kernel_gathers(k->ast, i, what);
    moved += (what->cut[what->n] - what->cut[0]) * (int64_t)r->of[i].size;
    p->gatherings = hash_bytes(&what->period, sizeof what->period, p->gatherings + r->of[i].size);
    p->gatherings = hash_bytes(what->cut, sizeof what->cut, p->gatherings + what->to);
  }
  q->tiles = r->of[0].what.count;
  q->bytes = uop_op2(p->g, OP_MUL, q->tiles, uop_idx(p->g, moved));
  q->flops = uop_idx(p->g, 0);
  t->ranks = r;
  t->k = &r->k;
  t->unique = -1;
}

static void build_steps(void *ctx) {
  building *b = ctx;
  plan *p = b->p;
  device *d = p->d;
  const schedule *s = b->s;
  const plan_options *o = b->o;
  error *err = b->err;
  find_kernels(b);
  int n = p->stats.unique;
  int r = plan_compile(d, p->g, p->asts, p->kernels, n, false, o, &p->stats, err) ||
              d->run->link(d, p->kernels, n, &p->code, err)
            ? -1
            : 0;
  int64_t shared = arena_shared(s), own = arena_own(s);
  p->stats.arena_bytes = shared + own * p->n_threads;
  if (!r && p->stats.arena_bytes) {
    p->arena_at = d->run->alloc(d, (uint64_t)p->stats.arena_bytes, PAGES_HUGE, err);
    if (!p->arena_at) r = -1;
  }
  for (int i = 0; i < s->n_temps; i++)
    map_set(&b->temps, (uint64_t)s->temps[i].id,
            (void *)(intptr_t)(s->temps[i].offset + (s->temps[i].each ? shared : 0)));
  p->steps = ARENA_ARRAY(p->mem, step, s->n_kernels);
  p->parts = os_lines_take(sizeof(part) * ((size_t)s->n_kernels * (size_t)p->n_threads + 1));
  die_if(!p->parts, "out of memory");
  for (int i = 0; i < s->n_kernels && !r; i++) {
    const sched_kernel *k = &s->kernels[i];
    step *t = &p->steps[i];
    if (is_gathering(k->ast)) make_gathering(p, k, t);
    else t->k = &p->kernels[t->unique = (int)(intptr_t)map_ptr(&b->unique, k->ast)];
    t->level = k->level;
    t->parts = &p->parts[(size_t)i * (size_t)p->n_threads];
    t->each = k->each;
    t->n_bufs = k->n_bufs;
    t->bufs = ARENA_ARRAY(p->mem, unsigned char *, k->n_bufs * p->n_threads + 1);
    if (d->run->record) {
      plan_argument *args = ARENA_ARRAY(p->mem, plan_argument, k->n_bufs + 1);
      memset(args, 0, ((size_t)k->n_bufs + 1) * sizeof *args);
      plan_arguments(k, args);
      t->args = args;
    }
    for (int f = 0; f < k->n_bufs; f++) {
      bool temp = k->bufs[f] >= TEMP_IDS;
      intptr_t at = temp ? temp_offset(&b->temps, k->bufs[f]) : 0;
      unsigned char *first = temp ? (unsigned char *)p->arena_at + at : o->buffer(o->ctx, k->bufs[f]);
      for (int j = 0; j < p->n_threads; j++) t->bufs[j * k->n_bufs + f] = first + (temp && at >= shared ? own * j : 0);
    }
    if (o->role) o->role(o->ctx, s, i, t->role, sizeof t->role);
  }
  if (!r) r = plan_bind_layouts(p, s, o, err);
  if (!r && d->run->record) r = d->run->record(p, err);
  b->r = r;
}

// A broken invariant fails only this plan.
int plan_build(device *d, graph *g, const schedule *s, const plan_options *o, plan **out, error *err) {
  plan *p = xcalloc(1, sizeof *p);
  building b = {.p = p, .s = s, .o = o, .err = err};
  p->d = d;
  p->team = o->prompt ? d->prompt_team : d->team;
  p->n_threads = team_size(p->team);
  p->flushes = o->flushes;
  p->demand = o->demand;
  p->starts = o->starts;
  p->ends = o->ends;
  p->shared = o->starts && ranks_here().n > 1;
  p->starts_ctx = o->ctx;
  p->g = g;
  p->mem = arena_new();
  if (attempt(ATTEMPT_LEAVES, build_steps, &b, err)) b.r = -1;
  map_free(&b.temps);
  map_free(&b.unique);
  if (b.r) { plan_free(p); return -1; }
  *out = p;
  return 0;
}

void plan_record_again(plan *p) {
  void *before = p->recorded;
  error err = {0};
  p->recorded = NULL;                      // memory that both read stays unchanged
  int r = p->d->run->record(p, &err);
  void *now = p->recorded;
  p->recorded = before;
  p->d->run->forget(p);
  p->recorded = now;
  device_note(p->d, r, &err);
}

void plan_free(plan *p) {
  if (!p) return;
  if (p->recorded) p->d->run->forget(p);
  code_unmap(p->code);
  plan_free_kernels(p->kernels, p->stats.unique);
  for (int i = 0; p->alternatives && i < p->stats.unique; i++) {
    plan_free_kernels(&p->alternatives[i].k, 1);
    code_unmap(p->alternatives[i].code);
  }
  free(p->alternatives);
  for (size_t i = 0; i < p->copies.n; i++) p->d->run->release(p->d, p->copies.at[i].at, p->copies.at[i].bytes);
  vec_free(&p->copies);
  vec_free(&p->reads);
  p->d->run->release(p->d, p->arena_at, (uint64_t)p->stats.arena_bytes);
  free(p->kernels);
  free(p->marks);
  os_lines_free(p->parts);
  arena_free(p->mem);
  free(p);
}

uint64_t plan_gatherings(const plan *p) { return p->gatherings; }
plan_stats plan_get_stats(const plan *p) { return p->stats; }

uint64_t plan_arena_used(const plan *p) {
  uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), all = (uint64_t)p->stats.arena_bytes, used = 0;
  size_t n = (size_t)((all + page - 1) / page);
  unsigned char *there = xcalloc(n + 1, 1);
  bool known = p->d->run->here && memory_resident(p->arena_at, all, there);
  for (size_t i = 0; i < n; i++) used += there[i] & 1 ? page : 0;
  free(there);
  return known ? used : all;
}
struct team *plan_team(const plan *p) { return p->team; }
