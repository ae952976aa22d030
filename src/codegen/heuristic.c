// Chooses good loops without search. The heuristic examines index expressions, not op patterns: which ranges does the
// index of each load depend on, and with which stride? A matvec is therefore recognised through casts, multiplications
// and whole dequantisations.
//
// 1. Lanes: rows of a dot product; rows of a float weight that may be packed; an output range along which every access
//    is contiguous or constant; otherwise, per reduction, a reduced range of that kind (partial sums in lanes, added at
//    the end).
// 2. Ranges from a format's block structure are unrolled: codes that share bytes share loads.
// 3. Small output ranges on which no reduction depends are unrolled, so that shared values are computed once.
// 4. Register tiles: output ranges on which some load inside the reduction does not depend; several steps share that
//    load. MV_ROWS_PER_THREAD is the size for rows.
//
// The structure of a reduction (1, 2) depends only on the reduced ranges and the weight, never on batch size, position
// or threads, so one token and many tokens have equal orders of float additions.
#include "codegen/heuristic_impl.h"
#include <string.h>
#include "base/env.h"
#include "codegen/dot_tiles.h"

void find_loads(uop *root, loads *out) {
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &root, 1);
  out->n = 0;
  for (size_t i = 0; i < l.n; i++)
    if (l.at[i]->op == OP_LOAD && out->n < (int)COUNT(out->at)) out->at[out->n++] = l.at[i];
  arena_free(a);
}

// Collects loads, leaving out those that compute addresses.
void find_values(uop *u, map *seen, loads *out) {
  if (map_has(seen, u)) return;
  map_put(seen, u, u);
  if (u->op == OP_LOAD) { if (out->n < (int)COUNT(out->at)) out->at[out->n++] = u; return; }
  for (size_t i = 0; i < u->nsrc; i++) find_values(u->src[i], seen, out);
}

enum stride { FIXED, CONTIGUOUS, JUMPS };

static int lanes_that_fit(const kernel *k, const uop *r) {
  int want = k->t->vector_bytes / 4;
  const uop *end = r->src[0];
  if (end->op != OP_CONST) return want;
  while (want > 1 && end->a % want) want /= 2;
  return want >= 4 ? want : 1;
}

// The stride of an access along the lanes of range r, if r is split into pieces of `lanes`.
static enum stride stride_of(kernel *k, const uop *access, uop *r, int lanes, enum dtype dt) {
  uop *i = access->src[1];
  if (!uop_varies(i, r)) return FIXED;
  graph *g = k->g;
  uop *lane = uop_range(g, uop_idx(g, lanes), -1, AXIS_LANE),
      *piece = uop_range(g, idx_div(g, r->src[0], uop_idx(g, lanes)), -2, AXIS_LOOP);
  map m = {0};
  map_put(&m, r, idx_add(g, idx_mul(g, piece, uop_idx(g, lanes)), lane));
  i = simplify(g, uop_substitute(g, i, &m));
  map_free(&m);
  if (i->op == OP_WHERE) {
    if (uop_varies(i->src[0], lane)) return JUMPS;
    i = i->src[1];
  }
  idx_sum s;
  if (!idx_sum_of(i, &s)) return JUMPS;
  enum stride found = FIXED;
  for (int t = 0; t < s.n; t++) {
    if (s.atom[t] == lane) {
      if (s.coeff[t] * dtype_size((enum dtype)access->src[0]->dt) != dtype_size(dt)) return JUMPS;
      found = CONTIGUOUS;
    } else if (uop_varies(s.atom[t], lane)) return JUMPS;
  }
  return found;
}

int axis_of(const kernel *k, const uop *r) {
  axes x;
  kernel_axes(k, &x);
  for (int i = 0; i < x.n; i++) if (x.at[i] == r) return i;
  return -1;
}

bool apply_to(kernel *k, enum opt_kind kind, const uop *r, int amount) {
  return kernel_apply(k, (opt){kind, axis_of(k, r), amount});
}

void kernel_change_all(kernel *k, op_change *change, int arg) {
  for (bool did = true; did;) {
    arena *a = arena_new();
    uop_list all = uop_toposort(a, &k->ast, 1);
    did = false;
    for (size_t i = 0; i < all.n && !did; i++) did = change(k, &all, i, arg);
    arena_free(a);
  }
}

// --- dot products ---------------------------------------------------------------------------------------------------

// Can an instruction add up several steps of `inner` of this sum of products in each lane of `lane`? Only a packed
// weight has such operands next to each other; the other operand must be bytes that are equal for all lanes and steps.
static bool dot_fits(const kernel *k, const uop *reduce, const uop *lane, const uop *inner) {
  enum dtype acc = (enum dtype)reduce->dt;
  uop *a, *x;
  if (reduce->a != OP_ADD || !dot_operands(reduce->src[0], acc, lane, &a, &x) || x->src[0]->src[0]->dt != x->dt ||
      inner->src[0]->a % dot_products(acc))
    return false;
  if (acc != DT_I32 && descriptor_lanes(k->t->descriptors, acc, k->t->vector_bytes / 4, lane->src[0]->a) < 4)
    return false;
  if (index_coefficient(x->src[0], inner) != 1 || index_coefficient(x->src[0], lane) != 0) return false;
  loads l = {.n = 0};
  map seen = {0};
  find_values(a, &seen, &l);                      // the selected expert is one number for all lanes
  map_free(&seen);
  bool together = false;
  for (int i = 0; i < l.n; i++) {
    uop *at = l.at[i]->src[0]->src[1];
    if (is_stream(l.at[i]->src[0]->src[0])) together |= uop_varies(at, lane);
    else if (dtype_size((enum dtype)l.at[i]->dt) != 1 || uop_varies(at, lane) || uop_varies(at, inner)) return false;
  }
  return together;
}

