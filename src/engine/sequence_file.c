// Sequences in files: what the caches hold of one, for a later process with the same model. See caches.h.
//
// A file is a head, the tokens, the marks, which pages there are (windows have given some back), and then page by page
// what each state has of it; of models with fixed states also those. Numbers are this machine's. Behind each of these
// parts stands its hash, and a file is written whole or not at all, so that a damaged one is known by the part that is.
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
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

enum { VERSION = 3, SAMPLE = 64 };
static const char magic[8] = "WEFTSEQ";

typedef struct head {
  char magic[8];
  uint32_t version, page;        // positions of a page
  uint64_t model;                // sequence_model
  uint64_t page_bytes[MODEL_GROUPS], fixed_bytes;
  uint32_t n, n_marks;           // positions
} head;

// What a file has of a sequence beside what states hold. there: of each page, one byte a group.
typedef struct outline { head h; int32_t *ids; mark *marks; unsigned char *there; } outline;

static void outline_free(outline *o) { free(o->ids); free(o->marks); free(o->there); }
static size_t n_there(const caches *c, const head *h) {
  return (size_t)model_n_groups(c->m) * caches_n_pages((int)h->n);
}

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

static int write_sequence(const sequence *q, const outline *o, newfile *f, error *err) {
  const head *h = &o->h;
  unsigned char *piece = room_for_piece(h);
  size_t groups = (size_t)model_n_groups(q->of->m), n = n_there(q->of, h);
  if (!piece) return error_set(err, "no memory for a page of a sequence");
  int status = add_checked(f, h, sizeof *h, err) || add_checked(f, o->ids, h->n * sizeof *o->ids, err) ||
               add_checked(f, o->marks, h->n_marks * sizeof *o->marks, err) || add_checked(f, o->there, n, err);
  for (size_t i = 0; i < n && !status; i++) {
    int g = (int)(i % groups);
    if (!o->there[i]) continue;
    gather_pieces(q->of, g, q->group[g].at[i / groups], piece);
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
  outline o = {.h = make_head(q->of, of)};
  size_t groups = (size_t)model_n_groups(q->of->m);
  newfile *f;
  if (!sequence_is_whole(q, q->n))
    return error_set(err, "%s: what layers hold of this sequence is not that of its last position, %d", path, q->n);
  if (newfile_open(path, &f, err)) return -1;
  o.h.n = (uint32_t)q->n;
  while (o.h.n_marks < q->marks.n && q->marks.at[o.h.n_marks].n <= q->n) o.h.n_marks++;
  o.ids = xcalloc(o.h.n + 1, sizeof *o.ids);
  o.marks = xcalloc(o.h.n_marks + 1, sizeof *o.marks);
  o.there = xcalloc(n_there(q->of, &o.h) + 1, sizeof *o.there);
  if (q->n) memcpy(o.ids, ids, o.h.n * sizeof *ids);
  for (size_t i = 0; i < o.h.n_marks; i++) o.marks[i] = q->marks.at[i];
  for (size_t i = 0; i < n_there(q->of, &o.h); i++) o.there[i] = caches_has_page(&q->group[i % groups], i / groups);
  int status = write_sequence(q, &o, f, err);
  outline_free(&o);
  if (!status) return newfile_commit(f, err);
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
  if (h->n_marks > h->n) return bad_file(r, "has %u marks in %u positions", h->n_marks, h->n);
  return 0;
}

// A part of n bytes, for free
static int get_part(const reading *r, void *to, size_t n, const char *what) {
  void **at = to;
  *at = malloc(n + 1);
  return *at ? get_checked(r, *at, n, what, 0) : error_set(r->err, "%s: no memory for its %s", r->path, what);
}

// Opens r->path, and reads all but what states hold.
static int read_beginning(reading *r, const caches *c, int most, uint64_t of, outline *o) {
  struct stat s;
  head ours = make_head(c, of), *h = &o->h;
  *o = (outline){0};
  r->f = fopen(r->path, "rb");
  if (!r->f) return bad_file(r, "%s", strerror(errno));
  if (fstat(fileno(r->f), &s) || !S_ISREG(s.st_mode) || s.st_size < (off_t)sizeof *h)
    return bad_file(r, "is no file of a sequence");
  int status = get_checked(r, h, sizeof *h, "head", 0);
  if (!status) status = check_head(r, h, &ours, most);
  if (!status) status = get_part(r, &o->ids, h->n * sizeof *o->ids, "list of tokens");
  if (!status) status = get_part(r, &o->marks, h->n_marks * sizeof *o->marks, "list of marks");
  if (!status) status = get_part(r, &o->there, n_there(c, h), "list of pages");
  return status;
}

// How many positions, n at most, of a sequence with these pages are whole: *whole, or (all) of each number up to n.
static void wholes(caches *c, const outline *o, size_t n, bool all, int32_t *whole) {
  size_t groups = (size_t)model_n_groups(c->m);
  sequence q = {.of = c, .n = (int)o->h.n, .at = (int)o->h.n, .filled = INT_MAX};
  for (size_t i = 0; i < n_there(c, &o->h); i++) vec_push(&q.group[i % groups], o->there[i] ? 0 : NO_PAGE);
  for (size_t i = all ? 0 : n; i <= n; i++) whole[all ? i : 0] = sequence_whole(&q, (int)i);
  for (size_t g = 0; g < groups; g++) vec_free(&q.group[g]);
}

static int read_pages(const reading *r, caches *c, const outline *o, size_t same, sequence **out) {
  const head *h = &o->h;
  unsigned char *piece = room_for_piece(h);
  sequence *q = NULL;
  size_t groups = (size_t)model_n_groups(c->m), n = groups * caches_n_pages((int)same);
  int status = piece ? sequence_new(c, &q, r->err) : error_set(r->err, "%s: no memory for a page of it", r->path);
  for (size_t i = 0; i < n && !status; i++) {
    int g = (int)(i % groups), at = (int)(i / groups) * CACHE_PAGE;
    if (!o->there[i]) continue;
    status = sequence_hold_group(q, g, at, at + 1, r->err);
    if (!status) status = get_checked(r, piece, h->page_bytes[g], "page", i / groups);
    if (!status) scatter(c, g, q->group[g].at[i / groups], piece);
  }
  if (!status && same && h->fixed_bytes) {
    status = get_checked(r, piece, h->fixed_bytes, "state", 0);
    if (!status) scatter(c, CACHE_FIXED, q->slot, piece);
  }
  free(piece);
  if (status) { sequence_free(q); return status; }
  q->n = (int)same;
  if (model_is_recurrent(c->m)) q->at = same ? (int)same : -1;
  for (size_t i = 0; i < same && caches_keep_ids(c); i++) vec_push(&q->ids, o->ids[i]);
  for (size_t i = 0; i < h->n_marks && o->marks[i].n <= (int)same; i++) vec_push(&q->marks, o->marks[i]);
  *out = q;
  return 0;
}

int sequence_load(caches *c, const int32_t *ids, size_t n, int most, uint64_t of, const char *path, sequence **out,
                  error *err) {
  outline o;
  size_t same = 0;
  int32_t whole = 0;
  reading r = {.path = path, .err = err};
  int status = read_beginning(&r, c, most, of, &o);
  while (!status && same < n && same < o.h.n && o.ids[same] == ids[same]) same++;
  if (!status) wholes(c, &o, same, false, &whole);
  if (!status) status = read_pages(&r, c, &o, (size_t)whole, out);
  outline_free(&o);
  if (r.f) fclose(r.f);
  return status;
}

int sequence_tokens(caches *c, int most, uint64_t of, const char *path, int32_t **ids, int32_t **whole, size_t *n,
                    error *err) {
  outline o;
  reading r = {.path = path, .err = err};
  int status = read_beginning(&r, c, most, of, &o);
  if (r.f) fclose(r.f);
  if (status) { outline_free(&o); return status; }
  *n = o.h.n;
  *whole = xcalloc(*n + 1, sizeof **whole);
  wholes(c, &o, *n, true, *whole);
  *ids = o.ids;
  o.ids = NULL;
  outline_free(&o);
  return 0;
}
