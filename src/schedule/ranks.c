// Makes the schedule of one of several processes (ranks.h). The passes decide, in order:
//
// - which kernels are worth splitting: those that read weights or buffers that outlive a plan, and those that reduce
//   the results of split kernels to less data;
// - along which axis, and into which parts. Readers decide first: if a kernel reads, along its own axis, what another
//   stores along an axis, both are split at the same places and no gathering is needed between them;
// - which buffers are gathered, and before which level;
// - the kernels over their parts of the ranges, with the gatherings as kernels among them.
//
// If kernels are dealt to processes instead, the passes decide where each kernel runs, then what is sent before it.
#include "schedule/ranks.h"
#include <stdlib.h>
#include <string.h>
#include "base/env.h"
#include "graph/symbolic.h"

enum { STEPS = 16 /* of sums, for each byte of a weight: as much work */, UNITS = 4 /* of a cut, for each process */,
       LANES = 16 /* at most, of rows of a weight */, EARLY_STEPS = 4 /* of a level, before its gatherings */,
       LESS = 2 /* times as much is read as an early kernel stores */ };

// A buffer's elements along an axis: of every `period` elements, each step of a range takes `stride`.
typedef struct axis { int64_t stride, period; } axis;
// Process i makes elements cut[i] .. cut[i + 1] - 1 of every `period` elements. period 0: every process makes all of
// them.
// to: see gathering.
typedef struct cuts { int64_t period, cut[MOST_RANKS + 1]; uint64_t to; } cuts;

typedef struct access { uop *param, *index; int width; bool stored; } access;    // width: elements from index on
typedef struct kernel {
  sched_kernel *k;
  access *at;
  int n_at;
  uop *store;
  bool worth;                // splitting saves more than a gathering costs
  bool follows;              // splitting pays if its reader is split in the same way
  // What every thread would compute for itself, but is computed in parts, since its result is much smaller than what
  // would be gathered otherwise (codes of 8 bits). It then runs in steps of its own, before the gatherings of its
  // level.
  bool early, late;          // late: it could be, and would save nothing
  int step;                  // early: among these steps
  uop *range;                // range along which the kernel is split; NULL: not split
  axis own;                  // axis of the result
  int64_t from, to;          // this process's part of the range
  cuts out;                  // cuts of the result
  int home;                  // dealt: the process that runs it; -1: each that reads its result
  uint64_t on;               // dealt: the processes that run it, as bits; 0: it is not dealt
} kernel;
typedef struct splitter {
  graph *g;
  arena *mem;
  const rank_split *r;
  kernel *kernels;
  int n;
  map wanted, made;          // buffer -> cuts *: as readers want it; as it is made
  map whole;                 // buffers that outlive the plan and have a reader that needs all of them
  VEC(sched_kernel) gathers;
} splitter;

// --- what kernels read and store -------------------------------------------------------------------------------------

static uop *plain_index(const uop *index) {
  uop *i = index->src[1];
  return i->op == OP_WHERE ? i->src[1] : i;
}

static void find_accesses(splitter *s, kernel *k) {
  uop_list l = uop_toposort(s->mem, &k->k->ast, 1);
  k->at = ARENA_ARRAY(s->mem, access, l.n);
  k->store = k->k->ast->src[0];
  for (size_t i = 0; i < l.n; i++) {
    uop *u = l.at[i];
    if ((u->op != OP_LOAD && u->op != OP_STORE) || u->src[0]->src[0]->op != OP_PARAM) continue;
    uop *param = u->src[0]->src[0];
    enum dtype dt = (enum dtype)(u->op == OP_LOAD ? u->dt : param->dt);
    int width = dtype_size(dt) / max_i64(dtype_size((enum dtype)param->dt), 1);
    k->at[k->n_at++] = (access){param, plain_index(u->src[0]), width > 1 ? width : 1, u->op == OP_STORE};
  }
}

// The result of the kernel: its last store, since the other stores are below it.
static const access *root_store(const kernel *k) { return &k->at[k->n_at - 1]; }
static int64_t buffer_of(const kernel *k, const access *a) { return k->k->bufs[a->param->a]; }
static bool is_temp_id(int64_t id) { return id >= TEMP_IDS; }
static bool is_kept(const splitter *s, int64_t id) { return id >= s->r->first_kept && id < s->r->end_kept; }
static bool is_weight_access(const access *a) { return a->param->memory == MEMORY_WEIGHT; }
static bool is_large_weight(const splitter *s, const access *a) {
  return is_weight_access(a) && a->param->b * dtype_size((enum dtype)a->param->dt) >= s->r->worth;
}

// Does an address move along r in even steps, with all other terms either within a step or multiples of all steps?
static bool strides_along(const access *a, const uop *r, axis *out) {
  idx_sum s;
  int64_t stride = idx_factor(a->index, r), period, inner = a->width - 1, most;
  if (stride <= 0 || !mul_i64(stride, r->src[0]->a, &period) || a->param->b % period || !idx_sum_of(a->index, &s))
    return false;
  for (int t = 0; t < s.n; t++) {
    const uop *atom = s.atom[t];
    if (atom == r || s.coeff[t] % period == 0) continue;
    if (s.coeff[t] < 0 || atom->vmin < 0 || atom->vmax == INT64_MAX || !mul_i64(s.coeff[t], atom->vmax, &most) ||
        !add_i64(inner, most, &inner))
      return false;
  }
  if (!add_i64(inner, floormod_i64(s.constant, period), &inner) || inner >= stride) return false;
  *out = (axis){stride, period};
  return true;
}

