// Masks of grammars beside a step: see masks.h.
#include "serve/masks.h"
#include <stdlib.h>

static void *make_masks(void *arg) {
  masks *m = arg;
  pthread_mutex_lock(&m->lock);
  while (!m->stop) {
    if (m->made == m->wanted.n) { pthread_cond_wait(&m->changed, &m->lock); continue; }
    run *u = m->wanted.at[m->made];
    pthread_mutex_unlock(&m->lock);
    run_make_mask(u);
    pthread_mutex_lock(&m->lock);
    m->made++;
    pthread_cond_broadcast(&m->changed);
  }
  pthread_mutex_unlock(&m->lock);
  return NULL;
}

void masks_open(masks *m) {
  *m = (masks){0};
  pthread_mutex_init(&m->lock, NULL);
  pthread_cond_init(&m->changed, NULL);
  m->started = !pthread_create(&m->thread, NULL, make_masks, m);
}

void masks_begin(masks *m, run *const *of, size_t n) {
  bool some = false;
  for (size_t i = 0; i < n; i++) some |= run_needs_mask(of[i]);
  if (!m->started || !some) return;
  pthread_mutex_lock(&m->lock);
  m->wanted.n = m->made = 0;
  for (size_t i = 0; i < n; i++) if (run_needs_mask(of[i])) vec_push(&m->wanted, of[i]);
  pthread_cond_broadcast(&m->changed);
  pthread_mutex_unlock(&m->lock);
}

void masks_wait(masks *m) {
  if (!m->wanted.n) return;
  pthread_mutex_lock(&m->lock);
  while (m->made < m->wanted.n) pthread_cond_wait(&m->changed, &m->lock);
  m->wanted.n = m->made = 0;
  pthread_mutex_unlock(&m->lock);
}

void masks_close(masks *m) {
  if (m->started) {
    pthread_mutex_lock(&m->lock);
    m->stop = true;
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->lock);
    pthread_join(m->thread, NULL);
  }
  m->started = false;
  vec_free(&m->wanted);
  pthread_mutex_destroy(&m->lock);
  pthread_cond_destroy(&m->changed);
}
