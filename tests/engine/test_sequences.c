// Many sequences over one model: each has the logits that it would have alone, to the bit, however steps are put
// together, and gives back what it took.
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/base.h"
#include "device/memory.h"
#include "engine/content.h"
#include "engine/page_store.h"
#include "engine/engine.h"
#include "engine/pages.h"
#include "engine/stress.h"
#include "engine/project.h"
#include "weft.h"

enum { TEXTS = 5, MOST = 300, LIVE = 6, CHUNK = 64 };

static weft_model *opened_with(const char *path, int threads, const char *cache) {
  weft_model *m;
  weft_error err;
  if (weft_model_open(
        path,
        &(weft_options){
          .context = MOST + 10, .threads = threads, .chunk = CHUNK, .key_cache = cache, .value_cache = cache},
        &m, &err))
    fail_msg("%s", err.text);
  return m;
}

static weft_model *opened(const char *path, int threads) { return opened_with(path, threads, NULL); }

typedef struct text { int32_t ids[MOST]; uint64_t hash[MOST]; int32_t n_vocab; } text;

static bool note(void *ctx, size_t i, const float *logits) {
  text *t = ctx;
  t->hash[i] = hash_of(logits, t->n_vocab);
  return true;
}

// Texts of which some begin alike, and what follows each of their tokens, one text after another.
static void make_texts(weft_model *m, text *t) {
  weft_error err;
  for (int i = 0; i < TEXTS; i++) {
    t[i].n_vocab = weft_model_vocab_size(m);
    uint32_t same = i ? below(200) : 0;
    for (uint32_t j = 0; j < MOST; j++) t[i].ids[j] = j < same ? t[0].ids[j] : (int32_t)below((uint32_t)t[i].n_vocab);
    if (weft_decode_rows(m, t[i].ids, MOST, 0, 0, note, &t[i], &err)) fail_msg("%s", err.text);
  }
}

static void same_bits(const char *path, int steps, const char *cache) {
  static stress s;
  s = (stress){.path = path, .cache = cache, .seed = ++state, .positions = MOST, .live = LIVE, .chunk = CHUNK};
  s.threads = 1 + (int)below(3);
  if (stress_run(&s, steps, 1e9)) fail_msg("%s", s.wrong);
  assert_true(s.compared > steps);
}

static void of_the_demo_model(void **s) {
  (void)s;
  state = 7;
  same_bits(project, 150, NULL);
  same_bits(project, 40, "q8_0");
  same_bits(project, 20, "q4_0");
  same_bits(project, 20, "bf16");
}

static const char *const window = "{arch}.attention.sliding_window=int:40";

static void of_windows(void **s_) {
  (void)s_;
  static stress s;
  s = (stress){.path = project, .setting = window, .seed = 17, .positions = 900, .live = LIVE, .chunk = CHUNK};
  s.threads = 2;
  if (stress_run(&s, 100, 1e9)) fail_msg("%s", s.wrong);
  assert_true(s.marked > 50 && s.loaded > 5 && s.again > 0);
}

static void of_other_models(void **s) {
  (void)s;
  char path[1024];
  DIR *d = opendir(WEFT_SHARED_DIR "/models");
  int n = 0;
  state = 11;
  for (struct dirent *e; d && (e = readdir(d));) {
    size_t length = strlen(e->d_name);
    if (length < 5 || strcmp(e->d_name + length - 5, ".gguf") || !strncmp(e->d_name, "tinypy", 6)) continue;
    snprintf(path, sizeof path, "%s/models/%s", WEFT_SHARED_DIR, e->d_name);
    same_bits(path, 40, NULL);
    n++;
  }
  if (d) closedir(d);
  if (!n) { print_message("skipped: there are no shared models\n"); skip(); }
}

static bool at_once(void *ctx) { ++*(int *)ctx; return true; }
static bool counts_down(void *ctx) { return --*(int *)ctx < 0; }
struct watched { double done; int left; };          // left: looks until the end; 0: none comes
static bool watch_counts(void *ctx, double done) {
  struct watched *w = ctx;
  assert_true(done >= w->done && done <= MOST);
  w->done = done;
  return !w->left || --w->left;
}

