// Threads, barriers and their placement: see team.h.
//
// Threads wait for two events: a new job (counted by `job`) and the end of a barrier (counted by `generation`). A wait
// first spins, then sleeps in a futex on the counter. The waker increments the counter and calls the kernel only if a
// thread sleeps. A sleeper announces itself in `sleepers`, and the kernel compares the counter again before it sleeps,
// so no wake-up is lost: either the waker sees the sleeper or the sleeper sees the new count. A job ends with a
// barrier.
//
// How long to spin: with a processor per thread, the awaited thread is running, and milliseconds of spinning cost less
// than a late wake-up. With more threads than processors, or a small share of time, the awaited thread may need this
// processor: yield at once and sleep soon.
#define _GNU_SOURCE
#include "device/team.h"
#include "base/attempt.h"
#include "base/os.h"
#include "device/cgroup.h"
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const double SPIN_S = 2e-3, SPIN_CROWDED_S = 50e-6;      // within a job
// after this time, yields the processor to other programs
static const double POLITE_S = 100e-6;
static const double IDLE_S = 1e-3;                              // between jobs: longer than sampling a token

struct counter { _Alignas(64) _Atomic uint32_t count; _Atomic uint32_t sleepers; };   // its own cache line
struct worker { team *team; int thread; pthread_t id; };

struct team {
  struct counter job, generation;
  _Alignas(64) _Atomic uint32_t arrived;                        // threads at the barrier of this generation
  _Alignas(64) int n;
  bool crowded;                                                 // more threads than processors
  bool stop;                                                    // written before job is incremented
  team_fn *fn;
  void *ctx;
  int *cpus;                                                    // cpus[i]: processor of thread i; NULL: not pinned
  struct worker *workers;                                       // threads 1..n-1
  int started;
};

// ------------------------------------------------------------------------------------------------------------- waiting

static void relax(void) {
#if defined(__x86_64__)
  __asm__ volatile("pause");
#elif defined(__aarch64__)
  __asm__ volatile("isb");
#endif
}

static bool is_past(struct counter *c, uint32_t old) {
  return atomic_load_explicit(&c->count, memory_order_acquire) != old;
}

static void sleep_until_past(struct counter *c, uint32_t old) {
  atomic_fetch_add(&c->sleepers, 1);
  while (!is_past(c, old)) os_wait(&c->count, old);             // returns at once if the count has changed
  atomic_fetch_sub(&c->sleepers, 1);
}

static void wait_until_past(struct counter *c, uint32_t old, double spin_s, bool crowded) {
  for (int i = 0; i < 256; i++) {
    if (is_past(c, old)) return;
    if (crowded && i >= 32) break;
    relax();
  }
  double start = now_s(), waited;                               // reads the clock rarely: it costs 20 ns
  while ((waited = now_s() - start) < spin_s) {
    if (crowded || waited > POLITE_S) sched_yield();
    for (int i = 0; i < 64; i++) {
      if (is_past(c, old)) return;
      relax();
    }
  }
  sleep_until_past(c, old);
}

static void count_up(struct counter *c) {
  atomic_fetch_add(&c->count, 1);
  if (atomic_load(&c->sleepers)) os_wake_all(&c->count);
}

void team_barrier(team *t) {
  if (t->n == 1) return;
  // cannot change before this thread arrives
  uint32_t generation = atomic_load_explicit(&t->generation.count, memory_order_relaxed);
  if (atomic_fetch_add_explicit(&t->arrived, 1, memory_order_acq_rel) + 1 == (uint32_t)t->n) {
    atomic_store_explicit(&t->arrived, 0, memory_order_relaxed);                            // published by count_up
    count_up(&t->generation);
  } else {
    wait_until_past(&t->generation, generation, t->crowded ? SPIN_CROWDED_S : SPIN_S, t->crowded);
  }
}

// ---------------------------------------------------------------------------------------------------------- processors

