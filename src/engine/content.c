// Computes names of models: see content.h.
#define _GNU_SOURCE
#include "engine/content.h"
#include "base/os.h"
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "device/cache.h"
#include "device/entry_kinds.h"

enum { PIECE = 1 << 20 };

struct content {
  const gguf *file;
  const model *m;
  char *options;
  cache *cache;
  pthread_mutex_t lock;                // for all fields below
  pthread_cond_t changed;
  pthread_t reader;
  bool started, stop;                  // started: the thread must be joined
  enum { NOT_ASKED, READING, KNOWN, LOST } state;
  stamp *at;                           // for each file: the stamp for which its digest is valid
  char (*digests)[CONTENT_NAME];       // of each file; empty: unknown
  char name[CONTENT_NAME];             // empty: unknown
  uint64_t read, all;                  // bytes
  error why;                           // LOST
};

content *content_new(const gguf *file, const model *m, const char *options, cache *c) {
  content *x = xcalloc(1, sizeof *x);
  size_t n = gguf_n_shards(file);
  *x = (content){.file = file,
                 .m = m,
                 .options = xstrdup(options),
                 .cache = c,
                 .at = xcalloc(n, sizeof *x->at),
                 .digests = xcalloc(n, sizeof *x->digests),
                 .all = gguf_file_bytes(file)};
  for (size_t i = 0; i < n; i++) x->at[i] = gguf_shard_at(file, i)->stamp;
  pthread_mutex_init(&x->lock, NULL);
  os_cond_init(&x->changed);
  return x;
}

void content_free(content *c) {
  if (!c) return;
  pthread_mutex_lock(&c->lock);
  c->stop = true;
  pthread_cond_broadcast(&c->changed);
  pthread_mutex_unlock(&c->lock);
  if (c->started) pthread_join(c->reader, NULL);
  pthread_mutex_destroy(&c->lock);
  pthread_cond_destroy(&c->changed);
  free(c->options);
  free(c->at);
  free(c->digests);
  free(c);
}

// ---- digests of files -----------------------------------------------------------------------------------------------

static void digest_key(const stamp *s, str *key) {
  entry_key_begin(ENTRY_CONTENT, key);
  str_addf(key, "%llx %llu %llu %lld %lld\n", (unsigned long long)s->device, (unsigned long long)s->inode,
           (unsigned long long)s->size, (long long)s->mtime_ns, (long long)s->ctime_ns);
}

static bool get_digest(const content *c, const stamp *s, char digest[CONTENT_NAME]) {
  str key = {0};
  bytes hit = {0};
  digest_key(s, &key);
  bool found = c->cache && cache_get(c->cache, key.at, key.n, &hit) && hit.n == CONTENT_NAME - 1;
  if (found) memcpy(digest, hit.at, hit.n);
  digest[found ? CONTENT_NAME - 1 : 0] = 0;
  bytes_free(&hit);
  str_free(&key);
  return found;
}

static void put_digest(const content *c, const stamp *s, const char *digest) {
  str key = {0};
  if (!c->cache) return;
  digest_key(s, &key);
  cache_put(c->cache, key.at, key.n, digest, CONTENT_NAME - 1);
  cache_flush(c->cache);
  str_free(&key);
}

static bool stopped(content *c) {
  pthread_mutex_lock(&c->lock);
  bool stop = c->stop;
  pthread_mutex_unlock(&c->lock);
  return stop;
}

// Waits until no later change can have this stamp. False: the stamp never settles, or the content is being freed.
static bool wait_to_settle(content *c, const stamp *s) {
  int64_t ns = stamp_settles_ns(s);
  double until = now_s() + (double)ns * 1e-9;
  pthread_mutex_lock(&c->lock);
  while (ns > 0 && !c->stop && os_cond_wait_until(&c->changed, &c->lock, until)) continue;
  pthread_mutex_unlock(&c->lock);
  return !stamp_settles_ns(s);
}

static int sum_file(content *c, size_t i, uint64_t size, char digest[CONTENT_NAME], error *err) {
  sha256 s;
  unsigned char *piece = xmalloc(PIECE);
  int status = 0;
  sha256_begin(&s);
  for (uint64_t at = 0; at < size && !status; at += PIECE) {
    size_t n = size - at < PIECE ? (size_t)(size - at) : PIECE;
    status = stopped(c) ? error_set(err, "ended") : gguf_read(c->file, i, at, piece, n, err);
    sha256_add(&s, piece, status ? 0 : n);
    pthread_mutex_lock(&c->lock);
    c->read += n;
    pthread_mutex_unlock(&c->lock);
  }
  sha256_end(&s, digest);
  free(piece);
  return status;
}

static int was_written(const content *c, size_t i, error *err) {
  return error_set(err, "%s: was changed while it was in use: nothing is kept of what is evaluated with it until the "
                   "model is loaded again", gguf_shard_at(c->file, i)->path);
}

// The digest of a file, and the stamp that was valid throughout. first: no digest was known, so the file must be
// unchanged since the model was loaded.
static int digest_file(content *c, size_t i, stamp *at, char digest[CONTENT_NAME], error *err) {
  bool first = !*c->digests[i];
  for (;;) {
    stamp before, after;
    if (gguf_stamp(c->file, i, &before, err)) return -1;
    enum stamp_change change = stamp_compare(&c->at[i], &before);
    if (change == STAMP_WRITTEN || (change && first)) return was_written(c, i, err);
    *at = before;
    if (!first && !change) { memcpy(digest, c->digests[i], CONTENT_NAME); return 0; }
    if (get_digest(c, &before, digest)) return 0;
    bool settled = wait_to_settle(c, &before);
    if (sum_file(c, i, before.size, digest, err) || gguf_stamp(c->file, i, &after, err)) return -1;
    change = stamp_compare(&before, &after);
    if (!change && settled) put_digest(c, &before, digest);
    if (!change) return 0;
    if (change == STAMP_WRITTEN) return was_written(c, i, err);
  }
}

