// Sequences over one model, at random: steps of many, copies, cuts, files, ends in the middle, and no memory. What each
// says is what it would say alone, to the bit. For test_sequences.c and tests/tools/sequences_tool.c.
#ifndef WEFT_TESTS_STRESS_H
#define WEFT_TESTS_STRESS_H
#include <dirent.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/base.h"
#include "engine/caches.h"
#include "engine/engine.h"
#include "weft.h"

enum { STRESS_TEXTS = 5, STRESS_LIVE = 16, STRESS_FILES = 4, STRESS_ROWS = 8 };

typedef struct stress {
  // what is tried
  const char *path, *cache;            // cache: of keys and values; NULL: the default
  int threads, chunk, positions, live, slack; // slack: of windows, see CACHE_SLACK
  const char *setting;                 // of the model; NULL: none
  uint64_t seed;
  // what happened
  int steps, compared, ended, full, copied, cut, again, saved, loaded, kept, found, alone, marked;
  uint64_t hash;                       // of all logits that the texts have alone
  char wrong[400];                     // "": nothing
  // in work
  weft_model *m;
  caches *c;
  int32_t n_vocab;
  struct stress_text { int32_t *ids; uint64_t *hash; } text[STRESS_TEXTS];
  struct stress_live { weft_sequence *q; int text; } at[STRESS_LIVE];
  struct stress_file { char path[40]; int text, n; bool there; } file[STRESS_FILES];
  weft_store *store;
  char folder[40];                     // of the store
} stress;

static uint32_t stress_below(stress *s, uint32_t n) {
  s->seed = s->seed * 6364136223846793005ull + 1442695040888963407ull;
  return (uint32_t)(s->seed >> 33) % n;
}

static void stress_fail(stress *s, const char *fmt, ...) PRINTF_LIKE(2, 3);
static void stress_fail(stress *s, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  size_t n = *s->wrong ? 0 : (size_t)snprintf(s->wrong, sizeof s->wrong, "%s: step %d: ", s->path, s->steps);
  if (n) vsnprintf(s->wrong + n, sizeof s->wrong - n, fmt, ap);
  va_end(ap);
}

static uint64_t stress_hash(const stress *s, const float *logits) {
  return hash_bytes(logits, (size_t)s->n_vocab * sizeof *logits, 1);
}

struct stress_note { stress *s; uint64_t *hash; };
static bool stress_noted(void *ctx, size_t i, const float *logits) {
  struct stress_note *n = ctx;
  n->hash[i] = stress_hash(n->s, logits);
  n->s->hash = hash_bytes(&n->hash[i], sizeof n->hash[i], n->s->hash);
  return true;
}

// Texts of which some begin alike, and what follows each of their tokens, one text after another.
static void stress_texts(stress *s) {
  weft_error err;
  for (int i = 0; i < STRESS_TEXTS; i++) {
    size_t n = (size_t)s->positions, same = i ? stress_below(s, (uint32_t)n * 2 / 3) : 0;
    s->text[i].ids = calloc(n, sizeof(int32_t));
    s->text[i].hash = calloc(n, sizeof(uint64_t));
    for (size_t j = 0; j < n; j++)
      s->text[i].ids[j] = j < same ? s->text[0].ids[j] : (int32_t)stress_below(s, (uint32_t)s->n_vocab);
    struct stress_note note = {s, s->text[i].hash};
    if (weft_decode_rows(s->m, s->text[i].ids, n, 0, 0, stress_noted, &note, &err)) stress_fail(s, "%s", err.text);
  }
}

static void stress_check(stress *s, const struct stress_text *t, const float *logits, int at, const char *how) {
  s->compared++;
  if (stress_hash(s, logits) != t->hash[at])
    stress_fail(s, "text %d, position %d: other logits %s", (int)(t - s->text), at, how);
}

// Others may go on from anywhere.
static void stress_mark(stress *s, weft_sequence *q) {
  int from = (int)stress_below(s, (uint32_t)s->positions), to = from + (int)stress_below(s, 400);
  weft_sequence_checkpoint(q, from, to < s->positions ? to : s->positions - 1);
  s->marked++;
}

