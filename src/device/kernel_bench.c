// Runs one kernel of a plan for trials: see kernel_bench.h.
#define _GNU_SOURCE
#include "device/kernel_bench.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/env.h"
#include "base/os.h"
#include "codegen/merge_launches.h"
#include "device/memory.h"
#include "device/team.h"

enum { LARGE = 16 << 20, MAX_ALONE = 64 << 20 /* of scratch memory beside a model that runs */ };

// --- runs ----------------------------------------------------------------------------------------------------------

void kernel_bench_set_up(step *t, const device_kernel *k, const plan_var *vars, int n_vars, int n_threads) {
  t->k = k;
  plan_vars(k->p, vars, n_vars, t->vars);
  t->tiles = program_eval(k->p, k->p->tiles, t->vars);
  for (int j = 0; j < n_threads; j++) atomic_store_explicit(&t->parts[j].next, 0, memory_order_relaxed);
}

int kernel_bench_launch(kernel_bench *g, int n, double *us) {
  const runtime *run = g->p->d->run;
  double wait[KERNEL_BENCH_LAUNCHES];
  error err = {0};
  plan_times times = {.kernel_us = us, .kernel_wait_us = wait};
  g->row.stats.kernels = n;
  g->row.stats.dispatches = KERNEL_BENCH_LAUNCHES;
  int r = run->record(&g->row, &err);
  if (!r) r = run->replay_timed(&g->row, &times, &err);
  if (g->row.recorded) run->forget(&g->row);
  g->row.recorded = NULL;
  free(g->row.marks);
  g->row.marks = NULL;
  if (r && debug_level() >= 1) fprintf(stderr, "search: %s: %s\n", g->steps[0].k->p->name, err.text);
  g->failed |= r != 0;
  return r;
}

void kernel_bench_run(kernel_bench *g, const device_kernel *k, const plan_var *vars) {
  double us;
  kernel_bench_set_up(&g->steps[0], k, vars, g->n_vars, g->alone ? 1 : g->p->n_threads);
  if (g->remote) { kernel_bench_launch(g, 1, &us); return; }
  g->row.stats.kernels = 1;
  if (g->alone) { plan_replay(&g->row, 0, 1); return; }
  plan_on_team(g->p, plan_replay, &g->row);
}

// --- what is read and written --------------------------------------------------------------------------------------

// Fills memory with random values that suit the type: floats between -1 and 1, small integers if they may be indices
// (loads clamp them), any codes.
static void fill_randomly(unsigned char *to, uint64_t n, enum dtype dt, uint64_t seed) {
  enum { PATTERN = 65536 - 64 };
  uint64_t first = n < PATTERN ? n : PATTERN;
  int size = dtype_size(dt);
  for (uint64_t i = 0; i + (uint64_t)size <= first; i += (uint64_t)size) {
    seed = hash_u64(seed, 11);
    float f = (float)((double)(seed >> 40) / (1 << 23) - 1);
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    uint16_t half = (uint16_t)((seed & 0x83ff) | (10 + (seed >> 16 & 3)) << 10), bf16 = (uint16_t)(bits >> 16);
    double d = f;
    uint64_t whole = dt == DT_I32 || dt == DT_I64 ? seed % 97 : seed;
    switch (dt) {
    case DT_F32: memcpy(to + i, &f, 4); break;
    case DT_F64: memcpy(to + i, &d, 8); break;
    case DT_F16: memcpy(to + i, &half, 2); break;
    case DT_BF16: memcpy(to + i, &bf16, 2); break;
    case DT_BOOL: to[i] = seed & 1; break;
    default: memcpy(to + i, &whole, (size_t)size);
    }
  }
  for (uint64_t done = first; done < n; done += first) memcpy(to + done, to, n - done < first ? n - done : first);
}

static uint64_t page_size(void) { return (uint64_t)sysconf(_SC_PAGESIZE); }

