// Searches for kernels of a plan: see tune.h. Implements what codegen/search.h requires of a device.
//
// Timing. A candidate runs as in the model: on all threads, over the model's own weights, launch after launch through
// the layers that share the kernel, so that its weights are as cold as in a token. If all of them together might stay
// in a cache, a larger area is read first. All other buffers (activations, the KV cache, logits) are scratch memory
// with random contents: a search changes none of the engine's data.
//
// Correctness. The heuristic's kernel is compared, within rounding, with the plain kernel as scheduled (NOOPT: no
// lanes, no unrolling, unpacked weights). A candidate must give the bits of the heuristic's kernel, for the timed
// values and for others. If a size is padded, lanes beyond it are undefined: the elements that count are those that the
// plain kernel writes, found by running it on two different backgrounds.
#include "device/tune.h"
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "base/env.h"
#include "codegen/merge_launches.h"
#include "device/cache.h"
#include "device/llvm.h"
#include "device/predict.h"
#include "device/kernel_bench.h"
#include "device/team.h"

enum { WARM_UPS = 1, LOOKS = 3, NODES_MORE = 4, FEW_NODES = 3000 };
static const double LEAST_SHARE = 0.004, LEAST_S = 0.3, MUCH_LONGER = 1.5, ENOUGH_US = 300, TOO_MUCH_US = 30000,
                    PLAIN_FLOPS = 1.2e9;

typedef struct made { device_kernel k; code_image *image; bytes packed; } made;      // candidate.code

typedef struct kernel_search {
  kernel_bench r;
  int at;                        // a sample is r.n_launches steps, from here on
  const tune_options *o;
  bool deep;                     // it is timed at o->deep too
  map seen;                      // hash of source -> 1
  candidate *base;
  double done, todo, weight;     // over all searches, for the progress bar
  error err;
} kernel_search;

// --- code ------------------------------------------------------------------------------------------------------------

typedef struct making {
  kernel_search *g;
  candidate *const *c;
  int n;
  _Atomic int next;
  bool code;
  uint64_t *hash;
  bool *skip;
} making;

static program *program_of(const kernel_search *g, candidate *c) {
  const target *t = &g->r.p->d->target;
  if (!g->base) return codegen(g->r.p->g, g->r.ast, t, NULL);
  return codegen(g->r.p->g, g->r.ast, t, &(codegen_options){.opts = c->opts, .n_opts = c->n, .doubtful = t->has_local});
}

static void make_some(void *ctx, int thread, int n_threads) {
  (void)thread; (void)n_threads;
  making *m = ctx;
  device *d = m->g->r.p->d;
  for (int i; (i = atomic_fetch_add(&m->next, 1)) < m->n;) {
    candidate *c = m->c[i];
    if (m->code) {
      made *code = c->code;
      if (m->skip[i] || (!m->g->o->predict && plan_compile_kernel(d, &code->k, NULL))) m->skip[i] = true;
      continue;
    }
    str text = {0};
    if (!c->p) c->p = program_of(m->g, c);
    if ((m->skip[i] = !c->p)) continue;
    const program *base = m->g->base ? m->g->base->p : c->p;
    m->skip[i] = c->p->n > base->n * NODES_MORE + FEW_NODES ||
                 d->show(d, c->p, &text, NULL, NULL);
    m->hash[i] = hash_bytes(text.at, text.n, 1);
    if (m->skip[i] && debug_level() >= 3)
      fprintf(stderr, "search: %s: too long\n", c->p->name);
    str_free(&text);
  }
}

static void drop_candidate(void *ctx, candidate *c) {
  (void)ctx;
  made *m = c->code;
  if (!m) return;
  code_unmap(m->image);
  m->k.p = NULL;                                             // belongs to the candidate
  plan_free_kernels(&m->k, 1);
  bytes_free(&m->packed);
  free(m);
  c->code = NULL;
}

