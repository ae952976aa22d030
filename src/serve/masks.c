// Makes grammar masks beside steps: see masks.h. One thread makes masks, one job after another; a late job no longer
// counts as running: another thread takes the next job, and ends with it.
#define _GNU_SOURCE
#include "serve/masks.h"
#include "base/os.h"
#include <math.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { LATE_NICE = 10 };               // a late job gets the processor time that steps leave
struct mask_job {
  const request *r;
  VEC(run *) of;
  enum { MASK_WANTED, MASK_MAKING, MASK_MADE } state;
  bool late, fresh;                    // fresh: added by the current masks_begin
  int thread;
};

static struct mask_job *job_of(masks *m, const request *r) {
  for (size_t i = 0; i < m->jobs.n; i++) if (m->jobs.at[i]->r == r) return m->jobs.at[i];
  return NULL;
}

// The first job that a thread may start, and the number of such jobs.
static struct mask_job *next_job(masks *m, int *n) {
  struct mask_job *first = NULL;
  bool making = false;
  *n = 0;
  for (size_t i = 0; i < m->jobs.n; i++) making |= m->jobs.at[i]->state == MASK_MAKING && !m->jobs.at[i]->late;
  for (size_t i = 0; i < m->jobs.n; i++) {
    struct mask_job *j = m->jobs.at[i];
    if (j->state != MASK_WANTED || (!j->late && making)) continue;
    making |= !j->late;
    if (!first) first = j;
    ++*n;
  }
  return first;
}

static void make_masks_of(struct mask_job *j) {
  for (size_t i = 0; i < j->of.n; i++) run_make_mask(j->of.at[i]);
}

static void slow_down(int thread) { os_thread_nice(thread, LATE_NICE); }

static void *make_masks(void *arg);

// Starts threads for all jobs that may start. The caller holds the lock.
static void call_threads(masks *m) {
  int n;
  if (!next_job(m, &n)) return;
  pthread_cond_broadcast(&m->more);
  for (pthread_t t; n > m->idle && !pthread_create(&t, NULL, make_masks, m); n--, m->threads++) pthread_detach(t);
}

// A thread whose priority was lowered cannot raise it again, so it ends.
static void *make_masks(void *arg) {
  masks *m = arg;
  bool slow = false;
  pthread_mutex_lock(&m->lock);
  while (!m->stop && !slow) {
    int n;
    struct mask_job *j = next_job(m, &n);
    if (!j) {
      m->idle++;
      pthread_cond_wait(&m->more, &m->lock);
      m->idle--;
      continue;
    }
    j->state = MASK_MAKING;
    j->thread = os_thread_id();
    if (j->late) slow_down(j->thread);
    pthread_mutex_unlock(&m->lock);
    make_masks_of(j);
    pthread_mutex_lock(&m->lock);
    j->state = MASK_MADE;
    slow = j->late;
    pthread_cond_broadcast(&m->made);
  }
  m->threads--;
  if (!m->stop) call_threads(m);
  pthread_cond_broadcast(&m->made);
  pthread_mutex_unlock(&m->lock);
  return NULL;
}

void masks_open(masks *m) {
  *m = (masks){0};
  pthread_mutex_init(&m->lock, NULL);
  pthread_cond_init(&m->more, NULL);
  os_cond_init(&m->made);
}

// The caller holds the lock.
static void add_job(masks *m, run *u) {
  struct mask_job *j = job_of(m, run_request(u));
  if (!j) {
    j = xcalloc(1, sizeof *j);
    *j = (struct mask_job){.r = run_request(u), .fresh = true};
    vec_push(&m->jobs, j);
  }
  if (j->fresh) vec_push(&j->of, u);
}

void masks_begin(masks *m, run *const *of, size_t n) {
  bool some = false;
  for (size_t i = 0; i < n; i++) some |= run_needs_mask(of[i]);
  if (!some) return;
  pthread_mutex_lock(&m->lock);
  for (size_t i = 0; i < n; i++) if (run_needs_mask(of[i])) add_job(m, of[i]);
  for (size_t i = 0; i < m->jobs.n; i++) m->jobs.at[i]->fresh = false;
  call_threads(m);
  pthread_mutex_unlock(&m->lock);
}

// The caller holds the lock.
static void remove_job(masks *m, struct mask_job *j) {
  for (size_t i = 0; i < m->jobs.n; i++) if (m->jobs.at[i] == j) m->jobs.at[i] = m->jobs.at[--m->jobs.n];
  vec_free(&j->of);
  free(j);
}

bool masks_busy(masks *m, const request *r) {
  pthread_mutex_lock(&m->lock);
  struct mask_job *j = job_of(m, r);
  bool busy = j && j->state != MASK_MADE;
  if (j && !busy) remove_job(m, j);
  pthread_mutex_unlock(&m->lock);
  return busy;
}

bool masks_wait(masks *m, const request *r, double until) {
  pthread_mutex_lock(&m->lock);
  struct mask_job *j = job_of(m, r);
  if (j && j->state == MASK_WANTED && !m->threads) {
    make_masks_of(j);
    j->state = MASK_MADE;
  }
  while (j && j->state != MASK_MADE && os_cond_wait_until(&m->made, &m->lock, until)) {}
  bool made = !j || j->state == MASK_MADE;
  if (j && made) remove_job(m, j);
  if (!made && !j->late) {
    j->late = true;
    if (j->state == MASK_MAKING) slow_down(j->thread);
    call_threads(m);
  }
  pthread_mutex_unlock(&m->lock);
  return made;
}

void masks_wait_any(masks *m, double until) {
  pthread_mutex_lock(&m->lock);
  for (bool some = false; m->jobs.n && !some && os_cond_wait_until(&m->made, &m->lock, until);)
    for (size_t i = 0; i < m->jobs.n; i++) some |= m->jobs.at[i]->state == MASK_MADE;
  pthread_mutex_unlock(&m->lock);
}

void masks_close(masks *m) {
  pthread_mutex_lock(&m->lock);
  m->stop = true;
  pthread_cond_broadcast(&m->more);
  while (m->threads) pthread_cond_wait(&m->made, &m->lock);
  while (m->jobs.n) remove_job(m, m->jobs.at[0]);
  pthread_mutex_unlock(&m->lock);
  vec_free(&m->jobs);
  pthread_mutex_destroy(&m->lock);
  pthread_cond_destroy(&m->more);
  pthread_cond_destroy(&m->made);
}