// Adds pages that now hold something to those that are compared.
static void look_at_pages(const param *w) {
  uint64_t n = round_up(w->bytes, page_size()) / page_size();
  unsigned char *now = xmalloc(n);
  if (!memory_resident(w->scratch, w->bytes, now)) die("pages of scratch memory");
  for (uint64_t i = 0; i < n; i++) w->pages[i] |= now[i] & 1;
  free(now);
}

bool kernel_bench_piece(const param *w, uint64_t *from, uint64_t *to) {
  uint64_t page = page_size();
  *from = *to;
  while (w->pages && *from < w->bytes && !w->pages[*from / page]) *from += page;
  if (*from >= w->bytes) return false;
  *to = w->pages && w->bytes - *from > page ? *from + page : w->bytes;
  return true;
}

void kernel_bench_background(const kernel_bench *g, int byte) {
  for (int i = 0; i < g->n_params; i++) {
    const param *w = &g->params[i];
    if (!w->written) continue;
    if (w->pages) memory_discard(w->scratch, w->bytes);
    for (uint64_t from, to = 0; kernel_bench_piece(w, &from, &to);) memset(w->scratch + from, byte, to - from);
  }
}

void kernel_bench_save(const kernel_bench *g) {
  for (int i = 0; i < g->n_params; i++) {
    const param *w = &g->params[i];
    if (!w->written) continue;
    if (w->pages) { look_at_pages(w); memory_discard(w->saved, w->bytes); }
    for (uint64_t from, to = 0; kernel_bench_piece(w, &from, &to);)
      memcpy(w->saved + from, w->scratch + from, to - from);
  }
}

static bool same_bytes(const param *w, int mask) {
  for (uint64_t from, to = 0; kernel_bench_piece(w, &from, &to);) {
    if (!memcmp(w->saved + from, w->scratch + from, to - from)) continue;
    if (!w->mask[mask]) return false;
    for (uint64_t b = from; b < to; b++) if (w->mask[mask][b] && w->saved[b] != w->scratch[b]) return false;
  }
  return true;
}

bool kernel_bench_same(kernel_bench *g, const device_kernel *base, const device_kernel *k, const plan_var *vars,
                       int mask) {
  bool same = true, large = false;
  g->failed = false;
  for (int i = 0; i < g->n_params; i++) large |= g->params[i].pages != NULL;
  // a first run finds the pages it writes, so that all of them get a background
  for (int first = large; first >= 0; first--) {
    kernel_bench_background(g, 0x5a);
    kernel_bench_run(g, base, vars);
    kernel_bench_save(g);
  }
  kernel_bench_background(g, 0x5a);
  kernel_bench_run(g, k, vars);
  for (int i = 0; i < g->n_params && same; i++) {
    if (!g->params[i].written) continue;
    if (g->params[i].pages) look_at_pages(&g->params[i]);
    same = same_bytes(&g->params[i], mask);
  }
  return same && !g->failed;
}

// --- a kernel's place of trial -------------------------------------------------------------------------------------

// Does the kernel read or write u? Reads of what it has written itself do not count.
static void find_uses(uop *ast, const uop *u, bool *read, bool *written) {
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &ast, 1);
  for (size_t i = 0; i < l.n; i++) {
    const uop *v = l.at[i], *made = v->op == OP_LOAD && v->nsrc > 1 ? v->src[1] : NULL;
    if (v->op == OP_STORE) *written |= v->src[0]->src[0] == u;
    if (v->op == OP_LOAD && v->src[0]->src[0] == u)
      *read |= !made || made->op != OP_STORE || made->src[0]->src[0] != u;
  }
  arena_free(a);
}

static int find_params(kernel_bench *g, error *err) {
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &g->ast, 1);
  uop *kernels[MOST_KERNELS];
  int n = merged_kernels(g->ast, kernels);
  bool both = false;
  for (size_t i = 0; i < l.n && g->n_params < KERNEL_BENCH_PARAMS; i++) {
    const uop *u = l.at[i];
    if (u->op != OP_PARAM) continue;
    param *w = &g->params[g->n_params++];
    *w = (param){.number = (int)u->a, .dt = (enum dtype)u->dt,
        .bytes = (uint64_t)u->b * (uint64_t)dtype_size((enum dtype)u->dt), .weight = is_weight(u)};
    bool read = false;
    for (int j = 0; j < n; j++) {
      bool before = w->written, reads = false;
      find_uses(kernels[j], u, &reads, &w->written);
      read |= reads && !before;                          // not what the kernel that it follows has written
    }
    both |= read && w->written;
  }
  arena_free(a);
  if (both) return error_set(err, "it reads what it writes");
  return 0;
}

