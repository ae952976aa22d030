// The late rules of codegen/decompose.c: well-formed, and each right on random nodes (see graph/rulecheck.h).
// Functions that become polynomials are compared closely over the range that matters; conversions of half floats for
// all of their values.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "codegen/decompose.h"
#include "graph/rulecheck.h"
#include "graph/symbolic.h"

static const ruleset *const tables[] = {&late_integer, &late_float, &late_half, &late_bf16, &late_bytes, NULL};

static void tables_are_well_formed(void **state) {
  (void)state;
  str out = {0};
  int bad = 0;
  for (int i = 0; tables[i]; i++) bad += rulecheck_table(&out, tables[i]);
  if (bad) print_error("%s", str_c(&out));
  str_free(&out);
  assert_int_equal(bad, 0);
}

static void integers(void **state) {
  (void)state;
  str out = {0};
  int bad = rulecheck_fuzz(&out, &late_integer, 1000, NULL);
  if (bad) print_error("%s", str_c(&out));
  str_free(&out);
  assert_int_equal(bad, 0);
}

// op of x by its rule, evaluated; x stands for a value read from memory
typedef struct probe { graph *g; uop *x, *y; map leaf; evalue v; } probe;

static void probe_begin(probe *p, enum dtype from, enum op op, enum dtype to, const ruleset *table, const target *t) {
  *p = (probe){.g = graph_new(NULL)};
  uop *mem = uop_new(p->g, OP_PARAM, from, 1, NULL, 0, (uarg){.b = 1});
  p->x = uop_load(p->g, uop_index(p->g, mem, uop_idx(p->g, 0)), from, 1);
  uop *u = op == OP_CAST ? uop_cast(p->g, p->x, to) : uop_op1(p->g, op, p->x);
  const ruleset *const sets[] = {SYMBOLIC, table, NULL};
  p->y = graph_rewrite(p->g, u, sets, (void *)(uintptr_t)t, "test");
  assert_ptr_not_equal(p->y, u);
  map_put(&p->leaf, p->x, &p->v);
}

static bool probe_at(probe *p, evalue v, evalue *out) {
  eval_env env = {.leaf = &p->leaf};
  p->v = v;
  return eval_expr(&env, p->y, out);
}

static void probe_end(probe *p) { map_free(&p->leaf); graph_free(p->g); }

// distance in units of the last place of the result
static double units(enum dtype d, double got, double want) {
  if (got == want || (isnan(got) && isnan(want))) return 0;
  int e;
  frexp(want, &e);
  if (e < (d == DT_F32 ? -125 : -1021)) e = d == DT_F32 ? -125 : -1021;
  return fabs(got - want) / ldexp(1, e - (d == DT_F32 ? 24 : 53));
}

static void check_with(const target *t, enum op op, enum dtype d, double (*f)(double), double lo, double hi,
                       double bound, double absolute) {
  probe p;
  probe_begin(&p, d, op, d, &late_float, t);
  double worst = 0, at = 0;
  for (int i = 0; i <= 20000; i++) {
    evalue x = {.f = dtype_round(d, lo + (hi - lo) * i / 20000)}, y;
    double want = dtype_round(d, f(x.f));
    if (!probe_at(&p, x, &y)) fail_msg("%s(%.17g) has no value", op_name(op), x.f);
    if (fabs(y.f - want) <= absolute) continue;
    double e = units(d, y.f, want);
    if (e > worst) { worst = e; at = x.f; }
  }
  if (worst > bound) fail_msg("%s.%s: %.2f units at %.17g", op_name(op), dtype_name(d), worst, at);
  print_message("%s.%s %g to %g%s: %.2f units\n", op_name(op), dtype_name(d), lo, hi, t ? ", FMA" : "", worst);
  probe_end(&p);
}

static void check_function(enum op op, enum dtype d, double (*f)(double), double lo, double hi, double bound,
                           double absolute) {
  static const target fma = {.name = "test", .has_fma = true};
  check_with(NULL, op, d, f, lo, hi, bound, absolute);
  check_with(&fma, op, d, f, lo, hi, bound, absolute);
}

static void functions_are_close(void **state) {
  (void)state;
  check_function(OP_EXP2, DT_F32, exp2, -160, 140, 4, 0);
  check_function(OP_EXP2, DT_F32, exp2, -1, 1, 4, 0);
  check_function(OP_EXP2, DT_F64, exp2, -1080, 1030, 8, 0);
  check_function(OP_LOG2, DT_F32, log2, 1e-3, 4, 8, 1e-7);
  check_function(OP_LOG2, DT_F32, log2, 0, 1e-38, 4, 1e-7);
  check_function(OP_LOG2, DT_F64, log2, 1e-3, 1000, 16, 1e-15);
  check_function(OP_SIN, DT_F64, sin, -10, 10, 16, 1e-16);
  check_function(OP_SIN, DT_F64, sin, 0, 200000, 16, 1e-12);         // angles of RoPE at depth
  check_function(OP_SIN, DT_F32, sin, 0, 200000, 1, 0);
}

