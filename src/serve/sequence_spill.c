// Saves sequences in files: see sequence_spill.h.
#define _GNU_SOURCE
#include "serve/sequence_spill.h"
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include "base/base.h"
#include "base/os.h"
#include "base/str.h"

enum { LEAST = 64 /* tokens: fewer are soon evaluated again */ };

// Logs the progress of reading the model's files. s: seconds so far; 0: already known from an earlier run.
static void say_read(spill *k, double done, double s) {
  if (!log_takes(k->log, LOG_VERBOSE)) return;
  log_line e = log_begin(k->log, "content");
  log_word(&e, "from", s > 0 ? "files" : "cache");
  log_count(&e, "percent", (int64_t)(100 * done));
  log_ms(&e, "ms", 1000 * s);
  log_write(k->log, &e);
}

// Waits until the name of the model's content is known. False: it cannot be, or the shutdown came first.
static bool wait_for_content(spill *k) {
  enum { EVERY = 5 };                  // seconds between log lines
  double began = now_s(), said = began, done;
  weft_error err;
  for (;;) {
    int status = weft_model_content(k->model, 0.1, &done, &err);
    pthread_mutex_lock(&k->lock);
    bool stop = k->stop;
    pthread_mutex_unlock(&k->lock);
    if (status < 0 && !stop) log_warn(k->log, "--keep-in: %s", err.text);
    if (!status || now_s() - said > EVERY) say_read(k, done, (said = now_s()) - began);
    if (status <= 0 || stop) return !status && !stop;
  }
}

static bool open_store(spill *k, weft_store **out) {
  weft_error err;
  if (!weft_store_open(k->model, k->folder, k->bytes, out, &err)) return true;
  log_warn(k->log, "--keep-in %s: nothing is kept there", err.text);
  return false;
}

static weft_store *open_later(spill *k) {
  weft_store *opened = NULL;
  bool fine = wait_for_content(k) && open_store(k, &opened);
  pthread_mutex_lock(&k->lock);
  k->opened = opened;
  k->failed = !fine;
  pthread_cond_broadcast(&k->changed);
  pthread_mutex_unlock(&k->lock);
  return opened;
}

static void *write_files(void *arg) {
  spill *k = arg;
  os_thread_nice(0, 19);
  weft_store *store = k->opened ? k->opened : open_later(k);
  pthread_mutex_lock(&k->lock);
  while (!k->stop) {
    if (k->state != SPILL_WRITES) { pthread_cond_wait(&k->changed, &k->lock); continue; }
    pthread_mutex_unlock(&k->lock);
    double began = now_s();
    k->why.text[0] = 0;
    weft_store_save(store, k->job.sequence, k->job.past.at, &k->why);
    k->took_s = now_s() - began;
    pthread_mutex_lock(&k->lock);
    k->state = SPILL_WRITTEN;
    pthread_cond_broadcast(&k->changed);
  }
  pthread_mutex_unlock(&k->lock);
  return NULL;
}

void spill_open(spill *k, const char *folder, uint64_t bytes, server_log *log, weft_model *m) {
  *k = (spill){.log = log, .model = m, .bytes = bytes};
  if (!folder) return;
  k->folder = xstrdup(folder);
  // known at once from an earlier run
  if (!weft_model_content(m, 0, NULL, NULL)) {
    say_read(k, 1, 0);
    k->failed = !open_store(k, &k->opened);
  }
  k->store = k->opened;
  pthread_mutex_init(&k->lock, NULL);
  os_cond_init(&k->changed);
  k->started = !k->failed && !pthread_create(&k->writer, NULL, write_files, k);
  if (!k->started && !k->failed) log_warn(log, "--keep-in %s: no thread could be made: nothing is kept", folder);
}

// Takes over the store that the other thread has opened.
static bool has_store(spill *k) {
  if (k->store || !k->started) return k->store;
  pthread_mutex_lock(&k->lock);
  k->store = k->opened;
  pthread_mutex_unlock(&k->lock);
  return k->store;
}

// At shutdown: waits briefly if the name is almost known (a small model that was used once).
static bool store_at_the_end(spill *k) {
  enum { PATIENCE_S = 2 };
  if (!k->started || k->store) return k->store;
  double until = now_s() + PATIENCE_S;
  pthread_mutex_lock(&k->lock);
  while (!k->hurries && !k->opened && !k->failed && os_cond_wait_until(&k->changed, &k->lock, until)) continue;
  k->hurries = true;
  pthread_mutex_unlock(&k->lock);
  return has_store(k);
}