static void make_all(kernel_search *g, candidate *const *c, int n) {
  making m = {
    .g = g, .c = c, .n = n, .hash = xcalloc((size_t)n, sizeof *m.hash), .skip = xcalloc((size_t)n, sizeof *m.skip)};
  team_run(g->r.p->d->team, make_some, &m);
  for (int i = 0; i < n; i++) {
    if (!m.skip[i] && map_get(&g->seen, m.hash[i], NULL)) m.skip[i] = true;
    if (!m.skip[i]) map_set(&g->seen, m.hash[i], (void *)1);
    c[i]->code = xcalloc(1, sizeof(made));
    ((made *)c[i]->code)->k.p = c[i]->p;
  }
  m.code = true;
  m.next = 0;
  team_run(g->r.p->d->team, make_some, &m);
  for (int i = 0; i < n; i++) {
    made *code = c[i]->code;
    if (!m.skip[i] && !g->o->predict) {
      code->packed =
        (bytes){memcpy(xmalloc(code->k.packed.n + 1), code->k.packed.at, code->k.packed.n), code->k.packed.n};
      m.skip[i] = g->r.p->d->run->link(g->r.p->d, &code->k, 1, &code->image, NULL) != 0;
    }
    if (m.skip[i]) drop_candidate(g, c[i]);
  }
  free(m.hash); free(m.skip);
}

// --- runs ------------------------------------------------------------------------------------------------------------

static void read_area(void *ctx, int thread, int n) {
  const uint64_t *at = ctx;
  size_t words = KERNEL_BENCH_FLUSH / sizeof *at, from = words * (size_t)thread / (size_t)n,
         to = words * ((size_t)thread + 1) / (size_t)n;
  uint64_t sum = 0;
  for (size_t i = from; i < to; i += 8) sum += at[i];
  atomic_signal_fence(memory_order_seq_cst);
  *(volatile uint64_t *)&sum = sum;
}

// With the device's clock: other costs of a run of a few launches would exceed theirs.
static double sample_remote(kernel_search *g, const candidate *c, const plan_var *vars) {
  const made *m = c->code;
  double us[KERNEL_BENCH_LAUNCHES], sum = 0;
  for (int i = 0; i < g->r.n_launches; i++)
    kernel_bench_set_up(&g->r.steps[i], &m->k, vars, g->r.n_vars, g->r.p->n_threads);
  if (kernel_bench_launch(&g->r, g->r.n_launches, us)) return INFINITY;
  for (int i = 0; i < g->r.n_launches; i++) sum += us[i];
  return sum / g->r.n_launches;
}

static double sample_at(kernel_search *g, const candidate *c, const plan_var *vars) {
  if (g->r.remote) return sample_remote(g, c, vars);
  if (g->r.flush) team_run(g->r.p->team, read_area, g->r.flush);
  const made *m = c->code;
  if (g->at + g->r.n_launches > g->r.n_steps) g->at = 0;
  for (int i = 0; i < g->r.n_launches; i++)
    kernel_bench_set_up(&g->r.steps[g->at + i], &m->k, vars, g->r.n_vars, g->r.p->n_threads);
  g->r.row.steps = g->r.steps + g->at;
  g->r.row.stats.kernels = g->r.n_launches;
  double t = now_s();
  plan_on_team(g->r.p, plan_replay, &g->r.row);
  g->r.row.steps = g->r.steps;
  g->at += g->r.n_launches;
  return (now_s() - t) * 1e6 / g->r.n_launches;
}

// Average time of a launch over the depths.
static double sample(void *ctx, const candidate *c) {
  kernel_search *g = ctx;
  double us = sample_at(g, c, g->r.timed);
  return g->deep ? (us + sample_at(g, c, g->o->deep)) / 2 : us;
}

static double predict_at_depths(const kernel_search *g, const gpu_figures *f, const program *p) {
  double us = predict_us(f, p, g->o->vars, g->o->n_vars);
  return g->deep ? (us + predict_us(f, p, g->o->deep, g->o->n_vars)) / 2 : us;
}

