// Saves and loads sequences: what the caches hold, for a later process with the same model. See sequence_file.h.
//
// A file has one record per page, one or more. A record is a header, the tokens of its page, and the layers' data: a
// part for each group whose page is present, and one for fixed states if they belong to the position after the page.
// Numbers are in this machine's byte order. Each part is followed by its hash, and files are written atomically, so
// damage is detected per part.
#define _GNU_SOURCE
#include "engine/sequence_file.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/newfile.h"
#include "base/plain.h"
#include "base/sha256.h"
#include "device/device.h"
#include "device/memory.h"
#include "engine/content.h"
#include "engine/engine.h"
#include "engine/follow.h"
#include "weft.h"

enum { VERSION = 8 };
static const char magic[8] = "WEFTSEQ";

typedef struct head {
  char magic[8];
  uint32_t version, page;        // positions of a page
  char model[CONTENT_NAME - 1];  // content.h
  uint64_t page_bytes[MODEL_GROUPS], fixed_bytes;
  uint32_t number, n;            // pages before it; its tokens
  uint32_t groups, fixed;        // bit set of groups present; are fixed states present?
  uint32_t left, none;           // records after it in this file; 0
  page_name before;
} head;

void sequence_options(const struct engine_options *o, str *out) {
  str_addf(out, "exact %d, keys %d, values %d, %zu settings\n", o->exact, o->kv.keys, o->kv.values, o->n_settings);
  for (size_t i = 0; i < o->n_settings; i++) str_addf(out, "%zu %s\n", strlen(o->settings[i]), o->settings[i]);
}

page_name page_name_first(const char *of) {
  page_name name;
  memcpy(name.at, of, sizeof name.at);
  return name;
}

page_name page_name_next(const page_name *before, const int32_t *ids, size_t n) {
  sha256 s;
  char hex[65];
  page_name name;
  sha256_begin(&s);
  sha256_add(&s, before, sizeof *before);
  sha256_add(&s, ids, n * sizeof *ids);
  sha256_end(&s, hex);
  memcpy(name.at, hex, sizeof name.at);
  return name;
}

static head make_head(const caches *c, const char *of) {
  head h = {.version = VERSION, .page = CACHE_PAGE, .fixed_bytes = caches_bytes(c->m, 0)};
  memcpy(h.magic, magic, sizeof magic);
  memcpy(h.model, of, sizeof h.model);
  memcpy(h.page_bytes, c->page_bytes, sizeof h.page_bytes);
  return h;
}

static unsigned char *room_for_piece(const head *h) {
  uint64_t most = h->fixed_bytes;
  for (int g = 0; g < MODEL_GROUPS; g++) if (h->page_bytes[g] > most) most = h->page_bytes[g];
  return malloc(most + 1);
}

// ---- writing --------------------------------------------------------------------------------------------------------

page_record page_of_sequence(const sequence *q, const int32_t *ids, size_t number) {
  int first = (int)number * CACHE_PAGE, left = q->n - first;
  page_record r = {.number = (uint32_t)number, .n = (uint32_t)(left < CACHE_PAGE ? left : CACHE_PAGE)};
  for (int g = 0; g < model_n_groups(q->of->m); g++)
    if (caches_has_page(&q->group[g], number)) r.groups |= 1u << g;
  r.fixed = model_is_recurrent(q->of->m) && left == (int)r.n && q->n && sequence_is_whole(q, q->n);
  if (r.n) memcpy(r.ids, ids + first, r.n * sizeof *ids);
  for (uint32_t i = 0; i < r.n; i++) r.shift[i] = sequence_shift(q, first + (int)i + 1);
  return r;
}

// Destination of records: a file, or (f NULL) a text.
typedef struct sink { newfile *f; str *text; } sink;

static int sink_put(const sink *to, const void *at, size_t n, error *err) {
  if (to->f) return newfile_add(to->f, at, n, err);
  str_addn(to->text, at, n);
  return 0;
}

static int add_checked(const sink *to, const void *at, size_t n, error *err) {
  uint64_t sum = hash_bytes(at, n, VERSION);
  return sink_put(to, at, n, err) || sink_put(to, &sum, sizeof sum, err) ? -1 : 0;
}

