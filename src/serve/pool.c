// Threads and a queue of jobs: see pool.h. A long job no longer counts while others wait: another thread takes the next
// job, and the long one goes on with lower priority. A thread whose priority was lowered cannot raise it again, so it
// ends.
#include "serve/pool.h"
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include "base/os.h"

struct job { void (*fn)(void *); void *ctx; struct job *next; };
enum { MOST = 16, MOST_MORE = 32 };      // requested threads; additional ones for waiting and late jobs
enum { LATE_NICE = 5, CROWD_NICE = 19 }; // for as many late jobs as requested threads, and for further ones
static const double LATE_S = 0.05;

enum worker_state { WORKER_NONE, WORKER_IDLE, WORKER_BUSY, WORKER_WAITS, WORKER_LATE, WORKER_ENDED };
typedef struct worker {
  pool *of;
  pthread_t thread;
  int id;                                // for os_thread_nice
  enum worker_state state;
  bool slow;                             // its priority was lowered
  double began;                          // start of its job, now_s()
} worker;

struct pool {
  worker workers[MOST + MOST_MORE];
  int asked;
  pthread_mutex_t lock;
  pthread_cond_t more;
  struct job *first, **last;
  bool stop;
};

static _Thread_local worker *here;

static int count_in(const pool *p, enum worker_state state) {
  int n = 0;
  for (size_t i = 0; i < COUNT(p->workers); i++) n += p->workers[i].state == state;
  return n;
}

// Marks long jobs as late. Returns when the next one will be. The caller holds the lock.
static double find_late(pool *p) {
  double now = now_s(), next = INFINITY;
  for (size_t i = 0; i < COUNT(p->workers); i++) {
    worker *w = &p->workers[i];
    if (w->state != WORKER_BUSY) continue;
    if (now < w->began + LATE_S) { next = fmin(next, w->began + LATE_S); continue; }
    os_thread_nice(w->id, count_in(p, WORKER_LATE) < p->asked ? LATE_NICE : CROWD_NICE);
    w->state = WORKER_LATE;
    w->slow = true;
  }
  return next;
}

static void *run_jobs(void *arg);

static bool has_thread_place(const pool *p) { return count_in(p, WORKER_NONE) || count_in(p, WORKER_ENDED); }

// Adds a thread, if the limit allows it. The caller holds the lock.
static void add_worker(pool *p) {
  for (size_t i = 0; i < COUNT(p->workers); i++) {
    worker *w = &p->workers[i];
    if (w->state != WORKER_NONE && w->state != WORKER_ENDED) continue;
    if (w->state == WORKER_ENDED) pthread_join(w->thread, NULL);         // it has ended
    *w = (worker){.of = p, .state = WORKER_IDLE};
    if (pthread_create(&w->thread, NULL, run_jobs, w)) w->state = WORKER_NONE;
    return;
  }
}

// Makes an idle thread take the next job, or watch for late jobs. The caller holds the lock.
static void call_worker(pool *p) {
  if (p->first && !p->stop && !count_in(p, WORKER_IDLE)) add_worker(p);
  pthread_cond_signal(&p->more);
}

static void *run_jobs(void *arg) {
  worker *w = here = arg;
  pool *p = w->of;
  w->id = os_thread_id();
  pthread_mutex_lock(&p->lock);
  while (p->first || !p->stop) {
    double until = p->first ? find_late(p) : INFINITY;
    struct job *j = p->first;
    // additional threads idle while the original ones work
    if (!j || count_in(p, WORKER_BUSY) >= p->asked) { os_cond_wait_until(&p->more, &p->lock, until); continue; }
    if (!(p->first = j->next)) p->last = &p->first;
    w->state = WORKER_BUSY;
    w->began = now_s();
    call_worker(p);
    pthread_mutex_unlock(&p->lock);
    j->fn(j->ctx);
    free(j);
    pthread_mutex_lock(&p->lock);
    // without a place for another thread, this one takes the job that waits
    bool ends = w->slow && !p->stop && (!p->first || has_thread_place(p));
    if (!ends) w->state = WORKER_IDLE;
    if (p->stop) pthread_cond_broadcast(&p->more);
    else call_worker(p);
    if (!ends) continue;
    w->state = WORKER_ENDED;               // after call_worker, which joins ended threads and takes their places
    break;
  }
  pthread_mutex_unlock(&p->lock);
  return NULL;
}

int pool_start(int threads, pool **out, error *err) {
  pool *p = xcalloc(1, sizeof *p);
  p->last = &p->first;
  pthread_mutex_init(&p->lock, NULL);
  os_cond_init(&p->more);
  pthread_mutex_lock(&p->lock);
  for (int i = 0; i < threads && i < MOST; i++) add_worker(p);
  p->asked = count_in(p, WORKER_IDLE);
  pthread_mutex_unlock(&p->lock);
  *out = p;
  if (p->asked) return 0;
  pool_stop(p);
  *out = NULL;
  return error_set(err, "no thread could be made for requests");
}

void pool_add(pool *p, void (*fn)(void *), void *ctx) {
  struct job *j = xmalloc(sizeof *j);
  *j = (struct job){fn, ctx, NULL};
  pthread_mutex_lock(&p->lock);
  *p->last = j;
  p->last = &j->next;
  call_worker(p);
  pthread_mutex_unlock(&p->lock);
}

bool pool_wait(pool *p) {
  pthread_mutex_lock(&p->lock);
  bool late = here->state == WORKER_LATE, can = late || count_in(p, WORKER_WAITS) < MOST_MORE;
  if (can && !late) here->state = WORKER_WAITS;
  if (can) call_worker(p);
  pthread_mutex_unlock(&p->lock);
  return can;
}

void pool_go_on(pool *p) {
  pthread_mutex_lock(&p->lock);
  if (here->state == WORKER_WAITS) here->state = WORKER_BUSY;
  here->began = now_s();
  pthread_mutex_unlock(&p->lock);
}

void pool_stop(pool *p) {
  if (!p) return;
  pthread_mutex_lock(&p->lock);
  p->stop = true;
  pthread_cond_broadcast(&p->more);
  bool made[COUNT(p->workers)];
  for (size_t i = 0; i < COUNT(made); i++) made[i] = p->workers[i].state != WORKER_NONE;
  pthread_mutex_unlock(&p->lock);
  for (size_t i = 0; i < COUNT(made); i++) if (made[i]) pthread_join(p->workers[i].thread, NULL);
  pthread_mutex_destroy(&p->lock);
  pthread_cond_destroy(&p->more);
  free(p);
}
