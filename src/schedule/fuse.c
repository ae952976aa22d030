// The cost model: decides which tensors are stored and which are recomputed. A tensor that is not stored is computed
// inside each kernel that needs it. The walk goes from the results to the inputs, and each node collects its uses:
// (kernel, place as a function of that kernel's loops). A use is evaluated once per step of the loops outside the
// innermost range that it depends on. (Values that depend on outer ranges only are hoisted: a norm that a whole row
// shares is computed once.) Register tiles share evaluations. If the evaluations beyond one per element cost more than
// a store, the loads and one more dispatch, the node is stored.
//
// Costs are in units of one operation of one vector lane; the constants below are the model.
#include "schedule/fuse.h"
#include <string.h>
#include "schedule/sum_order.h"

enum {
  COST_DISPATCH = 200000,
  COST_STORE_LOAD = 8,
  COST_FAR_STORE_LOAD = 160,
  FAR_ELEMENTS = 1 << 18,
  NOMINAL_SYMBOLIC = 128,
  MAX_USES = 24,
  TILE = 4,
  LANES_AND_TILE = 64,
  FEW_PARTS = 4,
  FIRST_RANGE = 1000000
};

// There are many uses: places and loops that a use passes on unchanged are shared, not copied.
typedef struct use {
  struct use *next;
  struct kernel *kernel;
  const place *at;
  uop *const *loops;
  int n_loops, n_outputs;                          // the first n_outputs loops are the kernel's output ranges
  bool staged;                                     // inside a STAGE, which is recomputed for each block
} use;

// ranges are numbered per kernel, so that equal layers make equal nodes
struct kernel { uop *root; int64_t next_range; };

// Facts about a node. They are allocated in dependency order, so comparing addresses compares positions.
// cost: see note_cost; turn: last walk of is_below that visited the node; before: stored by the previous round;
// keep: see sum_order.c; term: see note_terms; weight, product: see note_products
typedef struct fact { use *uses; double cost; int64_t turn; bool constant, before, keep, term, weight, product; } fact;

// moved: see moved_place
// staged: the uses inside a STAGE, once for each tile
typedef struct decide { fusion *f; arena *mem; map facts; smap moved, staged; int64_t next_id, turn; } decide;

static fact *fact_of(const decide *d, const uop *u) { return map_ptr(&d->facts, u); }

// The nominal value of a size, used for costs: every variable counts as NOMINAL_SYMBOLIC, so that sizes derived from
// each other agree.
static int64_t nominal(const uop *u) {
  if (u->op == OP_CONST) return u->a;
  int64_t x = u->nsrc > 0 ? nominal(u->src[0]) : 0, y = u->nsrc > 1 ? nominal(u->src[1]) : 0, r;
  switch (u->op) {
  case OP_ADD: if (add_i64(x, y, &r)) return r; break;
  case OP_SUB: if (sub_i64(x, y, &r)) return r; break;
  case OP_MUL: if (mul_i64(x, y, &r)) return r; break;
  case OP_IDIV: if (y > 0) return floordiv_i64(x, y); break;
  case OP_MOD: if (y > 0) return floormod_i64(x, y); break;
  case OP_MIN: return min_i64(x, y);
  case OP_MAX: return max_i64(x, y);
  default: break;
  }
  return min_i64(u->vmax, NOMINAL_SYMBOLIC);
}

static double nominal_size(const uop *end) { return (double)nominal(end); }

static double elements(const shape *s) {
  double n = 1;
  for (int i = 0; s && i < s->n; i++) n *= nominal_size(s->dim[i]);
  return n;
}

static double op_cost(const uop *u) {
  switch (u->op) {
  case OP_EXP2: case OP_LOG2: return 14;
  case OP_SIN: return 24;
  case OP_SQRT: case OP_RECIP: case OP_FDIV: case OP_IDIV: case OP_MOD: return 5;
  case OP_GATHER: return 10;
  case OP_CAST: case OP_BITCAST: return 0.5;
  default: return op_flags((enum op)u->op) & OPF_ELEMENTWISE ? 1 : 0;
  }
}

// Operations per element if everything is recomputed from memory and from tensors that the previous round stored.
// Values repeated by EXPAND are counted once.
static double cost_of(const decide *d, const uop *u) {
  const fact *f = fact_of(d, u);
  return f->before ? 1 : f->cost;
}

