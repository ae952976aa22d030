// What is stored whatever costs say: each rule on small graphs that it is for, and on those that differ in what it
// asks.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "schedule/store.h"

enum { ROWS = 12, COLS = 16, MANY = 40 };

static tensor *matrix(graph *g, int64_t id, int64_t rows, int64_t cols) {
  return t_reshape_i(g, t_buffer(g, id, DT_F32, rows * cols), 2, (int64_t[]){rows, cols});
}

// Not in memory.
static tensor *computed(graph *g) { return t_exp(g, matrix(g, 1, ROWS, COLS)); }

static int64_t elements_of(const uop *u) { return shape_max_elems(u->shape); }

// Stores x, after the pass: how many values of `n` elements and this dtype are stored.
static int stored(graph *g, tensor *x, enum dtype dt, int64_t n) {
  tensor *flat = t_reshape_i(g, x, 1, (int64_t[]){elements_of(x)}),
         *out = t_assign(g, t_buffer(g, 100, (enum dtype)x->dt, elements_of(x)), flat);
  uop *sink = store_values(g, uop_new(g, OP_SINK, DT_VOID, 1, &out, 1, (uarg){0}));
  uop_list l = uop_toposort(graph_arena(g), &sink, 1);
  int found = 0;
  for (size_t i = 0; i < l.n; i++)
    found += l.at[i]->op == OP_CONTIGUOUS && l.at[i]->dt == dt && elements_of(l.at[i]) == n;
  return found;
}

static tensor *ids_in_memory(graph *g) { return t_buffer(g, 2, DT_I32, MANY); }

static void test_computed_rows_that_are_looked_up(void **state) {
  (void)state;
  graph *g = graph_new(NULL);
  assert_int_equal(stored(g, t_gather(g, computed(g), ids_in_memory(g)), DT_F32, ROWS * COLS), 1);
  graph_free(g);
}

static void test_rows_that_lie_in_memory(void **state) {
  (void)state;
  graph *g = graph_new(NULL);
  assert_int_equal(stored(g, t_gather(g, matrix(g, 1, ROWS, COLS), ids_in_memory(g)), DT_F32, ROWS * COLS), 0);
  graph_free(g);
}

static void test_single_elements(void **state) {
  (void)state;
  graph *g = graph_new(NULL);
  tensor *x = t_exp(g, t_buffer(g, 1, DT_F32, ROWS));
  assert_int_equal(stored(g, t_gather(g, x, ids_in_memory(g)), DT_F32, ROWS), 0);
  graph_free(g);
}

static void test_rows_in_order(void **state) {          // a longer tensor, whose last rows are those of the last one
  (void)state;
  graph *g = graph_new(NULL);
  assert_int_equal(stored(g, t_gather(g, computed(g), t_iota(g, uop_idx(g, MANY))), DT_F32, ROWS * COLS), 0);
  graph_free(g);
}

// Of the row before and the row itself both readers take the one that is stored; where data says which row, the others
// do not wait for it.
static void test_who_reads_stored_rows(void **state) {
  (void)state;
  for (int known = 0; known < 2; known++) {
    graph *g = graph_new(NULL);
    tensor *x = computed(g), *before = known ? t_sub(g, t_iota(g, uop_idx(g, ROWS)), uop_idx(g, 1))
                                             : t_buffer(g, 2, DT_I32, ROWS);
    tensor *sum = t_add(g, t_gather(g, x, before), x), *out = t_assign(g, matrix(g, 100, ROWS, COLS), sum);
    uop *sink = store_values(g, uop_new(g, OP_SINK, DT_VOID, 1, &out, 1, (uarg){0}));
    uop *add = sink->src[0]->src[1]->src[1];
    assert_int_equal(add->op, OP_ADD);
    assert_int_equal((add->src[0]->op == OP_CONTIGUOUS) + (add->src[1]->op == OP_CONTIGUOUS), known);
    graph_free(g);
  }
}

