// Sequences in files: what the caches hold of one, for a later process with the same model. See caches.h.
//
// A file is a head, the tokens, and then page by page what each state has of it; of models with fixed states also
// those. Numbers are this machine's. Behind each of these parts stands its hash, and a file is written whole or not at
// all, so that a damaged one is known by the part that is.
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/newfile.h"
#include "device/device.h"
#include "engine/caches.h"
#include "engine/engine.h"
#include "weft.h"

enum { VERSION = 1, SAMPLE = 64 };
static const char magic[8] = "WEFTSEQ";

typedef struct head {
  char magic[8];
  uint32_t version, page;        // positions of a page
  uint64_t model;                // sequence_model
  uint64_t page_bytes, fixed_bytes;
  uint32_t n, reserved;          // positions
} head;

uint64_t sequence_model(const gguf *file, const struct engine_options *o, int variant) {
  const char *version = weft_version();
  uint64_t h = hash_bytes(version, strlen(version), VERSION);
  for (size_t i = 0; i < gguf_n_shards(file); i++) {
    const gguf_shard *s = gguf_shard_at(file, i);
    h = hash_bytes(s->map, s->data_offset, h ^ s->size);
  }
  for (size_t i = 0; i < gguf_n_tensors(file); i++) {
    const gguf_tensor *t = gguf_tensor_at(file, i);
    size_t n = t->nbytes < SAMPLE ? t->nbytes : SAMPLE;
    h = hash_bytes((const char *)t->data + (t->nbytes - n) / 2, n, h);
  }
  for (size_t i = 0; i < o->n_settings; i++) h = hash_bytes(o->settings[i], strlen(o->settings[i]) + 1, h);
  for (size_t i = 0; i < o->n_adapters; i++) {
    h = hash_bytes(o->adapters[i].path, strlen(o->adapters[i].path) + 1, h);
    h = hash_bytes(&o->adapters[i].scale, sizeof o->adapters[i].scale, h);
  }
  return hash_bytes(&(int[]){o->exact, o->kv.keys, o->kv.values, variant}, 4 * sizeof(int), h);
}

static head head_of(const caches *c, uint64_t of, int n) {
  uint64_t fixed = caches_bytes(c->m, 0);
  head h = {.version = VERSION,
            .page = CACHE_PAGE,
            .model = of,
            .page_bytes = caches_bytes(c->m, CACHE_PAGE) - fixed,
            .fixed_bytes = fixed,
            .n = (uint32_t)n};
  memcpy(h.magic, magic, sizeof magic);
  return h;
}

static size_t n_pages(size_t n) { return (n + CACHE_PAGE - 1) / CACHE_PAGE; }

// ---- writing --------------------------------------------------------------------------------------------------------

static int add(newfile *f, const void *at, size_t n, error *err) {
  uint64_t sum = hash_bytes(at, n, VERSION);
  return newfile_add(f, at, n, err) || newfile_add(f, &sum, sizeof sum, err) ? -1 : 0;
}

// All states' pieces of a page or slot, one behind the other
static void gather(const caches *c, bool paged, int number, unsigned char *to) {
  for (int i = 0; i < model_n_states(c->m); i++) {
    if (model_state_is_paged(c->m, i) != paged) continue;
    uint64_t n = caches_piece(c, i);
    device_read(c->of[i], to, caches_at(c, i, number), n);
    to += n;
  }
}

static int save(const sequence *q, const int32_t *ids, const head *h, newfile *f, error *err) {
  unsigned char *piece = malloc(h->page_bytes > h->fixed_bytes ? h->page_bytes : h->fixed_bytes + 1);
  if (!piece) return error_set(err, "no memory for a page of %llu bytes", (unsigned long long)h->page_bytes);
  int status = add(f, h, sizeof *h, err) || add(f, ids, h->n * sizeof *ids, err);
  for (size_t i = 0; i < n_pages(h->n) && !status; i++) {
    gather(q->of, true, q->pages.at[i], piece);
    status = add(f, piece, h->page_bytes, err);
  }
  if (!status && h->fixed_bytes) {
    gather(q->of, false, q->slot, piece);
    status = add(f, piece, h->fixed_bytes, err);
  }
  free(piece);
  return status ? -1 : 0;
}

int sequence_save(const sequence *q, const int32_t *ids, uint64_t of, const char *path, error *err) {
  head h = head_of(q->of, of, q->n);
  newfile *f;
  if (model_is_recurrent(q->of->m) && q->at != q->n)
    return error_set(err, "%s: the states of this sequence are those of another position than its last one, %d", path,
                     q->n);
  if (newfile_open(path, &f, err)) return -1;
  if (!save(q, ids, &h, f, err)) return newfile_commit(f, err);
  newfile_discard(f);
  return -1;
}

// ---- reading --------------------------------------------------------------------------------------------------------

typedef struct reading { FILE *f; const char *path; error *err; } reading;

