// Linearisation. A program is a tree of regions, one per loop; every node goes to the outermost open region in which all ranges
// that it depends on are open, so that whatever a loop does not change is computed before it. A REDUCE becomes a variable in
// the region where it belongs, and a loop that updates it; reductions over the same ranges in the same region share the loop.
// Code of a region is collected apart and joins its parent when the loop is closed: what is hoisted comes before the loop.
#include "codegen/linearize.h"
#include <stdlib.h>
#include <string.h>
#include "codegen/opt.h"

enum { MAX_DEPTH = 24 };

typedef struct region { uop *range; uint64_t mask; VEC(uop *) code; map done; } region;

typedef struct linear {
  graph *g;
  const target *t;
  map bits;                  // RANGE -> its bit
  map sets;                  // node -> set of ranges that it depends on
  map opened;                // ranges whose loop has been opened before: the next one gets a fresh number
  uop_list all;
  region stack[MAX_DEPTH];
  int depth;
  int64_t next_range, next_acc;
} linear;

static uint64_t set_of(const linear *l, const uop *u) { return (uint64_t)(uintptr_t)map_ptr(&l->sets, u); }
static void find_sets(linear *l) {
  int n = 0;
  for (size_t i = 0; i < l->all.n; i++) {
    uop *u = l->all.at[i];
    uint64_t s = 0;
    if (u->op == OP_RANGE) {
      if (n == 64) die("a kernel with more than 64 ranges");
      s = 1ull << n++;
      map_put(&l->bits, u, (void *)(uintptr_t)s);
      l->next_range = max_i64(l->next_range, u->a + 1);
    }
    for (size_t j = 0; j < u->nsrc; j++) s |= set_of(l, u->src[j]);
    if (u->op == OP_REDUCE)
      for (size_t j = (size_t)uop_first_range(u); j < u->nsrc; j++) s &= ~(uint64_t)(uintptr_t)map_ptr(&l->bits, u->src[j]);
    map_put(&l->sets, u, (void *)(uintptr_t)s);
  }
}

static int target_region(const linear *l, uint64_t set) {
  for (int i = 0; i < l->depth; i++) if (!(set & ~l->stack[i].mask)) return i;
  die("a value depends on a range that no loop opens");
}

static void append(region *r, uop *u) { vec_push(&r->code, u); }

static uop *emit(linear *l, uop *u);

static void open_loop(linear *l, uop *range) {
  if (l->depth == MAX_DEPTH) die("loops nested too deeply");
  uop *end = emit(l, range->src[0]), *fresh = range;
  if (map_has(&l->opened, range) || end != range->src[0])
    fresh = uop_new(l->g, OP_RANGE, (enum dtype)range->dt, 1, &end, 1, (uarg){.a = l->next_range++, .b = range->b});
  map_put(&l->opened, range, (void *)1);
  region *r = &l->stack[l->depth];
  *r = (region){.range = fresh, .mask = l->stack[l->depth - 1].mask | (uint64_t)(uintptr_t)map_ptr(&l->bits, range)};
  l->depth++;
  append(r, fresh);
  map_put(&r->done, range, fresh);
}

static void close_loop(linear *l) {
  region *r = &l->stack[--l->depth], *parent = &l->stack[l->depth - 1];
  append(r, uop_new(l->g, OP_END, DT_VOID, 1, &r->range, 1, (uarg){0}));
  for (size_t i = 0; i < r->code.n; i++) append(parent, r->code.at[i]);
  vec_free(&r->code);
  map_free(&r->done);
}

static bool same_ranges(const uop *x, const uop *y) {
  size_t nx = x->nsrc - (size_t)uop_first_range(x), ny = y->nsrc - (size_t)uop_first_range(y);
  return nx == ny && !memcmp(x->src + uop_first_range(x), y->src + uop_first_range(y), nx * sizeof *x->src);
}

