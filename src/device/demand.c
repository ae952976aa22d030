// Loads weights on demand: see demand.h.
//
// Experts are evicted by last use. Weights that every token reads form a cycle, and if the cycle exceeds memory, the
// least recently used weight is the next one needed. So some of these weights are always kept, and the others are
// dropped as soon as their kernel has run. A prompt, which reads nearly all experts of each layer, is such a cycle too:
// it uses the resident experts, and drops those that it loads first.
#define _GNU_SOURCE
#include "device/demand.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "base/env.h"
#include "device/kernel_set.h"
#include "device/memory.h"
#include "device/plan_impl.h"
#include "device/ref.h"

enum {
  PIECE = 4 << 20,                               // approximate bytes per read of a large weight
  ROOM_BEHIND = 64
};

typedef struct demand_part {
  demand_weight *of;
  int64_t number;
  bool resident, stays, seen;                    // seen: was resident before
  uint64_t used;                                 // time of the last read
  struct demand_part *before, *behind;           // the list of parts that may be dropped, in the order of dropping
} demand_part;

struct demand_weight {
  int64_t id;
  uint64_t layout, bytes, raw_bytes, size;       // size: of the memory
  unsigned char *at;
  const unsigned char *raw;
  layout l;                                      // its units are valid only during the plan that supplied them
  const device_kernel *fill;
  int64_t tiles, n;                              // tiles of the filling kernel; parts
  bool ready;                                    // the filling is known
  bool in_order;                                 // the file bytes of a tile are contiguous, tile after tile
  uint64_t extent;
  demand_part *parts;
};

typedef struct filler { graph *g; device_kernel *kernels; int n; code_image *code; } filler;
// A thread's buffer for what it reads.
typedef struct scratch { unsigned char *at; uint64_t size; } scratch;
typedef struct fill_job { demand_part *part; int64_t slice, slices; } fill_job;

struct demand {
  uint64_t budget, largest, resident, clock;
  double stays, credit;                          // share of the weights that every token reads that is kept
  VEC(demand_weight *) weights;
  VEC(filler) fillers;
  VEC(scratch) rooms;
  demand_reader *reader;
  void *ctx;
  demand_part leaves;                            // head of the list
  VEC(fill_job) jobs;
  VEC(demand_part *) missing;
  _Atomic size_t next;
  uint64_t read, again;                          // bytes since demand_new, and those of them that had been resident
};

demand *demand_new(const demand_sizes *s, demand_reader *reader, void *ctx) {
  demand *q = xcalloc(1, sizeof *q);
  uint64_t stay = s->budget > s->coming ? s->budget - s->coming : 0, others = s->always - s->largest;
  q->budget = s->budget;
  q->largest = s->largest;
  q->reader = reader;
  q->ctx = ctx;
  q->stays = s->always <= stay ? 1 : stay > s->largest ? (double)(stay - s->largest) / (double)others : 0;
  q->leaves.before = q->leaves.behind = &q->leaves;
  return q;
}

void demand_free(demand *q) {
  if (!q) return;
  if (debug_level() >= 1)
    fprintf(stderr, "demand: %.1f MiB read, of them %.1f MiB again, %.1f MiB of %.1f MiB in memory\n",
            (double)q->read / 0x1p20, (double)q->again / 0x1p20, (double)q->resident / 0x1p20,
            (double)q->budget / 0x1p20);
  for (size_t i = 0; i < q->weights.n; i++) {
    memory_release(q->weights.at[i]->at, q->weights.at[i]->size);
    free(q->weights.at[i]->parts);
    free(q->weights.at[i]);
  }
  for (size_t i = 0; i < q->fillers.n; i++) {
    code_unmap(q->fillers.at[i].code);
    plan_free_kernels(q->fillers.at[i].kernels, q->fillers.at[i].n);
    free(q->fillers.at[i].kernels);
    graph_free(q->fillers.at[i].g);
  }
  for (size_t i = 0; i < q->rooms.n; i++) memory_release(q->rooms.at[i].at, q->rooms.at[i].size);
  vec_free(&q->rooms);
  vec_free(&q->weights);
  vec_free(&q->fillers);
  vec_free(&q->jobs);
  vec_free(&q->missing);
  free(q);
}

// Is a weight of `size` bytes that every token reads always kept?
static bool one_that_stays(demand *q, uint64_t size, uint64_t raw) {
  if (q->stays >= 1 || raw >= q->largest) return true;
  q->credit += q->stays * (double)size;
  if (q->credit < (double)size) return false;
  q->credit -= (double)size;
  return true;
}

