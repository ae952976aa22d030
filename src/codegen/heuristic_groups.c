// The heuristic for devices with work-groups (GPUs): neighbouring work-items share sums; work-items and work-groups
// share rows.
#include "codegen/heuristic_impl.h"
#include "codegen/mma.h"
#include "codegen/stage_shared.h"
#include "base/env.h"

// Bytes by which a step of r moves an access; -1 if it does not move evenly. Some bytes of a row's unit may be read in
// some steps only; their addresses do not depend on that condition.
static int64_t step_bytes(const uop *load, const uop *r) {
  const uop *index = load->src[0];
  uop *at = index->src[1];
  if (is_stream(index->src[0]) && at->op == OP_WHERE && !uop_varies(at->src[0], r)) at = at->src[1];
  int64_t c = idx_factor(at, r);
  return c < 0 ? -1 : c * dtype_size((enum dtype)index->src[0]->dt);
}

// Do four neighbours of a range have contiguous bytes in both operands, so that they are one word each and one DOT?
static bool words_along(const uop *reduce, const uop *r) {
  uop *a, *x;
  if (r->b != AXIS_REDUCE || r->src[0]->op != OP_CONST || r->src[0]->a % 4 ||
      !dot_operands(reduce->src[0], DT_I32, NULL, &a, &x) || x->src[0]->src[0]->dt != x->dt ||
      index_coefficient(x->src[0], r) != 1)
    return false;
  loads l = {.n = 0};
  map seen = {0};
  find_values(a, &seen, &l);
  map_free(&seen);
  for (int i = 0; i < l.n; i++)
    if (dtype_size((enum dtype)l.at[i]->dt) != 1 || step_bytes(l.at[i], r) != 1) return false;
  return l.n;
}

static bool dot_alone(kernel *k, const uop_list *all, size_t i, int unused) {
  uop *u = all->at[i];
  (void)unused;
  if (u->op != OP_REDUCE || u->dt != DT_I32 || u->a != OP_ADD) return false;
  for (size_t j = (size_t)uop_first_range(u); j < u->nsrc; j++) {
    int axis = axis_of(k, u->src[j]);
    if (words_along(u, u->src[j]) && kernel_apply(k, (opt){OPT_TC, axis, axis})) return true;
  }
  return false;
}

static bool depends_on(const uop *u, uop *const *ranges, int n) {
  for (int i = 0; i < n; i++) if (uop_varies(u, ranges[i])) return true;
  return false;
}

// The ranges of a reduction and of the reductions recomputed in its steps, and their total number of steps.
static int ranges_inside(uop *reduce, uop **out, double *steps) {
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &reduce, 1);
  int n = 0;
  *steps = 1;
  for (size_t i = l.n; i-- > 0;) {
    uop *u = l.at[i];
    if (u->op != OP_REDUCE || (u != reduce && !depends_on(u, out, n))) continue;
    for (size_t j = (size_t)uop_first_range(u); j < u->nsrc && n < MAX_AXES; j++) {
      if (uop_is_among(u->src[j], out, n)) continue;
      out[n++] = u->src[j];
      *steps *= (double)u->src[j]->src[0]->vmax;
    }
  }
  arena_free(a);
  return n;
}

// The longest sum that depends on output ranges only.
static uop *outer_sum(kernel *k, double *steps) {
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &k->ast, 1);
  const uop *store = k->ast->src[0];
  uop *best = NULL, *ranges[MAX_AXES];
  *steps = 0;
  for (size_t i = 0; i < l.n; i++) {
    uop *u = l.at[i];
    double n;
    if (u->op != OP_REDUCE) continue;
    const uop_list free = uop_ranges(u);
    bool outer = true;
    for (size_t j = 0; j < free.n; j++) outer &= uop_is_among(free.at[j], store->src + 2, (int)store->nsrc - 2);
    if (!outer) continue;
    ranges_inside(u, ranges, &n);
    if (n >= *steps) { *steps = n; best = u; }
  }
  arena_free(a);
  return best;
}

// The step in memory along r of the weight load that reads most (of any load if there is no weight); 0 if r is used in
// more than addresses.
static int64_t step_of_most(uop *sum, uop *r) {
  arena *a = arena_new();
  uop_list all = uop_toposort(a, &sum, 1);
  bool plain = true, weights = false;
  int64_t step = 0;
  double most = 0;
  for (size_t i = 0; i < all.n && plain; i++) {
    map seen = {0};
    plain = all.at[i]->op != OP_REDUCE || !uop_binds(all.at[i], r) || only_in_addresses(all.at[i]->src[0], r, &seen);
    map_free(&seen);
  }
  arena_free(a);
  loads l;
  find_loads(sum->src[0], &l);
  for (int i = 0; i < l.n; i++) weights |= is_weight(l.at[i]->src[0]->src[0]);
  for (int i = 0; plain && i < l.n; i++) {
    const uop_list ranges = uop_ranges(l.at[i]);
    double n = dtype_size((enum dtype)l.at[i]->dt);
    int64_t s = step_bytes(l.at[i], r);
    for (size_t j = 0; j < ranges.n; j++) n *= (double)ranges.at[j]->src[0]->vmax;
    if (s > 0 && n > most && (!weights || is_weight(l.at[i]->src[0]->src[0]))) { most = n; step = s; }
  }
  return step;
}

