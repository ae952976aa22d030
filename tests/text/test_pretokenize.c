// Word patterns: every row compiles and gives words that are the text; a few are followed word by word.
#include "text/pretokenize.h"
#include "base/str.h"
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

static int add_word(void *ctx, const char *word, size_t n) {
  str *out = ctx;
  if (out->n) str_addc(out, '|');
  str_addn(out, word, n);
  return n == 0;                                          // an empty word would be an error
}

// where the calls below say how far they came: always to the end
static size_t settled;

// The words of text, joined with bars.
static void words(const char *name, const char *text, const char *want) {
  const pretokenizer_row *row = pretokenizer_find(name, strlen(name));
  assert_non_null(row);
  pretokenizer *p = NULL;
  error err = {0};
  str out = {0};
  if (pretokenizer_new(row, &p, &err)) fail_msg("%s", err.text);
  if (pretokenizer_split(p, text, strlen(text), false, &settled, add_word, &out, &err)) fail_msg("%s", err.text);
  assert_string_equal(str_c(&out), want);
  str_free(&out);
  pretokenizer_free(p);
}

static void test_gpt_2(void **state) {
  (void)state;
  words("gpt-2", "I'll go, 'LL  you?\n\n x12 34", "I|'ll| go|,| '|LL| | you|?|\n\n| x|12| 34");
  words("gpt-2", "a   b ", "a|  | b| ");
  words("gpt-2", "", "");
  words("gpt-2", "a\xE2\x80\xA8" "b", "a|\xE2\x80\xA8|b");                 // U+2028 is a space
  words("gpt-2", "a \xE1\xA0\x8E" "b", "a| \xE1\xA0\x8E|b");              // U+180E is none
}

static void test_llama3_and_qwen2(void **state) {
  (void)state;
  words("llama-bpe", "I'LL go\n\n  x12345 ===\n\ny", "I|'LL| go|\n\n| | x|123|45| ===\n\n|y");
  words("qwen2", "x123", "x|1|2|3");
  words("llama-bpe", "don'\xC5\xBF" "a", "don|'\xC5\xBF|a");              // the long s is an s without regard to case
  words("llama-bpe", "\xD9\xA1\xD9\xA2\xD9\xA3\xD9\xA4", "\xD9\xA1\xD9\xA2\xD9\xA3|\xD9\xA4");
}

static void test_capitals(void **state) {
  (void)state;
  words("gpt-4o", "parseJSONText it's 12345", "parse|JSONText| it's| |123|45");
  words("tekken", "parseJson 12", "parse|Json| |1|2");
}

static void test_several_patterns(void **state) {
  (void)state;
  words("starcoder", "a12 b", "a|1|2| b");
  words("falcon", "a12345 b", "a|123|45| b");
  words("deepseek-llm", "a12\n\nb  ", "a|12|\n|\n|b|  ");
  // U+3000 is a space and a sign
  words("deepseek-llm", "  \xE3\x80\x80   a \xE3\x80\x80", " | |\xE3\x80\x80|  | a| |\xE3\x80\x80");
  words("deepseek-v3", "foo(bar) 1234", "foo|(bar|)| |123|4");
}

static void test_digits_in_threes(void **state) {
  (void)state;
  words("superbpe", "a 1234567b", "a |1|234|567|b");
  words("superbpe", "123", "123");
  words("tiny_aya", "x 1234567 12 123a", "x| |1|234|567| |12| |123|a");
  words("tiny_aya", "1234567x", "123|456|7|x");           // no whole number: from the left
  words("afmoe", "a1234", "a|1|234");
  words("afmoe", "  \xD9\xA1\xD9\xA2\xD9\xA3\xD9\xA4", "  |\xD9\xA1|\xD9\xA2\xD9\xA3\xD9\xA4");
}

static void test_other_rows(void **state) {
  (void)state;
  words("kimi-k2", "ab\xE6\xBC\xA2\xE5\xAD\x97 Cd's", "ab|\xE6\xBC\xA2\xE5\xAD\x97| Cd's");
  words("exaone-moe", "\xEA\xB0\x80 \xEB\x82\x98 1", "\xEA\xB0\x80 \xEB\x82\x98| |1");
  words("jais-2", "a       b", "a|    |  | b");
  words("bloom", "Hi there, you.", "Hi| there|,| you|.");
  words("gemma4", "a b\n\nc", "a b|\n\n|c");
  words("chameleon", "xIMGIMGABZ  y", "x|IMGIMGABZ|  |y");
}

static void test_invalid_bytes_keep_their_place(void **state) {
  (void)state;
  words("gpt-2", "ab\xFF\xFE" "c d", "ab|\xFF\xFE|c| d");
  words("gpt-2", "\xE4\xBD", "\xE4\xBD");
  words("gpt-2", "a \xED\xA0\x80", "a| \xED\xA0\x80");
}

static int stop_at_second(void *ctx, const char *word, size_t n) {
  (void)word, (void)n;
  return ++*(int *)ctx == 2;
}

static void test_stops_when_told(void **state) {
  (void)state;
  pretokenizer *p = NULL;
  int count = 0;
  assert_int_equal(pretokenizer_new(pretokenizer_find("gpt-2", 5), &p, NULL), 0);
  assert_int_equal(pretokenizer_split(p, "a b c d", 7, false, &settled, stop_at_second, &count, NULL), -1);
  assert_int_equal(count, 2);
  pretokenizer_free(p);
}

static int collect(void *ctx, const char *word, size_t n) {
  str_addn(ctx, word, n);
  return n == 0;
}

static void test_every_row(void **state) {
  (void)state;
  const char text[] = "Hello, y'all! How are you \xF0\x9F\x98\x81 ?"
    "\xE6\x88\x91\xE6\x83\xB3\xE5\x9C\xA8" "apple1314151\xE5\xA4\xA9\xEF\xBD\x9E\n\n\t x = 3.14;  "
    "\xEA\xB0\x80\xE3\x85\x85 \xE0\xB8\x81\xE0\xB8\xB3 E\xCC\x81\xFF\x00 \r\n   <|x|> parseJSON'S\xC2\xA0\xE3\x80\x80 ";
  for (size_t i = 0; pretokenizer_at(i); i++) {
    pretokenizer *p = NULL;
    error err = {0};
    str out = {0};
    if (pretokenizer_new(pretokenizer_at(i), &p, &err)) fail_msg("%s", err.text);
    if (pretokenizer_split(p, text, sizeof text - 1, false, &settled, collect, &out, &err)) fail_msg("%s", err.text);
    assert_int_equal(out.n, sizeof text - 1);
    assert_memory_equal(out.at, text, out.n);
    str_free(&out);
    pretokenizer_free(p);
    // No name stands twice.
    const char *name = pretokenizer_at(i)->name;
    assert_ptr_equal(pretokenizer_find(name, strlen(name)), pretokenizer_at(i));
  }
  assert_null(pretokenizer_find("gpt", 3));
  assert_null(pretokenizer_find("gpt-2\0", 6));
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_gpt_2), cmocka_unit_test(test_llama3_and_qwen2), cmocka_unit_test(test_capitals),
    cmocka_unit_test(test_several_patterns), cmocka_unit_test(test_digits_in_threes), cmocka_unit_test(test_other_rows),
    cmocka_unit_test(test_invalid_bytes_keep_their_place),
    cmocka_unit_test(test_stops_when_told), cmocka_unit_test(test_every_row),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