static const cuts *cuts_of(const map *m, int64_t id) {
  void *v = NULL;
  map_get(m, (uint64_t)id, &v);
  return v;
}

static void note_cuts(splitter *s, map *m, int64_t id, const cuts *c) {
  cuts *to = ARENA_NEW(s->mem, cuts);
  *to = *c;
  map_set(m, (uint64_t)id, to);
}

static bool same_cuts(const splitter *s, const cuts *a, const cuts *b) {
  return a->period == b->period && !memcmp(a->cut, b->cut, ((size_t)s->r->n + 1) * sizeof *a->cut);
}

// --- along which axis ------------------------------------------------------------------------------------------------

// Does everything that the kernel stores move along r, a loop of constant length around the whole kernel?
static bool can_split_along(const kernel *k, const uop *r) {
  axis a;
  if (r->op != OP_RANGE || r->src[0]->op != OP_CONST || r->src[0]->a < 2) return false;
  for (int i = 0; i < k->n_at; i++) if (k->at[i].stored && !strides_along(&k->at[i], r, &a)) return false;
  return true;
}

static bool reads_weights_along(const splitter *s, const kernel *k, const uop *r) {
  for (int i = 0; i < k->n_at; i++)
    if (!k->at[i].stored && is_large_weight(s, &k->at[i]) && idx_factor(k->at[i].index, r) > 0) return true;
  return false;
}

static bool reads_large_weights(const splitter *s, const kernel *k) {
  for (int i = 0; i < k->n_at; i++) if (!k->at[i].stored && is_large_weight(s, &k->at[i])) return true;
  return false;
}

static bool keeps_along(const splitter *s, const kernel *k, const uop *r) {
  axis a;
  for (int i = 0; i < k->n_at; i++)
    if (!k->at[i].stored && is_kept(s, buffer_of(k, &k->at[i])) && strides_along(&k->at[i], r, &a)) return true;
  return false;
}

static int64_t rows_in_lanes(const uop *r) {
  int64_t n = LANES;
  while (r->src[0]->a % n) n /= 2;
  return n;
}

// Steps of r that stay together. Rows of a weight are placed in lanes, in the largest power of two that divides their
// number. A part must have rows for equally many lanes, since sums would be added in another order otherwise.
static int64_t step_unit(const splitter *s, const kernel *k, const uop *r) {
  bool weights = false, inner = false;
  for (int i = 0; i < k->n_at; i++) weights |= is_weight_access(&k->at[i]) && uop_varies(k->at[i].index, r);
  for (size_t i = k->store->nsrc; weights && !inner && i-- > 2 && k->store->src[i] != r;) {
    const uop *other = k->store->src[i];
    inner = other->src[0]->op == OP_CONST && rows_in_lanes(other) == LANES && reads_weights_along(s, k, other);
  }
  return !weights || inner ? 1 : rows_in_lanes(r) == LANES ? LANES : r->src[0]->a;
}

// Do the parts that the reader wants fit this axis?
static bool suits(const splitter *s, const kernel *k, const uop *r) {
  axis a;
  const cuts *w = cuts_of(&s->wanted, k->k->bufs[0]);
  if (!w || !strides_along(root_store(k), r, &a) || a.period != w->period) return false;
  int64_t unit = a.stride * step_unit(s, k, r);
  for (int i = 0; i <= s->r->n; i++) if (w->cut[i] % unit) return false;
  return true;
}

static uop *choose_range(const splitter *s, const kernel *k) {
  uop *best = NULL;
  int64_t most = -1;
  bool weights = reads_large_weights(s, k);
  for (size_t i = 2; i < k->store->nsrc; i++) {
    uop *r = k->store->src[i];
    axis a;
    if (!can_split_along(k, r) || (weights && !reads_weights_along(s, k, r))) continue;
    strides_along(root_store(k), r, &a);
    bool keeps = keeps_along(s, k, r);
    if (step_unit(s, k, r) > 1 && r->src[0]->a / step_unit(s, k, r) < s->r->n) continue;
    if (!k->worth && !suits(s, k, r) && !is_kept(s, k->k->bufs[0])) continue;
    int64_t score = suits(s, k, r) * 4 + keeps * 2 + (keeps || is_kept(s, k->k->bufs[0]) || r->src[0]->a >= s->r->n);
    score = score << 48 | min_i64(a.stride, ((int64_t)1 << 48) - 1);
    if (score > most) { most = score; best = r; }
  }
  return best;
}

// The default split, in units as large as the parts allow. Kernels that read or store a buffer with this period split
// it at equal places.
static void cut_evenly(const splitter *s, const axis *a, int64_t unit, cuts *out) {
  static const int units[] = {256, 128, 64, 32, 16};
  int64_t n = s->r->n;
  const double *until = s->r->until, rounding = 1e-9;
  for (size_t i = 0; i < COUNT(units); i++)
    if (units[i] % unit == 0 && a->period % units[i] == 0 &&
        a->period / units[i] >= (units[i] > units[COUNT(units) - 1] ? UNITS * n : n)) {
      unit = units[i];
      break;
    }
  out->period = a->period;
  for (int i = 0; i <= n; i++)
    out->cut[i] = (int64_t)((double)(a->period / unit) * until[i] / until[n] + rounding) * unit;
}