static demand_weight *new_weight(demand *q, int64_t id, const layout *l, int64_t matrices, error *err) {
  bool apart = matrices > 1 && l->bytes % matrices == 0 && (!l->n_units || l->loop[0].size == matrices);
  uint64_t raw = (uint64_t)(l->elems * dtype_size(l->dt)), size = round_up((size_t)l->bytes, MEMORY_ALIGN);
  bool stays = !apart && one_that_stays(q, (uint64_t)l->bytes, raw);
  // huge pages cannot be given back in parts
  unsigned char *at = stays ? memory_reserve(size, err) : memory_reserve_plain(size, err);
  if (!at) return NULL;
  demand_weight *w = xcalloc(1, sizeof *w);
  *w = (demand_weight){.id = id, .layout = l->hash, .bytes = (uint64_t)l->bytes, .size = size, .at = at,
                       .raw_bytes = raw, .n = apart ? matrices : 1};
  w->parts = xcalloc((size_t)w->n, sizeof *w->parts);
  for (int64_t i = 0; i < w->n; i++) w->parts[i] = (demand_part){.of = w, .number = i, .stays = stays};
  vec_push(&q->weights, w);
  return w;
}

// A plan whose building failed leaves a weight without a filling: the next plan sets it.
demand_weight *demand_weight_of(demand *q, int64_t id, const layout *l, int64_t matrices, const unsigned char *raw,
                                bool *is_new, error *err) {
  demand_weight *w = NULL;
  for (size_t i = 0; i < q->weights.n && !w; i++)
    if (q->weights.at[i]->id == id && q->weights.at[i]->layout == l->hash) w = q->weights.at[i];
  if (!w && !(w = new_weight(q, id, l, matrices, err))) return NULL;
  *is_new = !w->ready;
  if (w->ready) return w;
  w->raw = raw;
  w->l = *l;
  return w;
}

unsigned char *demand_memory(const demand_weight *w) { return w->at; }

// Bytes from the first to the last that one step of the outermost loop reads; if this exceeds a step, the bytes of
// several steps are interleaved.
static uint64_t extent_of(const layout *l) {
  int64_t t = l->together, all = (max_i64(l->lanes / t, 1) - 1) * l->lane_step, unit = 0;
  for (int i = 1; i < l->n_loops; i++) all += (l->loop[i].size - 1) * l->loop[i].step;
  for (int i = 0; i < l->n_units; i++) {
    const layout_unit *u = &l->unit[i];
    unit = max_i64(unit, u->from + u->bytes + (t - 1) * u->row);
  }
  return (uint64_t)(all + unit);
}

static int64_t filling_steps(const demand_weight *w) { return w->fill ? w->tiles : (int64_t)w->bytes; }

void demand_fill_by(demand_weight *w, const device_kernel *k) {
  w->fill = k;
  w->ready = true;
  w->tiles = k ? program_eval(k->p, k->p->tiles, NULL) : 0;
  w->extent = k && w->l.n_loops ? extent_of(&w->l) : 0;
  w->in_order = !k || (w->l.n_loops && w->tiles == w->l.loop[0].size && w->extent <= (uint64_t)w->l.loop[0].step);
  die_if(k && w->n > 1 && w->tiles != w->n, "a weight of %lld matrices is filled in %lld tiles", (long long)w->n,
         (long long)w->tiles);
}

void demand_keep(demand *q, graph *g, device_kernel *kernels, int n, code_image *code) {
  vec_push(&q->fillers, ((filler){g, kernels, n, code}));
}

// --- residency -------------------------------------------------------------------------------------------------------

static uint64_t part_bytes(const demand_part *p) { return p->of->bytes / (uint64_t)p->of->n; }

static void unlink_part(demand_part *p) {
  if (!p->behind) return;
  p->before->behind = p->behind;
  p->behind->before = p->before;
  p->before = p->behind = NULL;
}

static void link_behind(demand_part *at, demand_part *p) {
  p->before = at;
  p->behind = at->behind;
  at->behind->before = p;
  at->behind = p;
}

static void evict_part(demand *q, demand_part *p) {
  uint64_t size = part_bytes(p);
  unlink_part(p);
  p->resident = false;
  q->resident -= size;
  memory_discard(p->of->at + (uint64_t)p->number * size, size);
}

static void evict_for(demand *q, uint64_t size) {
  demand_part *p = q->leaves.behind, *next;
  for (; p != &q->leaves && q->resident + size > q->budget; p = next) {
    next = p->behind;
    if (p->used != q->clock) evict_part(q, p);
  }
}

