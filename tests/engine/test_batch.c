// Batch invariance: the logits after a prompt are the same bits however the prompt is cut - into calls, into the
// engine's chunks - and by however many threads it is computed.  Also going back: positions that are computed again
// give the same.
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "base/env.h"
#include "weft.h"

enum { PROMPT = 101, MORE = 3, ALL = PROMPT + MORE, CONTEXT = 256 };

typedef struct way { int32_t chunk, threads; size_t piece; } way;      // piece: tokens of one call
// the first is what the others are compared with: one token at a time, one thread
static const way ways[] = {
  {1, 1, 1},       {0, 1, PROMPT}, {1, 2, PROMPT}, {2, 1, PROMPT}, {7, 3, PROMPT},
  {64, 2, PROMPT}, {0, 2, 2},      {0, 3, 7},      {0, 1, 64},     {7, 2, 10},
};

static weft_error err;

static weft_model *open_model(const char *path, way w, bool exact) {
  weft_model *m = NULL;
  weft_options o = {.context = CONTEXT, .threads = w.threads, .chunk = w.chunk, .exact = exact};
  if (weft_model_open(path, &o, &m, &err)) fail_msg("%s", err.text);
  return m;
}

// Logits after the prompt and after each of MORE tokens, {1 + MORE, n_vocab}.
static void evaluate(weft_model *m, const int32_t *ids, size_t piece, float *out) {
  size_t n_vocab = (size_t)weft_model_vocab_size(m);
  const float *logits = NULL;
  for (size_t at = 0; at < ALL;) {
    size_t n = at >= PROMPT ? 1 : piece < PROMPT - at ? piece : PROMPT - at;
    if (weft_decode(m, ids + at, n, (int32_t)at, &logits, &err)) fail_msg("%s", err.text);
    at += n;
    if (at >= PROMPT) memcpy(out + (at - PROMPT) * n_vocab, logits, n_vocab * sizeof *out);
  }
}

static void compare(const float *want, const float *got, size_t n_vocab, const char *name, const char *what, way w) {
  for (size_t i = 0; i < (1 + MORE) * n_vocab; i++) {
    if (!memcmp(&want[i], &got[i], sizeof *got)) continue;
    size_t n = 0;
    for (size_t j = i; j < (1 + MORE) * n_vocab; j++) n += memcmp(&want[j], &got[j], sizeof *got) != 0;
    fail_msg("%s%s: chunk %d, %d threads, %zu tokens a call: logit %zu after %zu tokens is %.9g, one at a time %.9g "
             "(%zu differ)",
             name, what, (int)w.chunk, (int)w.threads, w.piece, i % n_vocab, PROMPT + i / n_vocab, (double)got[i],
             (double)want[i], n);
  }
}

// The logits of all tokens at once: those of the last one, and of one in the middle, are what evaluating up to there
// gives.
struct seen { size_t next, n_vocab, stop; float *out; };
static bool keep(void *ctx, size_t i, const float *logits) {
  struct seen *s = ctx;
  assert_int_equal(i, s->next);
  s->next = i + 1;
  memcpy(s->out + i * s->n_vocab, logits, s->n_vocab * sizeof *logits);
  return i + 1 != s->stop;
}

static void check_rows(weft_model *m, const int32_t *ids, const char *name, way w) {
  size_t n_vocab = (size_t)weft_model_vocab_size(m);
  const float *logits;
  struct seen s = {.next = 20, .n_vocab = n_vocab, .out = calloc(PROMPT * n_vocab, sizeof(float))};
  if (weft_decode_rows(m, ids, PROMPT, 0, 20, keep, &s, &err)) fail_msg("%s", err.text);
  assert_int_equal(s.next, PROMPT);
  for (size_t i = 20; i < PROMPT; i += 9) {
    if (weft_decode(m, ids, i + 1, 0, &logits, &err)) fail_msg("%s", err.text);
    if (memcmp(logits, s.out + i * n_vocab, n_vocab * sizeof *logits))
      fail_msg("%s: chunk %d: logits of row %zu differ from those of a prompt that ends there", name, (int)w.chunk, i);
  }
  // from within a sequence, and stopped
  s = (struct seen){.next = 3, .n_vocab = n_vocab, .stop = 5, .out = s.out};
  if (weft_decode(m, ids, 7, 0, NULL, &err) || weft_decode_rows(m, ids + 7, 30, 7, 3, keep, &s, &err))
    fail_msg("%s", err.text);
  assert_int_equal(s.next, 5);
  if (weft_decode(m, ids + 11, 1, 11, &logits, &err)) fail_msg("%s", err.text);
  if (memcmp(logits, s.out + 4 * n_vocab, n_vocab * sizeof *logits))
    fail_msg("%s: the row at which an evaluation was stopped", name);
  assert_int_equal(weft_decode_rows(m, ids, 10, 0, 10, keep, &s, &err), -1);
  free(s.out);
}