static double sample_figures(void *ctx, const candidate *c) {
  const kernel_search *g = ctx;
  return predict_at_depths(g, g->o->predict, c->p);
}

static void predict_some(void *ctx, int thread, int n_threads) {
  (void)thread; (void)n_threads;
  making *m = ctx;
  const kernel_search *g = m->g;
  const gpu_figures *f = g->o->predict ? g->o->predict : g->r.p->d->figures;
  for (int i; (i = atomic_fetch_add(&m->next, 1)) < m->n;) {
    candidate *c = m->c[i];
    if (!c->p) c->p = program_of(g, c);
    c->predicted_us = c->p ? predict_at_depths(g, f, c->p) : INFINITY;
  }
}

static void predict(void *ctx, candidate *const *c, int n) {
  kernel_search *g = ctx;
  team_run(g->r.p->d->team, predict_some, &(making){.g = g, .c = c, .n = n});
}

// Does the kernel do other or more work at o->deep?
static bool depends_on_depth(const kernel_search *g) {
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &g->r.ast, 1);
  bool depends = false;
  for (int i = 0; g->o->deep && i < g->o->n_vars; i++)
    for (size_t j = 0; j < l.n && g->o->deep[i].value != g->o->vars[i].value; j++)
      depends |= l.at[j]->op == OP_VAR && !strcmp(l.at[j]->s, g->o->vars[i].name);
  arena_free(a);
  return depends;
}

// --- right and wrong -------------------------------------------------------------------------------------------------

static bool right(void *ctx, candidate *c) {
  kernel_search *g = ctx;
  const made *base = g->base->code, *m = c->code;
  if (g->o->predict) return search_allows(g->r.p->g, g->r.ast, &g->r.p->d->target, c->opts, c->n, NULL);
  bool ok = kernel_bench_same(&g->r, &base->k, &m->k, g->r.timed, TIMED) &&
            kernel_bench_same(&g->r, &base->k, &m->k, g->r.small, SMALL);
  ok = ok && (!g->deep || kernel_bench_same(&g->r, &base->k, &m->k, g->o->deep, TIMED));
  if (!ok && debug_level() >= 1) {
    str s = {0};
    opts_print(&s, c->opts, c->n);
    fprintf(stderr, "search: %s: not the same bits with %s\n", g->base->p->name, str_c(&s));
    str_free(&s);
  }
  return ok;
}

static double read_value(enum dtype dt, const unsigned char *at) {
  float f;
  double d;
  int32_t i;
  uint16_t h;
  switch (dt) {
  case DT_F32: memcpy(&f, at, 4); return (double)f;
  case DT_F64: memcpy(&d, at, 8); return d;
  case DT_F16:
    memcpy(&h, at, 2);
    {
      uint32_t e = h >> 10 & 31, m = h & 1023;
      d = e == 31 ? INFINITY : ldexp(e ? m + 1024 : m, (int)(e ? e : 1) - 25);
    }
    return h >> 15 ? -d : d;
  case DT_I8: return (double)(int8_t)*at;
  case DT_U8: case DT_BOOL: return (double)*at;
  case DT_I32: memcpy(&i, at, 4); return (double)i;
  // other types hold no results of float computation: see close_to
  default: return 0;
  }
}

// Does the output of the heuristic's kernel (scratch) equal that of the plain kernel (saved), within rounding? Codes
// that were rounded from float sums may differ by one.
static bool close_to(const kernel_search *g, int mask) {
  for (int i = 0; i < g->r.n_params; i++) {
    const param *w = &g->r.params[i];
    if (!w->written) continue;
    double error2 = 0, sum2 = 0, n = 0;
    int size = dtype_size(w->dt);
    for (uint64_t b = 0, from, to = 0; kernel_bench_piece(w, &from, &to);) for (b = from; b < to; b += (uint64_t)size) {
      if (w->mask[mask] && !w->mask[mask][b]) continue;
      double x = read_value(w->dt, w->saved + b), y = read_value(w->dt, w->scratch + b);
      if (!isfinite(x) || !isfinite(y)) {
        if (memcmp(w->saved + b, w->scratch + b, (size_t)size) && !(isnan(x) && isnan(y))) return false;
        continue;
      }
      error2 += (x - y) * (x - y);
      sum2 += x * x;
      n++;
    }
    double bound = dtype_is_float(w->dt) ? 1e-6 * sum2 + 1e-12 * n : 1e-3 * (sum2 + n);
    if (!(error2 <= bound)) return false;
  }
  return true;
}

