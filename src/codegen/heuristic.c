// Good loops without search. The questions are asked of the index expressions, not of op patterns: which ranges does
// the index of each load depend on, and with which stride? So a matvec is found through casts, multiplies and whole
// dequantisations.
//
// 1. Lanes: rows of a dot product; rows of a weight of floats that may be laid anew; an output range along which every
//    access is contiguous or constant; otherwise, per reduction, a reduced range of that kind (partial sums in lanes,
//    added at the end).
// 2. Ranges that came from a format's block structure are unrolled: codes that share bytes share loads.
// 3. Output ranges that no reduction depends on and that are small are unrolled, so that what they share is computed
//    once.
// 4. Register tiles: output ranges that some load inside the reduction does not depend on; several at once share that
//    load. MV_ROWS_PER_THREAD is the size for rows.
// The structure of a reduction (1, 2) depends on the reduced ranges and the weight alone, never on batch, position or
// threads: the order of float additions is the same for one token and for many.
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

// The same without what addresses are made of.
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

// How an access moves along the lanes of range r, when r is cut into pieces of `lanes`.
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

// --- dot products ---------------------------------------------------------------------------------------------------

// Is this sum one of products such that several steps of `inner` are one instruction in each lane of `lane`?
// Only the layout of a stream puts those operands side by side; other ones must be bytes, the same for all lanes and
// steps.
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
  find_values(a, &seen, &l);                      // which expert's bytes they are is one number for all lanes
  map_free(&seen);
  bool together = false;
  for (int i = 0; i < l.n; i++) {
    uop *at = l.at[i]->src[0]->src[1];
    if (is_stream(l.at[i]->src[0]->src[0])) together |= uop_varies(at, lane);
    else if (dtype_size((enum dtype)l.at[i]->dt) != 1 || uop_varies(at, lane) || uop_varies(at, inner)) return false;
  }
  return together;
}

// A dot-product instruction, if some integer reduction over an axis of four and some output axis fit it, and all other
// memory that is read moves along that output axis by one element or not at all.
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
  // results may be stored one by one: a row costs more than its store
  bool ok = lane >= 0 && uop_varies(store->src[0], x.at[lane]);
  for (size_t i = 0; ok && i < l.n; i++)
    if (l.at[i]->op == OP_LOAD && !is_stream(l.at[i]->src[0]->src[0]))
      ok = stride_of(k, l.at[i]->src[0], x.at[lane], lanes_that_fit(k, x.at[lane]), (enum dtype)l.at[i]->dt) != JUMPS;
  // a reduction over the same range that is no dot product gets ranges of its own
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

// Would some sum of floats that depends on r have lanes of its own?
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
    // A symbolic size is padded: only where that needs no guard. It may be a number of tokens: one token has no such
    // range, and its sums must be laid in the same way.
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

// The best range of a reduction to lay in lanes: every load of its body contiguous or constant along it; the largest
// such.
static uop *reduce_lanes(kernel *k, uop *reduce) {
  loads l;
  find_loads(reduce->src[0], &l);
  uop *best = NULL;
  int best_lanes = 1;
  for (size_t i = (size_t)uop_first_range(reduce); i < reduce->nsrc; i++) {
    uop *r = reduce->src[i];
    int n = lanes_that_fit(k, r), contiguous = 0;
    bool ok = r->b == AXIS_REDUCE && n > 1;
    for (int j = 0; ok && j < l.n; j++) {
      enum stride s = stride_of(k, l.at[j]->src[0], r, n, (enum dtype)l.at[j]->dt);
      ok = s != JUMPS;
      contiguous += s == CONTIGUOUS;
    }
    if (ok && contiguous && n > best_lanes) { best = r; best_lanes = n; }
  }
  return best;
}