// The data of all states of a group for a page, or of fixed states for a slot, concatenated. Another thread may be
// evaluating: a device of its own memory is held for all states there, since each wait is as long as a run.
static void gather_pieces(const caches *c, int group, int number, unsigned char *to) {
  device *held = NULL;
  follow_read(c, group, number);
  for (int i = 0; i < model_n_states(c->m); i++) {
    if (!caches_is_of(c, i, group)) continue;
    uint64_t n = caches_piece(c, i);
    if (c->of[i] != held) {
      if (held) device_let_go(held);
      device_hold(held = c->of[i]);
    }
    device_read(held, to, caches_at(c, i, number), n);
    if (c->elsewhere[i]) memory_discard(caches_at(c, i, number), n);         // no kernel reads it here
    to += n;
  }
  if (held) device_let_go(held);
}

static int write_record(const sink *f, const sequence *q, const page_record *r, head *h, error *err) {
  h->number = r->number;
  h->n = r->n;
  h->groups = r->groups;
  h->fixed = r->fixed;
  h->before = r->before;
  unsigned char *piece = room_for_piece(h);
  if (!piece) return error_set(err, "no memory for a page of a sequence");
  int status = add_checked(f, h, sizeof *h, err) || add_checked(f, r->ids, r->n * sizeof *r->ids, err) ||
                   add_checked(f, r->shift, r->n * sizeof *r->shift, err)
                 ? -1
                 : 0;
  for (int g = 0; g < model_n_groups(q->of->m) && !status; g++) {
    if (!(r->groups & 1u << g)) continue;
    gather_pieces(q->of, g, q->group[g].at[r->number], piece);
    status = add_checked(f, piece, h->page_bytes[g], err);
  }
  if (!status && r->fixed) {
    gather_pieces(q->of, CACHE_FIXED, q->slot, piece);
    status = add_checked(f, piece, h->fixed_bytes, err);
  }
  free(piece);
  return status;
}

int page_save(const sequence *q, const page_record *r, const char *of, const char *path, error *err) {
  head h = make_head(q->of, of);
  newfile *f;
  if (newfile_open_regular(path, &f, err)) return -1;
  if (!write_record(&(sink){f, NULL}, q, r, &h, err)) return newfile_commit(f, err);
  newfile_discard(f);
  return -1;
}

static int write_records(const sink *to, const sequence *q, const int32_t *ids, const char *of, error *err) {
  head h = make_head(q->of, of);
  size_t n = q->n ? caches_n_pages(q->n) : 1;
  page_name before = page_name_first(of);
  int status = 0;
  for (size_t i = 0; i < n && !status; i++) {
    page_record r = page_of_sequence(q, ids, i);
    r.before = before;
    h.left = (uint32_t)(n - 1 - i);
    status = write_record(to, q, &r, &h, err);
    before = page_name_next(&before, r.ids, r.n);
  }
  return status;
}

// A client may choose the name: only a saved sequence is overwritten.
static int check_replaced(const char *path, error *err) {
  if (newfile_begins(path, magic, sizeof magic) >= 0) return 0;
  error_set(err, "%s: is there, and no saved sequence: it is not replaced; remove it, or take another name", path);
  return BAD_FILE;
}

static int check_whole(const sequence *q, const char *name, error *err) {
  if (caches_check(q->of, err)) return -1;
  if (sequence_is_whole(q, q->n)) return 0;
  return error_set(err, "%s: what layers hold of this sequence is not that of its last position, %d", name, q->n);
}

int sequence_to_memory(const sequence *q, const int32_t *ids, const char *of, str *out, error *err) {
  return check_whole(q, "state", err) || write_records(&(sink){NULL, out}, q, ids, of, err) ? -1 : 0;
}

int sequence_save(const sequence *q, const int32_t *ids, const char *of, const char *path, error *err) {
  newfile *f;
  if (check_whole(q, path, err)) return -1;
  if (check_replaced(path, err)) return BAD_FILE;
  if (newfile_open_regular(path, &f, err)) return -1;
  if (!write_records(&(sink){f, NULL}, q, ids, of, err)) return newfile_commit(f, err);
  newfile_discard(f);
  return -1;
}

// ---- reading --------------------------------------------------------------------------------------------------------

typedef struct reading { FILE *f; const char *path; error *err; } reading;

