// Memory holds every weight once: the plan for chunks of a prompt finds the streams that the plan for single tokens has
// filled. Filling is heard as progress that is called "loading".
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "engine/engine.h"
#include "engine/evaluate.h"
#include "schedule/layout.h"

enum { PROMPT = 40 };

static void count(void *ctx, const char *what, double fraction) {
  (void)fraction;
  *(int *)ctx += !strcmp(what, "loading");
}

static void check(const char *path) {
  engine *e;
  error err = {0};
  int32_t ids[PROMPT + 1];
  int loaded = 0, again = 0;
  if (engine_open(path,
                  &(struct engine_options){.n_ctx = 128, .n_threads = 2, .progress = count, .progress_ctx = &loaded},
                  &e, &err))
    fail_msg("%s", err.text);
  int before = loaded;
  for (int i = 0; i <= PROMPT; i++) ids[i] = 5 + i;
  evaluate(e, ids, PROMPT, 0);
  evaluate(e, ids + PROMPT, 1, PROMPT);
  again = loaded - before;
  engine_close(e);
  print_message("%s: %d pieces laid out, then %d\n", strrchr(path, '/') + 1, before, again);
  assert_true(before > 0);
  assert_int_equal(again, 0);
}

// Where weights and caches lie changes nothing: the same logits before and after everything has moved into huge pages.
static void test_settled(void **state) {
  (void)state;
  const char *path = WEFT_SOURCE_DIR "/models/tinypy.gguf";
  engine *e;
  error err = {0};
  const float *logits;
  int32_t ids[PROMPT];
  for (int i = 0; i < PROMPT; i++) ids[i] = 5 + i;
  if (engine_open(path, &(struct engine_options){.n_ctx = 128, .n_threads = 2}, &e, &err))
    fail_msg("%s", err.text);
  logits = evaluate(e, ids, PROMPT, 0);
  size_t n = (size_t)engine_n_vocab(e) * sizeof *logits;
  float *before = malloc(n);
  memcpy(before, logits, n);
  engine_promote_pages(e);
  engine_promote_pages(e);                     // nothing left to do
  logits = evaluate(e, ids + PROMPT - 1, 1, PROMPT - 1);
  assert_memory_equal(before, logits, n);
  logits = evaluate(e, ids, PROMPT, 0);
  assert_memory_equal(before, logits, n);
  free(before);
  engine_close(e);
}

static void test_once(void **state) {
  (void)state;
  static const char *const names[] = {"tinypy-q4_0", "tinypy-q4_k_m", "tinypy-q6_k", "tinypy-q8_0"};
  check(WEFT_SOURCE_DIR "/models/tinypy.gguf");
  for (size_t i = 0; i < COUNT(names); i++) {
    char path[4096];
    snprintf(path, sizeof path, WEFT_SHARED_DIR "/models/%s.gguf", names[i]);
    if (access(path, R_OK)) print_message("skipped: no %s\n", path);
    else check(path);
  }
}

// Weights in other layouts: the same logits, behind a prompt and behind a token, and the same again when the first
// layouts are back.
static void test_layouts(void **state) {
  (void)state;
  static const char *const names[] = {"tinypy-q4_0", "tinypy-q6_k"};
  for (size_t i = 0; i < COUNT(names); i++) {
    char path[4096];
    engine *e;
    error err = {0};
    const float *logits;
    int32_t ids[PROMPT + 1];
    for (int k = 0; k <= PROMPT; k++) ids[k] = 5 + k;
    snprintf(path, sizeof path, WEFT_SHARED_DIR "/models/%s.gguf", names[i]);
    if (access(path, R_OK)) { print_message("skipped: no %s\n", path); continue; }
    if (engine_open(path, &(struct engine_options){.n_ctx = 128, .n_threads = 2}, &e, &err))
      fail_msg("%s", err.text);
    size_t n = (size_t)engine_n_vocab(e), tensors = gguf_n_tensors(engine_gguf(e));
    float *want = calloc(2 * n, sizeof *want);
    enum layout_kind *of = calloc(tensors, sizeof *of);
    for (int l = 0; l <= (i ? 1 : 2); l++) {                        // as it is; all side by side; some so and some so
      for (size_t k = 0; k < tensors; k++)
        of[k] = l < 2 ? LAYOUT_TILES_2 : k % 3 == 0 ? LAYOUT_ROWS : k % 3 == 1 ? LAYOUT_TILES_2 : LAYOUT_TILES_4;
      if (l && engine_repack(e, of, &err)) fail_msg("%s", err.text);
      for (int back = 0; back < 1 + (l == 1); back++) {
        for (int part = 0; part < 2; part++) {
          logits = evaluate(e, part ? ids + PROMPT : ids, part ? 1 : PROMPT, part ? PROMPT : 0);
          if (!l) memcpy(want + (size_t)part * n, logits, n * sizeof *logits);
          if (memcmp(want + (size_t)part * n, logits, n * sizeof *logits))
            fail_msg("%s: layout %d: other logits behind a %s", names[i], l, part ? "token" : "prompt");
        }
        if (l == 1) engine_swap(e);
      }
      if (l) engine_drop_other(e);
    }
    free(want); free(of);
    engine_close(e);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_once), cmocka_unit_test(test_settled),
                                     cmocka_unit_test(test_layouts)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