static tensor *counts(graph *g) {
  tensor *x = t_reshape_i(g, t_buffer(g, 3, DT_I32, MANY * COLS), 2, (int64_t[]){MANY, COLS});
  return t_reduce(g, x, OP_ADD, 1);
}

static void test_ids_that_are_counted(void **state) {
  (void)state;
  graph *g = graph_new(NULL);
  tensor *x = matrix(g, 1, ROWS, COLS);
  assert_int_equal(stored(g, t_gather(g, x, counts(g)), DT_I32, MANY), 1);
  // behind arithmetic on indices, too
  tensor *ids = t_add(g, t_cast(g, counts(g), DT_IDX), t_iota(g, uop_idx(g, MANY)));
  assert_int_equal(stored(g, t_gather(g, x, ids), DT_I32, MANY), 1);
  assert_int_equal(stored(g, t_gather(g, x, t_contiguous(g, counts(g))), DT_I32, MANY), 1);
  graph_free(g);
}

static void test_ids_that_a_table_has(void **state) {
  (void)state;
  graph *g = graph_new(NULL);
  tensor *x = matrix(g, 1, ROWS, COLS), *table = t_buffer(g, 4, DT_I32, ROWS),
         *of = t_op2(g, OP_MAX, t_gather(g, t_weight(g, 5, DT_I32, ROWS), ids_in_memory(g)), uop_int(g, DT_I32, 0));
  assert_int_equal(stored(g, t_gather(g, x, of), DT_I32, MANY), 1);
  assert_int_equal(stored(g, t_gather(g, x, t_gather(g, table, ids_in_memory(g))), DT_I32, MANY), 0);
  graph_free(g);
}

static void test_ids_that_lie_in_memory(void **state) {
  (void)state;
  graph *g = graph_new(NULL);
  tensor *ids = t_op2(g, OP_MAX, ids_in_memory(g), uop_int(g, DT_I32, 0));
  assert_int_equal(stored(g, t_gather(g, matrix(g, 1, ROWS, COLS), ids), DT_I32, MANY), 0);
  graph_free(g);
}

// x {ROWS, COLS} times a weight.
static tensor *product(graph *g, tensor *x, int64_t id) {
  return t_matmul(g, x, t_reshape_i(g, t_weight(g, id, DT_F32, COLS * COLS), 2, (int64_t[]){COLS, COLS}));
}

static tensor *row_of_weights(graph *g, int64_t id) { return t_weight(g, id, DT_F32, COLS); }

static void test_what_flows(void **state) {
  (void)state;
  for (int layers = 1; layers < 4; layers++) {
    graph *g = graph_new(NULL);
    tensor *x = matrix(g, 1, ROWS, COLS);
    for (int i = 0; i < layers; i++) x = t_add(g, x, product(g, x, 10 + i));
    assert_int_equal(stored(g, x, DT_F32, ROWS * COLS), layers - 1);   // not what lies in memory, nor the last
    graph_free(g);
  }
}

static void test_what_flows_and_is_scaled(void **state) {
  (void)state;
  graph *g = graph_new(NULL);
  tensor *x = matrix(g, 1, ROWS, COLS);
  for (int i = 0; i < 3; i++) x = t_mul(g, t_add(g, x, product(g, x, 10 + i)), row_of_weights(g, 20 + i));
  assert_int_equal(stored(g, x, DT_F32, ROWS * COLS), 2);
  graph_free(g);
}

static void test_two_parts_of_one_input(void **state) {     // x + f(x) + g(x): not the first sum
  (void)state;
  graph *g = graph_new(NULL);
  tensor *x = matrix(g, 1, ROWS, COLS);
  for (int i = 0; i < 2; i++) x = t_add(g, t_add(g, x, product(g, x, 10 + i)), product(g, x, 20 + i));
  assert_int_equal(stored(g, x, DT_F32, ROWS * COLS), 1);
  graph_free(g);
}