// Shares a sum among neighbouring work-items along the ranges with the shortest steps in memory, so that they read
// contiguous bytes at a time. Only ranges that the outermost sum can take over (opt.c) are used, so that there is one
// exchange and not one per iteration; without such a range, the last range of the longest sum. Returns the number of
// work-items.
static int share_sum(kernel *k, int items) {
  int shared = 1;
  map tried = {0};
  while (shared < items) {
    double steps;
    uop *sum = outer_sum(k, &steps), *ranges[MAX_AXES], *best = NULL;
    int64_t least = INT64_MAX;
    for (int i = 0, n = ranges_inside(sum, ranges, &steps); i < n; i++) {
      uop *r = ranges[i];
      if (r->b != AXIS_REDUCE || r->src[0]->op != OP_CONST || r->src[0]->a % 2 || map_has(&tried, r)) continue;
      int64_t step = step_of_most(sum, r);
      if (step && step < least) { least = step; best = r; }
    }
    if (!best) break;
    int64_t amount = 2;
    while (amount * 2 * shared <= items && best->src[0]->a % (amount * 2) == 0) amount *= 2;
    kernel before = *k;
    bool did = apply_to(k, OPT_GROUP, best, (int)amount);
    sum = did ? outer_sum(k, &steps) : NULL;
    bool outermost = false;
    for (int i = 0, n = sum ? ranges_inside(sum, ranges, &steps) : 0; i < n; i++)
      outermost |= ranges[i]->b == AXIS_GROUP && uop_binds(sum, ranges[i]) && ranges[i]->a >= before.next_range;
    if (outermost) shared *= (int)amount;
    else { *k = before; map_put(&tried, best, best); }
  }
  map_free(&tried);
  int count, amount = shared == 1 ? items : 1;
  uop *m = main_reduce(k, &count), *r = m->src[m->nsrc - 1];
  while (amount > 1 && (r->b != AXIS_REDUCE || r->src[0]->op != OP_CONST || r->src[0]->a % amount)) amount /= 2;
  return amount > 1 && apply_to(k, OPT_GROUP, r, amount) ? amount : shared;
}

// --- rows of a weight that lie side by side --------------------------------------------------------------------------

// The range whose steps are rows packed next to each other: all packed weights move along it.
static uop *row_of_items(kernel *k) {
  uop *store = k->ast->src[0], *row = NULL;
  loads l;
  find_loads(store->src[1], &l);
  for (size_t i = 2; i < store->nsrc; i++) {
    uop *r = store->src[i];
    bool ok = r->b == AXIS_LOOP && uop_is_int(r->src[0], k->t->row_items), any = false;
    for (int j = 0; ok && j < l.n; j++) {
      if (!is_stream(l.at[j]->src[0]->src[0])) continue;
      ok = step_bytes(l.at[j], r) > 0;
      any = true;
    }
    if (ok && any) row = r;
  }
  return row;
}

// LEAST_STEPS: minimum steps of a sum that are left for each group of work-items that shares it.
enum {
  LEAST_STEPS = 64,
  MOST_PARTS = 16,
  OUTER_PARTS = 4,
  ITEM_TOKENS = 8,
  GROUP_TOKENS = 64,
  MOST_SUMS = 32,
  MOST_SHARED = 4
};

// Rewrites sums over r as sums over `over` of sums of every `parts`-th step. Returns the range of these steps, or NULL.
static uop *cut_in_parts(kernel *k, uop *r, int64_t parts, uop **over) {
  axes x;
  int64_t fresh = k->next_range;
  uop *within = NULL;
  *over = NULL;
  if (!r || parts < 2 || !apply_to(k, OPT_PARTS, r, (int)parts)) return r;
  kernel_axes(k, &x);
  for (int i = x.n_out; i < x.n; i++) {
    if (x.at[i]->a == fresh) *over = x.at[i];
    if (x.at[i]->a == fresh + 1) within = x.at[i];
  }
  return within;
}

