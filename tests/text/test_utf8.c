// UTF-8: every sequence of up to three bytes (and many of four) against a plain statement of the standard, and the
// stream.
#include "base/base.h"
#include "text/utf8.h"
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

// The code point that p[0..len) encodes in its shortest form, or -1.
static int64_t plain_decode(const unsigned char *p, int len) {
  static const unsigned char lead[5] = {0, 0x00, 0xC0, 0xE0, 0xF0}, mask[5] = {0, 0x80, 0xE0, 0xF0, 0xF8};
  static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
  if ((p[0] & mask[len]) != lead[len]) return -1;
  uint32_t cp = p[0] & (unsigned char)~mask[len];
  for (int i = 1; i < len; i++) {
    if ((p[i] & 0xC0) != 0x80) return -1;
    cp = cp << 6 | (p[i] & 0x3F);
  }
  return cp < least[len] || cp > 0x10FFFF || (cp >= 0xD800 && cp <= 0xDFFF) ? -1 : (int64_t)cp;
}

static void check(const unsigned char *b, size_t n) {
  int want = 0;
  for (int len = 1; len <= (int)n && len <= 4; len++)
    if (plain_decode(b, len) >= 0) want = len;
  int have = utf8_next((const char *)b, n);
  if (want > 0) {
    assert_int_equal(have, want);
    char again[4];
    uint32_t cp = utf8_code_point((const char *)b, have);
    assert_int_equal(cp, plain_decode(b, want));
    assert_int_equal(utf8_put(cp, again), want);
    assert_memory_equal(again, b, (size_t)want);
  } else assert_true(have <= 0);
}

static void test_short_sequences(void **state) {
  (void)state;
  unsigned char b[4];
  for (unsigned x = 0; x < 1u << 24; x += x < 0xC00000 ? 251 : 1) {   // lead bytes from 0xC0 on: all of them
    b[0] = (unsigned char)(x >> 16), b[1] = (unsigned char)(x >> 8), b[2] = (unsigned char)x, b[3] = 0x80;
    check(b, 1), check(b, 2), check(b, 3), check(b, 4);
  }
}

static void test_every_code_point(void **state) {
  (void)state;
  for (uint32_t cp = 0; cp <= 0x10FFFF; cp++) {
    char b[4];
    int len = utf8_put(cp, b);
    assert_int_equal(utf8_next(b, (size_t)len), cp >= 0xD800 && cp <= 0xDFFF ? 0 : len);
    // Each beginning of a character lacks the rest of it.
    for (int n = 1; n < len && !(cp >= 0xD800 && cp <= 0xDFFF); n++) assert_int_equal(utf8_next(b, (size_t)n), n - len);
  }
}

static void test_valid_prefix(void **state) {
  (void)state;
  const char text[] = "0123456789abcdef\xC3\xA4\xF0\x9F\x98\x81z\xED\xA0\x80q";
  assert_int_equal(utf8_valid_prefix(text, sizeof text - 1), 23);
  assert_int_equal(utf8_valid_prefix(text, 17), 16);
  assert_int_equal(utf8_valid_prefix(text, 22), 22);
  assert_int_equal(utf8_valid_prefix("", 0), 0);
}

static void stream_gives(const char *bytes, size_t n, const char *during, const char *at_end) {
  utf8_stream s = {0};
  str out = {0};
  for (size_t i = 0; i < n; i++) utf8_stream_add(&s, bytes + i, 1, &out);
  assert_string_equal(str_c(&out), during);
  utf8_stream_end(&s, &out);
  assert_string_equal(str_c(&out), at_end);
  assert_int_equal(s.n, 0);
  str whole = {0};                                        // all at once: the same
  utf8_stream_add(&s, bytes, n, &whole);
  utf8_stream_end(&s, &whole);
  assert_string_equal(str_c(&whole), at_end);
  str_free(&out);
  str_free(&whole);
}
#define STREAM(bytes, during, at_end) stream_gives(bytes, sizeof(bytes) - 1, during, at_end)
#define BAD "\xEF\xBF\xBD"

static void test_stream(void **state) {
  (void)state;
  STREAM("", "", "");
  STREAM("abc", "abc", "abc");
  STREAM("\xF0\x9F\x98\x81", "\xF0\x9F\x98\x81", "\xF0\x9F\x98\x81");
  STREAM("a\xF0\x9F\x98", "a", "a" BAD);                  // held back, broken only at the end
  STREAM("\xF0\x9F\x98z", BAD "z", BAD "z");
  STREAM("\xE4\xBD\xE4\xBD\xA0", BAD "\xE4\xBD\xA0", BAD "\xE4\xBD\xA0");
  STREAM("\x80\x80", BAD BAD, BAD BAD);
  STREAM("\xFF", BAD, BAD);
  STREAM("\xED\xA0\x80", BAD BAD BAD, BAD BAD BAD);       // a surrogate: no byte of it can begin a character
  STREAM("\xC3\xC3\xA4", BAD "\xC3\xA4", BAD "\xC3\xA4");
  STREAM("\xC0\xAF", BAD BAD, BAD BAD);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_short_sequences), cmocka_unit_test(test_every_code_point),
                                     cmocka_unit_test(test_valid_prefix), cmocka_unit_test(test_stream)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