static void a_stopped_step_changes_nothing(void **s) {
  (void)s;
  weft_model *m = opened(project, 2);
  weft_error err;
  static text t[TEXTS];
  weft_sequence *a, *b;
  int asked = 0;
  state = 3;
  make_texts(m, t);
  assert_int_equal(weft_sequence_new(m, &a, &err) | weft_sequence_new(m, &b, &err), 0);
  weft_tokens parts[] = {{.sequence = a, .ids = t[0].ids, .n = 250}, {.sequence = b, .ids = t[1].ids, .n = 3}};
  assert_int_equal(weft_step(m, parts, 2, at_once, &asked, &err), 1);
  assert_int_equal(asked, 1);
  assert_null(parts[0].logits);
  assert_int_equal(weft_sequence_length(a) + weft_sequence_length(b), 0);
  // somewhere inside
  int after;
  for (int i = 0; i < 12; i++) {
    after = (int)below(60);
    if (!weft_step(m, parts, 2, counts_down, &after, &err)) fail_msg("a step went on to its end");
    assert_int_equal(weft_sequence_length(a) + weft_sequence_length(b), 0);
  }
  // rows alone, without a prompt
  weft_tokens rows[] = {{.sequence = a, .ids = t[0].ids, .n = 8, .rows = 8}, {.sequence = b, .ids = t[1].ids, .n = 3}};
  for (after = 0; after < 20; after += 4) {
    int left = after;
    assert_int_equal(weft_step(m, rows, 2, counts_down, &left, &err), 1);
    assert_int_equal(weft_sequence_length(a) + weft_sequence_length(b), 0);
  }
  assert_int_equal(weft_step(m, parts, 2, NULL, NULL, &err), 0);
  assert_int_equal(hash_of(parts[0].logits, t->n_vocab), t[0].hash[249]);
  assert_int_equal(hash_of(parts[1].logits, t->n_vocab), t[1].hash[2]);
  weft_sequence_free(a);
  weft_sequence_free(b);
  weft_model_close(m);
}

static void a_watched_prompt(void **s) {
  (void)s;
  weft_model *m = opened(project, 2);
  weft_error err;
  static text t[TEXTS];
  const float *logits;
  make_texts(m, t);
  for (int left = 1; left < 60; left += 13) {
    struct watched w = {.left = left};
    assert_int_equal(weft_decode(m, t[0].ids, 20, 0, &logits, &err), 0);
    weft_model_watch(m, watch_counts, &w);
    assert_int_equal(weft_decode(m, t[0].ids + 20, 230, 20, &logits, &err), 1);
    weft_model_watch(m, NULL, NULL);
    assert_int_equal(w.left, 0);
    // what lay before is there, and nothing else
    assert_int_equal(weft_decode(m, t[0].ids + 21, 1, 21, &logits, &err), -1);
    assert_int_equal(weft_decode(m, t[0].ids + 20, 30, 20, &logits, &err), 0);
    assert_int_equal(hash_of(logits, t->n_vocab), t[0].hash[49]);
  }
  struct watched w = {0};
  weft_model_watch(m, watch_counts, &w);
  assert_int_equal(weft_decode(m, t[0].ids, 250, 0, &logits, &err), 0);
  assert_int_equal(hash_of(logits, t->n_vocab), t[0].hash[249]);
  assert_true(w.done > 64);
  weft_model_close(m);
}

// Nothing has been evaluated before: every plan is made when a step needs it.
static void any_number_of_tokens_first(void **s) {
  (void)s;
  static text t[TEXTS];
  weft_model *m = opened(project, 1);
  weft_error err;
  state = 5;
  make_texts(m, t);
  weft_model_close(m);
  for (size_t n = 4; n <= 6; n++)              // few go one by one, more through a chunk
    for (int n_parts = 1; n_parts <= 2; n_parts++) {
      weft_tokens parts[2];
      m = opened(project, 1);
      for (int i = 0; i < n_parts; i++) {
        parts[i] = (weft_tokens){.ids = t[i].ids, .n = n};
        assert_int_equal(weft_sequence_new(m, &parts[i].sequence, &err), 0);
      }
      if (weft_step(m, parts, (size_t)n_parts, NULL, NULL, &err)) fail_msg("%s", err.text);
      for (int i = 0; i < n_parts; i++) {
        assert_int_equal(hash_of(parts[i].logits, t->n_vocab), t[i].hash[n - 1]);
        weft_sequence_free(parts[i].sequence);
      }
      weft_model_close(m);
    }
}