// Splits a sum into parts along its outermost range: neighbouring blocks of rows are consecutive in memory. The number
// of parts, and therefore the order of additions, depends on the weight only: parts are sums of parts; each work-item
// has one, or (`whole`) computes all of a part in sequence.
static void part_sum(kernel *k, bool whole) {
  double steps;
  uop *sum = outer_sum(k, &steps), *best = NULL, *over[2];
  if (!sum) return;
  for (size_t i = (size_t)uop_first_range(sum); i < sum->nsrc; i++) {
    uop *r = sum->src[i];
    if (r->b == AXIS_REDUCE && r->src[0]->op == OP_CONST && (!best || r->src[0]->a > best->src[0]->a)) best = r;
  }
  int64_t parts = min_i64(MOST_PARTS, k->t->max_group / k->t->row_items), outer;
  while (parts > 1 && (!best || best->src[0]->a % parts || steps / (double)parts < LEAST_STEPS)) parts /= 2;
  outer = min_i64(parts, OUTER_PARTS);
  cut_in_parts(k, cut_in_parts(k, best, outer, &over[0]), parts / outer, &over[1]);
  for (int i = 0; i < 2 - whole; i++) if (over[i]) apply_to(k, OPT_GROUP, over[i], 0);
}

// Unrolls the steps of a row's contiguous bytes, so that they are read together.
static bool unroll_unit(kernel *k, const uop_list *all, size_t i, int unused) {
  uop *u = all->at[i];
  loads in;
  (void)unused;
  if (u->op != OP_REDUCE) return false;
  find_loads(u->src[0], &in);
  for (size_t j = (size_t)uop_first_range(u); j < u->nsrc; j++) {
    uop *r = u->src[j];
    bool within = false;
    if (r->b != AXIS_REDUCE || r->src[0]->op != OP_CONST) continue;
    for (int n = 0; n < in.n; n++) {
      int64_t step = is_stream(in.at[n]->src[0]->src[0]) ? step_bytes(in.at[n], r) : 0;
      within |= step > 0 && step * r->src[0]->a <= k->t->row_bytes;
    }
    if (within && apply_to(k, OPT_UNROLL, r, 0)) return true;
  }
  return false;
}

// A float sum around integer sums: steps that use different bits of equal bytes are unrolled, so that the bytes are
// read once.
static bool unroll_shared_bytes(kernel *k, const uop_list *all, size_t i, int unused) {
  uop *u = all->at[i];
  (void)unused;
  if (u->op != OP_REDUCE || u->dt != DT_F32) return false;
  for (size_t j = (size_t)uop_first_range(u); j < u->nsrc; j++) {
    uop *r = u->src[j];
    bool small = r->b == AXIS_REDUCE && r->src[0]->op == OP_CONST && r->src[0]->a <= MOST_SHARED;
    if (small && shares_bytes(k, u, r) && apply_to(k, OPT_UNROLL, r, 0)) return true;
  }
  return false;
}

// Is there a sum of F16 or BF16 products that has an instruction?
static bool has_halves(const kernel *k) {
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &(uop *){k->ast}, 1);
  bool any = false;
  for (size_t i = 0; i < l.n; i++) {
    enum dtype dt = mma_halves(l.at[i]);
    any |= dt != DT_VOID && descriptor_tile(k->t->descriptors, dt, 16);
  }
  arena_free(a);
  return any;
}

// Uses instructions that compute tiles of 16 rows and 8 tokens: the output is split for these, and all integer sums of
// products have to fit. F16 and BF16 use tiles for a single token too, because no other instruction adds in that order.
// False: the kernel is unchanged.
static bool tiles_of_items(kernel *k, const uop *row) {
  axes x;
  int at, tokens = -1;
  kernel before = *k;
  bool halves = has_halves(k);
  if (!halves && !descriptor_tile(k->t->descriptors, DT_U8, 16) && !descriptor_tile(k->t->descriptors, DT_U8, 32))
    return false;
  kernel_axes(k, &x);
  loads l;
  find_loads(k->ast->src[0]->src[1], &l);
  for (int i = 0; i < x.n_out; i++) {
    const uop *end = x.at[i]->src[0];
    bool fits = halves || (end->op == OP_CONST ? end->a % ITEM_TOKENS == 0 : end->vmax >= ITEM_TOKENS);
    if (x.at[i]->b == AXIS_LOOP && fits && !has_own_weights(&l, x.at[i])) tokens = i;
  }
  if (tokens < 0 && halves && kernel_apply(k, (opt){OPT_COLUMNS, 0, MMA_COLUMNS})) tokens = 0;
  if (tokens < 0) return false;
  bool ok = kernel_apply(k, (opt){OPT_UPCAST, tokens, 2}) && kernel_apply(k, (opt){OPT_LOCAL, tokens, 4});
  if (ok) {
    at = axis_of(k, row);
    ok = kernel_apply(k, (opt){OPT_LOCAL, at, 8}) && kernel_apply(k, (opt){OPT_UPCAST, at, 2});
    if (ok) kernel_axes(k, &x);
    if (ok && x.at[at]->b == AXIS_LOOP) ok = kernel_apply(k, (opt){OPT_UPCAST, at, 0});
  }
  int sums = 0;
  for (bool again = ok; again;) {
    again = false;
    kernel_axes(k, &x);
    for (int i = x.n_out; i < x.n && !again; i++) again = kernel_apply(k, (opt){OPT_MMA, i, 0});
    sums += again;
  }
  if (sums) return true;
  *k = before;
  return false;
}

