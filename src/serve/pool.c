// Threads and a queue of jobs: see pool.h.
#include "serve/pool.h"
#include <pthread.h>
#include <stdlib.h>

struct job { void (*fn)(void *); void *ctx; struct job *next; };
enum { MOST = 16, MOST_MORE = 32 };      // threads that are asked for, and those in place of such as wait
struct pool {
  pthread_t thread[MOST + MOST_MORE];
  int n, asked, busy, waiting;            // busy: with a job; waiting: of these
  pthread_mutex_t lock;
  pthread_cond_t more;
  struct job *first, **last;
  bool stop;
};

static void *run_jobs(void *arg) {
  pool *p = arg;
  pthread_mutex_lock(&p->lock);
  for (;;) {
    struct job *j = p->first;
    if (!j && p->stop) break;
    // those in place of others stay when these go on
    if (!j || p->busy - p->waiting >= p->asked) { pthread_cond_wait(&p->more, &p->lock); continue; }
    if (!(p->first = j->next)) p->last = &p->first;
    p->busy++;
    pthread_mutex_unlock(&p->lock);
    j->fn(j->ctx);
    free(j);
    pthread_mutex_lock(&p->lock);
    p->busy--;
    if (p->stop) pthread_cond_broadcast(&p->more);
    else pthread_cond_signal(&p->more);
  }
  pthread_mutex_unlock(&p->lock);
  return NULL;
}

int pool_start(int threads, pool **out, error *err) {
  pool *p = xcalloc(1, sizeof *p);
  p->last = &p->first;
  pthread_mutex_init(&p->lock, NULL);
  pthread_cond_init(&p->more, NULL);
  while (p->n < threads && p->n < MOST && !pthread_create(&p->thread[p->n], NULL, run_jobs, p)) p->n++;
  *out = p;
  p->asked = p->n;
  if (p->n) return 0;
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
  pthread_cond_signal(&p->more);
  pthread_mutex_unlock(&p->lock);
}

bool pool_wait(pool *p) {
  pthread_mutex_lock(&p->lock);
  bool can = p->waiting < MOST_MORE;
  if (can) p->waiting++;
  if (can && p->n - p->waiting < p->asked && !p->stop && !pthread_create(&p->thread[p->n], NULL, run_jobs, p)) p->n++;
  pthread_cond_signal(&p->more);
  pthread_mutex_unlock(&p->lock);
  return can;
}

void pool_go_on(pool *p) {
  pthread_mutex_lock(&p->lock);
  p->waiting--;
  pthread_mutex_unlock(&p->lock);
}

void pool_stop(pool *p) {
  if (!p) return;
  pthread_mutex_lock(&p->lock);
  p->stop = true;
  pthread_cond_broadcast(&p->more);
  pthread_mutex_unlock(&p->lock);
  for (int i = 0; i < p->n; i++) pthread_join(p->thread[i], NULL);
  pthread_mutex_destroy(&p->lock);
  pthread_cond_destroy(&p->more);
  free(p);
}
