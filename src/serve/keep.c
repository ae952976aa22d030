// Sequences in files: see keep.h.
#define _GNU_SOURCE
#include "serve/keep.h"
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/base.h"
#include "base/str.h"

enum { LEAST = 64 /* tokens: fewer are soon evaluated again */ };
static const char suffix[] = ".sequence";

static void forget_kept(keep *k, size_t at, bool removed) {
  if (removed) unlink(k->files.at[at].path);
  free(k->files.at[at].path);
  vec_free(&k->files.at[at].ids);
  weft_free(k->files.at[at].whole);
  k->files.at[at] = k->files.at[--k->files.n];
}

// "0123abcd-...": of a model with this name.
static bool is_ours(const keep *k, const char *file) {
  char tag[16];
  size_t n = strlen(file), end = sizeof suffix - 1;
  snprintf(tag, sizeof tag, "%08x-", k->tag);
  return n > end && !strcmp(file + n - end, suffix) && !strncmp(file, tag, strlen(tag));
}

static void *write_files(void *arg);

static void start_writer(keep *k) {
  pthread_mutex_init(&k->lock, NULL);
  pthread_cond_init(&k->changed, NULL);
  k->started = !pthread_create(&k->writer, NULL, write_files, k);
  if (!k->started) warning("--keep-in %s: no thread could be made: files are written at the end", k->folder);
}

// What a server left that was ended while it wrote.
static void remove_part(const char *path, const char *file) {
  size_t n = strlen(file);
  if (strstr(file, suffix) && n > 5 && !strcmp(file + n - 5, ".part")) unlink(path);
}

static void add_kept(keep *k, const char *path) {
  struct kept new = {0};
  weft_error err;
  int32_t *ids;
  size_t n;
  if (weft_sequence_tokens(k->m, path, &ids, &new.whole, &n, &err)) { warning("%s", err.text); return; }
  new.path = xstrdup(path);
  for (size_t i = 0; i < n; i++) vec_push(&new.ids, ids[i]);
  vec_push(&k->files, new);
  weft_free(ids);
}

void keep_open(keep *k, const char *folder, uint64_t bytes, const char *name, weft_model *m) {
  *k = (keep){.folder = folder, .bytes = bytes, .tag = (uint32_t)hash_bytes(name, strlen(name), 0), .m = m};
  DIR *d = folder ? opendir(folder) : NULL;
  if (!folder) return;
  umask(077);                          // prompts are in these files, and this program writes no others
  if (!d) warning("--keep-in %s: %s: nothing is taken up from there", folder, strerror(errno));
  for (struct dirent *e; d && (e = readdir(d));) {
    str path = {0};
    str_addf(&path, "%s/%s", folder, e->d_name);
    if (is_ours(k, e->d_name)) add_kept(k, str_c(&path));
    else remove_part(str_c(&path), e->d_name);
    str_free(&path);
  }
  if (d) closedir(d);
  start_writer(k);
}

size_t keep_find(const keep *k, const token_ids *prompt, size_t most, size_t *at) {
  size_t best = 0;
  for (size_t i = 0; i < k->files.n; i++) {
    size_t n = (size_t)min_i64((int64_t)alike(prompt, &k->files.at[i].ids), (int64_t)most);
    n = (size_t)k->files.at[i].whole[n];
    if (n <= best) continue;
    best = n;
    *at = i;
  }
  return best;
}

int keep_load(keep *k, size_t at, const token_ids *prompt, size_t n, held *out, weft_error *err) {
  *out = (held){0};
  int status = weft_sequence_load(k->m, prompt->at, n, k->files.at[at].path, &out->sequence, err);
  if (status) return status;
  for (size_t i = 0; i < (size_t)weft_sequence_length(out->sequence); i++) vec_push(&out->past, prompt->at[i]);
  return 0;
}

void keep_drop(keep *k, size_t at) { forget_kept(k, at, true); }

// ---- writing --------------------------------------------------------------------------------------------------------

static void *write_files(void *arg) {
  keep *k = arg;
  setpriority(PRIO_PROCESS, (id_t)gettid(), 19);
  pthread_mutex_lock(&k->lock);
  while (!k->stop) {
    if (k->state != KEEP_WRITES) { pthread_cond_wait(&k->changed, &k->lock); continue; }
    pthread_mutex_unlock(&k->lock);
    double began = now_s();
    k->why.text[0] = 0;
    weft_sequence_save(k->job.sequence, k->job.past.at, k->path, &k->why);
    k->took_s = now_s() - began;
    pthread_mutex_lock(&k->lock);
    k->state = KEEP_WRITTEN;
    pthread_cond_broadcast(&k->changed);
  }
  pthread_mutex_unlock(&k->lock);
  return NULL;
}