// The number of work-items that share a sum.
static int64_t group_parts(const kernel *k) {
  axes x;
  int64_t parts = 1;
  kernel_axes(k, &x);
  for (int i = x.n_out; i < x.n; i++) if (x.at[i]->b == AXIS_GROUP) parts *= x.at[i]->src[0]->a;
  return parts;
}

// Bytes of work-group memory for the sums that work-items share, with all copies.
static int64_t bytes_of_sums(kernel *k) {
  axes x;
  int64_t bytes = 0;
  map inner = {0};
  kernel_axes(k, &x);
  const int64_t items = kernel_items(k);
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &k->ast, 1);
  for (size_t i = l.n; i-- > 0;) {
    uop *u = l.at[i];
    int64_t one = 0;
    for (size_t j = (size_t)uop_first_range(u); u->op == OP_REDUCE && j < u->nsrc; j++)
      if (u->src[j]->b == AXIS_GROUP) one = items * dtype_size((enum dtype)u->dt);
    if (is_shared_out(u)) map_put(&inner, u->src[0], u);          // exchanged together
    if (map_has(&inner, u)) continue;
    for (int r = 0; r < x.n_out; r++)
      if (x.at[r]->b == AXIS_UPCAST && uop_varies(u, x.at[r])) one *= x.at[r]->src[0]->a;
    bytes += one;
  }
  map_free(&inner);
  arena_free(a);
  return bytes;
}

// The axis of an unknown number of tokens that has at least two tiles, at most `tiles`; -1 if there is none.
static int axis_of_tiles(const kernel *k, int64_t *tiles) {
  axes x;
  kernel_axes(k, &x);
  for (int i = 0; i < x.n_out; i++) {
    *tiles = x.at[i]->src[0]->vmax;
    if (x.at[i]->b == AXIS_LOOP && x.at[i]->src[0]->op != OP_CONST && *tiles > 1) return i;
  }
  return -1;
}

// Does the plan have space for the number of tokens from which several groups of work-items share rows?
static bool has_many_tiles(const kernel *k) {
  int64_t tiles;
  return k->t->many_tokens && axis_of_tiles(k, &tiles) >= 0 && tiles * ITEM_TOKENS >= k->t->many_tokens;
}

// Computes several tiles of columns together, so that they share rows, if there is space for their sums. A work-item
// keeps the sums of all parts so far and, if it computes whole parts, of the current part. Returns the tokens per
// work-item.
static int64_t more_columns(kernel *k, bool whole) {
  int64_t bytes = bytes_of_sums(k), sums = bytes / (group_parts(k) * k->t->row_items * 4), tiles;
  int axis = axis_of_tiles(k, &tiles);
  bool more = axis >= 0 && 2 * bytes <= k->t->max_local_bytes && sums << whole <= MOST_SUMS / 2 &&
              kernel_apply(k, (opt){OPT_UPCAST, axis, 2});
  return more ? 2 * ITEM_TOKENS : ITEM_TOKENS;
}

// Gives groups of work-items different tokens and equal rows: up to GROUP_TOKENS per work-group, limited by the space
// for sums. Returns the range of the groups, or NULL.
static uop *groups_of_tokens(kernel *k, int64_t tokens) {
  axes x;
  int64_t tiles, groups = min_i64(GROUP_TOKENS / tokens, MOST_PARTS / group_parts(k)), fresh = k->next_range;
  int axis = axis_of_tiles(k, &tiles);
  while (groups > 1 && groups * bytes_of_sums(k) > k->t->max_local_bytes) groups /= 2;
  if (axis < 0 || groups < 2 || !kernel_apply(k, (opt){OPT_LOCAL, axis, (int)groups})) return NULL;
  kernel_axes(k, &x);
  for (int i = 0; i < x.n_out; i++) if (x.at[i]->a >= fresh && x.at[i]->b == AXIS_LOCAL) return x.at[i];
  return NULL;
}