// A page that a sequence takes is there as a whole, for loads of which a mask leaves nothing; again when it comes back.
static void a_page_is_there(void **state_) {
  (void)state_;
  weft_model *m = opened(project, 1);
  weft_error err;
  for (int turn = 0; turn < 2; turn++) {
    weft_sequence *q;
    if (weft_sequence_new(m, &q, &err)) fail_msg("%s", err.text);
    weft_tokens t = {.sequence = q, .ids = &(int32_t){1}, .n = 1};
    if (weft_step(m, &t, 1, NULL, NULL, &err)) fail_msg("%s", err.text);
    const sequence *of = weft_sequence_of(q);
    assert_int_equal(of->group[0].n, 1);
    size_t size = (size_t)sysconf(_SC_PAGESIZE), n = 0;
    for (int i = 0; i < model_n_states(of->of->m); i++) {
      uint64_t bytes = caches_piece(of->of, i) / size * size;
      unsigned char *there = malloc(bytes / size + 1);
      assert_int_equal(mincore(caches_at(of->of, i, of->group[0].at[0]), bytes, there), 0);
      for (size_t j = 0; j < bytes / size; j++, n++) assert_true(there[j] & 1);
      free(there);
    }
    assert_true(n > 20);
    weft_sequence_free(q);
  }
  weft_model_close(m);
}

static void says_no_before_anything_changes(void **s) {
  (void)s;
  weft_model *m = opened(project, 1);
  weft_error err;
  weft_sequence *a, *b, *c;
  assert_int_equal(weft_sequence_new(m, &a, &err) | weft_sequence_new(m, &b, &err), 0);
  int32_t good[] = {5, 6, 7}, bad[] = {5, 1 << 30, 7};
  static int32_t many[MOST + 20];
  weft_tokens parts[] = {{.sequence = a, .ids = good, .n = 3}, {.sequence = b, .ids = bad, .n = 3}};
  assert_int_equal(weft_step(m, parts, 2, NULL, NULL, &err), -1);
  assert_non_null(strstr(err.text, "1073741824"));
  parts[1] = (weft_tokens){.sequence = b, .ids = many, .n = MOST + 20};
  assert_int_equal(weft_step(m, parts, 2, NULL, NULL, &err), -1);
  assert_non_null(strstr(err.text, "do not fit the context"));
  parts[1] = parts[0];
  assert_int_equal(weft_step(m, parts, 2, NULL, NULL, &err), -1);
  assert_non_null(strstr(err.text, "same sequence"));
  parts[1] = (weft_tokens){.sequence = b, .ids = good, .n = 0};
  assert_int_equal(weft_step(m, parts, 2, NULL, NULL, &err), -1);
  assert_int_equal(weft_step(m, parts, 0, NULL, NULL, &err), -1);
  assert_int_equal(weft_sequence_fork(a, 1, &c, &err), -1);
  assert_int_equal(weft_sequence_reserve(a, MOST + 20, &err), -1);
  assert_int_equal(weft_sequence_length(a) + weft_sequence_length(b), 0);
  weft_sequence_free(a);
  weft_sequence_free(b);
  weft_model_close(m);
}

static void everything_goes_back(void **s) {
  (void)s;
  engine *e;
  error err = {0};
  if (engine_open(project, &(struct engine_options){.n_ctx = MOST + 10, .n_threads = 1, .chunk = CHUNK}, &e, &err))
    fail_msg("%s", err.text);
  const caches *c = engine_sequence(e)->of;
  static int32_t ids[MOST];
  for (int round = 0; round < 1000; round++) {
    sequence *q, *p;
    if (engine_sequence_new(e, &q, &err)) fail_msg("%s", err.text);
    engine_part part = {.q = q, .ids = ids, .n = round % 100 ? 2 : MOST, .rows = 0};
    if (engine_run(e, &(engine_batch){.parts = &part, .n = 1}, &err)) fail_msg("%s", err.text);
    if (sequence_fork(q, q->n, &p, &err)) fail_msg("%s", err.text);
    assert_int_equal(c->pages[0].used, (q->n + CACHE_PAGE - 1) / CACHE_PAGE);             // none for the second
    sequence_free(round % 2 ? q : p);
    sequence_free(round % 2 ? p : q);
    assert_int_equal(c->pages[0].used, 0);
    assert_int_equal(c->n_sequences, 1);
  }
  assert_int_equal(c->pages[0].most, (MOST + CACHE_PAGE - 1) / CACHE_PAGE);
  engine_close(e);
}