// A sequence of some text from pages in the folder, where there are some of it.
static void stress_find(stress *s, struct stress_live *y) {
  weft_error err;
  y->text = (int)stress_below(s, STRESS_TEXTS);
  size_t n = 1 + stress_below(s, (uint32_t)s->positions);
  int status = weft_store_load(s->store, s->text[y->text].ids, n, &y->q, &err);
  if (status < 0) stress_fail(s, "pages: %s", err.text);
  if (status) { y->q = NULL; return; }
  s->found++;
  if (weft_sequence_length(y->q) > (int)n) stress_fail(s, "pages of %zu: %d", n, weft_sequence_length(y->q));
}

// Sequences come, as a copy, from files or new, and go; some lose their end.
static void stress_change(stress *s, int i) {
  struct stress_live *y = &s->at[i];
  weft_error err;
  if (y->q && (weft_sequence_length(y->q) == s->positions || !stress_below(s, 12))) {
    weft_sequence_free(y->q);
    y->q = NULL;
  }
  const struct stress_live *from = &s->at[stress_below(s, (uint32_t)s->live)];
  const struct stress_file *f = &s->file[stress_below(s, STRESS_FILES)];
  if (!y->q && from->q && stress_below(s, 2)) {
    int n = (int)stress_below(s, (uint32_t)weft_sequence_length(from->q) + 1);
    s->copied++;
    if (!stress_below(s, 2)) n = weft_sequence_length(from->q);
    if (weft_sequence_fork(from->q, n, &y->q, &err)) stress_fail(s, "a copy: %s", err.text);
    y->text = from->text;
  } else if (!y->q && f->there && stress_below(s, 2)) {
    y->text = stress_below(s, 3) ? f->text : (int)stress_below(s, STRESS_TEXTS);
    const int32_t *ids = s->text[y->text].ids;
    int same = 0;
    while (same < f->n && ids[same] == s->text[f->text].ids[same]) same++;
    s->loaded++;
    if (weft_sequence_load(s->m, ids, (size_t)s->positions, f->path, &y->q, &err))
      stress_fail(s, "a file: %s", err.text);
    else if (weft_sequence_length(y->q) > same || (same == f->n && weft_sequence_length(y->q) != same))
      stress_fail(s, "a file of %d positions, %d alike: %d", f->n, same, weft_sequence_length(y->q));
  } else if (!y->q && stress_below(s, 2)) {
    stress_find(s, y);
  }
  if (!y->q && !*s->wrong) {
    if (weft_sequence_new(s->m, &y->q, &err)) stress_fail(s, "a new one: %s", err.text);
    y->text = (int)stress_below(s, STRESS_TEXTS);
  }
  if (*s->wrong) return;
  if (!stress_below(s, 8)) stress_mark(s, y->q);
  if (!stress_below(s, 100)) weft_sequence_thin(y->q);
  if (stress_below(s, 10)) return;
  int n = weft_sequence_length(y->q), to = (int)stress_below(s, (uint32_t)n + 1);
  if (stress_below(s, 2)) to = n - (int)stress_below(s, (uint32_t)(n < 20 ? n : 20) + 1);
  s->cut++;
  s->again += to && to < n && weft_sequence_whole(y->q, to) < to;
  weft_sequence_cut(y->q, to);
}

static void stress_save(stress *s) {
  const struct stress_live *y = &s->at[stress_below(s, (uint32_t)s->live)];
  struct stress_file *f = &s->file[stress_below(s, STRESS_FILES)];
  weft_error err;
  if (!y->q || weft_sequence_whole(y->q, weft_sequence_length(y->q)) < weft_sequence_length(y->q)) return;
  if (stress_below(s, 2)) {
    s->kept++;
    if (weft_store_save(s->store, y->q, s->text[y->text].ids, &err)) stress_fail(s, "%s", err.text);
    return;
  }
  if (weft_sequence_save(y->q, s->text[y->text].ids, f->path, &err)) { stress_fail(s, "%s", err.text); return; }
  f->text = y->text;
  f->n = weft_sequence_length(y->q);
  f->there = true;
  s->saved++;
}