// The range whose steps load most bytes that these groups share, in at most `room` bytes; NULL if there is none.
static uop *step_to_share(const kernel *k, const uop *groups, int64_t room, int64_t *most) {
  axes x;
  uop *best = NULL;
  *most = 0;
  kernel_axes(k, &x);
  for (int i = x.n_out; i < x.n; i++) {
    int64_t bytes = x.at[i]->b == AXIS_REDUCE ? stage_in_shared_bytes(k, x.at[i], groups) : 0;
    if (bytes > *most && bytes <= room) { *most = bytes; best = x.at[i]; }
  }
  return best;
}

// Stages the weights that these groups share in work-group memory, as many bytes at once as the sums leave space for:
// larger steps need fewer barriers and keep more bytes in flight. At least two steps are left of each range.
static void share_weights(kernel *k, const uop *groups) {
  int64_t room = k->t->max_local_bytes - bytes_of_sums(k), most;
  uop *step = step_to_share(k, groups, room, &most);
  while (step && 2 * most <= room && step->src[0]->a % 2 == 0 && step->src[0]->a > 2 && apply_to(k, OPT_LOOP, step, 2))
    step = step_to_share(k, groups, room, &most);
  if (step) kernel_apply(k, (opt){OPT_SHARE, axis_of(k, step), axis_of(k, groups)});
}

// Tokens that read equal rows share them, limited by the space for sums.
static void share_rows(kernel *k) {
  uop *store = k->ast->src[0];
  loads l;
  find_loads(store->src[1], &l);
  for (size_t i = 2; i < store->nsrc; i++) {
    uop *r = store->src[i];
    bool symbolic = r->src[0]->op != OP_CONST;
    if (r->b != AXIS_LOOP || has_own_weights(&l, r) || (!symbolic && r->src[0]->a > ITEM_TOKENS)) continue;
    int64_t tokens = symbolic ? min_i64(ITEM_TOKENS, r->src[0]->vmax) : r->src[0]->a, bytes = bytes_of_sums(k);
    while (symbolic && tokens > 1 && tokens * bytes > k->t->max_local_bytes) tokens /= 2;
    if (tokens > 1 && tokens * bytes <= k->t->max_local_bytes)
      apply_to(k, OPT_UPCAST, r, symbolic ? (int)tokens : 0);
    return;
  }
}

// Is a sum over r recomputed in each step of another sum?
static bool in_steps_of_others(kernel *k, const uop *r) {
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &k->ast, 1);
  bool any = false;
  for (size_t i = 0; i < l.n && !any; i++) {
    if (l.at[i]->op != OP_REDUCE || !uop_binds(l.at[i], r)) continue;
    const uop_list free = uop_ranges(l.at[i]);
    for (size_t j = 0; j < free.n; j++) any |= free.at[j]->b == AXIS_REDUCE || free.at[j]->b == AXIS_UNROLL;
  }
  arena_free(a);
  return any;
}

// Sums that are equal for all rows, such as a norm's, are shared by the work-items of a subgroup, in the order in which
// a separate kernel adds them (share_sum): the bits do not depend on whether the norm is fused into its product. False:
// there is no such sum.
static bool sums_in_subgroup(kernel *k) {
  axes x;
  bool any = false;
  kernel_axes(k, &x);
  for (int i = x.n_out; i < x.n; i++) {
    if (in_steps_of_others(k, x.at[i]) || !kernel_apply(k, (opt){OPT_STEP, i, k->t->subgroup_size})) continue;
    any = true;
    kernel_axes(k, &x);
  }
  return any;
}

// Makes the work-items that share a sum share one over r too, along ranges with equal numbers of steps. False: the
// kernel is unchanged.
static bool share_alike(kernel *k, const uop *r) {
  axes x;
  kernel before = *k;
  bool ok = true;
  int64_t parts = group_parts(k), fresh = 0;
  kernel_axes(k, &x);
  for (int i = x.n_out; i < x.n && ok; i++) {
    if (x.at[i]->b != AXIS_GROUP) continue;
    fresh = k->next_range;
    ok = r && apply_to(k, OPT_GROUP, r, (int)x.at[i]->src[0]->a);
    axes now;
    kernel_axes(k, &now);
    r = NULL;
    for (int j = now.n_out; j < now.n; j++) if (now.at[j]->a >= fresh && now.at[j]->b == AXIS_REDUCE) r = now.at[j];
  }
  ok = ok && group_parts(k) == parts;
  if (!ok) *k = before;
  return ok;
}

// Shares the remaining sums within a subgroup, or else among the work-items that share a row's sum.
static void share_other_sums(kernel *k) {
  axes x;
  if (sums_in_subgroup(k)) return;
  kernel_axes(k, &x);
  int64_t parts = group_parts(k);
  for (int i = x.n_out; i < x.n && parts > 1; i++) {
    const uop *r = x.at[i];
    bool whole = r->b == AXIS_REDUCE && r->src[0]->op == OP_CONST && r->src[0]->a % parts == 0;
    if (!whole || r->src[0]->a / parts < 2 || in_steps_of_others(k, r) || !share_alike(k, r)) continue;
    kernel_axes(k, &x);
    i = x.n_out - 1;
  }
}