// Reads one number from a small file of /sys.
static bool read_sys_number(const char *path, int *out) {
  FILE *f = fopen(path, "re");
  if (!f) return false;
  bool ok = fscanf(f, "%d", out) == 1;
  fclose(f);
  return ok;
}

// The processors that this process may use, the first hardware thread of every core before the others. Caller:
// free(*cpus).
static void list_cpus(int **cpus, int *n, int *cores) {
  cpu_set_t mask;
  *cpus = xcalloc(CPU_SETSIZE, sizeof **cpus);
  *n = *cores = 0;
  if (sched_getaffinity(0, sizeof mask, &mask)) {               // more than 1024 processors: do not pin
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    *n = *cores = online > 0 ? (int)online : 1;
    free(*cpus);
    *cpus = NULL;
    return;
  }
  int *second = xcalloc(CPU_SETSIZE, sizeof *second), seconds = 0;
  // cores with a processor in the list, by their first one
  cpu_set_t taken;
  CPU_ZERO(&taken);
  for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
    if (!CPU_ISSET(cpu, &mask)) continue;
    char path[96];
    int first = cpu;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    if (!read_sys_number(path, &first) || first < 0 || first >= CPU_SETSIZE) first = cpu;
    if (CPU_ISSET(first, &taken)) second[seconds++] = cpu;
    else { CPU_SET(first, &taken); (*cpus)[(*n)++] = cpu; }
  }
  *cores = *n;
  for (int i = 0; i < seconds; i++) (*cpus)[(*n)++] = second[i];
  free(second);
}

static int default_threads(int cores) {
  double share = cgroup_cpus("");
  int n = cores;
  if (share > 0 && share < n) n = (int)share + (share > (int)share);
  return n < 1 ? 1 : n > TEAM_MAX ? TEAM_MAX : n;
}

int team_cores(void) {
  int *cpus, n, cores;
  list_cpus(&cpus, &n, &cores);
  free(cpus);
  return cores;
}

int team_default_threads(void) { return default_threads(team_cores()); }

// Assigns processor cpus[i] to thread i. The list is rotated to begin at the caller's current processor, so that two
// programs with few threads do not both use the first processors.
static void choose_cpus(team *t, int *cpus, int n_cpus, int cores) {
  int ring = t->n <= cores ? cores : n_cpus, start = 0, here = sched_getcpu();
  for (int i = 0; i < ring; i++) if (cpus[i] == here) start = i;
  t->cpus = xcalloc((size_t)t->n, sizeof *t->cpus);
  for (int i = 0; i < t->n; i++) t->cpus[i] = cpus[(start + i) % ring];
}

static void pin(int cpu) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  CPU_SET(cpu, &mask);
  sched_setaffinity(0, sizeof mask, &mask);     // best effort
}

// ------------------------------------------------------------------------------------------------------------- jobs

static void *worker_loop(void *p) {
  struct worker *w = p;
  team *t = w->team;
  os_prepare_stack();
  if (t->cpus) pin(t->cpus[w->thread]);
  for (uint32_t seen = 0;; seen++) {
    wait_until_past(&t->job, seen, t->crowded ? SPIN_CROWDED_S : IDLE_S, t->crowded);
    if (t->stop) return NULL;
    t->fn(t->ctx, w->thread, t->n);
    team_barrier(t);
  }
}

// Other threads wait for this one within fn, so it must not be left through a surrounding attempt.
static void run_share(team_fn *fn, void *ctx, int n) {
  struct attempt_frame *around = attempt_suspend();
  os_prepare_stack();
  fn(ctx, 0, n);
  attempt_resume(around);
}