// Files of all models, those first that were written first, until no more than k->bytes are left.
static void trim_files(keep *k) {
  for (;;) {
    uint64_t all = 0;
    str oldest = {0};
    struct timespec first = {0};
    DIR *d = opendir(k->folder);
    for (struct dirent *e; d && (e = readdir(d));) {
      struct stat s;
      str path = {0};
      size_t n = strlen(e->d_name), end = sizeof suffix - 1;
      str_addf(&path, "%s/%s", k->folder, e->d_name);
      if (n > end && !strcmp(e->d_name + n - end, suffix) && !stat(str_c(&path), &s)) {
        all += (uint64_t)s.st_size;
        if (!oldest.n || s.st_mtim.tv_sec < first.tv_sec ||
            (s.st_mtim.tv_sec == first.tv_sec && s.st_mtim.tv_nsec < first.tv_nsec)) {
          first = s.st_mtim;
          oldest.n = 0;
          str_add(&oldest, str_c(&path));
        }
      }
      str_free(&path);
    }
    if (d) closedir(d);
    bool fits = all <= k->bytes || !oldest.n;
    size_t i = 0;
    while (!fits && i < k->files.n && strcmp(k->files.at[i].path, oldest.at)) i++;
    if (!fits && i < k->files.n) forget_kept(k, i, true);
    else if (!fits && unlink(oldest.at)) fits = true;
    str_free(&oldest);
    if (fits) return;
  }
}

// These tokens are in this file now.
static void add_written(keep *k, char *path, const token_ids *ids) {
  for (size_t i = k->files.n; i-- > 0;)
    if (alike(ids, &k->files.at[i].ids) == k->files.at[i].ids.n)
      forget_kept(k, i, strcmp(k->files.at[i].path, path) != 0);
  add_kept(k, path);
  free(path);
  trim_files(k);
}

static bool is_kept(const keep *k, const token_ids *ids) {
  for (size_t i = 0; i < k->files.n; i++) if (alike(ids, &k->files.at[i].ids) == ids->n) return true;
  return false;
}

static char *path_for(const keep *k, const token_ids *ids) {
  str path = {0};
  str_addf(&path, "%s/%08x-%016llx%s", k->folder, k->tag,
           (unsigned long long)hash_bytes(ids->at, ids->n * sizeof *ids->at, 0), suffix);
  return path.at;
}

bool keep_busy(keep *k) { return k->started && k->state != KEEP_FREE; }

void keep_collect(keep *k) {
  if (!keep_busy(k)) return;
  pthread_mutex_lock(&k->lock);
  bool done = k->state == KEEP_WRITTEN;
  pthread_mutex_unlock(&k->lock);
  if (!done) return;
  if (k->why.text[0]) { warning("%s", k->why.text); free(k->path); }
  else add_written(k, k->path, &k->job.past);
  held_free(&k->job);
  k->not_before = now_s() + 4 * k->took_s;
  k->state = KEEP_FREE;
}

static bool needs_none(const keep *k, const held *h) { return h->past.n < LEAST || is_kept(k, &h->past); }

void keep_offer(keep *k, held *h) {
  weft_error err;
  if (h->kept || !k->started || keep_busy(k) || now_s() < k->not_before) return;
  h->kept = true;
  if (needs_none(k, h) || weft_sequence_fork(h->sequence, (int)h->past.n, &k->job.sequence, &err)) return;
  for (size_t i = 0; i < h->past.n; i++) vec_push(&k->job.past, h->past.at[i]);
  k->path = path_for(k, &h->past);
  pthread_mutex_lock(&k->lock);
  k->state = KEEP_WRITES;
  pthread_cond_broadcast(&k->changed);
  pthread_mutex_unlock(&k->lock);
}

void keep_finish(keep *k, held *h) {
  weft_error err;
  if (!k->folder || h->kept || needs_none(k, h)) return;
  char *path = path_for(k, &h->past);
  if (!weft_sequence_save(h->sequence, h->past.at, path, &err)) { add_written(k, path, &h->past); return; }
  warning("%s", err.text);
  free(path);
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
    pthread_mutex_destroy(&k->lock);
    pthread_cond_destroy(&k->changed);
    k->started = false;
  }
  while (k->files.n) forget_kept(k, 0, false);
  vec_free(&k->files);
}