static bool is_large(const param *w) { return w->written && w->bytes > LARGE; }

// Outputs have memory for each thread, since some kernels are computed in full by every thread.
static uint64_t own_bytes(const param *w) { return round_up((size_t)w->bytes, 4096); }
static uint64_t scratch_bytes(const kernel_bench *g, const param *w) {
  return w->written ? own_bytes(w) * (uint64_t)(g->alone ? 1 : g->p->n_threads) : w->bytes;
}

// A remote kernel's read-only inputs are on its device, copied there once.
static int find_remote(const kernel_bench *g, int i, param *w, error *err) {
  if (is_large(w))
    return error_set(err, "an output of %.0f MiB is too much to bring back from the device", (double)w->bytes / 0x1p20);
  if (w->written) return 0;
  if (!(w->scratch = device_alloc(g->p->d, w->bytes, PAGES_PLAIN, err))) return -1;
  unsigned char *contents = xmalloc(w->bytes);
  fill_randomly(contents, w->bytes, w->dt, (uint64_t)i + 1);
  device_write(g->p->d, w->scratch, contents, w->bytes);
  free(contents);
  return 0;
}

static int find_memory(kernel_bench *g, error *err) {
  uint64_t need = KERNEL_BENCH_FLUSH, have;
  for (int i = 0; i < g->n_params; i++)
    if (!g->params[i].weight && !is_large(&g->params[i])) need += g->params[i].bytes * (g->params[i].written ? 4 : 1);
  double mib = (double)need / 0x1p20;
  if (!memory_available(&have, NULL) && need > have / 2)
    return error_set(err, "memory is short: %.0f MiB are needed and %.0f free", mib, (double)have / 0x1p20);
  if (g->alone && need > KERNEL_BENCH_FLUSH + (uint64_t)MAX_ALONE)
    return error_set(err, "%.0f MiB of scratch memory are too much beside a model that runs", mib);
  for (int i = 0; i < g->n_params; i++) {
    param *w = &g->params[i];
    if (w->weight) continue;
    if (g->remote && find_remote(g, i, w, err)) return -1;
    if (w->scratch) continue;
    if (is_large(w)) {                                  // plain pages: most of a huge page may stay untouched
      w->pages = xcalloc(w->bytes / page_size() + 1, 1);
      if (!(w->scratch = memory_reserve_plain(scratch_bytes(g, w), err))) return -1;
      if (!(w->saved = memory_reserve_plain(w->bytes, err))) return -1;
      continue;
    }
    if (!(w->scratch = memory_reserve(scratch_bytes(g, w), err))) return -1;
    if (w->written && !(w->saved = memory_reserve(w->bytes, err))) return -1;
    for (int k = 0; w->written && !g->alone && k < 2; k++) if (!(w->mask[k] = memory_reserve(w->bytes, err))) return -1;
    if (!w->written) fill_randomly(w->scratch, w->bytes, w->dt, (uint64_t)i + 1);
  }
  return 0;
}

