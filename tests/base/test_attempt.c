// Attempts: what an attempt owns comes back when it dies, and stays when it ends well.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "live_blocks.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "base/arena.h"
#include "base/attempt.h"
#include "base/map.h"
#include "base/str.h"

enum { BLOCKS = 500, BIG = 4096 };

static long in_use(void) { return live_bytes; }

// Takes, moves and frees at random; what is left at the end is in kept.
typedef struct work { void *kept[BLOCKS]; str text; arena *a; map m; bool dies; } work;

static void take_and_give(void *ctx) {
  work *w = ctx;
  uint64_t state = 7;
  for (int i = 0; i < 20000; i++) {
    state = hash_u64(state, 1);
    void **at = &w->kept[state % BLOCKS];
    size_t n = 1 + (state >> 40) % BIG;
    if (state >> 32 & 1) *at = xrealloc(*at, n);
    else if (state >> 33 & 1) { free(*at); *at = xmalloc(n); }
    else { free(*at); *at = NULL; }
    map_set(&w->m, state, *at);
  }
  w->a = arena_new();
  arena_alloc(w->a, 1 << 20);
  str_addf(&w->text, "%d", 5);
  die_if(w->dies, "as it was asked to: %d", 5);
}

static void give_all(work *w) {
  for (int i = 0; i < BLOCKS; i++) free(w->kept[i]);
  str_free(&w->text);
  arena_free(w->a);
  map_free(&w->m);
}

static void owns(void **state) {
  (void)state;
  error err = {0};
  long before = in_use();
  for (int i = 0; i < 3; i++) {
    work w = {.dies = true};
    assert_int_equal(attempt(ATTEMPT_OWNS, take_and_give, &w, &err), -1);
    assert_non_null(strstr(err.text, "internal error at "));
    assert_non_null(strstr(err.text, "test_attempt.c:"));
    assert_non_null(strstr(err.text, ": as it was asked to: 5"));
  }
  assert_int_equal(in_use(), before);
  work w = {0};
  assert_int_equal(attempt(ATTEMPT_OWNS, take_and_give, &w, &err), 0);
  assert_string_equal(w.text.at, "5");
  for (int i = 0; i < BLOCKS; i++) if (w.kept[i]) memset(w.kept[i], 1, 1);
  give_all(&w);
  assert_int_equal(in_use(), before);
}

static void leaves(void **state) {
  (void)state;
  work w = {.dies = true};
  long before = in_use();
  assert_int_equal(attempt(ATTEMPT_LEAVES, take_and_give, &w, NULL), -1);
  assert_string_equal(w.text.at, "5");
  give_all(&w);
  assert_int_equal(in_use(), before);
}

typedef struct nest { void *outer, *inner, *hidden; bool die_within, die_after; int within; error err; } nest;

static void inner(void *ctx) {
  nest *n = ctx;
  n->inner = xmalloc(100);
  n->outer = xrealloc(n->outer, 3000);          // belongs to whom it belonged
  attempt_about("tensor", "a.weight");
  die_if(n->die_within, "within");
}

static void around(void *ctx) {
  nest *n = ctx;
  n->outer = xmalloc(10);
  struct attempt_frame *f = attempt_suspend();
  n->hidden = xmalloc(50);
  attempt_resume(f);
  n->within = attempt(ATTEMPT_OWNS, inner, n, &n->err);
  memset(n->outer, 1, 3000);
  die_if(n->die_after, "after");
}

static void nested(void **state) {
  (void)state;
  long before = in_use();
  for (int i = 0; i < 4; i++) {
    nest n = {.die_within = i & 1, .die_after = i & 2};
    error err = {0};
    assert_int_equal(attempt(ATTEMPT_OWNS, around, &n, &err), i & 2 ? -1 : 0);
    assert_int_equal(n.within, i & 1 ? -1 : 0);
    if (i & 1) assert_non_null(strstr(n.err.text, ": within (while tensor 'a.weight' is used)"));
    if (i & 2) assert_non_null(strstr(err.text, ": after"));
    if (!(i & 2)) free(n.outer);
    if (!(i & 3)) free(n.inner);
    free(n.hidden);
    assert_int_equal(in_use(), before);
  }
}

// A thread that dies within an attempt of its own ends neither the program nor the attempt of another thread.
static void *thread(void *ctx) {
  return (void *)(intptr_t)attempt(ATTEMPT_OWNS, take_and_give, ctx, NULL);
}

static void other_thread(void *ctx) {
  pthread_t t;
  void *result;
  work w = {.dies = true};
  assert_int_equal(pthread_create(&t, NULL, thread, &w), 0);
  assert_int_equal(pthread_join(t, &result), 0);
  *(int *)ctx = (int)(intptr_t)result;
}

static void threads(void **state) {
  (void)state;
  int result = 0;
  assert_int_equal(attempt(ATTEMPT_OWNS, other_thread, &result, NULL), 0);
  assert_int_equal(result, -1);
}

static void passes_a_place(void *ctx) {
  int *passed = ctx;
  for (int i = 0; i < 5; i++) { die_if(false, "no. %d", i); ++*passed; }
}

static void see_place(void *ctx, const char *file, int line, int64_t times) {
  str *s = ctx;
  str_addf(s, "%s:%d", strrchr(file, '/') ? strrchr(file, '/') + 1 : file, line);
  assert_int_equal(times, 5);
}

static void on_purpose(void **state) {
  (void)state;
  int passed = 0;
  str place = {0};
  error err = {0};
  die_inject("count");
  assert_int_equal(attempt(ATTEMPT_OWNS, passes_a_place, &passed, NULL), 0);
  die_places(see_place, &place);
  size_t n = place.n;
  str_add(&place, ":3");
  passed = 0;
  die_inject(place.at);
  assert_int_equal(attempt(ATTEMPT_OWNS, passes_a_place, &passed, &err), -1);
  assert_int_equal(passed, 2);
  assert_non_null(strstr(err.text, "no. 2"));
  place.at[n] = 0;
  passed = 0;
  die_inject(place.at);
  assert_int_equal(attempt(ATTEMPT_OWNS, passes_a_place, &passed, &err), -1);
  assert_int_equal(passed, 0);
  die_inject(NULL);
  assert_int_equal(attempt(ATTEMPT_OWNS, passes_a_place, &passed, &err), 0);
  str_free(&place);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(owns),    cmocka_unit_test(leaves),     cmocka_unit_test(nested),
                                     cmocka_unit_test(threads), cmocka_unit_test(on_purpose)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
