// SHA-256 against the examples of the standard, whatever the pieces are.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>
#include "base/sha256.h"

static void is(const char *text, size_t n, size_t piece, const char *want) {
  sha256 s;
  char hex[65];
  sha256_begin(&s);
  for (size_t at = 0; at < n; at += piece) sha256_add(&s, text + at, n - at < piece ? n - at : piece);
  sha256_end(&s, hex);
  assert_string_equal(hex, want);
}

static void examples(void **state) {
  (void)state;
  static const char two[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
  is("", 0, 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  is("abc", 3, 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  for (size_t piece = 1; piece < sizeof two; piece++)
    is(two, sizeof two - 1, piece, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

static void a_million(void **state) {
  (void)state;
  static char a[1000000];
  memset(a, 'a', sizeof a);
  static const size_t pieces[] = {1, 55, 56, 63, 64, 65, 127, 1000, sizeof a};
  for (size_t i = 0; i < COUNT(pieces); i++)
    is(a, sizeof a, pieces[i], "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(examples), cmocka_unit_test(a_million)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
