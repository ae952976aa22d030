// Copies bytes that several work-items share to work-group memory, one step ahead.
//
// A step is one iteration of the loops around a sum, down to the range that SHARE names; all other ranges that move an
// address belong to work-items or are inside a step. An index is therefore a sum of two parts: one depends on the step
// and the work-group, the other on ranges inside. All loads of a weight with equal first parts are copied together.
// They form a box of runs; a run is contiguous in memory, and ranges whose stride is longer than a run count the runs.
// Each work-item copies every n-th piece of the runs, and the loads read the copies.
//
// Memory holds two steps. The copies of the first step start before the loops. Each iteration begins with a barrier:
// after it, the copies of its own step are complete and no work-item reads those of the previous step any more, so the
// copies of the next step are started into that memory; then the products of the iteration are computed. Dependencies
// in the graph give this order: a load depends on the copies of the next step, these on the barrier, and the barrier on
// the copies of the first step. The barrier is in the innermost loop because the ranges of the steps are its sources;
// it separates iterations. Without COPY, pieces are loaded and stored.
#include "codegen/stage_shared.h"
#include <stdlib.h>
#include <string.h>

enum { MOST_STEPS_AROUND = 8, MOST_SUNDRY = 16, MOST_BOXES = 16, MOST_COPIES = 16, PLACES = 2 };

typedef struct steps { uop *at[MOST_STEPS_AROUND]; int n; int64_t all; } steps;
// A range that counts runs: their stride in memory, their number, their stride in the copy.
typedef struct runs { uop *r; int64_t stride, n, own; } runs;
typedef struct box {
  uop *mem, *outside;                      // PARAM, and the part of the index that is equal for the work-group
  VEC(uop *) loads;
  runs apart[MOST_SUNDRY];
  int n_apart;
  int64_t first, run, all;                 // in elements: where runs begin, length of a run, total
  int piece;                               // bytes
} box;
typedef struct sharing { const kernel *k; uop *step; const uop *alike; steps s; box at[MOST_BOXES]; int n; } sharing;

// --- what is brought -------------------------------------------------------------------------------------------------

static bool sum_holds(const uop *root, uop *u) {
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &(uop *){(uop *)(uintptr_t)root}, 1);
  bool any = false;
  for (size_t i = 0; i < l.n && !any; i++) any = l.at[i] == u;
  arena_free(a);
  return any;
}

// The loops around a sum, and its own ranges down to the step, outermost first. False: they cannot be counted, or
// another sum over the range has other loops.
static bool find_steps(sharing *s) {
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &(uop *){s->k->ast}, 1);
  bool ok = true, any = false;
  for (size_t i = 0; i < l.n && ok; i++) {
    if (l.at[i]->op != OP_REDUCE || !uop_binds(l.at[i], s->step)) continue;
    steps now = {.all = 1};
    for (size_t j = l.n; j-- > i && ok;) {
      const uop *around = l.at[j];
      if (around->op != OP_REDUCE || !sum_holds(around, l.at[i])) continue;
      for (size_t m = (size_t)uop_first_range(around); m < around->nsrc && ok; m++) {
        uop *r = around->src[m];
        if (r->b == AXIS_GROUP) continue;
        ok = r->b == AXIS_REDUCE && r->src[0]->op == OP_CONST && now.n < MOST_STEPS_AROUND;
        if (ok) { now.at[now.n++] = r; ok = mul_i64(now.all, r->src[0]->a, &now.all); }
        if (r == s->step) break;
      }
    }
    ok = ok && (!any || (now.n == s->s.n && !memcmp(now.at, s->s.at, (size_t)now.n * sizeof *now.at)));
    s->s = now;
    any = true;
  }
  arena_free(a);
  return ok && any && s->s.all > 1;
}

// Does a range belong to work-items or count inside a step?
static bool is_inside(const sharing *s, const uop *r) {
  const uop *store = s->k->ast->src[0];
  bool out = uop_is_among(r, store->src + 2, (int)store->nsrc - 2);
  return !uop_is_among(r, s->s.at, s->s.n) && (!out || r->b == AXIS_LOCAL || r->b == AXIS_UPCAST);
}

static bool reads_memory(const uop *u) {
  bool any = u->op == OP_LOAD;
  for (size_t i = 0; i < u->nsrc && !any; i++) any = reads_memory(u->src[i]);
  return any;
}