// The cuts of an access that follow from the kernel's parts. period 0: the kernel is not split, or every part needs
// everything.
static cuts cuts_along(const splitter *s, const kernel *k, const access *x) {
  axis a;
  cuts c = {0};
  if (!k->range || !strides_along(x, k->range, &a)) return c;
  c.period = a.period;
  for (int i = 0; i <= s->r->n; i++) c.cut[i] = k->out.cut[i] / k->own.stride * a.stride;
  return c;
}

static void want_cuts_of(splitter *s, const kernel *k, const access *x) {
  int64_t id = buffer_of(k, x);
  const cuts c = cuts_along(s, k, x), *before = cuts_of(&s->wanted, id);
  if (!before) note_cuts(s, &s->wanted, id, &c);
  else if (!same_cuts(s, before, &c)) note_cuts(s, &s->wanted, id, &(cuts){0});
}

// Earlier plans have split the buffer in this way, so this plan stores it in this way too.
static void want_as_before(splitter *s, const kept_cuts *k) {
  cuts c = {.period = k->period};
  memcpy(c.cut, k->cut, sizeof c.cut);
  note_cuts(s, &s->wanted, k->id, &c);
}

static bool stores_whole(const splitter *s, const kernel *k) {
  for (int i = 0; i < k->n_at; i++)
    if (k->at[i].stored && map_get(&s->whole, (uint64_t)buffer_of(k, &k->at[i]), NULL)) return true;
  return false;
}

static void split_kernel(splitter *s, kernel *k) {
  k->range = NULL;
  if (k->early || (!k->worth && !k->follows) || stores_whole(s, k) || !(k->range = choose_range(s, k))) return;
  strides_along(root_store(k), k->range, &k->own);
  if (suits(s, k, k->range)) k->out = *cuts_of(&s->wanted, k->k->bufs[0]);
  else cut_evenly(s, &k->own, k->own.stride * step_unit(s, k, k->range), &k->out);
  k->from = k->out.cut[s->r->rank] / k->own.stride;
  k->to = k->out.cut[s->r->rank + 1] / k->own.stride;
  for (int i = 0; i < k->n_at; i++)
    if (!k->at[i].stored && (is_temp_id(buffer_of(k, &k->at[i])) || is_kept(s, buffer_of(k, &k->at[i]))))
      want_cuts_of(s, k, &k->at[i]);
}

// The kernel before `before` that last stored a part of this buffer.
static const kernel *last_writer(const splitter *s, int64_t id, int before, const access **x) {
  for (int i = before; i-- > 0;)
    for (int j = 0; j < s->kernels[i].n_at; j++)
      if (s->kernels[i].at[j].stored && buffer_of(&s->kernels[i], &s->kernels[i].at[j]) == id) {
        *x = &s->kernels[i].at[j];
        return &s->kernels[i];
      }
  return NULL;
}

// Does this kernel read only what this process has made? All processes must give the same answer.
static bool reads_own(const splitter *s, const kernel *k, const access *x, const cuts *made) {
  const cuts c = cuts_along(s, k, x);
  if (!c.period || c.period != made->period) return false;
  for (int i = 0; i < s->r->n; i++)
    if (c.cut[i] < c.cut[i + 1] && (c.cut[i] < made->cut[i] || c.cut[i + 1] > made->cut[i + 1])) return false;
  return true;
}

// --- which kernels ---------------------------------------------------------------------------------------------------

// Does the kernel reduce data that other processes made in parts, with an output smaller than its input, by `times`?
// Then its result is gathered instead of its input.
static bool shrinks(const kernel *k, const map *parted, uint64_t times) {
  uint64_t in = 0, out = 0;
  bool along = false;
  for (size_t i = 2; i < k->store->nsrc && !along; i++) {
    uop *r = k->store->src[i];
    axis a;
    along = can_split_along(k, r);
    for (int j = 0; along && j < k->n_at; j++)
      if (!k->at[j].stored && map_get(parted, (uint64_t)buffer_of(k, &k->at[j]), NULL))
        along = strides_along(&k->at[j], r, &a);
  }
  for (int i = 0; i < k->n_at; i++) {
    uint64_t size = (uint64_t)k->at[i].param->b * (uint64_t)dtype_size((enum dtype)k->at[i].param->dt);
    if (k->at[i].stored) out = size > out ? size : out;
    else if (map_get(parted, (uint64_t)buffer_of(k, &k->at[i]), NULL)) in = size > in ? size : in;
  }
  return along && in && out * times <= in;
}

static double loop_steps(const uop *r) { return (double)max_i64(r->src[0]->vmax, 1); }

// Total steps of the sums that differ along an axis along which the kernel could be split.
static bool sums_much(const splitter *s, const kernel *k) {
  double most = 0;
  uop_list l = uop_toposort(s->mem, &k->k->ast, 1);
  for (size_t i = 2; i < k->store->nsrc; i++) {
    uop *r = k->store->src[i];
    double steps = 0;
    for (size_t j = 0; can_split_along(k, r) && j < l.n; j++) {
      if (l.at[j]->op != OP_REDUCE || !uop_varies(l.at[j], r)) continue;
      double n = 1;
      const uop_list around = uop_ranges(l.at[j]);
      for (size_t d = 0; d < around.n; d++) n *= loop_steps(around.at[d]);
      for (size_t d = (size_t)uop_first_range(l.at[j]); d < l.at[j]->nsrc; d++) n *= loop_steps(l.at[j]->src[d]);
      steps += n;
    }
    most = steps > most ? steps : most;
  }
  return most >= (double)STEPS * s->r->worth;
}