static bool stress_counts_down(void *ctx) { return --*(int *)ctx < 0; }

// Between steps a window holds what the next token sees, `slack` positions, and what marks may hold.
static void stress_windows(stress *s, weft_sequence *of) {
  const model *m = s->c->m;
  const sequence *q = weft_sequence_of(of);
  uint64_t behind = 0, most = caches_checkpoint_bytes(s->c, (int)round_up((size_t)s->positions, CACHE_PAGE));
  for (int g = 0; g < model_n_groups(m); g++)
    for (size_t i = 0; i < caches_stay(s->c, g, q->n); i++)
      if (caches_has_page(&q->group[g], i)) behind += s->c->page_bytes[g];
  if (behind > most) stress_fail(s, "%.1f KiB behind windows, not %.1f", (double)behind / 1024, (double)most / 1024);
}

static void stress_step(stress *s) {
  weft_tokens parts[STRESS_LIVE];
  int of[STRESS_LIVE], before[STRESS_LIVE], n = 0;
  size_t rows = 0;
  weft_error err;
  for (int i = 0; i < s->live && !*s->wrong; i++) {
    stress_change(s, i);
    if (*s->wrong) return;
    int at = weft_sequence_length(s->at[i].q), most = s->positions - at;
    if (!most || !stress_below(s, 4)) continue;
    int more = stress_below(s, 2) ? 1 : 1 + (int)stress_below(s, stress_below(s, 3) ? 6 : 150);
    if (!stress_below(s, 60)) more = most;
    if (more > most) more = most;
    // marks that come when pages have been taken already
    if (!stress_below(s, 6) && !weft_sequence_reserve(s->at[i].q, (size_t)more, &err)) stress_mark(s, s->at[i].q);
    parts[n] = (weft_tokens){.sequence = s->at[i].q,
                             .ids = s->text[s->at[i].text].ids + at,
                             .n = (size_t)more,
                             .unseen = !stress_below(s, 4)};
    if (!stress_below(s, 6)) parts[n].rows = 1 + stress_below(s, (uint32_t)min_i64(more, STRESS_ROWS));
    size_t wanted = parts[n].unseen ? 0 : parts[n].rows ? parts[n].rows : 1;
    if (rows + wanted > (size_t)weft_model_chunk(s->m)) continue;
    rows += wanted;
    before[n] = at;
    of[n++] = i;
  }
  if (!n) return;
  s->steps++;
  uint64_t room = s->c->room;
  int looks = stress_below(s, 4) ? 1 << 30 : (int)stress_below(s, 40);
  if (!stress_below(s, 25)) s->c->room = s->c->taken + stress_below(s, 3) * s->c->page_bytes[0];
  int status = weft_step(s->m, parts, (size_t)n, looks == 1 << 30 ? NULL : stress_counts_down, &looks, &err);
  bool scarce = s->c->room != room;
  s->c->room = room;
  s->ended += status > 0;
  s->full += status < 0;
  if (status < 0 && !(scarce && strstr(err.text, "the cache is full"))) stress_fail(s, "%s", err.text);
  for (int i = 0; i < n; i++) {
    int at = weft_sequence_length(parts[i].sequence), want = before[i] + (status ? 0 : (int)parts[i].n);
    size_t k = parts[i].rows ? parts[i].rows : 1;
    char how[80];
    snprintf(how, sizeof how, "as part %d of %d with %zu tokens behind %d", i, n, parts[i].n, before[i]);
    if (!status) stress_windows(s, parts[i].sequence);
    if (at != want) stress_fail(s, "a sequence of %d positions, not %d: %s", at, want, how);
    if (!parts[i].logits != (status || parts[i].unseen)) stress_fail(s, "logits or not: %s", how);
    for (size_t j = 0; j < k && parts[i].logits; j++)
      stress_check(s, &s->text[s->at[of[i]].text], parts[i].logits + j * (size_t)s->n_vocab, at - (int)(k - j), how);
  }
}

