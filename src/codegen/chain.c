// Rounding what a product has computed, 32 rows at a time, or turning a key by its position, needs no more of that
// product than one work-group made of it. As a launch of its own it costs more than its work does; so it follows in the
// same launch, behind a barrier for what the work-group has stored.
//
// The first kernel keeps its ranges. Those of one that follows are decided by them: what moves a read by whole tiles is
// the number of the work-group, what moves it inside of a tile is an item's. Whether that fits is told from
// coefficients of index expressions. Followers are short and wait for nobody, so that each has items of its own
// (join.c).
#include "codegen/chain.h"
#include <stdlib.h>
#include <string.h>
#include "codegen/heuristic_impl.h"
#include "codegen/join.h"
#include "graph/digest.h"
#include "graph/symbolic.h"

// --- what a work-group has to do with a tile -------------------------------------------------------------------------

// Ranges that are left become the number of the work-group, the last one fastest: how many work-groups are there? 0:
// not known.
static int64_t groups_of(const kernel *k) {
  const uop *store = k->ast->src[0];
  int64_t n = 1;
  for (size_t i = 2; i < store->nsrc; i++) {
    const uop *r = store->src[i];
    if (r->src[0]->op != OP_CONST) return 0;
    if (r->b == AXIS_LOOP && !mul_i64(n, r->src[0]->a, &n)) return 0;
  }
  return kernel_has_guards(k) ? 0 : n;
}

// Is index `at` in work-group g always one from g * tile on, and less than (g + 1) * tile?
static bool in_tiles(const kernel *k, uop *at, int64_t tile) {
  const uop *store = k->ast->src[0];
  int64_t stride = tile;
  bool ok = true;
  map zero = {0};
  for (size_t i = store->nsrc; i-- > 2 && ok;) {
    uop *r = store->src[i];
    if (r->b != AXIS_LOOP) continue;
    ok = idx_factor(at, r) == stride;
    stride *= r->src[0]->a;
    map_put(&zero, r, uop_idx(k->g, 0));
  }
  uop *rest = ok ? simplify(k->g, uop_substitute(k->g, at, &zero)) : NULL;
  map_free(&zero);
  return rest && rest->vmin >= 0 && rest->vmax < tile;
}

int64_t chain_tile(const kernel *k) {
  const uop *index = k->ast->src[0]->src[0];
  int64_t groups = groups_of(k), elems = index->src[0]->b;
  if (k->ast->nsrc != 1 || !groups || elems % groups) return 0;
  return in_tiles(k, index->src[1], elems / groups) ? elems / groups : 0;
}

// --- a kernel that follows -------------------------------------------------------------------------------------------

enum { MOST_NUMBERS = 3, MOST_UNROLLED = 64 };

// How far a step of r moves the reads of a tile, at most; -1: it cannot be told.
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

// The reads of a short sum are on their way together.
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

bool chain_follow(kernel *k, int64_t follows, int64_t tile) {
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
  graph *g;
  schedule *s;
  const target *t;
  arena *mem;
  map tiles;                                       // of kernels that may be first
  smap followers;                                  // "AST param tile" -> follower
} chaining;

typedef struct first_kernel { int64_t tile, groups; } first_kernel;
typedef struct follower { bool fits; char digest[65]; } follower;

static int64_t number_of(const uop *n) { return !n ? 1 : n->op == OP_CONST ? n->a : 0; }

static const first_kernel *first_of(chaining *c, uop *ast) {
  first_kernel *f = map_ptr(&c->tiles, ast);
  if (f) return f;
  program *p = codegen(c->g, ast, c->t, NULL);
  f = ARENA_NEW(c->mem, first_kernel);
  *f = (first_kernel){p->tile, p->global[1] || p->global[2] ? 0 : number_of(p->global[0])};
  program_free(p);
  map_put(&c->tiles, ast, f);
  return f;
}

static bool waits(const program *p) {
  bool any = false;
  for (size_t i = 0; i < p->n; i++)
    any |= p->at[i]->op == OP_BARRIER || p->at[i]->op == OP_SWAP || p->at[i]->op == OP_MMA ||
           (p->at[i]->op == OP_LOCAL && p->at[i]->memory != MEMORY_TILE);
  return any;
}