// Could it be early? Not if it adds floats, since its vectors would have other parts of a sum if it ran over a part of
// its range; not if it uses what outlives the plan, or stores several results.
static bool may_be_early(const splitter *s, const kernel *k) {
  uop_list l = uop_toposort(s->mem, &k->k->ast, 1);
  for (size_t i = 0; i < l.n; i++)
    if (l.at[i]->op == OP_REDUCE && l.at[i]->a == OP_ADD && dtype_is_float((enum dtype)l.at[i]->dt)) return false;
  int stores = 0;
  for (int j = 0; j < k->n_at; j++) {
    if (is_kept(s, buffer_of(k, &k->at[j]))) return false;
    stores += k->at[j].stored;
  }
  return k->k->each && !k->late && stores == 1;
}

static bool reads_result(const kernel *k, const kernel *by) {
  for (int i = 0; i < by->n_at; i++)
    for (int j = 0; by->at[i].stored && j < k->n_at; j++)
      if (!k->at[j].stored && buffer_of(k, &k->at[j]) == buffer_of(by, &by->at[i])) return true;
  return false;
}

// The step of an early kernel, after those in its level whose results it reads. EARLY_STEPS: it cannot be early, since
// one of these is not.
static int early_step(const splitter *s, const kernel *k) {
  int step = 0;
  for (const kernel *by = s->kernels; by < k; by++) {
    if (by->k->level != k->k->level || !reads_result(k, by)) continue;
    if (!by->early) return EARLY_STEPS;
    step = by->step >= step ? by->step + 1 : step;
  }
  return step;
}

static void find_worth(splitter *s) {
  map parted = {0};
  for (int i = 0; i < s->n; i++) {
    kernel *k = &s->kernels[i];
    for (int j = 0; j < k->n_at && !k->k->each; j++) k->follows |= is_kept(s, buffer_of(k, &k->at[j]));
    if (!k->k->each) k->worth = reads_large_weights(s, k) || sums_much(s, k) || shrinks(k, &parted, 1);
    else k->worth = k->early = may_be_early(s, k) && shrinks(k, &parted, LESS) &&
                               (k->step = early_step(s, k)) < EARLY_STEPS;
    for (int j = 0; k->worth && j < k->n_at; j++)
      if (k->at[j].stored) map_set(&parted, (uint64_t)buffer_of(k, &k->at[j]), NULL);
  }
  map_free(&parted);
}

// How the buffer of an access that kernel i reads was made; period 0: every process has all of it.
static cuts cuts_before(const splitter *s, int i, const access *x) {
  const access *stored = NULL;
  const kernel *by = last_writer(s, buffer_of(&s->kernels[i], x), i, &stored);
  return by ? cuts_along(s, by, stored) : (cuts){0};
}

// Splits an early kernel along r as what it reads was split. Returns whether that is possible.
static bool follow_along(const splitter *s, int i, uop *r) {
  kernel *k = &s->kernels[i];
  bool follows = false;
  axis a;
  if (!can_split_along(k, r) || !strides_along(root_store(k), r, &k->own)) return false;
  k->out = (cuts){.period = k->own.period};
  for (int j = 0; j < k->n_at; j++) {
    const cuts c = k->at[j].stored ? (cuts){0} : cuts_before(s, i, &k->at[j]);
    if (!c.period) continue;
    if (!strides_along(&k->at[j], r, &a) || a.period != c.period) return false;
    for (int p = 0; p <= s->r->n; p++) {
      int64_t at = c.cut[p] / a.stride * k->own.stride;
      if (c.cut[p] % a.stride || (follows && at != k->out.cut[p])) return false;
      k->out.cut[p] = at;
    }
    follows = true;
  }
  return follows;
}

static void split_early(splitter *s, int i) {
  kernel *k = &s->kernels[i];
  for (size_t d = 2; d < k->store->nsrc && !k->range; d++)
    if (follow_along(s, i, k->store->src[d])) k->range = k->store->src[d];
  k->late = !k->range;
  if (k->late) return;
  k->from = k->out.cut[s->r->rank] / k->own.stride;
  k->to = k->out.cut[s->r->rank + 1] / k->own.stride;
}

// Do all that read this buffer after it was made read their own parts?
static bool read_in_parts_alone(const splitter *s, int64_t id, const cuts *made) {
  for (int i = 0; i < s->n; i++)
    for (int j = 0; j < s->kernels[i].n_at; j++) {
      const access *x = &s->kernels[i].at[j];
      if (!x->stored && buffer_of(&s->kernels[i], x) == id && !reads_own(s, &s->kernels[i], x, made)) return false;
    }
  return true;
}

// An early kernel saves nothing if what it reads is gathered all the same, for another kernel. Returns whether all
// early kernels save something; the others are noted.
static bool settle_early(splitter *s) {
  bool sound = true;
  for (int i = 0; i < s->n; i++) {
    kernel *k = &s->kernels[i];
    for (int j = 0; k->early && !k->late && j < k->n_at; j++) {
      const cuts c = k->at[j].stored ? (cuts){0} : cuts_before(s, i, &k->at[j]);
      const access *stored = NULL;
      const kernel *by = last_writer(s, buffer_of(k, &k->at[j]), i, &stored);
      if (c.period && by && !by->early) k->late = !read_in_parts_alone(s, buffer_of(k, &k->at[j]), &c);
    }
    sound &= !(k->early && k->late);
  }
  return sound;
}

