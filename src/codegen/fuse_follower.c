// Fuses a short kernel into the launch of the kernel that it follows. Rounding a product's output, 32 rows at a time,
// or rotating a key by its position needs only the part of the product that one work-group made, and a separate launch
// costs more than the work. The follower runs in the same launch, after a barrier for what the work-group has stored.
//
// The first kernel keeps its ranges; they determine the follower's: a range that moves a read by whole tiles becomes
// the number of the work-group, a range that moves it within a tile becomes a work-item's. The coefficients of the
// index expressions decide whether that is possible. Followers are short and do not wait for each other, so each gets
// its own work-items (merge_launches.c).
#include "codegen/fuse_follower.h"
#include <string.h>
#include "codegen/heuristic_impl.h"
#include "graph/symbolic.h"

// --- the work of a work-group on a tile ------------------------------------------------------------------------------

// The number of work-groups; 0 if it is not known.
static int64_t groups_of(const kernel *k) {
  const uop *store = k->ast->src[0];
  uop *ranges[MAX_AXES];
  int64_t groups = 1;
  for (size_t i = 2; i < store->nsrc; i++) if (store->src[i]->src[0]->op != OP_CONST) return 0;
  for (int n = kernel_group_ranges(k, ranges); n-- > 0;) if (!mul_i64(groups, ranges[n]->src[0]->a, &groups)) return 0;
  return groups;
}

// Is index `at` in work-group g always in [g * tile, (g + 1) * tile)?
static bool in_tiles(const kernel *k, uop *at, int64_t tile) {
  uop *ranges[MAX_AXES];
  int64_t stride = tile;
  bool ok = true;
  map zero = {0};
  for (int n = kernel_group_ranges(k, ranges); n-- > 0 && ok;) {
    ok = idx_factor(at, ranges[n]) == stride;
    stride *= ranges[n]->src[0]->a;
    map_put(&zero, ranges[n], uop_idx(k->g, 0));
  }
  uop *rest = ok ? simplify(k->g, uop_substitute(k->g, at, &zero)) : NULL;
  map_free(&zero);
  return rest && rest->vmin >= 0 && rest->vmax < tile;
}

int64_t follower_tile(const kernel *k) {
  const uop *index = k->ast->src[0]->src[0];
  int64_t groups = groups_of(k), elems = index->src[0]->b;
  if (k->ast->nsrc != 1 || !groups || elems % groups) return 0;
  return in_tiles(k, index->src[1], elems / groups) ? elems / groups : 0;
}

// --- a kernel that follows -------------------------------------------------------------------------------------------

enum { MOST_UNROLLED = 64 };

// The largest distance that a step of r moves the reads of a tile; -1 if it is unknown.
static int64_t step_in_tile(const loads *l, const uop *r) {
  int64_t most = 0;
  for (int i = 0; i < l->n; i++) {
    int64_t c = index_coefficient(l->at[i]->src[0], r);
    if (c < 0) return -1;
    most = max_i64(most, c);
  }
  return most;
}

static void loads_of_param(const kernel *k, int64_t param, loads *out) {
  loads all;
  find_loads(k->ast->src[0]->src[1], &all);
  out->n = 0;
  for (int i = 0; i < all.n; i++) {
    const uop *mem = all.at[i]->src[0]->src[0];
    if (mem->op == OP_PARAM && mem->a == param) out->at[out->n++] = all.at[i];
  }
}

// Unrolls short sums, so that their loads are in flight together.
static void unroll_sums(kernel *k) {
  axes x;
  int64_t steps = 1;
  kernel_axes(k, &x);
  for (int i = x.n; i-- > x.n_out;) {
    const uop *end = x.at[i]->src[0];
    if (end->op == OP_CONST && steps * end->a <= MOST_UNROLLED && kernel_apply(k, (opt){OPT_UNROLL, i, 0})) {
      steps *= end->a;
      kernel_axes(k, &x);
    }
  }
}

bool fuse_follower(kernel *k, int64_t follows, int64_t tile) {
  loads l;
  axes x;
  int64_t items = 1;
  int numbers = 0;
  loads_of_param(k, follows, &l);
  kernel_axes(k, &x);
  for (int i = 0; i < x.n_out; i++) {
    const uop *end = x.at[i]->src[0];
    int64_t c = step_in_tile(&l, x.at[i]);
    if (c < 0 || end->op != OP_CONST) return false;
    if (c >= tile) continue;
    int64_t n = c && c * end->a > tile ? tile / c : end->a;
    if (n > 1 && (++numbers > MOST_NUMBERS || !apply_to(k, OPT_LOCAL, x.at[i], n == end->a ? 0 : (int)n))) return false;
    items *= n;
  }
  unroll_sums(k);
  int64_t groups = groups_of(k);
  bool ok = groups && l.n && items <= k->t->max_group;
  loads_of_param(k, follows, &l);
  for (int i = 0; i < l.n && ok; i++)
    ok = l.at[i]->src[0]->src[0]->b == groups * tile && in_tiles(k, l.at[i]->src[0]->src[1], tile);
  return ok;
}

