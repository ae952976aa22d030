// Tunes kernels while a plan is in use: see online_tuner.h.
#define _GNU_SOURCE
#include "device/online_tuner.h"
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/attempt.h"
#include "base/env.h"
#include "base/os.h"
#include "base/plain.h"
#include "device/cache.h"
#include "device/ab_trial.h"
#include "device/llvm.h"
#include "device/kernel_bench.h"
#include "device/spare.h"
#include "device/tune.h"

enum { START = 24 /* runs before anything is done: short answers pay nothing */, LOOKS = 3 };
enum { MOST_NODES = 12000, SAVE_EVERY = 16, LOW = 10, LOWEST = 19 };
static const double LEAST_SHARE = 0.01, MUCH_SLOWER = 1.3, AT_ONCE = 0.1 /* of a run, that trials may lose in it */;
static const double EVERY_S = 0.25 /* a candidate is compiled */, POLL_S = 0.01, PAUSE_S = 0.05;

// A candidate. Its owner is the thread that makes it, then the one that runs the plan, then the first again.
typedef struct trial {
  int unique;
  opt_list list;
  bool own;                      // the list is the heuristic's
  device_kernel k;
  code_image *image;
  bytes packed;                  // of k, for the cache
  double alone;                  // its time divided by that of the plan's kernel, run by itself
  ab_trial c;
  int first, number;             // the launch that it replaces first; its index in the kernel's lists
  program *won;                  // k.p after it became the plan's
  bool out;                      // replaces its baseline in this run
  int since;                     // its number among the accepted trials
} trial;

// What the making thread knows about a kernel.
typedef struct tested_kernel {
  int unique, launches, n, tried, since;            // since: lists tried since the last gain
  double us, before_us, alone, made_s;              // us: per run; alone: time ratio of the current list, as in a trial
  bool ready, dead, busy;                           // busy: a trial is in progress
  opt_list now, *lists;                             // the current list; the lists to try
  char done[MOST_LISTS + 1];                        // for each of these: '1' if it has been tried
  bool own_now;
  opt_list heuristic;
  map seen;                                         // hashes of sources
  char name[96], role[64];
} tested_kernel;

struct online_tuner {
  plan *p;
  // of the thread that runs the plan
  trial *trials[WATCHES];
  double *us;                    // of launches, in timed runs
  int runs, looks, accepted;
  double run_s;                  // minimum of the timed runs
  bool started;                  // the other thread runs
  plan_var vars[MAX_VARS];       // values when it started
  int n_vars;
  double *share;                 // microseconds per run of each kernel: written before the thread starts
  // shared by both threads
  _Atomic(trial *) offered[WATCHES], judged[WATCHES];
  _Atomic bool running, stop;
  _Atomic int64_t ran_ns, lost_ns, made_ns, ended_ns;                // ended: end of the last run
  _Atomic int tried, better, wrong;
  _Atomic(const char *) state;
  bool always;
  // of the making thread
  pthread_t thread;
  pthread_mutex_t mutex;         // only for waiting
  pthread_cond_t wake;
  tested_kernel *tested;
  int n_tested, unsaved;
  trial *pending[WATCHES];       // in progress, by slot
  spare spare;
  VEC(opt) wins;                 // last ops of lists that won
  str compiler;
};

static void count_ns(_Atomic int64_t *to, double s) {
  atomic_fetch_add_explicit(to, (int64_t)(s * 1e9), memory_order_relaxed);
}

static double seconds(_Atomic int64_t *at) { return (double)atomic_load_explicit(at, memory_order_relaxed) * 1e-9; }

static void free_trial(trial *t) {
  if (!t) return;
  plan_free_kernels(&t->k, 1);
  code_unmap(t->image);
  bytes_free(&t->packed);
  free(t);
}

// --- running: of the thread that runs the plan ---------------------------------------------------------------------

static const device_kernel *baseline_of(const plan *p, int unique) {
  return plan_has_alternative(p, unique) ? &p->alternatives[unique].k : &p->kernels[unique];
}