// --- what is gathered ------------------------------------------------------------------------------------------------

// Number of periods of a buffer that a kernel may store to, if its loops tell; otherwise all.
static uop *periods(const splitter *s, const access *x, int64_t period) {
  idx_sum sum;
  uop *all = uop_idx(s->g, x->param->b / period), *last = uop_idx(s->g, 0);
  if (!idx_sum_of(x->index, &sum)) return all;
  for (int t = 0; t < sum.n; t++) {
    uop *atom = sum.atom[t];
    if (sum.coeff[t] % period) continue;
    if (atom->op != OP_RANGE) return all;
    uop *most = uop_op2(s->g, OP_SUB, atom->src[0], uop_idx(s->g, 1));
    last = uop_op2(s->g, OP_ADD, last, uop_op2(s->g, OP_MUL, most, uop_idx(s->g, sum.coeff[t] / period)));
  }
  return simplify(s->g, uop_op2(s->g, OP_ADD, last, uop_idx(s->g, floordiv_i64(sum.constant, period) + 1)));
}

// The kernel that gathers a buffer; x is one access to it. n is 0 if every process has the whole buffer.
static sched_kernel gather_kernel(const splitter *s, int64_t id, const access *x, const cuts *c, uop *count) {
  graph *g = s->g;
  int n = c->period ? s->r->n : 0;
  uarg zero = {.b = x->param->b, .memory = (enum memory_kind)x->param->memory};
  uop *param = uop_new(g, OP_PARAM, (enum dtype)x->param->dt, 1, NULL, 0, zero);
  uop *src[MOST_RANKS + 4] = {param, count, uop_idx(g, (int64_t)c->to)};
  for (int i = 0; i <= n; i++) src[3 + i] = uop_idx(g, c->cut[i]);
  uop *all = uop_new(g, OP_ALLGATHER, DT_VOID, 1, src, (size_t)n + 4, (uarg){.a = c->period});
  sched_kernel k = {.ast = uop_new(g, OP_SINK, DT_VOID, 1, &all, 1, (uarg){0}), .n_bufs = 1};
  k.bufs = ARENA_ARRAY(graph_arena(g), int64_t, 1);
  k.written = ARENA_ARRAY(graph_arena(g), bool, 1);
  k.bufs[0] = id;
  k.written[0] = true;
  return k;
}

// Adds a gathering to another one's kernel.
static void join_gathering(graph *g, sched_kernel *to, const sched_kernel *k) {
  uop *all[MOST_GATHERED];
  sched_kernel joined = *to;
  int n = to->n_bufs;
  for (int i = 0; i < n; i++) all[i] = to->ast->src[i];
  all[n] = k->ast->src[0];
  joined.ast = uop_new(g, OP_SINK, DT_VOID, 1, all, (size_t)n + 1, (uarg){0});
  joined.n_bufs = n + 1;
  joined.bufs = ARENA_ARRAY(graph_arena(g), int64_t, n + 1);
  joined.written = ARENA_ARRAY(graph_arena(g), bool, n + 1);
  for (int i = 0; i <= n; i++) {
    joined.bufs[i] = i < n ? to->bufs[i] : k->bufs[0];
    joined.written[i] = true;
  }
  *to = joined;
}

static void gather_before(splitter *s, int64_t id, int before, int level) {
  const cuts *c = cuts_of(&s->made, id);
  const access *x = NULL;
  const kernel *by = last_writer(s, id, before, &x);
  die_if(!by || !c, "a buffer is gathered that no kernel has written");
  sched_kernel k = gather_kernel(s, id, x, c, periods(s, x, c->period));
  k.level = level;
  k.order = (int)s->gathers.n;
  k.tensor = by->k->tensor;
  vec_push(&s->gathers, k);
  note_cuts(s, &s->made, id, &(cuts){0});
}

static bool needs_whole(splitter *s, int64_t id) {
  if (map_get(&s->whole, (uint64_t)id, NULL)) return false;
  map_set(&s->whole, (uint64_t)id, NULL);
  return true;
}

// Decides how a buffer that outlives the plan is split: as its writers split it or, in a plan that only reads it, as
// its readers do. Returns false, and records the buffer, if a kernel needs all of it.
static bool settle_kept(splitter *s) {
  bool sound = true;
  for (int pass = 0; pass < 2; pass++)
    for (int i = 0; i < s->n; i++) {
      const kernel *k = &s->kernels[i];
      for (int j = 0; j < k->n_at; j++) {
        const access *x = &k->at[j];
        int64_t id = buffer_of(k, x);
        if (!is_kept(s, id) || x->stored == pass) continue;
        const cuts *made = cuts_of(&s->made, id), *wanted = cuts_of(&s->wanted, id);
        cuts c = x->stored ? cuts_along(s, k, x) : made ? *made : wanted ? *wanted : (cuts){0};
        if (!made) note_cuts(s, &s->made, id, &c);
        else if (x->stored && !same_cuts(s, made, &c)) sound = !needs_whole(s, id) && sound;
        if (!x->stored && c.period && !reads_own(s, k, x, &c)) sound = !needs_whole(s, id) && sound;
      }
    }
  return sound;
}