// acc op value: a multiply-add where the machine has it
static uop *combine(linear *l, region *r, const uop *reduce, uop *acc, uop *value) {
  bool product = reduce->a == OP_ADD && value->op == OP_MUL && (value->dt == DT_F32 || value->dt == DT_F64) && l->t->has_fma;
  uop *u;
  if (value->op == OP_DOT4 && uop_unsplat(value->src[0])->op == OP_CONST) {
    uop *a = emit(l, value->src[1]), *b = emit(l, value->src[2]);
    u = uop_new(l->g, OP_DOT4, (enum dtype)reduce->dt, reduce->lanes, (uop *[]){acc, a, b}, 3, (uarg){0});
  } else if (product) {
    uop *a = emit(l, value->src[0]), *b = emit(l, value->src[1]);
    u = uop_op3(l->g, OP_FMA, a, b, acc);
  } else {
    uop *v = emit(l, value);
    u = uop_new(l->g, (enum op)reduce->a, (enum dtype)reduce->dt, reduce->lanes, (uop *[]){acc, v}, 2, (uarg){0});
  }
  append(r, u);
  return u;
}

// A reduction whose ranges are all unrolled is a chain.
static void emit_chain(linear *l, uop *u, int where) {
  region *r = &l->stack[where];
  uop *cur = emit(l, u->src[0]);
  for (int v = 1; v < uop_first_range(u); v++) cur = combine(l, r, u, cur, u->src[v]);
  map_put(&r->done, u, cur);
}

// All reductions that share ranges and region with `first` run in one loop.
static void emit_reduces(linear *l, uop *first, int where) {
  VEC(uop *) group = {0};
  for (size_t i = 0; i < l->all.n; i++) {
    uop *u = l->all.at[i];
    if (u->op != OP_REDUCE || !same_ranges(u, first) || map_has(&l->stack[where].done, u)) continue;
    if ((set_of(l, u) & ~l->stack[where].mask) || target_region(l, set_of(l, u)) != where) continue;
    vec_push(&group, u);
  }
  uop **acc = xcalloc(group.n, sizeof *acc), **cur = xcalloc(group.n, sizeof *cur);
  for (size_t i = 0; i < group.n; i++) {
    uop *init = emit(l, monoid_identity(l->g, group.at[i], (enum op)group.at[i]->a));
    acc[i] = cur[i] = uop_new(l->g, OP_ACC, (enum dtype)group.at[i]->dt, group.at[i]->lanes, &init, 1, (uarg){.a = l->next_acc++});
    append(&l->stack[where], acc[i]);
  }
  int opened = 0;
  for (size_t i = (size_t)uop_first_range(first); i < first->nsrc; i++) { open_loop(l, first->src[i]); opened++; }
  region *body = &l->stack[l->depth - 1];
  for (int v = 0, more = 1; more; v++) {
    more = 0;
    for (size_t i = 0; i < group.n; i++) {
      if (v >= uop_first_range(group.at[i])) continue;
      more = 1;
      cur[i] = combine(l, body, group.at[i], cur[i], group.at[i]->src[v]);
    }
  }
  for (size_t i = 0; i < group.n; i++) append(body, uop_new(l->g, OP_SET, DT_VOID, 1, (uop *[]){acc[i], cur[i]}, 2, (uarg){0}));
  while (opened--) close_loop(l);
  for (size_t i = 0; i < group.n; i++) map_put(&l->stack[where].done, group.at[i], acc[i]);
  free(acc); free(cur);
  vec_free(&group);
}

// A reduction goes to region `where`; the regions inside wait meanwhile.
static void emit_reduction(linear *l, uop *u, int where) {
  region saved[MAX_DEPTH];
  int depth = l->depth, inner = depth - where - 1;
  memcpy(saved, l->stack + where + 1, (size_t)inner * sizeof *saved);
  l->depth = where + 1;
  if ((size_t)uop_first_range(u) == u->nsrc) emit_chain(l, u, where);
  else emit_reduces(l, u, where);
  memcpy(l->stack + where + 1, saved, (size_t)inner * sizeof *saved);
  l->depth = depth;
}

static uop *known(const linear *l, const uop *u) {
  for (int i = l->depth; i-- > 0;) {
    uop *hit = map_ptr(&l->stack[i].done, u);
    if (hit) return hit;
  }
  return NULL;
}