// Uses a dot-product instruction if some integer reduction over an axis of four and some output axis fit it, and all
// other loads move along that output axis by one element or not at all.
static bool dot_lanes(kernel *k) {
  axes x;
  kernel_axes(k, &x);
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &k->ast, 1);
  uop *store = k->ast->src[0];
  uop *dot = NULL;
  int lane = -1, inner = -1;
  for (size_t i = 0; i < l.n && lane < 0; i++) {
    uop *u = l.at[i];
    if (u->op != OP_REDUCE) continue;
    for (int o = x.n_out; o-- > 0 && lane < 0;)
      for (int r = x.n_out; r < x.n && lane < 0; r++) {
        bool bound = false;
        for (size_t j = (size_t)uop_first_range(u); j < u->nsrc; j++) bound |= u->src[j] == x.at[r];
        if (bound && x.at[r]->src[0]->op == OP_CONST && x.at[o]->src[0]->op == OP_CONST &&
            lanes_that_fit(k, x.at[o]) > 1 && dot_fits(k, u, x.at[o], x.at[r])) {
          lane = o;
          inner = r;
          dot = u;
        }
      }
  }
  // scattered stores are acceptable: a row costs more than its store
  bool ok = lane >= 0 && uop_varies(store->src[0], x.at[lane]);
  for (size_t i = 0; ok && i < l.n; i++)
    if (l.at[i]->op == OP_LOAD && !is_stream(l.at[i]->src[0]->src[0]))
      ok = stride_of(k, l.at[i]->src[0], x.at[lane], lanes_that_fit(k, x.at[lane]), (enum dtype)l.at[i]->dt) != JUMPS;
  // another reduction over this range that is not a dot product gets its own ranges
  uop *other = NULL;
  for (size_t i = 0; ok && i < l.n && !other; i++)
    if (l.at[i]->op == OP_REDUCE && l.at[i] != dot && uop_binds(l.at[i], x.at[inner]) &&
        !dot_fits(k, l.at[i], x.at[lane], x.at[inner]))
      other = l.at[i];
  arena_free(a);
  if (other && kernel_separate(k, other)) return dot_lanes(k);
  return ok && kernel_apply(k, (opt){OPT_TC, lane, inner});
}

// --- lanes ----------------------------------------------------------------------------------------------------------

static uop *reduce_lanes(kernel *k, uop *reduce);

// Would some float sum that depends on r have lanes of its own?
static bool sum_has_lanes(kernel *k, uop *r) {
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &k->ast, 1);
  bool any = false;
  for (size_t i = 0; i < l.n && !any; i++) {
    uop *u = l.at[i];
    if (u->op != OP_REDUCE || u->a != OP_ADD || !dtype_is_float((enum dtype)u->dt)) continue;
    any = uop_varies(u->src[0], r) && reduce_lanes(k, u);
  }
  arena_free(a);
  return any;
}

static uop *output_lanes(kernel *k) {
  uop *store = k->ast->src[0];
  loads l;
  find_loads(store->src[1], &l);
  for (size_t i = store->nsrc; i-- > 2;) {
    uop *r = store->src[i];
    if (r->b != AXIS_LOOP || lanes_that_fit(k, r) == 1) continue;
    if (stride_of(k, store->src[0], r, lanes_that_fit(k, r), (enum dtype)store->src[1]->dt) != CONTIGUOUS) continue;
    bool ok = true;
    for (int j = 0; ok && j < l.n; j++)
      ok = stride_of(k, l.at[j]->src[0], r, lanes_that_fit(k, r), (enum dtype)l.at[j]->dt) != JUMPS;
    // A symbolic size is padded, so it is used only if no guard is needed. It may be the number of tokens: a single
    // token has no such range, and its sums must be placed in lanes in an equal way.
    if (r->src[0]->op != OP_CONST)
      ok = ok && is_temp(store->src[0]->src[0]) && r->src[0]->vmax % lanes_that_fit(k, r) == 0 && !sum_has_lanes(k, r);
    if (ok) return r;
  }
  return NULL;
}


static bool has_lane(const uop *reduce) {
  for (size_t i = (size_t)uop_first_range(reduce); i < reduce->nsrc; i++)
    if (reduce->src[i]->b == AXIS_LANE) return true;
  return false;
}

// The best range of a reduction for lanes: the largest along which every load of its body is contiguous or constant.
// A float sum has no lanes along a size that is known only at run time, such as the number of blocks of an attention:
// the stride there is the number of tokens and heads, so only a single token of a single head would have them, and
// would add in another order than many tokens.
static uop *reduce_lanes(kernel *k, uop *reduce) {
  loads l;
  find_loads(reduce->src[0], &l);
  bool in_order = reduce->a == OP_ADD && dtype_is_float((enum dtype)reduce->dt);
  uop *best = NULL;
  int best_lanes = 1;
  for (size_t i = (size_t)uop_first_range(reduce); i < reduce->nsrc; i++) {
    uop *r = reduce->src[i];
    int n = lanes_that_fit(k, r), contiguous = 0;
    bool ok = r->b == AXIS_REDUCE && n > 1 && !(in_order && r->src[0]->op != OP_CONST);
    for (int j = 0; ok && j < l.n; j++) {
      enum stride s = stride_of(k, l.at[j]->src[0], r, n, (enum dtype)l.at[j]->dt);
      ok = s != JUMPS;
      contiguous += s == CONTIGUOUS;
    }
    if (ok && contiguous && n > best_lanes) { best = r; best_lanes = n; }
  }
  return best;
}

