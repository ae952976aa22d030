// The generator that denoising draws by: the value that the C++ standard gives for std::mt19937, and how numbers are
// made of its words.
#include "engine/mersenne.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

// [rand.predef]: the 10000th word of a std::mt19937 with its own seed
static void test_word_of_the_standard(void **state) {
  (void)state;
  mersenne r;
  uint32_t x = 0;
  mersenne_seed(&r, 5489);
  for (int i = 0; i < 10000; i++) x = mersenne_next(&r);
  assert_true(x == 4123659995u);
}

static void test_numbers_of_words(void **state) {
  (void)state;
  mersenne r, words;
  mersenne_seed(&r, 7);
  words = r;
  for (int i = 0; i < 2000; i++) {
    double low = mersenne_next(&words), high = mersenne_next(&words), x = mersenne_double(&r);
    assert_true(x >= 0 && x < 1 && x - (high + low * 0x1p-32) * 0x1p-32 < 0x1p-53);
  }
  for (int i = 0; i < 2000; i++) {
    float x = mersenne_float(&r);
    assert_true(x >= 0 && x < 1 && x - (float)mersenne_next(&words) * 0x1p-32f < 0x1p-24f);
  }
}

// A word whose float would be 1 is just below it.
static void test_never_one(void **state) {
  (void)state;
  mersenne r;
  float most = 0;
  for (uint32_t seed = 0; seed < 64 && most < 0x1.fffffep-1f; seed++) {
    mersenne_seed(&r, seed);
    for (int i = 0; i < 4000000 && most < 0x1.fffffep-1f; i++) {
      float x = mersenne_float(&r);
      if (x > most) most = x;
    }
  }
  assert_true(most == 0x1.fffffep-1f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_word_of_the_standard),
    cmocka_unit_test(test_numbers_of_words),
    cmocka_unit_test(test_never_one),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