static void note_cost(const decide *d, const uop *u, fact *to) {
  double c = op_cost(u);
  if (u->op == OP_BUFFER || u->op == OP_AFTER) c = 1;
  else if (u->op == OP_EXPAND) c = cost_of(d, u->src[0]) * elements(u->src[0]->shape) / elements(u->shape);
  else if (u->op == OP_REDUCE_AXIS) c = (cost_of(d, u->src[0]) + 1) * elements(u->src[0]->shape) / elements(u->shape);
  else if (op_flags((enum op)u->op) & OPF_MOVEMENT) c = cost_of(d, u->src[0]);
  else if (u->op == OP_GATHER)                      // a row is looked up once
    c = cost_of(d, u->src[0]) + (c + cost_of(d, u->src[1])) * elements(u->src[1]->shape) / elements(u->shape);
  else for (size_t i = 0; i < u->nsrc; i++) if (u->src[i]->shape) c += cost_of(d, u->src[i]);
  to->cost = c;
}

static bool same_use(const use *o, const struct kernel *k, const place *at) {
  if (o->kernel != k) return false;
  if (o->at == at) return true;
  if (o->at->n != at->n || o->at->valid != at->valid) return false;
  return !memcmp(o->at->idx, at->idx, (size_t)at->n * sizeof *at->idx);
}

// `at` is referenced, not copied.
static void add_use(decide *d, uop *u, const use *from, const place *at) {
  if (!u->shape) return;
  fact *to = fact_of(d, u);
  for (use *o = to->uses; o; o = o->next) if (same_use(o, from->kernel, at)) return;
  use *n = ARENA_NEW(d->mem, use);
  *n = *from;
  n->at = at;
  n->next = to->uses;
  to->uses = n;
}

// Does the place depend on that loop?
static bool place_varies(const place *at, const uop *loop) {
  for (int i = 0; i < at->n; i++) if (uop_varies(at->idx[i], loop)) return true;
  return false;
}

// Evaluations of this use per run of the kernel.
static double evaluations(const use *u) {
  int deepest = -1;
  double n = 1;
  for (int i = 0; i < u->n_loops; i++) if (place_varies(u->at, u->loops[i])) deepest = i;
  int shared = 0;
  for (int i = 0; i <= deepest; i++) {
    double s = nominal_size(u->loops[i]->src[0]);
    // lanes and register tiles over up to two output ranges share values that do not depend on these ranges; blocks
    // share nothing
    double tile = i == u->n_outputs - 1 ? LANES_AND_TILE : TILE;
    if (i >= u->staged && i < u->n_outputs && !place_varies(u->at, u->loops[i]) && shared < 2 && s > 1) {
      s /= s < tile ? s : tile;
      shared++;
    }
    n *= s;
  }
  return n;
}

// Drops the loops inside the innermost range that the place depends on: they do not repeat the evaluation.
static void hoist(use *u) {
  int keep = 0;
  for (int i = 0; i < u->n_loops; i++) if (place_varies(u->at, u->loops[i])) keep = i + 1;
  u->n_loops = keep;
  if (u->n_outputs > keep) u->n_outputs = keep;
}

static bool must_store(const uop *u) { return u->op == OP_CONTIGUOUS; }

static bool may_store(const uop *u) {
  if (!u->shape || u->dt == DT_IDX || u->dt == DT_BOOL) return false;
  const uop *wide = u;
  while ((op_flags((enum op)wide->op) & OPF_MOVEMENT) || (wide->op == OP_WHERE && !wide->src[2]->shape))
    wide = wide->src[wide->op == OP_WHERE];
  // not stored: its source is smaller or already in memory, and a copy would change how a sum is placed in lanes
  if (wide->op == OP_CAST && dtype_size((enum dtype)wide->src[0]->dt) < dtype_size((enum dtype)wide->dt)) return false;
  if (wide != u && (wide->op == OP_GATHER || wide->op == OP_BUFFER || wide->op == OP_AFTER)) return false;
  return (op_flags((enum op)u->op) & OPF_ELEMENTWISE) || u->op == OP_REDUCE_AXIS || u->op == OP_GATHER ||
         u->op == OP_STACK || u->op == OP_CONTIGUOUS;
}