static bool lane_one_reduce(kernel *k, const uop_list *all, size_t i, int unused) {
  uop *u = all->at[i];
  (void)unused;
  if (u->op != OP_REDUCE || has_lane(u) || uop_has_axis(u, AXIS_LANE)) return false;
  // an unfinished reduction inside would mix two kinds of lanes
  for (size_t j = 0; j < i; j++) {
    const uop *inner = all->at[j];
    if (inner->op == OP_REDUCE && inner != u && has_lane(inner) && uop_has_axis(inner, AXIS_LANE)) return false;
  }
  uop *r = reduce_lanes(k, u);
  if (!r) return false;
  // if another reduction uses the range with other lanes, separate the two first
  for (size_t j = 0; j < all->n; j++) {
    const uop *other = all->at[j];
    if (other->op == OP_REDUCE && other != u && uop_binds(other, r) &&
        (has_lane(other) || uop_has_axis(other, AXIS_LANE)))
      return kernel_separate(k, u);
  }
  return apply_to(k, OPT_LANES, r, lanes_that_fit(k, r));
}

// --- unrolling and register tiles -----------------------------------------------------------------------------------

enum { FEW_COPIES = 4, MAX_UNROLL = 16, DENSE_UNROLL = 4, MAX_ACCUMULATORS = 16, TOKEN_TILE = 8 };

// The number of output ranges on which the reduced value depends.
static int outputs_of(const kernel *k, const uop *reduce) {
  const uop *store = k->ast->src[0];
  int n = 0;
  for (size_t i = 2; i < store->nsrc; i++) n += uop_varies(reduce->src[0], store->src[i]);
  return n;
}

// The longest reduction. Ties: the one that makes most of the output (the sum over values, not its divisor), then the
// outer one (the product, not the norm of its input).
uop *main_reduce(kernel *k, int *count) {
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &k->ast, 1);
  uop *best = NULL;
  double most = 0;
  *count = 0;
  for (size_t i = 0; i < l.n; i++) {
    if (l.at[i]->op != OP_REDUCE) continue;
    double n = 1;
    for (size_t j = (size_t)uop_first_range(l.at[i]); j < l.at[i]->nsrc; j++)
      n *= (double)l.at[i]->src[j]->src[0]->vmax;
    if (n > most || !best || (n == most && outputs_of(k, l.at[i]) >= outputs_of(k, best))) { most = n; best = l.at[i]; }
  }
  for (size_t i = 0; best && i < l.n; i++)
    *count += l.at[i]->op == OP_REDUCE && l.at[i]->nsrc == best->nsrc &&
              l.at[i]->src[l.at[i]->nsrc - 1] == best->src[best->nsrc - 1];
  arena_free(a);
  return best;
}

// Unrolls from the innermost range outwards and stops at the first long one, which is unrolled partly. Terms are
// therefore added in ascending order, however the range was split.
static void unroll_blocks(kernel *k) {
  for (;;) {
    int count;
    uop *m = main_reduce(k, &count), *pick = NULL;
    if (!m) return;
    int64_t unrolled = 1;
    for (size_t i = (size_t)uop_first_range(m); i < m->nsrc; i++) {
      if (m->src[i]->b == AXIS_REDUCE) pick = m->src[i];
      if (m->src[i]->b == AXIS_UNROLL) unrolled *= m->src[i]->src[0]->a;
    }
    if (!pick || pick->src[0]->op != OP_CONST) return;
    int64_t size = pick->src[0]->a;
    if (size <= 8 && unrolled * size <= MAX_UNROLL) { if (!apply_to(k, OPT_UNROLL, pick, 0)) return; continue; }
    if (unrolled == 1 && size % DENSE_UNROLL == 0) apply_to(k, OPT_UNROLL, pick, DENSE_UNROLL);
    return;
  }
}

// Is this a sum over an unknown number of positions? Attention's blocks are far apart, so several vectors of each
// position are read together.
static bool sums_places(kernel *k) {
  int count;
  const uop *m = main_reduce(k, &count);
  return m && m->src[m->nsrc - 1]->src[0]->op != OP_CONST;
}

static void upcast_inner(kernel *k) {
  for (bool again = true; again;) {
    again = false;
    map tiles = {0};
    kernel_tile_ranges(k, &tiles);
    uop *store = k->ast->src[0];
    for (size_t i = 2; i < store->nsrc && !again; i++) {
      uop *r = store->src[i];
      if (r->b != AXIS_LOOP || map_has(&tiles, r) || r->src[0]->op != OP_CONST) continue;
      if (r->src[0]->a <= FEW_COPIES) again = apply_to(k, OPT_UPCAST, r, 0);
      else if (i + 2 == store->nsrc && r->src[0]->a % FEW_COPIES == 0 && sums_places(k))
        again = apply_to(k, OPT_UPCAST, r, FEW_COPIES);
    }
    map_free(&tiles);
  }
}

