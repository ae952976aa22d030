// The runtime of devices in this process (CPU, REF, NULL): memory is process memory, kernels are functions or
// interpreted, and the team replays plans. Every thread has its own part of every kernel's tiles. A thread that
// finishes takes work from the last quarter of the others' parts, so one delayed thread does not delay the rest. A
// level ends with one barrier; there is no queue, lock or allocation.
#define _GNU_SOURCE
#include "device/host.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "device/counters.h"
#include "device/kernel_set.h"
#include "device/memory.h"
#include "device/plan_impl.h"
#include "device/ref.h"
#include "device/team.h"

// --- memory ---------------------------------------------------------------------------------------------------------

static void *alloc(device *d, uint64_t size, enum pages pages, error *err) {
  (void)d;
  return pages == PAGES_HUGE ? memory_reserve(size, err) : memory_reserve_plain(size, err);
}

static void release(device *d, void *at, uint64_t size) { (void)d; memory_release(at, size); }

static int copy(device *d, void *to, const void *from, size_t n, error *err) {
  (void)d; (void)err;
  memmove(to, from, n);
  return 0;
}

static int fill(device *d, void *to, unsigned char value, size_t n, error *err) {
  (void)d; (void)err;
  memset(to, value, n);
  return 0;
}

// --- kernels --------------------------------------------------------------------------------------------------------

// One mapping for the code of all kernels.
int plan_map_code(device_kernel *kernels, int n, code_image **out, error *err) {
  code_blob *blobs = xcalloc((size_t)n + 1, sizeof *blobs);
  const code_blob **list = xcalloc((size_t)n + 1, sizeof *list);
  int r = 0, any = 0;
  for (int i = 0; i < n && !r; i++) {
    if (!kernels[i].packed.n) continue;
    list[any++] = &blobs[i];
    r = code_blob_unpack(kernels[i].packed.at, kernels[i].packed.n, &blobs[i], err);
  }
  if (!r && any) {
    *out = code_map(list, (size_t)any, err);
    if (!*out) r = -1;
    size_t m = 0;
    for (int i = 0; i < n && !r; i++) {
      if (!kernels[i].packed.n) continue;
      code_fn f = code_find(*out, m++, kernels[i].p->name);
      if (!f) r = error_set(err, "kernel %s: its code is missing", kernels[i].p->name);
      kernels[i].fn = (kernel_fn *)f;
    }
  }
  for (int i = 0; i < n; i++) { code_blob_free(&blobs[i]); bytes_free(&kernels[i].packed); }
  free(blobs); free(list);
  return r;
}

static int link_kernels(device *d, device_kernel *kernels, int n, code_image **image, error *err) {
  (void)d;
  return plan_map_code(kernels, n, image, err);
}

typedef struct fill_run { const device_kernel *k; unsigned char *bufs[2]; int64_t lo, hi; } fill_run;

static void run_fill(void *ctx, int thread, int n) {
  const fill_run *f = ctx;
  int64_t lo = f->lo + (f->hi - f->lo) * thread / n, hi = f->lo + (f->hi - f->lo) * (thread + 1) / n;
  unsigned char *bufs[2] = {f->bufs[0], f->bufs[1]};
  if (lo >= hi || kernel_set_collects()) return;
  if (f->k->fn) f->k->fn(bufs, NULL, lo, hi);
  else if (f->k->ref) ref_run(f->k->ref, bufs, NULL, lo, hi);
}

typedef struct copying { unsigned char *to; const unsigned char *from; size_t n; } copying;

static void run_copy(void *ctx, int thread, int n) {
  const copying *c = ctx;
  size_t from = c->n * (size_t)thread / (size_t)n, to = c->n * ((size_t)thread + 1) / (size_t)n;
  memcpy(c->to + from, c->from + from, to - from);
}

static int host_pack_weight(plan *p, const device_kernel *k, void *stream, const void *raw, uint64_t raw_bytes,
                            int64_t lo, int64_t hi, error *err) {
  (void)raw_bytes; (void)err;
  unsigned char *from = (unsigned char *)(uintptr_t)raw;
  if (!k) team_run(p->team, run_copy, &(copying){(unsigned char *)stream + lo, from + lo, (size_t)(hi - lo)});
  else team_run(p->team, run_fill, &(fill_run){k, {stream, from}, lo, hi});
  return 0;
}

// --- running --------------------------------------------------------------------------------------------------------

#define ASK_S 0.001          // interval of go_on calls within a kernel
enum { PIECES = 8, MANY_TILES = 64 /* per thread: fewer are not worth sharing */, SLICES = 32 };

static void run_part(const step *t, int thread, int64_t lo, int64_t hi) {
  unsigned char **bufs = t->bufs + thread * t->n_bufs;
  if (lo >= hi || kernel_set_collects()) return;
  if (t->k->fn) t->k->fn(bufs, t->vars, lo, hi);
  else if (t->k->ref) ref_run(t->k->ref, bufs, t->vars, lo, hi);
}