// Sequences that end leave memory where it was, and a long context costs nothing before it is used.
static void memory_goes_back(void **state_) {
  (void)state_;
  weft_model *m;
  weft_error err;
  static int32_t ids[MOST];
  // the sanitizers keep what is freed, and notes beside all that is not
  uint64_t before = 0, mib = 1 << 20, slack = getenv("WEFT_SANITIZED") ? 16 * mib : mib;
  weft_model_close(opened(project, 1));                          // what any model leaves in this process
  for (int i = 0; i < 2; i++) {
    uint64_t at = memory_rss();
    weft_sequence *q[16];
    if (weft_model_open(project, &(weft_options){.context = i ? 1 << 17 : 256, .threads = 1}, &m, &err))
      fail_msg("%s", err.text);
    for (int j = 0; j < 16; j++) assert_int_equal(weft_sequence_new(m, &q[j], &err), 0);
    uint64_t now = memory_rss(), cost = now > at ? now - at : 0;  // what others have freed may be given back meanwhile
    if (i && cost > before + slack)
      fail_msg("%.1f MiB for a long context, %.1f for a short one", (double)cost / (double)mib,
               (double)before / (double)mib);
    before = cost;
    for (int j = 0; j < 16; j++) weft_sequence_free(q[j]);
    if (!i) weft_model_close(m);
  }
  for (int round = 0; round < 1000; round++) {
    weft_sequence *q;
    if (weft_sequence_new(m, &q, &err)) fail_msg("%s", err.text);
    weft_tokens t = {.sequence = q, .ids = ids, .n = round % 50 ? 3 : MOST};
    if (weft_step(m, &t, 1, NULL, NULL, &err)) fail_msg("%s", err.text);
    weft_sequence_free(q);
    if (round == 51) before = memory_rss();
  }
  if (memory_rss() > before + slack) fail_msg("%.1f MiB are left over", (double)(memory_rss() - before) / (double)mib);
  weft_model_close(m);
}

static void a_full_cache_is_an_error(void **s) {
  (void)s;
  engine *e;
  error err = {0};
  if (engine_open(project, &(struct engine_options){.n_ctx = MOST + 10, .n_threads = 1, .chunk = CHUNK}, &e, &err))
    fail_msg("%s", err.text);
  caches *c = engine_sequence(e)->of;
  c->room = 3 * c->page_bytes[0];
  sequence *a, *b;
  assert_int_equal(sequence_new(c, &a, &err) | sequence_new(c, &b, &err), 0);
  assert_int_equal(sequence_hold(a, 0, 2 * CACHE_PAGE, &err), 0);
  assert_int_equal(sequence_hold(b, 0, 2 * CACHE_PAGE, &err), -1);
  assert_non_null(strstr(err.text, "pages of 128 positions that 3 sequences hold"));
  assert_int_equal(b->group[0].n, 0);
  assert_int_equal(c->pages[0].used, 2);
  assert_int_equal(sequence_hold(b, 0, CACHE_PAGE, &err), 0);
  sequence_free(a);
  assert_int_equal(sequence_hold(b, CACHE_PAGE, 3 * CACHE_PAGE, &err), 0);
  c->room = UINT64_MAX;
  err = (error){0};
  c->pages[0].n = c->pages[0].used;                            // as on a device, whose pages are few
  assert_int_equal(sequence_hold(b, 3 * CACHE_PAGE, 4 * CACHE_PAGE, &err), -1);
  assert_non_null(strstr(err.text, "2 sequences hold all of its 3 pages of 128 positions"));
  sequence_free(b);
  engine_close(e);
}

static void what_has_no_sequence_gives_memory_back(void **s) {
  (void)s;
  weft_model *m = opened(project, 1);
  weft_error err;
  const caches *c = engine_sequence(weft_model_beside(m))->of;
  const int32_t ids[] = {5, 6};
  assert_int_equal(weft_decode(m, ids, 2, 0, NULL, &err), 0);
  assert_int_equal(c->pages[0].used, 1);
  assert_int_equal(weft_reserve(m, CACHE_PAGE + 1, &err), 0);
  assert_int_equal(c->pages[0].used, 2);
  weft_forget(m);
  assert_int_equal(c->pages[0].used, 0);
  assert_int_equal(weft_decode(m, ids, 2, 2, NULL, &err), -1);
  assert_int_equal(weft_reserve(m, MOST + 20, &err), -1);
  assert_non_null(strstr(err.text, "do not fit the context"));
  assert_int_equal(weft_decode(m, ids, 2, 0, NULL, &err), 0);
  weft_model_close(m);
}