static int bad_file(const reading *r, const char *fmt, ...) PRINTF_LIKE(2, 3);
static int bad_file(const reading *r, const char *fmt, ...) {
  va_list ap;
  char text[300];
  va_start(ap, fmt);
  plain_vsnprintf(text, sizeof text, fmt, ap);
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

// Opening a pipe would block.
static int open_pages(reading *r) {
  struct stat s;
  int fd = open(r->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  r->f = fd < 0 ? NULL : fdopen(fd, "rb");
  if (!r->f) {
    int why = errno;
    if (fd >= 0) close(fd);
    bad_file(r, "%s", strerror(why));
    return why == ENOENT ? NO_FILE : BAD_FILE;
  }
  if (fstat(fileno(r->f), &s) || !S_ISREG(s.st_mode)) return bad_file(r, "is no file of a sequence");
  return 0;
}

static int open_source(reading *r, const state_source *from) {
  if (!from->bytes) return open_pages(r);
  if (!from->n) return bad_file(r, "is empty");
  r->f = fmemopen((void *)(uintptr_t)from->bytes, from->n, "rb");
  return r->f ? 0 : bad_file(r, "%s", strerror(errno));
}

static int check_head(const reading *r, const caches *c, const head *h, const char *of, int most) {
  head ours = make_head(c, of);
  if (memcmp(h->model, ours.model, sizeof h->model) || h->page != ours.page ||
      memcmp(h->page_bytes, ours.page_bytes, sizeof h->page_bytes) || h->fixed_bytes != ours.fixed_bytes)
    return bad_file(r, "is of another model, or of other settings of it");
  uint64_t end = (uint64_t)h->number * CACHE_PAGE + h->n;
  if (h->n > CACHE_PAGE || (!h->n && h->number)) return bad_file(r, "has a page of %u tokens", h->n);
  if (end + h->left > (uint64_t)most)
    return bad_file(r, "has %llu positions%s, beyond the context of %d", (unsigned long long)end,
                    h->left ? " and more" : "", most);
  if (h->groups >> model_n_groups(c->m) || h->fixed > model_is_recurrent(c->m))
    return bad_file(r, "has parts 0x%x and %u, which this model has not", h->groups, h->fixed);
  return 0;
}

// Reads header and tokens of the next record
static int get_head(const reading *r, const caches *c, const char *of, int most, head *h, page_record *out) {
  uint64_t sum;
  size_t n = fread(h, 1, sizeof *h, r->f);
  if (n && memcmp(h->magic, magic, n < sizeof magic ? n : sizeof magic)) return bad_file(r, "is no file of a sequence");
  if (n == sizeof *h && h->version != VERSION)
    return bad_file(r, "is of version %u; this program reads version %d", h->version, VERSION);
  if (n != sizeof *h || fread(&sum, 1, sizeof sum, r->f) != sizeof sum)
    return bad_file(r, "ends in the middle of a head");
  if (sum != hash_bytes(h, sizeof *h, VERSION)) return bad_file(r, "damaged: a head is not what was written");
  int status = check_head(r, c, h, of, most);
  if (status) return status;
  *out = (page_record){.number = h->number, .n = h->n, .groups = h->groups, .fixed = h->fixed, .before = h->before};
  status = get_checked(r, out->ids, h->n * sizeof *out->ids, "list of tokens", h->number);
  if (!status) status = get_checked(r, out->shift, h->n * sizeof *out->shift, "list of positions", h->number);
  for (uint32_t i = 0; i < h->n && !status; i++)
    if (out->shift[i] > MOST_SHIFT || out->shift[i] < -MOST_SHIFT)
      status = bad_file(r, "has a token %d positions from its place", out->shift[i]);
  return status;
}

static int skip_part(const reading *r, uint64_t n) {
  return fseeko(r->f, (off_t)(n + sizeof(uint64_t)), SEEK_CUR) ? bad_file(r, "%s", strerror(errno)) : 0;
}

static int skip_parts(const reading *r, const head *h) {
  int status = 0;
  for (int g = 0; g < MODEL_GROUPS && !status; g++) if (h->groups & 1u << g) status = skip_part(r, h->page_bytes[g]);
  return !status && h->fixed ? skip_part(r, h->fixed_bytes) : status;
}

static int check_end(const reading *r) {
  return fgetc(r->f) == EOF ? 0 : bad_file(r, "goes on behind its last page");
}

int page_look(const caches *c, int most, const char *of, const char *path, page_record *out, error *err) {
  reading r = {.path = path, .err = err};
  head h;
  int status = open_pages(&r);
  if (!status) status = get_head(&r, c, of, most, &h, out);
  if (!status && h.left) status = bad_file(&r, "has more than one page");
  if (!status) status = skip_parts(&r, &h);
  if (!status) status = check_end(&r);
  if (r.f) fclose(r.f);
  return status;
}

size_t pages_whole(caches *c, const page_record *const *pages, size_t n_pages, size_t n) {
  sequence q = {.of = c, .n = (int)n, .at = -1, .filled = INT_MAX};
  for (size_t i = 0; i < n_pages; i++) {
    size_t end = (size_t)pages[i]->number * CACHE_PAGE + pages[i]->n;
    for (int g = 0; g < model_n_groups(c->m); g++) vec_push(&q.group[g], pages[i]->groups & 1u << g ? 0 : NO_PAGE);
    if (pages[i]->fixed && end <= n) q.at = q.back = (int)end;
  }
  int whole = sequence_whole(&q, (int)n);
  for (int g = 0; g < MODEL_GROUPS; g++) vec_free(&q.group[g]);
  return (size_t)whole;
}

size_t pages_whole_spans(caches *c, const int32_t *ids, size_t n_ids, const page_record *const *pages, size_t n_pages,
                         size_t n) {
  for (size_t cut = n;; cut = n) {
    n = float_rows_cut(ids, pages_whole(c, pages, n_pages, cut), n_ids);
    if (n == cut) return n;
  }
}

// Copies a record's data to q: for windowed layers, what is visible after n positions; fixed states, if the record ends
// there.
static int get_parts(const reading *r, sequence *q, const head *h, size_t n, unsigned char *piece) {
  caches *c = q->of;
  int at = (int)h->number * CACHE_PAGE, status = 0;
  for (int g = 0; g < model_n_groups(c->m) && !status; g++) {
    if (!(h->groups & 1u << g)) continue;
    if (h->number < caches_stay(c, g, (int)n)) { status = skip_part(r, h->page_bytes[g]); continue; }
    status = sequence_hold_group(q, g, at, at + 1, r->err);
    if (!status) status = get_checked(r, piece, h->page_bytes[g], "page", h->number);
    if (!status) caches_write(c, g, q->group[g].at[h->number], piece);
  }
  if (status || !h->fixed) return status;
  if ((size_t)at + h->n != n) return skip_part(r, h->fixed_bytes);
  status = get_checked(r, piece, h->fixed_bytes, "state", h->number);
  if (!status) caches_write(c, CACHE_FIXED, q->slot, piece);
  return status;
}

// Position shifts of a page, for the sequence's n tokens.
static void take_shifts(sequence *q, const page_record *p, size_t n) {
  int at = (int)p->number * CACHE_PAGE;
  for (uint32_t i = 0; i < p->n && (size_t)at < n; i++, at++)
    if (p->shift[i] != sequence_shift(q, at)) vec_push(&q->floats, ((placed_floats){NULL, 0, at, at + 1, p->shift[i]}));
}

// An empty sequence, and memory for a part.
static int begin_loading(caches *c, const char *of, sequence **q, unsigned char **piece, error *err) {
  head ours = make_head(c, of);
  *q = NULL;
  *piece = NULL;
  if (caches_check(c, err)) return -1;
  *piece = room_for_piece(&ours);
  if (!*piece) return error_set(err, "no memory for a page of a sequence");
  return sequence_new(c, q, err);
}

static void end_loading(sequence *q, const int32_t *ids, size_t n, unsigned char *piece) {
  free(piece);
  q->n = q->loaded = (int)n;
  while (q->source < q->n && ids[q->source] < 0) q->source++;
  if (model_is_recurrent(q->of->m)) q->at = q->back = n ? (int)n : -1;
  for (size_t i = 0; i < n && caches_keep_ids(q->of); i++) vec_push(&q->ids, ids[i]);
}

static int load_page(sequence *q, const int32_t *ids, size_t n, const char *path, size_t number, int most,
                     const char *of, unsigned char *piece, error *err) {
  reading r = {.path = path, .err = err};
  size_t at = number * CACHE_PAGE, used = n - at < CACHE_PAGE ? n - at : CACHE_PAGE;
  head h;
  page_record p;
  int status = open_pages(&r);
  if (!status) status = get_head(&r, q->of, of, most, &h, &p);
  if (!status && (h.number != number || h.n < used || memcmp(p.ids, ids + at, used * sizeof *ids)))
    status = bad_file(&r, "is of other tokens than its name says");
  if (!status) take_shifts(q, &p, n);
  if (!status) status = get_parts(&r, q, &h, n, piece);
  if (r.f) fclose(r.f);
  return status;
}

int pages_load(caches *c, const int32_t *ids, size_t n, const char *const *paths, int most, const char *of,
               size_t *failed, sequence **out, error *err) {
  unsigned char *piece;
  sequence *q;
  int status = begin_loading(c, of, &q, &piece, err);
  *failed = 0;
  for (size_t i = 0; i < caches_n_pages((int)n) && !status; i++)
    status = load_page(q, ids, n, paths[*failed = i], i, most, of, piece, err);
  if (status) { free(piece); sequence_free(q); return status; }
  end_loading(q, ids, n, piece);
  *out = q;
  return 0;
}

// ---- all in one file ------------------------------------------------------------------------------------------------

typedef VEC(page_record) page_records;

// The header of record i of a file; the previous one had `left` records after it.
static int get_next_head(const reading *r, const caches *c, int most, const char *of, size_t i, head *h,
                         page_record *p) {
  uint32_t left = h->left;
  int status = get_head(r, c, of, most, h, p);
  if (status) return status;
  if (h->number != i || (i && h->left + 1 != left))
    return bad_file(r, "has page %u at the place of page %zu", h->number, i);
  return h->left && h->n < CACHE_PAGE ? bad_file(r, "has a page of %u tokens before others", h->n) : 0;
}

// Headers of all records up to the first with other tokens: *n tokens are equal.
static int get_heads(const reading *r, const caches *c, const int32_t *ids, int most, const char *of, page_records *all,
                     size_t *n) {
  size_t limit = *n;
  head h = {.left = 1};
  *n = 0;
  for (size_t i = 0; h.left && *n == i * CACHE_PAGE; i++) {
    page_record p;
    int status = get_next_head(r, c, most, of, i, &h, &p);
    if (status) return status;
    for (size_t j = 0; j < p.n && *n < limit && p.ids[j] == ids[*n] && *n == i * CACHE_PAGE + j; j++) ++*n;
    vec_push(all, p);
    status = skip_parts(r, &h);
    if (status) return status;
  }
  return 0;
}

int sequence_tokens(const caches *c, int most, const char *of, const state_source *from, int32_t **ids, size_t *n,
                    error *err) {
  reading r = {.path = from->path, .err = err};
  VEC(int32_t) all = {0};
  head h = {.left = 1};
  int status = open_source(&r, from);
  for (size_t i = 0; h.left && !status; i++) {
    page_record p;
    status = get_next_head(&r, c, most, of, i, &h, &p);
    for (size_t j = 0; j < p.n && !status; j++) vec_push(&all, p.ids[j]);
    if (!status) status = skip_parts(&r, &h);
  }
  if (!status) status = check_end(&r);
  if (r.f) fclose(r.f);
  if (status) { vec_free(&all); return status; }
  *ids = all.at;
  *n = all.n;
  return 0;
}

int sequence_load(caches *c, const int32_t *ids, size_t n, int most, const char *of, const state_source *from,
                  sequence **out, error *err) {
  reading r = {.path = from->path, .err = err};
  page_records all = {0};
  VEC(const page_record *) pages = {0};
  unsigned char *piece = NULL;
  sequence *q = NULL;
  size_t all_ids = n;
  int status = open_source(&r, from);
  if (!status) status = get_heads(&r, c, ids, most, of, &all, &n);
  for (size_t i = 0; i < all.n; i++) vec_push(&pages, &all.at[i]);
  if (!status) n = pages_whole_spans(c, ids, all_ids, pages.at, pages.n, n);
  if (!status) rewind(r.f);
  if (!status) status = begin_loading(c, of, &q, &piece, err);
  for (size_t i = 0; i < caches_n_pages((int)n) && !status; i++) {
    head h;
    page_record p;
    status = get_head(&r, c, of, most, &h, &p);
    if (!status) take_shifts(q, &p, n);
    if (!status) status = get_parts(&r, q, &h, n, piece);
  }
  vec_free(&all);
  vec_free(&pages);
  if (r.f) fclose(r.f);
  if (status) { free(piece); sequence_free(q); return status == NO_FILE ? BAD_FILE : status; }
  end_loading(q, ids, n, piece);
  *out = q;
  return 0;
}
