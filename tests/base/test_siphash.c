// SipHash-2-4 against the test vectors that its authors publish with it.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>
#include "base/siphash.h"

// Key 00 01 .. 0f; the text of n bytes is 00 01 .. n-1.
static void known_answers(void **state) {
  (void)state;
  static const struct { size_t n; uint64_t hash;
  } known[] = {
    {0, 0x726fdb47dd0e0e31},  {1, 0x74f839c593dc67fd},  {2, 0x0d6c8009d9a94f5a}, {3, 0x85676696d7fb7e2d},
    {7, 0xab0200f58b01d137},  {8, 0x93f5f5799a932462},  {9, 0x9e0082df0ba9e4b0}, {15, 0xa129ca6149be45e5},
    {16, 0x3f2acc7f57c29bdb}, {63, 0x958a324ceb064572},
  };
  sip_key key = {{0x0706050403020100, 0x0f0e0d0c0b0a0908}};
  unsigned char text[65];
  for (size_t i = 0; i < sizeof text; i++) text[i] = (unsigned char)i;
  for (size_t i = 0; i < COUNT(known); i++) {
    assert_int_equal(siphash(&key, text, known[i].n), known[i].hash);
    unsigned char moved[66];                     // the same at an odd address
    memcpy(moved + 1, text, known[i].n);
    assert_int_equal(siphash(&key, moved + 1, known[i].n), known[i].hash);
  }
}

static void keys_differ(void **state) {
  (void)state;
  sip_key a, b;
  assert_true(sip_key_random(&a));
  assert_true(sip_key_random(&b));
  assert_memory_not_equal(&a, &b, sizeof a);
  assert_true(siphash(&a, "text", 4) != siphash(&b, "text", 4));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(known_answers), cmocka_unit_test(keys_differ)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
