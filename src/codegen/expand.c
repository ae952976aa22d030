// Expands axis kinds. UPCAST and UNROLL are substitutions: the expression is copied with the range replaced by each of
// its values, and hash-consing makes the copies share nodes that do not depend on it. LANE converts expressions that
// depend on the range to vectors, bottom up: a load whose address grows by one element per lane becomes one wide load,
// values that do not depend on the lane stay scalar until they meet a vector, and a reduction over lanes keeps partial
// sums in lanes until the end.
#include "codegen/expand.h"
#include <stdlib.h>
#include "codegen/opt.h"

typedef uop *visitor(graph *g, uop *u, uop **src, void *ctx);

enum { MOST_LATE = 64 };             // more than MOST_BOUND: sums that work-items share take over ranges (opt_groups.c)

static void few_sources(const uop *u, size_t n) {
  die_if(n > MOST_LATE, "%s of %u", op_name((enum op)u->op), u->nsrc);
}

// Rebuilds the DAG, sources first, through a visitor.
static uop *rebuild(graph *g, uop *root, visitor *visit, void *ctx) {
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &root, 1);
  map done = {0};
  for (size_t i = 0; i < l.n; i++) {
    uop *u = l.at[i], **s = ARENA_ARRAY(a, uop *, u->nsrc + 1);
    for (size_t j = 0; j < u->nsrc; j++) s[j] = map_ptr(&done, u->src[j]);
    map_put(&done, u, visit(g, u, s, ctx));
  }
  uop *r = map_ptr(&done, root);
  map_free(&done);
  arena_free(a);
  return r;
}

// --- gates ----------------------------------------------------------------------------------------------------------

// A load whose condition may fail reads element 0 instead, which every buffer has, and its value is replaced by 0.
static uop *gate_load(graph *g, uop *u, uop **s, void *ctx) {
  (void)ctx;
  uop *v = uop_with_src(g, u, s), *i;
  if (u->op != OP_LOAD || (i = v->src[0]->src[1])->op != OP_WHERE || i->src[2]->op != OP_INVALID) return v;
  uop *safe = simplify(g, uop_op3(g, OP_WHERE, i->src[0], i->src[1], uop_idx(g, 0)));
  uop *load = uop_load_from(g, v, uop_index(g, v->src[0]->src[0], safe), 1);
  return uop_op3(g, OP_WHERE, i->src[0], load, uop_const_like(g, load, 0));
}

uop *expand_gates(graph *g, uop *ast) { return rebuild(g, ast, gate_load, NULL); }

// --- groups ---------------------------------------------------------------------------------------------------------

// REDUCE over a GROUP range: every work-item reduces its part and stores the partial result in work-group memory, at an
// element of its own (one per copy: stages). After a barrier each work-item adds all partial results. Work-items of one
// subgroup need neither memory nor barrier: each adds its neighbour's value, then the value of the pair next to it, and
// so on; all get equal bits because a + b equals b + a. Neighbouring work-items are consecutive along the GROUP ranges,
// or (rows_first) along the LOCAL ones. STEP: always by exchange, among the work-items that have the rows.
enum { FIRST_GROUP = 1 << 24 };            // numbers of work-group memory, after those of stages
typedef struct group_ctx {
  const uop *store;
  int64_t next_local, next_range, swapped;
  bool rows_first;
  map shared;                              // expansion of a sum -> the sum over GROUP ranges only
} group_ctx;

static uop *reduce_by_swaps(graph *g, enum op op, uop *v, int64_t items) {
  for (int bit = 0; 1 << bit < items; bit++)
    v = uop_op2(g, op, v, uop_new(g, OP_SWAP, (enum dtype)v->dt, 1, &v, 1, (uarg){.a = bit}));
  return v;
}

static uop *own_part(graph *g, const group_ctx *c, int64_t *n) {
  uop *at = uop_idx(g, 0);
  *n = 1;
  for (size_t i = 2; i < c->store->nsrc; i++) {
    uop *r = c->store->src[i];
    if (r->op != OP_RANGE || r->b != AXIS_LOCAL) continue;
    at = idx_add(g, idx_mul(g, at, r->src[0]), r);
    *n *= r->src[0]->a;
  }
  return at;
}