static void edges(void **state) {
  (void)state;
  static const struct { enum op op; double x, y;
  } cases[] = {
    {OP_EXP2, INFINITY, INFINITY},
    {OP_EXP2, -INFINITY, 0},
    {OP_EXP2, NAN, NAN},
    {OP_EXP2, 0, 1},
    {OP_EXP2, -0.0, 1},
    {OP_EXP2, 127, 0x1p127},
    {OP_EXP2, -149, 0x1p-149},
    {OP_EXP2, 1e30, INFINITY},
    {OP_EXP2, -1e30, 0},
    {OP_LOG2, 0, -INFINITY},
    {OP_LOG2, INFINITY, INFINITY},
    {OP_LOG2, -1, NAN},
    {OP_LOG2, NAN, NAN},
    {OP_LOG2, 1, 0},
    {OP_LOG2, 0x1p-149, -149},
    {OP_RECIP, 0, INFINITY},
    {OP_RECIP, -0.0, -INFINITY},
    {OP_RECIP, 3, 1.0f / 3},
    {OP_SIN, 0, 0},
  };
  for (size_t i = 0; i < COUNT(cases); i++) {
    probe p;
    evalue y;
    probe_begin(&p, DT_F32, cases[i].op, DT_F32, &late_float, NULL);
    bool has = probe_at(&p, (evalue){.f = cases[i].x}, &y);
    if (!isnan(cases[i].y) && !has) fail_msg("%s(%g) has no value", op_name(cases[i].op), cases[i].x);
    if (has && !gen_same(DT_F32, y, (evalue){.f = cases[i].y}, 0))
      fail_msg("%s(%g) = %.17g", op_name(cases[i].op), cases[i].x, y.f);
    probe_end(&p);
  }
}

// Bits in, bits out: BITCASTs in the expressions lose NaNs, so these are looked at by value.
static void every_half_widens_exactly(void **state) {
  (void)state;
  for (int bf = 0; bf < 2; bf++) {
    probe p;
    probe_begin(&p, bf ? DT_BF16 : DT_F16, OP_CAST, DT_F32, bf ? &late_bf16 : &late_half, NULL);
    for (int h = 0; h < 65536; h++) {
      double v = bf ? bf16_to_double((uint16_t)h) : f16_to_double((uint16_t)h);
      evalue y;
      if (isnan(v)) continue;
      if (!probe_at(&p, (evalue){.f = v}, &y) || !gen_same(DT_F32, y, (evalue){.f = v}, 0))
        fail_msg("%s %04x: %.17g and not %.17g", bf ? "bf16" : "f16", h, y.f, v);
    }
    probe_end(&p);
  }
}

static void narrowing_rounds_to_nearest(void **state) {
  (void)state;
  gen r = {.seed = 99};
  for (int bf = 0; bf < 2; bf++) {
    probe p;
    probe_begin(&p, DT_F32, OP_CAST, bf ? DT_BF16 : DT_F16, bf ? &late_bf16 : &late_half, NULL);
    for (int i = 0; i < 60000; i++) {
      uint32_t bits = (uint32_t)gen_bits(&r);
      // where halves are
      if (i & 1) bits = (bits & 0x80ffffff) | (uint32_t)(0x32 + gen_below(&r, 0x16)) << 24;
      if (i % 4 == 0) bits &= bf ? 0xffff8000 : 0xfffff000;                                             // ties
      float f;
      memcpy(&f, &bits, 4);
      evalue y;
      if (isnan(f)) continue;
      double want = dtype_round(bf ? DT_BF16 : DT_F16, (double)f);
      if (!probe_at(&p, (evalue){.f = (double)f}, &y) || !gen_same(DT_F32, y, (evalue){.f = want}, 0))
        fail_msg("%a: %a and not %a", (double)f, y.f, want);
    }
    probe_end(&p);
  }
}

// Words of bytes: what a rule makes of an expression over them against what it means, for random bytes. Machines with
// and without work-groups have ways of their own.
enum { WORDS = 4 };

typedef struct words { graph *g; uop *a, *x; evalue av[4 * WORDS], xv[WORDS]; map leaf; } words;