// Makes the launches of a trial's kernel run the candidate, or its baseline.
static void place_trial(plan *p, const trial *t, int watch, bool in_turn) {
  const device_kernel *baseline = baseline_of(p, t->unique);
  for (int i = 0; i < p->stats.kernels; i++) {
    step *s = &p->steps[i];
    if (s->unique != t->unique) continue;
    bool in = !t->c.one || i == t->first;
    s->k = in_turn && in ? &t->k : baseline;
    s->watch = in ? watch : 0;
  }
}

// The time of a dispatch does not separate its kernels.
static bool shares_dispatch(const plan *p, int a, int b) {
  for (int i = 0; i < p->stats.kernels; i++) {
    if (p->steps[i].unique != a) continue;
    for (int j = i; j-- > 0 && p->steps[j].level == p->steps[i].level;) if (p->steps[j].unique == b) return true;
    for (int j = i + 1; j < p->stats.kernels && p->steps[j].level == p->steps[i].level; j++)
        if (p->steps[j].unique == b) return true;
  }
  return a == b;
}

static void accept_trials(online_tuner *l) {
  for (int s = 0; s < WATCHES; s++) {
    trial *t = l->trials[s] ? NULL : atomic_load_explicit(&l->offered[s], memory_order_acquire);
    bool alone = t != NULL;
    for (int o = 0; o < WATCHES && alone; o++)
      alone = !l->trials[o] || !shares_dispatch(l->p, t->unique, l->trials[o]->unique);
    if (!alone) continue;
    int launches = 0, middle = 0;
    for (int i = 0; i < l->p->stats.kernels; i++) launches += l->p->steps[i].unique == t->unique;
    for (int i = 0; i < l->p->stats.kernels && middle <= launches / 2; i++) {
      if (l->p->steps[i].unique != t->unique) continue;
      t->first = i;
      middle++;
    }
    ab_trial_begin(&t->c, launches);
    t->since = l->accepted++;
    l->trials[s] = t;
    atomic_store_explicit(&l->offered[s], NULL, memory_order_relaxed);
  }
}

// The winner replaces its baseline; the old code goes back with the trial.
static void install_winner(plan *p, trial *t) {
  if (!p->alternatives) p->alternatives = xcalloc((size_t)p->stats.unique, sizeof *p->alternatives);
  alternative *a = &p->alternatives[t->unique], before = *a;
  *a = (alternative){t->k, t->image};
  t->won = t->k.p;
  t->k = before.k;
  t->image = before.code;
}

static void end_trial(online_tuner *l, int slot) {
  trial *t = l->trials[slot];
  if (t->c.state == AB_TRIAL_WON) install_winner(l->p, t);
  t->c.one = false;
  place_trial(l->p, t, 0, false);
  l->trials[slot] = NULL;
  atomic_store_explicit(&l->judged[slot], t, memory_order_release);
}

// Chooses which trials run in this run. No run may lose more than a fraction of its time, and all runs together no more
// than the budget. Later trials wait while the budget does not yet allow an earlier one.
static int choose_sides(online_tuner *l) {
  budget b = {seconds(&l->ran_ns), seconds(&l->lost_ns), 0};
  double risk = 0;
  int n = 0, order[WATCHES];
  for (int s = 0; s < WATCHES; s++) {
    if (!l->trials[s]) continue;
    int at = n++;
    for (; at && l->trials[order[at - 1]]->since > l->trials[s]->since; at--) order[at] = order[at - 1];
    order[at] = s;
  }
  bool saving = false;
  for (int i = 0; i < n; i++) {
    trial *t = l->trials[order[i]];
    double more = ab_trial_risk(&t->c);
    bool fits = ab_trial_due(&t->c) && risk + more <= AT_ONCE * l->run_s;
    t->out = fits && !saving && budget_allows_run(&b, risk + more);
    saving |= fits && !t->out;
    if (t->out) risk += more;
    place_trial(l->p, t, order[i] + 1, t->out);
  }
  return n;
}

static void note_trials(online_tuner *l) {
  for (int s = 0; s < WATCHES; s++) {
    trial *t = l->trials[s];
    if (!t) continue;
    count_ns(&l->lost_ns, ab_trial_record(&t->c, t->out, l->p->watched[s]));
    if (t->c.state != AB_TRIAL_GOES_ON) end_trial(l, s);
  }
}

