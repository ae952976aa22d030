// Sequences in files: see keep.h.
#define _GNU_SOURCE
#include "serve/keep.h"
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/base.h"
#include "base/str.h"

enum { LEAST = 64 /* tokens: fewer are soon evaluated again */ };

static void *write_files(void *arg) {
  keep *k = arg;
  setpriority(PRIO_PROCESS, (id_t)gettid(), 19);
  pthread_mutex_lock(&k->lock);
  while (!k->stop) {
    if (k->state != KEEP_WRITES) { pthread_cond_wait(&k->changed, &k->lock); continue; }
    pthread_mutex_unlock(&k->lock);
    double began = now_s();
    k->why.text[0] = 0;
    weft_store_save(k->store, k->job.sequence, k->job.past.at, &k->why);
    k->took_s = now_s() - began;
    pthread_mutex_lock(&k->lock);
    k->state = KEEP_WRITTEN;
    pthread_cond_broadcast(&k->changed);
  }
  pthread_mutex_unlock(&k->lock);
  return NULL;
}

void keep_open(keep *k, const char *folder, uint64_t bytes, const char *name, weft_model *m) {
  *k = (keep){0};
  weft_error err;
  if (!folder) return;
  umask(077);                          // prompts are in these files, and this program writes no others
  if (weft_store_open(m, folder, name, bytes, &k->store, &err)) {
    warning("--keep-in %s: nothing is kept there", err.text);
    return;
  }
  pthread_mutex_init(&k->lock, NULL);
  pthread_cond_init(&k->changed, NULL);
  k->started = !pthread_create(&k->writer, NULL, write_files, k);
  if (!k->started) warning("--keep-in %s: no thread could be made: files are written at the end", folder);
}

size_t keep_find(const keep *k, const token_ids *prompt, size_t most) {
  size_t n = prompt->n < most ? prompt->n : most;
  return k->store ? weft_store_find(k->store, prompt->at, n) : 0;
}

int keep_load(keep *k, const token_ids *prompt, size_t n, held *out, weft_error *err) {
  *out = (held){0};
  int status = weft_store_load(k->store, prompt->at, n, &out->sequence, err);
  if (status) return status;
  for (size_t i = 0; i < (size_t)weft_sequence_length(out->sequence); i++) vec_push(&out->past, prompt->at[i]);
  return 0;
}

// ---- writing --------------------------------------------------------------------------------------------------------

static enum keep_state state_of(keep *k) {
  if (!k->started) return KEEP_FREE;
  pthread_mutex_lock(&k->lock);
  enum keep_state state = k->state;
  pthread_mutex_unlock(&k->lock);
  return state;
}

bool keep_busy(keep *k) { return state_of(k) != KEEP_FREE; }

void keep_collect(keep *k) {
  if (state_of(k) != KEEP_WRITTEN) return;
  if (k->why.text[0]) warning("%s", k->why.text);
  held_free(&k->job);
  k->not_before = now_s() + 4 * k->took_s;
  pthread_mutex_lock(&k->lock);
  k->state = KEEP_FREE;
  pthread_mutex_unlock(&k->lock);
}

static bool needs_none(const keep *k, const held *h) {
  int n = (int)h->past.n;
  return n < LEAST || weft_sequence_whole(h->sequence, n) < n || !weft_store_lacks(k->store, h->sequence, h->past.at);
}

void keep_offer(keep *k, held *h) {
  weft_error err;
  if (h->kept || !k->started || keep_busy(k) || now_s() < k->not_before) return;
  h->kept = true;
  if (needs_none(k, h) || weft_sequence_fork(h->sequence, (int)h->past.n, &k->job.sequence, &err)) return;
  for (size_t i = 0; i < h->past.n; i++) vec_push(&k->job.past, h->past.at[i]);
  pthread_mutex_lock(&k->lock);
  k->state = KEEP_WRITES;
  pthread_cond_broadcast(&k->changed);
  pthread_mutex_unlock(&k->lock);
}

void keep_finish(keep *k, held *h) {
  weft_error err;
  if (!k->store || h->kept) return;
  pthread_mutex_lock(&k->lock);
  while (k->state == KEEP_WRITES) pthread_cond_wait(&k->changed, &k->lock);
  pthread_mutex_unlock(&k->lock);
  if (needs_none(k, h)) return;
  if (weft_store_save(k->store, h->sequence, h->past.at, &err)) warning("%s", err.text);
}

void keep_close(keep *k) {
  if (k->started) {
    pthread_mutex_lock(&k->lock);
    while (k->state == KEEP_WRITES) pthread_cond_wait(&k->changed, &k->lock);
    k->stop = true;
    pthread_cond_broadcast(&k->changed);
    pthread_mutex_unlock(&k->lock);
    keep_collect(k);
    pthread_join(k->writer, NULL);
    k->started = false;
  }
  if (k->store) {
    pthread_mutex_destroy(&k->lock);
    pthread_cond_destroy(&k->changed);
  }
  weft_store_close(k->store);
  k->store = NULL;
}