// ---- the name -------------------------------------------------------------------------------------------------------

static void make_name(const content *c, char name[CONTENT_NAME]) {
  sha256 s;
  sha256_begin(&s);
  sha256_add(&s, c->options, strlen(c->options) + 1);
  for (size_t i = 0; i < gguf_n_shards(c->file); i++) sha256_add(&s, c->digests[i], CONTENT_NAME);
  model_digest_adapters(c->m, &s);
  model_digest_control(c->m, &s);
  sha256_end(&s, name);
}

// Records the digest of file i. If another digest was known, the file was modified while the model uses it.
static int take_digest(content *c, size_t i, const stamp *at, const char *digest, error *err) {
  bool same = !*c->digests[i] || !strcmp(c->digests[i], digest);
  c->at[i] = *at;
  memcpy(c->digests[i], digest, CONTENT_NAME);
  return same ? 0 : was_written(c, i, err);
}

static void *read_files(void *arg) {
  content *c = arg;
  error err = {0};
  int status = 0;
  os_thread_nice(0, 19);
  for (size_t i = 0; i < gguf_n_shards(c->file) && !status; i++) {
    stamp at;
    char digest[CONTENT_NAME];
    status = digest_file(c, i, &at, digest, &err);
    pthread_mutex_lock(&c->lock);
    if (!status) status = take_digest(c, i, &at, digest, &err);
    pthread_mutex_unlock(&c->lock);
  }
  if (!status && !*c->name) make_name(c, c->name);
  pthread_mutex_lock(&c->lock);
  c->state = status ? LOST : KNOWN;
  c->why = err;
  pthread_cond_broadcast(&c->changed);
  pthread_mutex_unlock(&c->lock);
  return NULL;
}

// The caller of the following functions holds the lock.

static void begin_reading(content *c) {
  if (c->started) pthread_join(c->reader, NULL);
  c->read = 0;
  c->state = READING;
  c->started = !pthread_create(&c->reader, NULL, read_files, c);
  if (c->started) return;
  c->state = LOST;
  error_set(&c->why, "%s: no thread could be made that reads it", gguf_path(c->file));
}

// At the first request: if the cache knows the digests of all files, no thread is needed.
static void ask_first(content *c) {
  bool all = true;
  for (size_t i = 0; i < gguf_n_shards(c->file); i++) {
    stamp now;
    error none = {0};
    all = all && !gguf_stamp(c->file, i, &now, &none) && !stamp_compare(&c->at[i], &now) &&
          get_digest(c, &now, c->digests[i]);
  }
  if (all) make_name(c, c->name);
  if (all) c->state = KNOWN;
  else begin_reading(c);
}

// Checks whether the files have changed since their digests were computed.
static void see_changes(content *c) {
  for (size_t i = 0; i < gguf_n_shards(c->file); i++) {
    stamp now;
    if (gguf_stamp(c->file, i, &now, &c->why)) { c->state = LOST; return; }
    enum stamp_change change = stamp_compare(&c->at[i], &now);
    if (change == STAMP_WRITTEN) {
      c->state = LOST;
      was_written(c, i, &c->why);
      return;
    }
    if (change) { begin_reading(c); return; }
  }
}

int content_name(content *c, double wait_s, char name[CONTENT_NAME], double *done, error *err) {
  double until = wait_s < 0 ? INFINITY : now_s() + wait_s;
  pthread_mutex_lock(&c->lock);
  if (c->state == NOT_ASKED) ask_first(c);
  if (c->state == KNOWN) see_changes(c);
  while (c->state == READING && wait_s != 0 && os_cond_wait_until(&c->changed, &c->lock, until)) continue;
  int status = c->state == KNOWN ? 0 : c->state == READING ? 1 : -1;
  if (!status) memcpy(name, c->name, CONTENT_NAME);
  if (status < 0) error_set(err, "%s", c->why.text);
  if (done) *done = status ? (c->all ? (double)c->read / (double)c->all : 0) : 1;
  pthread_mutex_unlock(&c->lock);
  return status;
}

// ---- a quick name ---------------------------------------------------------------------------------------------------

static int add_sample(const gguf *file, size_t shard, unsigned char *piece, sha256 *s, error *err) {
  const gguf_shard *f = gguf_shard_at(file, shard);
  uint64_t whole = f->size <= CONTENT_WHOLE ? f->size : f->data_offset;
  sha256_add(s, &f->size, sizeof f->size);
  for (uint64_t at = 0; at < f->size; at += at < whole ? PIECE : CONTENT_APART) {
    size_t n = (size_t)min_i64((int64_t)(f->size - at), at < whole ? PIECE : CONTENT_SAMPLE);
    if (gguf_read(file, shard, at, piece, n, err)) return -1;
    sha256_add(s, piece, n);
  }
  return 0;
}

int content_sample(const gguf *file, const model *m, char name[CONTENT_NAME], error *err) {
  sha256 s;
  unsigned char *piece = xmalloc(PIECE);
  int status = 0;
  sha256_begin(&s);
  for (size_t i = 0; i < gguf_n_shards(file) && !status; i++) status = add_sample(file, i, piece, &s, err);
  model_digest_adapters(m, &s);
  model_digest_control(m, &s);
  sha256_end(&s, name);
  free(piece);
  return status;
}