// Marks nodes that depend on weights only. They are never stored per token: that would write and read a larger weight,
// and the structure of reductions over it would depend on the decision.
static void note_constant(const decide *d, const uop *u, fact *to) {
  bool constant = u->op == OP_BUFFER
                    ? u->memory == MEMORY_WEIGHT
                    : u->op != OP_VAR && u->op != OP_ASSIGN && u->op != OP_AFTER && u->op != OP_CONTIGUOUS;
  // one of several weights is a weight, whatever selects it
  size_t n = u->op == OP_GATHER || (op_flags((enum op)u->op) & OPF_MOVEMENT) ? 1 : u->nsrc;
  for (size_t i = 0; i < n; i++) constant &= fact_of(d, u->src[i])->constant;
  to->constant = constant;
}

// Marks float products that are terms of a sum, and their views. They are not stored: multiply-add rounds once, a
// stored product would be rounded twice, and the decision would depend on the number of tokens.
static void note_terms(const decide *d, const uop *u) {
  if (u->op != OP_REDUCE_AXIS || u->a != OP_ADD || !dtype_is_float((enum dtype)u->dt)) return;
  const uop *v = u->src[0];
  while (op_flags((enum op)v->op) & OPF_MOVEMENT) v = v->src[0];
  if (v->op != OP_MUL) return;
  for (v = u->src[0]; op_flags((enum op)v->op) & OPF_MOVEMENT; v = v->src[0]) fact_of(d, v)->term = true;
  fact_of(d, v)->term = true;
}

// A float sum that is a term of another reduction. If it is computed inside, its loop decides how the outer sum is
// placed in lanes; that must depend on the reduced length only.
static bool inside_a_reduction(const uop *u, const fact *f) {
  if (u->op != OP_REDUCE_AXIS || !dtype_is_float((enum dtype)u->dt)) return false;
  for (use *o = f->uses; o; o = o->next) {
    for (int i = o->n_outputs; i < o->n_loops; i++) if (place_varies(o->at, o->loops[i])) return true;
  }
  return false;
}

// Marks products with weights: they are computed once, because recomputing a small one would pay only for some numbers
// of tokens. weight: u is made of a weight; product: u is made of a sum over such a node, through nodes that the
// previous round did not store.
static void note_products(const decide *d, const uop *u, fact *to) {
  to->weight = u->op == OP_BUFFER && u->memory == MEMORY_WEIGHT;
  to->product = false;
  if (u->op == OP_BUFFER || u->op == OP_AFTER || u->op == OP_CONTIGUOUS) return;
  size_t n = u->op == OP_GATHER || (op_flags((enum op)u->op) & OPF_MOVEMENT) ? 1 : u->nsrc;
  for (size_t i = 0; i < n; i++) {
    const fact *f = fact_of(d, u->src[i]);
    if (f->before) continue;
    to->weight |= f->weight;
    to->product |= f->product;
  }
  if (u->op != OP_REDUCE_AXIS || u->a != OP_ADD) return;   // integers as well: a row of one block has no other sum
  to->product |= to->weight;
  to->weight = false;
}

static bool worth_storing(const uop *u, const fact *f) {
  if (must_store(u) || f->keep || inside_a_reduction(u, f)) return true;
  if (f->constant) return false;
  double evals = 0, n = elements(u->shape);
  int count = 0;
  for (use *o = f->uses; o; o = o->next) { evals += evaluations(o); count++; }
  if (count > MAX_USES || (f->product && evals > n)) return true;
  double extra = (evals - n) * f->cost;
  double store = COST_DISPATCH + n * (n > FAR_ELEMENTS ? COST_FAR_STORE_LOAD : COST_STORE_LOAD);
  return extra > store;
}