static void test_a_polynomial_flows_nowhere(void **state) {
  (void)state;
  graph *g = graph_new(NULL);
  tensor *x = matrix(g, 1, ROWS, COLS), *u = t_add(g, product(g, x, 10), product(g, x, 11));
  assert_int_equal(stored(g, t_add(g, u, t_mul(g, u, t_mul(g, u, u))), DT_F32, ROWS * COLS), 0);
  graph_free(g);
}

static void test_what_is_normed(void **state) {
  (void)state;
  graph *g = graph_new(NULL);
  tensor *x = matrix(g, 1, ROWS, COLS), *sum = t_add(g, x, product(g, x, 10)), *w = row_of_weights(g, 11);
  assert_int_equal(stored(g, t_rmsnorm(g, sum, w, 1e-5), DT_F32, ROWS * COLS), 1);
  assert_int_equal(stored(g, t_layernorm(g, sum, w, 1e-5), DT_F32, ROWS * COLS), 1);
  assert_int_equal(stored(g, t_rmsnorm(g, t_mul(g, sum, row_of_weights(g, 12)), w, 1e-5), DT_F32, ROWS * COLS), 1);
  graph_free(g);
}

static void test_products_that_are_normed(void **state) {       // with a bias or a factor, or without
  (void)state;
  graph *g = graph_new(NULL);
  tensor *y = product(g, matrix(g, 1, ROWS, COLS), 10), *w = row_of_weights(g, 11);
  assert_int_equal(stored(g, t_rmsnorm(g, y, w, 1e-5), DT_F32, ROWS * COLS), 1);
  assert_int_equal(stored(g, t_rmsnorm(g, t_add(g, y, w), w, 1e-5), DT_F32, ROWS * COLS), 1);
  assert_int_equal(stored(g, t_rmsnorm(g, t_mul(g, y, w), w, 1e-5), DT_F32, ROWS * COLS), 1);
  graph_free(g);
}

// What is made of memory alone is left to costs, and what is more than a product.
static void test_what_is_normed_and_no_product(void **state) {
  (void)state;
  graph *g = graph_new(NULL);
  tensor *x = matrix(g, 1, ROWS, COLS), *w = row_of_weights(g, 11);
  assert_int_equal(stored(g, t_rmsnorm(g, t_add(g, x, t_exp(g, x)), w, 1e-5), DT_F32, ROWS * COLS), 0);
  assert_int_equal(stored(g, t_rmsnorm(g, t_mul(g, product(g, x, 10), x), w, 1e-5), DT_F32, ROWS * COLS), 0);
  assert_int_equal(stored(g, t_rmsnorm(g, t_matmul(g, x, x), NULL, 1e-5), DT_F32, ROWS * ROWS), 0);
  graph_free(g);
}

static tensor *embedding(graph *g, tensor *ids) {
  tensor *rows = t_reshape_i(g, t_weight(g, 30, DT_F32, MANY * COLS), 2, (int64_t[]){MANY, COLS});
  return t_gather(g, rows, ids);
}

// The embedding of tokens is stored if layers add to it, also scaled, and then flows as what is in memory does. So is
// what a norm of it reads, beside the norm that flows.
static void test_an_embedding_that_flows(void **state) {
  (void)state;
  for (int kind = 0; kind < 3; kind++)
    for (int layers = 1; layers < 4; layers++) {
      graph *g = graph_new(NULL);
      tensor *x = embedding(g, t_cast(g, t_buffer(g, 2, DT_I32, ROWS), DT_IDX));
      if (kind == 1) x = t_scale(g, x, 3);
      if (kind == 2) x = t_rmsnorm(g, x, row_of_weights(g, 31), 1e-5);
      for (int i = 0; i < layers; i++) x = t_add(g, x, product(g, x, 10 + i));
      assert_int_equal(stored(g, x, DT_F32, ROWS * COLS), layers + (kind == 2));
      graph_free(g);
    }
}