// Is some load of the reduction's body constant along r, so that a tile along r shares it?
bool shares_loads(uop *reduce, uop *r) {
  loads l;
  find_loads(reduce->src[0], &l);
  bool depends = false, shared = false;
  for (int j = 0; j < l.n; j++) {
    if (uop_varies(l.at[j], r)) { depends = true; continue; }       // includes an element of a stage that depends on r
    for (size_t i = (size_t)uop_first_range(reduce); i < reduce->nsrc; i++)
      shared |= uop_varies(l.at[j]->src[0], reduce->src[i]);
  }
  return depends && shared;
}

// Tokens per tile: the smallest number of tiles, all of one size.
static int token_tile(const kernel *k, const uop *tokens) {
  int64_t most = tokens->src[0]->vmax, size = k->t->token_tile ? k->t->token_tile : TOKEN_TILE,
          tiles = (most + size - 1) / size;
  return (int)((most + tiles - 1) / tiles);
}

// Is r used only in addresses that grow evenly with it? A shift or a selection by a loop counter costs more than one by
// a constant.
bool only_in_addresses(uop *u, uop *r, map *seen) {
  if (map_has(seen, u) || !uop_varies(u, r)) return true;
  map_put(seen, u, u);
  if (u->op == OP_LOAD) return index_coefficient(u->src[0], r) >= 0;
  if (u == r) return false;
  size_t n = u->op == OP_REDUCE ? (size_t)uop_first_range(u) : u->nsrc;
  for (size_t i = 0; i < n; i++) if (!only_in_addresses(u->src[i], r, seen)) return false;
  return true;
}

static bool loads_from(const loads *l, const uop *buffer) {
  for (int i = 0; i < l->n; i++) if (l->at[i]->src[0]->src[0] == buffer) return true;
  return false;
}

// Do bytes of a weight serve several steps of r, or another sum without these steps? A loop would read them twice.
bool shares_bytes(kernel *k, uop *reduce, const uop *r) {
  loads own, l;
  find_loads(reduce->src[0], &own);
  arena *a = arena_new();
  uop_list all = uop_toposort(a, &k->ast, 1);
  bool shared = false;
  for (size_t n = 0; n < all.n && !shared; n++) {
    uop *u = all.at[n];
    if (u->op != OP_REDUCE || u->dt != DT_I32) continue;
    find_loads(u->src[0], &l);
    for (int j = 0; j < l.n && !shared; j++) {
      uop *at = l.at[j]->src[0]->src[1], *buffer = l.at[j]->src[0]->src[0];
      if (!is_weight(buffer) || uop_varies(at, r) || !loads_from(&own, buffer)) continue;
      for (size_t i = (size_t)uop_first_range(u); i < u->nsrc; i++) shared |= uop_varies(at, u->src[i]);
    }
  }
  arena_free(a);
  return shared;
}

// Should this range of an integer sum be unrolled? Not if its steps share nothing: a loop is cheap, while LLVM
// schedules long blocks badly, spills their values to the stack and compiles them slowly. The sum around a DOT is
// unrolled.
static bool worth_unrolling(kernel *k, uop *reduce, uop *r) {
  if (r->b != AXIS_REDUCE || r->src[0]->op != OP_CONST || r->src[0]->a > MAX_UNROLL) return false;
  for (size_t i = (size_t)uop_first_range(reduce); i < reduce->nsrc; i++)
    if (reduce->src[i]->b == AXIS_DOT) return true;
  map seen = {0};
  bool loop = only_in_addresses(reduce->src[0], r, &seen) && !shares_bytes(k, reduce, r);
  map_free(&seen);
  return !loop;
}

static bool unroll_dot_once(kernel *k, const uop_list *all, size_t i, int unused) {
  uop *u = all->at[i];
  (void)unused;
  if (u->op != OP_REDUCE || u->dt != DT_I32) return false;
  for (size_t j = (size_t)uop_first_range(u); j < u->nsrc; j++)
    if (worth_unrolling(k, u, u->src[j]) && apply_to(k, OPT_UNROLL, u->src[j], 0)) return true;
  return false;
}

// Unrolls the ranges inside the outermost reduction around a dot product, as far as their steps share anything.
void unroll_dot(kernel *k) { kernel_change_all(k, unroll_dot_once, 0); }

static int sums_in_lanes(const kernel *k, bool *floats) {
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &(uop *){k->ast}, 1);
  int n = 0;
  *floats = false;
  for (size_t i = 0; i < l.n; i++) {
    if (l.at[i]->op != OP_REDUCE || has_lane(l.at[i]) || !uop_has_axis(l.at[i], AXIS_LANE)) continue;
    n++;
    *floats |= l.at[i]->dt == DT_F32;
  }
  arena_free(a);
  return n;
}

// A float sum waits for its previous step: two vectors of rows at once are two independent sums and share x. Steps are
// not unrolled: the bytes of each sum would be contiguous in the packed weight, but read alternately.
static void two_sums(kernel *k) {
  axes x;
  bool floats;
  kernel_axes(k, &x);
  if (sums_in_lanes(k, &floats) > 1 || !floats) return;
  for (int i = 0; i + 1 < x.n_out; i++)
    if (x.at[i]->b == AXIS_LOOP && x.at[i + 1]->b == AXIS_LANE && x.at[i]->src[0]->op == OP_CONST &&
        x.at[i]->src[0]->a % 2 == 0) {
      apply_to(k, OPT_UPCAST, x.at[i], 2);
      return;
    }
}