// Makes a kernel of u: its uses end here, and its sources are used at u's own output ranges.
static use *start_kernel(decide *d, uop *u, const shape *s) {
  struct kernel *k = ARENA_NEW(d->mem, struct kernel);
  use *o = ARENA_NEW(d->mem, use);
  place *at = ARENA_NEW(d->mem, place);
  uop **loops = ARENA_ARRAY(d->mem, uop *, s ? (size_t)s->n : 0);
  *k = (struct kernel){u, FIRST_RANGE};
  *o = (use){.kernel = k, .at = at, .loops = loops};
  at->n = s ? s->n : 0;
  for (int i = 0; i < at->n; i++) {
    bool one = uop_is_int(s->dim[i], 1);
    at->idx[i] = one ? uop_idx(d->f->g, 0) : uop_range(d->f->g, s->dim[i], k->next_range++, AXIS_LOOP);
    if (!one) loops[o->n_loops++] = at->idx[i];
  }
  o->n_outputs = o->n_loops;
  return o;
}

// move_place, computed once for all equal movements (equal layers have equal movements).
static const place *moved_place(decide *d, const uop *u, const place *at) {
  uint64_t key[8 + 3 * MAX_DIMS] = {u->op, (uint64_t)u->a};
  size_t n = 2;
  key[n++] = (uint64_t)(uintptr_t)u->shape;
  key[n++] = (uint64_t)(uintptr_t)u->src[0]->shape;
  key[n++] = (uint64_t)(uintptr_t)at->valid;
  for (int i = 0; i < at->n; i++) key[n++] = (uint64_t)(uintptr_t)at->idx[i];
  for (size_t i = 1; i < u->nsrc; i++) key[n++] = (uint64_t)(uintptr_t)u->src[i];
  void *hit;
  if (smap_get(&d->moved, (const char *)key, n * sizeof *key, &hit)) return hit;
  place *p = ARENA_NEW(d->mem, place);
  move_place(d->f->g, u, at, p);
  smap_set(&d->moved, memcpy(arena_alloc(d->mem, n * sizeof *key), key, n * sizeof *key), n * sizeof *key, p);
  return p;
}

// A choice among several parts evaluates each part at one step of the choosing range only, since codegen unrolls that
// range.
static void drop_loop(decide *d, use *o, const uop *r) {
  uop **loops = ARENA_ARRAY(d->mem, uop *, (size_t)o->n_loops);
  int n = 0, outputs = 0;
  for (int i = 0; i < o->n_loops; i++) {
    if (o->loops[i] == r) continue;
    outputs += i < o->n_outputs;
    loops[n++] = o->loops[i];
  }
  o->loops = loops;
  o->n_loops = n;
  o->n_outputs = outputs;
}

// The loops of a use, with space for one more per axis.
static uop **more_loops(decide *d, const use *o) {
  uop **loops = ARENA_ARRAY(d->mem, uop *, (size_t)o->n_loops + MAX_DIMS);
  for (int i = 0; i < o->n_loops; i++) loops[i] = o->loops[i];
  return loops;
}

// The use at which a tile that reads the STAGE at o's place computes it: the loops around the tile, and loops over all
// elements that it needs.
static const use *stage_use(decide *d, uop *u, const use *o) {
  uint64_t key[2 + MAX_DIMS] = {(uint64_t)(uintptr_t)u, (uint64_t)(uintptr_t)o->kernel};
  place tile = {0};
  void *hit;
  for (int i = 0; i < o->at->n; i++)
    if (belongs_to_tile(o->at->idx[i])) {
      key[2 + i] = (uint64_t)(uintptr_t)o->at->idx[i];
      tile.idx[tile.n++] = o->at->idx[i];
    }
  if (!smap_get(&d->staged, (const char *)key, sizeof key, &hit)) {
    use *in = ARENA_NEW(d->mem, use);
    place *at = ARENA_NEW(d->mem, place);
    uop **loops = more_loops(d, o);
    *in = *o;
    *at = *o->at;
    in->at = at;
    in->loops = loops;
    in->n_loops = 0;
    for (int i = 0; i < o->n_outputs; i++) if (place_varies(&tile, o->loops[i])) in->n_loops = i + 1;
    for (int i = 0; i < at->n; i++) {
      if (belongs_to_tile(at->idx[i])) continue;
      at->idx[i] = uop_range(d->f->g, u->shape->dim[i], o->kernel->next_range++, AXIS_REDUCE);
      loops[in->n_loops++] = at->idx[i];
    }
    in->n_outputs = in->n_loops;
    in->staged = true;
    smap_set(&d->staged, memcpy(arena_alloc(d->mem, sizeof key), key, sizeof key), sizeof key, in);
    hit = in;
  }
  return hit;
}