// --- which kernels follow --------------------------------------------------------------------------------------------

enum { MOST_STEPS = 1024 /* operations of an item that follows */ };

typedef struct chaining {
  shapes *known;
  schedule *s;
  smap followers;                                  // "AST param tile groups" -> shape; NULL if it cannot follow
} chaining;

// The shape of a kernel that follows one of shape `first`, whose output is its PARAM `param`; NULL if it cannot.
static const launch_shape *follower_of(chaining *c, uop *ast, int64_t param, const launch_shape *first) {
  struct { uop *ast; int64_t param, tile, groups; } key = {ast, param, first->tile, first->groups};
  arena *mem = c->known->mem;
  void *hit;
  if (smap_get(&c->followers, (const char *)&key, sizeof key, &hit)) return hit;
  program *p = codegen(c->known->g, ast, c->known->t, &(codegen_options){.follows = param, .tile = first->tile});
  launch_shape *f = ARENA_NEW(mem, launch_shape);
  *f = shape_of(p, ast);
  bool fits = f->tile && f->fits && f->groups == first->groups && !f->waits && !f->shared &&
              p->flops->vmax / (f->groups * f->items) <= MOST_STEPS;
  program_free(p);
  if (!fits) f = NULL;
  smap_set(&c->followers, memcpy(arena_alloc(mem, sizeof key), &key, sizeof key), sizeof key, f);
  return f;
}

// The argument of y that x writes, if the two kernels have no other buffer in common; otherwise -1.
static int argument_of(const sched_kernel *x, const sched_kernel *y) {
  int at = -1;
  for (int i = 0; i < x->n_bufs; i++)
    for (int j = 0; j < y->n_bufs; j++) {
      if (x->bufs[i] != y->bufs[j] || (!x->written[i] && !y->written[j])) continue;
      if (!x->written[i] || y->written[j] || at >= 0) return -1;
      at = j;
    }
  return at;
}

// May kernel j run right after kernel i, given all other kernels? A kernel of the same level that comes before both
// matters only if it is `each`.
static bool may_come_earlier(const schedule *s, int i, int j) {
  for (int other = j; other-- > 0 && s->kernels[other].level >= s->kernels[i].level;)
    if (other != i && (other > i || !s->kernels[other].each) && kernels_conflict(&s->kernels[other], &s->kernels[j]))
      return false;
  return true;
}

// Merges the followers of kernel i into it and marks them in `gone`.
static void chain_one(chaining *c, int i, bool *gone) {
  schedule *s = c->s;
  sched_kernel *k = &s->kernels[i];
  launch_set m = {.n = 0};
  int64_t shared = -1;
  for (int j = i + 1; j < s->n_kernels && s->kernels[j].level <= k->level + 1 && m.n < MOST_MERGED; j++) {
    sched_kernel *next = &s->kernels[j];
    int param = gone[j] ? -1 : argument_of(k, next);
    if (param < 0 || !may_come_earlier(s, i, j)) continue;
    const launch_shape *first = shape_for(c->known, k->ast);
    if (!first->tile || !first->fits || first->groups < 2) return;
    if (!m.n) launch_set_add(&m, 0, k, first);
    if (m.n_bufs + next->n_bufs > most_arguments(c->known->t)) continue;
    const launch_shape *f = follower_of(c, next->ast, param, first);
    if (!f) continue;
    launch_set_add(&m, 1, next, f);
    gone[j] = true;
    shared = next->bufs[param];
  }
  if (m.n > 1) *k = launch_set_kernel(c->known->g, &m, shared, (uarg){.a = 1});
}

void fuse_followers(shapes *known, schedule *s) {
  chaining c = {.known = known, .s = s};
  bool *gone = ARENA_ARRAY(known->mem, bool, s->n_kernels);
  int kept = 0;
  memset(gone, 0, (size_t)s->n_kernels * sizeof *gone);
  for (int i = 0; i < s->n_kernels; i++) if (!gone[i]) chain_one(&c, i, gone);
  for (int i = 0; i < s->n_kernels; i++) if (!gone[i]) s->kernels[kept++] = s->kernels[i];
  s->n_kernels = kept;
  schedule_place_temps(s);
  smap_free(&c.followers);
}