static int find_launches(kernel_bench *g, error *err) {
  const plan *p = g->p;
  int n = 0, threads = g->alone ? 1 : p->n_threads, most = g->alone ? 1 : KERNEL_BENCH_LAUNCHES;
  double weights = 0;
  g->steps = xcalloc(KERNEL_BENCH_LAUNCHES, sizeof *g->steps);
  g->parts = os_lines_take(sizeof(part) * (size_t)KERNEL_BENCH_LAUNCHES * (size_t)threads);
  if (!g->parts) die("out of memory");
  for (int i = 0; i < p->stats.kernels && n < most; i++) {
    if (p->steps[i].unique != g->unique) continue;
    step *t = &g->steps[n++];
    if (p->steps[i].each) for (int j = 0; j < g->n_params; j++)
      if (is_large(&g->params[j])) return error_set(err, "every thread writes an output of its own that is too large");
    *t = (step){.each = p->steps[i].each};               // other fields of the step may be in use
    int bufs = 0;
    for (int j = 0; j < g->n_params; j++) if (g->params[j].number >= bufs) bufs = g->params[j].number + 1;
    if (!g->args) g->args = xcalloc((size_t)bufs + 1, sizeof *g->args);
    t->n_bufs = bufs;
    t->args = g->args;
    t->bufs = xcalloc((size_t)bufs * (size_t)threads + 1, sizeof *t->bufs);
    for (int j = 0; j < g->n_params; j++) {
      const param *w = &g->params[j];
      g->args[w->number] = (plan_argument){w->bytes, w->weight, w->written};
      for (int k = 0; k < threads; k++) {
        unsigned char *scratch = w->scratch;               // weights have none
        if (t->each && w->written) scratch += own_bytes(w) * (uint64_t)k;
        t->bufs[k * bufs + w->number] = w->weight ? p->steps[i].bufs[w->number] : scratch;
      }
      if (w->weight) weights += (double)w->bytes;
    }
  }
  g->n_launches = g->n_steps = g->n_own = n;
  for (int i = 0; i < KERNEL_BENCH_LAUNCHES; i++) {
    if (i >= n) g->steps[i] = g->steps[i % n];
    g->steps[i].parts = g->parts + (size_t)i * (size_t)threads;
    g->steps[i].level = i;
  }
  g->row = (plan){.d = p->d, .team = p->team, .n_threads = p->n_threads, .steps = g->steps};
  if (!g->alone && !g->remote && weights > 0 && weights < 2.0 * KERNEL_BENCH_FLUSH) {
    if (!(g->flush = memory_reserve(KERNEL_BENCH_FLUSH, err))) return -1;
    memset(g->flush, 1, KERNEL_BENCH_FLUSH);
  }
  return 0;
}

void kernel_bench_close(kernel_bench *g) {
  for (int i = 0; i < g->n_params; i++) {
    const param *w = &g->params[i];
    void *const at[] = {w->scratch, w->saved, w->mask[SMALL], w->mask[TIMED]};
    free(w->pages);
    if (g->remote && !w->written) { device_release(g->p->d, w->scratch, w->bytes); continue; }
    for (size_t k = 0; k < COUNT(at); k++) memory_release(at[k], k ? w->bytes : scratch_bytes(g, w));
  }
  for (int i = 0; i < g->n_own; i++) free(g->steps[i].bufs);
  memory_release(g->flush, KERNEL_BENCH_FLUSH);
  free(g->steps);
  os_lines_free(g->parts);
  free(g->args);
}

// Small values of the variables, three above the minimum, at which every lane and tile has a remainder.
static void choose_values(kernel_bench *g, const plan_var *vars, int n_vars) {
  g->n_vars = n_vars;
  for (int i = 0; i < n_vars; i++) {
    g->timed[i] = g->small[i] = vars[i];
    arena *a = arena_new();
    uop_list l = uop_toposort(a, &g->ast, 1);
    for (size_t j = 0; j < l.n; j++)
      if (l.at[j]->op == OP_VAR && !strcmp(l.at[j]->s, vars[i].name))
        g->small[i].value = min_i64(l.at[j]->a + 2, l.at[j]->b);
    arena_free(a);
  }
}

int kernel_bench_open(kernel_bench *g, plan *p, int unique, bool alone, const plan_var *vars, int n_vars, error *err) {
  *g = (kernel_bench){.p = p, .unique = unique, .ast = p->asts[unique], .alone = alone, .remote = !p->d->run->here};
  choose_values(g, vars, n_vars);
  return find_params(g, err) || find_memory(g, err) || find_launches(g, err) ? -1 : 0;
}
