// Schedules as bytes (schedule/pack.c): what is read back is what was written, and bytes that are cut or changed make a
// miss, never a schedule that says something else than its numbers do.
#define _GNU_SOURCE
#include "codegen/kernel_rig.h"
#include "codegen/format_blocks.h"
#include "model/dequant.h"
#include "schedule/dots.h"
#include "schedule/pack.h"

enum { ROWS = 64, COLS = 512 };

// Two products one behind the other, so that there are intermediates, levels and layouts; the second over a variable.
static void make(kt *t, schedule *s) {
  const struct format *f = format_by_name("Q4_0");
  *t = (kt){.g = graph_new(NULL), .seed = 7};
  graph *g = t->g;
  tensor *x = kt_in(t, DT_F32, KT_UNIT, KT_DIMS(8, COLS));
  x = t_slice(g, x, 0, uop_idx(g, 0), kt_var(t, "n", 1, 8));
  for (int i = 0; i < 2; i++) {
    int64_t rows = i ? ROWS : COLS;
    int w = kt_buffer(t, DT_U8, format_bytes(f, rows, COLS), KT_UNIT);
    format_blocks(f, t->bufs[w].start, rows, COLS, &t->seed);
    x = t_matmul(g, x, dequant(g, f, w, rows, COLS));
  }
  kt_out(t, x);
  schedule_graph(
    g, integer_dots(g, uop_new(g, OP_SINK, DT_VOID, 1, t->effects.at, t->effects.n, (uarg){0}), (dots_choice){0}), s);
  layout_weights(g, s, &(layout_target){.lanes = 16}, NULL, NULL);
}

static void drop(kt *t) {
  for (int i = 0; i < t->n_bufs; i++) free(t->bufs[i].start);
  vec_free(&t->effects);
  graph_free(t->g);
}

static void test_there_and_back(void **state) {
  (void)state;
  kt t;
  schedule s, back;
  str a = {0}, b = {0};
  make(&t, &s);
  graph *g = graph_new(NULL);
  schedule_pack(t.g, &s, &a);
  assert_true(schedule_unpack(g, a.at, a.n, &back));
  assert_int_equal(back.n_kernels, s.n_kernels);
  assert_int_equal(back.arena_bytes, s.arena_bytes);
  assert_true(s.n_temps > 1 && back.n_temps == s.n_temps);
  int laid = 0;
  for (int i = 0; i < s.n_kernels; i++) {
    str x = {0}, y = {0};
    uop_print(&x, &s.kernels[i].ast, 1);
    uop_print(&y, &back.kernels[i].ast, 1);
    assert_string_equal(str_c(&x), str_c(&y));
    assert_int_equal(back.kernels[i].level, s.kernels[i].level);
    assert_memory_equal(back.kernels[i].bufs, s.kernels[i].bufs,
                        (size_t)s.kernels[i].n_bufs * sizeof *s.kernels[i].bufs);
    for (int j = 0; s.kernels[i].layouts && j < s.kernels[i].n_bufs; j++) {
      const layout *l = s.kernels[i].layouts[j], *m = back.kernels[i].layouts[j];
      assert_true(!l == !m);
      if (!l) continue;
      laid++;
      assert_true(l->hash == m->hash && l->n_units == m->n_units && l->lane_step == m->lane_step);
    }
    str_free(&x); str_free(&y);
  }
  assert_int_equal(laid, 2);
  schedule_pack(g, &back, &b);
  assert_int_equal(a.n, b.n);
  assert_memory_equal(a.at, b.at, a.n);
  str_free(&a); str_free(&b);
  graph_free(g);
  drop(&t);
}

// Every cut is a miss. A changed byte is a miss, or bytes that read back as they are.
static void test_broken(void **state) {
  (void)state;
  kt t;
  schedule s, back;
  str a = {0};
  int misses = 0;
  make(&t, &s);
  schedule_pack(t.g, &s, &a);
  for (size_t n = 0; n < a.n; n += 1 + n / 64) {
    graph *g = graph_new(NULL);
    assert_false(schedule_unpack(g, a.at, n, &back));
    graph_free(g);
  }
  for (size_t i = 0; i < a.n; i += 1 + a.n / 500) {
    graph *g = graph_new(NULL);
    a.at[i] ^= 0x40;
    if (!schedule_unpack(g, a.at, a.n, &back)) misses++;
    a.at[i] ^= 0x40;
    graph_free(g);
  }
  assert_true(misses > 100);
  // a layout is filled with elements of the size that they have
  for (int i = 0; i < s.n_kernels; i++)
    for (int j = 0; s.kernels[i].layouts && j < s.kernels[i].n_bufs; j++) {
      layout *l = (layout *)(uintptr_t)s.kernels[i].layouts[j];
      if (l) l->to = dtype_size(l->dt) == 1 ? DT_F64 : DT_U8;
    }
  graph *g = graph_new(NULL);
  a.n = 0;
  schedule_pack(t.g, &s, &a);
  assert_false(schedule_unpack(g, a.at, a.n, &back));
  graph_free(g);
  str_free(&a);
  drop(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_there_and_back), cmocka_unit_test(test_broken)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