// chosen: selected by a number, not because the whole weight is read
static void use(demand *q, demand_part *p, bool chosen) {
  bool first = !p->resident;
  if (p->used == q->clock) return;
  p->used = q->clock;
  if (first) {
    uint64_t size = part_bytes(p);
    evict_for(q, size);
    q->read += size;
    q->again += p->seen ? size : 0;
    p->resident = p->seen = true;
    q->resident += size;
    vec_push(&q->missing, p);
  }
  if (p->stays || (!first && !chosen)) return;
  unlink_part(p);
  link_behind(chosen ? q->leaves.before : &q->leaves, p);
}

static bool is_chosen(const demand_read *r) { return r->which && r->of->n > 1; }
static int64_t n_read(const demand_read *r) { return is_chosen(r) ? r->n : r->of->n; }

// Clamps numbers out of bounds, as kernels do.
static demand_part *part_read(const demand_read *r, int64_t i) {
  return &r->of->parts[is_chosen(r) ? max_i64(0, min_i64(r->which[i], r->of->n - 1)) : i];
}

static void plan_jobs(demand *q) {
  q->jobs.n = 0;
  for (size_t i = 0; i < q->missing.n; i++) {
    demand_part *p = q->missing.at[i];
    int64_t steps = filling_steps(p->of) / p->of->n, slices = (int64_t)(part_bytes(p) / PIECE) + 1;
    slices = p->of->in_order ? min_i64(slices, steps) : 1;
    for (int64_t k = 0; k < slices; k++) vec_push(&q->jobs, ((fill_job){p, k, slices}));
  }
}

void demand_begin(demand *q, const demand_read *now, size_t n, int threads) {
  q->missing.n = 0;
  q->clock++;
  while (q->rooms.n < (size_t)threads) vec_push(&q->rooms, ((scratch){0}));
  for (size_t i = 0; i < n; i++)
    for (int64_t k = 0; k < n_read(&now[i]); k++) use(q, part_read(&now[i], k), is_chosen(&now[i]));
  plan_jobs(q);
  atomic_store(&q->next, 0);
}

// --- filling ---------------------------------------------------------------------------------------------------------

static unsigned char *room_for(scratch *r, uint64_t size) {
  if (r->size < size) {
    memory_release(r->at, r->size);
    r->size = round_up((size_t)size, MEMORY_ALIGN);
    r->at = memory_reserve_plain(r->size, &(error){0});
    if (!r->at) r->size = 0;
  }
  return r->at;
}

// The range of file bytes that steps from .. to - 1 read.
static void raw_range(const demand_weight *w, int64_t from, int64_t to, uint64_t *lo, uint64_t *hi) {
  const layout *l = &w->l;
  if (!w->fill) { *lo = (uint64_t)from; *hi = (uint64_t)to; return; }
  *lo = 0;
  *hi = w->raw_bytes;
  if (!w->in_order) return;
  *lo = (uint64_t)(l->base + from * l->loop[0].step);
  *hi = (uint64_t)(l->base + (to - 1) * l->loop[0].step) + w->extent;
}

static void pack_part(const demand_weight *w, const unsigned char *raw, int64_t from, int64_t to) {
  unsigned char *bufs[2] = {w->at, (unsigned char *)(uintptr_t)raw};
  if (!w->fill) memcpy(w->at + from, raw + from, (size_t)(to - from));
  else if (w->fill->fn) w->fill->fn(bufs, NULL, from, to);
  else if (w->fill->ref) ref_run(w->fill->ref, bufs, NULL, from, to);
}

// What cannot be read into a buffer is read through the file's mapping, which reports the error.
static void bring_part(demand *q, const fill_job *j, scratch *r) {
  const demand_weight *w = j->part->of;
  int64_t each = filling_steps(w) / w->n, first = each * j->part->number;
  int64_t from = first + each * j->slice / j->slices, to = first + each * (j->slice + 1) / j->slices;
  uint64_t lo, hi;
  if (from >= to || kernel_set_collects()) return;
  raw_range(w, from, to, &lo, &hi);
  unsigned char *at = room_for(r, hi - lo + ROOM_BEHIND);
  const unsigned char *raw = w->raw;
  if (at && !q->reader(q->ctx, w->id, lo, at, (size_t)(hi - lo))) raw = (const unsigned char *)((uintptr_t)at - lo);
  pack_part(w, raw, from, to);
}

void demand_bring(demand *q, int thread) {
  for (size_t i; (i = atomic_fetch_add(&q->next, 1)) < q->jobs.n;) bring_part(q, &q->jobs.at[i], &q->rooms.at[thread]);
}