// If a vector holds half of the rows that are packed next to each other, both halves are computed at once and share x.
// Not done if each lane already has several products.
static void both_halves(kernel *k) {
  uop *store = k->ast->src[0];
  int dots = 0;
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &k->ast, 1);
  for (size_t i = 0; i < l.n; i++)
    for (size_t j = 0; j < l.at[i]->nsrc; j++)
      dots += l.at[i]->op == OP_REDUCE && l.at[i]->src[j]->op == OP_RANGE && l.at[i]->src[j]->b == AXIS_DOT;
  arena_free(a);
  if (dots > 1) return;
  for (size_t i = 2; i + 1 < store->nsrc; i++) {
    uop *r = store->src[i];
    if (r->b == AXIS_LOOP && uop_is_int(r->src[0], 2) && store->src[i + 1]->b == AXIS_LANE) {
      apply_to(k, OPT_UPCAST, r, 0);
      return;
    }
  }
}

// Are neighbours of r next to each other inside each block of the packed weight?
static bool lies_inside(const kernel *k, const uop *r) {
  loads l;
  find_loads(k->ast->src[0]->src[1], &l);
  axes x;
  kernel_axes(k, &x);
  for (int j = 0; j < l.n; j++) {
    const uop *at = l.at[j]->src[0];
    int64_t step = is_stream(at->src[0]) ? index_coefficient(at, r) : 0;
    for (int i = x.n_out; step > 0 && i < x.n; i++)
      if (x.at[i]->b == AXIS_REDUCE && index_coefficient(at, x.at[i]) > step) return true;
  }
  return false;
}

// For a single token, tiles of rows that are neighbours in memory are computed together, so that the weight is read in
// one run.
static void rows_side_by_side(kernel *k) {
  uop *store = k->ast->src[0], *row = NULL;
  for (size_t i = 2; i < store->nsrc; i++) {
    uop *r = store->src[i];
    if (r->b == AXIS_UPCAST || r->src[0]->op != OP_CONST) return;
    if (r->b == AXIS_LOOP && r->src[0]->a <= 4 && lies_inside(k, r)) row = r;
  }
  if (row) apply_to(k, OPT_UPCAST, row, 0);
}

// Bytes of activations that the products of one token read: loads that move along a reduced range and not along rows.
static int64_t bytes_of_token(const kernel *k, const uop *tokens, int tile) {
  loads l;
  find_loads(k->ast->src[0]->src[1], &l);
  int64_t most = 0;
  for (int j = 0; j < l.n; j++) {
    const uop *at = l.at[j]->src[0];
    int64_t c = index_coefficient(at, tokens);
    if (!is_weight(at->src[0]) && c > 0) most = max_i64(most, c * dtype_size((enum dtype)at->src[0]->dt) / tile);
  }
  return most;
}

// Moves the loop over tiles of tokens (output axis `at`) inside the loops over rows: a tile of rows is read from memory
// once, and the activations of all tokens from the cache. If the tokens do not fit in the cache, they are split into
// parts that are processed in sequence.
static void rows_outside(kernel *k, int at, int tile) {
  axes x;
  kernel_axes(k, &x);
  uop *tokens = x.at[at];
  int64_t bytes = bytes_of_token(k, tokens, tile), fit = bytes > 0 ? k->t->cache_bytes / 2 / (bytes * tile) : 0;
  if (tokens->b != AXIS_LOOP || (fit < 2 && tokens->src[0]->vmax > fit)) return;
  while (fit & (fit - 1)) fit &= fit - 1;
  if (tokens->src[0]->vmax > fit && kernel_apply(k, (opt){OPT_LOOP, at, (int)min_i64(fit, 1024)})) at++;
  kernel_axes(k, &x);
  for (int i = at + 1; i < x.n_out; i++)
    if (x.at[i]->b == AXIS_LOOP && x.at[i]->src[0]->op == OP_CONST && kernel_apply(k, (opt){OPT_SWAP, at, i})) at = i;
}

// Two products with many tokens have more sums than registers: they run one after the other. The tokens that they share
// stay in a cache.
static bool part_product(kernel *k, const uop_list *all, size_t i, int unused) {
  uop *u = all->at[i];
  (void)unused;
  return u->op == OP_REDUCE && u->dt == DT_F32 && !has_lane(u) && uop_has_axis(u, AXIS_LANE) && kernel_separate(k, u);
}

// Is each weight that the sum reads converted from a half?
static bool converts_weights(uop *sum) {
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &sum->src[0], 1);
  bool any = false;
  for (size_t i = 0; i < l.n && !any; i++) {
    const uop *u = l.at[i], *from = u->op == OP_CAST && u->dt == DT_F32 ? u->src[0] : u;
    any = from->op == OP_LOAD && (from->dt == DT_F16 || from->dt == DT_BF16) && is_weight(from->src[0]->src[0]);
  }
  arena_free(a);
  return any;
}