static place *copy_place(decide *d, const place *at) {
  place *p = ARENA_NEW(d->mem, place);
  *p = *at;
  return p;
}

static void pass_on(decide *d, uop *u, const use *o) {
  graph *g = d->f->g;
  place *p, *q;
  if (op_flags((enum op)u->op) & OPF_MOVEMENT) { add_use(d, u->src[0], o, moved_place(d, u, o->at)); return; }
  switch (u->op) {
  case OP_BUFFER: case OP_AFTER: case OP_IOTA: return;
  case OP_REDUCE_AXIS: {
    use inner = *o;
    hoist(&inner);
    uop **loops = more_loops(d, &inner);
    inner.loops = loops;
    p = copy_place(d, o->at);
    for (int i = 0; i < p->n; i++)
      if (u->b >> i & 1) {
        p->idx[i] = uop_range(g, u->src[0]->shape->dim[i], o->kernel->next_range++, AXIS_REDUCE);
        loops[inner.n_loops++] = p->idx[i];
      }
    add_use(d, u->src[0], &inner, p);
    return;
  }
  case OP_GATHER: {
    // the row is unknown here: a placeholder that depends on the place of the ids
    p = ARENA_NEW(d->mem, place);
    q = ARENA_NEW(d->mem, place);
    gather_place(u, o->at, NULL, p, q);
    uop *row = uop_idx(g, 0);
    for (int i = 0; i < q->n; i++) row = idx_add(g, row, q->idx[i]);
    p->idx[0] = row;
    add_use(d, u->src[0], o, p);
    add_use(d, u->src[1], o, q);
    return;
  }
  case OP_STACK: {
    use part = *o;
    p = copy_place(d, o->at);
    p->n--;
    if (u->nsrc > FEW_PARTS) drop_loop(d, &part, o->at->idx[p->n]);
    for (size_t i = 0; i < u->nsrc; i++) add_use(d, u->src[i], &part, p);
    return;
  }
  case OP_STAGE:
    if (stage_fits(u, o->at)) o = stage_use(d, u, o);
    add_use(d, u->src[0], o, o->at);
    return;
  case OP_BITCAST: {
    int last = o->at->n - 1, from = dtype_size((enum dtype)u->src[0]->dt), to = dtype_size((enum dtype)u->dt);
    p = copy_place(d, o->at);
    if (from < to) p->idx[last] = idx_mul(g, p->idx[last], uop_idx(g, to / from));
    add_use(d, u->src[0], o, p);
    return;
  }
  default:
    for (size_t i = 0; i < u->nsrc; i++) add_use(d, u->src[i], o, o->at);
  }
}

// Is `on` below u? Nodes before it in dependency order are not visited, so a store in one layer does not walk the
// layers before it.
static bool is_below(const decide *d, uop *u, const uop *on, const fact *of_on) {
  if (u == on) return true;
  fact *f = fact_of(d, u);
  if (f < of_on || f->turn == d->turn) return false;
  f->turn = d->turn;
  for (size_t i = 0; i < u->nsrc; i++) if (is_below(d, u->src[i], on, of_on)) return true;
  return false;
}

static bool reads(decide *d, uop *u, const uop *buffer) {
  d->turn++;
  return is_below(d, u, buffer, fact_of(d, buffer));
}

static void store_node(decide *d, uop *u) {
  uop *buf = uop_new(d->f->g, OP_BUFFER, (enum dtype)u->dt, 1, NULL, 0,
                     (uarg){.a = TEMP_IDS + d->next_id++, .b = max_i64(1, shape_max_elems(u->shape))});
  map_put(&d->f->stored, u, buf);
}

// If several kernels read a shared STAGE tile by tile, one of them computes it (the first that is stored in any case)
// and the others read it from memory.
static void share_stage(decide *d, uop *u, const fact *f) {
  use *home = NULL;
  for (use *o = f->uses; o; o = o->next) {
    if (!stage_fits(u, o->at) || !must_store(o->kernel->root)) continue;
    if (!home || fact_of(d, o->kernel->root) < fact_of(d, home->kernel->root)) home = o;
  }
  die_if(!home, "a shared STAGE that no stored tensor is made of");
  store_node(d, u);
  map_put(&d->f->home, u, home->kernel->root);
  pass_on(d, u, home);
}