// The kernel as scheduled; kernels of a merged launch run separately, in order.
typedef struct plain { made of[MOST_KERNELS]; int n; } plain;

static bool plain_fits(const kernel_search *g, const plain *k, const plan_var *vars) {
  double flops = 0;
  for (int i = 0; i < k->n; i++) {
    const program *p = k->of[i].k.p;
    int64_t values[MAX_VARS];
    plan_vars(p, vars, g->r.n_vars, values);
    flops += (double)program_eval(p, p->flops, values);
  }
  return flops <= PLAIN_FLOPS;
}

static int make_plain(kernel_search *g, plain *k) {
  device *d = g->r.p->d;
  uop *kernels[MOST_KERNELS];
  k->n = merged_kernels(g->r.ast, kernels);
  for (int i = 0; i < k->n; i++)
    k->of[i].k.p = codegen(g->r.p->g, kernels[i], &d->target, &(codegen_options){.noopt = true});
  if (!plain_fits(g, k, g->r.small))
    return error_set(&g->err, "its plain form would run for too long to compare with");
  for (int i = 0; i < k->n; i++) {
    made *m = &k->of[i];
    if (plan_compile_kernel(d, &m->k, &g->err) || d->run->link(d, &m->k, 1, &m->image, &g->err)) return -1;
  }
  return 0;
}

static void free_plain(plain *k) {
  for (int i = 0; i < k->n; i++) {
    code_unmap(k->of[i].image);
    plan_free_kernels(&k->of[i].k, 1);
  }
}

static void run_plain(kernel_search *g, const plain *k, const plan_var *vars) {
  for (int i = 0; i < k->n; i++) kernel_bench_run(&g->r, &k->of[i].k, vars);
}

// Compares the heuristic's kernel with the plain one at these values, and finds the elements that count.
static bool compare_plain(kernel_search *g, const plain *k, const plan_var *vars, int mask) {
  g->r.failed = false;
  kernel_bench_background(&g->r, 0);
  run_plain(g, k, vars);
  kernel_bench_save(&g->r);
  kernel_bench_background(&g->r, 0xff);
  run_plain(g, k, vars);
  for (int i = 0; i < g->r.n_params; i++) {
    param *w = &g->r.params[i];
    int size = dtype_size(w->dt);
    for (uint64_t b = 0; w->mask[mask] && b < w->bytes; b += (uint64_t)size)
      memset(w->mask[mask] + b, !memcmp(w->saved + b, w->scratch + b, (size_t)size), (size_t)size);
  }
  const made *base = g->base->code;
  kernel_bench_background(&g->r, 0);
  kernel_bench_run(&g->r, &base->k, vars);
  return !g->r.failed && close_to(g, mask);
}

// Returns 0, or -1 and the reason why there will be no search.
static int reference(kernel_search *g) {
  plain k = {0};
  int r = make_plain(g, &k);
  if (!r && !compare_plain(g, &k, g->r.small, SMALL))
    r = error_set(&g->err, "the heuristic's kernel and the plain one disagree");
  bool both = !r && plain_fits(g, &k, g->r.timed);
  if (both && !compare_plain(g, &k, g->r.timed, TIMED))
    r = error_set(&g->err, "the heuristic's kernel and the plain one disagree");
  for (int i = 0; !r && !both && i < g->r.n_params; i++)
    if (g->r.params[i].mask[TIMED]) memset(g->r.params[i].mask[TIMED], 1, g->r.params[i].bytes);
  free_plain(&k);
  return r;
}

