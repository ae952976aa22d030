// What kernels are said to move and to do: every byte once per launch, however the loops look at it, and sizes that
// hang on variables at their values. The graphs are those of a model in small.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>
#include "codegen/codegen.h"
#include "schedule/schedule.h"

typedef struct cost { double bytes, flops; int kernels; } cost;

// Of everything that is needed to store y, with the one variable (if there is one) at this value.
static cost cost_of(graph *g, tensor *y, int64_t elems, int64_t var) {
  static const target cpu = {.name = "test", .vector_bytes = 64, .has_fma = true, .has_f16 = true};
  tensor *out = t_assign(g, t_buffer(g, 100, DT_F32, elems), y);
  schedule s;
  schedule_graph(g, uop_new(g, OP_SINK, DT_VOID, 1, &out, 1, (uarg){0}), &s);
  cost c = {.kernels = s.n_kernels};
  for (int i = 0; i < s.n_kernels; i++) {
    program *p = codegen(g, s.kernels[i].ast, &cpu, &(codegen_options){0});
    c.bytes += (double)program_eval(p, p->bytes, &var);
    c.flops += (double)program_eval(p, p->flops, &var);
    program_free(p);
  }
  return c;
}

static tensor *input(graph *g, int64_t id, enum dtype dt, int64_t rows, int64_t cols) {
  return t_reshape_i(g, t_buffer(g, id, dt, rows * cols), 2, (int64_t[]){rows, cols});
}

static tensor *flat(graph *g, tensor *x, int64_t n) { return t_reshape_i(g, x, 1, &n); }

static void test_product(void **state) {
  (void)state;
  graph *g = graph_new(NULL);
  tensor *y = t_matmul(g, input(g, 0, DT_F32, 3, 64), input(g, 1, DT_F32, 48, 64));
  cost c = cost_of(g, flat(g, y, 144), 144, 0);
  assert_int_equal(c.kernels, 1);
  assert_int_equal(c.bytes, 4 * (3 * 64 + 48 * 64 + 144));
  assert_int_equal(c.flops, 2 * 3 * 48 * 64);
  graph_free(g);
}

// Each row twice: for the largest and for the sum.
static void test_what_is_read_twice_counts_once(void **state) {
  (void)state;
  graph *g = graph_new(NULL);
  tensor *x = input(g, 0, DT_F32, 5, 96), *shifted = t_sub(g, x, t_reduce(g, x, OP_MAX, 1));
  cost c = cost_of(g, flat(g, t_reduce(g, t_exp(g, shifted), OP_ADD, 1), 5), 5, 0);
  if (c.kernels == 1) assert_int_equal(c.bytes, 4 * (5 * 96 + 5));
  else fail_msg("%d kernels: choose a graph that becomes one", c.kernels);
  graph_free(g);
}

// Two codes in a byte, 96 columns in 48 bytes of rows that are 100 long: the buffer's size says nothing.
static void test_codes(void **state) {
  (void)state;
  graph *g = graph_new(NULL);
  tensor *b = t_reshape_i(g, t_slice_i(g, input(g, 0, DT_U8, 7, 100), 1, 2, 48), 3, (int64_t[]){7, 48, 1});
  tensor *shift = t_cast(g, t_op2(g, OP_MUL, t_iota(g, uop_idx(g, 2)), uop_idx(g, 4)), DT_U8);
  tensor *q = t_op2(g, OP_AND, t_op2(g, OP_SHR, b, shift), uop_int(g, DT_U8, 15));
  tensor *y = t_reduce(
    g, t_mul(g, t_reshape_i(g, t_cast(g, q, DT_F32), 2, (int64_t[]){7, 96}), input(g, 1, DT_F32, 1, 96)), OP_ADD, 1);
  cost c = cost_of(g, flat(g, y, 7), 7, 0);
  assert_int_equal(c.kernels, 1);
  assert_int_equal(c.bytes, 7 * 48 + 4 * 96 + 4 * 7);
  graph_free(g);
}

// Scales of two bytes at the beginning of every ten.
static void test_wide_loads(void **state) {
  (void)state;
  graph *g = graph_new(NULL);
  tensor *b = t_slice_i(g, input(g, 0, DT_U8, 30, 10), 1, 0, 2);
  cost c = cost_of(g, flat(g, t_cast(g, t_bitcast(g, t_contiguous(g, b), DT_F16), DT_F32), 30), 30, 0);
  assert_true(c.bytes >= 30 * (2 + 4) && c.bytes <= 30 * (3 * 2 + 4));       // stored in between or not
  graph_free(g);
}

static void test_variables(void **state) {
  (void)state;
  static const int64_t at[] = {1, 17, 500};
  for (size_t i = 0; i < COUNT(at); i++) {
    graph *g = graph_new(NULL);
    uop *n = uop_var(g, "n", 1, 500);
    tensor *x = t_slice(g, input(g, 0, DT_F32, 500, 8), 0, uop_idx(g, 0), n);
    cost c = cost_of(g, flat(g, t_reduce(g, x, OP_ADD, 0), 8), 8, at[i]);
    assert_int_equal(c.kernels, 1);
    assert_int_equal(c.bytes, 4 * (8 * at[i] + 8));
    assert_int_equal(c.flops, 8 * at[i]);
    graph_free(g);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_product),   cmocka_unit_test(test_what_is_read_twice_counts_once),
    cmocka_unit_test(test_codes),     cmocka_unit_test(test_wide_loads),
    cmocka_unit_test(test_variables),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