// A sum over GROUP ranges, or a sum of such sums.
static uop *exchanged(graph *g, group_ctx *c, uop *sum) {
  enum { MOST_LEVELS = 4, MOST_GROUPS = 8 };
  uop *level[MOST_LEVELS], *again[MOST_LEVELS][1 + MOST_GROUPS], *mine = uop_idx(g, 0), *others = uop_idx(g, 0),
      *partial = sum;
  int n_levels = 0;
  int64_t size = 1, parts;
  for (; is_shared_out(partial) && n_levels < MOST_LEVELS; partial = partial->src[0]) {
    uop *u = level[n_levels] = partial;
    die_if(u->nsrc > 1 + MOST_GROUPS, "too many GROUP axes");
    for (size_t i = 1; i < u->nsrc; i++) {
      uop *r = again[n_levels][i] = uop_range(g, u->src[i]->src[0], c->next_range++, AXIS_REDUCE);
      mine = idx_add(g, idx_mul(g, mine, r->src[0]), u->src[i]);
      others = idx_add(g, idx_mul(g, others, r->src[0]), r);
      size *= r->src[0]->a;
    }
    n_levels++;
  }
  enum dtype dt = (enum dtype)sum->dt;
  if (size == c->swapped && (dt == DT_F32 || dt == DT_I32 || dt == DT_U32))
    return reduce_by_swaps(g, (enum op)sum->a, partial, size);
  uop *base = own_part(g, c, &parts), *by = uop_idx(g, c->rows_first ? parts : size);
  if (c->rows_first) { mine = idx_mul(g, mine, by); others = idx_mul(g, others, by); }
  else base = idx_mul(g, base, by);
  uop *mem = uop_new(g, OP_LOCAL, dt, 1, NULL, 0, (uarg){.a = c->next_local++, .b = size * parts});
  uop *store =
    uop_new(g, OP_STORE, DT_VOID, 1, (uop *[]){uop_index(g, mem, idx_add(g, base, mine)), partial}, 2, (uarg){0});
  uop *barrier = uop_new(g, OP_BARRIER, DT_VOID, 1, &store, 1, (uarg){0});
  uop *v = uop_new(g, OP_LOAD, dt, 1, (uop *[]){uop_index(g, mem, idx_add(g, base, others)), barrier}, 2, (uarg){0});
  while (n_levels--) {
    again[n_levels][0] = v;
    v = uop_new(g, OP_REDUCE, dt, 1, again[n_levels], level[n_levels]->nsrc, (uarg){.a = level[n_levels]->a});
  }
  return v;
}

static uop *group_reduce(graph *g, uop *u, uop **s, void *ctx) {
  group_ctx *c = ctx;
  if (u->op != OP_REDUCE) return uop_with_src(g, u, s);
  uop *keep[MOST_LATE], *groups[MOST_LATE];
  size_t n = (size_t)uop_first_range(u), n_groups = 1;
  few_sources(u, u->nsrc);
  int64_t in_step = 1;
  for (size_t i = 0; i < n; i++) keep[i] = s[i];
  for (size_t i = (size_t)uop_first_range(u); i < u->nsrc; i++) {
    if (s[i]->b == AXIS_GROUP) groups[n_groups++] = s[i];
    else if (s[i]->b == AXIS_STEP) in_step = s[i]->src[0]->a;
    else keep[n++] = s[i];
  }
  if (n_groups == 1 && in_step == 1) return uop_with_src(g, u, s);
  uop *partial = n > (size_t)uop_first_range(u) || uop_first_range(u) > 1
                   ? uop_new(g, OP_REDUCE, (enum dtype)u->dt, 1, keep, n, (uarg){.a = u->a, .b = u->b})
                   : keep[0];
  if (in_step > 1) return reduce_by_swaps(g, (enum op)u->a, partial, in_step);
  groups[0] = map_has(&c->shared, partial) ? map_ptr(&c->shared, partial) : partial;
  uop *sum = uop_new(g, OP_REDUCE, (enum dtype)u->dt, 1, groups, n_groups, (uarg){.a = u->a}),
      *v = exchanged(g, c, sum);
  map_put(&c->shared, v, sum);
  return v;
}

uop *expand_groups(graph *g, uop *ast, int64_t swapped, bool rows_first) {
  group_ctx c = {.store = ast->src[0],
                 .next_local = FIRST_GROUP,
                 .next_range = 1 << 20,
                 .swapped = swapped,
                 .rows_first = rows_first};
  ast = rebuild(g, ast, group_reduce, &c);
  map_free(&c.shared);
  return ast;
}

// --- stages ---------------------------------------------------------------------------------------------------------

// A stage that is copied for the steps of an UPCAST range or the lanes of an output has memory for each copy; the lanes
// are next to each other.
typedef struct stage_copies { uop *store, *first, *lane; int64_t n, lanes; } stage_copies;
typedef struct stages { VEC(stage_copies) at; } stages;