static void register_tiles(kernel *k) {
  int count, budget;
  uop *m = main_reduce(k, &count);
  if (!m) return;
  budget = MAX_ACCUMULATORS;
  map tiles = {0};
  kernel_tile_ranges(k, &tiles);
  uop *store = k->ast->src[0], *rows[MAX_AXES], *tokens = NULL;
  int n = 0, unrolled = 1;
  for (size_t i = store->nsrc; i-- > 2;) {
    uop *r = store->src[i];
    if (r->b == AXIS_UPCAST) {
      unrolled *= (int)r->src[0]->a;
      if (uop_varies(m->src[0], r)) budget /= (int)r->src[0]->a;
    }
    if (r->b != AXIS_LOOP || !map_has(&tiles, r) || !shares_loads(m, r)) continue;
    if (r->src[0]->op != OP_CONST) tokens = r;
    else rows[n++] = r;
  }
  map_free(&tiles);
  if (!tokens && count > 1) budget /= count;
  int want = env_int(ENV_MV_ROWS_PER_THREAD), done = 1;
  // A conversion of a row's weights takes the place of a multiply-add, a load of a token's value does not.
  if (tokens && converts_weights(m)) want = (want + 1) / 2;
  // the pairs of a rotation are already rows: `unrolled` of them share the loads
  if (want > unrolled) want /= unrolled;
  else want = 1;
  for (int i = 0; i < n && want > 1; i++)
    for (int amount = want; amount > 1; amount /= 2)
      if (rows[i]->src[0]->a % amount == 0 && amount <= budget && apply_to(k, OPT_UPCAST, rows[i], amount)) {
        done *= amount;
        want /= amount;
        break;
      }
  if (!tokens) return;
  int amount = token_tile(k, tokens), at = axis_of(k, tokens);
  while (amount > 1 && amount * done > budget) amount /= 2;
  if (amount > 1 && apply_to(k, OPT_UPCAST, tokens, amount)) {
    kernel_change_all(k, part_product, 0);
    rows_outside(k, at, amount);
  }
}

// Does each dot product's sum stay in one register until its end? Not if 16-bit partial sums join another sum earlier:
// these need twice the registers.
static bool sums_once(const kernel *k) {
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &(uop *){k->ast}, 1);
  bool once = true;
  for (size_t i = 0; i < l.n && once; i++) {
    uop *u = l.at[i], *codes, *x;
    int64_t steps = 1;
    bool dot = false;
    for (size_t j = (size_t)uop_first_range(u); u->op == OP_REDUCE && j < u->nsrc; j++)
      if (u->src[j]->b == AXIS_DOT) dot = true; else steps *= u->src[j]->src[0]->vmax;
    if (!dot || u->dt != DT_I32 || !dot_operands(u->src[0], DT_I32, NULL, &codes, &x)) continue;
    int64_t most = descriptor_most(codes);
    const descriptor *d =
      descriptor_find(k->t->descriptors, DT_I32, k->t->vector_bytes / 4, (enum dtype)codes->dt, most);
    once = !d || !d->products || steps <= descriptor_steps(d, most);
  }
  arena_free(a);
  return once;
}

enum { FEW_REGISTERS = 16 };
static bool has_few_registers(const kernel *k) {
  return k->t->vector_registers && k->t->vector_registers <= FEW_REGISTERS;
}

// With few registers, the sums of a full token tile take half of them. Two vectors of rows for half as many tokens need
// as many sums with fewer loads: each load of x serves both. This also applies to instructions that multiply two rows
// with two tokens, for which rows and tokens cost equally.
static bool pair_rows(kernel *k, int *tile) {
  if ((!has_few_registers(k) && !has_dot_tiles(k->t, k->without)) || *tile <= FEW_REGISTERS / 4) return false;
  axes x;
  kernel_axes(k, &x);
  for (int i = 0; i + 1 < x.n_out; i++)
    if (x.at[i]->b == AXIS_LOOP && x.at[i + 1]->b == AXIS_LANE && x.at[i]->src[0]->op == OP_CONST &&
        x.at[i]->src[0]->a % 2 == 0 && apply_to(k, OPT_UPCAST, x.at[i], 2)) {
      *tile = (*tile + 1) / 2;
      return true;
    }
  return false;
}

// Does each step of r read different weights?
bool has_own_weights(const loads *l, const uop *r) {
  for (int j = 0; j < l->n; j++)
    if (is_weight(l->at[j]->src[0]->src[0]) && uop_varies(l->at[j]->src[0], r)) return true;
  return false;
}

// Tiles of tokens that read equal rows (all tokens of a chunk, or of an expert's tile) share the cost of a row.
static void token_tiles(kernel *k) {
  uop *store = k->ast->src[0];
  loads l;
  find_loads(store->src[1], &l);
  for (size_t i = 2; i < store->nsrc; i++) {
    uop *r = store->src[i];
    bool symbolic = r->src[0]->op != OP_CONST;
    if (r->b != AXIS_LOOP || (!symbolic && r->src[0]->a > TOKEN_TILE) || has_own_weights(&l, r)) continue;
    int tile = symbolic ? token_tile(k, r) : 0;
    bool pairs = symbolic && pair_rows(k, &tile);
    if (apply_to(k, OPT_UPCAST, r, tile) && symbolic) {
      kernel_change_all(k, part_product, 0);
      rows_outside(k, (int)i - 2, tile);
      // keep the steps, each with its own weights, in order: LLVM would interleave them and spill all of them to the
      // stack
      if (pairs && has_few_registers(k) && sums_once(k)) kernel_apply(k, (opt){OPT_ORDER, ORDER_ALL, 0});
    }
    return;
  }
}

// A transposing copy has no lanes: unroll the short axis along which it stores contiguously.
static void unroll_copy(kernel *k) {
  uop *store = k->ast->src[0];
  int count;
  if (main_reduce(k, &count)) return;
  for (size_t i = 2; i < store->nsrc; i++) {
    uop *r = store->src[i];
    if (r->b == AXIS_LANE) return;
    if (r->b == AXIS_LOOP && r->src[0]->op == OP_CONST && r->src[0]->a <= 16 &&
        index_coefficient(store->src[0], r) == 1) {
      apply_to(k, OPT_UPCAST, r, 0);
      return;
    }
  }
}