static void gather_for(splitter *s, int i) {
  const kernel *k = &s->kernels[i];
  for (int j = 0; j < k->n_at; j++) {
    int64_t id = buffer_of(k, &k->at[j]);
    const cuts *made = is_kept(s, id) ? NULL : cuts_of(&s->made, id);
    if (!k->at[j].stored && made && made->period && !reads_own(s, k, &k->at[j], made))
      gather_before(s, id, i, k->k->level);
  }
  for (int j = 0; j < k->n_at; j++) {
    int64_t id = buffer_of(k, &k->at[j]);
    if (!k->at[j].stored || is_kept(s, id)) continue;
    const cuts c = cuts_along(s, k, &k->at[j]), *before = cuts_of(&s->made, id);
    if (before && before->period && !same_cuts(s, before, &c)) gather_before(s, id, i, k->k->level);
    note_cuts(s, &s->made, id, &c);
  }
}

// Gathers the plan's results after all levels.
static void gather_results(splitter *s, int n_levels) {
  for (int i = 0; i < s->n; i++)
    for (int j = 0; j < s->kernels[i].n_at; j++) {
      const access *x = &s->kernels[i].at[j];
      int64_t id = buffer_of(&s->kernels[i], x);
      const cuts *made = cuts_of(&s->made, id);
      if (x->stored && made && made->period && !is_temp_id(id) && !is_kept(s, id)) gather_before(s, id, s->n, n_levels);
    }
}

// --- kernels of one process ------------------------------------------------------------------------------------------

// The kernel over this process's part of the range.
static uop *kernel_part(const splitter *s, const kernel *k) {
  map m = {0};
  VEC(uop *) src = {0};
  graph *g = s->g;
  uop *r = k->range, *first = uop_idx(g, k->from), *store = k->store, *part = NULL;
  if (k->to - k->from > 1) part = uop_range(g, uop_idx(g, k->to - k->from), r->a, (enum axis_kind)r->b);
  map_put(&m, r, !part ? first : k->from ? uop_op2(g, OP_ADD, part, first) : part);
  for (size_t i = 0; i < store->nsrc; i++) {
    uop *to = store->src[i] == r ? part : uop_substitute(g, store->src[i], &m);
    if (to) vec_push(&src, to);
  }
  store = simplify(g, uop_new(g, OP_STORE, DT_VOID, 1, src.at, src.n, uop_arg(store)));
  vec_free(&src);
  map_free(&m);
  return uop_new(g, OP_SINK, DT_VOID, 1, &store, 1, (uarg){0});
}

static bool runs_on(uint64_t on, int rank) { return on >> rank & 1; }

static int by_split_level(const void *p, const void *q) {
  const sched_kernel *a = p, *b = q;
  return a->level != b->level ? (a->level < b->level ? -1 : 1) : a->order - b->order;
}

static void note_kept(splitter *s, const map *made, schedule *out) {
  VEC(sched_kernel) kept = {0};
  map seen = {0};
  for (int i = 0; i < s->n; i++)
    for (int j = 0; j < s->kernels[i].n_at; j++) {
      const access *x = &s->kernels[i].at[j];
      int64_t id = buffer_of(&s->kernels[i], x);
      if (!is_kept(s, id) || !map_add(&seen, (uint64_t)id)) continue;
      const cuts *c = cuts_of(made, id);
      vec_push(&kept, gather_kernel(s, id, x, c, uop_idx(s->g, c->period ? x->param->b / c->period : 0)));
    }
  out->n_kept = (int)kept.n;
  out->kept = ARENA_ARRAY(graph_arena(s->g), sched_kernel, kept.n + 1);
  if (kept.n) memcpy(out->kept, kept.at, kept.n * sizeof *kept.at);
  vec_free(&kept);
  map_free(&seen);
}

// Gatherings before one level, of equally many periods, become one.
static size_t join_gatherings(const splitter *s, sched_kernel *at, size_t n) {
  size_t out = 0;
  for (size_t i = 0; i < n; i++) {
    sched_kernel *to = out ? &at[out - 1] : NULL;
    const uop *u = at[i].ast->src[0], *first = to ? to->ast->src[0] : NULL;
    bool joins = to && is_gathering(at[i].ast) && is_gathering(to->ast) && to->level == at[i].level &&
                 u->src[1] == first->src[1] && !u->src[2]->a && !first->src[2]->a && to->n_bufs < MOST_GATHERED;
    if (joins) join_gathering(s->g, to, &at[i]);
    else at[out++] = at[i];
  }
  return out;
}

// Intermediates of early kernels are shared by the threads.
static void share_early(const splitter *s, schedule *out) {
  for (int i = 0; i < s->n; i++)
    for (int t = 0; s->kernels[i].early && t < out->n_temps; t++)
      if (out->temps[t].id == s->kernels[i].k->bufs[0]) out->temps[t].each = false;
}

// A level has steps of early kernels, then gatherings, then its other kernels; levels without kernels are removed.
enum { STEPS_OF_LEVEL = EARLY_STEPS + 2 };