enum { BAD_FILE = -2 };                // and -1: something else failed

static int bad(const reading *r, const char *fmt, ...) PRINTF_LIKE(2, 3);
static int bad(const reading *r, const char *fmt, ...) {
  va_list ap;
  char text[300];
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  error_set(r->err, "%s: %s", r->path, text);
  return BAD_FILE;
}

static int get(const reading *r, void *to, size_t n, const char *what, size_t number) {
  uint64_t sum;
  if (fread(to, 1, n, r->f) != n || fread(&sum, 1, sizeof sum, r->f) != sizeof sum)
    return bad(r, "ends in the middle of %s %zu", what, number);
  if (sum == hash_bytes(to, n, VERSION)) return 0;
  return bad(r, "damaged: %s %zu is not what was written", what, number);
}

static void scatter(caches *c, bool paged, int number, const unsigned char *from) {
  for (int i = 0; i < model_n_states(c->m); i++) {
    if (model_state_is_paged(c->m, i) != paged) continue;
    uint64_t n = caches_piece(c, i);
    device_write(c->of[i], caches_at(c, i, number), from, n);
    from += n;
  }
}

static int check(const reading *r, const head *h, const head *ours, int most) {
  if (memcmp(h->magic, magic, sizeof magic)) return bad(r, "is no file of a sequence");
  if (h->version != VERSION) return bad(r, "is of version %u; this program reads version %d", h->version, VERSION);
  if (h->model != ours->model || h->page != ours->page || h->page_bytes != ours->page_bytes ||
      h->fixed_bytes != ours->fixed_bytes)
    return bad(r, "is of another model, or of other settings of it");
  if (h->n > (uint32_t)most) return bad(r, "has %u positions, beyond the context of %d", h->n, most);
  return 0;
}

// Opens r->path, and reads its head and tokens.
static int begin(reading *r, const caches *c, int most, uint64_t of, head *h, int32_t **ids) {
  struct stat s;
  head ours = head_of(c, of, 0);
  *ids = NULL;
  r->f = fopen(r->path, "rb");
  if (!r->f) return bad(r, "%s", strerror(errno));
  if (fstat(fileno(r->f), &s) || !S_ISREG(s.st_mode) || s.st_size < (off_t)sizeof *h)
    return bad(r, "is no file of a sequence");
  int status = get(r, h, sizeof *h, "head", 0);
  if (!status) status = check(r, h, &ours, most);
  if (status) return status;
  *ids = malloc(h->n * sizeof **ids + 1);
  if (!*ids) return error_set(r->err, "%s: no memory for %u tokens", r->path, h->n);
  return get(r, *ids, h->n * sizeof **ids, "list of tokens", 0);
}

static int load(const reading *r, caches *c, const head *h, const int32_t *theirs, size_t same, sequence **out) {
  unsigned char *piece = malloc(h->page_bytes > h->fixed_bytes ? h->page_bytes : h->fixed_bytes + 1);
  sequence *q = NULL;
  int status = piece ? sequence_new(c, &q, r->err) : error_set(r->err, "%s: no memory for a page of it", r->path);
  if (!status) status = sequence_hold(q, 0, (int)same, r->err);
  for (size_t i = 0; i < n_pages(same) && !status; i++) {
    status = get(r, piece, h->page_bytes, "page", i);
    if (!status) scatter(c, true, q->pages.at[i], piece);
  }
  if (!status && same && h->fixed_bytes) {
    status = get(r, piece, h->fixed_bytes, "state", 0);
    if (!status) scatter(c, false, q->slot, piece);
  }
  free(piece);
  if (status) { sequence_free(q); return status; }
  q->n = (int)same;
  if (model_is_recurrent(c->m)) {
    q->at = same ? (int)same : -1;
    for (size_t i = 0; i < same; i++) vec_push(&q->ids, theirs[i]);
  }
  *out = q;
  return 0;
}

int sequence_load(caches *c, const int32_t *ids, size_t n, int most, uint64_t of, const char *path, sequence **out,
                  error *err) {
  head h;
  int32_t *theirs;
  size_t same = 0;
  reading r = {.path = path, .err = err};
  int status = begin(&r, c, most, of, &h, &theirs);
  while (!status && same < n && same < h.n && theirs[same] == ids[same]) same++;
  if (!status && model_is_recurrent(c->m) && same < h.n) same = 0;
  if (!status) status = load(&r, c, &h, theirs, same, out);
  free(theirs);
  if (r.f) fclose(r.f);
  return status;
}

int sequence_tokens(const caches *c, int most, uint64_t of, const char *path, int32_t **ids, size_t *n, error *err) {
  head h;
  reading r = {.path = path, .err = err};
  int status = begin(&r, c, most, of, &h, ids);
  if (r.f) fclose(r.f);
  if (status) { free(*ids); return status; }
  *n = h.n;
  return 0;
}
