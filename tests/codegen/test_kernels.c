// Every case of codegen/kernel_cases.h on every back end, against the meaning of its graph (codegen/tensor_eval.h):
// the interpreter on programs as they are scheduled and on optimised ones, LLVM with and without the heuristic and for
// each level of x86-64, the C renderer, OpenCL, PTX, Metal's language, SPIR-V.  With one argument, the name of a case,
// only that one runs; DEBUG=5 then helps.
#define _GNU_SOURCE
#include "codegen/kernel_cases.h"

static const char *only;

static void run_cases(const kt_backend *b) {
  int failed = 0;
  for (size_t i = 0; i < COUNT(kt_cases); i++) {
    if (only && strcmp(only, kt_cases[i].name)) continue;
    kt_run r;
    kt_wants want = {0};
    kt_prepare(&r, &kt_cases[i]);
    // a work-item's number does not say that it stays below a symbolic end, so here the verifier cannot prove what is
    // true
    bool groups = b->t.has_local;
    env_set(ENV_SPEC, groups && !strcmp(kt_cases[i].name, "symbolic_flip") ? "0" : "1");
    if (kt_guard(&r, b, &want)) kt_finish(&r);
    else failed++;
    kt_wants_free(&want);
  }
  if (failed) fail_msg("%s: %d of %zu cases", b->name, failed, COUNT(kt_cases));
}

static void on_cpu(const char *name, enum kt_way way, const char *cpu, bool noopt) {
  kt_backend b;
  if (!kt_backend_cpu(&b, name, way, cpu)) skip();
  b.o.noopt = noopt;
  run_cases(&b);
}

static void test_reference(void **state) { (void)state; kt_backend b = kt_backend_ref(); run_cases(&b); }
static void test_native(void **state) { (void)state; on_cpu("native", KT_LLVM, "native", false); }
static void test_noopt(void **state) { (void)state; on_cpu("NOOPT", KT_LLVM, "native", true); }
static void test_base(void **state) { (void)state; on_cpu("x86-64", KT_LLVM, "x86-64", false); }
static void test_v2(void **state) { (void)state; on_cpu("x86-64-v2", KT_LLVM, "x86-64-v2", false); }
static void test_v3(void **state) { (void)state; on_cpu("x86-64-v3", KT_LLVM, "x86-64-v3", false); }
static void test_v4(void **state) { (void)state; on_cpu("x86-64-v4", KT_LLVM, "x86-64-v4", false); }
static void test_c(void **state) { (void)state; on_cpu("RENDER=c", KT_C, "native", false); }

static void test_interpreted(void **state) {      // optimised programs: vectors, shuffles and all
  (void)state;
  kt_backend b;
  if (!kt_backend_cpu(&b, "interpreter, optimised", KT_REF, "native")) skip();
  run_cases(&b);
}

static void test_opencl(void **state) {
  (void)state;
  kt_backend b = {.name = "OpenCL", .way = KT_CL};
  cl_target(kt_cl(), &b.t);
  run_cases(&b);
}

// As NVIDIA's GPUs get them, run by the tests themselves: with the bounds of every buffer, and races.
static void test_ptx(void **state) {
  (void)state;
  kt_backend b = kt_backend_ptx();
  run_cases(&b);
}

// As Apple's GPUs get them, compiled as C++ and run by the tests themselves (fake_metal/run.c).
static void test_metal(void **state) {
  (void)state;
  kt_backend b = kt_backend_metal();
  run_cases(&b);
}

// SPIR-V, which the validation layer judges, on a device that is this processor.
static void test_vulkan(void **state) {
  (void)state;
  kt_backend b;
  if (!kt_backend_vulkan(&b)) skip();
  run_cases(&b);
}

int main(int argc, char **argv) {
  env_set(ENV_SPEC, "1");
  only = argc > 1 ? argv[1] : NULL;
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_reference), cmocka_unit_test(test_interpreted), cmocka_unit_test(test_native),
    cmocka_unit_test(test_noopt),     cmocka_unit_test(test_base),        cmocka_unit_test(test_v2),
    cmocka_unit_test(test_v3),        cmocka_unit_test(test_v4),          cmocka_unit_test(test_c),
    cmocka_unit_test(test_opencl),    cmocka_unit_test(test_ptx),
    cmocka_unit_test(test_metal),     cmocka_unit_test(test_vulkan),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