static void find_copies(graph *g, uop *store, stage_copies *c) {
  *c = (stage_copies){.store = store, .first = uop_idx(g, 0), .n = 1, .lanes = 1};
  VEC(uop *) ranges = {0};
  for (size_t i = 0; i < uop_ranges(store).n; i++) vec_push(&ranges, uop_ranges(store).at[i]);
  for (size_t i = 1; i < ranges.n; i++)                 // by number
    for (size_t j = i; j > 0 && ranges.at[j]->a < ranges.at[j - 1]->a; j--) {
      uop *t = ranges.at[j];
      ranges.at[j] = ranges.at[j - 1];
      ranges.at[j - 1] = t;
    }
  for (size_t i = 0; i < ranges.n; i++) {
    uop *r = ranges.at[i];
    if (r->b == AXIS_LANE) { c->lane = r; c->lanes = r->src[0]->a; }
    if (r->b != AXIS_UPCAST) continue;
    c->first = idx_add(g, idx_mul(g, c->first, r->src[0]), r);
    c->n *= r->src[0]->a;
  }
  vec_free(&ranges);
}

static uop *own_place(graph *g, uop *u, uop **s, void *ctx) {
  stages *all = ctx;
  uop *v = uop_with_src(g, u, s);
  if (u->op != OP_INDEX || u->src[0]->op != OP_LOCAL) return v;
  const stage_copies *c = NULL;
  for (size_t i = 0; i < all->at.n && !c; i++) if (all->at.at[i].store->src[0]->src[0] == u->src[0]) c = &all->at.at[i];
  if (!c) return v;
  const uop *mem = u->src[0];
  uop *at = idx_add(g, v->src[1], idx_mul(g, c->first, uop_idx(g, mem->b)));
  if (c->lane) at = idx_add(g, idx_mul(g, at, uop_idx(g, c->lanes)), c->lane);
  uop *own = uop_new(g, OP_LOCAL, (enum dtype)mem->dt, 1, NULL, 0,
                     (uarg){.a = mem->a, .b = mem->b * c->n * c->lanes, .memory = (enum memory_kind)mem->memory});
  return uop_index(g, own, simplify(g, at));
}

uop *expand_stages(graph *g, uop *ast) {
  stages all = {0};
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &ast, 1);
  for (size_t i = 0; i < l.n; i++) {
    uop *u = l.at[i];
    stage_copies c;
    if (u->op != OP_STORE || u->src[0]->src[0]->op != OP_LOCAL) continue;
    find_copies(g, u, &c);
    if (c.n > 1 || c.lane) vec_push(&all.at, c);
  }
  arena_free(a);
  if (all.at.n) ast = rebuild(g, ast, own_place, &all);
  vec_free(&all.at);
  return ast;
}

// A stage over work-items instead of ranges is computed by the whole work-group, in work-group memory; readers wait at
// a barrier.
static uop *stage_of_group(graph *g, uop *u, uop **s, void *ctx) {
  const map *shared = ctx;
  if (u->op == OP_LOCAL && map_has(shared, u))
    return uop_new(g, OP_LOCAL, (enum dtype)u->dt, 1, NULL, 0, (uarg){.a = u->a, .b = u->b});
  if (u->op == OP_STORE && u->src[0]->src[0]->op == OP_LOCAL && map_has(shared, u->src[0]->src[0])) {
    uop *src[MOST_LATE];
    size_t n = 0;
    few_sources(u, u->nsrc);
    for (size_t i = 0; i < u->nsrc; i++) if (i < 2 || s[i]->op == OP_RANGE) src[n++] = s[i];
    uop *store = uop_new(g, OP_STORE, DT_VOID, 1, src, n, (uarg){0});
    return uop_new(g, OP_BARRIER, DT_VOID, 1, &store, 1, (uarg){0});
  }
  return uop_with_src(g, u, s);
}

uop *expand_shared_stages(graph *g, uop *store) {
  map shared = {0};
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &store, 1);
  for (size_t i = 0; i < l.n; i++) {
    uop *u = l.at[i];
    if (u == store || u->op != OP_STORE || u->src[0]->src[0]->op != OP_LOCAL) continue;
    for (size_t j = 2; j < u->nsrc; j++) if (u->src[j]->op != OP_RANGE) map_put(&shared, u->src[0]->src[0], u);
  }
  arena_free(a);
  if (shared.n) store = rebuild(g, store, stage_of_group, &shared);
  map_free(&shared);
  return store;
}