// The first candidate is the heuristic's. If it is wrong, there is no search.
static void make_checked(void *ctx, candidate *const *c, int n) {
  kernel_search *g = ctx;
  make_all(g, c, n);
  if (g->base || !c[0]->code) return;
  g->base = c[0];
  if (g->o->predict) return;
  if (reference(g)) { drop_candidate(g, c[0]); return; }
  // enough launches for the clock's resolution, and no more
  double us = sample(g, c[0]) * g->r.n_launches;
  for (; !g->r.flush && us < ENOUGH_US && g->r.n_launches * 2 <= KERNEL_BENCH_LAUNCHES; us *= 2) g->r.n_launches *= 2;
  for (; us > TOO_MUCH_US && g->r.n_launches > 1; us /= 2) g->r.n_launches = (g->r.n_launches + 1) / 2;
  g->r.n_steps = g->r.n_steps > g->r.n_launches ? g->r.n_steps : g->r.n_launches;
}

static void show_search(void *ctx, double fraction) {
  const kernel_search *g = ctx;
  if (g->o->progress) g->o->progress(g->o->ctx, (g->done + g->weight * fraction) / g->todo);
}

static void keep_alternative(plan *p, int unique, const search_target *s, candidate *c, tune_row *row) {
  made *m = c->code;
  if (!p->alternatives) p->alternatives = xcalloc((size_t)p->stats.unique, sizeof *p->alternatives);
  alternative *a = &p->alternatives[unique];
  opts_print(&row->opts, c->opts, c->n);
  a->k = m->k;
  a->code = m->image;
  a->k.packed = m->packed;                                   // for the cache: plan_keep
  *m = (made){0};
  c->p = NULL;
  search_free(s, c);
}

typedef VEC(opt_list) opt_lists;

static int search_one(plan *p, int unique, const tune_options *o, double seconds, opt_lists *hints, kernel_search *g,
                      tune_row *row) {
  g->o = o;
  search_target s = {.t = &p->d->target,
                     .ctx = g,
                     .batch = 2 * p->n_threads,
                     .make = make_checked,
                     .right = right,
                     .sample = o->predict ? sample_figures : sample,
                     .predict = o->predict || p->d->figures ? predict : NULL,
                     .drop = drop_candidate,
                     .progress = show_search};
  int r = 0;
  if (o->predict) g->r = (kernel_bench){.p = p, .ast = p->asts[unique]};
  else r = kernel_bench_open(&g->r, p, unique, false, o->vars, o->n_vars, &g->err);
  g->deep = !r && depends_on_depth(g);
  search_result found = {0};
  if (!r && search_kernel(p->g, g->r.ast, &s,
                          &(search_options){o->width, seconds, o->skip_ms * 1e3, hints->at, (int)hints->n}, &found))
    r = error_set(&g->err, "the heuristic's kernel cannot be made");
  if (!r || !o->predict) {
    row->before_us = found.heuristic_us;
    row->after_us = found.us;
  }
  row->tried = found.tried;
  row->compiled = found.compiled;
  row->wrong = found.wrong;
  row->cut_s = found.cut ? seconds : 0;
  row->state = r ? TUNE_NOT_RUN : found.best ? TUNE_BETTER : TUNE_NO_GAIN;
  if (!r && !found.tried && !(o->skip_ms > 0 && found.heuristic_us <= o->skip_ms * 1e3)) {
    r = -1;
    error_set(&g->err, "no time left");
    row->state = TUNE_NOT_RUN;
  }
  if (r) snprintf(row->why, sizeof row->why, "%s", g->err.text);
  if (r) row->cut_s = 0;
  if (found.best) {
    opt_list won = {.n = found.best->n};
    memcpy(won.opts, found.best->opts, sizeof won.opts);
    vec_push(hints, won);
  }
  if (found.best && o->predict) {
    opts_print(&row->opts, found.best->opts, found.best->n);
    search_free(&s, found.best);
  } else if (found.best) keep_alternative(p, unique, &s, found.best, row);
  if (!o->predict) kernel_bench_close(&g->r);
  map_free(&g->seen);
  return r;
}

