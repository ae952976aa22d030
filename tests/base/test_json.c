// JSON from strangers: what it takes is known before it is read, and what is too much is refused.
#include "base/json.h"
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include "base/str.h"
#include <cmocka.h>

static str many(const char *open, const char *form, size_t n, const char *close) {
  str s = {0};
  str_add(&s, open);
  for (const char *at = ""; n--; at = ",") {
    const char *digits = strchr(form, '#');
    str_add(&s, at);
    if (digits) str_addf(&s, "%.*s%08zx%s", (int)(digits - form), form, n, digits + 1);
    else str_add(&s, form);
  }
  str_add(&s, close);
  return s;
}

static size_t allocated(void) {
  struct mallinfo2 m = mallinfo2();
  return m.uordblks + m.hblkhd;
}

// The estimate lies between 0.75 and 1.75 times of what the values take.
static void test_cost(void **state) {
  (void)state;
  static const char *const form[] = {"{}",         "[]",       "1",         "-1.5e3", "\"\"",     "\"#\"",
                                     "\"\\\"#,{[:\"", "{\"a\":1}", "[[[[]]]]", "null",   "[1,2,3]", "{\"#\":\"#\"}",
                                     "{\"role\":\"user\",\"content\":\"message #\"}",
                                     "{\"a\":0,\"b\":0,\"c\":0,\"d\":0,\"e\":0,\"f\":0,\"g\":0,\"h\":0,\"i\":0}"};
  if (getenv("WEFT_SANITIZED")) skip();    // another allocator
  for (size_t i = 0; i <= COUNT(form); i++) {
    str s = i < COUNT(form) ? many("[", form[i], 100000, "]") : many("{", "\"#\":1", 100000, "}");
    size_t before = allocated(), cost = json_cost(s.at, s.n);
    json_t *o = json_loadb(s.at, s.n, 0, NULL);
    assert_non_null(o);
    double took = (double)(allocated() - before), ratio = (double)cost / took;
    if (ratio < 0.75 || ratio > 1.75)
      fail_msg("%s: %zu instead of %.0f", i < COUNT(form) ? form[i] : "members", cost, took);
    json_decref(o);
    str_free(&s);
  }
}

static void test_fits(void **state) {
  (void)state;
  static const char *const small[] = {"{}", "[]", "1", "\"\"", "[[[]]]", "{\"\":1}"};
  for (size_t i = 0; i < COUNT(small); i++) {
    str s = many("[", small[i], 9900000 / (strlen(small[i]) + 1), "]");
    error err = {0};
    assert_null(json_read(s.at, s.n, 0, NULL, &err));
    assert_non_null(strstr(err.text, "MB is the most"));
    str_free(&s);
  }
  const char *quoted = "[\"{}{}{}[1,2,3,4]\\\"{}{}{}\"]";      // nothing in a text counts
  assert_true(json_cost(quoted, strlen(quoted)) < 400);
  str s = many("[", "{\"role\":\"user\",\"content\":\"hi\"}", 100000, "]");
  size_t left = JSON_ROOM;
  assert_true(json_fits(s.at, s.n, &left, NULL));
  assert_false(json_fits(s.at, s.n, &left, NULL));            // one budget for both
  error why = {0};
  size_t none = 0;
  assert_false(json_fits("[1,2,3,4,5]", 11, &none, &why));    // what is below 1 MB has numbers, too
  assert_null(strstr(why.text, "0 MB"));
  assert_non_null(strstr(why.text, "11 bytes of JSON"));
  assert_non_null(strstr(why.text, "are left"));
  assert_true(left < JSON_ROOM);
  str_free(&s);
}

static void test_large_integers(void **state) {
  (void)state;
  const char *text = "[9223372036854775808,9223372036854775807,-99999999999999999999,1,\"9223372036854775808\",1e3]";
  error err = {0};
  json_t *o = json_read(text, strlen(text), 0, NULL, &err);
  assert_non_null(o);
  assert_true(json_real_value(json_array_get(o, 0)) == 9223372036854775808.0);
  assert_true(json_integer_value(json_array_get(o, 1)) == INT64_MAX);
  assert_true(json_real_value(json_array_get(o, 2)) == -1e20);
  assert_true(json_is_integer(json_array_get(o, 3)));
  assert_string_equal(json_string_value(json_array_get(o, 4)), "9223372036854775808");
  json_decref(o);
}

static void test_numbers_of_python(void **state) {
  (void)state;
  static const struct { const char *text, *expected; } cases[] = {
    {"{\"a\": 1}", ""}, {"[\"NaN\", \"-Infinity\", \"\\\"Infinity\", -1, null]", ""}, {"", ""}, {"-", ""}, {"Na", ""},
    {"[0.0, Infinity]", "[0.0, {\"__float__\":\"Infinity\"}]"},
    {"[NaN,-Infinity]", "[{\"__float__\":\"NaN\"},{\"__float__\":\"-Infinity\"}]"},
    {"{\"Infinity\":Infinity}", "{\"Infinity\":{\"__float__\":\"Infinity\"}}"}, {"\"NaN", ""},
  };
  for (size_t i = 0; i < COUNT(cases); i++) {
    str s = json_from_python(cases[i].text, strlen(cases[i].text));
    assert_string_equal(str_c(&s), cases[i].expected);
    str_free(&s);
  }
}

static int list_element(void *ctx, size_t i, json_t *element, size_t cost) {
  char *text = json_dumps(element, JSON_COMPACT | JSON_ENCODE_ANY);
  str_addf(ctx, "%s%s", i ? " " : "", text);
  free(text);
  json_decref(element);
  assert_true(cost < 2000);
  return 0;
}

static void test_each(void **state) {
  (void)state;
  static const char *const cases[][2] = {
    {"[]", ""},
    {" [ ] ", ""},
    {"[1]", "1"},
    {" [1 , {\"a\":[1,2,\"],}\\\"\"]},[[2]] ] ", "1 {\"a\":[1,2,\"],}\\\"\"]} [[2]]"},
    {"[18446744073709551616]", "1.8446744073709552e19"}};
  static const char *const wrong[] = {"", "{}", "1", "[", "[1", "[1,", "[1,]", "[,1]", "[1]x", "[1}", "[{]}]", "[\"a]",
                                      "[1 2]", "]"};
  for (size_t i = 0; i < COUNT(cases); i++) {
    str s = {0};
    error err = {0};
    assert_int_equal(json_each(cases[i][0], strlen(cases[i][0]), list_element, &s, &err), 0);
    assert_string_equal(str_c(&s), cases[i][1]);
    str_free(&s);
  }
  for (size_t i = 0; i < COUNT(wrong); i++) {
    str s = {0};
    error err = {0};
    assert_int_equal(json_each(wrong[i], strlen(wrong[i]), list_element, &s, &err), -1);
    assert_true(strlen(err.text) > 10);
    str_free(&s);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_cost), cmocka_unit_test(test_fits),
                                     cmocka_unit_test(test_large_integers),
                                     cmocka_unit_test(test_numbers_of_python), cmocka_unit_test(test_each)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