static void *make_candidates(void *ctx);

static void start_thread(online_tuner *l) {
  sigset_t all, before;
  sigfillset(&all);                                            // the program's own threads handle signals
  pthread_sigmask(SIG_SETMASK, &all, &before);
  l->started = !pthread_create(&l->thread, NULL, make_candidates, l);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  atomic_store(&l->state, l->started ? "on" : "no thread could be started");
}

// The first runs, with all time stamps, show which kernels are worth tuning.
static void look_at_times(online_tuner *l, const plan_var *vars, int n_vars) {
  plan *p = l->p;
  plan_times t = {.kernel_us = l->us, .kernel_wait_us = l->us + p->stats.kernels};
  double *sum = l->us + 2 * p->stats.kernels;
  plan_run_timed(p, vars, n_vars, &t);
  memset(sum, 0, (size_t)p->stats.unique * sizeof *sum);
  for (int i = 0; i < p->stats.kernels; i++) sum[p->steps[i].unique] += t.kernel_us[i];
  for (int i = 0; i < p->stats.unique; i++) l->share[i] = l->looks ? fmin(l->share[i], sum[i]) : sum[i];
  l->run_s = l->looks ? fmin(l->run_s, t.us * 1e-6) : t.us * 1e-6;
  if (++l->looks < LOOKS) return;
  memcpy(l->vars, vars, (size_t)n_vars * sizeof *vars);
  l->n_vars = n_vars;
  start_thread(l);
}

void online_tuner_run(online_tuner *l, const plan_var *vars, int n_vars) {
  double start = now_s();
  atomic_store_explicit(&l->running, true, memory_order_relaxed);
  if (l->runs < START) { l->runs++; plan_run(l->p, vars, n_vars); }
  else if (l->looks < LOOKS) look_at_times(l, vars, n_vars);
  else {
    accept_trials(l);
    if (choose_sides(l)) {
      plan_run_watched(l->p, vars, n_vars);
      note_trials(l);
    } else plan_run(l->p, vars, n_vars);
  }
  double end = now_s();
  count_ns(&l->ran_ns, end - start);
  atomic_store_explicit(&l->ended_ns, (int64_t)(end * 1e9), memory_order_relaxed);
  atomic_store_explicit(&l->running, false, memory_order_relaxed);
}

// --- making: of the other thread -----------------------------------------------------------------------------------