// Does a cancellable run end at step i? The first thread calls go_on, at most once per `seconds`.
static bool told_to_end(plan *p, int i, int thread, double seconds) {
  if (!thread && !atomic_load(&p->ended) && now_s() - p->asked_s >= seconds) {
    if (!p->go_on(p->go_on_ctx, (double)i / p->stats.kernels)) atomic_store(&p->ended, true);
    p->asked_s = now_s();
  }
  return atomic_load(&p->ended);
}

// A kernel with many rows can take long, so a cancellable run executes it in slices.
static void run_tiles(plan *p, int number, int thread, int64_t lo, int64_t hi) {
  if (!p->go_on) { run_part(&p->steps[number], thread, lo, hi); return; }
  int64_t n = lo < hi ? min_i64(hi - lo, SLICES) : 0;
  for (int64_t i = 0; i < n && !told_to_end(p, number, thread, ASK_S); i++)
    run_part(&p->steps[number], thread, lo + (hi - lo) * i / n, lo + (hi - lo) * (i + 1) / n);
}

static void run_step(plan *p, int number, int thread, int n) {
  const step *t = &p->steps[number];
  if (t->ranks) {
    if (!thread) ranks_gather(t->bufs, t->ranks->of, t->ranks->n, t->tiles);
    return;
  }
  if (t->each) { run_part(t, thread, 0, t->tiles); return; }
  if (t->tiles == 1) { if (number % n == thread) run_part(t, thread, 0, 1); return; }
  int64_t from = t->tiles * thread / n, to = t->tiles * (thread + 1) / n;
  if (n == 1 || t->tiles < MANY_TILES * n) { run_tiles(p, number, thread, from, to); return; }
  run_tiles(p, number, thread, from, to - (to - from) / 4);
  for (int i = 0; i < n; i++) {                  // own pieces first
    int owner = (thread + i) % n;
    int64_t end = t->tiles * (owner + 1) / n, rest = (end - t->tiles * owner / n) / 4, piece;
    while ((piece = atomic_fetch_add_explicit(&t->parts[owner].next, 1, memory_order_relaxed)) < PIECES)
      run_tiles(p, number, thread, end - rest + rest * piece / PIECES, end - rest + rest * (piece + 1) / PIECES);
  }
}

// Loads weights that step i needs, before it runs; called by all threads.
static void bring_weights(plan *p, int i, int thread) {
  if (!p->steps[i].brings) return;
  int end = i + 1;
  while (end < p->stats.kernels && !p->steps[end].brings) end++;
  size_t from = p->steps[i].reads, to = end < p->stats.kernels ? p->steps[end].reads : p->reads.n;
  team_barrier(p->team);
  if (!thread) demand_begin(p->demand, p->reads.at + from, to - from, p->n_threads);
  team_barrier(p->team);
  demand_bring(p->demand, thread);
  team_barrier(p->team);
}

void plan_on_team(plan *p, team_fn *fn, void *ctx) { (p->flushes ? team_compute : team_run)(p->team, fn, ctx); }

// Threads that see the end run no more steps but still meet at every barrier. A thread that does not see it yet has all
// inputs of this level, and sees it after the next barrier.
void plan_replay(void *ctx, int thread, int n) {
  plan *p = ctx;
  bool ended = false;
  for (int i = 0; i < p->stats.kernels; i++) {
    bool next = i && p->steps[i].level != p->steps[i - 1].level;
    if (next) team_barrier(p->team);
    if (next && p->go_on && !ended) ended = told_to_end(p, i, thread, 0);
    bring_weights(p, i, thread);
    if (!ended) run_step(p, i, thread, n);
  }
}

static int replay(plan *p, error *err) {
  (void)err;
  plan_on_team(p, plan_replay, p);
  return 0;
}

// --- timing ---------------------------------------------------------------------------------------------------------

static void run_timed(void *ctx, int thread, int n) {
  plan *p = ctx;
  double *mark = p->marks + (size_t)thread * p->n_marks;
  *mark++ = now_s();
  for (int i = 0; i < p->stats.kernels; i++) {
    if (i && p->steps[i].level != p->steps[i - 1].level) { team_barrier(p->team); *mark++ = now_s(); }
    bring_weights(p, i, thread);
    run_step(p, i, thread, n);
    *mark++ = now_s();
  }
  team_barrier(p->team);                                     // the last level ends like the others
  *mark = now_s();
}

// Thread 0 takes the times: from the first watched step of a level to the end of its barrier.
static void run_watched(void *ctx, int thread, int n) {
  plan *p = ctx;
  unsigned open = 0;
  double from = 0;
  for (int i = 0; i <= p->stats.kernels; i++) {
    bool end = i == p->stats.kernels;
    if (end || (i && p->steps[i].level != p->steps[i - 1].level)) {
      team_barrier(p->team);
      double s = open ? now_s() - from : 0;
      for (int w = 0; w < WATCHES; w++) if (open >> w & 1) p->watched[w] += s;
      open = 0;
    }
    if (end) break;
    if (!thread && p->steps[i].watch) {
      if (!open) from = now_s();
      open |= 1u << (p->steps[i].watch - 1);
    }
    bring_weights(p, i, thread);
    run_step(p, i, thread, n);
  }
}

