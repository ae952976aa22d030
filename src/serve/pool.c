// Threads and a queue of jobs: see pool.h.
#include "serve/pool.h"
#include <pthread.h>
#include <stdlib.h>

struct job { void (*fn)(void *); void *ctx; struct job *next; };
enum { MOST = 16 };
struct pool {
  pthread_t thread[MOST];
  int n;
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
    if (!j) { pthread_cond_wait(&p->more, &p->lock); continue; }
    if (!(p->first = j->next)) p->last = &p->first;
    pthread_mutex_unlock(&p->lock);
    j->fn(j->ctx);
    free(j);
    pthread_mutex_lock(&p->lock);
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
  if (p->n) return 0;
  pool_stop(p);
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