static bool lane_one_reduce(kernel *k) {
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &k->ast, 1);
  bool did = false;
  for (size_t i = 0; i < l.n && !did; i++) {
    uop *u = l.at[i];
    if (u->op != OP_REDUCE || has_lane(u) || uop_has_axis(u, AXIS_LANE)) continue;
    // a reduction inside that is not finished per lane would mix two kinds of lanes
    bool nested = false;
    for (size_t j = 0; j < i; j++)
      nested |= l.at[j]->op == OP_REDUCE && l.at[j] != u && has_lane(l.at[j]) && uop_has_axis(l.at[j], AXIS_LANE);
    uop *r = nested ? NULL : reduce_lanes(k, u);
    if (!r) continue;
    // a range shared with a reduction that is laid in lanes another way is no range for lanes: part them
    bool apart = false;
    for (size_t j = 0; j < l.n && !apart; j++)
      apart = l.at[j]->op == OP_REDUCE && l.at[j] != u && uop_binds(l.at[j], r) &&
              (has_lane(l.at[j]) || uop_has_axis(l.at[j], AXIS_LANE));
    did = apart ? kernel_separate(k, u) : apply_to(k, OPT_LANES, r, lanes_that_fit(k, r));
  }
  arena_free(a);
  return did;
}

// --- unrolling and register tiles -----------------------------------------------------------------------------------

enum { FEW_COPIES = 4, MAX_UNROLL = 16, DENSE_UNROLL = 4, MAX_ACCUMULATORS = 16, TOKEN_TILE = 8 };

// On how many of the kernel's output ranges what is reduced depends.
static int outputs_of(const kernel *k, const uop *reduce) {
  const uop *store = k->ast->src[0];
  int n = 0;
  for (size_t i = 2; i < store->nsrc; i++) n += uop_varies(reduce->src[0], store->src[i]);
  return n;
}

// The longest; of equal ones that which makes most of the output (the sum over values, not the one that it is divided
// by), and of those the outer one: the product, not the norm of what it multiplies.
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

// Unrolling goes from the innermost range outwards and stops at the first long one, which is unrolled in part: so the
// terms are still added in ascending order, however the range was cut.
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

// A sum over a number of places that is not known: attention's blocks, which lie far apart. So several vectors of each
// place are read together.
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

// Does some load of the reduction's body stay the same along r, so that a tile along r shares it?
bool shares_loads(uop *reduce, uop *r) {
  loads l;
  find_loads(reduce->src[0], &l);
  bool depends = false, shared = false;
  for (int j = 0; j < l.n; j++) {
    if (uop_varies(l.at[j], r)) { depends = true; continue; }       // a stage's element, too, where the stage does
    for (size_t i = (size_t)uop_first_range(reduce); i < reduce->nsrc; i++)
      shared |= uop_varies(l.at[j]->src[0], reduce->src[i]);
  }
  return depends && shared;
}

// Of a number of tokens so many go together: as few tiles as there can be, and these of one size.
static int token_tile(const kernel *k, const uop *tokens) {
  int64_t most = tokens->src[0]->vmax, size = k->t->token_tile ? k->t->token_tile : TOKEN_TILE,
          tiles = (most + size - 1) / size;
  return (int)((most + tiles - 1) / tiles);
}

// Is r in nothing but addresses that grow evenly with it? A shift or a choice by a loop's counter costs what a constant
// would not.
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

// Do bytes of a weight serve several steps of r, or another sum that has no such steps? A loop would read them twice.
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

// Is this range of a sum of integers one to unroll? Not one whose steps have nothing in common: a loop costs little,
// while LLVM orders long blocks badly, keeps their values on the stack, and takes long. The sum that a DOT is in is
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

// Around a dot product what is inside the outermost reduction is unrolled, as far as its steps share anything.
void unroll_dot(kernel *k) {
  for (bool again = true; again;) {
    again = false;
    arena *a = arena_new();
    uop_list l = uop_toposort(a, &k->ast, 1);
    for (size_t i = 0; i < l.n && !again; i++) {
      uop *u = l.at[i];
      if (u->op != OP_REDUCE || u->dt != DT_I32) continue;
      for (size_t j = (size_t)uop_first_range(u); j < u->nsrc && !again; j++)
        again = worth_unrolling(k, u, u->src[j]) && apply_to(k, OPT_UNROLL, u->src[j], 0);
    }
    arena_free(a);
  }
}

// How many sums each lane has, and whether one is of floats.
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

