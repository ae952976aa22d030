// Nodes: equal ones are one pointer, commutation and constants are canonical, bounds and shapes are derived, graphs
// nest.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/attempt.h"
#include "graph/eval.h"
#include "graph/graph.h"
#include "graph/half.h"
#include "graph/uop.h"

static void ranges_are_those_that_nothing_below_binds(void **state) {
  (void)state;
  graph *g = graph_new(NULL), *inner = graph_new(g);
  uop *end = uop_idx(g, 8), *i = uop_range(g, end, 0, AXIS_LOOP), *j = uop_range(g, end, 1, AXIS_REDUCE);
  uop *buffer = uop_new(g, OP_PARAM, DT_F32, 1, NULL, 0, (uarg){.a = 0, .b = 64});
  assert_int_equal(uop_ranges(end).n, 0);
  assert_int_equal(uop_ranges(i).n, 1);
  assert_ptr_equal(uop_ranges(i).at[0], i);
  uop *at = uop_op2(inner, OP_ADD, uop_op2(inner, OP_MUL, i, uop_idx(g, 8)), j);
  assert_int_equal(uop_ranges(at).n, 2);
  assert_true(uop_varies(at, i) && uop_varies(at, j));
  uop *load = uop_load(inner, uop_index(inner, buffer, at), DT_F32, 1);
  assert_ptr_equal(uop_ranges(load).at, uop_ranges(at).at);                // shared, not copied
  uop *sum = uop_new(inner, OP_REDUCE, DT_F32, 1, (uop *[]){load, j}, 2, (uarg){.a = OP_ADD});
  assert_true(uop_varies(sum, i) && !uop_varies(sum, j));
  assert_true(uop_has_axis(sum, AXIS_LOOP) && !uop_has_axis(sum, AXIS_REDUCE));
  uop *to = uop_index(inner, buffer, i),
      *store = uop_new(inner, OP_STORE, DT_VOID, 1, (uop *[]){to, sum, i}, 3, (uarg){0});
  assert_int_equal(uop_ranges(store).n, 0);
  // a loop whose end another one decides
  uop *part = uop_range(inner, uop_op2(inner, OP_ADD, i, uop_idx(g, 1)), 2, AXIS_LOOP);
  assert_true(uop_varies(part, part) && uop_varies(part, i));
  graph_free(inner);
  graph_free(g);
}

static void equal_nodes_are_one(void **state) {
  (void)state;
  graph *g = graph_new(NULL);
  uop *n = uop_var(g, "n", 0, 9), *m = uop_var(g, "m", 0, 9);
  assert_ptr_equal(n, uop_var(g, "n", 0, 9));
  assert_ptr_not_equal(n, uop_var(g, "n", 0, 8));
  assert_ptr_not_equal(n, m);
  uop *s = uop_op2(g, OP_ADD, n, m);
  assert_ptr_equal(s, uop_op2(g, OP_ADD, n, m));
  assert_ptr_equal(s, uop_op2(g, OP_ADD, m, n));
  assert_ptr_not_equal(uop_op2(g, OP_SUB, n, m), uop_op2(g, OP_SUB, m, n));
  assert_ptr_equal(uop_idx(g, 3), uop_int(g, DT_IDX, 3));
  assert_ptr_not_equal(uop_idx(g, 3), uop_int(g, DT_I64, 3));
  assert_ptr_equal(uop_op2(g, OP_MUL, uop_idx(g, 4), n), uop_op2(g, OP_MUL, n, uop_idx(g, 4)));
  assert_ptr_equal(uop_op2(g, OP_MUL, uop_idx(g, 4), n)->src[1], uop_idx(g, 4));       // constants stand last
  uop *v = uop_splat(g, n, 4);
  assert_ptr_equal(uop_op2(g, OP_ADD, v, uop_idx(g, 1))->src[1], uop_splat(g, uop_idx(g, 1), 4));
  // text of a name with bytes of any kind, and its length, count
  uop *a = uop_new(g, OP_BUFFER, DT_U8, 1, NULL, 0, (uarg){.a = 1, .b = 2, .s = "a\0b", .s_len = 3});
  assert_ptr_equal(a, uop_new(g, OP_BUFFER, DT_U8, 1, NULL, 0, (uarg){.a = 1, .b = 2, .s = "a\0b", .s_len = 3}));
  assert_ptr_not_equal(a, uop_new(g, OP_BUFFER, DT_U8, 1, NULL, 0, (uarg){.a = 1, .b = 2, .s = "a\0c", .s_len = 3}));
  // two stores to one place are two nodes only if they differ
  size_t size = graph_size(g);
  for (int i = 0; i < 5000; i++) uop_op2(g, OP_ADD, n, uop_idx(g, i % 50));
  assert_true(graph_size(g) - size <= 100);
  graph_free(g);
}