// The model's own sequence, in between: it may go back as well.
static void stress_alone(stress *s, int *text, int *n) {
  weft_error err;
  const float *logits;
  int pos = *n, more = 1 + (int)stress_below(s, 30);
  if (!pos || pos == s->positions || !stress_below(s, 4)) *text = (int)stress_below(s, STRESS_TEXTS), pos = 0;
  else if (!stress_below(s, 3)) pos -= (int)stress_below(s, (uint32_t)pos + 1);
  if (more > s->positions - pos) more = s->positions - pos;
  s->alone++;
  if (weft_decode(s->m, s->text[*text].ids + pos, (size_t)more, pos, &logits, &err)) stress_fail(s, "%s", err.text);
  else stress_check(s, &s->text[*text], logits, pos + more - 1, "in the model's own sequence");
  *n = pos + more;
}

// The folder is small: some of what is saved there makes what was saved before give way.
static void stress_open_store(stress *s) {
  enum { PAGES = 12 };
  weft_error err;
  uint64_t page = caches_bytes(s->c->m, CACHE_PAGE);
  snprintf(s->folder, sizeof s->folder, "/tmp/weft-stress-XXXXXX");
  if (!mkdtemp(s->folder) || weft_store_open(s->m, s->folder, PAGES * page, &s->store, &err))
    stress_fail(s, "%s: no folder for pages", s->folder);
}

static void stress_close_store(stress *s) {
  DIR *d = opendir(s->folder);
  for (struct dirent *e; d && (e = readdir(d));) unlinkat(dirfd(d), e->d_name, 0);
  if (d) closedir(d);
  if (rmdir(s->folder)) stress_fail(s, "%s: something is left", s->folder);
  weft_store_close(s->store);
}

static void stress_end(stress *s) {
  stress_close_store(s);
  for (int i = 0; i < STRESS_LIVE; i++) weft_sequence_free(s->at[i].q);
  for (int i = 0; i < STRESS_FILES; i++) unlink(s->file[i].path);
  sequence_cut(engine_sequence(weft_model_beside(s->m)), 0);
  if (s->c->taken || s->c->n_sequences != 1)
    stress_fail(s, "%.1f MiB of pages are left over", (double)s->c->taken / 0x1p20);
  for (int g = 0; g < MODEL_GROUPS; g++) if (s->c->pages[g].used) stress_fail(s, "pages are left over");
  weft_model_close(s->m);
  for (int i = 0; i < STRESS_TEXTS; i++) {
    free(s->text[i].ids);
    free(s->text[i].hash);
  }
}

// 0, or -1 and s->wrong says what differed.
static int stress_run(stress *s, int steps, double seconds) {
  weft_error err;
  weft_options o = {.context = s->positions + 10, .threads = s->threads, .chunk = s->chunk, .key_cache = s->cache,
                    .value_cache = s->cache, .settings = &s->setting, .n_settings = s->setting != NULL};
  if (weft_model_open(s->path, &o, &s->m, &err)) { stress_fail(s, "%s", err.text); return -1; }
  s->n_vocab = weft_model_vocab_size(s->m);
  s->c = engine_sequence(weft_model_beside(s->m))->of;
  s->c->slack = s->slack;
  for (int i = 0; i < STRESS_FILES; i++) {
    snprintf(s->file[i].path, sizeof s->file[i].path, "/tmp/weft-stress-XXXXXX");
    int fd = mkstemp(s->file[i].path);
    if (fd < 0) stress_fail(s, "no temporary file");
    else close(fd);
  }
  stress_open_store(s);
  stress_texts(s);
  int text = STRESS_TEXTS - 1, n = s->positions;
  for (double end = now_s() + seconds; s->steps < steps && now_s() < end && !*s->wrong;) {
    stress_step(s);
    if (!*s->wrong && !stress_below(s, 10)) stress_save(s);
    if (!*s->wrong && !stress_below(s, 8)) stress_alone(s, &text, &n);
  }
  stress_end(s);
  return *s->wrong ? -1 : 0;
}
#endif
