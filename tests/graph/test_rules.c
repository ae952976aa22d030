// Every rule table of graph/: well-formed, each rule right on random nodes, and all together ending at one normal form.
// The checks themselves (rulecheck.h) are tried on tables that are wrong.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "graph/symbolic.h"
#include "rulecheck.h"

static void no_complaints(int bad, str *out) {
  if (bad) print_error("%s", str_c(out));
  str_free(out);
  if (bad) fail_msg("%d rules", bad);
}

static void tables_are_well_formed(void **state) {
  (void)state;
  str out = {0};
  int bad = 0;
  for (int i = 0; all_rulesets[i]; i++) bad += rulecheck_table(&out, all_rulesets[i]);
  no_complaints(bad, &out);
}

static void rules_keep_values(void **state) {
  (void)state;
  str out = {0};
  int bad = 0;
  for (int i = 0; all_rulesets[i]; i++) bad += rulecheck_fuzz(&out, all_rulesets[i], 60, NULL);
  no_complaints(bad, &out);
}

static void rules_keep_shapes(void **state) {
  (void)state;
  str out = {0};
  int bad = 0;
  for (int i = 0; all_rulesets[i]; i++) bad += rulecheck_shapes(&out, all_rulesets[i], NULL);
  no_complaints(bad, &out);
}

static size_t nodes_below(uop *u) {
  arena *mem = arena_new();
  size_t n = uop_toposort(mem, &u, 1).n;
  arena_free(mem);
  return n;
}

// Simplifying ends (the engine dies where it does not), does not blow up, changes no value, and does nothing the second
// time.
static void simplifying_ends(void **state) {
  (void)state;
  gen r = {.seed = 31};
  str out = {0};
  int bad = 0;
  for (int round = 0; round < 3000 && bad < 5; round++) {
    r.divides = round & 1;
    gen_begin(&r, gen_below(&r, 2) ? 6 : 200, gen_below(&r, 4) ? 1 : 4);
    enum dtype d = gen_below(&r, 3) ? gen_int_type(&r) : gen_below(&r, 2) ? gen_float_type(&r) : DT_BOOL;
    uop *u = gen_below(&r, 3) == 0 ? random_index(&r, 4) : gen_expr(&r, d, 2 + gen_below(&r, 5));
    uop *to = simplify(r.g, u), *again = simplify(r.g, to);
    if (again != to) { str_add(&out, "    simplified once and twice:\n"); show_pair(&out, to, again); bad++; }
    bad += same_values(&out, &r, u, to, 0, 8);
    if (nodes_below(to) > 3 * nodes_below(u) + 20) {
      str_addf(&out, "    %zu nodes became %zu\n", nodes_below(u), nodes_below(to));
      show_pair(&out, u, to);
      bad++;
    }
    gen_end(&r);
  }
  no_complaints(bad, &out);
}

// --- the checks see what is wrong ------------------------------------------------------------------------------------

static uop *adds_one(graph *g, uop *u, uop *const *v, void *ctx) {
  (void)u;
  (void)ctx;
  return uop_op2(g, OP_ADD, v[0], uop_const_like(g, v[0], 1));
}
static uop *zero(graph *g, uop *u, uop *const *v, void *ctx) { (void)v; (void)ctx; return uop_const_like(g, u, 0); }
static uop *never(graph *g, uop *u, uop *const *v, void *ctx) { (void)g; (void)u; (void)v; (void)ctx; return NULL; }

#include "graph/rules.h"

RULES(wrong_text, INTS) = {
  R( ADD(x, K(0)),                 y ),
  R( ADD(x, c0),                   x ),
  R( ADD(c0, K(3)),                c0 ),
  R( NEG(SUB(x, y)),               SUB(y, x) ),
  R( SUB(y, x),                    NEG(SUB(x, y)) ),
  R( P1(SUB, x),                   x ),
  R( MUL(x, y),                    MUL(y, x) ),
};
RULES_END(wrong_text)

RULES(wrong_value, INTS) = {
  R( MAX(x, y),                    x ),
  F( NEG(x),                       adds_one ),
  F( XOR(x, y),                    never ),
  R( SUB(ADD(x, y), y),            x ),          // right
  R( MUL(IDIV(x, c0), c0),         x ),
  F( SUB(x, x),                    zero ),       // right, but a tensor becomes a scalar
};
RULES_END(wrong_value)

RULES(wrong_floats, FLOATS) = {
  R( ADD(x, K(0)),                 x ),          // -0 + 0 is 0
  R( SUB(x, x),                    K(0) ),       // inf - inf is NaN
  R( ADD(ADD(x, y), z),            ADD(x, ADD(y, z)) ),
  R( SUB(x, y),                    ADD(x, NEG(y)) ),     // right
};
RULES_END(wrong_floats)

static void wrong_tables_are_seen(void **state) {
  (void)state;
  str out = {0};
  assert_int_equal(rulecheck_table(&out, &wrong_text), 5);
  assert_non_null(strstr(str_c(&out), "does not bind"));
  assert_non_null(strstr(str_c(&out), "never fires"));
  assert_non_null(strstr(str_c(&out), "undo each other"));
  assert_non_null(strstr(str_c(&out), "has 2 sources"));
  str_free(&out);
  assert_int_equal(rulecheck_fuzz(&out, &wrong_value, 60, NULL), 4);
  assert_non_null(strstr(str_c(&out), "changes the value"));
  assert_non_null(strstr(str_c(&out), "fired only 0 times"));
  str_free(&out);
  assert_int_equal(rulecheck_fuzz(&out, &wrong_floats, 60, NULL), 3);
  str_free(&out);
  assert_true(rulecheck_shapes(&out, &wrong_value, NULL) >= 1);
  assert_non_null(strstr(str_c(&out), "SUB(x, x)"));
  str_free(&out);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(wrong_tables_are_seen),
      cmocka_unit_test(tables_are_well_formed),
      cmocka_unit_test(rules_keep_values),
      cmocka_unit_test(rules_keep_shapes),
      cmocka_unit_test(simplifying_ends),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