// Each work-item has a row and reads next to its neighbours' bytes. Work-items share a sum by parts, in equal ways for
// one token and for many.
static bool rows_in_items(kernel *k) {
  uop *row = k->t->row_items ? row_of_items(k) : NULL, *groups = NULL;
  if (!row) return false;
  kernel before = *k;
  bool tiles = tiles_of_items(k, row), many = tiles && has_many_tiles(k);
  for (;;) {
    if (!tiles) {
      if (!apply_to(k, OPT_LOCAL, row, 0)) return false;
      kernel_change_all(k, dot_alone, 0);
    }
    part_sum(k, many);
    share_other_sums(k);
    if (!tiles || bytes_of_sums(k) <= k->t->max_local_bytes) break;
    *k = before;                                     // the sums of tiles do not fit
    tiles = many = false;
  }
  if (tiles) {
    int64_t tokens = more_columns(k, many);
    if (many) groups = groups_of_tokens(k, tokens);
  }
  kernel_change_all(k, unroll_unit, 0);
  unroll_dot(k);
  kernel_change_all(k, unroll_shared_bytes, 0);
  if (!tiles) share_rows(k);
  if (groups) share_weights(k, groups);
  return true;
}

// --- stages ----------------------------------------------------------------------------------------------------------

enum {
  FEW_ITEMS = 16,
  LEAST_ITEMS = 32,
  MOST_ITEMS = 128,
  MOST_ELEMENTS = 4,
  MOST_OUTPUTS = 8,
  SUMS_TOGETHER = 16,
  MANY_STEPS = 32
};

// The largest power of two, at most `most`, that divides a range's size.
static int64_t items_along(const uop *r, int64_t most) {
  int64_t n = r->src[0]->op == OP_CONST ? r->src[0]->a & -r->src[0]->a : 1;
  return min_i64(n, most);
}

// The innermost range of each stage that is not unrolled; returns their number. unrolled: is one of its ranges?
static int ranges_of_stages(kernel *k, uop **out, bool *unrolled) {
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &k->ast, 1);
  int n = 0;
  for (size_t i = 0; i < l.n && n < MAX_AXES; i++) {
    const uop *u = l.at[i];
    if (u->op != OP_STORE || u == k->ast->src[0] || u->src[0]->src[0]->op != OP_LOCAL) continue;
    size_t at = u->nsrc;
    while (at > 2 && u->src[at - 1]->b == AXIS_UNROLL) at--;
    unrolled[n] = at < u->nsrc;
    out[n++] = at > 2 ? u->src[at - 1] : NULL;
  }
  arena_free(a);
  return n;
}

static bool reduces_over(kernel *k, const uop *r) {
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &k->ast, 1);
  bool any = false;
  for (size_t i = 0; i < l.n; i++) any |= l.at[i]->op == OP_REDUCE && uop_binds(l.at[i], r);
  arena_free(a);
  return any;
}

// Unrolls a sum by several steps, so that their loads are in flight together.
static bool unroll_one_sum(kernel *k, int steps) {
  axes x;
  kernel_axes(k, &x);
  for (int i = x.n_out; i < x.n; i++) {
    uop *r = x.at[i];
    if (r->b == AXIS_REDUCE && r->src[0]->op == OP_CONST && r->src[0]->a > steps && r->src[0]->a % steps == 0 &&
        reduces_over(k, r) && apply_to(k, OPT_UNROLL, r, steps))
      return true;
  }
  return false;
}

// Does u differ between work-items?
static bool has_items(const kernel *k, const uop *u) {
  axes x;
  bool any = false;
  kernel_axes(k, &x);
  for (int i = 0; i < x.n; i++) any |= x.at[i]->b == AXIS_LOCAL && uop_varies(u, x.at[i]);
  return any;
}

static bool separate_sum(kernel *k, const uop_list *all, size_t i, int unused) {
  (void)unused;
  return all->at[i]->op == OP_REDUCE && !has_items(k, all->at[i]) && kernel_separate(k, all->at[i]);
}

// Maxima and sums over a stage's elements that are equal for all output elements are computed by a subgroup together.
// Ranges that they share with other sums become their own.
static void sums_of_stages(kernel *k) {
  kernel_change_all(k, separate_sum, 0);
  sums_in_subgroup(k);
}