bool spill_waits(spill *k) {
  if (!k->started) return false;
  pthread_mutex_lock(&k->lock);
  bool waits = !k->failed;
  pthread_mutex_unlock(&k->lock);
  return waits;
}

size_t spill_find(spill *k, const token_ids *prompt, size_t most) {
  size_t n = prompt->n < most ? prompt->n : most;
  return has_store(k) ? weft_store_find(k->store, prompt->at, n) : 0;
}

int spill_load(spill *k, const token_ids *prompt, size_t n, held *out, weft_error *err) {
  *out = (held){0};
  int status = weft_store_load(k->store, prompt->at, n, &out->sequence, err);
  if (status) return status;
  for (size_t i = 0; i < (size_t)weft_sequence_length(out->sequence); i++) vec_push(&out->past, prompt->at[i]);
  return 0;
}

// ---- writing --------------------------------------------------------------------------------------------------------

static enum spill_state state_of(spill *k) {
  if (!k->started) return SPILL_FREE;
  pthread_mutex_lock(&k->lock);
  enum spill_state state = k->state;
  pthread_mutex_unlock(&k->lock);
  return state;
}

bool spill_busy(spill *k) { return state_of(k) != SPILL_FREE; }

void spill_collect(spill *k) {
  if (state_of(k) != SPILL_WRITTEN) return;
  if (k->why.text[0]) log_warn(k->log, "%s", k->why.text);
  held_free(&k->job);
  k->not_before = now_s() + 4 * k->took_s;
  pthread_mutex_lock(&k->lock);
  k->state = SPILL_FREE;
  pthread_mutex_unlock(&k->lock);
}

static bool needs_none(const spill *k, const held *h) {
  int n = (int)h->past.n;
  return n < LEAST || weft_sequence_whole(h->sequence, n) < n || !weft_store_lacks(k->store, h->sequence, h->past.at);
}

// The model's files were modified: reported once.
static void give_up(spill *k, const weft_error *err) {
  pthread_mutex_lock(&k->lock);
  bool before = k->failed;
  k->failed = true;
  pthread_mutex_unlock(&k->lock);
  if (!before) log_warn(k->log, "--keep-in: %s", err->text);
}

void spill_offer(spill *k, held *h) {
  weft_error err;
  if (h->kept || !has_store(k) || !k->started || spill_busy(k) || now_s() < k->not_before) return;
  int known = weft_model_content(k->model, 0, NULL, &err);
  if (known < 0) give_up(k, &err);
  if (known) return;
  h->kept = true;
  if (needs_none(k, h) || weft_sequence_fork(h->sequence, (int)h->past.n, &k->job.sequence, &err)) return;
  for (size_t i = 0; i < h->past.n; i++) vec_push(&k->job.past, h->past.at[i]);
  pthread_mutex_lock(&k->lock);
  k->state = SPILL_WRITES;
  pthread_cond_broadcast(&k->changed);
  pthread_mutex_unlock(&k->lock);
}

void spill_finish(spill *k, held *h) {
  weft_error err;
  if (h->kept || !store_at_the_end(k)) return;
  pthread_mutex_lock(&k->lock);
  while (k->state == SPILL_WRITES) pthread_cond_wait(&k->changed, &k->lock);
  pthread_mutex_unlock(&k->lock);
  if (needs_none(k, h)) return;
  if (weft_store_save(k->store, h->sequence, h->past.at, &err)) log_warn(k->log, "%s", err.text);
}

void spill_close(spill *k) {
  if (!k->folder) return;
  if (k->started) {
    pthread_mutex_lock(&k->lock);
    while (k->state == SPILL_WRITES) pthread_cond_wait(&k->changed, &k->lock);
    k->stop = true;
    pthread_cond_broadcast(&k->changed);
    pthread_mutex_unlock(&k->lock);
    spill_collect(k);
    pthread_join(k->writer, NULL);
    k->started = false;
  }
  weft_store_close(k->store ? k->store : k->opened);
  k->store = k->opened = NULL;
  pthread_mutex_destroy(&k->lock);
  pthread_cond_destroy(&k->changed);
  free(k->folder);
}