// Unrolls an output range that selects among many values: each value, and what they share, is computed once.
static void unroll_choices(kernel *k) {
  const uop *v = k->ast->src[0]->src[1];
  uop *r = v->op == OP_WHERE && v->src[0]->op == OP_CMPLT ? v->src[0]->src[0] : NULL;
  int64_t n = 1;
  if (!r || r->op != OP_RANGE || r->b != AXIS_LOOP || r->src[0]->op != OP_CONST) return;
  for (; v->op == OP_WHERE && v->src[0]->op == OP_CMPLT && v->src[0]->src[0] == r; v = v->src[2]) n++;
  if (n > 4 && n == r->src[0]->a) apply_to(k, OPT_UPCAST, r, 0);
}

// --- stages ---------------------------------------------------------------------------------------------------------

static bool is_stage_store(const kernel *k, const uop *u) { return u->op == OP_STORE && u != k->ast->src[0]; }

static bool has_stages(const kernel *k) {
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &(uop *){k->ast}, 1);
  bool any = false;
  for (size_t i = 0; i < l.n; i++) any |= is_stage_store(k, l.at[i]);
  arena_free(a);
  return any;
}

// A range of a stage along which it is stored contiguously, and along which all its loads are contiguous or constant.
static uop *stage_lane(kernel *k, uop *store) {
  loads l;
  find_loads(store->src[1], &l);
  for (size_t i = store->nsrc; i-- > 2;) {
    uop *r = store->src[i];
    int n = lanes_that_fit(k, r);
    bool ok =
      r->b == AXIS_REDUCE && n > 1 && stride_of(k, store->src[0], r, n, (enum dtype)store->src[1]->dt) == CONTIGUOUS;
    for (int j = 0; ok && j < l.n; j++) ok = stride_of(k, l.at[j]->src[0], r, n, (enum dtype)l.at[j]->dt) != JUMPS;
    if (ok) return r;
  }
  return NULL;
}

static bool store_has_lane(const uop *store) {
  for (size_t i = 2; i < store->nsrc; i++) if (store->src[i]->b == AXIS_LANE) return true;
  return false;
}

static bool lane_stage(kernel *k, const uop_list *all, size_t i, int unused) {
  uop *r = is_stage_store(k, all->at[i]) && !store_has_lane(all->at[i]) ? stage_lane(k, all->at[i]) : NULL;
  (void)unused;
  return r && apply_to(k, OPT_LANES, r, lanes_that_fit(k, r));
}

static size_t count_ops(const uop_list *l, enum op op) {
  size_t n = 0;
  for (size_t i = 0; i < l->n; i++) n += l->at[i]->op == op;
  return n;
}

// Does u compute a reduction itself, not counting the stages that it reads?
static bool sums_itself(uop *u) {
  arena *a = arena_new();
  uop_list all = uop_toposort(a, &u, 1), stages = {arena_alloc(a, all.n * sizeof(uop *)), 0};
  for (size_t i = 0; i < all.n; i++) if (all.at[i]->op == OP_STORE) stages.at[stages.n++] = all.at[i];
  uop_list theirs = uop_toposort(a, stages.at, stages.n);
  bool does = count_ops(&all, OP_REDUCE) > count_ops(&theirs, OP_REDUCE);
  arena_free(a);
  return does;
}

// Unrolls the short loops of a stage, and `sums` vectors of a stage whose elements are sums, which share loads.
static bool unroll_one_stage(kernel *k, const uop_list *all, size_t i, int sums) {
  uop *u = all->at[i];
  if (!is_stage_store(k, u)) return false;
  bool shares = store_has_lane(u) && sums_itself(u->src[1]);
  int64_t unrolled = 1, most = shares ? sums : 2;
  for (size_t j = 2; j < u->nsrc; j++) if (u->src[j]->b == AXIS_UNROLL) unrolled *= u->src[j]->src[0]->a;
  for (size_t j = u->nsrc; j-- > 2;) {
    uop *r = u->src[j];
    if (r->b != AXIS_REDUCE || unrolled >= most) continue;
    int64_t n = most / unrolled;
    while (n > 1 && r->src[0]->a % n) n--;
    bool all_of_it = n == r->src[0]->a;
    if (n > 1 && (shares || all_of_it) && apply_to(k, OPT_UNROLL, r, all_of_it ? 0 : (int)n)) return true;
  }
  return false;
}

enum { STAGE_COPIES = 4, GROUP_COPIES = 16 };

// Bytes of memory of all stages, with all their copies.
static int64_t bytes_of_stages(const kernel *k) {
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &(uop *){k->ast}, 1);
  int64_t bytes = 0;
  for (size_t i = 0; i < l.n; i++) {
    const uop *u = l.at[i], *mem = u->op == OP_STORE ? u->src[0]->src[0] : NULL;
    if (!mem || mem->op != OP_LOCAL) continue;
    int64_t one = mem->b * dtype_size((enum dtype)mem->dt);
    for (size_t n = 0; n < uop_ranges(u).n; n++)
      if (uop_ranges(u).at[n]->b == AXIS_UPCAST) one *= uop_ranges(u).at[n]->src[0]->a;
    bytes += one;
  }
  arena_free(a);
  return bytes;
}

