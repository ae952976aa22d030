// Stop strings: wherever the text is cut, the same is shown; against a plain search of the whole text.
#include "engine/stop.h"
#include "base/str.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static uint64_t rng = 5;
static size_t below(size_t n) { return (size_t)((rng = hash_u64(rng, 3)) % n); }

static stop *make(const char *const *texts, size_t n) {
  stop *s = NULL;
  error err = {0};
  assert_int_equal(stop_new(texts, n, &s, &err), 0);
  return s;
}

// Where the stop string that is complete first begins; the length of the text if there is none.
static size_t plain(const char *text, size_t n, char stops[][6], size_t n_stops) {
  for (size_t end = 1; end <= n; end++) {
    size_t longest = 0;
    for (size_t i = 0; i < n_stops; i++) {
      size_t len = strlen(stops[i]);
      if (len <= end && len > longest && !memcmp(text + end - len, stops[i], len)) longest = len;
    }
    if (longest) return end - longest;
  }
  return n;
}

static void test_any_cut(void **state) {
  (void)state;
  for (int round = 0; round < 20000; round++) {
    char stops[3][6] = {"", "", ""}, text[40];
    const char *at[3] = {stops[0], stops[1], stops[2]};
    size_t n_stops = 1 + below(3), n = below(40);
    for (size_t i = 0; i < n_stops; i++)
      for (size_t j = 0, len = 1 + below(5); j < len; j++) stops[i][j] = (char)('a' + below(2));
    for (size_t i = 0; i < n; i++) text[i] = (char)('a' + below(2 + (unsigned)round % 4));
    stop *s = make(at, n_stops);
    str shown = {0};
    str_add(&shown, "");
    int found = -1;
    size_t got;
    for (size_t i = 0; i < n && found < 0;) {
      size_t piece = 1 + below(6);
      if (piece > n - i) piece = n - i;
      const char *part = stop_add(s, text + i, piece, &got, &found);
      str_addn(&shown, part, got);
      i += piece;
    }
    if (found < 0) {
      const char *part = stop_end(s, &got);
      str_addn(&shown, part, got);
    }
    size_t want = plain(text, n, stops, n_stops);
    assert_int_equal(shown.n, want);
    assert_memory_equal(shown.at, text, want);
    str_free(&shown);
    stop_free(s);
  }
}

static void test_holds_back_no_more_than_needed(void **state) {
  (void)state;
  stop *s = make((const char *const[]){"</end>", "\xc3\xa9t\xc3\xa9"}, 2);
  size_t n;
  int found;
  assert_string_equal(stop_add(s, "a <", 3, &n, &found), "a ");
  assert_string_equal(stop_add(s, "b", 1, &n, &found), "<b");
  assert_string_equal(stop_add(s, "</e", 3, &n, &found), "");
  assert_string_equal(stop_add(s, "\xc3\xa9", 2, &n, &found), "</e");
  assert_string_equal(stop_add(s, "t\xc3\xa8", 3, &n, &found), "\xc3\xa9t\xc3\xa8");
  assert_int_equal(found, -1);
  assert_string_equal(stop_add(s, "x</end>y", 8, &n, &found), "x");
  assert_int_equal(found, 0);
  assert_string_equal(stop_end(s, &n), "");
  stop_free(s);
}

static void test_bad_stops(void **state) {
  (void)state;
  stop *s = NULL;
  error err = {0};
  char longest[1100];
  memset(longest, 'x', sizeof longest);
  longest[sizeof longest - 1] = 0;
  assert_int_equal(stop_new((const char *const[]){"a", ""}, 2, &s, &err), -1);
  assert_non_null(strstr(err.text, "stop string 2 has 0 bytes"));
  err.text[0] = 0;
  assert_int_equal(stop_new((const char *const[]){longest}, 1, &s, &err), -1);
  assert_non_null(strstr(err.text, "1099 bytes"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_any_cut),
    cmocka_unit_test(test_holds_back_no_more_than_needed),
    cmocka_unit_test(test_bad_stops),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
