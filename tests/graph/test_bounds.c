// Bounds hold: random integer expressions over a few small variables are evaluated for all of their values, and each
// value must lie between the node's vmin and vmax; where a condition holds, between what bounds_under says.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "graph/bounds.h"
#include "graph/prove.h"
#include "gen.h"

static void complain_of(const char *what, uop *u, uop *cond, evalue v, int64_t lo, int64_t hi, const evalue *at) {
  str s = {0};
  uop_print_expr(&s, u);
  if (cond) { str_add(&s, "   where   "); uop_print_expr(&s, cond); }
  str_add(&s, "\n");
  uop_print(&s, &u, 1);
  fail_msg("%s: %lld is not in %lld..%lld for a=%lld b=%lld c=%lld\n%s", what, (long long)v.i, (long long)lo,
           (long long)hi, (long long)at[0].i, (long long)at[1].i, (long long)at[2].i, str_c(&s));
}

// Runs `body` for all values of the three variables.
#define FOR_ALL(r, at)                                                              \
  for (at[0].i = (r)->var[0]->a; at[0].i <= (r)->var[0]->b; at[0].i++)              \
    for (at[1].i = (r)->var[1]->a; at[1].i <= (r)->var[1]->b; at[1].i++)            \
      for (at[2].i = (r)->var[2]->a; at[2].i <= (r)->var[2]->b; at[2].i++)

static void leaf_values(gen *r, map *m, evalue *at, evalue *loads) {
  for (int i = 0; i < GEN_VARS; i++) map_put(m, r->var[i], &at[i]);
  for (size_t i = 0; i < r->leaves.n; i++)
    if (r->leaves.at[i]->op != OP_VAR) {
      loads[i] = gen_value(r, r->leaves.at[i]);
      map_put(m, r->leaves.at[i], &loads[i]);
    }
}

static int check_all_values(gen *r, const char *what, uop *u, uop *cond, bounds b) {
  evalue at[GEN_VARS], loads[256], v, c = {.i = 1};
  map m = {0};
  int n = 0;
  assert_true(r->leaves.n <= COUNT(loads));
  leaf_values(r, &m, at, loads);
  eval_env env = {.leaf = &m};
  FOR_ALL(r, at) {
    if (!eval_expr(&env, u, &v) || (cond && (!eval_expr(&env, cond, &c) || !c.i))) continue;
    n++;
    if (v.i < b.lo || v.i > b.hi) complain_of(what, u, cond, v, b.lo, b.hi, at);
  }
  map_free(&m);
  return n;
}

static void random_expressions(void **state) {
  (void)state;
  gen r = {.seed = 1000, .divides = true};
  int n = 0, tight = 0;
  for (int round = 0; round < 6000; round++) {
    gen_begin(&r, 6, 1);
    enum dtype d = gen_below(&r, 5) ? gen_int_type(&r) : DT_BOOL;
    uop *u = gen_expr(&r, d, 1 + gen_below(&r, 4));
    n += check_all_values(&r, "bounds", u, NULL, (bounds){u->vmin, u->vmax});
    tight += u->vmin > dtype_min(d) || u->vmax < dtype_max(d);
    gen_end(&r);
  }
  assert_true(n > 100000);
  assert_true(tight > 1500);                 // bounds that never say anything would pass as well
}

// a*k1 + b*k2 + ..., // and % of it by constants: what indices are made of
static uop *index_expr(gen *r, int depth) {
  graph *g = r->g;
  uop *u = uop_idx(g, gen_between(r, 0, 8));
  for (int i = 0; i < GEN_VARS; i++)
    if (gen_below(r, 2)) u = uop_op2(g, OP_ADD, u, uop_op2(g, OP_MUL, r->var[i], uop_idx(g, gen_between(r, -3, 40))));
  for (int i = 0; i < depth; i++) {
    uop *c = uop_idx(g, gen_between(r, 1, 33));
    switch (gen_below(r, 4)) {
    case 0: u = uop_op2(g, OP_IDIV, u, c); break;
    case 1: u = uop_op2(g, OP_MOD, u, c); break;
    case 2: u = uop_op2(g, OP_ADD, uop_op2(g, OP_MUL, u, c), r->var[gen_below(r, GEN_VARS)]); break;
    default: u = uop_op2(g, OP_SUB, u, c); break;
    }
  }
  return u;
}