// Structural hashes do not depend on the order in which nodes are made, so neither does the order of operands.
static void hashes_are_structural(void **state) {
  (void)state;
  graph *g = graph_new(NULL), *h = graph_new(NULL);
  uop *x = uop_op2(g, OP_ADD, uop_var(g, "a", 0, 5), uop_op2(g, OP_MUL, uop_var(g, "b", 0, 7), uop_idx(g, 6)));
  for (int i = 0; i < 100; i++) uop_idx(h, i);
  uop *b = uop_var(h, "b", 0, 7), *a = uop_var(h, "a", 0, 5),
      *y = uop_op2(h, OP_ADD, uop_op2(h, OP_MUL, uop_idx(h, 6), b), a);
  assert_ptr_not_equal(x, y);
  assert_int_equal(x->hash, y->hash);
  assert_int_equal(x->src[0]->hash, y->src[0]->hash);
  graph_free(g); graph_free(h);
}

static void many_nodes(void **state) {
  (void)state;
  graph *g = graph_new(NULL);
  uop *n = uop_var(g, "n", 0, 1 << 20), *at[2000];
  for (int i = 0; i < 2000; i++) at[i] = uop_op2(g, OP_MUL, n, uop_idx(g, i + 2));
  for (int i = 0; i < 2000; i++) assert_ptr_equal(at[i], uop_op2(g, OP_MUL, n, uop_idx(g, i + 2)));
  // one node with more sources than the constructor has room for on its stack
  uop *stack = uop_new(g, OP_STACK, DT_IDX, 2000, at, 2000, (uarg){0});
  assert_ptr_equal(stack, uop_new(g, OP_STACK, DT_IDX, 2000, at, 2000, (uarg){0}));
  assert_int_equal(stack->nsrc, 2000);
  assert_int_equal(stack->vmax, 2001ll << 20);
  // a chain deeper than any stack would bear
  uop *deep = n;
  for (int i = 0; i < 300000; i++) deep = uop_op1(g, i & 1 ? OP_NEG : OP_FLOOR, deep);
  arena *mem = arena_new();
  uop_list l = uop_toposort(mem, &deep, 1);
  assert_int_equal(l.n, 300001);
  assert_ptr_equal(l.at[0], n);
  arena_free(mem);
  graph_free(g);
}

static void graphs_nest(void **state) {
  (void)state;
  graph *g = graph_new(NULL);
  uop *n = uop_var(g, "n", 0, 9), *s = uop_op2(g, OP_ADD, n, uop_idx(g, 1));
  size_t before = graph_size(g);
  graph *child = graph_new(g), *grandchild = graph_new(child);
  assert_ptr_equal(uop_op2(grandchild, OP_ADD, uop_var(grandchild, "n", 0, 9), uop_idx(child, 1)), s);
  assert_int_equal(graph_size(child), 0);
  uop *t = uop_op2(child, OP_MUL, s, uop_idx(child, 5));
  assert_int_equal(graph_size(child), 2);
  assert_ptr_equal(uop_op2(grandchild, OP_MUL, s, uop_idx(grandchild, 5)), t);
  assert_int_equal(graph_size(grandchild), 0);
  graph_free(grandchild);
  graph_free(child);
  assert_int_equal(graph_size(g), before);
  assert_ptr_equal(uop_op2(g, OP_ADD, n, uop_idx(g, 1)), s);
  graph_free(g);
}

static void sources_come_first(void **state) {
  (void)state;
  graph *g = graph_new(NULL);
  uop *a = uop_var(g, "a", 0, 9), *b = uop_var(g, "b", 0, 9), *s = uop_op2(g, OP_SUB, a, b),
      *t = uop_op2(g, OP_MUL, s, s), *roots[] = {t, s, b};
  arena *mem = arena_new();
  uop_list l = uop_toposort(mem, roots, 3);
  assert_int_equal(l.n, 4);
  uop *expected[] = {a, b, s, t};
  for (int i = 0; i < 4; i++) assert_ptr_equal(l.at[i], expected[i]);
  map m = {0};
  map_put(&m, a, b);
  uop *u = uop_substitute(g, t, &m), *d = uop_op2(g, OP_SUB, b, b);
  assert_ptr_equal(u, uop_op2(g, OP_MUL, d, d));
  assert_ptr_equal(uop_substitute(g, b, &m), b);
  map_free(&m);
  arena_free(mem);
  graph_free(g);
}