// An embedding to which nothing is added is stored, too, if a product or a norm reads it: otherwise it would be rounded
// as a weight is. Rows that depend on positions are added to it first.
static void test_an_embedding_of_one_layer(void **state) {
  (void)state;
  graph *g = graph_new(NULL);
  tensor *x = embedding(g, t_cast(g, t_buffer(g, 2, DT_I32, ROWS), DT_IDX)),
         *at = embedding(g, t_iota(g, uop_idx(g, ROWS))), *w = row_of_weights(g, 31);
  assert_int_equal(stored(g, product(g, x, 10), DT_F32, ROWS * COLS), 1);
  assert_int_equal(stored(g, product(g, t_scale(g, x, 3), 10), DT_F32, ROWS * COLS), 1);
  assert_int_equal(stored(g, product(g, t_rmsnorm(g, x, w, 1e-5), 10), DT_F32, ROWS * COLS), 1);
  assert_int_equal(stored(g, product(g, t_rmsnorm(g, t_add(g, x, at), w, 1e-5), 10), DT_F32, ROWS * COLS), 1);
  assert_int_equal(stored(g, t_exp(g, x), DT_F32, ROWS * COLS), 0);
  graph_free(g);
}

// Rows of a table by positions alone are left to costs.
static void test_rows_of_weights_that_do_not_flow(void **state) {
  (void)state;
  graph *g = graph_new(NULL);
  tensor *at = embedding(g, t_iota(g, uop_idx(g, ROWS)));
  assert_int_equal(stored(g, t_add(g, at, product(g, at, 10)), DT_F32, ROWS * COLS), 0);
  assert_int_equal(stored(g, product(g, at, 10), DT_F32, ROWS * COLS), 0);
  graph_free(g);
}

// A sine is stored where several read it: before it is repeated, and with its factor. One that is read once is not.
static void test_sines(void **state) {
  (void)state;
  graph *g = graph_new(NULL);
  tensor *x = matrix(g, 1, ROWS, COLS),
         *sine = t_scale(g, t_op1(g, OP_SIN, t_reshape_i(g, t_buffer(g, 3, DT_F32, ROWS), 2, (int64_t[]){ROWS, 1})), 2),
         *all = t_expand(g, sine, 2, x->shape->dim);
  assert_int_equal(stored(g, t_mul(g, x, all), DT_F32, ROWS), 0);
  assert_int_equal(stored(g, t_mul(g, t_exp(g, t_mul(g, x, all)), all), DT_F32, ROWS), 1);
  assert_int_equal(stored(g, t_mul(g, t_exp(g, t_mul(g, x, all)), all), DT_F32, ROWS * COLS), 0);
  graph_free(g);
}

// Halves of each row of x, in pairs or one after the other.
static void halves_of(graph *g, tensor *x, bool pairs, tensor *half[2]) {
  int64_t n = COLS / 2;
  x = t_reshape_i(g, x, 3, pairs ? (int64_t[]){ROWS, n, 2} : (int64_t[]){ROWS, 2, n});
  for (int i = 0; i < 2; i++) half[i] = t_reshape_i(g, t_slice_i(g, x, pairs ? 2 : 1, i, 1), 2, (int64_t[]){ROWS, n});
}

static tensor *turned(graph *g, tensor *x, bool pairs) {
  tensor *half[2], *cosine = t_buffer(g, 3, DT_F32, COLS / 2), *sine = t_buffer(g, 4, DT_F32, COLS / 2);
  halves_of(g, x, pairs, half);
  tensor *both[2] = {t_sub(g, t_mul(g, half[0], cosine), t_mul(g, half[1], sine)),
                     t_add(g, t_mul(g, half[0], sine), t_mul(g, half[1], cosine))};
  return t_stack_last(g, both, 2);
}

