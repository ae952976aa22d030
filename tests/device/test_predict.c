// Times of kernels from the figures of GPUs: what has to hold whatever a GPU would say.
#define _GNU_SOURCE
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "device/predict.h"
#include "codegen/codegen.h"
#include "model/dequant.h"
#include "render/render.h"
#include "schedule/dots.h"
#include "schedule/schedule.h"

static bool in_step = true;             // items exchange sums without the memory of their work-group

// The product of a weight with n vectors (a variable "n", 1 to 64; 0: one vector): the kernel that reads the weight.
static program *product(graph *g, const char *format, int64_t rows, int64_t cols, bool many, const codegen_options *o) {
  static target t;
  t = render_find("nvptx")->target;
  if (!in_step) t.subgroup_size = 0;
  schedule s;
  uop *n = many ? uop_var(g, "n", 1, 64) : uop_idx(g, 1), *k = uop_idx(g, cols), *m = uop_idx(g, rows);
  tensor *whole = t_slice(g, t_buffer(g, 0, DT_F32, 64 * cols), 0, uop_idx(g, 0), idx_mul(g, n, k)),
         *x = t_reshape(g, whole, 2, (uop *[]){n, k}),
         *y = t_matmul(g, x, dequant(g, format_by_name(format), 1, rows, cols)),
         *to = t_slice(g, t_buffer(g, 2, DT_F32, 64 * rows), 0, uop_idx(g, 0), idx_mul(g, n, m)),
         *out = t_assign(g, to, t_reshape(g, y, 1, (uop *[]){idx_mul(g, n, m)}));
  schedule_graph(g, integer_dots(g, uop_new(g, OP_SINK, DT_VOID, 1, &out, 1, (uarg){0}), (dots_choice){0}), &s);
  program *p = NULL;
  for (int i = 0; i < s.n_kernels; i++) {
    program *q = codegen(g, s.kernels[i].ast, &t, o);
    bool reads = false;
    for (int b = 0; b < q->n_bufs; b++)
      reads |= q->bufs[b].read && q->bufs[b].elems * dtype_size(q->bufs[b].dt) > rows * cols / 2;
    if (reads) { program_free(p); p = q; }
    else program_free(q);
  }
  assert_non_null(p);
  return p;
}

static void test_names(void **state) {
  (void)state;
  const char *name;
  size_t n = 0;
  for (; gpu_name_at(n, &name); n++) assert_string_equal(gpu_known(name)->name, name);
  assert_int_equal(n, 3);
  assert_null(gpu_known("voodoo"));
}

static void test_bandwidth(void **state) {
  (void)state;
  graph *g = graph_new(NULL);
  program *p = product(g, "Q4_0", 16384, 4096, false, NULL);
  const gpu_figures *orin = gpu_known("orin"), *h200 = gpu_known("h200");
  double limit = (double)p->bytes->vmax / (orin->gb_s * 1e3), us = predict_us(orin, p, NULL, 0);
  assert_true(us >= limit + orin->gap_us && us < 1.3 * limit + orin->gap_us);         // memory decides there
  assert_true(predict_us(h200, p, NULL, 0) < us / 10);
  gpu_figures slow = *orin;
  slow.gb_s /= 2;
  assert_true(predict_us(&slow, p, NULL, 0) > 1.7 * us);
  slow = *orin;
  slow.ghz /= 100;                                                                // there, instructions do
  assert_true(predict_us(&slow, p, NULL, 0) > 3 * us);
  slow = *orin;
  slow.latency_ns *= 100;                                                         // there, bytes on their way
  assert_true(predict_us(&slow, p, NULL, 0) > 3 * us);
  program_free(p);
  graph_free(g);
}

// Loops as they were scheduled: a work-group has no items, so that few bytes are on their way.
static void test_rules_are_ranked_before_plain_loops(void **state) {
  (void)state;
  static const char *const formats[] = {"Q4_0", "Q6_K", "Q8_0", "F16"};
  for (size_t f = 0; f < COUNT(formats); f++)
    for (size_t i = 0; i < 3; i++) {
      const char *name = NULL;
      gpu_name_at(i, &name);
      graph *g = graph_new(NULL);
      program *own = product(g, formats[f], 2048, 2048, false, NULL),
              *plain = product(g, formats[f], 2048, 2048, false, &(codegen_options){.noopt = true});
      double us = predict_us(gpu_known(name), own, NULL, 0), slow = predict_us(gpu_known(name), plain, NULL, 0);
      if (slow < 2 * us) fail_msg("%s on %s: %.1f us, plain loops %.1f", formats[f], name, us, slow);
      program_free(own);
      program_free(plain);
      graph_free(g);
    }
}

static void test_registers(void **state) {
  (void)state;
  graph *g = graph_new(NULL);
  program *one = product(g, "Q4_0", 2048, 2048, false, NULL), *many = product(g, "Q4_0", 2048, 2048, true, NULL);
  int a = predict_registers(one), b = predict_registers(many);
  assert_true(a > 40 && a < 100 && b > 40 && b <= 128);
  program_free(one);
  program_free(many);
  graph_free(g);
}

// Sums go through the work-group's memory where items do not run in step: each stores a word and loads those of all
// that share it.
static void test_memory_of_groups(void **state) {
  (void)state;
  graph *g = graph_new(NULL);
  kernel_access a, b;
  program *swapped = product(g, "Q4_0", 2048, 2048, false, NULL);
  in_step = false;
  program *stored = product(g, "Q4_0", 2048, 2048, false, NULL);
  in_step = true;
  assert_true(render_access(swapped, NULL, &a) && render_access(stored, NULL, &b));
  assert_true(a.shared == 0 && b.shared > 2 && b.shared <= 4 * (1 + b.items));     // of four rows
  assert_true(a.instructions < a.nodes && b.instructions < b.nodes);
  gpu_figures slow = *gpu_known("h200");
  slow.gb_s *= 1e6;
  slow.latency_ns = 0;
  double before = predict_us(&slow, stored, NULL, 0);
  slow.ghz /= 100;
  assert_true(predict_us(&slow, stored, NULL, 0) > 10 * (before - slow.gap_us));
  program_free(swapped);
  program_free(stored);
  graph_free(g);
}

static void test_variables(void **state) {
  (void)state;
  graph *g = graph_new(NULL);
  program *p = product(g, "Q4_0", 2048, 2048, true, NULL);
  const gpu_figures *orin = gpu_known("orin");
  double few = predict_us(orin, p, (plan_var[]){{"n", 1}}, 1), many = predict_us(orin, p, (plan_var[]){{"n", 64}}, 1);
  assert_true(few < many && fabs(many - predict_us(orin, p, NULL, 0)) < 1e-9);       // not given: the largest
  program_free(p);
  graph_free(g);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_names),
                                     cmocka_unit_test(test_bandwidth),
                                     cmocka_unit_test(test_rules_are_ranked_before_plain_loops),
                                     cmocka_unit_test(test_registers),
                                     cmocka_unit_test(test_memory_of_groups),
                                     cmocka_unit_test(test_variables)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