// --- unrolling ------------------------------------------------------------------------------------------------------

static uop *with_number(graph *g, uop *u, uop *r, int64_t i) {
  map m = {0};
  map_put(&m, r, uop_idx(g, i));
  uop *v = simplify(g, uop_substitute(g, u, &m));
  map_free(&m);
  return v;
}

// The STOREs of a stage with unrolled loops: several, in a SINK of their own.
static uop *unroll_stage(graph *g, uop *u, uop **s) {
  VEC(uop *) stores = {0};
  uop *src[MOST_LATE], *all;
  size_t n = 2;
  few_sources(u, u->nsrc);
  for (size_t i = 2; i < u->nsrc; i++) if (s[i]->b != AXIS_UNROLL) src[n++] = s[i];
  if (n == u->nsrc) return uop_with_src(g, u, s);
  src[0] = s[0]; src[1] = s[1];
  vec_push(&stores, uop_new(g, OP_STORE, DT_VOID, 1, src, n, (uarg){0}));
  for (size_t i = 2; i < u->nsrc; i++) {
    VEC(uop *) more = {0};
    if (s[i]->b != AXIS_UNROLL) continue;
    for (size_t v = 0; v < stores.n; v++)
      for (int64_t k = 0; k < s[i]->src[0]->a; k++) vec_push(&more, with_number(g, stores.at[v], s[i], k));
    vec_free(&stores);
    stores.at = more.at; stores.n = more.n; stores.cap = more.cap;
  }
  all = uop_new(g, OP_SINK, DT_VOID, 1, stores.at, stores.n, (uarg){0});
  vec_free(&stores);
  return all;
}

// A node that is ordered after a SINK of STOREs is ordered after each of them.
static uop *after_each(graph *g, uop *u, uop **s) {
  VEC(uop *) src = {0};
  for (size_t i = 0; i < u->nsrc; i++) {
    if (s[i]->op != OP_SINK) { vec_push(&src, s[i]); continue; }
    for (size_t j = 0; j < s[i]->nsrc; j++) vec_push(&src, s[i]->src[j]);
  }
  uop *r = uop_new(g, (enum op)u->op, (enum dtype)u->dt, u->lanes, src.at, src.n, uop_arg(u));
  vec_free(&src);
  return r;
}

static uop *unroll(graph *g, uop *u, uop **s, void *ctx) {
  (void)ctx;
  if (u->op == OP_STORE) return unroll_stage(g, u, s);
  if (u->op == OP_LOAD || u->op == OP_BARRIER) return after_each(g, u, s);
  if (u->op != OP_REDUCE) return uop_with_src(g, u, s);
  VEC(uop *) values = {0};
  uop *ranges[MOST_LATE];
  size_t n = 0;
  few_sources(u, u->nsrc - (size_t)uop_first_range(u));
  for (int i = 0; i < uop_first_range(u); i++) vec_push(&values, s[i]);
  for (size_t i = (size_t)uop_first_range(u); i < u->nsrc; i++) {
    if (s[i]->b != AXIS_UNROLL) { ranges[n++] = s[i]; continue; }
    VEC(uop *) more = {0};
    for (size_t v = 0; v < values.n; v++)
      for (int64_t k = 0; k < s[i]->src[0]->a; k++) vec_push(&more, with_number(g, values.at[v], s[i], k));
    vec_free(&values);
    values.at = more.at; values.n = more.n; values.cap = more.cap;
  }
  int64_t count = (int64_t)values.n;
  for (size_t i = 0; i < n; i++) vec_push(&values, ranges[i]);
  uop *r =
    uop_new(g, OP_REDUCE, (enum dtype)u->dt, 1, values.at, values.n, (uarg){.a = u->a, .b = count > 1 ? count : 0});
  vec_free(&values);
  return r;
}