static void expressions_under_conditions(void **state) {
  (void)state;
  gen r = {.seed = 2000};
  int n = 0, tighter = 0;
  for (int round = 0; round < 6000; round++) {
    gen_begin(&r, 6, 1);
    bool indices = gen_below(&r, 3);
    uop *u = indices ? index_expr(&r, gen_below(&r, 3)) : gen_expr(&r, gen_int_type(&r), 1 + gen_below(&r, 3)),
        *cond = NULL;
    for (int i = 1 + gen_below(&r, 3); i > 0; i--) {
      uop *part = gen_below(&r, 5) ? NULL : gen_bool(&r, 1);
      uop *x = gen_below(&r, 3) ? index_expr(&r, 0) : u;
      if (!part && x->dt != DT_IDX) continue;
      if (!part) part = gen_below(&r, 3) ? uop_op2(r.g, OP_CMPLT, x, uop_idx(r.g, gen_between(&r, -20, 120)))
                                         : uop_op2(r.g, OP_CMPLT, uop_idx(r.g, gen_between(&r, -20, 120)), x);
      cond = cond ? uop_op2(r.g, OP_AND, cond, part) : part;
    }
    if (cond) {
      bounds b = bounds_under(u, cond);
      n += check_all_values(&r, "bounds_under", u, cond, b);
      tighter += b.lo > u->vmin || b.hi < u->vmax;
    }
    gen_end(&r);
  }
  assert_true(n > 50000);
  assert_true(tighter > 200);
}

// The same for proofs: expressions of the three index types, with conditions on sums that share atoms with the index.
static void proofs(void **state) {
  (void)state;
  gen r = {.seed = 3000};
  int n = 0, tighter = 0;
  for (int round = 0; round < 6000; round++) {
    gen_begin(&r, 6, 1);
    static const enum dtype types[] = {DT_IDX, DT_I64, DT_I32};
    uop *sum = index_expr(&r, gen_below(&r, 2)), *u = sum, *cond = NULL;
    if (gen_below(&r, 3) == 0) u = gen_expr(&r, types[gen_below(&r, 3)], 1 + gen_below(&r, 4));
    else if (gen_below(&r, 2))
      u = uop_op2(r.g, OP_ADD, uop_op2(r.g, OP_MUL, u, uop_idx(r.g, gen_between(&r, -3, 5))), index_expr(&r, 0));
    if (u->dt == DT_IDX && gen_below(&r, 4) == 0)
      u = uop_op2(r.g, OP_ADD, r.var[0],
                  uop_op3(r.g, OP_WHERE, uop_op2(r.g, OP_CMPLT, sum, uop_idx(r.g, gen_between(&r, -20, 120))), u,
                          uop_idx(r.g, 0)));
    for (int i = gen_below(&r, 3); i > 0; i--) {
      uop *limit = gen_below(&r, 3) ? uop_idx(r.g, gen_between(&r, -20, 120)) : r.var[gen_below(&r, GEN_VARS)];
      uop *part = gen_below(&r, 3)   ? uop_op2(r.g, OP_CMPLT, sum, limit)
                  : gen_below(&r, 2) ? uop_op2(r.g, OP_CMPLT, limit, sum)
                                     : gen_bool(&r, 2);
      cond = cond ? uop_op2(r.g, OP_AND, cond, part) : part;
    }
    prover p;
    prover_begin(&p, r.g);
    prover_assume(&p, cond);
    bounds b = prove_index(&p, u), simple = cond ? bounds_under(u, cond) : (bounds){u->vmin, u->vmax};
    prover_end(&p);
    n += check_all_values(&r, "proof", u, cond, b);
    tighter += b.lo > simple.lo || b.hi < simple.hi;
    gen_end(&r);
  }
  assert_true(n > 50000);
  assert_true(tighter > 500);
}

