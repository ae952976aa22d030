// Normal forms and the questions about characters.  tests/python/test_tokenizers.py compares the forms with other
// tables at length.
#define _GNU_SOURCE
#include "text/unicode.h"
#include "tools/cpu.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void form(enum unicode_form f, const char *text, size_t n, const char *want, size_t n_want) {
  str out = {0};
  unicode_normalize(f, text, n, &out);
  assert_int_equal(out.n, n_want);
  assert_memory_equal(str_c(&out), want, n_want);
  if (n != n_want || memcmp(text, want, n)) assert_true(unicode_may_change(f, text, n));
  str_free(&out);
}
#define FORM(f, text, want) form(f, text, sizeof(text) - 1, want, sizeof(want) - 1)

static void test_normal_forms(void **state) {
  (void)state;
  FORM(UNICODE_NFC, "", "");
  FORM(UNICODE_NFC, "plain", "plain");
  FORM(UNICODE_NFC, "e\xCC\x81x", "\xC3\xA9x");
  FORM(UNICODE_NFC, "abe\xCC\x81", "ab\xC3\xA9");
  FORM(UNICODE_NFC, "\xC3\xA9", "\xC3\xA9");
  FORM(UNICODE_NFD, "\xC3\xA9", "e\xCC\x81");
  FORM(UNICODE_NFC, "\xE2\x84\xAB", "\xC3\x85");                                     // the Angstrom sign
  FORM(UNICODE_NFC, "a\xCC\x82\xCC\xA3", "\xE1\xBA\xAD");                            // the marks change places
  FORM(UNICODE_NFC, "\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8", "\xEA\xB0\x81");         // Hangul
  FORM(UNICODE_NFC, "\xEA\xB0\x80\xE1\x86\xA8", "\xEA\xB0\x81");                     // half of it joined already
  FORM(UNICODE_NFD, "\xEA\xB0\x81", "\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8");
  FORM(UNICODE_NFC, "\xEF\xAC\x81", "\xEF\xAC\x81");                                 // a ligature
  FORM(UNICODE_NFKC, "\xEF\xAC\x81\xC2\xA0\xEF\xBC\xA1", "fi A");
  FORM(UNICODE_NFKD, "\xC7\x84", "DZ\xCC\x8C");
  FORM(UNICODE_NFC, "\xE0\xA5\x98", "\xE0\xA4\x95\xE0\xA4\xBC");                     // one that must not be composed
}

static void test_what_is_no_text_stays(void **state) {
  (void)state;
  FORM(UNICODE_NFC, "\xFF" "e\xCC\x81\xFF\xCC\x81", "\xFF\xC3\xA9\xFF\xCC\x81");
  FORM(UNICODE_NFC, "e\xFF\xCC\x81", "e\xFF\xCC\x81");
  FORM(UNICODE_NFC, "e\xCC", "e\xCC");
  FORM(UNICODE_NFC, "a\0e\xCC\x81", "a\0\xC3\xA9");
  FORM(UNICODE_NFC, "\xED\xA0\x80", "\xED\xA0\x80");
}

// Marks of two classes taking turns: exchanging neighbours until they are sorted would take hours.
static void test_many_marks(void **state) {
  (void)state;
  size_t pairs = getenv("WEFT_SANITIZED") ? 100000 : 1000000, n = 1 + 4 * pairs;
  char *text = xmalloc(n);
  text[0] = 'q';
  for (size_t i = 0; i < pairs; i++) memcpy(text + 1 + 4 * i, "\xCC\x81\xCC\xA3", 4);
  str out = {0};
  double start = cpu_s();
  unicode_normalize(UNICODE_NFD, text, n, &out);
  assert_true(cpu_s() - start < 20);
  assert_int_equal(out.n, n);
  for (size_t i = 0; i < 2 * pairs; i++)
    assert_memory_equal(out.at + 1 + 2 * i, i < pairs ? "\xCC\xA3" : "\xCC\x81", 2);
  str_free(&out);
  free(text);
}

static void test_characters(void **state) {
  (void)state;
  uint32_t out[2];
  assert_int_equal(unicode_lower('A', out), 1);
  assert_int_equal(out[0], 'a');
  assert_int_equal(unicode_lower(0x130, out), 2);
  assert_int_equal(out[1], 0x307);
  assert_int_equal(unicode_lower(0x416, out), 1);
  assert_int_equal(out[0], 0x436);
  assert_true(unicode_is_space(0x3000) && unicode_is_space('\f') && !unicode_is_space(0x180E) &&
              !unicode_is_space(0x200B));
  assert_true(unicode_is_letter(0x4E00) && unicode_is_letter('z') && !unicode_is_letter('1'));
  assert_true(unicode_is_number(0xBD) && !unicode_is_decimal(0xBD) && unicode_is_decimal(0x661));
  assert_true(unicode_is_punctuation('!') && !unicode_is_punctuation('$'));
  assert_true(unicode_is_mark(0x903) && !unicode_is_nonspacing(0x903) && unicode_is_nonspacing(0x301));
  assert_true(unicode_is_other(0) && unicode_is_other(0x200D) && unicode_is_other(0xE000) && !unicode_is_other(0x378));
  assert_true(unicode_is_word('_') && unicode_is_word('9') && unicode_is_word(0x301) && !unicode_is_word('-'));
  assert_true(unicode_is_han(0x4E00) && unicode_is_han(0x20000) && !unicode_is_han(0x3042));
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_normal_forms),
    cmocka_unit_test(test_what_is_no_text_stays),
    cmocka_unit_test(test_many_marks),
    cmocka_unit_test(test_characters),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