uop *expand_unrolls(graph *g, uop *ast) {
  ast = rebuild(g, ast, unroll, NULL);
  VEC(uop *) stores = {0};
  vec_push(&stores, ast->src[0]);
  for (;;) {
    uop *r = NULL;
    for (size_t i = 2; i < stores.at[0]->nsrc && !r; i++)
      if (stores.at[0]->src[i]->b == AXIS_UPCAST) r = stores.at[0]->src[i];
    if (!r) break;
    VEC(uop *) more = {0};
    for (size_t v = 0; v < stores.n; v++) {
      uop *src[MOST_LATE], *st = stores.at[v];
      size_t n = 2;
      few_sources(st, st->nsrc);
      src[0] = st->src[0]; src[1] = st->src[1];
      for (size_t i = 2; i < st->nsrc; i++) if (st->src[i] != r) src[n++] = st->src[i];
      uop *without = uop_new(g, OP_STORE, DT_VOID, 1, src, n, (uarg){0});
      for (int64_t k = 0; k < r->src[0]->a; k++) {
        uop *one = with_number(g, without, r, k);
        // skip a copy that is entirely out of bounds
        if (one->src[0]->src[1]->op != OP_INVALID) vec_push(&more, one);
      }
    }
    vec_free(&stores);
    stores.at = more.at; stores.n = more.n; stores.cap = more.cap;
  }
  uop *sink = uop_new(g, OP_SINK, DT_VOID, 1, stores.at, stores.n, (uarg){0});
  vec_free(&stores);
  return sink;
}

// --- lanes ----------------------------------------------------------------------------------------------------------

static uop *lane_of(const uop *list, size_t from) {
  for (size_t i = from; i < list->nsrc; i++)
    if (list->src[i]->op == OP_RANGE && list->src[i]->b == AXIS_LANE) return list->src[i];
  return NULL;
}

// Does the address of an index expression grow evenly along range r (NULL: the LANE range below it; there is at most
// one)? base and step are in elements.
static bool even_steps(graph *g, uop *i, const uop *r, uop **base, int64_t *step) {
  uop *cond = NULL;
  if (i->op == OP_WHERE) { cond = i->src[0]; i = i->src[1]; }
  idx_sum s;
  if (!idx_sum_of(i, &s)) return false;
  int along = -1;
  for (int t = 0; t < s.n; t++)
    if (r ? s.atom[t] == r : s.atom[t]->op == OP_RANGE && s.atom[t]->b == AXIS_LANE) {
      if (along >= 0) return false;
      along = t;
    }
  if (along < 0) return false;
  r = s.atom[along];
  if (cond && uop_varies(cond, r)) return false;
  *step = s.coeff[along];
  s.coeff[along] = 0;
  for (int t = 0; t < s.n; t++) if (t != along && uop_varies(s.atom[t], r)) return false;
  int n = 0;
  for (int t = 0; t < s.n; t++) if (s.coeff[t]) { s.atom[n] = s.atom[t]; s.coeff[n++] = s.coeff[t]; }
  s.n = n;
  *base = idx_sum_build(g, &s);
  if (cond) *base = uop_op3(g, OP_WHERE, cond, *base, uop_idx(g, 0));
  return true;
}

// An INDEX in lanes: a scalar address if consecutive lanes are consecutive elements of `dt`, otherwise one address per
// lane.
static uop *lane_index(graph *g, uop *index, uop *vector_index, enum dtype dt, int lanes) {
  uop *base;
  int64_t step;
  int unit = dtype_size((enum dtype)index->src[0]->dt);
  if (even_steps(g, index->src[1], NULL, &base, &step) && step * unit == dtype_size(dt) &&
      lanes * step <= index->src[0]->b)
    return uop_index(g, index->src[0], base);
  return uop_index(g, index->src[0], vector_index);
}

static uop *to_lanes(graph *g, uop *u, uop **s, void *ctx);

// Operand `a` of a DOT product: k consecutive values along the inner range for each of n lanes (rows), in k * n lanes.
// Values that are equal for all k are computed in n lanes and repeated where they meet values that differ.
typedef struct dot_lanes { uop *inner; int k; map both; } dot_lanes;

enum { MAX_LANES = 1024 };

// Lanes first, first + step, ... of v, each repeated `times` times.
static uop *every_lane(graph *g, uop *v, int lanes, int first, int step, int times) {
  unsigned char from[2 * MAX_LANES];
  die_if(lanes > MAX_LANES, "%d lanes", lanes);
  for (int i = 0; i < lanes; i++) {
    int lane = first + i / times * step;
    from[2 * i] = (unsigned char)lane;
    from[2 * i + 1] = (unsigned char)(lane >> 8);
  }
  return uop_new(g, OP_SHUFFLE, (enum dtype)v->dt, lanes, &v, 1,
                 (uarg){.s = (const char *)from, .s_len = 2 * (uint32_t)lanes});
}

static uop *dot_operand(graph *g, uop *u, uop **s, void *ctx);