// A sum of floats waits for its last step: two vectors of rows at once are two sums, and share x. No steps are
// unrolled: each sum's would lie together in the stream, and be read in turns.
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

// Where a vector holds half of the rows that lie side by side, both halves at once: they share x. Not where each lane
// has several products already.
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

// Does a stream hold neighbours of r side by side within each of its blocks: closer than the blocks that are summed?
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

// Tiles of rows that lie side by side in memory are computed side by side, where there is but one token: then a weight
// is read in one run.
static void rows_side_by_side(kernel *k) {
  uop *store = k->ast->src[0], *row = NULL;
  for (size_t i = 2; i < store->nsrc; i++) {
    uop *r = store->src[i];
    if (r->b == AXIS_UPCAST || r->src[0]->op != OP_CONST) return;
    if (r->b == AXIS_LOOP && r->src[0]->a <= 4 && lies_inside(k, r)) row = r;
  }
  if (row) apply_to(k, OPT_UPCAST, row, 0);
}

// Bytes of activations that one token's products read: what moves along a reduced range and not along rows.
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

// The loop over tiles of tokens (output axis `at`) goes inside those over rows: so a tile of rows is read from memory
// once, and the activations of all tokens from the cache, which they have to fit: of more tokens than that, one part
// after the other.
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

// Two products with so many tokens each have more sums than there are registers: one after the other, then. What they
// share, the tokens, lies in a cache.
static bool part_products(kernel *k) {
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &k->ast, 1);
  bool did = false;
  for (size_t i = 0; i < l.n && !did; i++)
    did = l.at[i]->op == OP_REDUCE && l.at[i]->dt == DT_F32 && !has_lane(l.at[i]) && uop_has_axis(l.at[i], AXIS_LANE) &&
          kernel_separate(k, l.at[i]);
  arena_free(a);
  return did;
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
  // the pairs of a rotation are rows already: `unrolled` of them share the loads
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
    while (part_products(k)) continue;
    rows_outside(k, at, amount);
  }
}

// Do the sums of all dot products stay in one register until their end? Not where what 16 bits hold joins another sum
// before that: then there are twice as many.
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
    const descriptor *d = descriptor_find(k->t->descriptors, DT_I32, k->t->vector_bytes / 4, codes->vmax);
    once = !d || !d->products || steps <= descriptor_steps(d, codes->vmax);
  }
  arena_free(a);
  return once;
}

enum { FEW_REGISTERS = 16 };
static bool has_few_registers(const kernel *k) {
  return k->t->vector_registers && k->t->vector_registers <= FEW_REGISTERS;
}

// With few registers, the sums of a tile of so many tokens take half of them. Two vectors of rows for half as many
// tokens are as many sums with fewer loads: a load of x is one for both. It is so, too, if an instruction has the
// products of two rows and two tokens: then rows and tokens cost the same.
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

// Does each step of r read other weights?
bool has_own_weights(const loads *l, const uop *r) {
  for (int j = 0; j < l->n; j++)
    if (is_weight(l->at[j]->src[0]->src[0]) && uop_varies(l->at[j]->src[0], r)) return true;
  return false;
}

// Several tokens share what a row costs: those that read the same rows, which are all of a chunk, or of a tile of an
// expert's.
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
      while (part_products(k)) continue;
      rows_outside(k, (int)i - 2, tile);
      // step after step, each with its own weights: the compiler would mix them, and have all of them on the stack
      if (pairs && has_few_registers(k) && sums_once(k)) kernel_apply(k, (opt){OPT_ORDER, ORDER_ALL, 0});
    }
    return;
  }
}

// A copy between two orders has no lanes: unroll the short axis along which it stores side by side.
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

// An output range that chooses among many values is unrolled: each of them, and what they share, is computed once.
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

// A range of a stage along which it is stored side by side, and everything that it reads lies so, or is the same.
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

static bool lane_one_stage(kernel *k) {
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &k->ast, 1);
  bool did = false;
  for (size_t i = 0; i < l.n && !did; i++) {
    uop *r = is_stage_store(k, l.at[i]) && !store_has_lane(l.at[i]) ? stage_lane(k, l.at[i]) : NULL;
    did = r && apply_to(k, OPT_LANES, r, lanes_that_fit(k, r));
  }
  arena_free(a);
  return did;
}

