// Sequences in a folder: any beginning of one is found that can be taken up, what is loaded goes on with the same bits,
// what begins alike is there once, damaged pages are named, and the folder stays within its size.
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
#include <sys/stat.h>
#include <unistd.h>
#include "engine/engine.h"
#include "engine/page_store.h"
#include "engine/project.h"
#include "weft.h"

enum { TEXTS = 6, MOST = 600, PIECE = 150 };
static const char *const window = "{arch}.attention.sliding_window=int:40";
static char folder[64];

typedef struct text { int32_t ids[MOST]; size_t shared; uint64_t last; } text;
static text texts[TEXTS];

// All but the first begin like it, for so many tokens.
static weft_model *opened(const char *path, const char *setting) {
  weft_model *m;
  weft_error err;
  weft_options o = {.context = MOST, .threads = 2, .chunk = 64, .settings = &setting, .n_settings = setting != NULL};
  if (weft_model_open(path, &o, &m, &err)) fail_msg("%s", err.text);
  for (int i = 0; i < TEXTS; i++) {
    text *t = &texts[i];
    const float *logits;
    t->shared = !i ? MOST : i == 1 ? 3 * CACHE_PAGE : 1 + below(MOST - 2);
    for (size_t j = 0; j < MOST; j++)
      t->ids[j] = i && j < t->shared ? texts->ids[j] : (int32_t)below((uint32_t)weft_model_vocab_size(m));
    if (weft_decode(m, t->ids, MOST, 0, &logits, &err)) fail_msg("%s", err.text);
    t->last = hash_of(logits, weft_model_vocab_size(m));
  }
  snprintf(folder, sizeof folder, "/tmp/weft-pages-XXXXXX");
  assert_non_null(mkdtemp(folder));
  return m;
}

static weft_store *store_of(weft_model *m, uint64_t bytes) {
  weft_store *s;
  weft_error err;
  if (weft_store_open(m, folder, bytes, &s, &err)) fail_msg("%s", err.text);
  return s;
}

static void save(weft_store *s, const weft_sequence *q, const int32_t *ids) {
  weft_error err;
  assert_true(weft_store_lacks(s, q, ids));
  if (weft_store_save(s, q, ids, &err)) fail_msg("%s", err.text);
  assert_false(weft_store_lacks(s, q, ids));
}

// Evaluates and saves the first text, piece by piece.
static void fill(weft_model *m, weft_store *s) {
  weft_sequence *q;
  weft_error err;
  assert_int_equal(weft_sequence_new(m, &q, &err), 0);
  for (size_t at = 0; at < MOST; at += PIECE) {
    weft_tokens t = {.sequence = q, .ids = texts->ids + at, .n = PIECE};
    if (weft_step(m, &t, 1, NULL, NULL, &err)) fail_msg("%s", err.text);
    save(s, q, texts->ids);
  }
  weft_sequence_free(q);
}

// Takes up text t, of which n tokens should be found, or (some) as many as windows allow, and goes on.
static size_t goes_on(weft_model *m, weft_store *s, const text *t, size_t n, bool some) {
  weft_sequence *q;
  weft_error err;
  size_t found = weft_store_find(s, t->ids, MOST - 1);
  if (some) assert_true(found <= n);
  else assert_int_equal(found, n);
  n = found;
  if (!n) return n;
  if (weft_store_load(s, t->ids, MOST - 1, &q, &err)) fail_msg("%s", err.text);
  assert_int_equal(weft_sequence_length(q), n);
  weft_tokens rest = {.sequence = q, .ids = t->ids + n, .n = MOST - n};
  if (weft_step(m, &rest, 1, NULL, NULL, &err)) fail_msg("%s", err.text);
  assert_true(hash_of(rest.logits, weft_model_vocab_size(m)) == t->last);
  weft_sequence_free(q);
  return n;
}

static uint64_t bytes_there(size_t *n, bool removed) {
  uint64_t sum = 0;
  DIR *d = opendir(folder);
  *n = 0;
  for (struct dirent *e; (e = readdir(d));) {
    struct stat st;
    if (e->d_name[0] == '.' || fstatat(dirfd(d), e->d_name, &st, 0)) continue;
    sum += (uint64_t)st.st_size;
    ++*n;
    if (removed) unlinkat(dirfd(d), e->d_name, 0);
  }
  closedir(d);
  return sum;
}

static void ended(weft_model *m, weft_store *s) {
  size_t n;
  weft_store_close(s);
  weft_model_close(m);
  bytes_there(&n, true);
  assert_int_equal(rmdir(folder), 0);
}

static size_t min_size(size_t a, size_t b) { return a < b ? a : b; }

