// A kernel by itself: what is written is compared bit by bit, also where it has room for much more than is written.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include "base/env.h"
#include "device/memory.h"
#include "device/kernel_bench.h"
#include "graph/graph.h"

enum { ROWS = 64, COLS = 1 << 20, FEW = 300 };

static void *buffer(void *ctx, int64_t id) { return ((void **)ctx)[id]; }

// y[i, 0 .. n) = x[i, 0 .. n) * 2, or with one element that is wrong: that of row 40, column `wrong`. y: 256 MiB.
static plan *make(device *d, graph *g, schedule *s, void **memory, int wrong) {
  error err = {0};
  plan *p;
  tensor *x = t_reshape_i(g, t_buffer(g, 0, DT_F32, (int64_t)ROWS * FEW), 2, (int64_t[]){ROWS, FEW});
  tensor *y = t_reshape_i(g, t_buffer(g, 1, DT_F32, (int64_t)ROWS * COLS), 2, (int64_t[]){ROWS, COLS});
  tensor *value = t_add(g, x, x);
  if (wrong >= 0) {
    tensor *rows = t_reshape_i(g, t_iota(g, uop_idx(g, ROWS)), 2, (int64_t[]){ROWS, 1});
    tensor *cols = t_reshape_i(g, t_iota(g, uop_idx(g, FEW)), 2, (int64_t[]){1, FEW});
    tensor *here = t_op2(g, OP_AND, t_op2(g, OP_CMPEQ, rows, uop_idx(g, 40)),
        t_op2(g, OP_CMPEQ, cols, uop_idx(g, wrong)));
    value = t_where(g, here, x, value);
  }
  y = t_assign(g, t_slice_i(g, y, 1, 0, FEW), value);
  schedule_graph(g, uop_new(g, OP_SINK, DT_VOID, 1, &y, 1, (uarg){0}), s);
  if (plan_build(d, g, s, &(plan_options){.buffer = buffer, .ctx = memory}, &p, &err)) fail_msg("%s", err.text);
  assert_int_equal(p->stats.kernels, 1);
  return p;
}

static void large_outputs(void **state) {
  (void)state;
  device *d;
  error err = {0};
  schedule s[3];
  graph *g[3];
  plan *p[3];
  if (device_open(2, 0, &d, &err)) fail_msg("%s", err.text);
  void *memory[2] = {memory_reserve((uint64_t)ROWS * FEW * 4, &err), memory_reserve_plain((uint64_t)ROWS * COLS * 4,
      &err)};
  for (int i = 0; i < 3; i++) p[i] = make(d, g[i] = graph_new(NULL), &s[i], memory, i == 0 ? -1 : i == 1 ? 0 : FEW - 1);
  for (int alone = 0; alone < 2; alone++) {
    kernel_bench r;
    uint64_t before = memory_rss();
    if (kernel_bench_open(&r, p[0], 0, alone, NULL, 0, &err)) fail_msg("%s", err.text);
    assert_true(kernel_bench_same(&r, &p[0]->kernels[0], &p[0]->kernels[0], r.timed, TIMED));
    for (int wrong = 1; wrong < 3; wrong++) {
      assert_false(kernel_bench_same(&r, &p[0]->kernels[0], &p[wrong]->kernels[0], r.timed, TIMED));
      assert_false(kernel_bench_same(&r, &p[wrong]->kernels[0], &p[0]->kernels[0], r.small, SMALL));
      assert_true(kernel_bench_same(&r, &p[wrong]->kernels[0], &p[wrong]->kernels[0], r.small, SMALL));
    }
    // of 256 MiB of room a few pages are used
    assert_true(memory_rss() < before + (alone ? 32 << 20 : 160 << 20));
    kernel_bench_close(&r);
  }
  for (int i = 0; i < 3; i++) { plan_free(p[i]); graph_free(g[i]); }
  memory_release(memory[0], (uint64_t)ROWS * FEW * 4);
  memory_release(memory[1], (uint64_t)ROWS * COLS * 4);
  device_close(d);
}

int main(void) {
  env_set(ENV_DEV, "CPU");
  const struct CMUnitTest tests[] = {cmocka_unit_test(large_outputs)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
