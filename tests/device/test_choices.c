// What compile_graph does to products of BF16 for processors whose dot products of BF16 are fast, slow or absent.
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>
#include "compile/compile.h"
#include "device/cpu_info.h"
#include "render/render.h"

enum { TOKENS = 4, ROWS = 32, COLS = 64 };

static target machine(bool intel, unsigned model, bool bf16) {
  cpu_features c = {0};
#define F(field, llvm_name, leaf, sub, reg, bit, state, level) c.field = level <= 4;
  CPU_FEATURES(F)
#undef F
  c.intel = intel;
  c.amd = !intel;
  c.family = intel ? 6 : 0x19;
  c.model = model;
  c.avx512bf16 = bf16;
  cpu_target from;
  error err = {0};
  if (cpu_target_for("native", &c, &from, &err)) fail_msg("%s", err.text);
  assert_int_equal(from.slow_bf16, bf16 && intel && (model == 0x8f || model == 0xcf));
  assert_int_equal(strstr(from.key, "slow=bf16") != NULL, from.slow_bf16);         // kept schedules depend on it
  target t = render_find("llvm")->target;
  t.vector_bytes = from.vector_bits / 8;
  t.has_fma = t.has_f16 = t.has_streams = true;
  t.descriptors = from.descriptors;
  t.slow_bf16 = from.slow_bf16;
  return t;
}

// Does a kernel of this product store BF16, that is, rounded activations?
static bool rounds(const target *t, const compile_choices *how) {
  graph *g = graph_new(NULL);
  tensor *x = t_reshape_i(g, t_buffer(g, 0, DT_F32, TOKENS * COLS), 2, (int64_t[]){TOKENS, COLS});
  tensor *w = t_reshape_i(g, t_weight(g, 1, DT_BF16, ROWS * COLS), 2, (int64_t[]){ROWS, COLS});
  tensor *y = t_reshape_i(g, t_matmul(g, x, t_cast(g, w, DT_F32)), 1, (int64_t[]){TOKENS * ROWS});
  tensor *out = t_assign(g, t_buffer(g, 2, DT_F32, TOKENS * ROWS), y);
  schedule s;
  compile_graph(g, uop_new(g, OP_SINK, DT_VOID, 1, &out, 1, (uarg){0}), t, how, &s);
  bool any = false;
  for (int i = 0; i < s.n_kernels; i++) any |= s.kernels[i].ast->src[0]->src[1]->dt == DT_BF16;
  graph_free(g);
  assert_int_equal(any, compile_takes_bf16(t, how));
  return any;
}

static void bf16_where_it_is_faster(void **state) {
  (void)state;
  const compile_choices tokens = {0}, patches = {.many_rows = true}, exact = {.exact = true};
  const struct { bool intel; unsigned model; bool bf16, of_tokens, of_patches; } of[] = {
    {false, 0x11, true, true, true},    {true, 0x8f, true, true, false},   {true, 0xcf, true, true, false},
    {true, 0x55, true, true, true},     {true, 0x6a, false, false, false}, {false, 0x11, false, false, false}};
  for (size_t i = 0; i < COUNT(of); i++) {
    const target t = machine(of[i].intel, of[i].model, of[i].bf16);
    assert_int_equal(rounds(&t, &tokens), of[i].of_tokens);
    assert_int_equal(rounds(&t, &patches), of[i].of_patches);
    assert_false(rounds(&t, &exact));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(bf16_where_it_is_faster)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
