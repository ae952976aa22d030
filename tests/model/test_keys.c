// Values of keys that are there for each layer.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "gguf_writer.h"
#include "model/model_impl.h"

// A list may leave out the blocks after the layers, which predict further tokens: their flags are 0, whatever was
// there.
static void test_flags_of_blocks_without(void **state) {
  (void)state;
  uint32_t each[MODEL_MAX_LAYERS];
  const char *uses[1] = {NULL};
  str s = {0};
  gguf *g;
  error err = {0};
  w_header(&s, 0, 1);
  w_key_array(&s, "x.flags", GGUF_BOOL, 2);
  w_u8(&s, 1);
  w_u8(&s, 0);
  assert_int_equal(gguf_open_memory(s.at, s.n, "flags.gguf", &g, &err), 0);
  const arch a = {.name = "x"};
  model m = {.arch = &a, .n_layer = 2, .n_block = 3};
  loader l = {.f = g, .m = &m, .err = &err, .uses = uses};
  for (int i = 0; i < MODEL_MAX_LAYERS; i++) each[i] = 7;
  assert_int_equal(key_flags(&l, "flags", each), 0);
  assert_int_equal(each[0], 1);
  for (int i = 1; i < MODEL_MAX_LAYERS; i++) assert_int_equal(each[i], 0);
  gguf_close(g);
  str_free(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_flags_of_blocks_without)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