enum { LONG = 1000, SHARED = 300 };
struct noted { uint64_t hash[LONG]; int32_t n_vocab; };

static bool note_long(void *ctx, size_t i, const float *logits) {
  struct noted *n = ctx;
  n->hash[i] = hash_of(logits, n->n_vocab);
  return true;
}

// Goes on from a copy of q, from position `at` or before it, or from its file, with another text that shares its
// beginning.
static int goes_on(weft_model *m, const weft_sequence *q, int at, const char *path, const int32_t *ids,
                   const struct noted *noted) {
  weft_sequence *other;
  weft_error err;
  int n = q ? weft_sequence_whole(q, at) : 0;
  if (q ? weft_sequence_fork(q, n, &other, &err) : weft_sequence_load(m, ids, LONG, path, &other, &err))
    fail_msg("%s", err.text);
  n = weft_sequence_length(other);
  assert_in_range(n, 0, SHARED);
  const sequence *is = weft_sequence_of(other);
  uint64_t before = is->evaluations;
  for (int from = n, to = n + 10; from < LONG; from = to, to = LONG) {    // the first ones see what was there
    weft_tokens more = {.sequence = other, .ids = ids + from, .n = (size_t)(to - from)};
    if (weft_step(m, &more, 1, NULL, NULL, &err)) fail_msg("%s", err.text);
    assert_true(hash_of(more.logits, noted->n_vocab) == noted->hash[to - 1]);
  }
  assert_int_equal(is->evaluations, before + 2);
  weft_sequence_free(other);
  return n;
}

// A sequence whose windows have moved on serves another one that shares its first tokens, and holds little for that.
static void a_beginning_is_shared(void **s) {
  (void)s;
  static int32_t ids[2][LONG];
  static struct noted noted[2];
  weft_model *m;
  weft_error err;
  char path[] = "/tmp/weft-beginning-XXXXXX";
  close(mkstemp(path));
  weft_options o = {.context = LONG, .threads = 2, .chunk = CHUNK, .settings = &window, .n_settings = 1};
  if (weft_model_open(project, &o, &m, &err)) fail_msg("%s", err.text);
  caches *c = engine_sequence(weft_model_beside(m))->of;
  c->slack = 0;
  state = 23;
  for (int i = 0; i < 2; i++) {
    for (int j = 0; j < LONG; j++) ids[i][j] = i && j < SHARED ? ids[0][j] : (int32_t)below(1000);
    noted[i].n_vocab = weft_model_vocab_size(m);
    if (weft_decode_rows(m, ids[i], LONG, 0, 0, note_long, &noted[i], &err)) fail_msg("%s", err.text);
  }
  for (int piece = 50; piece <= LONG; piece += LONG - 50)
    for (int likely = 0; likely < 4; likely++) {         // 2: no marks; 3: marks that come too late
      weft_sequence *q;
      uint64_t taken = c->taken, behind = 0;
      assert_int_equal(weft_sequence_new(m, &q, &err), 0);
      if (likely == 3) assert_int_equal(weft_sequence_reserve(q, LONG, &err), 0);
      if (likely != 2) weft_sequence_checkpoint(q, 0, LONG - 1);
      if (likely == 1) weft_sequence_checkpoint(q, SHARED, SHARED);
      for (int at = 0; at < LONG; at += piece) {
        weft_tokens t = {.sequence = q, .ids = ids[0] + at, .n = (size_t)piece};
        if (weft_step(m, &t, 1, NULL, NULL, &err)) fail_msg("%s", err.text);
        assert_true(hash_of(t.logits, noted->n_vocab) == noted[0].hash[at + piece - 1]);
      }
      const page_list *list = &weft_sequence_of(q)->group[0];
      for (size_t i = 0; i < caches_stay(c, 0, LONG); i++) if (caches_has_page(list, i)) behind += c->page_bytes[0];
      // all layers have the window here: two windows, of which each is in two pages
      assert_true(caches_checkpoint_bytes(c, LONG) == 4 * c->page_bytes[0] && behind <= 4 * c->page_bytes[0]);
      assert_int_equal(weft_sequence_whole(q, LONG), LONG);
      assert_int_equal(weft_sequence_whole(q, LONG - 1), LONG - 1);
      if (likely == 2) assert_true(!behind && !weft_sequence_whole(q, SHARED));
      if (likely == 1) assert_int_equal(weft_sequence_whole(q, SHARED), SHARED);
      if (likely < 2) {
        assert_true(goes_on(m, q, SHARED, NULL, ids[1], &noted[1]) > 0);
        if (weft_sequence_save(q, ids[0], path, &err)) fail_msg("%s", err.text);
        assert_true(goes_on(m, NULL, 0, path, ids[1], &noted[1]) > 0);
      }
      for (int at = 100; at <= SHARED && likely == 3; at += 100)
        goes_on(m, q, at, NULL, ids[1], &noted[1]);
      // one that is short of memory forgets it
      assert_true(weft_sequence_thin(q) == (behind > 0));
      assert_int_equal(weft_sequence_whole(q, SHARED), 0);
      assert_int_equal(weft_sequence_whole(q, LONG), LONG);
      weft_sequence_free(q);
      assert_true(c->taken == taken);
    }
  unlink(path);
  weft_model_close(m);
}