static void words_begin(words *w) {
  *w = (words){.g = graph_new(NULL)};
  uop *first = uop_new(w->g, OP_PARAM, DT_U8, 1, NULL, 0, (uarg){.b = 64}),
      *second = uop_new(w->g, OP_PARAM, DT_U32, 1, NULL, 0, (uarg){.a = 1, .b = 64});
  w->a = uop_load(w->g, uop_index(w->g, first, uop_idx(w->g, 0)), DT_U8, 4 * WORDS);
  w->x = uop_load(w->g, uop_index(w->g, second, uop_idx(w->g, 0)), DT_U32, WORDS);
  map_put(&w->leaf, w->a, w->av);
  map_put(&w->leaf, w->x, w->xv);
}

static void dots_of_bytes(void **state) {
  (void)state;
  static const target machines[] = {{.name = "vectors"}, {.name = "items", .has_local = true}};
  static const int masks[] = {15, 127, 128, 255};
  gen r = {.seed = 7};
  for (size_t m = 0; m < COUNT(machines); m++)
    for (size_t k = 0; k < COUNT(masks); k++) {
      words w;
      words_begin(&w);
      uop *a = uop_op2(w.g, OP_AND, w.a, uop_splat(w.g, uop_int(w.g, DT_U8, masks[k]), 4 * WORDS)),
          *acc = uop_splat(w.g, uop_int(w.g, DT_I32, -5), WORDS),
          *u = uop_new(w.g, OP_DOT, DT_I32, WORDS, (uop *[]){acc, a, w.x}, 3, (uarg){0});
      const ruleset *const sets[] = {SYMBOLIC, &late_dot, NULL};
      uop *made = graph_rewrite(w.g, u, sets, (void *)(uintptr_t)&machines[m], "test");
      assert_ptr_not_equal(made, u);
      for (int round = 0; round < 2000; round++) {
        evalue got[WORDS];
        for (int i = 0; i < 4 * WORDS; i++) w.av[i].i = round ? (int64_t)(gen_bits(&r) & 255) : 255;
        for (int i = 0; i < WORDS; i++) w.xv[i].i = round ? (int64_t)(uint32_t)gen_bits(&r) : 0x80808080;
        assert_true(eval_expr(&(eval_env){.leaf = &w.leaf}, made, got));
        for (int i = 0; i < WORDS; i++) {
          int64_t want = -5;
          for (int j = 0; j < 4; j++) want += (w.av[4 * i + j].i & masks[k]) * (int8_t)(w.xv[i].i >> 8 * j);
          assert_int_equal(got[i].i, want);
        }
      }
      map_free(&w.leaf);
      graph_free(w.g);
    }
}

static void bytes_go_in_words(void **state) {
  (void)state;
  static const target items = {.name = "items", .has_local = true};
  static const enum op ops[] = {OP_AND, OP_OR, OP_XOR, OP_SHL, OP_SHR};
  gen r = {.seed = 8};
  for (size_t k = 0; k < COUNT(ops); k++)
    for (int c = 1; c < 8; c++) {
      words w;
      words_begin(&w);
      uop *memory = uop_new(w.g, OP_PARAM, DT_I8, 1, NULL, 0, (uarg){.b = 64}), *u, *made,
          *signs = uop_load(w.g, uop_index(w.g, memory, uop_idx(w.g, 0)), DT_I8, 4 * WORDS),     // left as it is
          *bytes = uop_bitcast(w.g, signs, DT_U8);
      u = uop_op2(w.g, ops[k], bytes, uop_splat(w.g, uop_int(w.g, DT_U8, c), 4 * WORDS));
      made = graph_rewrite(w.g, u, (const ruleset *const[]){&late_bytes, NULL}, (void *)(uintptr_t)&items, "test");
      assert_true(made->op == OP_BITCAST && made->src[0]->dt == DT_U32);
      map_put(&w.leaf, signs, w.av);
      for (int round = 0; round < 200; round++) {
        evalue got[4 * WORDS], want[4 * WORDS];
        for (int i = 0; i < 4 * WORDS; i++) w.av[i].i = (int8_t)gen_bits(&r);
        assert_true(eval_expr(&(eval_env){.leaf = &w.leaf}, made, got));
        assert_true(eval_expr(&(eval_env){.leaf = &w.leaf}, u, want));
        for (int i = 0; i < 4 * WORDS; i++) assert_int_equal(got[i].i, want[i].i);
      }
      map_free(&w.leaf);
      graph_free(w.g);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(tables_are_well_formed),
      cmocka_unit_test(integers),
      cmocka_unit_test(functions_are_close),
      cmocka_unit_test(edges),
      cmocka_unit_test(every_half_widens_exactly),
      cmocka_unit_test(narrowing_rounds_to_nearest),
      cmocka_unit_test(dots_of_bytes),
      cmocka_unit_test(bytes_go_in_words),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
