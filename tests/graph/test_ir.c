// Runs the texts of tests/graph/ir/*.ir: see ir_cases.h.
//
// With the name of a file as argument, prints what each of its cases gives, as lines to paste.
#include "graph/ir_cases.h"
#include "graph/prove.h"
#include "graph/symbolic.h"
#include "graph/verify.h"

static void run_simplify(graph *g, uop *u, str *out) { uop_print_expr(out, simplify(g, u)); }
static void run_print(graph *g, uop *u, str *out) { (void)g; uop_print_expr(out, u); }
static void run_bounds(graph *g, uop *u, str *out) {
  (void)g;
  str_addf(out, "%lld..%lld", (long long)u->vmin, (long long)u->vmax);
}

static void run_prove(graph *g, uop *u, str *out) {
  prover p;
  prover_begin(&p, g);
  bounds b = prove_index(&p, u);
  prover_end(&p);
  str_addf(out, "%lld..%lld", (long long)b.lo, (long long)b.hi);
}

static void run_verify(graph *g, uop *u, enum stage stage, str *out) {
  if (verify_graph_ok(g, u, stage, out)) str_add(out, "ok");
}
static void run_verify_tensor(graph *g, uop *u, str *out) { run_verify(g, u, STAGE_TENSOR, out); }
static void run_verify_kernel(graph *g, uop *u, str *out) { run_verify(g, u, STAGE_KERNEL, out); }
static void run_verify_optimised(graph *g, uop *u, str *out) { run_verify(g, u, STAGE_OPTIMISED, out); }

static const ir_pass passes[] = {
  {"simplify", run_simplify, false},
  {"print", run_print, false},
  {"bounds", run_bounds, false},
  {"prove", run_prove, false},
  {"verify tensor", run_verify_tensor, true},
  {"verify kernel", run_verify_kernel, true},
  {"verify optimised", run_verify_optimised, true},
  {0},
};

static void all_files(void **state) {
  (void)state;
  assert_int_equal(run_folder(passes, WEFT_SOURCE_DIR "/tests/graph/ir", 6, 40), 0);
}

// A driver that accepts anything would pass, too.
static void the_driver_can_fail(void **state) {
  (void)state;
  const char *wrong[] = {"; pass: simplify\n%0 = CONST.idx 1\n; expect: 2\n",
                         "; pass: nothing\n%0 = CONST.idx 1\n; expect: 1\n", "; pass: simplify\n%0 = CONST.idx 1\n",
                         "; pass: verify kernel\n%0 = CONST.f32 1\n%1 = SINK %0\n; expect: ok\n"};
  const char *right = "; pass: simplify\n%0 = CONST.idx 1\n; expect: 1\n";
  assert_true(run_case(passes, "right", 1, right, right + strlen(right), false));
  print_message("(four complaints follow)\n");
  for (size_t i = 0; i < COUNT(wrong); i++)
    assert_false(run_case(passes, "wrong", (int)i + 1, wrong[i], wrong[i] + strlen(wrong[i]), false));
}

int main(int argc, char **argv) {
  int cases = 0;
  if (argc > 1) return run_file(passes, argv[1], &cases, true);
  const struct CMUnitTest tests[] = {cmocka_unit_test(the_driver_can_fail), cmocka_unit_test(all_files)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