static void find_heights(fusion *f, const uop_list *order) {
  for (size_t i = 0; i < order->n; i++) {
    uop *u = order->at[i];
    uintptr_t h = 0;
    if (u->op != OP_BUFFER && u->op != OP_AFTER)
      for (size_t j = 0; j < u->nsrc; j++) {
        bool stored = map_has(&f->stored, u->src[j]) && !map_has(&f->home, u->src[j]);
        uintptr_t below = stored ? 0 : (uintptr_t)map_ptr(&f->height, u->src[j]);
        if (below > h) h = below;
      }
    if (u->op == OP_REDUCE_AXIS) h++;
    map_put(&f->height, u, (void *)h);
  }
}

// The reads of an assignment through a view that determine the target's place.
static void use_of_target(decide *d, uop *view, use *o) {
  const place *at = o->at;
  for (; is_view(view); view = view->src[0]) {
    if (view->op != OP_GATHER) { at = moved_place(d, view, at); continue; }
    place *p = ARENA_NEW(d->mem, place), *q = ARENA_NEW(d->mem, place);
    gather_place(view, at, uop_idx(d->f->g, 0), p, q);
    add_use(d, view->src[1], o, q);
    at = p;
  }
}

// One walk from the results back to the inputs.
static void decide_all(decide *d, const uop_list *order, fact *facts) {
  for (size_t i = 0; i < order->n; i++) {
    note_products(d, order->at[i], &facts[i]);
    if (order->at[i]->shape) note_cost(d, order->at[i], &facts[i]);
  }
  for (size_t i = order->n; i-- > 0;) {
    uop *u = order->at[i];
    fact *f = &facts[i];
    if (u->op == OP_ASSIGN) {
      use *o = start_kernel(d, u, u->shape);
      // a value that reads its own target memory is finished first
      if (reads(d, u->src[1], uop_viewed(u->src[0])) && !map_has(&d->f->stored, u->src[1])) store_node(d, u->src[1]);
      add_use(d, u->src[1], o, o->at);
      use_of_target(d, u->src[0], o);
      continue;
    }
    if (!u->shape || !f->uses) continue;
    if (u->op == OP_STAGE && u->a) { share_stage(d, u, f); continue; }
    if (map_has(&d->f->stored, u) || (may_store(u) && !f->term && worth_storing(u, f))) {
      if (!map_has(&d->f->stored, u)) store_node(d, u);
      pass_on(d, u, start_kernel(d, u, u->shape));
    } else {
      for (use *o = f->uses; o; o = o->next) pass_on(d, u, o);
    }
  }
}

static void note_forms(graph *g, const uop_list *order, fact *facts) {
  map constant = {0}, keep = {0};
  for (size_t i = 0; i < order->n; i++) if (facts[i].constant) map_put(&constant, order->at[i], order->at[i]);
  find_sum_orders(g, order, &constant, &keep);
  for (size_t i = 0; i < order->n; i++) facts[i].keep = map_has(&keep, order->at[i]);
  map_free(&constant);
  map_free(&keep);
}

// Two rounds: the cost of recomputing a tensor depends on which tensors below it are stored, which the first round can
// only estimate.
void fuse_decide(fusion *f, uop *sink, arena *mem) {
  uop_list order = uop_toposort(mem, &sink, 1);
  decide d = {.f = f, .mem = mem};
  fact *facts = ARENA_ARRAY(mem, fact, order.n);
  for (size_t i = 0; i < order.n; i++) {
    facts[i].cost = 1;
    map_put(&d.facts, order.at[i], &facts[i]);
    note_constant(&d, order.at[i], &facts[i]);
    note_terms(&d, order.at[i]);
  }
  note_forms(f->g, &order, facts);
  decide_all(&d, &order, facts);
  for (size_t i = 0; i < order.n; i++) {
    facts[i].before = map_has(&f->stored, order.at[i]);
    facts[i].uses = NULL;
  }
  map_free(&f->stored);
  map_free(&f->home);
  smap_free(&d.staged);
  d.next_id = 0;
  decide_all(&d, &order, facts);
  map_free(&d.facts);
  smap_free(&d.moved);
  smap_free(&d.staged);
  find_heights(f, &order);
}
