// Neighbouring outputs that are sums over lanes (codegen/pack_sums.c): which become one store, and that its lanes have
// the bits that each of them had.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "codegen/pack_sums.h"
#include "graph/eval.h"
#include "graph/gen.h"
#include "graph/symbolic.h"

enum { MOST = 16 };

// Outputs out[64 r + at], each a vector of floats or integers whose values are known.
typedef struct outputs {
  graph *g;
  enum dtype dt;
  uop *out, *row, *x[MOST], *scale, *store[MOST];
  evalue v[MOST][MOST], s;
  map leaf;
  int n;
} outputs;

static void outputs_begin(outputs *o, enum dtype dt, int n, int lanes, gen *r) {
  *o = (outputs){.g = graph_new(NULL), .dt = dt, .n = n};
  uop *in = uop_new(o->g, OP_PARAM, dt, 1, NULL, 0, (uarg){.a = 1, .b = 1024});
  o->out = uop_new(o->g, OP_PARAM, dt, 1, NULL, 0, (uarg){.b = 1024});
  o->row = uop_range(o->g, uop_idx(o->g, 8), 0, AXIS_LOOP);
  for (int i = 0; i < n; i++) {
    o->x[i] = uop_load(o->g, uop_index(o->g, in, uop_idx(o->g, 32 * i)), dt, lanes);
    for (int j = 0; j < lanes; j++) {
      if (dt == DT_F32) o->v[i][j].f = dtype_round(dt, (double)gen_between(r, -100000, 100000) / 997);
      else o->v[i][j].i = gen_below(r, 2000) - 1000;
    }
    map_put(&o->leaf, o->x[i], o->v[i]);
  }
  o->scale = uop_load(o->g, uop_index(o->g, in, uop_idx(o->g, 1000)), dt, 1);
  if (dt == DT_F32) o->s.f = dtype_round(dt, (double)gen_between(r, -100000, 100000) / 997);
  else o->s.i = gen_below(r, 100);
  map_put(&o->leaf, o->scale, &o->s);
}

static uop *sum_of(const outputs *o, int i, enum op op) {
  return uop_new(o->g, OP_HREDUCE, o->dt, 1, &o->x[i], 1, (uarg){.a = op});
}

static uop *place(const outputs *o, int at) {
  return idx_add(o->g, idx_mul(o->g, o->row, uop_idx(o->g, 64)), uop_idx(o->g, at));
}

static void put(outputs *o, int i, uop *at, uop *value) {
  uop *src[] = {uop_index(o->g, o->out, at), value, o->row};
  o->store[i] = uop_new(o->g, OP_STORE, DT_VOID, 1, src, 3, (uarg){0});
}

static uop *joined(const outputs *o) {
  return pack_sums(o->g, uop_new(o->g, OP_SINK, DT_VOID, 1, o->store, (size_t)o->n, (uarg){0}));
}

static void outputs_end(outputs *o) { map_free(&o->leaf); graph_free(o->g); }

// Store number `at` of u has as many lanes as outputs from `first` on, and their bits.
static void assert_lanes(const outputs *o, const uop *u, int at, int first, int lanes) {
  const eval_env env = {.leaf = &o->leaf};
  evalue got[MOST], want;
  const uop *store = u->src[at];
  assert_int_equal(store->src[1]->lanes, lanes);
  assert_ptr_equal(store->src[0], o->store[first]->src[0]);
  assert_ptr_equal(store->src[2], o->row);
  assert_true(eval_expr(&env, store->src[1], got));
  for (int i = 0; i < lanes; i++) {
    assert_true(eval_expr(&env, o->store[first + i]->src[1], &want));
    assert_memory_equal(&got[i], &want, sizeof want);
  }
}

static void all_bits_are_kept(void **state) {
  (void)state;
  static const struct { enum dtype dt; int n, lanes; enum op sum, then; } cases[] = {
    {DT_F32, 4, 16, OP_ADD, OP_FDIV}, {DT_F32, 2, 4, OP_ADD, OP_MUL},  {DT_F32, 8, 8, OP_ADD, OP_ADD},
    {DT_F32, 16, 16, OP_MAX, OP_SUB}, {DT_I32, 4, 16, OP_ADD, OP_MUL}, {DT_I32, 8, 16, OP_MIN, OP_ADD}};
  gen r = {.seed = 3};
  for (size_t c = 0; c < COUNT(cases); c++)
    for (int round = 0; round < 50; round++) {
      outputs o;
      outputs_begin(&o, cases[c].dt, cases[c].n, cases[c].lanes, &r);
      for (int i = 0; i < o.n; i++)
        put(&o, i, place(&o, i), uop_op2(o.g, cases[c].then, sum_of(&o, i, cases[c].sum), o.scale));
      uop *u = joined(&o);
      assert_int_equal(u->nsrc, 1);
      assert_lanes(&o, u, 0, 0, o.n);
      outputs_end(&o);
    }
}

// Five of seven lie side by side, in any order: four of them go together.
static void as_many_as_a_power_of_two(void **state) {
  (void)state;
  static const int at[] = {3, 1, 0, 9, 4, 2, 20};
  gen r = {.seed = 4};
  outputs o;
  outputs_begin(&o, DT_F32, 7, 16, &r);
  for (int i = 0; i < o.n; i++) put(&o, i, place(&o, at[i]), sum_of(&o, i, OP_ADD));
  uop *u = joined(&o);
  assert_int_equal(u->nsrc, 4);
  int wide = 0;
  for (unsigned i = 0; i < u->nsrc; i++) {
    if (u->src[i]->src[1]->lanes == 1) continue;
    assert_ptr_equal(u->src[i]->src[0]->src[1], place(&o, 0));
    assert_int_equal(u->src[i]->src[1]->lanes, 4);
    wide++;
  }
  assert_int_equal(wide, 1);
  outputs_end(&o);
}

static void what_differs_stays(void **state) {
  (void)state;
  gen r = {.seed = 5};
  for (int way = 0; way < 5; way++) {
    outputs o;
    outputs_begin(&o, DT_F32, 4, 8, &r);
    for (int i = 0; i < o.n; i++) {
      uop *at = place(&o, way == 0 ? 2 * i : i), *value = sum_of(&o, i, way == 1 && i % 2 ? OP_MAX : OP_ADD);
      if (way == 2)                                            // guarded
        at = uop_op3(o.g, OP_WHERE, idx_lt(o.g, o.row, uop_idx(o.g, 5)), at,
                     uop_new(o.g, OP_INVALID, DT_IDX, 1, NULL, 0, (uarg){0}));
      if (way == 3) value = uop_op1(o.g, i % 2 ? OP_NEG : OP_SQRT, value);
      if (way == 4) value = uop_op2(o.g, OP_ADD, o.scale, uop_float(o.g, DT_F32, i));          // no sum
      put(&o, i, at, value);
    }
    uop *u = joined(&o);
    assert_int_equal(u->nsrc, 4);
    for (int i = 0; i < 4; i++) assert_ptr_equal(u->src[i], o.store[i]);
    outputs_end(&o);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(all_bits_are_kept), cmocka_unit_test(as_many_as_a_power_of_two),
                                     cmocka_unit_test(what_differs_stays)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
