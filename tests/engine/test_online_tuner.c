// Tuning while a model runs: from kernels that a stored tuning has made slow on purpose it comes back, tokens are bit
// for bit what they are without, it keeps its budget, and what it found is there for the next run.
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "base/env.h"
#include "device/cache.h"
#include "device/tuning.h"
#include "engine/engine.h"
#include "engine/evaluate.h"

enum { CTX = 128, N = 96 };
static const double MOST_S = 120;
static const char *path = WEFT_SOURCE_DIR "/models/tinypy.gguf";

static engine *opened(const char *tune) {
  engine *e;
  error err = {0};
  env_set(ENV_WEFT_TUNE, tune);
  if (engine_open(path, &(struct engine_options){.n_ctx = CTX, .n_threads = 1}, &e, &err)) fail_msg("%s", err.text);
  return e;
}

static int32_t id_at(int i) { return 5 + i * 7 % 200; }

// Stores tunings that leave dot products to plain arithmetic; their number.
static int spoil(void) {
  engine *e = opened("off");
  device *d = engine_device(e);
  graph *g = graph_new(NULL);
  schedule s;
  int n = 0;
  engine_trace(e, false, g, &s);
  for (int i = 0; i < s.n_kernels; i++) {
    program *p = codegen(g, s.kernels[i].ast, &d->target, NULL), *bad;
    tuning t = {.better = true, .n = p->n_applied + 1, .before_us = 2, .after_us = 1, .cut_s = 1, .name = "spoiled",
        .role = "-", .compiler = "none"};
    if (p->n_applied < MOST_OPTS) {
      memcpy(t.opts, p->applied, (size_t)p->n_applied * sizeof *t.opts);
      t.opts[t.n - 1] = (opt){OPT_DESCRIPTOR, 0, 0};
      bad = search_allows(g, s.kernels[i].ast, &d->target, t.opts, t.n, NULL)
          ? codegen(g, s.kernels[i].ast, &d->target, &(codegen_options){.opts = t.opts, .n_opts = t.n}) : NULL;
      if (bad) { tuning_put(d, s.kernels[i].ast, &t); n++; }
      program_free(bad);
    }
    program_free(p);
  }
  cache_flush(d->cache);
  graph_free(g);
  engine_close(e);
  return n;
}

static void comes_back(void **state) {
  (void)state;
  engine *plain = opened("off"), *e;
  struct engine_stats st;
  const float *logits;
  size_t n = (size_t)engine_n_vocab(plain) * sizeof *logits;
  float *want = malloc(n * N);
  assert_non_null(want);
  for (int i = 0; i < N; i++) {
    int32_t id = id_at(i);
    logits = evaluate(plain, &id, 1, i);
    memcpy(want + (size_t)i * n / sizeof *want, logits, n);
  }
  engine_close(plain);
  if (!spoil()) skip();                                     // a machine without instructions for dot products
  e = opened("always");
  engine_stats(e, &st);
  assert_true(st.kernels_tuned > 0);
  double began = now_s();
  for (int round = 0; now_s() - began < MOST_S; round++) {
    for (int i = 0; i < N; i++) {
      int32_t id = id_at(i);
      logits = evaluate(e, &id, 1, i);
      assert_memory_equal(logits, want + (size_t)i * n / sizeof *want, n);
    }
    engine_stats(e, &st);
    if (st.tune_better >= 2 && round > 20) break;
  }
  print_message("%d tried, %d better, cost %.2f %%, %s, %.1f s\n", st.tune_tried, st.tune_better, 100 * st.tune_cost,
      st.tune_state, now_s() - began);
  assert_true(st.tune_better >= 2);
  assert_true(st.tune_tried > st.tune_better - 1);
  assert_true(st.tune_cost < .02);
  engine_close(e);
  e = opened("off");                                        // and what was found is kept
  device *d = engine_device(e);
  graph *g = graph_new(NULL);
  schedule s;
  int found = 0;
  engine_trace(e, false, g, &s);
  for (int i = 0; i < s.n_kernels; i++) {
    tuning t;
    found += tuning_get(d, s.kernels[i].ast, &t) && strcmp(t.name, "spoiled") && strcmp(t.compiler, "none");
  }
  assert_true(found >= 2);
  for (int i = 0; i < N; i++) {
    int32_t id = id_at(i);
    logits = evaluate(e, &id, 1, i);
    assert_memory_equal(logits, want + (size_t)i * n / sizeof *want, n);
  }
  graph_free(g);
  engine_close(e);
  free(want);
}

// A model that is closed at any moment: no thread, candidate or memory is left behind (the sanitizers say).
static void closes_at_any_time(void **state) {
  (void)state;
  for (int tokens = 0; tokens <= 90; tokens += 30) {
    engine *e = opened("always");
    for (int i = 0; i < tokens; i++) {
      int32_t id = id_at(i);
      evaluate(e, &id, 1, i);
    }
    engine_close(e);
  }
}

int main(void) {
  char folder[] = "/tmp/weft-live-XXXXXX";
  if (!mkdtemp(folder)) return 1;
  env_set(ENV_WEFT_CACHE, folder);
  const struct CMUnitTest tests[] = {cmocka_unit_test(comes_back), cmocka_unit_test(closes_at_any_time)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