// The element number in lane i. Sums of addresses are computed for each lane as scalars, which costs nothing in scalar
// registers. Numbers that were loaded as a vector stay in lanes.
static uop *number_of_lane(graph *g, uop *v, int i) {
  if (v->lanes == 1) return v;
  switch (v->op) {
  case OP_SPLAT: return v->src[0];
  case OP_LANE: return uop_idx(g, i);
  case OP_CAST: return uop_cast(g, number_of_lane(g, v->src[0], i), (enum dtype)v->dt);
  case OP_ADD: case OP_MUL:
    if (v->dt != DT_IDX) break;
    return simplify(
      g, uop_op2(g, (enum op)v->op, number_of_lane(g, v->src[0], i), number_of_lane(g, v->src[1], i)));
  case OP_LOAD: {
    uop *mem = v->src[0]->src[0];
    int step = dtype_size((enum dtype)v->dt), unit = dtype_size((enum dtype)mem->dt);
    if (v->src[0]->lanes > 1 || step % unit) break;
    return uop_load_from(g, v, uop_index(g, mem, idx_add(g, v->src[0]->src[1], uop_idx(g, i * (step / unit)))), 1);
  }
  default: break;
  }
  return uop_new(g, OP_EXTRACT, (enum dtype)v->dt, 1, &v, 1, (uarg){.a = i});
}

// Loads an element of u's memory at each of these places.
static uop *load_each(graph *g, uop *u, uop *places, enum dtype dt) {
  VEC(uop *) each = {0};
  for (int i = 0; i < places->lanes; i++) {
    uop *load = uop_load_from(g, u, uop_index(g, u->src[0]->src[0], number_of_lane(g, places, i)), 1);
    vec_push(&each, uop_new(g, OP_LOAD, dt, 1, load->src, load->nsrc, (uarg){0}));
  }
  uop *v = each.n == 1 ? each.at[0] : uop_new(g, OP_STACK, dt, (int)each.n, each.at, each.n, (uarg){0});
  vec_free(&each);
  return v;
}

// Do the element numbers of all lanes leave remainder `r` when divided by n?
static bool has_remainder(uop *i, int64_t n, int64_t *r) {
  idx_sum s;
  if (!idx_sum_of(i, &s)) return false;
  for (int t = 0; t < s.n; t++) if (s.coeff[t] % n) return false;
  *r = s.constant % n;
  return true;
}

// Loads one word per row if the k neighbours of a row share no word with the next row. Two neighbouring words in
// entries of a table are loaded as one, which the user of the other word loads as well. NULL: the bytes are not
// neighbours in memory.
static uop *load_words(graph *g, uop *u, uop **s, dot_lanes *c) {
  uop *mem = u->src[0]->src[0], *base;
  int64_t step, size = dtype_size((enum dtype)u->dt), unit = dtype_size((enum dtype)mem->dt), rest;
  if (c->k * size != 4 || !even_steps(g, u->src[0]->src[1], c->inner, &base, &step) || step * unit != size) return NULL;
  u = uop_with_src(g, u, s);
  int64_t pair = 8 / unit;
  bool paired =
    mem->memory == MEMORY_WEIGHT && mem->b % pair == 0 && has_remainder(base, pair, &rest) && rest * unit % 4 == 0;
  if (paired) base = idx_sub(g, base, uop_idx(g, rest));
  uop *places = rebuild(g, simplify(g, base), dot_operand, c);
  if (places->lanes == 1) return NULL;                         // equal for all rows
  uop *load = load_each(g, u, places, paired ? DT_U64 : DT_U32);
  if (paired) {
    int n = load->lanes;
    load = uop_new(g, OP_BITCAST, DT_U32, 2 * n, &load, 1, (uarg){0});
    load = every_lane(g, load, n, (int)(rest * unit / 4), 2, 1);
  }
  return uop_new(g, OP_BITCAST, (enum dtype)u->dt, c->k * load->lanes, &load, 1, (uarg){0});
}