// --- shapes ----------------------------------------------------------------------------------------------------------

static void has_shape(const uop *u, int n, const int64_t *dims) {
  assert_non_null(u->shape);
  assert_int_equal(u->shape->n, n);
  for (int i = 0; i < n; i++) assert_true(uop_is_int(u->shape->dim[i], dims[i]));
}
#define SHAPE(u, ...) has_shape(u, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (int64_t[]){__VA_ARGS__})

static void shapes_follow(void **state) {
  (void)state;
  graph *g = graph_new(NULL);
  uop *i[9];
  for (int k = 0; k < 9; k++) i[k] = uop_idx(g, k);
  uop *b = uop_new(g, OP_BUFFER, DT_F32, 1, NULL, 0, (uarg){.a = 0, .b = 24});
  SHAPE(b, 24);
  uop *x = uop_new(g, OP_RESHAPE, DT_F32, 1, (uop *[]){b, i[2], i[3], i[4]}, 4, (uarg){0});
  SHAPE(x, 2, 3, 4);
  SHAPE(uop_new(g, OP_PERMUTE, DT_F32, 1, &x, 1, (uarg){.a = 0x102, .b = 3}), 4, 2, 3);    // axes 2, 0, 1 of x
  SHAPE(uop_new(g, OP_PAD, DT_F32, 1, (uop *[]){x, i[0], i[1], i[2], i[0], i[0], i[0]}, 7, (uarg){0}), 3, 5, 4);
  SHAPE(uop_new(g, OP_SHRINK, DT_F32, 1, (uop *[]){x, i[1], i[1], i[0], i[2], i[0], i[4]}, 7, (uarg){0}), 1, 2, 4);
  SHAPE(uop_new(g, OP_FLIP, DT_F32, 1, &x, 1, (uarg){.a = 3}), 2, 3, 4);
  uop *sum = uop_new(g, OP_REDUCE_AXIS, DT_F32, 1, &x, 1, (uarg){.a = OP_ADD, .b = 5});
  SHAPE(sum, 1, 3, 1);
  SHAPE(uop_new(g, OP_EXPAND, DT_F32, 1, (uop *[]){sum, i[7], i[3], i[2]}, 4, (uarg){0}), 7, 3, 2);
  uop *iota = uop_new(g, OP_IOTA, DT_IDX, 1, &i[5], 1, (uarg){0});
  SHAPE(iota, 5);
  SHAPE(uop_new(g, OP_GATHER, DT_F32, 1, (uop *[]){x, iota}, 2, (uarg){0}), 5, 3, 4);
  SHAPE(uop_new(g, OP_STACK, DT_F32, 1, (uop *[]){x, x}, 2, (uarg){0}), 2, 3, 4, 2);
  SHAPE(uop_new(g, OP_BITCAST, DT_U8, 1, &x, 1, (uarg){0}), 2, 3, 16);
  SHAPE(uop_new(g, OP_BITCAST, DT_F64, 1, &x, 1, (uarg){0}), 2, 3, 2);
  uop *e = uop_op2(g, OP_ADD, x, uop_float(g, DT_F32, 1));
  assert_ptr_equal(e->shape, x->shape);                                  // a scalar broadcasts, and shapes are interned
  assert_null(uop_op1(g, OP_NEG, uop_float(g, DT_F32, 1))->shape);
  assert_int_equal(shape_max_elems(x->shape), 24);
  uop *n = uop_var(g, "n", 1, 100);
  uop *grown = uop_new(g, OP_PAD, DT_F32, 1, (uop *[]){b, n, i[0]}, 3, (uarg){0});         // a symbolic size
  assert_int_equal(grown->shape->dim[0]->vmin, 25);
  assert_int_equal(shape_max_elems(grown->shape), 124);
  graph_free(g);
}

// --- constants -------------------------------------------------------------------------------------------------------