static void what_is_known_is_used(void **state) {
  (void)state;
  graph *g = graph_new(NULL);
  uop *n = uop_var(g, "n", 1, 100), *i = uop_range(g, n, 0, AXIS_LOOP),
      *e = uop_op2(g, OP_ADD, uop_op2(g, OP_MUL, i, uop_idx(g, 4)), uop_idx(g, 3));
  assert_int_equal(i->vmin, 0); assert_int_equal(i->vmax, 99);
  assert_int_equal(e->vmin, 3); assert_int_equal(e->vmax, 399);
  uop *m = uop_op2(g, OP_MOD, e, uop_idx(g, 8)), *q = uop_op2(g, OP_IDIV, e, uop_idx(g, 8));
  assert_int_equal(m->vmax, 7); assert_int_equal(q->vmax, 49);
  bounds b = bounds_under(e, uop_op2(g, OP_CMPLT, i, uop_idx(g, 10)));
  assert_int_equal(b.lo, 3); assert_int_equal(b.hi, 39);
  b = bounds_under(i, uop_op2(g, OP_CMPLT, uop_op2(g, OP_MUL, i, uop_idx(g, 4)), uop_idx(g, 12)));
  assert_int_equal(b.hi, 2);
  b = bounds_under(uop_op2(g, OP_SUB, i, uop_idx(g, 2)), uop_op2(g, OP_CMPLT, uop_idx(g, 1), i));
  assert_int_equal(b.lo, 0);
  // quotient and remainder by 8, also with a number added: 8 * 2 + 1 <= i <= 8 * 12 + 5
  q = uop_op2(g, OP_IDIV, i, uop_idx(g, 8));
  m = uop_op2(g, OP_MOD, i, uop_idx(g, 8));
  b = bounds_under(i, uop_op2(g, OP_AND, uop_op2(g, OP_CMPLT, uop_idx(g, 2), uop_op2(g, OP_ADD, q, uop_idx(g, 1))),
                              uop_op2(g, OP_CMPLT, uop_idx(g, 0), m)));
  assert_int_equal(b.lo, 17);
  b = bounds_under(i, uop_op2(g, OP_CMPLT, m, uop_idx(g, 6)));
  assert_int_equal(b.hi, 99);
  b = bounds_under(i,
                   uop_op2(g, OP_AND, uop_op2(g, OP_CMPLT, m, uop_idx(g, 6)), uop_op2(g, OP_CMPLT, q, uop_idx(g, 11))));
  assert_int_equal(b.hi, 85);
  // would overflow: nothing is known
  uop *big = uop_op2(g, OP_MUL, uop_var(g, "h", 0, INT64_MAX / 2), uop_idx(g, 4));
  assert_int_equal(big->vmin, INT64_MIN); assert_int_equal(big->vmax, INT64_MAX);
  uop *byte = uop_op2(g, OP_ADD, uop_cast(g, i, DT_U8), uop_int(g, DT_U8, 200));         // wraps
  assert_int_equal(byte->vmin, 0); assert_int_equal(byte->vmax, 255);
  uop *lanes = uop_op2(g, OP_ADD, uop_new(g, OP_LANE, DT_IDX, 8, NULL, 0, (uarg){0}), uop_splat(g, i, 8));
  assert_int_equal(lanes->vmax, 106);
  uop *sum =
    uop_new(g, OP_REDUCE, DT_IDX, 1, (uop *[]){uop_op2(g, OP_ADD, i, uop_idx(g, 1)), i}, 2, (uarg){.a = OP_ADD});
  assert_true(sum->vmin <= 1 && sum->vmax >= 5050);
  // two values and one range of 1 to 100: -3 + 7 each time
  sum = uop_new(g, OP_REDUCE, DT_IDX, 1, (uop *[]){uop_idx(g, -3), uop_idx(g, 7), i}, 3, (uarg){.a = OP_ADD, .b = 2});
  assert_true(sum->vmin <= 4 && sum->vmax >= 400);
  graph_free(g);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_is_known_is_used),
      cmocka_unit_test(random_expressions),
      cmocka_unit_test(expressions_under_conditions),
      cmocka_unit_test(proofs),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