static uop *dot_operand(graph *g, uop *u, uop **s, void *ctx) {
  dot_lanes *c = ctx;
  uop *at, *base, *src[64];
  int64_t step;
  if (!uop_varies(u, c->inner)) return to_lanes(g, u, s, NULL);
  if (u == c->inner) return rebuild(g, simplify(g, uop_substitute(g, u, &c->both)), to_lanes, NULL);
  int lanes = 1;
  for (size_t i = 0; i < u->nsrc; i++) lanes = s[i]->lanes > lanes ? s[i]->lanes : lanes;
  die_if(u->nsrc > COUNT(src), "%s of %u", op_name((enum op)u->op), u->nsrc);
  for (size_t i = 0; i < u->nsrc; i++)
    src[i] = s[i]->lanes > 1 && s[i]->lanes < lanes ? every_lane(g, s[i], lanes, 0, 1, lanes / s[i]->lanes) : s[i];
  if (u->op != OP_LOAD) return to_lanes(g, u, src, NULL);
  uop *mem = u->src[0]->src[0];
  at = simplify(g, uop_substitute(g, u->src[0]->src[1], &c->both));
  if (even_steps(g, at, NULL, &base, &step) && lanes * step <= mem->b &&
      step * dtype_size((enum dtype)mem->dt) == dtype_size((enum dtype)u->dt))
    return uop_load_from(g, uop_with_src(g, u, src), uop_index(g, mem, base), lanes);
  uop *words = load_words(g, u, src, c);
  return words ? words : uop_load_from(g, uop_with_src(g, u, src), src[0], lanes);
}

// The product of a DOT reduction: CAST(a) * CAST(x). a depends on the lane and on the inner range; x loads consecutive
// numbers along the inner range. k neighbours are taken at a time: one lane number covers rows and inner range.
static uop *dot_product(graph *g, uop *product, enum dtype acc, uop *inner) {
  uop *a, *x, *lane = NULL;
  int k = dot_products(acc);
  arena *mem = arena_new();
  uop_list l = uop_toposort(mem, &product, 1);
  for (size_t i = 0; i < l.n; i++) if (l.at[i]->op == OP_RANGE && l.at[i]->b == AXIS_LANE) lane = l.at[i];
  arena_free(mem);
  die_if(!dot_operands(product, acc, lane, &a, &x), "a DOT axis over operands that do not fit");
  int n = lane ? (int)lane->src[0]->a : 1;
  uop *both = uop_range(g, uop_idx(g, k * n), 1 << 21, AXIS_LANE);
  dot_lanes c = {.inner = inner, .k = k};
  if (lane) map_put(&c.both, lane, idx_div(g, both, uop_idx(g, k)));
  map_put(&c.both, inner, idx_mod(g, both, uop_idx(g, k)));
  a = rebuild(g, a, dot_operand, &c);
  if (a->lanes > 1 && a->lanes < k * n) a = every_lane(g, a, k * n, 0, 1, k * n / a->lanes);
  map_free(&c.both);
  map first = {0};
  map_put(&first, inner, uop_idx(g, 0));
  uop *at = simplify(g, uop_substitute(g, x->src[0]->src[1], &first));
  map_free(&first);
  x = uop_splat(g, uop_load(g, uop_index(g, x->src[0]->src[0], at), DT_U32, 1), n);
  uop *zero = acc == DT_I32 ? uop_int(g, DT_I32, 0) : uop_float(g, DT_F32, 0);
  return uop_new(g, OP_DOT, acc, n, (uop *[]){uop_splat(g, zero, n), uop_splat(g, a, k * n), x}, 3, (uarg){0});
}

static uop *dot_reduce(graph *g, uop *u, uop **s, uop *inner) {
  VEC(uop *) src = {0};
  for (int i = 0; i < uop_first_range(u); i++) vec_push(&src, dot_product(g, u->src[i], (enum dtype)u->dt, inner));
  int lanes = src.at[0]->lanes;
  for (size_t i = (size_t)uop_first_range(u); i < u->nsrc; i++) if (u->src[i] != inner) vec_push(&src, s[i]);
  uop *r = src.n == 1 ? src.at[0]
                      : uop_new(g, OP_REDUCE, (enum dtype)u->dt, lanes, src.at, src.n, (uarg){.a = OP_ADD, .b = u->b});
  vec_free(&src);
  return r;
}

static uop *lane_reduce(graph *g, uop *u, uop **s) {
  for (size_t i = (size_t)uop_first_range(u); i < u->nsrc; i++)
    if (u->src[i]->b == AXIS_DOT) return dot_reduce(g, u, s, u->src[i]);
  uop *lane = lane_of(u, (size_t)uop_first_range(u));
  VEC(uop *) src = {0};
  int lanes = lane ? (int)lane->src[0]->a : 1;
  for (int i = 0; i < uop_first_range(u); i++) lanes = s[i]->lanes > lanes ? s[i]->lanes : lanes;
  for (int i = 0; i < uop_first_range(u); i++) vec_push(&src, uop_splat(g, s[i], lanes));
  for (size_t i = (size_t)uop_first_range(u); i < u->nsrc; i++) if (u->src[i] != lane) vec_push(&src, s[i]);
  uop *r = src.n == 1 ? src.at[0]
                      : uop_new(g, OP_REDUCE, (enum dtype)u->dt, lanes, src.at, src.n, (uarg){.a = u->a, .b = u->b});
  vec_free(&src);
  return lane ? uop_new(g, OP_HREDUCE, (enum dtype)u->dt, 1, &r, 1, (uarg){.a = u->a}) : r;
}