static void constants_are_canonical(void **state) {
  (void)state;
  graph *g = graph_new(NULL);
  assert_ptr_equal(uop_int(g, DT_U8, 256), uop_int(g, DT_U8, 0));
  assert_ptr_equal(uop_int(g, DT_I8, 255), uop_int(g, DT_I8, -1));
  assert_ptr_equal(uop_int(g, DT_BOOL, 7), uop_int(g, DT_BOOL, 1));
  assert_ptr_equal(uop_float(g, DT_F32, 0.1), uop_float(g, DT_F32, (double)0.1f));
  assert_ptr_not_equal(uop_float(g, DT_F64, 0.1), uop_float(g, DT_F64, (double)0.1f));
  assert_ptr_not_equal(uop_float(g, DT_F32, 0.0), uop_float(g, DT_F32, -0.0));
  assert_true(uop_const_float(uop_int(g, DT_U64, -1)) == 0x1p64);
  for (int d = DT_BOOL; d < DT_COUNT; d++) {
    enum dtype back;
    const char *name = dtype_name((enum dtype)d);
    assert_true(dtype_parse(name, strlen(name), &back) && back == (enum dtype)d);
  }
  // every f16 and bf16 goes to double and back; values between two of them go to the nearest, ties to even
  for (int h = 0; h < 65536; h++) {
    double f = f16_to_double((uint16_t)h), b = bf16_to_double((uint16_t)h);
    if (!isnan(f)) assert_int_equal(f16_from_double(f), h);
    if (!isnan(b)) assert_int_equal(bf16_from_double(b), h);
  }
  assert_int_equal(f16_from_double(65519), 0x7bff); assert_int_equal(f16_from_double(65520), 0x7c00);
  assert_int_equal(f16_from_double(1 + 0x1p-11), 0x3c00); assert_int_equal(f16_from_double(1 + 0x3p-11), 0x3c02);
  assert_int_equal(f16_from_double(0x1p-25), 0); assert_int_equal(f16_from_double(0x1.8p-25), 1);
  graph_free(g);
}

static evalue ev(enum op op, enum dtype dt, enum dtype from, int64_t x, int64_t y) {
  evalue s[2] = {{.i = x}, {.i = y}}, out;
  if (!eval_op(op, dt, from, s, (size_t)op_arity(op), &out)) return (evalue){.i = INT64_MIN};
  return out;
}