static char folder[] = "/tmp/weft-sequences-XXXXXX";

static const char *file_of(const char *name) {
  static char path[100];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return path;
}

static unsigned char *contents(const char *path, size_t *n) {
  FILE *f = fopen(path, "rb");
  assert_non_null(f);
  fseek(f, 0, SEEK_END);
  *n = (size_t)ftell(f);
  rewind(f);
  unsigned char *at = malloc(*n);
  assert_int_equal(fread(at, 1, *n, f), *n);
  fclose(f);
  return at;
}

static void write_file(const char *path, const unsigned char *at, size_t n) {
  FILE *f = fopen(path, "wb");
  assert_non_null(f);
  assert_int_equal(fwrite(at, 1, n, f), n);
  fclose(f);
}

// Loads it for text t, which has to be refused, naming the file and with these words (NULL: any).
static void refused(weft_model *m, const text *t, const char *path, const char *words) {
  weft_sequence *q = NULL;
  weft_error err = {""};
  assert_int_equal(weft_sequence_load(m, t->ids, MOST, path, &q, &err), -2);
  assert_null(q);
  if (!strstr(err.text, path) || (words && !strstr(err.text, words)))
    fail_msg("'%s' does not say '%s' of %s", err.text, words ? words : "", path);
}

// What a graph leaves in states is nothing to one that reads more of them, or that is made otherwise.
static void files_are_of_what_is_computed(void **s) {
  (void)s;
  gguf *f;
  model *m;
  error err;
  if (gguf_open(project, &f, &err) || model_open(f, (model_kv){KV_F16, KV_F16}, &m, &err)) fail_msg("%s", err.text);
  char names[3][CONTENT_NAME];
  for (int i = 0; i < 3; i++) {
    content *c = content_new(f, m, i < 2 ? "variant 0" : "variant 1", NULL);
    double done;
    int soon = content_name(c, 0, names[i], &done, &err);
    assert_in_range(soon, 0, 1);
    assert_true(done >= 0 && done <= 1);
    assert_int_equal(content_name(c, -1, names[i], &done, &err), 0);
    assert_true(done == 1);
    content_free(c);
  }
  assert_string_equal(names[0], names[1]);
  assert_string_not_equal(names[0], names[2]);
  content *ended = content_new(f, m, "", NULL);
  content_name(ended, 0, names[0], NULL, &err);
  content_free(ended);
  model_close(m);
  gguf_close(f);
}