static void rebuild_schedule(splitter *s, schedule *out) {
  VEC(sched_kernel) all = {0};
  for (int i = 0; i < s->n; i++) {
    kernel *k = &s->kernels[i];
    sched_kernel to = *k->k;
    to.level = k->early ? to.level * STEPS_OF_LEVEL + k->step : (to.level + 1) * STEPS_OF_LEVEL - 1;
    to.each &= !k->early;
    if ((k->range && k->from == k->to) || (k->on && !runs_on(k->on, s->r->rank))) continue;
    if (k->range && (k->from || k->to < k->range->src[0]->a)) to.ast = kernel_part(s, k);
    vec_push(&all, to);
  }
  for (size_t i = 0; i < s->gathers.n; i++) {
    sched_kernel to = s->gathers.at[i];
    to.level = to.level * STEPS_OF_LEVEL + EARLY_STEPS;
    vec_push(&all, to);
  }
  if (all.n) qsort(all.at, all.n, sizeof *all.at, by_split_level);
  all.n = join_gatherings(s, all.at, all.n);
  int level = -1, before = -1;
  for (size_t i = 0; i < all.n; i++) {
    if (all.at[i].level != before) { level++; before = all.at[i].level; }
    all.at[i].level = level;
  }
  out->kernels = ARENA_ARRAY(graph_arena(s->g), sched_kernel, all.n + 1);
  if (all.n) memcpy(out->kernels, all.at, all.n * sizeof *all.at);
  out->n_kernels = (int)all.n;
  out->n_levels = level + 1;
  vec_free(&all);
  share_early(s, out);
  schedule_place_temps(out);
}

// --- kernels that are dealt ------------------------------------------------------------------------------------------

static int owner_of(const splitter *s, int64_t id) {
  return id >= 0 && id < s->r->end_kept && s->r->owner[id] < s->r->n ? s->r->owner[id] : -1;
}

// The process of a kernel: that of its states; else that of its largest weight; else that of what it reads that was
// made last. -1: none of these. made: buffer -> 1 + number of the kernel that stored it last.
static int find_home(const splitter *s, const kernel *k, const map *made) {
  int state = -1, weight = -1, input = -1;
  int64_t largest = 0;
  intptr_t latest = 0;
  for (int i = 0; i < k->n_at; i++) {
    const access *x = &k->at[i];
    int64_t id = buffer_of(k, x), size = x->param->b * dtype_size((enum dtype)x->param->dt);
    int owner = owner_of(s, id);
    void *v = NULL;
    die_if(is_kept(s, id) && state >= 0 && state != owner, "a kernel uses states of two processes");
    if (is_kept(s, id)) state = owner;
    else if (owner >= 0 && size > largest) { largest = size; weight = owner; }
    map_get(made, (uint64_t)id, &v);
    if (!v || (intptr_t)v <= latest || s->kernels[(intptr_t)v - 1].home < 0) continue;
    latest = (intptr_t)v;
    input = s->kernels[latest - 1].home;
  }
  return state >= 0 ? state : weight >= 0 ? weight : input >= 0 ? input : reads_large_weights(s, k) ? 0 : -1;
}

static uint64_t bits_of(const map *m, int64_t id) {
  void *v = NULL;
  map_get(m, (uint64_t)id, &v);
  return (uint64_t)(uintptr_t)v;
}

static void set_bits(map *m, int64_t id, uint64_t bits) { map_set(m, (uint64_t)id, (void *)(uintptr_t)bits); }

// Work of no process in particular (tables of positions), and what each thread computes for itself, is done by all
// processes that read it.
static void deal_kernels(splitter *s) {
  map made = {0}, wanted = {0};
  for (int i = 0; i < s->n; i++) {
    kernel *k = &s->kernels[i];
    k->home = find_home(s, k, &made);
    for (int j = 0; j < k->n_at; j++)
      if (k->at[j].stored) map_set(&made, (uint64_t)buffer_of(k, &k->at[j]), (void *)((intptr_t)i + 1));
  }
  for (int i = s->n; i-- > 0;) {
    kernel *k = &s->kernels[i];
    for (int j = 0; j < k->n_at && (k->home < 0 || k->k->each); j++)
      if (k->at[j].stored) k->on |= bits_of(&wanted, buffer_of(k, &k->at[j]));
    if (!k->on) k->on = (uint64_t)1 << (k->home < 0 ? 0 : k->home);
    for (int j = 0; j < k->n_at; j++) {
      int64_t id = buffer_of(k, &k->at[j]);
      set_bits(&wanted, id, bits_of(&wanted, id) | k->on);
    }
  }
  map_free(&made); map_free(&wanted);
}

// The length of a row, if rows are stored one after the other in a loop of variable length; otherwise all of it.
static int64_t stored_row(const access *x) {
  idx_sum s;
  int64_t row = 0, all = x->param->b, inner = x->width - 1, most;
  if (!idx_sum_of(x->index, &s)) return all;
  for (int t = 0; t < s.n; t++)
    if (s.atom[t]->op == OP_RANGE && s.atom[t]->src[0]->op != OP_CONST && s.coeff[t] > row) row = s.coeff[t];
  if (!row || all % row || !add_i64(inner, floormod_i64(s.constant, row), &inner)) return all;
  for (int t = 0; t < s.n; t++)
    if (s.coeff[t] % row && (s.coeff[t] < 0 || s.atom[t]->vmin < 0 || !mul_i64(s.coeff[t], s.atom[t]->vmax, &most) ||
                             !add_i64(inner, most, &inner)))
      return all;
  return inner < row ? row : all;
}

static cuts owned_by(const splitter *s, int owner, int64_t period, uint64_t to) {
  cuts c = {.period = period, .to = to};
  for (int i = owner + 1; i <= s->r->n; i++) c.cut[i] = period;
  return c;
}