// slack: positions that stay behind a window; some: not everything is found
static void begins_alike(const char *setting, int64_t slack, bool some) {
  weft_model *m = opened(project, setting);
  weft_store *s = store_of(m, 1u << 30);
  size_t found = 0, all = 0;
  engine_sequence(weft_model_beside(m))->of->slack = slack;
  fill(m, s);
  for (int again = 0; again < 2; again++) {
    for (int i = 0; i < TEXTS; i++) {
      size_t n = min_size(texts[i].shared, MOST - 1);
      all += n;
      found += goes_on(m, s, &texts[i], n, some);
    }
    weft_store_close(s);
    s = store_of(m, 1u << 30);
  }
  assert_true(some ? found > all / 4 && found < all : found == all);
  ended(m, s);
}

static void of_the_demo_model(void **s) { (void)s; state = 3; begins_alike(NULL, CACHE_SLACK, false); }
// pages that were written while their window was there serve later
static void of_windows(void **s) { (void)s; state = 5; begins_alike(window, CACHE_SLACK, false); }
static void of_windows_that_moved_on(void **s) { (void)s; state = 5; begins_alike(window, 0, true); }

static void what_begins_alike_is_there_once(void **unused) {
  (void)unused;
  state = 21;
  weft_model *m = opened(project, NULL);
  weft_store *s = store_of(m, 1u << 30);
  size_t n;
  fill(m, s);
  bytes_there(&n, false);
  assert_int_equal(n, caches_n_pages(MOST));             // no page of fewer tokens is left
  weft_sequence *q;
  weft_error err;
  const text *t = &texts[1];                             // which parts at the end of a page
  if (weft_store_load(s, t->ids, MOST, &q, &err)) fail_msg("%s", err.text);
  weft_tokens rest = {.sequence = q, .ids = t->ids + t->shared, .n = MOST - t->shared};
  if (weft_step(m, &rest, 1, NULL, NULL, &err)) fail_msg("%s", err.text);
  save(s, q, t->ids);
  weft_sequence_free(q);
  bytes_there(&n, false);
  assert_int_equal(n, caches_n_pages(MOST) + caches_n_pages((int)(MOST - t->shared)));
  ended(m, s);
}

// Any byte of any file: named, removed, and what lies before it is still there.
static void damaged_pages_are_named(void **unused) {
  (void)unused;
  state = 27;
  weft_model *m = opened(project, NULL);
  for (int i = 0; i < 12; i++) {
    weft_store *s = store_of(m, 1u << 30);
    weft_sequence *q;
    weft_error err = {""};
    size_t n, which = below((uint32_t)caches_n_pages(MOST)), before = which * CACHE_PAGE;
    char start[32], path[512] = "";
    fill(m, s);
    DIR *d = opendir(folder);
    snprintf(start, sizeof start, "-%06zu-", which);
    for (struct dirent *e; (e = readdir(d));)
      if (strstr(e->d_name, start)) snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
    closedir(d);
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    long at = i < 4 ? 8 + (long)below(300) : (long)below((uint32_t)ftell(f));
    fseek(f, at, SEEK_SET);
    int c = fgetc(f);
    fseek(f, at, SEEK_SET);
    fputc(c ^ 1 << below(8), f);
    fclose(f);
    assert_int_equal(weft_store_find(s, texts->ids, MOST - 1), MOST - 1);
    assert_int_equal(weft_store_load(s, texts->ids, MOST - 1, &q, &err), -2);
    if (!strstr(err.text, path)) fail_msg("'%s' does not name %s", err.text, path);
    assert_int_equal(access(path, F_OK), -1);
    goes_on(m, s, texts, before, false);
    weft_store_close(s);
    s = store_of(m, 1u << 30);                           // what follows it serves nobody
    bytes_there(&n, true);
    assert_int_equal(n, which);
    weft_store_close(s);
  }
  ended(m, NULL);
}

static void the_folder_has_a_limit(void **unused) {
  (void)unused;
  state = 33;
  weft_model *m = opened(project, NULL);
  weft_store *s = store_of(m, 1u << 30);
  size_t n, found;
  fill(m, s);
  uint64_t all = bytes_there(&n, false), limit = all * 7 / 10;
  weft_store_close(s);
  s = store_of(m, limit);
  assert_true(bytes_there(&n, false) <= limit && n == 3);          // the first ones stay
  found = weft_store_find(s, texts->ids, MOST);
  assert_int_equal(found, 3 * CACHE_PAGE);
  goes_on(m, s, texts, found, false);
  // a page that another process removed is no error
  char start[] = "-000002-";
  DIR *d = opendir(folder);
  for (struct dirent *e; (e = readdir(d));) if (strstr(e->d_name, start)) unlinkat(dirfd(d), e->d_name, 0);
  closedir(d);
  weft_sequence *q;
  weft_error err;
  assert_int_equal(weft_store_load(s, texts->ids, MOST, &q, &err), 1);
  goes_on(m, s, texts, 2 * CACHE_PAGE, false);
  ended(m, s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(of_the_demo_model),
    cmocka_unit_test(of_windows),
    cmocka_unit_test(of_windows_that_moved_on),
    cmocka_unit_test(what_begins_alike_is_there_once),
    cmocka_unit_test(damaged_pages_are_named),
    cmocka_unit_test(the_folder_has_a_limit),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