// Copies the loops around stages: rows (the queries of one KV head), then tokens, whose sums share loads.
int copy_stages(kernel *k) {
  map tiles = {0};
  axes x;
  uop *fixed[MAX_AXES], *tokens = NULL;
  int n = 0, copies = 1;
  kernel_tile_ranges(k, &tiles);
  kernel_axes(k, &x);
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &k->ast, 1);
  for (int i = x.n_out; i-- > 0;) {
    uop *r = x.at[i];
    bool shares = false;
    for (size_t j = 0; j < l.n && !shares; j++) shares = l.at[j]->op == OP_REDUCE && shares_loads(l.at[j], r);
    if (r->b != AXIS_LOOP || !map_has(&tiles, r) || !shares) continue;
    if (r->src[0]->op == OP_CONST) fixed[n++] = r;
    else tokens = r;
  }
  arena_free(a);
  map_free(&tiles);
  for (int i = 0; i < n; i++) {
    int64_t amount = STAGE_COPIES / copies;
    while (amount > 1 && fixed[i]->src[0]->a % amount) amount--;
    if (amount > 1 && apply_to(k, OPT_UPCAST, fixed[i], fixed[i]->src[0]->a == amount ? 0 : (int)amount))
      copies *= (int)amount;
  }
  // A work-group reads keys and values once for all of its tokens of a chunk; memory should hold four work-groups.
  int more = (k->t->has_local ? GROUP_COPIES : STAGE_COPIES) / copies;
  while (tokens && more > STAGE_COPIES / copies &&
         (more > tokens->src[0]->vmax || 4 * more * bytes_of_stages(k) > k->t->max_local_bytes))
    more /= 2;
  if (tokens && more > 1 && apply_to(k, OPT_UPCAST, tokens, more)) copies *= more;
  return copies;
}

// Optimises a kernel with stages: each stage gets its own lanes.
static void staged(kernel *k) {
  if (k->t->vector_bytes) {
    uop *r = output_lanes(k);
    if (r) apply_to(k, OPT_LANES, r, lanes_that_fit(k, r));
    kernel_change_all(k, lane_stage, 0);
    kernel_change_all(k, lane_one_reduce, 0);
  }
  int sums = MAX_ACCUMULATORS / copy_stages(k);
  kernel_change_all(k, unroll_one_stage, sums);
  axes x;
  kernel_axes(k, &x);
  // the rest of the output: vectors of one row, which share the elements of a stage
  for (int i = x.n_out; i-- > 0;) {
    uop *r = x.at[i];
    map tiles = {0};
    kernel_tile_ranges(k, &tiles);
    int64_t n = r->b == AXIS_LOOP && r->src[0]->op == OP_CONST && !map_has(&tiles, r) ? min_i64(sums, r->src[0]->a) : 1;
    map_free(&tiles);
    while (n > 1 && r->src[0]->a % n) n--;
    if (n > 1 && apply_to(k, OPT_UPCAST, r, n == r->src[0]->a ? 0 : (int)n)) break;
  }
  if (k->t->distance.kib) kernel_apply(k, (opt){OPT_PREFETCH, k->t->distance.kib, k->t->distance.hint});
  kernel_apply(k, (opt){OPT_PREFETCH, 0, PREFETCH_T1});
}

// Do several tokens share the loads of weights? Then reading weights is not the whole cost.
static bool tokens_share(const kernel *k) {
  const uop *store = k->ast->src[0];
  loads l;
  find_loads(store->src[1], &l);
  for (size_t i = 2; i < store->nsrc; i++)
    if (store->src[i]->b == AXIS_UPCAST && !has_own_weights(&l, store->src[i])) return true;
  return false;
}

static bool computes_doubles(const kernel *k) {
  arena *a = arena_new();
  uop *sink = k->ast;
  uop_list l = uop_toposort(a, &sink, 1);
  bool any = false;
  for (size_t i = 0; i < l.n && !any; i++) any = l.at[i]->dt == DT_F64;
  arena_free(a);
  return any;
}

// A device without doubles emulates each in hundreds of instructions, which compilers repeat for each lane: such
// kernels (tables of angles) stay scalar loops.
void heuristic(kernel *k, bool by_memory) {
  if (k->t->lacks_doubles && !k->t->has_local && computes_doubles(k)) return;
  if (k->t->has_local && stages_of_items(k)) return;
  kernel_apply(k, (opt){OPT_BLOCKS, 0, 0});
  if (k->t->has_local) { work_groups(k); return; }
  if (has_stages(k)) { staged(k); return; }
  bool dot = k->t->vector_bytes && dot_lanes(k);
  if (k->t->vector_bytes && !dot) {
    uop *r = output_lanes(k);
    if (r) apply_to(k, OPT_LANES, r, lanes_that_fit(k, r));
    kernel_change_all(k, lane_one_reduce, 0);
  }
  if (dot) { both_halves(k); unroll_dot(k); two_sums(k); }
  else unroll_blocks(k);
  upcast_inner(k);
  if (dot) { rows_side_by_side(k); token_tiles(k); }
  else register_tiles(k);
  unroll_copy(k);
  unroll_choices(k);
  if (by_memory) kernel_apply(k, (opt){OPT_ORDER, 0, 0});
  prefetch distance = by_memory && !tokens_share(k) ? k->t->distance : k->t->distance_of_tile;
  // Values that several tiles of tokens share are computed once. Not with few registers, where loads are the bottleneck
  // and this adds some.
  if (!by_memory && !has_few_registers(k) && kernel_apply(k, (opt){OPT_KEEP, distance.kib ? 1 + distance.hint : 0, 1}))
    return;
  if (distance.kib) kernel_apply(k, (opt){OPT_PREFETCH, distance.kib, distance.hint});
}