static void find_set(linear *l, uop *u) {            // of a node made here (constants)
  if (map_has(&l->sets, u)) return;
  uint64_t s = 0;
  for (size_t i = 0; i < u->nsrc; i++) { find_set(l, u->src[i]); s |= set_of(l, u->src[i]); }
  map_put(&l->sets, u, (void *)(uintptr_t)s);
}

static uop *emit(linear *l, uop *u) {
  uop *hit = known(l, u);
  if (hit) return hit;
  find_set(l, u);
  int where = target_region(l, set_of(l, u));
  if (u->op == OP_REDUCE) { emit_reduction(l, u, where); return known(l, u); }
  uop *few[8], **s = u->nsrc <= 8 ? few : xmalloc(u->nsrc * sizeof *s);
  for (size_t i = 0; i < u->nsrc; i++) s[i] = emit(l, u->src[i]);
  uop *to = u->nsrc ? uop_new(l->g, (enum op)u->op, (enum dtype)u->dt, u->lanes, s, u->nsrc, (uarg){u->a, u->b, u->s, u->s_len}) : u;
  if (s != few) free(s);
  append(&l->stack[where], to);
  map_put(&l->stack[where].done, u, to);
  return to;
}

static void guarded(linear *l, uop *cond, uop *index, uop *value) {
  region *r = &l->stack[l->depth - 1];
  uop *store = uop_new(l->g, OP_STORE, DT_VOID, 1, (uop *[]){index, value}, 2, (uarg){0});
  if (cond) append(r, uop_new(l->g, OP_IF, DT_VOID, 1, &cond, 1, (uarg){0}));
  append(r, store);
  if (cond) append(r, uop_new(l->g, OP_ENDIF, DT_VOID, 1, NULL, 0, (uarg){0}));
}

// Appends a node whose sources stand already, unless it stands there itself.
static uop *once(linear *l, uop *u) {
  region *r = &l->stack[l->depth - 1];
  if (known(l, u)) return u;
  append(r, u);
  map_put(&r->done, u, u);
  return u;
}

static uop *lane(linear *l, uop *v, int i) {
  if (v->lanes == 1) return v;
  return once(l, uop_new(l->g, OP_EXTRACT, (enum dtype)v->dt, 1, &v, 1, (uarg){.a = i}));
}

static void emit_store(linear *l, uop *st) {
  uop *index = st->src[0], *i = index->src[1], *value = emit(l, st->src[1]), *mem = emit(l, index->src[0]);
  if (i->op != OP_WHERE || uop_unsplat(i->src[2])->op != OP_INVALID) { guarded(l, NULL, emit(l, index), value); return; }
  uop *cond = emit(l, i->src[0]), *at = emit(l, i->src[1]);
  for (int k = 0; k < value->lanes; k++) {
    uop *address = uop_index(l->g, mem, lane(l, at, k)), *c = lane(l, cond, k);
    once(l, address);
    guarded(l, c, address, lane(l, value, k));
  }
}

void linearize(graph *g, uop *ast, const target *t, program *p) {
  arena *a = arena_new();
  linear l = {.g = g, .t = t, .depth = 1};
  l.all = uop_toposort(a, &ast, 1);
  find_sets(&l);
  // parameters first, so that every program declares its arguments in order
  for (int n = 0; n < p->n_bufs; n++)
    for (size_t i = 0; i < l.all.n; i++) if (l.all.at[i]->op == OP_PARAM && l.all.at[i]->a == n) emit(&l, l.all.at[i]);
  uop *first = ast->src[0];
  for (size_t i = 2; i < first->nsrc; i++) open_loop(&l, first->src[i]);
  for (size_t i = 0; i < ast->nsrc; i++) if (ast->src[i]->op == OP_STORE) emit_store(&l, ast->src[i]);
  while (l.depth > 1) close_loop(&l);
  p->n = l.stack[0].code.n;
  p->at = ARENA_ARRAY(p->mem, uop *, p->n);
  memcpy(p->at, l.stack[0].code.at, p->n * sizeof *p->at);
  vec_free(&l.stack[0].code);
  map_free(&l.stack[0].done);
  map_free(&l.bits); map_free(&l.sets); map_free(&l.opened);
  arena_free(a);
}