static void evaluation(void **state) {
  (void)state;
  const int64_t none = INT64_MIN;
  assert_int_equal(ev(OP_ADD, DT_U8, DT_U8, 200, 100).i, 44);
  assert_int_equal(ev(OP_IDIV, DT_IDX, DT_IDX, -7, 2).i, -4);
  assert_int_equal(ev(OP_MOD, DT_IDX, DT_IDX, -7, 2).i, 1);
  assert_int_equal(ev(OP_CDIV, DT_IDX, DT_IDX, -7, 2).i, -3);
  assert_int_equal(ev(OP_CMOD, DT_IDX, DT_IDX, -7, 2).i, -1);
  assert_int_equal(ev(OP_IDIV, DT_IDX, DT_IDX, 7, 0).i, none);
  assert_int_equal(ev(OP_IDIV, DT_I32, DT_I32, INT32_MIN, -1).i, none);
  assert_int_equal(ev(OP_ADD, DT_IDX, DT_IDX, INT64_MAX, 1).i, none);        // exact
  assert_int_equal(ev(OP_ADD, DT_U64, DT_U64, -1, 2).i, 1);                  // wraps
  assert_int_equal(ev(OP_CMPLT, DT_BOOL, DT_U64, -1, 2).i, 0);
  assert_int_equal(ev(OP_CMPLT, DT_BOOL, DT_I64, -1, 2).i, 1);
  assert_int_equal(ev(OP_SHR, DT_I8, DT_I8, -8, 1).i, -4);
  assert_int_equal(ev(OP_SHR, DT_U64, DT_U64, -1, 63).i, 1);
  assert_int_equal(ev(OP_SHL, DT_U8, DT_U8, 255, 4).i, 240);
  assert_int_equal(ev(OP_SHL, DT_U8, DT_U8, 1, 8).i, none);
  assert_int_equal(ev(OP_BITCAST, DT_I8, DT_U8, 255, 0).i, -1);
  assert_int_equal(ev(OP_CAST, DT_U8, DT_I32, -1, 0).i, 255);
  evalue f = {.f = 300.7}, out;
  assert_true(eval_op(OP_CAST, DT_I32, DT_F32, &f, 1, &out) && out.i == 300);
  assert_false(eval_op(OP_CAST, DT_U8, DT_F32, &f, 1, &out));
  f.f = 1;
  assert_true(eval_op(OP_BITCAST, DT_U32, DT_F32, &f, 1, &out) && out.i == 0x3f800000);
  assert_true(eval_op(OP_BITCAST, DT_U16, DT_F16, &f, 1, &out) && out.i == 0x3c00);
  evalue t[3] = {{.f = 1 + 0x1p-12}, {.f = 1 + 0x1p-12}, {.f = -1}};
  assert_true(eval_op(OP_MUL, DT_F32, DT_F32, t, 2, &out) && out.f == (double)((1 + 0x1p-12f) * (1 + 0x1p-12f)));
  assert_true(eval_op(OP_FMA, DT_F32, DT_F32, t, 3, &out) && out.f == (double)fmaf(1 + 0x1p-12f, 1 + 0x1p-12f, -1));
  // folding: what has no value is left alone
  graph *g = graph_new(NULL);
  uop *zero = uop_idx(g, 0), *one = uop_idx(g, 1);
  assert_null(eval_const(g, uop_op2(g, OP_IDIV, one, zero)));
  assert_null(eval_const(g, uop_op2(g, OP_ADD, one, uop_var(g, "n", 0, 1))));
  assert_null(eval_const(g, one));
  assert_ptr_equal(eval_const(g, uop_op2(g, OP_SUB, zero, one)), uop_idx(g, -1));
  uop *v = uop_splat(g, uop_float(g, DT_F32, 2), 8);
  assert_ptr_equal(eval_const(g, uop_op2(g, OP_MUL, v, v)), uop_splat(g, uop_float(g, DT_F32, 4), 8));
  // a reduction over two ranges of a triangle, and vectors
  uop *i = uop_range(g, uop_idx(g, 4), 0, AXIS_LOOP), *j = uop_range(g, uop_op2(g, OP_ADD, i, one), 1, AXIS_LOOP);
  uop *inner = uop_new(g, OP_REDUCE, DT_IDX, 1, (uop *[]){uop_op2(g, OP_ADD, i, j), j}, 2, (uarg){.a = OP_ADD});
  uop *sum = uop_new(g, OP_REDUCE, DT_IDX, 1, (uop *[]){inner, one, i}, 3, (uarg){.a = OP_ADD, .b = 2});
  eval_env env = {0};
  assert_true(eval_expr(&env, sum, &out));
  assert_int_equal(out.i, 4 + 0 + (1 + 2) + (2 + 3 + 4) + (3 + 4 + 5 + 6));
  uop *lane = uop_new(g, OP_LANE, DT_IDX, 8, NULL, 0, (uarg){0});
  uop *swap = uop_new(g, OP_SHUFFLE, DT_IDX, 2, &lane, 1, (uarg){.s = "\7\0\2\0", .s_len = 4});
  evalue two[2];
  assert_true(eval_expr(&env, swap, two) && two[0].i == 7 && two[1].i == 2);
  assert_true(eval_expr(&env, uop_new(g, OP_HREDUCE, DT_IDX, 1, &lane, 1, (uarg){.a = OP_MAX}), &out) && out.i == 7);
  assert_true(eval_expr(&env, uop_new(g, OP_EXTRACT, DT_IDX, 1, &lane, 1, (uarg){.a = 5}), &out) && out.i == 5);
  uop *safe = uop_op3(g, OP_WHERE, uop_op2(g, OP_CMPLT, one, zero), uop_op2(g, OP_IDIV, one, zero), one);
  assert_true(eval_expr(&env, safe, &out) && out.i == 1);
  graph_free(g);
}

typedef struct cut { graph *g; int64_t from, n; } cut;
static void slice_of_eight(void *ctx) {
  const cut *c = ctx;
  t_slice_i(c->g, t_buffer(c->g, 1, DT_F32, 8), 0, c->from, c->n);
}

static void slices_end_where_the_axis_does(void **state) {
  (void)state;
  static const struct { int64_t from, n; bool good; } cases[] = {
    {0, 8, true}, {0, 3, true}, {7, 1, true}, {8, 0, true}, {0, 9, false}, {7, 2, false}, {9, 0, false},
    {-1, 2, false}, {2, -1, false}, {1, INT64_MAX, false}, {INT64_MAX, 1, false}};
  graph *g = graph_new(NULL);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    error err = {0};
    cut c = {g, cases[i].from, cases[i].n};
    assert_int_equal(attempt(ATTEMPT_LEAVES, slice_of_eight, &c, &err) == 0, cases[i].good);
    if (!cases[i].good) assert_non_null(strstr(err.text, "slice of an axis beyond its end"));
  }
  graph_free(g);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(equal_nodes_are_one), cmocka_unit_test(ranges_are_those_that_nothing_below_binds),
      cmocka_unit_test(hashes_are_structural),
      cmocka_unit_test(many_nodes),
      cmocka_unit_test(graphs_nest),
      cmocka_unit_test(sources_come_first),
      cmocka_unit_test(shapes_follow),
      cmocka_unit_test(slices_end_where_the_axis_does),
      cmocka_unit_test(constants_are_canonical),
      cmocka_unit_test(evaluation),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