void team_run(team *t, team_fn *fn, void *ctx) {
  if (t->n == 1) { run_share(fn, ctx, 1); return; }
  cpu_set_t before;
  bool pinned = t->cpus && !sched_getaffinity(0, sizeof before, &before);
  t->fn = fn;
  t->ctx = ctx;
  count_up(&t->job);                            // start the others before moving this thread
  if (pinned) pin(t->cpus[0]);
  run_share(fn, ctx, t->n);
  team_barrier(t);
  if (pinned) sched_setaffinity(0, sizeof before, &before);
}

// Returns the previous mode.
static uint64_t flush_subnormals(void) {
  uint64_t before = 0;
#if defined(__x86_64__)
  enum { FLUSH_RESULTS = 0x8000, READ_AS_ZEROS = 0x40 };
  uint32_t was, mode;
  __asm__ volatile("stmxcsr %0" : "=m"(was));
  mode = was | FLUSH_RESULTS | READ_AS_ZEROS;
  __asm__ volatile("ldmxcsr %0" : : "m"(mode));
  before = was;
#elif defined(__aarch64__)
  enum { FLUSH = 1 << 24 };
  __asm__ volatile("mrs %0, fpcr" : "=r"(before));
  __asm__ volatile("msr fpcr, %0" : : "r"(before | FLUSH));
#endif
  return before;
}

static void compute_as(uint64_t before) {
#if defined(__x86_64__)
  uint32_t mode = (uint32_t)before;
  __asm__ volatile("ldmxcsr %0" : : "m"(mode));
#elif defined(__aarch64__)
  __asm__ volatile("msr fpcr, %0" : : "r"(before));
#else
  (void)before;
#endif
}

struct kernels { team_fn *fn; void *ctx; };

static void compute(void *ctx, int thread, int n) {
  const struct kernels *k = ctx;
  uint64_t before = flush_subnormals();
  k->fn(k->ctx, thread, n);
  compute_as(before);
}

void team_compute(team *t, team_fn *fn, void *ctx) { team_run(t, compute, &(struct kernels){fn, ctx}); }

team *team_new(int n_threads, error *err) {
  if (n_threads < 0 || n_threads > TEAM_MAX) {
    error_set(err, "threads: %d is not between 0 (automatic) and %d", n_threads, TEAM_MAX);
    return NULL;
  }
  team *t = os_lines_take(sizeof *t);
  if (!t) { error_set(err, "threads: out of memory"); return NULL; }
  memset(t, 0, sizeof *t);
  int *cpus, n_cpus, cores;
  list_cpus(&cpus, &n_cpus, &cores);
  t->n = n_threads ? n_threads : default_threads(cores);
  double share = cgroup_cpus("");
  t->crowded = t->n > n_cpus || (share > 0 && t->n > share + 0.999);
  if (cpus && t->n > 1 && t->n <= n_cpus) choose_cpus(t, cpus, n_cpus, cores);
  free(cpus);
  t->workers = xcalloc((size_t)t->n, sizeof *t->workers);
  sigset_t all, before;                         // the program's own threads handle signals (Ctrl-C)
  sigfillset(&all);
  // signals that a thread causes itself must not be blocked: a blocked one would end the program despite a handler
  // (base/mapped.h)
  static const int own[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP};
  for (size_t i = 0; i < COUNT(own); i++) sigdelset(&all, own[i]);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int failed = 0;
  for (int i = 1; i < t->n && !failed; i++) {
    t->workers[i] = (struct worker){.team = t, .thread = i};
    failed = pthread_create(&t->workers[i].id, NULL, worker_loop, &t->workers[i]);
    if (!failed) t->started = i;
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (!failed) return t;
  error_set(err, "threads: thread %d of %d could not be made: %s", t->started + 2, t->n, strerror(failed));
  team_free(t);
  return NULL;
}

void team_free(team *t) {
  if (!t) return;
  t->stop = true;
  count_up(&t->job);
  for (int i = 1; i <= t->started; i++) pthread_join(t->workers[i].id, NULL);
  free(t->workers);
  free(t->cpus);
  os_lines_free(t);
}

int team_size(const team *t) { return t->n; }