static const follower *follower_of(chaining *c, uop *ast, int64_t param, const first_kernel *first) {
  struct { uop *ast; int64_t param, tile, groups; } key = {ast, param, first->tile, first->groups};
  void *known;
  if (smap_get(&c->followers, (const char *)&key, sizeof key, &known)) return known;
  follower *f = ARENA_NEW(c->mem, follower);
  program *p = codegen(c->g, ast, c->t, &(codegen_options){.follows = param, .tile = first->tile});
  int64_t groups = number_of(p->global[0]), items = 1;
  for (int i = 0; i < 3; i++) items *= number_of(p->local[i]);
  f->fits = p->tile && groups == first->groups && items && p->flops->vmax / (groups * items) <= MOST_STEPS && !waits(p);
  program_free(p);
  sha256 sum;
  sha256_begin(&sum);
  uop_digest(&sum, ast);
  sha256_end(&sum, f->digest);
  smap_set(&c->followers, memcpy(arena_alloc(c->mem, sizeof key), &key, sizeof key), sizeof key, f);
  return f;
}

// The argument of y that is what x writes, if that is all that they have in common; -1.
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

// May kernel number j of the next level run as soon as number i has, as far as all others are concerned?
static bool may_come_earlier(const schedule *s, int i, int j) {
  const sched_kernel *first = &s->kernels[i], *k = &s->kernels[j];
  for (int other = j; other-- > 0 && s->kernels[other].level >= first->level;)
    if (other != i && kernels_conflict(&s->kernels[other], k)) return false;
  for (int other = i + 1; s->kernels[other].level == first->level; other++)
    if (other != i && kernels_conflict(&s->kernels[other], k)) return false;
  return true;
}

// Adds the follower, in an order that does not depend on that of the schedule.
static void add_follower(sched_kernel **of, const follower **forms, int *n, sched_kernel *k, const follower *f) {
  int at = (*n)++;
  for (; at > 1 && strcmp(forms[at - 1]->digest, f->digest) > 0; at--) {
    of[at] = of[at - 1];
    forms[at] = forms[at - 1];
  }
  of[at] = k;
  forms[at] = f;
}

// What follows kernel number i becomes part of it; `gone` says which.
static void chain_one(chaining *c, int i, bool *gone) {
  schedule *s = c->s;
  sched_kernel *of[MOST_JOINED], *k = of[0] = &s->kernels[i];
  const follower *forms[MOST_JOINED] = {NULL};
  int n = 1, end = i, bufs = k->n_bufs;
  while (end < s->n_kernels && s->kernels[end].level <= k->level + 1) end++;
  for (int j = i + 1; j < end && n < MOST_JOINED; j++) {
    sched_kernel *next = &s->kernels[j];
    int param = next->level > k->level && !gone[j] ? argument_of(k, next) : -1;
    if (param < 0 || bufs + next->n_bufs - 1 > most_arguments(c->t) || !may_come_earlier(s, i, j)) continue;
    const first_kernel *first = first_of(c, k->ast);
    if (!first->tile || first->groups < 2) break;
    const follower *f = follower_of(c, next->ast, param, first);
    if (!f->fits) continue;
    bufs += next->n_bufs - 1;
    gone[j] = true;
    add_follower(of, forms, &n, next, f);
  }
  if (n == 1) return;
  int64_t shared = k->bufs[0];
  for (int b = 0; b < k->n_bufs; b++) if (k->written[b]) shared = k->bufs[b];
  *k = join_parts(c->g, of, n, shared, (uarg){.a = 1});
}

void chain_kernels(graph *g, schedule *s, const target *t) {
  chaining c = {.g = g, .s = s, .t = t, .mem = arena_new()};
  bool *gone = ARENA_ARRAY(c.mem, bool, s->n_kernels);
  int kept = 0;
  memset(gone, 0, (size_t)s->n_kernels * sizeof *gone);
  for (int i = 0; i < s->n_kernels; i++) if (!gone[i] && !s->kernels[i].each) chain_one(&c, i, gone);
  for (int i = 0; i < s->n_kernels; i++) if (!gone[i]) s->kernels[kept++] = s->kernels[i];
  s->n_kernels = kept;
  schedule_place_temps(s);
  map_free(&c.tiles);
  smap_free(&c.followers);
  arena_free(c.mem);
}