// --- a plan ----------------------------------------------------------------------------------------------------------

// Shares of time, names and roles, from a few timed runs or from predictions.
static double look_at_shares(plan *p, const tune_options *o, tune_row *rows) {
  size_t n = (size_t)p->stats.kernels;
  double *us = xcalloc(2 * n + 1, sizeof *us), *sum = xcalloc((size_t)p->stats.unique + 1, sizeof *sum), all = 0;
  for (int i = 0; o->predict && i < p->stats.unique; i++) {
    program *k = codegen(p->g, p->asts[i], &p->d->target, NULL);
    rows[i].before_us = rows[i].after_us = predict_us(o->predict, k, o->vars, o->n_vars);
    program_free(k);
  }
  for (size_t i = 0; o->predict && i < n; i++) sum[p->steps[i].unique] += rows[p->steps[i].unique].before_us;
  for (int r = -WARM_UPS; r < LOOKS && !o->predict; r++) {
    plan_times t = {.kernel_us = us, .kernel_wait_us = us + n};
    plan_run_timed(p, o->vars, o->n_vars, &t);
    double *now = xcalloc((size_t)p->stats.unique + 1, sizeof *now);
    for (size_t i = 0; i < n; i++) now[p->steps[i].unique] += us[i];
    for (int i = 0; r >= 0 && i < p->stats.unique; i++) if (!r || now[i] < sum[i]) sum[i] = now[i];
    free(now);
  }
  for (int i = 0; i < p->stats.unique; i++) all += sum[i];
  for (size_t i = 0; i < n; i++) {
    tune_row *row = &rows[p->steps[i].unique];
    if (!row->count++) {
      snprintf(row->name, sizeof row->name, "%s", p->steps[i].k->p->name);
      snprintf(row->role, sizeof row->role, "%s", p->steps[i].role);
    }
  }
  for (int i = 0; i < p->stats.unique; i++) rows[i].share = all > 0 ? sum[i] / all : 0;
  free(us); free(sum);
  return all;
}

// The compiler of the kernels; another device names it in its key.
static int compiler_of(const device *d, str *out, error *err) {
  if (d->run->here) return llvm_version(out, err);
  str_addf(out, "%016llx", (unsigned long long)hash_bytes(d->key, strlen(d->key), 1));
  return 0;
}

int plan_search(plan *p, const tune_options *o, tune_row *rows, error *err) {
  device *d = p->d;
  if (!d->show || !d->cache || d->target.keeps_math)
    return error_set(err, "DEV=%s RENDER=%s has no kernels to tune", env_str(ENV_DEV), env_str(ENV_RENDER));
  if (env_int(ENV_NOOPT)) return error_set(err, "NOOPT=1 leaves nothing to tune");
  str compiler = {0};
  if (compiler_of(d, &compiler, err)) { str_free(&compiler); return -1; }
  look_at_shares(p, o, rows);
  int *order = xcalloc((size_t)p->stats.unique + 1, sizeof *order), n = 0;
  double todo = 0, done = 0, known = 0, all = 0;
  opt_lists hints = {0};
  for (int i = 0; i < p->stats.unique; i++) if (rows[i].share >= LEAST_SHARE) all += sqrt(rows[i].share);
  for (int i = 0; i < p->stats.unique; i++) {
    tuning t;
    bool found = !o->predict && tuning_get(d, p->asts[i], &t),
         longer = found && t.cut_s > 0 && rows[i].share >= LEAST_SHARE &&
                  o->seconds * sqrt(rows[i].share) / all >= t.cut_s * MUCH_LONGER;
    if (found && t.better) {                                  // a resumed search begins with the current result
      opt_list won = {.n = t.n};
      memcpy(won.opts, t.opts, sizeof won.opts);
      if (longer) vec_push(&hints, won);
      rows[i].had = true;
    }
    if (found && !longer && !strcmp(t.compiler, str_c(&compiler))) {
      rows[i].state = TUNE_KNOWN;
      rows[i].cut_s = t.cut_s;
      rows[i].before_us = t.before_us;
      rows[i].after_us = t.after_us;
      if (t.better) opts_print(&rows[i].opts, t.opts, t.n);
      known += sqrt(rows[i].share);
      continue;
    }
    rows[i].state = TUNE_SMALL;
    if (rows[i].share < LEAST_SHARE) continue;
    int at = n++;
    for (; at > 0 && rows[order[at - 1]].share < rows[i].share; at--) order[at] = order[at - 1];
    order[at] = i;
    todo += sqrt(rows[i].share);
  }
  // known results leave their time to the others
  double until = now_s() + (todo > 0 ? o->seconds * todo / (todo + known) : 0);
  for (int i = 0; i < n; i++) {
    tune_row *row = &rows[order[i]];
    double weight = sqrt(row->share), left = until - now_s(), rest = 0;
    for (int j = i; j < n; j++) rest += sqrt(rows[order[j]].share);
    if (left <= 0) { row->state = TUNE_NOT_RUN; snprintf(row->why, sizeof row->why, "no time left"); continue; }
    kernel_search *g = xcalloc(1, sizeof *g);
    g->done = done;
    g->todo = todo;
    g->weight = weight;
    search_one(p, order[i], o, fmax(LEAST_S, left * weight / rest), &hints, g, row);
    free(g);
    done += weight;
    if (o->progress) o->progress(o->ctx, done / todo);
  }
  free(order);
  vec_free(&hints);
  str_free(&compiler);
  return 0;
}

