// Rows as blocks, beyond what tests/python/test_quantize.py compares with other programs: sizes at which scales
// overflow.
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>
#include "codegen/kernel_rig.h"
#include "model/dequant.h"
#include "model/quantise.h"

enum { COLS = 1024 };

static float unit(uint64_t *seed) {
  *seed = *seed * 6364136223846793005u + 1442695040888963407u;
  return (float)(*seed >> 40) / (1 << 24);
}

// The largest magnitude of the row that the blocks are; not finite: a value is not.
static double largest_in(const struct format *f, const unsigned char *blocks) {
  kt t = {.g = graph_new(NULL)};
  enum dtype dt = dequant_buffer_dtype(f);
  size_t n = (size_t)(COLS / f->block) * f->bytes;
  int b = kt_buffer(&t, dt, dt == DT_U8 ? (int64_t)n : COLS, KT_UNIT);
  memcpy(t.bufs[b].start, blocks, n);
  te e = {.mem = arena_new(), .buffer = kt_start, .ctx = &t};
  const te_value *v = te_eval(&e, dequant(t.g, f, b, 1, COLS));
  double most = 0;
  for (int64_t i = 0; i < COLS; i++) most = isfinite(v->v[i].f) ? fmax(most, fabs(v->v[i].f)) : INFINITY;
  map_free(&e.memo);
  arena_free(e.mem);
  kt_finish(&(kt_run){.t = t});
  return most;
}

// Rows whose scales are beyond what a float can be the inverse of, or are too large for the format: that is undefined
// behaviour nowhere (the sanitizers' build says so), and rows that are small enough to have a scale of 0 have one.
static void test_extreme_rows(void **state) {
  (void)state;
  static const float sizes[] = {0, 1e-45f, 1e-39f, 2e-38f, 1e-30f, 1e30f, 3e38f};
  static float x[COLS], w[COLS];
  static unsigned char out[8 * COLS];
  for (uint32_t id = 0; id < FORMAT_IDS; id++) {
    const struct format *f = format_by_id(id);
    if (!f || !quantise_can(f)) continue;
    for (size_t s = 0; s < COUNT(sizes); s++)
      for (int mixed = 0; mixed < 2; mixed++)
        for (int weighted = quantise_needs_weights(f); weighted < 2; weighted++) {
          uint64_t seed = s + 1;
          for (int i = 0; i < COLS; i++) {
            float size = mixed && i / 16 % 2 ? 0 : sizes[s];
            x[i] = (2 * unit(&seed) - 1) * size;
            w[i] = unit(&seed);
          }
          bool fits = quantise_row(f, x, weighted ? w : NULL, COLS, out);
          if (!fits && sizes[s] < 1) fail_msg("%s: no scale for values of %g", f->name, (double)sizes[s]);
          double most = fits && f->computes ? largest_in(f, out) : 0;
          if (!(most <= 2 * (double)sizes[s]))
            fail_msg("%s: values of %g became %g", f->name, (double)sizes[s], most);
        }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_extreme_rows)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