// Splits an index into its parts. False: it is not a sum of such parts.
static bool parts_of(const sharing *s, const uop *load, idx_sum *inside, idx_sum *outside) {
  idx_sum all;
  if (!idx_sum_of(load->src[0]->src[1], &all)) return false;
  *inside = (idx_sum){.constant = all.constant};
  *outside = (idx_sum){.constant = 0};
  for (int t = 0; t < all.n; t++) {
    const uop_list ranges = uop_ranges(all.atom[t]);
    size_t within = 0;
    for (size_t i = 0; i < ranges.n; i++) within += is_inside(s, ranges.at[i]);
    if (within && (within < ranges.n || reads_memory(all.atom[t]))) return false;
    idx_sum *to = within ? inside : outside;
    to->atom[to->n] = all.atom[t];
    to->coeff[to->n++] = all.coeff[t];
  }
  return true;
}

static int64_t factor_of(const idx_sum *s, const uop *atom) {
  for (int t = 0; t < s->n; t++) if (s->atom[t] == atom) return s->coeff[t];
  return 0;
}

// Sorts the ranges that move all loads by stride. A range whose stride is at most the length read so far extends the
// run. False: runs overlap.
static bool box_runs(sharing *s, box *b) {
  idx_sum in, out;
  int64_t last = INT64_MIN, unit = dtype_size((enum dtype)b->mem->dt);
  runs sorted[MOST_SUNDRY];
  int n = 0;
  if (!parts_of(s, b->loads.at[0], &in, &out)) return false;
  for (int t = 0; t < in.n; t++) {
    bool alike = in.atom[t]->op == OP_RANGE && in.coeff[t] > 0 && n < MOST_SUNDRY;
    for (size_t i = 1; i < b->loads.n && alike; i++) {
      idx_sum other;
      alike = parts_of(s, b->loads.at[i], &other, &out) && factor_of(&other, in.atom[t]) == in.coeff[t];
    }
    if (!alike) continue;
    int at = n++;
    for (; at > 0 && sorted[at - 1].stride > in.coeff[t]; at--) sorted[at] = sorted[at - 1];
    sorted[at] = (runs){.r = in.atom[t], .stride = in.coeff[t], .n = in.atom[t]->src[0]->a};
  }
  b->first = INT64_MAX;
  for (size_t i = 0; i < b->loads.n; i++) {
    if (!parts_of(s, b->loads.at[i], &in, &out)) return false;
    int64_t lo = in.constant, hi = in.constant + (dtype_size((enum dtype)b->loads.at[i]->dt) + unit - 1) / unit;
    for (int t = 0; t < in.n; t++) {
      bool apart = false;
      for (int j = 0; j < n; j++) apart |= sorted[j].r == in.atom[t];
      if (apart) continue;
      int64_t x = in.coeff[t] * in.atom[t]->vmin, y = in.coeff[t] * in.atom[t]->vmax;
      lo += min_i64(x, y);
      hi += max_i64(x, y);
    }
    b->first = min_i64(b->first, lo);
    last = max_i64(last, hi);
  }
  b->run = last - b->first;
  b->n_apart = 0;
  int64_t covered = b->run;
  for (int i = 0; i < n; i++) {
    if (!b->n_apart && sorted[i].stride <= b->run) {
      covered = b->run += (sorted[i].n - 1) * sorted[i].stride;
      continue;
    }
    if (sorted[i].stride < covered) return false;
    covered = sorted[i].stride * sorted[i].n;
    b->apart[b->n_apart++] = sorted[i];
  }
  b->all = b->run;
  for (int i = 0; i < b->n_apart; i++) { b->apart[i].own = b->all; b->all *= b->apart[i].n; }
  return true;
}

// The largest piece size such that all runs begin and end at multiples of it; 0: too small.
static int box_piece(const box *b, int most) {
  int64_t unit = dtype_size((enum dtype)b->mem->dt);
  for (int piece = most; piece >= 4; piece /= 2) {
    idx_sum out;
    bool ok = b->run * unit % piece == 0 && b->first * unit % piece == 0 && idx_sum_of(b->outside, &out) &&
              out.constant * unit % piece == 0;
    for (int t = 0; t < out.n && ok; t++) ok = out.coeff[t] * unit % piece == 0;
    for (int i = 0; i < b->n_apart && ok; i++) ok = b->apart[i].stride * unit % piece == 0;
    if (ok) return piece;
  }
  return 0;
}