bool plan_has_alternative(const plan *p, int unique) { return p->alternatives && p->alternatives[unique].k.p; }
int plan_unique(const plan *p, int launch) { return p->steps[launch].unique; }

void plan_choose(plan *p, int unique, bool found) {
  bool changed = false;
  for (int i = 0; i < p->stats.kernels; i++) {
    step *t = &p->steps[i];
    if (unique >= 0 && t->unique != unique) continue;
    const device_kernel *before = t->k;
    t->k = found && plan_has_alternative(p, t->unique) ? &p->alternatives[t->unique].k : &p->kernels[t->unique];
    changed |= t->k != before;
  }
  if (changed && p->recorded) plan_record_again(p);
}

void plan_keep(plan *p, tune_row *rows) {
  str compiler = {0};
  compiler_of(p->d, &compiler, NULL);
  for (int i = 0; i < p->stats.unique; i++) {
    tune_row *row = &rows[i];
    if (row->state != TUNE_NO_GAIN && row->state != TUNE_DROPPED && row->state != TUNE_BETTER) continue;
    tuning t;
    if (row->state == TUNE_DROPPED && row->had && tuning_get(p->d, p->asts[i], &t) && t.better) {
      row->state = TUNE_KNOWN;
      str_free(&row->opts);
      opts_print(&row->opts, t.opts, t.n);
    } else
      t = (tuning){.better = row->state == TUNE_BETTER,
                   .before_us = row->before_us,
                   .after_us = row->state == TUNE_BETTER ? row->after_us : row->before_us};
    t.cut_s = row->cut_s;
    snprintf(t.name, sizeof t.name, "%s", row->name);
    snprintf(t.role, sizeof t.role, "%s", row->role);
    snprintf(t.compiler, sizeof t.compiler, "%s", str_c(&compiler));
    if (t.better && !opts_parse(str_c(&row->opts), t.opts, MOST_OPTS, &t.n))
      die("a list of OptOps that does not read back: %s", str_c(&row->opts));
    tuning_put(p->d, p->asts[i], &t);
    if (row->state == TUNE_BETTER) plan_remember(p->d, p->asts[i], str_c(&row->opts), &p->alternatives[i].k);
  }
  str_free(&compiler);
  cache_flush(p->d->cache);
}

void tune_rows_free(tune_row *rows, int n) { for (int i = 0; i < n; i++) str_free(&rows[i].opts); }