static double own_time(void) {
  struct timespec t;
  return clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) ? 0 : (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void rest(online_tuner *l, double s) {
  double until = now_s() + s;
  pthread_mutex_lock(&l->mutex);
  if (!atomic_load(&l->stop)) os_cond_wait_until(&l->wake, &l->mutex, until);
  pthread_mutex_unlock(&l->mutex);
}

// May a candidate be made now? Beside runs only on a processor that they do not use, otherwise in a pause. A run that
// begins meanwhile shares its processors until the candidate is made: *shared, which counts as cost.
static bool may_make(online_tuner *l, bool *shared) {
  enum spare_state s = l->always ? SPARE_FREE : spare_look(&l->spare);
  bool pause = !atomic_load_explicit(&l->running, memory_order_relaxed) && now_s() - seconds(&l->ended_ns) > PAUSE_S;
  budget b = {seconds(&l->ran_ns), 0, seconds(&l->made_ns)};
  *shared = s != SPARE_FREE;
  const char *why = "on";
  if (s == SPARE_NONE) why = "waiting: on battery, or the machine is busy";
  else if (*shared && !pause) why = "waiting for a pause, or a processor that is not used";
  else if (*shared && !budget_allows_making(&b)) why = "waiting: it has cost enough";
  atomic_store(&l->state, why);
  return !strcmp(why, "on");
}

// Between the steps of making a candidate: if a run has begun, the rest waits for the next pause.
static void give_way(online_tuner *l, bool shared) {
  while (shared && !atomic_load(&l->stop)) {
    if (!atomic_load_explicit(&l->running, memory_order_relaxed) && now_s() - seconds(&l->ended_ns) > PAUSE_S) return;
    rest(l, POLL_S);
  }
}

static tested_kernel *tested_of(online_tuner *l, int unique) {
  for (int i = 0; i < l->n_tested; i++) if (l->tested[i].unique == unique) return &l->tested[i];
  return NULL;
}

static void find_tested(online_tuner *l) {
  const plan *p = l->p;
  double all = 0;
  l->tested = xcalloc((size_t)p->stats.unique + 1, sizeof *l->tested);
  for (int i = 0; i < p->stats.unique; i++) all += l->share[i];
  for (int i = 0; i < p->stats.unique; i++)
    if (l->share[i] >= all * LEAST_SHARE)
      l->tested[l->n_tested++] = (tested_kernel){.unique = i, .us = l->share[i], .alone = 1};
  for (int i = 0; i < p->stats.kernels; i++) {
    tested_kernel *s = tested_of(l, p->steps[i].unique);
    if (!s || s->launches++) continue;
    snprintf(s->name, sizeof s->name, "%s", p->kernels[s->unique].p->name);
    snprintf(s->role, sizeof s->role, "%s", p->steps[i].role);
  }
}

static bool same_list(const opt_list *a, const opt_list *b) {
  return a->n == b->n && !memcmp(a->opts, b->opts, (size_t)a->n * sizeof *a->opts);
}

static bool source_is_new(online_tuner *l, tested_kernel *s, const program *p) {
  str text = {0};
  bool shown = !l->p->d->show(l->p->d, p, &text, NULL, NULL);
  uint64_t hash = hash_bytes(text.at, text.n, 1);
  bool is_new = shown && !map_get(&s->seen, hash, NULL);
  if (is_new) map_set(&s->seen, hash, (void *)1);
  str_free(&text);
  return is_new;
}

// Lists to try instead of the current one; if the current one is not the heuristic's, the heuristic's first.
static void find_lists(online_tuner *l, tested_kernel *s) {
  const plan *p = l->p;
  free(s->lists);
  s->lists = xcalloc(MOST_LISTS, sizeof *s->lists);
  s->n = 0;
  if (!s->own_now) s->lists[s->n++] = s->heuristic;
  opt_list *rest = s->lists + s->n;
  s->n += search_neighbours(p->g, p->asts[s->unique], &p->d->target, s->now.opts, s->now.n, rest, MOST_LISTS - s->n);
  memset(s->done, '0', (size_t)s->n);
  s->done[s->n] = 0;
}

// False: there is nothing to try for this kernel.
static bool prepare_tested(online_tuner *l, tested_kernel *s) {
  plan *p = l->p;
  tuning t;
  error err = {0};
  s->ready = true;
  bool tuned = tuning_get(p->d, p->asts[s->unique], &t);
  bool known = tuned && !strcmp(t.compiler, str_c(&l->compiler));
  // a complete search has already been done
  if (known && (t.cut_s <= 0 || (t.done[0] && !strchr(t.done, '0')))) return false;
  program *q = codegen(p->g, p->asts[s->unique], &p->d->target, NULL);
  bool fits = q->n_applied <= MOST_OPTS;
  if (fits) s->heuristic.n = q->n_applied;
  if (s->heuristic.n) memcpy(s->heuristic.opts, q->applied, (size_t)q->n_applied * sizeof *q->applied);
  s->now = s->heuristic;
  s->own_now = true;
  if (tuned && t.better) {
    program_free(q);
    s->now = (opt_list){.n = t.n};
    memcpy(s->now.opts, t.opts, (size_t)t.n * sizeof *t.opts);
    s->own_now = same_list(&s->now, &s->heuristic);
    q = codegen(p->g, p->asts[s->unique], &p->d->target, &(codegen_options){.opts = s->now.opts, .n_opts = s->now.n});
  }
  if (fits) source_is_new(l, s, q);
  program_free(q);
  if (!fits) return false;
  find_lists(l, s);
  if (known && (int)strlen(t.done) == s->n) memcpy(s->done, t.done, (size_t)s->n);
  if (known && t.better) s->before_us = t.before_us;
  kernel_bench r;
  bool can = !kernel_bench_open(&r, p, s->unique, true, l->vars, l->n_vars, &err);
  kernel_bench_close(&r);
  if (!can && debug_level() >= 1) fprintf(stderr, "background: %s: %s\n", s->name, err.text);
  return can;
}

static void finish_tested(tested_kernel *s) {
  free(s->lists);
  map_free(&s->seen);
  s->seen = (map){0};
  s->lists = NULL;
  s->dead = true;
}

static double alone_s(kernel_bench *r, const device_kernel *k) {
  double start = own_time();
  kernel_bench_run(r, k, r->timed);
  return own_time() - start;
}

// Equal bits, and not much slower when this thread runs it by itself?
static bool passes(online_tuner *l, const tested_kernel *s, trial *t) {
  const device_kernel *its = &l->p->kernels[s->unique];
  kernel_bench r;
  bool opened = !kernel_bench_open(&r, l->p, s->unique, true, l->vars, l->n_vars, &(error){0});
  bool same =
    opened && kernel_bench_same(&r, its, &t->k, r.timed, TIMED) && kernel_bench_same(&r, its, &t->k, r.small, SMALL);
  if (opened && !same) atomic_fetch_add(&l->wrong, 1);
  if (same) {
    double a = alone_s(&r, its), b = alone_s(&r, &t->k);
    a = fmin(a, alone_s(&r, its));
    b = fmin(b, alone_s(&r, &t->k));
    t->alone = a > 0 ? b / a : 1;
  }
  kernel_bench_close(&r);
  return same && t->alone <= s->alone * MUCH_SLOWER;
}

static void report_outcome(const tested_kernel *s, const trial *t, const char *outcome) {
  if (debug_level() < 1) return;
  str text = {0};
  opts_print(&text, t->list.opts, t->list.n);
  fprintf(stderr, "background: %s %s: %s: %s\n", s->role, s->name, outcome, str_c(&text));
  str_free(&text);
}

static trial *make_trial(online_tuner *l, tested_kernel *s, int number, bool shared, bool *compiled) {
  plan *p = l->p;
  device *d = p->d;
  uop *ast = p->asts[s->unique];
  const opt_list *list = &s->lists[number];
  if (!search_allows(p->g, ast, &d->target, list->opts, list->n, NULL)) return NULL;
  trial *t = xcalloc(1, sizeof *t);
  *t = (trial){.unique = s->unique, .number = number, .list = *list, .own = same_list(list, &s->heuristic)};
  t->k.p = codegen(p->g, ast, &d->target, &(codegen_options){.opts = list->opts, .n_opts = list->n});
  const char *why = NULL;
  if (t->k.p->n > MOST_NODES || t->k.p->n_vars > MAX_VARS) why = "too long";
  else if (!source_is_new(l, s, t->k.p)) why = "no other code";
  *compiled = !why;
  give_way(l, shared);
  if (!why && (atomic_load(&l->stop) || plan_compile_kernel(d, &t->k, NULL))) why = "not compiled";
  give_way(l, shared);
  if (!why) {
    t->packed = (bytes){memcpy(xmalloc(t->k.packed.n + 1), t->k.packed.at, t->k.packed.n), t->k.packed.n};
    if (atomic_load(&l->stop) || plan_map_code(&t->k, 1, &t->image, NULL)) why = "not mapped";
    else if (!passes(l, s, t)) why = t->alone ? "slower by itself" : "other bits";
  }
  if (!why) return t;
  report_outcome(s, t, why);
  free_trial(t);
  return NULL;
}

// --- results --------------------------------------------------------------------------------------------------------

static void save_tuning(online_tuner *l, const tested_kernel *s, double after_us) {
  tuning t = {.better = !s->own_now, .n = s->now.n, .before_us = s->before_us > 0 ? s->before_us : s->us / s->launches,
      .after_us = after_us, .cut_s = fmax(s->made_s, 1e-3)};
  memcpy(t.done, s->done, sizeof t.done);
  memcpy(t.opts, s->now.opts, sizeof t.opts);
  snprintf(t.name, sizeof t.name, "%s", s->name);
  snprintf(t.role, sizeof t.role, "%s", s->role);
  snprintf(t.compiler, sizeof t.compiler, "%s", str_c(&l->compiler));
  tuning_put(l->p->d, l->p->asts[s->unique], &t);
}

static void take_judged(online_tuner *l) {
  for (int slot = 0; slot < WATCHES; slot++) {
    trial *t = l->pending[slot] ? atomic_exchange_explicit(&l->judged[slot], NULL, memory_order_acquire) : NULL;
    if (!t) continue;
    l->pending[slot] = NULL;
    tested_kernel *s = tested_of(l, t->unique);
    double us[2];
    ab_trial_times(&t->c, us);
    s->busy = false;
    if (t->c.state == AB_TRIAL_GOES_ON) s->done[t->number] = '0';  // abandoned: the next process tries it
    char outcome[96];
    const char *end = t->c.state == AB_TRIAL_WON ? "won" : t->c.state == AB_TRIAL_LOST ? "lost" : "given up";
    double launch = 1e6 / s->launches;
    us[0] *= launch;
    us[1] *= launch;
    plain_snprintf(outcome, sizeof outcome, "%s after %d pairs, %.1f -> %.1f us", end, t->c.n, us[0], us[1]);
    report_outcome(s, t, outcome);
    if (t->c.state == AB_TRIAL_WON) {
      double after_us = us[1];
      str text = {0};
      opts_print(&text, t->list.opts, t->list.n);
      if (s->before_us <= 0) s->before_us = us[0];
      s->now = t->list;
      s->own_now = t->own;
      s->alone = t->alone;
      s->since = 0;
      if (t->list.n) vec_push(&l->wins, t->list.opts[t->list.n - 1]);
      find_lists(l, s);
      save_tuning(l, s, after_us);
      const device_kernel won = {.p = t->won, .packed = t->packed};
      plan_remember(l->p->d, l->p->asts[s->unique], t->own ? NULL : str_c(&text), &won);
      str_free(&text);
      atomic_fetch_add(&l->better, 1);
    }
    free_trial(t);
  }
}

// --- the thread ----------------------------------------------------------------------------------------------------

// The next list to try: one whose last op has won elsewhere, otherwise the first; -1: none is left.
static int choose_list(const online_tuner *l, const tested_kernel *s) {
  int first = -1;
  for (int i = 0; i < s->n; i++) {
    const opt_list *a = &s->lists[i];
    if (s->done[i] == '1') continue;
    if (first < 0) first = i;
    for (size_t w = 0; w < l->wins.n && a->n; w++)
      if (!memcmp(&a->opts[a->n - 1], &l->wins.at[w], sizeof *a->opts)) return i;
  }
  return first;
}

// The kernel that is most worth a trial: a large share of the time and few unsuccessful trials. NULL: none now.
static tested_kernel *choose_tested(online_tuner *l, bool *left) {
  tested_kernel *best = NULL;
  *left = false;
  for (int i = 0; i < l->n_tested; i++) {
    tested_kernel *s = &l->tested[i];
    if (s->dead) continue;
    *left = true;
    if (!s->busy && (!best || s->us / (1 + s->since) > best->us / (1 + best->since))) best = s;
  }
  return best;
}

struct one { online_tuner *l; tested_kernel *s; int slot; bool shared, compiled; };

static void make_candidate(void *ctx) {
  struct one *o = ctx;
  online_tuner *l = o->l;
  tested_kernel *s = o->s;
  bool shared = o->shared;
  double began = own_time();
  if (!s->ready && !prepare_tested(l, s)) { finish_tested(s); goto done; }
  int number = choose_list(l, s);
  if (number < 0) { save_tuning(l, s, s->us / s->launches); finish_tested(s); goto done; }
  s->done[number] = '1';
  trial *t = make_trial(l, s, number, shared, &o->compiled);
  s->since++;
  s->tried++;
  atomic_fetch_add(&l->tried, 1);
  if (t) {
    s->busy = true;
    l->pending[o->slot] = t;
    atomic_store_explicit(&l->offered[o->slot], t, memory_order_release);
  } else if (++l->unsaved >= SAVE_EVERY) { l->unsaved = 0; save_tuning(l, s, s->us / s->launches); }
done:
  began = own_time() - began;
  s->made_s += began;
  if (shared && atomic_load_explicit(&l->running, memory_order_relaxed)) count_ns(&l->made_ns, began);
}

// Returns whether anything was compiled. A kernel whose search breaks an invariant is left unchanged.
static bool try_one(online_tuner *l, tested_kernel *s, int slot, bool shared) {
  struct one o = {l, s, slot, shared, false};
  error err = {0};
  if (attempt(ATTEMPT_LEAVES, make_candidate, &o, &err)) {
    if (debug_level() >= 1) fprintf(stderr, "background: %s: %s\n", s->name, err.text);
    s->dead = true;
  }
  return o.compiled;
}

static void *make_candidates(void *ctx) {
  online_tuner *l = ctx;
  bool shared, left = true;
  // not SCHED_IDLE: closing the model waits for the candidate being compiled, and such a thread would hardly progress
  // on a busy machine
  os_thread_nice(0, l->always ? LOW : LOWEST);
  spare_open(&l->spare, "", l->p->n_threads);
  if (llvm_version(&l->compiler, NULL)) { atomic_store(&l->state, "no compiler"); return NULL; }
  find_tested(l);
  double last = 0;
  while (!atomic_load(&l->stop)) {
    take_judged(l);
    int slot = 0;
    while (slot < WATCHES && l->pending[slot]) slot++;
    tested_kernel *s = slot < WATCHES ? choose_tested(l, &left) : NULL;
    bool pending = false;
    for (int i = 0; i < WATCHES; i++) pending |= l->pending[i] != NULL;
    if (!left && !pending) { atomic_store(&l->state, "done"); break; }
    if (!s || now_s() - last < EVERY_S || !may_make(l, &shared)) { rest(l, POLL_S); continue; }
    double start = now_s();
    if (try_one(l, s, slot, shared)) last = start;
  }
  return NULL;
}

online_tuner *online_tuner_open(plan *p, bool always) {
  device *d = p->d;
  if (!d->run->here || !d->show || !d->cache || !cache_is_on(d->cache) || d->target.keeps_math) return NULL;
  if (env_int(ENV_NOOPT) || debug_level() >= 2) return NULL;
  online_tuner *l = xcalloc(1, sizeof *l);
  l->p = p;
  l->always = always;
  l->us = xcalloc(2 * (size_t)p->stats.kernels + (size_t)p->stats.unique + 1, sizeof *l->us);
  l->share = xcalloc((size_t)p->stats.unique + 1, sizeof *l->share);
  pthread_mutex_init(&l->mutex, NULL);
  os_cond_init(&l->wake);
  atomic_store(&l->state, "not begun");
  return l;
}

void online_tuner_stats_get(online_tuner *l, online_tuner_stats *out) {
  *out =
    (online_tuner_stats){atomic_load(&l->tried), atomic_load(&l->better), atomic_load(&l->wrong), seconds(&l->ran_ns),
                         seconds(&l->lost_ns),   seconds(&l->made_ns),    atomic_load(&l->state)};
}

void online_tuner_close(online_tuner *l) {
  if (!l) return;
  pthread_mutex_lock(&l->mutex);
  atomic_store(&l->stop, true);
  pthread_cond_signal(&l->wake);
  pthread_mutex_unlock(&l->mutex);
  if (l->started) pthread_join(l->thread, NULL);
  for (int s = 0; s < WATCHES; s++) {                          // results are kept; trials in progress are abandoned
    trial *t = l->trials[s];
    if (t) { t->c.state = AB_TRIAL_LOST; end_trial(l, s); }
    t = atomic_exchange(&l->offered[s], NULL);
    if (t) atomic_store(&l->judged[s], t);
  }
  take_judged(l);
  for (int i = 0; i < l->n_tested; i++) {
    tested_kernel *s = &l->tested[i];
    if (s->tried && !s->dead) save_tuning(l, s, s->us / s->launches);
    finish_tested(s);
  }
  if (l->n_tested) cache_flush(l->p->d->cache);
  pthread_cond_destroy(&l->wake);
  pthread_mutex_destroy(&l->mutex);
  vec_free(&l->wins);
  str_free(&l->compiler);
  free(l->tested); free(l->share); free(l->us);
  free(l);
}