static void sequences_go_through_files(void **s) {
  (void)s;
  static text t[TEXTS];
  weft_model *m = opened(project, 2), *other;
  weft_error err;
  weft_sequence *a, *b;
  enum { HELD = 200 };
  assert_non_null(mkdtemp(folder));
  state = 13;
  make_texts(m, t);
  char path[100];
  snprintf(path, sizeof path, "%s", file_of("a.sequence"));
  assert_int_equal(weft_sequence_new(m, &a, &err), 0);
  assert_int_equal(weft_step(m, &(weft_tokens){.sequence = a, .ids = t[0].ids, .n = HELD}, 1, NULL, NULL, &err), 0);
  assert_int_equal(weft_sequence_reserve(a, 90, &err), 0);       // pages that hold nothing stay out
  if (weft_sequence_save(a, t[0].ids, path, &err)) fail_msg("%s", err.text);
  weft_sequence_free(a);
  // those that begin like the first one take up as much of it
  for (int i = 0; i < TEXTS; i++) {
    int same = 0;
    while (same < HELD && t[i].ids[same] == t[0].ids[same]) same++;
    if (weft_sequence_load(m, t[i].ids, MOST, path, &b, &err)) fail_msg("%s", err.text);
    assert_int_equal(weft_sequence_length(b), same);
    weft_tokens rest = {.sequence = b, .ids = t[i].ids + same, .n = (size_t)(MOST - same)};
    assert_int_equal(weft_step(m, &rest, 1, NULL, NULL, &err), 0);
    assert_int_equal(hash_of(rest.logits, t->n_vocab), t[i].hash[MOST - 1]);
    weft_sequence_free(b);
  }
  size_t n, n_ids;
  int32_t *ids;
  if (weft_sequence_tokens(m, path, &ids, &n_ids, &err)) fail_msg("%s", err.text);
  assert_int_equal(n_ids, HELD);
  assert_memory_equal(ids, t[0].ids, n_ids * sizeof *ids);
  weft_free(ids);
  assert_int_equal(weft_sequence_tokens(m, "none", &ids, &n_ids, &err), 1);
  unsigned char *at = contents(path, &n);
  for (int i = 0; i < 100; i++) {                              // any bit that is flipped, and any end
    size_t where = i < 48 ? (size_t)i : below((uint32_t)n);
    unsigned char bit = (unsigned char)(1 << below(8));
    at[where] ^= bit;
    write_file(file_of("damaged"), at, n);
    refused(m, &t[0], file_of("damaged"), NULL);
    at[where] ^= bit;
    write_file(file_of("short"), at, below((uint32_t)n));
    refused(m, &t[0], file_of("short"), NULL);
  }
  free(at);
  refused(m, &t[0], file_of("none"), "No such file");
  refused(m, &t[0], folder, "is no file of a sequence");
  other = opened_with(project, 1, "q8_0");
  refused(other, &t[0], path, "is of another model, or of other settings of it");
  weft_model_close(other);
  if (weft_model_open(project, &(weft_options){.context = HELD - 1, .threads = 1}, &other, &err))
    fail_msg("%s", err.text);
  refused(other, &t[0], path, "has 200 positions, beyond the context of 199");
  weft_model_close(other);
  caches *c = engine_sequence(weft_model_beside(m))->of;
  int used = c->pages[0].used;
  uint64_t room = c->room;
  c->room = c->taken + c->page_bytes[0];
  assert_int_equal(weft_sequence_load(m, t[0].ids, MOST, path, &b, &err), -1);
  assert_non_null(strstr(err.text, "the cache is full"));
  c->room = room;
  assert_int_equal(c->pages[0].used, used);
  assert_int_equal(c->n_sequences, 1);
  weft_model_close(m);
  unlink(file_of("a.sequence")); unlink(file_of("damaged")); unlink(file_of("short"));
  assert_int_equal(rmdir(folder), 0);                          // nothing else was left there
}

int main(int argc, char **argv) {              // an argument: which of them, with * for any text
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(of_the_demo_model),
    cmocka_unit_test(of_windows),
    cmocka_unit_test(of_other_models),
    cmocka_unit_test(a_stopped_step_changes_nothing),
    cmocka_unit_test(a_watched_prompt),
    cmocka_unit_test(any_number_of_tokens_first),
    cmocka_unit_test(a_page_is_there),
    cmocka_unit_test(says_no_before_anything_changes),
    cmocka_unit_test(everything_goes_back),
    cmocka_unit_test(memory_goes_back),
    cmocka_unit_test(a_full_cache_is_an_error),
    cmocka_unit_test(what_has_no_sequence_gives_memory_back),
    cmocka_unit_test(a_beginning_is_shared),
    cmocka_unit_test(files_are_of_what_is_computed),
    cmocka_unit_test(sequences_go_through_files),
  };
  if (argc > 1) cmocka_set_test_filter(argv[1]);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