// A product that rotates is stored once, before its rows become pairs and without a factor, with what an adapter adds
// to it and a scale of positions. What is no product is left to costs, and so are halves of a product that meet in one
// element.
static void test_products_that_turn(void **state) {
  (void)state;
  for (int pairs = 0; pairs < 2; pairs++) {
    graph *g = graph_new(NULL);
    tensor *x = matrix(g, 1, ROWS, COLS), *y = product(g, x, 10), *half[2];
    assert_int_equal(stored(g, turned(g, y, pairs), DT_F32, ROWS * COLS), 1);
    assert_int_equal(stored(g, turned(g, t_scale(g, y, 2), pairs), DT_F32, ROWS * COLS), 1);
    assert_int_equal(stored(g, turned(g, t_add(g, y, row_of_weights(g, 11)), pairs), DT_F32, ROWS * COLS), 1);
    tensor *more = matrix(g, 5, ROWS, COLS), *by = t_buffer(g, 6, DT_F32, ROWS);
    by = t_expand(g, t_reshape_i(g, by, 2, (int64_t[]){ROWS, 1}), 2, y->shape->dim);
    assert_int_equal(stored(g, turned(g, t_add(g, y, more), pairs), DT_F32, ROWS * COLS), 1);
    assert_int_equal(stored(g, turned(g, t_mul(g, y, by), pairs), DT_F32, ROWS * COLS), 1);
    assert_int_equal(stored(g, turned(g, t_exp(g, x), pairs), DT_F32, ROWS * COLS), 0);
    halves_of(g, y, pairs, half);
    assert_int_equal(stored(g, t_mul(g, t_silu(g, half[0]), half[1]), DT_F32, ROWS * COLS), 0);
    graph_free(g);
  }
}

// Parts of one product that lead to two sums: the product is stored, with a bias and with what an adapter adds; not if
// the parts meet, and not if it is no product.
static void test_products_whose_parts_are_apart(void **state) {
  (void)state;
  graph *g = graph_new(NULL);
  tensor *x = matrix(g, 1, ROWS, COLS), *y = product(g, x, 10), *more = matrix(g, 5, ROWS, COLS);
  tensor *of[] = {y, t_add(g, y, row_of_weights(g, 11)), t_add(g, y, more), t_exp(g, x)};
  for (int i = 0; i < 4; i++) {
    tensor *low = t_reduce(g, t_slice_i(g, of[i], 1, 0, COLS / 2), OP_MAX, 1),
           *high = t_reduce(g, t_slice_i(g, of[i], 1, COLS / 2, COLS / 2), OP_MAX, 1);
    assert_int_equal(stored(g, t_add(g, low, high), DT_F32, ROWS * COLS), i < 3);
  }
  tensor *low = t_slice_i(g, y, 1, 0, COLS / 2), *high = t_slice_i(g, y, 1, COLS / 2, COLS / 2);
  tensor *met = t_add(g, low, high), *sum = t_reduce(g, met, OP_MAX, 1), *least = t_reduce(g, met, OP_MUL, 1);
  assert_int_equal(stored(g, t_add(g, sum, least), DT_F32, ROWS * COLS), 0);
  graph_free(g);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_computed_rows_that_are_looked_up), cmocka_unit_test(test_rows_that_lie_in_memory),
    cmocka_unit_test(test_single_elements),                  cmocka_unit_test(test_rows_in_order),
    cmocka_unit_test(test_who_reads_stored_rows),            cmocka_unit_test(test_ids_that_are_counted),
    cmocka_unit_test(test_ids_that_a_table_has),             cmocka_unit_test(test_ids_that_lie_in_memory),
    cmocka_unit_test(test_what_flows),                       cmocka_unit_test(test_what_flows_and_is_scaled),
    cmocka_unit_test(test_two_parts_of_one_input),           cmocka_unit_test(test_a_polynomial_flows_nowhere),
    cmocka_unit_test(test_what_is_normed),                   cmocka_unit_test(test_products_that_are_normed),
    cmocka_unit_test(test_what_is_normed_and_no_product),    cmocka_unit_test(test_an_embedding_that_flows),
    cmocka_unit_test(test_an_embedding_of_one_layer),
    cmocka_unit_test(test_rows_of_weights_that_do_not_flow), cmocka_unit_test(test_sines),
    cmocka_unit_test(test_products_that_turn),
    cmocka_unit_test(test_products_whose_parts_are_apart),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