// Are there many tokens and many blocks, so that there are enough work-groups?
static bool has_tokens_and_blocks(const kernel *k) {
  const uop *store = k->ast->src[0];
  int n = 0;
  for (size_t i = 2; i < store->nsrc; i++) {
    const uop *end = store->src[i]->src[0];
    n += end->op != OP_CONST && end->vmax >= MANY_STEPS;
  }
  return n > 1;
}

// Neighbouring output elements per work-item, out of `size`: values from work-group memory serve all of them. Prefers
// the fewest work-groups that compute equal stages, then the most elements; never fewer work-items than `least`.
static int64_t elements_of_item(int64_t size, int64_t least, int64_t *items) {
  int64_t best = 1, most = *items, fewest = INT64_MAX;
  for (int64_t each = MOST_ELEMENTS; each > 0; each--) {
    int64_t left = size / each, fewer = min_i64(left & -left, most);
    if (size % each || fewer < least || left / fewer >= fewest) continue;
    best = each;
    *items = fewer;
    fewest = left / fewer;
  }
  return best;
}

static uop *last_loop(const kernel *k) {
  const uop *store = k->ast->src[0];
  for (size_t i = store->nsrc; i-- > 2;) if (store->src[i]->b == AXIS_LOOP) return store->src[i];
  return NULL;
}

// Lets `items` work-items compute all of a stage; with `together`, each computes neighbouring elements together. False
// if that is impossible.
static bool share_stages(kernel *k, int64_t items, bool together) {
  uop *ranges[MAX_AXES];
  bool unrolled[MAX_AXES];
  for (bool did = true; did;) {
    did = false;
    for (int i = 0, n = ranges_of_stages(k, ranges, unrolled); i < n && !did; i++) {
      int64_t each = ranges[i]->b == AXIS_LOCAL ? 0 : ranges[i]->src[0]->a / items;
      bool unroll = together && !unrolled[i] && each > 1 && each <= MOST_OUTPUTS;
      did = each &&
            (unroll ? apply_to(k, OPT_UNROLL, ranges[i], (int)each) : apply_to(k, OPT_LOCAL, ranges[i], (int)items));
      if (each && !did) return false;
    }
  }
  return true;
}

// All work-items of a work-group compute its stages together, equal numbers of elements each; then each has elements of
// the output.
bool stages_of_items(kernel *k) {
  uop *ranges[MAX_AXES], *store = k->ast->src[0], *last = store->src[store->nsrc - 1];
  bool unrolled[MAX_AXES];
  int n = ranges_of_stages(k, ranges, unrolled);
  int64_t items = store->nsrc > 2 && last->b == AXIS_LOOP ? items_along(last, MOST_ITEMS) : 1;
  for (int i = 0; i < n; i++) items = ranges[i] ? items_along(ranges[i], items) : 1;
  if (!n || items < FEW_ITEMS) return false;
  kernel before = *k;
  int64_t fewer = items, least = has_tokens_and_blocks(k) ? min_i64(items, LEAST_ITEMS) : items,
          each = elements_of_item(last->src[0]->a, least, &fewer);
  bool ok = each > 1 && apply_to(k, OPT_UPCAST, last, (int)each) && apply_to(k, OPT_LOCAL, last_loop(k), (int)fewer) &&
            share_stages(k, fewer, true);
  if (!ok) {
    *k = before;
    ok = apply_to(k, OPT_LOCAL, last, (int)items) && share_stages(k, items, false);
  }
  if (!ok) { *k = before; return false; }
  sums_of_stages(k);
  int steps = SUMS_TOGETHER / copy_stages(k);
  for (int turn = 0; turn < MAX_AXES && unroll_one_sum(k, steps); turn++) {}
  return true;
}

enum { SHORT_SUM = 64, ENOUGH_GROUPS = 256, ENOUGH_ITEMS = 128, BLOCK_PARTS = 8 };

// Distributes an output range on which no sum depends among the work-items that share sums.
static void share_output(kernel *k, int shared) {
  const uop *store = k->ast->src[0];
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &k->ast, 1);
  uop *best = NULL;
  for (size_t i = store->nsrc; i-- > 2 && !best;) {
    uop *r = store->src[i];
    bool own = r->b == AXIS_LOOP && r->src[0]->op == OP_CONST && r->src[0]->a % shared == 0;
    for (size_t j = 0; j < l.n && own; j++) own = l.at[j]->op != OP_REDUCE || !uop_varies(l.at[j], r);
    if (own) best = r;
  }
  arena_free(a);
  int axis = best ? axis_of(k, best) : -1;
  if (!best || !kernel_apply(k, (opt){OPT_LOCAL, axis, shared})) return;
  axes x;
  kernel_axes(k, &x);
  int64_t left = x.at[axis]->b == AXIS_LOOP ? x.at[axis]->src[0]->a : 1, amount = MOST_OUTPUTS;
  while (amount > 1 && left % amount) amount /= 2;
  if (amount > 1) kernel_apply(k, (opt){OPT_UPCAST, axis, left == amount ? 0 : (int)amount});
}