// Sends a buffer from the first process that has it.
static void send_before(splitter *s, int64_t id, uint64_t to, int before, int level) {
  const access *x = NULL;
  const kernel *by = last_writer(s, id, before, &x);
  bool again = by > s->kernels && last_writer(s, id, (int)(by - s->kernels), &(const access *){NULL});
  uint64_t have = bits_of(&s->made, id);
  int owner = 0;
  while (!runs_on(have, owner)) owner++;
  const cuts c = owned_by(s, owner, again ? x->param->b : stored_row(x), to);
  sched_kernel k = gather_kernel(s, id, x, &c, periods(s, x, c.period));
  k.level = level;
  k.order = (int)s->gathers.n;
  k.tensor = by->k->tensor;
  vec_push(&s->gathers, k);
  set_bits(&s->made, id, have | to);
}

// made: buffer -> the processes that have it, as bits
static void send_for(splitter *s, int i) {
  const kernel *k = &s->kernels[i];
  for (int j = 0; j < k->n_at; j++) {
    int64_t id = buffer_of(k, &k->at[j]);
    uint64_t have = is_kept(s, id) ? 0 : bits_of(&s->made, id);
    if (have && k->on & ~have) send_before(s, id, k->on & ~have, i, k->k->level);
  }
  for (int j = 0; j < k->n_at; j++) if (k->at[j].stored) set_bits(&s->made, buffer_of(k, &k->at[j]), k->on);
}

static void send_results(splitter *s, int n_levels) {
  for (int i = 0; i < s->n; i++)
    for (int j = 0; j < s->kernels[i].n_at; j++) {
      int64_t id = buffer_of(&s->kernels[i], &s->kernels[i].at[j]);
      bool result = s->kernels[i].at[j].stored && !is_temp_id(id) && !is_kept(s, id);
      if (result && !runs_on(bits_of(&s->made, id), 0)) send_before(s, id, 1, s->n, n_levels);
    }
}

// Gatherings of states bring them to the first process, element by element.
static void note_owners(splitter *s, map *owned) {
  for (int i = 0; i < s->n; i++)
    for (int j = 0; j < s->kernels[i].n_at; j++) {
      int64_t id = buffer_of(&s->kernels[i], &s->kernels[i].at[j]);
      if (!is_kept(s, id)) continue;
      const cuts c = owned_by(s, owner_of(s, id), 1, 1);
      note_cuts(s, owned, id, &c);
    }
}

static void print_split(const splitter *s) {
  for (int i = 0; i < s->n; i++) {
    const kernel *k = &s->kernels[i];
    fprintf(stderr, "ranks: kernel %3d level %d", i, k->k->level);
    if (k->on) fprintf(stderr, ": on %llx\n", (unsigned long long)k->on);
    else if (!k->range) fprintf(stderr, ": whole%s\n", k->k->each ? ", by every thread" : k->worth ? ": no axis" : "");
    else
      fprintf(stderr, ": r%lld %lld to %lld of %lld, period %lld\n", (long long)k->range->a, (long long)k->from,
              (long long)k->to, (long long)k->range->src[0]->a, (long long)k->out.period);
  }
  for (size_t i = 0; i < s->gathers.n; i++)
    fprintf(stderr, "ranks: buffer %lld is gathered before level %d\n", (long long)s->gathers.at[i].bufs[0] - TEMP_IDS,
            s->gathers.at[i].level);
}

static void split_rows(splitter *p, schedule *s) {
  const rank_split *r = p->r;
  for (int i = 0; i < r->n_cuts; i++) if (!r->cuts[i].period) map_set(&p->whole, (uint64_t)r->cuts[i].id, NULL);
  do {
    map_free(&p->wanted); map_free(&p->made);
    find_worth(p);
    for (int i = 0; i < r->n_cuts; i++) want_as_before(p, &r->cuts[i]);
    for (int i = p->n; i-- > 0;) split_kernel(p, &p->kernels[i]);
    for (int i = 0; i < p->n; i++) if (p->kernels[i].early) split_early(p, i);
  } while (!settle_early(p) || !settle_kept(p));
  note_kept(p, &p->made, s);
  for (int i = 0; i < p->n; i++) gather_for(p, i);
  gather_results(p, s->n_levels);
}

static void deal_layers(splitter *p, schedule *s) {
  map owned = {0};
  deal_kernels(p);
  note_owners(p, &owned);
  note_kept(p, &owned, s);
  map_free(&owned);
  for (int i = 0; i < p->n; i++) send_for(p, i);
  send_results(p, s->n_levels);
}

void split_over_ranks(graph *g, schedule *s, const rank_split *r) {
  if (r->n <= 1) return;
  splitter p = {.g = g, .mem = arena_new(), .r = r, .n = s->n_kernels};
  p.kernels = ARENA_ARRAY(p.mem, kernel, s->n_kernels + 1);
  memset(p.kernels, 0, sizeof *p.kernels * (size_t)s->n_kernels);
  for (int i = 0; i < p.n; i++) {
    p.kernels[i].k = &s->kernels[i];
    find_accesses(&p, &p.kernels[i]);
  }
  (r->owner ? deal_layers : split_rows)(&p, s);
  if (debug_level() >= 1) print_split(&p);
  rebuild_schedule(&p, s);
  vec_free(&p.gathers);
  map_free(&p.wanted); map_free(&p.made); map_free(&p.whole);
  arena_free(p.mem);
}

void kernel_gathers(const uop *ast, int i, gathering *out) {
  const uop *u = ast->src[i];
  *out = (gathering){.period = u->a, .count = u->src[1], .to = (uint64_t)u->src[2]->a, .n = (int)u->nsrc - 4};
  for (int k = 0; k <= out->n; k++) out->cut[k] = u->src[3 + k]->a;
}