static void add_load(sharing *s, uop *load) {
  idx_sum inside, outside;
  uop *mem = load->src[0]->src[0], *at = load->src[0]->src[1];
  if (!is_stream(mem) || load->nsrc > 1 || load->lanes > 1 || at->op == OP_WHERE || uop_varies(at, s->alike) ||
      !uop_varies(at, s->step) || !parts_of(s, load, &inside, &outside))
    return;
  uop *rest = idx_sum_build(s->k->g, &outside);
  box *b = s->at;
  while (b < s->at + s->n && (b->mem != mem || b->outside != rest)) b++;
  if (b == s->at + MOST_BOXES) return;
  if (b == s->at + s->n) { *b = (box){.mem = mem, .outside = rest}; s->n++; }
  vec_push(&b->loads, load);
}

// Can each work-item copy the box in a few pieces?
static bool can_bring(sharing *s, box *b, int64_t items) {
  enum { PIECE = 16 };
  const int copy = s->k->t->copy_bytes;
  b->piece = box_runs(s, b) ? box_piece(b, copy ? copy : PIECE) : 0;
  return b->piece && b->all * dtype_size((enum dtype)b->mem->dt) / b->piece <= MOST_COPIES * items;
}

static void end_sharing(sharing *s) { for (int i = 0; i < s->n; i++) vec_free(&s->at[i].loads); }

// False: there is nothing to copy, or its layout does not allow it.
static bool find_sharing(const kernel *k, uop *step, const uop *alike, sharing *s) {
  *s = (sharing){.k = k, .step = step, .alike = alike};
  bool ok = find_steps(s);
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &(uop *){k->ast}, 1);
  for (size_t i = 0; i < l.n && ok; i++) if (l.at[i]->op == OP_LOAD) add_load(s, l.at[i]);
  arena_free(a);
  int kept = 0;
  const int64_t items = kernel_items(k);
  for (int i = 0; i < s->n; i++) {
    if (can_bring(s, &s->at[i], items)) s->at[kept++] = s->at[i];
    else vec_free(&s->at[i].loads);
  }
  s->n = kept;
  return kept;
}

int64_t stage_in_shared_bytes(const kernel *k, uop *step, const uop *alike) {
  sharing s;
  int64_t bytes = 0;
  find_sharing(k, step, alike, &s);
  for (int i = 0; i < s.n; i++) bytes += PLACES * s.at[i].all * dtype_size((enum dtype)s.at[i].mem->dt);
  end_sharing(&s);
  return bytes;
}

// --- how it is brought -----------------------------------------------------------------------------------------------

// The number of the step.
static uop *step_number(const sharing *s) {
  graph *g = s->k->g;
  uop *n = uop_idx(g, 0);
  for (int i = 0; i < s->s.n; i++) n = idx_add(g, idx_mul(g, n, s->s.at[i]->src[0]), s->s.at[i]);
  return n;
}

// The offset in its PARAM of the box for step n.
static uop *outside_at(const sharing *s, const box *b, uop *n) {
  graph *g = s->k->g;
  map to = {0};
  for (int i = s->s.n; i-- > 0; n = idx_div(g, n, s->s.at[i]->src[0]))
    map_put(&to, s->s.at[i], i ? idx_mod(g, n, s->s.at[i]->src[0]) : n);
  uop *at = simplify(g, uop_substitute(g, b->outside, &to));
  map_free(&to);
  return at;
}

static uop *memory_of(const sharing *s, const box *b) {
  return uop_new(s->k->g, OP_LOCAL, (enum dtype)b->mem->dt, 1, NULL, 0,
                 (uarg){.a = SHARE_MEMORY + (b - s->at), .b = PLACES * b->all});
}

static uop *box_place(const sharing *s, const box *b, uop *n) {
  graph *g = s->k->g;
  return idx_mul(g, idx_mod(g, n, uop_idx(g, PLACES)), uop_idx(g, b->all));
}