static size_t count_ops(const uop_list *l, enum op op) {
  size_t n = 0;
  for (size_t i = 0; i < l->n; i++) n += l->at[i]->op == op;
  return n;
}

// Does u compute a sum, or another reduction, itself? Not in a stage that it reads.
static bool sums_itself(uop *u) {
  arena *a = arena_new();
  uop_list all = uop_toposort(a, &u, 1), stages = {arena_alloc(a, all.n * sizeof(uop *)), 0};
  for (size_t i = 0; i < all.n; i++) if (all.at[i]->op == OP_STORE) stages.at[stages.n++] = all.at[i];
  uop_list theirs = uop_toposort(a, stages.at, stages.n);
  bool does = count_ops(&all, OP_REDUCE) > count_ops(&theirs, OP_REDUCE);
  arena_free(a);
  return does;
}

// Short loops of a stage, and those over vectors of one whose elements are sums: so many sums share what they read.
// True if it did.
static bool unroll_one_stage(kernel *k, int sums) {
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &k->ast, 1);
  bool did = false;
  for (size_t i = 0; i < l.n && !did; i++) {
    uop *u = l.at[i];
    if (!is_stage_store(k, u)) continue;
    bool shares = store_has_lane(u) && sums_itself(u->src[1]);
    int64_t unrolled = 1, most = shares ? sums : 2;
    for (size_t j = 2; j < u->nsrc; j++) if (u->src[j]->b == AXIS_UNROLL) unrolled *= u->src[j]->src[0]->a;
    for (size_t j = u->nsrc; j-- > 2 && !did;) {
      uop *r = u->src[j];
      if (r->b != AXIS_REDUCE || unrolled >= most) continue;
      int64_t n = most / unrolled;
      while (n > 1 && r->src[0]->a % n) n--;
      did = n > 1 && (shares || n == r->src[0]->a) && apply_to(k, OPT_UNROLL, r, n == r->src[0]->a ? 0 : (int)n);
    }
  }
  arena_free(a);
  return did;
}

enum { STAGE_COPIES = 4, GROUP_COPIES = 16 };

// Bytes of memory that stages take, in all their copies.
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

// Loops around stages become copies of these: rows (queries of one head of keys), then tokens, whose sums share what
// they read.
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
  // A work-group reads keys and values once for all that it has of a chunk's tokens; four of them should fit.
  int more = (k->t->has_local ? GROUP_COPIES : STAGE_COPIES) / copies;
  while (tokens && more > STAGE_COPIES / copies &&
         (more > tokens->src[0]->vmax || 4 * more * bytes_of_stages(k) > k->t->max_local_bytes))
    more /= 2;
  if (tokens && more > 1 && apply_to(k, OPT_UPCAST, tokens, more)) copies *= more;
  return copies;
}

// A kernel with stages: each is laid in lanes by itself.
static void staged(kernel *k) {
  if (k->t->vector_bytes) {
    uop *r = output_lanes(k);
    if (r) apply_to(k, OPT_LANES, r, lanes_that_fit(k, r));
    while (lane_one_stage(k)) {}
    while (lane_one_reduce(k)) {}
  }
  int sums = MAX_ACCUMULATORS / copy_stages(k);
  while (unroll_one_stage(k, sums)) {}
  axes x;
  kernel_axes(k, &x);
  // what is left of the output: vectors of one row, which share a stage's elements
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

// Do several tokens, side by side, share what is read of weights? Then that is not all that takes time.
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

// A device without doubles computes them in hundreds of instructions each, which compilers write out for each lane:
// such kernels, tables of angles, stay loops of scalars.
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
    while (lane_one_reduce(k)) {}
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
  // What several tiles of tokens share is made once. Not with few registers: there loads decide, and these are more.
  if (!by_memory && !has_few_registers(k) && kernel_apply(k, (opt){OPT_KEEP, distance.kib ? 1 + distance.hint : 0, 1}))
    return;
  if (distance.kib) kernel_apply(k, (opt){OPT_PREFETCH, distance.kib, distance.hint});
}