// Small work-groups leave most of a multiprocessor idle: outer ranges add work-items.
static void more_items(kernel *k, int64_t items) {
  const uop *store = k->ast->src[0];
  int numbers = items > 1;
  for (size_t i = store->nsrc; i-- > 2 && items < ENOUGH_ITEMS && numbers < MOST_NUMBERS;) {
    const uop *r = store->src[i];
    int64_t n = r->b == AXIS_LOOP ? items_along(r, ENOUGH_ITEMS / items) : 1;
    if (n > 1 && apply_to(k, OPT_LOCAL, r, (int)n)) { items *= n; numbers++; store = k->ast->src[0]; }
  }
}

// Sums and maxima over an unknown number of blocks, which wait for their loads. Work-items with equal maxima compute
// them together. A sum is split into parts of every BLOCK_PARTS-th block: each work-item has one part or, if there are
// several tokens and so enough work-items, all parts together.
static void merges_of_blocks(kernel *k) {
  axes x;
  kernel_axes(k, &x);
  bool tokens = false;
  for (int i = 0; i < x.n_out; i++) tokens |= x.at[i]->src[0]->op != OP_CONST;
  for (int i = x.n_out; i < x.n; i++) {
    uop *r = x.at[i], *over;
    if (r->b != AXIS_REDUCE || r->src[0]->op == OP_CONST || !reduces_over(k, r) ||
        apply_to(k, OPT_STEP, r, k->t->subgroup_size))
      continue;
    cut_in_parts(k, r, BLOCK_PARTS, &over);
    if (over) apply_to(k, tokens ? OPT_UNROLL : OPT_GROUP, over, 0);
  }
}

// If fewer work-items share a row than a subgroup has, and all rows share some sum, a work-group gets as many rows as
// fill a subgroup. False: the kernel is unchanged.
static bool rows_in_subgroup(kernel *k, int axis, int shared, int64_t size) {
  int rows = shared < k->t->subgroup_size ? k->t->subgroup_size / shared : 1;
  kernel before = *k;
  if (rows > 1 && size % rows == 0 && kernel_apply(k, (opt){OPT_LOCAL, axis, rows}) && sums_in_subgroup(k)) return true;
  *k = before;
  return false;
}

// The default for work-groups: MV_THREADS_PER_ROW work-items share a row, MV_BLOCKSIZE rows are in a group, each
// work-item has MV_ROWS_PER_THREAD of them; fewer if too few groups would be left, and sizes are halved until they
// divide. Without a long or shared sum, neighbouring elements go to neighbouring work-items.
void work_groups(kernel *k) {
  int block = env_int(ENV_MV_BLOCKSIZE), rows = env_int(ENV_MV_ROWS_PER_THREAD), shared = 1, count;
  double steps;
  if (rows_in_items(k)) return;
  kernel_change_all(k, dot_alone, 0);
  bool alone = !outer_sum(k, &steps) || steps <= SHORT_SUM;
  if (!alone) shared = share_sum(k, env_int(ENV_MV_THREADS_PER_ROW));
  unroll_dot(k);
  if (shared > 1) share_output(k, shared);
  uop *store = k->ast->src[0], *m = main_reduce(k, &count), *row = NULL;
  int64_t total = 1;
  for (size_t i = 2; i < store->nsrc; i++) {
    uop *r = store->src[i];
    if (r->b != AXIS_LOOP || r->src[0]->op != OP_CONST) continue;
    total *= r->src[0]->a;
    if (alone || shares_loads(m, r)) row = r;
  }
  if (!row) { if (shared > 1) sums_in_subgroup(k); return; }
  if (alone || shared == 1) { rows = 1; block = 32; }
  int64_t size = row->src[0]->a;
  while (rows > 1 && (size % rows || total / rows < ENOUGH_GROUPS)) rows /= 2;
  while (block > 1 && (size / rows % block || total / rows == block)) block /= 2;
  while (block > 1 && shared > 1 && total / rows / block < ENOUGH_GROUPS) block /= 2;
  while (block > 1 && k->t->max_group && block * shared > k->t->max_group) block /= 2;
  int axis = axis_of(k, row);
  if (rows > 1 && !kernel_apply(k, (opt){OPT_UPCAST, axis, rows})) block = 1;
  if (shared > 1 && rows_in_subgroup(k, axis, shared, size / rows)) return;
  if (block > 1) kernel_apply(k, (opt){OPT_LOCAL, axis, block});
  if (shared > 1) sums_in_subgroup(k);
  if (shared == 1) merges_of_blocks(k);
  if (alone) more_items(k, block * group_parts(k));
}
