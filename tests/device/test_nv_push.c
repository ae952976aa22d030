// Words of methods and entries of rings, word by word: a header is how (31:29: 1 each to the next method, 3 all to the
// same), how many (28:16), subchannel (15:13) and a quarter of the method (11:0), as clc56f.h gives DMA_INCR and
// DMA_NONINCR; methods by clc6c0.h, clc6b5.h and clc56f.h of NVIDIA's open-gpu-doc.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "device/nv_push.h"

enum { NVC6C0_SEND_PCAS_A = 0x2b4, NVC6C0_SEND_SIGNALING_PCAS2_B = 0x2c0, NVC6C0_NO_OPERATION = 0x100 };

static uint32_t head(unsigned kind, unsigned on, unsigned method, unsigned n) {
  return kind << 29 | n << 16 | on << 13 | method / 4;
}

static void is_exactly(nv_words *w, const uint32_t *expected, size_t n) {
  assert_int_equal(w->n, n);
  for (size_t i = 0; i < n; i++)
    if (w->at[i] != expected[i]) fail_msg("word %zu is %08x, not %08x", i, w->at[i], expected[i]);
  nv_words_free(w);
}
#define IS(w, ...) is_exactly(&(w), (const uint32_t[]){__VA_ARGS__}, sizeof((const uint32_t[]){__VA_ARGS__}) / 4)

static void setting_up(void **state) {
  (void)state;
  nv_words w = {0};
  nv_push_object(&w, NV_ON_COMPUTE, 0xc9c0);
  IS(w, head(1, 1, 0x0000 /* SET_OBJECT */, 1), 0xc9c0);
  assert_int_equal(head(1, 1, 0, 1), 0x20012000);            // by hand
  nv_push_windows(&w, 0x729400000000, 0x7293fe000000);
  IS(w, head(1, 1, 0x02a0 /* SET_SHADER_SHARED_MEMORY_WINDOW_A */, 2), 0x7294, 0,
     head(1, 1, 0x07b0 /* SET_SHADER_LOCAL_MEMORY_WINDOW_A */, 2), 0x7293, 0xfe000000);
  nv_push_local(&w, 0x1122334400, 0x123450000, 144);
  IS(w, head(1, 1, 0x0790 /* SET_SHADER_LOCAL_MEMORY_A */, 2), 0x11, 0x22334400,
     head(1, 1, 0x02e4 /* SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_A */, 3), 0x1, 0x23450000, 144);
  nv_push_forget(&w);
  IS(w, head(1, 1, 0x1698 /* INVALIDATE_SHADER_CACHES_NO_WFI */, 1), 1 << 0 | 1 << 4 | 1 << 12);
}

static void launches(void **state) {
  (void)state;
  nv_words w = {0};
  uint32_t skip[NV_LAUNCH_WORDS];
  nv_push_launch(&w, 0x8f12345600);
  IS(w, head(1, 1, NVC6C0_SEND_PCAS_A, 1), 0x8f123456, head(1, 1, NVC6C0_SEND_SIGNALING_PCAS2_B, 1),
     9 /* PCAS_ACTION_PREFETCH_SCHEDULE */);
  nv_push_idle(&w);
  IS(w, head(1, 1, 0x0110 /* WAIT_FOR_IDLE */, 1), 0);
  nv_skip_words(skip);
  assert_int_equal(skip[0], head(3, 1, NVC6C0_NO_OPERATION, NV_LAUNCH_WORDS - 1));
  for (int i = 1; i < NV_LAUNCH_WORDS; i++) assert_int_equal(skip[i], 0);
}

static void signals(void **state) {
  (void)state;
  nv_words w = {0};
  nv_push_signal(&w, 0x1f00000010, 0x100000002, false);
  assert_int_equal(w.at[NV_SIGNAL_VALUE], 2);
  // OPERATION_RELEASE, RELEASE_WFI_EN (20), PAYLOAD_SIZE_64BIT (24)
  IS(w, head(1, 0, 0x5c /* SEM_ADDR_LO */, 5), 0x10, 0x1f, 2, 1, 1 | 1 << 20 | 1 << 24);
  nv_push_signal(&w, 0x1f00000010, 7, true);
  IS(w, head(1, 0, 0x5c, 5), 0x10, 0x1f, 7, 0, 1 | 1 << 20 | 1 << 24 | 1 << 25 /* RELEASE_TIMESTAMP */);
  nv_push_copied(&w, 0x1f00000020, 9);
  IS(w, head(1, 4, 0x240 /* SET_SEMAPHORE_A */, 3), 0x1f, 0x20, 9, head(1, 4, 0x300 /* LAUNCH_DMA */, 1),
     1 << 2 /* FLUSH_ENABLE */ | 1 << 3 /* RELEASE_ONE_WORD_SEMAPHORE */);
}

static void copies(void **state) {
  (void)state;
  nv_words w = {0};
  enum { PLAIN = 2 /* NON_PIPELINED */ | 1 << 7 /* SRC pitch */ | 1 << 8 /* DST pitch */ };
  nv_push_copy(&w, 0x2200000001, 0x1100000003, 77);
  IS(w, head(1, 4, 0x400 /* OFFSET_IN_UPPER */, 4), 0x11, 3, 0x22, 1, head(1, 4, 0x418 /* LINE_LENGTH_IN */, 2), 77, 1,
     head(1, 4, 0x300, 1), PLAIN);
  nv_push_fill(&w, 0x2200000004, 0x5a5a5a5a, 80);
  IS(w, head(1, 4, 0x700 /* SET_REMAP_CONST_A */, 1), 0x5a5a5a5a, head(1, 4, 0x708 /* SET_REMAP_COMPONENTS */, 1),
     4 /* DST_X_CONST_A */ | 3 << 16 /* COMPONENT_SIZE_FOUR */, head(1, 4, 0x408 /* OFFSET_OUT_UPPER */, 2), 0x22, 4,
     head(1, 4, 0x418, 2), 20, 1, head(1, 4, 0x300, 1), PLAIN | 1 << 10 /* REMAP_ENABLE */);
  // more than a length holds: in pieces, none left out
  nv_push_copy(&w, 0, 0x5000000000, (5ull << 30) + 12);
  uint64_t all = 0, expected = 0x5000000000;
  assert_int_equal(w.n % 10, 0);
  for (size_t i = 0; i < w.n; i += 10) {
    assert_int_equal((uint64_t)w.at[i + 1] << 32 | w.at[i + 2], expected + all);
    assert_int_equal((uint64_t)w.at[i + 3] << 32 | w.at[i + 4], all);
    all += w.at[i + 6];
  }
  assert_int_equal(all, (5ull << 30) + 12);
  nv_words_free(&w);
}

// GP_ENTRY0_GET 31:2, GP_ENTRY1_GET_HI 7:0, LEVEL 9:9 (subroutine), LENGTH 30:10.
static void entries(void **state) {
  (void)state;
  uint64_t e = nv_ring_entry(0x8f12345678, 0x12345);
  assert_int_equal((uint32_t)e, 0x12345678);
  assert_int_equal(e >> 32 & 0xff, 0x8f);
  assert_int_equal(e >> 40 & 3, 2);
  assert_int_equal(e >> 42, 0x12345);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(setting_up), cmocka_unit_test(launches),
                                     cmocka_unit_test(signals), cmocka_unit_test(copies), cmocka_unit_test(entries)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