static void check_model(const char *path, bool exact) {
  const char *name = strrchr(path, '/') + 1;
  weft_model *m = open_model(path, ways[0], exact);
  size_t n_vocab = (size_t)weft_model_vocab_size(m);
  float *want = calloc((1 + MORE) * n_vocab, sizeof *want), *got = calloc((1 + MORE) * n_vocab, sizeof *got);
  int32_t ids[ALL];
  uint32_t random = 1;
  for (int i = 0; i < ALL; i++) { random = random * 1664525 + 1013904223; ids[i] = (int32_t)((random >> 8) % n_vocab); }
  evaluate(m, ids, ways[0].piece, want);
  evaluate(m, ids, ways[0].piece, got);                 // again, over the caches of the first time
  compare(want, got, n_vocab, name, ", again", ways[0]);
  weft_model_close(m);
  bool finite = false;
  for (size_t i = 1; i < n_vocab; i++) finite |= want[i] != want[0];
  assert_true(finite);                                  // not all the same: something was computed
  for (size_t i = 1; i < sizeof ways / sizeof *ways; i++) {
    m = open_model(path, ways[i], exact);
    evaluate(m, ids, ways[i].piece, got);
    compare(want, got, n_vocab, name, exact ? ", exact" : "", ways[i]);
    // back into the middle of the prompt, other tokens, and back again
    if (i == 1) {
      const float *logits;
      if (weft_decode(m, ids + 10, 30, 60, &logits, &err)) fail_msg("%s", err.text);
      if (weft_decode(m, ids + 60, PROMPT - 60, 60, &logits, &err)) fail_msg("%s", err.text);
      memcpy(got, logits, n_vocab * sizeof *got);
      compare(want, got, n_vocab, name, ", going back", ways[i]);
      check_rows(m, ids, name, ways[i]);
    }
    weft_model_close(m);
  }
  free(want);
  free(got);
}

static void check_shared(const char *name) {
  char path[512];
  snprintf(path, sizeof path, "%s/models/%s", WEFT_SHARED_DIR, name);
  if (access(path, R_OK)) { print_message("skipped: no %s\n", path); skip(); }
  check_model(path, false);
}

static void test_q8_0(void **state) { (void)state; check_model(WEFT_SOURCE_DIR "/models/tinypy.gguf", false); }
static void test_q8_0_exact(void **state) { (void)state; check_model(WEFT_SOURCE_DIR "/models/tinypy.gguf", true); }
static void test_q4_0(void **state) { (void)state; check_shared("tinypy-q4_0.gguf"); }
static void test_q6_k(void **state) { (void)state; check_shared("tinypy-q6_k.gguf"); }
static void test_f16(void **state) { (void)state; check_shared("tinypy-f16.gguf"); }
static void test_qwen3(void **state) { (void)state; check_shared("tiny-qwen3.gguf"); }

// Kernels are compiled once for all ways of a model.
static char cache[] = "/tmp/weft-batch-XXXXXX";

static int make_cache(void **state) {
  (void)state;
  if (!mkdtemp(cache)) return -1;
  env_set(ENV_WEFT_CACHE, cache);
  return 0;
}

static int drop_cache(void **state) {
  (void)state;
  char command[128];
  snprintf(command, sizeof command, "rm -rf %s", cache);
  return system(command);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_q8_0), cmocka_unit_test(test_q8_0_exact), cmocka_unit_test(test_q4_0),
    cmocka_unit_test(test_q6_k), cmocka_unit_test(test_f16),        cmocka_unit_test(test_qwen3),
  };
  return cmocka_run_group_tests(tests, make_cache, drop_cache);
}