// An integer sum that starts with a dot product, plus y: it starts from y instead of 0, which saves an addition. The
// order of additions does not matter modulo 2^32.
static uop *start_from(graph *g, uop *sum, uop *y) {
  bool chain = sum->op == OP_REDUCE && sum->a == OP_ADD && (size_t)uop_first_range(sum) == sum->nsrc;
  const uop *first = chain ? sum->src[0] : sum;
  if (sum->dt != DT_I32 || first->op != OP_DOT || !uop_is_int(uop_unsplat(first->src[0]), 0)) return NULL;
  y = uop_splat(g, y, sum->lanes);
  if (!chain) return uop_new(g, OP_DOT, DT_I32, sum->lanes, (uop *[]){y, sum->src[1], sum->src[2]}, 3, (uarg){0});
  VEC(uop *) src = {0};
  vec_push(&src, y);
  for (size_t i = 0; i < sum->nsrc; i++) vec_push(&src, sum->src[i]);
  uop *r = uop_new(g, OP_REDUCE, DT_I32, sum->lanes, src.at, src.n, (uarg){.a = OP_ADD, .b = (int64_t)src.n});
  vec_free(&src);
  return r;
}

static uop *to_lanes(graph *g, uop *u, uop **s, void *ctx) {
  (void)ctx;
  int lanes = 1;
  for (size_t i = 0; i < u->nsrc; i++) lanes = s[i]->lanes > lanes ? s[i]->lanes : lanes;
  switch (u->op) {
  case OP_RANGE:
    return u->b == AXIS_LANE ? uop_new(g, OP_LANE, DT_IDX, (int)u->src[0]->a, NULL, 0, (uarg){0})
                             : uop_with_src(g, u, s);
  case OP_REDUCE: return lane_reduce(g, u, s);
  case OP_LOAD: {
    if (lanes == 1) return uop_with_src(g, u, s);
    uop *index = lane_index(g, u->src[0], s[0]->src[1], (enum dtype)u->dt, lanes);
    return uop_load_from(g, uop_with_src(g, u, s), index, lanes);
  }
  case OP_STORE: {
    uop *lane = lane_of(u, 2), *src[MOST_LATE];
    size_t n = 2;
    few_sources(u, u->nsrc);
    for (size_t i = 2; i < u->nsrc; i++) if (u->src[i] != lane) src[n++] = s[i];
    src[0] = s[0]; src[1] = s[1];
    if (lane) {
      lanes = (int)lane->src[0]->a;
      src[1] = uop_splat(g, s[1], lanes);
      uop *i = u->src[0]->src[1];
      if (i->op == OP_WHERE) {                     // guarded: one address per lane
        src[0] = uop_index(g, s[0]->src[0], uop_splat(g, s[0]->src[1], lanes));
      } else src[0] = lane_index(g, u->src[0], uop_splat(g, s[0]->src[1], lanes), (enum dtype)s[1]->dt, lanes);
    }
    return uop_new(g, OP_STORE, DT_VOID, 1, src, n, (uarg){0});
  }
  case OP_MMA: case OP_EXTRACT: return uop_with_src(g, u, s);
  case OP_INDEX: return uop_index(g, s[0], s[1]);
  case OP_CAST: return uop_cast(g, s[0], (enum dtype)u->dt);
  case OP_BITCAST: return uop_bitcast(g, s[0], (enum dtype)u->dt);
  case OP_ADD: {
    uop *sum = start_from(g, s[0], s[1]);
    if (!sum) sum = start_from(g, s[1], s[0]);
    if (sum) return sum;
    break;
  }
  default: break;
  }
  if (lanes == 1) return uop_with_src(g, u, s);
  die_if(!(op_flags((enum op)u->op) & OPF_ELEMENTWISE), "%s of vectors", op_name((enum op)u->op));
  return u->nsrc == 1   ? uop_op1(g, (enum op)u->op, s[0])
         : u->nsrc == 2 ? uop_op2(g, (enum op)u->op, s[0], s[1])
                        : uop_op3(g, (enum op)u->op, s[0], s[1], s[2]);
}

uop *expand_lanes(graph *g, uop *ast) { return rebuild(g, ast, to_lanes, NULL); }