// Starts the copy of one piece per work-item: piece `piece` of step n. valid: does the step exist? after (or NULL):
// what must come first.
static uop *bring_one(const sharing *s, const box *b, uop *n, uop *place, uop *valid, uop *piece, uop *after) {
  graph *g = s->k->g;
  int64_t unit = dtype_size((enum dtype)b->mem->dt), elements = b->piece / unit, in_run = b->run / elements,
          pieces = b->all / elements;
  if (piece->vmax >= pieces) {
    valid = bool_and(g, valid, idx_lt(g, piece, uop_idx(g, pieces)));
    piece = idx_min(g, piece, uop_idx(g, pieces - 1));
  }
  uop *run = idx_div(g, piece, uop_idx(g, in_run)),
      *from = idx_add(g, outside_at(s, b, n),
                      idx_add(g, uop_idx(g, b->first),
                              idx_mul(g, idx_mod(g, piece, uop_idx(g, in_run)), uop_idx(g, elements))));
  for (int i = 0; i < b->n_apart; i++) {
    uop *size = uop_idx(g, b->apart[i].n);
    from = idx_add(g, from, idx_mul(g, idx_mod(g, run, size), uop_idx(g, b->apart[i].stride)));
    run = idx_div(g, run, size);
  }
  uop *to = idx_add(g, place, idx_mul(g, piece, uop_idx(g, elements)));
  if (valid)
    to = uop_op3(g, OP_WHERE, valid, to, uop_new(g, OP_INVALID, DT_IDX, 1, NULL, 0, (uarg){0}));
  uop *src[3] = {uop_index(g, memory_of(s, b), to), uop_index(g, b->mem, simplify(g, from)), after};
  if (s->k->t->copy_bytes) return uop_new(g, OP_COPY, DT_VOID, 1, src, after ? 3 : 2, (uarg){.a = b->piece});
  uop *load = uop_new(g, OP_LOAD, DT_U32, b->piece / 4, src + 1, after ? 2 : 1, (uarg){0});
  return uop_new(g, OP_STORE, DT_VOID, 1, (uop *[]){src[0], load}, 2, (uarg){0});
}

static int bring(const sharing *s, const box *b, uop *n, uop *place, uop *valid, uop *item, int64_t items, uop *after,
                 uop **out) {
  graph *g = s->k->g;
  int64_t pieces = b->all * dtype_size((enum dtype)b->mem->dt) / b->piece;
  int count = 0;
  for (int64_t first = 0; first < pieces; first += items) {
    die_if(count == MOST_COPIES, "too many pieces of a weight for %lld items", (long long)items);
    out[count++] = bring_one(s, b, n, place, valid, idx_add(g, item, uop_idx(g, first)), after);
  }
  return count;
}

// The load from the copy.
static uop *load_of_box(const sharing *s, const box *b, const uop *load, uop *place, uop *const *next, int n_next) {
  graph *g = s->k->g;
  idx_sum in, out;
  die_if(!parts_of(s, load, &in, &out), "a staged load is no longer a load");
  in.constant -= b->first;
  for (int t = 0; t < in.n; t++)
    for (int i = 0; i < b->n_apart; i++) if (b->apart[i].r == in.atom[t]) in.coeff[t] = b->apart[i].own;
  uop *src[1 + MOST_COPIES] = {uop_index(g, memory_of(s, b), idx_add(g, place, idx_sum_build(g, &in)))};
  memcpy(src + 1, next, (size_t)n_next * sizeof *src);
  return uop_new(g, OP_LOAD, (enum dtype)load->dt, 1, src, 1 + (size_t)n_next, (uarg){0});
}

uop *stage_in_shared(const kernel *k, uop *ast, uop *item, int64_t items) {
  sharing s;
  graph *g = k->g;
  if (!k->share_step || !find_sharing(k, k->share_step, k->share_alike, &s)) return ast;
  uop *now = step_number(&s), *last = uop_idx(g, s.s.all - 1), *zero = uop_idx(g, 0), *copies[MOST_COPIES];
  VEC(uop *) before = {0};
  map to = {0};
  for (int i = 0; i < s.s.n; i++) vec_push(&before, s.s.at[i]);
  for (int i = 0; i < s.n; i++) {
    int n = bring(&s, &s.at[i], zero, zero, NULL, item, items, NULL, copies);
    for (int c = 0; c < n; c++) vec_push(&before, copies[c]);
  }
  uop *barrier = uop_new(g, OP_BARRIER, DT_VOID, 1, before.at, before.n,
                         (uarg){.b = k->t->copy_bytes ? BARRIER_COPIES : 0}),
      *next = idx_add(g, now, uop_idx(g, 1)), *valid = idx_lt(g, now, last);
  for (int i = 0; i < s.n; i++) {
    box *b = &s.at[i];
    int n = bring(&s, b, idx_min(g, next, last), box_place(&s, b, next), valid, item, items, barrier, copies);
    for (size_t j = 0; j < b->loads.n; j++)
      map_put(&to, b->loads.at[j], load_of_box(&s, b, b->loads.at[j], box_place(&s, b, now), copies, n));
  }
  ast = uop_substitute(g, ast, &to);
  map_free(&to);
  vec_free(&before);
  end_sharing(&s);
  return ast;
}