void plan_run_watched(plan *p, const plan_var *vars, int n_vars) {
  memset(p->watched, 0, sizeof p->watched);
  plan_set_vars(p, vars, n_vars);
  plan_on_team(p, run_watched, p);
  plan_ends(p);
}

// The times of one level, kernels i .. i + count - 1, whose first mark is marks[at]: from thread 0's first mark to its
// next mark, after the barrier.
static void share_level(const plan *p, int i, int count, size_t at, plan_times *out) {
  int n = p->n_threads;
  double busy = 0;
  for (int t = 0; t < n; t++) {
    const double *m = p->marks + (size_t)t * p->n_marks + at;
    busy += m[count] - m[0];
  }
  double all = p->marks[at + (size_t)count + 1] - p->marks[at], wait = all - busy / n;
  if (wait < 0) wait = 0;
  for (int k = 0; k < count; k++) {
    double own = 0;
    for (int t = 0; t < n; t++)
      own += p->marks[(size_t)t * p->n_marks + at + (size_t)k + 1] - p->marks[(size_t)t * p->n_marks + at + (size_t)k];
    double share = busy > 0 ? own / busy : 1.0 / count;
    out->kernel_us[i + k] = all * share * 1e6;
    out->kernel_wait_us[i + k] = wait * share * 1e6;
    out->overhead_us -= all * share * 1e6;
  }
}

static int replay_timed(plan *p, plan_times *out, error *err) {
  (void)err;
  size_t line = 64 / sizeof(double);                            // no two threads write to one cache line
  if (!p->marks) {
    p->n_marks = round_up((size_t)p->stats.kernels + (size_t)p->stats.dispatches + 1, line) + line;
    p->marks = xmalloc((size_t)p->n_threads * p->n_marks * sizeof *p->marks);
    memset(p->marks, 0, (size_t)p->n_threads * p->n_marks * sizeof *p->marks);
  }
  double start = p->began = now_s();
  plan_on_team(p, run_timed, p);
  out->us = out->overhead_us = (now_s() - start) * 1e6;
  size_t at = 0;
  for (int i = 0, count; i < p->stats.kernels; i += count) {
    for (count = 1; i + count < p->stats.kernels && p->steps[i + count].level == p->steps[i].level;) count++;
    share_level(p, i, count, at, out);
    at += (size_t)count + 1;
  }
  return 0;
}

void plan_lane(const plan *p, int i, int thread, double *from, double *to) {
  // one mark per kernel, and one more per level
  const double *m = p->marks + (size_t)thread * p->n_marks + i + p->steps[i].level;
  *from = (m[0] - p->began) * 1e6;
  *to = (m[1] - p->began) * 1e6;
}

// --- counting --------------------------------------------------------------------------------------------------------

// got: per thread, kernel and counter
typedef struct counting { plan *p; const counters *c; uint64_t *got; } counting;

static void run_counted(void *ctx, int thread, int n) {
  const counting *w = ctx;
  plan *p = w->p;
  int each = counters_n(w->c);
  uint64_t *at = w->got + (size_t)thread * (size_t)p->stats.kernels * (size_t)each, before[COUNTERS_MAX],
           after[COUNTERS_MAX];
  for (int i = 0; i < p->stats.kernels; i++) {
    if (i && p->steps[i].level != p->steps[i - 1].level) team_barrier(p->team);
    bring_weights(p, i, thread);
    counters_read(w->c, thread, before);
    run_step(p, i, thread, n);
    counters_read(w->c, thread, after);
    for (int k = 0; k < each; k++) *at++ = after[k] - before[k];
  }
}

void plan_run_counted(plan *p, const plan_var *vars, int n_vars, const counters *c, double *out) {
  size_t n = (size_t)p->stats.kernels * (size_t)counters_n(c);
  counting w = {p, c, xcalloc(n * (size_t)p->n_threads + 1, sizeof *w.got)};
  plan_set_vars(p, vars, n_vars);
  plan_on_team(p, run_counted, &w);
  plan_ends(p);
  for (size_t i = 0; i < n; i++) {
    out[i] = 0;
    for (int t = 0; t < p->n_threads; t++) out[i] += (double)w.got[(size_t)t * n + i];
  }
  free(w.got);
}

const runtime host_runtime = {.here = true,
                              .alloc = alloc,
                              .release = release,
                              .write = copy,
                              .read = copy,
                              .copy = copy,
                              .fill = fill,
                              .link = link_kernels,
                              .pack_weight = host_pack_weight,
                              .replay = replay,
                              .replay_timed = replay_timed};
