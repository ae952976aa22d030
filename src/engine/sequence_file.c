// Sequences in files: what the caches hold of one, for a later process with the same model. See caches.h.
//
// A file is a head, the tokens, and then page by page what each state has of it (those of windows from a page on); of
// models with fixed states also those. Numbers are this machine's. Behind each of these parts stands its hash, and a
// file is written whole or not at all, so that a damaged one is known by the part that is.
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

enum { VERSION = 2, SAMPLE = 64 };
static const char magic[8] = "WEFTSEQ";

typedef struct head {
  char magic[8];
  uint32_t version, page;        // positions of a page
  uint64_t model;                // sequence_model
  uint64_t page_bytes[MODEL_GROUPS], fixed_bytes;
  uint32_t n, least;             // positions; see sequence_least
  uint32_t from[MODEL_GROUPS];   // see held_pages
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

static head make_head(const caches *c, uint64_t of) {
  head h = {.version = VERSION, .page = CACHE_PAGE, .model = of, .fixed_bytes = caches_bytes(c->m, 0)};
  memcpy(h.magic, magic, sizeof magic);
  memcpy(h.page_bytes, c->page_bytes, sizeof h.page_bytes);
  return h;
}

static unsigned char *room_for_piece(const head *h) {
  uint64_t most = h->fixed_bytes;
  for (int g = 0; g < MODEL_GROUPS; g++) if (h->page_bytes[g] > most) most = h->page_bytes[g];
  return malloc(most + 1);
}

// ---- writing --------------------------------------------------------------------------------------------------------

static int add_checked(newfile *f, const void *at, size_t n, error *err) {
  uint64_t sum = hash_bytes(at, n, VERSION);
  return newfile_add(f, at, n, err) || newfile_add(f, &sum, sizeof sum, err) ? -1 : 0;
}

// The pieces that all states of a group have of a page, or those with fixed states of a slot, one behind the other
static void gather_pieces(const caches *c, int group, int number, unsigned char *to) {
  for (int i = 0; i < model_n_states(c->m); i++) {
    if (!caches_is_of(c, i, group)) continue;
    uint64_t n = caches_piece(c, i);
    device_read(c->of[i], to, caches_at(c, i, number), n);
    to += n;
  }
}

static int write_sequence(const sequence *q, const int32_t *ids, const head *h, newfile *f, error *err) {
  unsigned char *piece = room_for_piece(h);
  if (!piece) return error_set(err, "no memory for a page of a sequence");
  int status = add_checked(f, h, sizeof *h, err) || add_checked(f, ids, h->n * sizeof *ids, err),
      groups = model_n_groups(q->of->m);
  for (size_t i = 0; i < groups * caches_n_pages((int)h->n) && !status; i++) {
    int g = (int)i % groups;
    if (i / groups < h->from[g] / CACHE_PAGE) continue;
    gather_pieces(q->of, g, q->group[g].list.at[i / groups], piece);
    status = add_checked(f, piece, h->page_bytes[g], err);
  }
  if (!status && h->fixed_bytes) {
    gather_pieces(q->of, CACHE_FIXED, q->slot, piece);
    status = add_checked(f, piece, h->fixed_bytes, err);
  }
  free(piece);
  return status ? -1 : 0;
}

int sequence_save(const sequence *q, const int32_t *ids, uint64_t of, const char *path, error *err) {
  head h = make_head(q->of, of);
  newfile *f;
  if (!sequence_is_whole(q, q->n))
    return error_set(err, "%s: what layers hold of this sequence is not that of its last position, %d", path, q->n);
  h.n = (uint32_t)q->n;
  h.least = (uint32_t)sequence_least(q);
  for (int g = 0; g < MODEL_GROUPS && q->n; g++) h.from[g] = (uint32_t)q->group[g].from;
  if (newfile_open(path, &f, err)) return -1;
  if (!write_sequence(q, ids, &h, f, err)) return newfile_commit(f, err);
  newfile_discard(f);
  return -1;
}

// ---- reading --------------------------------------------------------------------------------------------------------

typedef struct reading { FILE *f; const char *path; error *err; } reading;

enum { BAD_FILE = -2 };                // and -1: something else failed

static int bad_file(const reading *r, const char *fmt, ...) PRINTF_LIKE(2, 3);
static int bad_file(const reading *r, const char *fmt, ...) {
  va_list ap;
  char text[300];
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  error_set(r->err, "%s: %s", r->path, text);
  return BAD_FILE;
}

static int get_checked(const reading *r, void *to, size_t n, const char *what, size_t number) {
  uint64_t sum;
  if (fread(to, 1, n, r->f) != n || fread(&sum, 1, sizeof sum, r->f) != sizeof sum)
    return bad_file(r, "ends in the middle of %s %zu", what, number);
  if (sum == hash_bytes(to, n, VERSION)) return 0;
  return bad_file(r, "damaged: %s %zu is not what was written", what, number);
}

static void scatter(caches *c, int group, int number, const unsigned char *from) {
  for (int i = 0; i < model_n_states(c->m); i++) {
    if (!caches_is_of(c, i, group)) continue;
    uint64_t n = caches_piece(c, i);
    device_write(c->of[i], caches_at(c, i, number), from, n);
    from += n;
  }
}

static int check_head(const reading *r, const head *h, const head *ours, int most) {
  if (memcmp(h->magic, magic, sizeof magic)) return bad_file(r, "is no file of a sequence");
  if (h->version != VERSION) return bad_file(r, "is of version %u; this program reads version %d", h->version, VERSION);
  if (h->model != ours->model || h->page != ours->page ||
      memcmp(h->page_bytes, ours->page_bytes, sizeof h->page_bytes) || h->fixed_bytes != ours->fixed_bytes)
    return bad_file(r, "is of another model, or of other settings of it");
  if (h->n > (uint32_t)most) return bad_file(r, "has %u positions, beyond the context of %d", h->n, most);
  for (int g = 0; g < MODEL_GROUPS; g++)
    if (h->from[g] > h->n || h->from[g] % CACHE_PAGE)
      return bad_file(r, "has pages from %u of %u on", h->from[g], h->n);
  return 0;
}

// Opens r->path, and reads its head and tokens.
static int read_beginning(reading *r, const caches *c, int most, uint64_t of, head *h, int32_t **ids) {
  struct stat s;
  head ours = make_head(c, of);
  *ids = NULL;
  r->f = fopen(r->path, "rb");
  if (!r->f) return bad_file(r, "%s", strerror(errno));
  if (fstat(fileno(r->f), &s) || !S_ISREG(s.st_mode) || s.st_size < (off_t)sizeof *h)
    return bad_file(r, "is no file of a sequence");
  int status = get_checked(r, h, sizeof *h, "head", 0);
  if (!status) status = check_head(r, h, &ours, most);
  if (status) return status;
  *ids = malloc(h->n * sizeof **ids + 1);
  if (!*ids) return error_set(r->err, "%s: no memory for %u tokens", r->path, h->n);
  return get_checked(r, *ids, h->n * sizeof **ids, "list of tokens", 0);
}

static int read_pages(const reading *r, caches *c, const head *h, const int32_t *theirs, size_t same, sequence **out) {
  unsigned char *piece = room_for_piece(h);
  sequence *q = NULL;
  int groups = model_n_groups(c->m);
  int status = piece ? sequence_new(c, &q, r->err) : error_set(r->err, "%s: no memory for a page of it", r->path);
  for (int g = 0; g < groups && same && !status; g++) {
    q->group[g].from = (int)h->from[g];
    status = sequence_hold_group(q, g, (int)h->from[g], (int)same, r->err);
  }
  for (size_t i = 0; i < groups * caches_n_pages((int)same) && !status; i++) {
    int g = (int)i % groups;
    if (i / groups < h->from[g] / CACHE_PAGE) continue;
    status = get_checked(r, piece, h->page_bytes[g], "page", i / groups);
    if (!status) scatter(c, g, q->group[g].list.at[i / groups], piece);
  }
  if (!status && same && h->fixed_bytes) {
    status = get_checked(r, piece, h->fixed_bytes, "state", 0);
    if (!status) scatter(c, CACHE_FIXED, q->slot, piece);
  }
  free(piece);
  if (status) { sequence_free(q); return status; }
  q->n = (int)same;
  if (model_is_recurrent(c->m)) q->at = same ? (int)same : -1;
  for (size_t i = 0; i < same && caches_keep_ids(c); i++) vec_push(&q->ids, theirs[i]);
  *out = q;
  return 0;
}

int sequence_load(caches *c, const int32_t *ids, size_t n, int most, uint64_t of, const char *path, sequence **out,
                  error *err) {
  head h;
  int32_t *theirs;
  size_t same = 0;
  reading r = {.path = path, .err = err};
  int status = read_beginning(&r, c, most, of, &h, &theirs);
  while (!status && same < n && same < h.n && theirs[same] == ids[same]) same++;
  if (!status && same < h.least) same = 0;
  if (!status) status = read_pages(&r, c, &h, theirs, same, out);
  free(theirs);
  if (r.f) fclose(r.f);
  return status;
}

int sequence_tokens(const caches *c, int most, uint64_t of, const char *path, int32_t **ids, size_t *n, size_t *least,
                    error *err) {
  head h;
  reading r = {.path = path, .err = err};
  int status = read_beginning(&r, c, most, of, &h, ids);
  if (r.f) fclose(r.f);
  if (status) { free(*ids); return status; }
  *n = h.n;
  *least = h.least;
  return 0;
}
