// PTX from the LLVM renderer: what stands in it, and what the renderer refuses. That ptxas takes it is tested with
// whole models (tests/python/test_cuda.py).
#define _GNU_SOURCE
#include "render/rig.h"
#include "codegen/codegen.h"
#include "model/dequant.h"
#include "schedule/dots.h"
#include "schedule/schedule.h"

enum { ROWS = 256, COLS = 512 };

static void compile(const program *p, str *ptx) {
  error err = {0};
  str ir = {0};
  bytes object;
  if (render_nvptx(p, NULL, &ir, &err)) rig_fail("render", &err, NULL);
  if (llvm_compile_for("nvptx64-nvidia-cuda", str_c(&ir), "sm_80", "", &object, NULL, &err))
    rig_fail("llvm", &err, str_c(&ir));
  str_addn(ptx, (const char *)object.at, object.n);
  bytes_free(&object);
  str_free(&ir);
}

static bool has(const str *text, const char *what) { return strstr(text->at, what); }

// The product of a vector with a matrix of such weights: all of its kernels, one text. step_items as in a target.
static void product(const char *format, int step_items, str *ptx) {
  target t = render_find("nvptx")->target;
  t.step_items = step_items;
  graph *g = graph_new(NULL);
  schedule s;
  tensor *x = t_reshape_i(g, t_buffer(g, 0, DT_F32, COLS), 2, (int64_t[]){1, COLS}),
         *y = t_matmul(g, x, dequant(g, format_by_name(format), 1, ROWS, COLS));
  tensor *out = t_assign(g, t_buffer(g, 2, DT_F32, ROWS), t_reshape_i(g, y, 1, (int64_t[]){ROWS}));
  schedule_graph(g, integer_dots(g, uop_new(g, OP_SINK, DT_VOID, 1, &out, 1, (uarg){0}), 0), &s);
  for (int i = 0; i < s.n_kernels; i++) {
    program *p = codegen(g, s.kernels[i].ast, &t, NULL);
    compile(p, ptx);
    program_free(p);
  }
  graph_free(g);
}

static void test_product(void **state) {
  (void)state;
  static const char *const there[] = {".target sm_80",   ".visible .entry r_", ".param .u64 .ptr .global .align 16",
                                      ".reqntid",        ".maxnreg 128",       ".shared .align 16",
                                      "%tid.x",          "%ctaid.x",           "bar.sync",
                                      "ld.global.nc",    "st.shared",          "fma.rn.f32",
                                      "ld.global.nc.b16" /* a scale, which lies at an even byte */};
  static const char *const nowhere[] = {"call",
                                        ".local",
                                        ".extern",
                                        "ld.b",
                                        "st.b" /* of memory in no address space */,
                                        "add.f32",
                                        "mul.f32" /* which ptxas may fuse */,
                                        ".approx",
                                        ".ftz"};
  str ptx = {0};
  product("Q4_0", 0, &ptx);
  for (size_t i = 0; i < COUNT(there); i++) if (!has(&ptx, there[i])) fail_msg("no %s in %s", there[i], str_c(&ptx));
  for (size_t i = 0; i < COUNT(nowhere); i++) if (has(&ptx, nowhere[i])) fail_msg("%s in %s", nowhere[i], str_c(&ptx));
  str_free(&ptx);
}

// Items that run in step exchange sums without memory.
static void test_swaps(void **state) {
  (void)state;
  str ptx = {0};
  product("Q4_0", 32, &ptx);
  static const char *const swaps[] = {"shfl.sync.bfly.b32", ", 1, 31, -1;", ", 2, 31, -1;", ", 4, 31, -1;",
                                      "add.rn.f32"};
  for (size_t i = 0; i < COUNT(swaps); i++) if (!has(&ptx, swaps[i])) fail_msg("no %s in %s", swaps[i], str_c(&ptx));
  static const char *const memory[] = {".shared", "bar.sync", "add.f32"};
  for (size_t i = 0; i < COUNT(memory); i++) if (has(&ptx, memory[i])) fail_msg("%s in %s", memory[i], str_c(&ptx));
  str_free(&ptx);
  product("Q4_0", 2, &ptx);                              // fewer than share a sum: through memory
  assert_true(has(&ptx, "bar.sync") && !has(&ptx, "shfl"));
  str_free(&ptx);
}

// What a load may assume of its address: as many bytes as the number of its element is sure to be a multiple of.
static void test_alignment(void **state) {
  (void)state;
  static const struct {
    int64_t stride, plus;
    const char *load;
  } cases[] = {
    {18, 0, "ld.global.nc.b16"}, {18, 1, "ld.global.nc.b8"}, {20, 4, "ld.global.nc.b32"}, {20, 2, "ld.global.nc.b16"}};
  for (size_t i = 0; i < COUNT(cases); i++) {
    rig *r = rig_new();
    str ptx = {0};
    uop *in = rig_buf(r, DT_U8, 4096), *out = rig_buf(r, DT_U32, 64),
        *g = rig_op(r, OP_SPECIAL, DT_I32, 1, (uarg){.b = 64, .s = "g0", .s_len = 2}, 0, NULL);
    uop *at =
      rig2(r, OP_ADD, rig2(r, OP_MUL, g, rig_int(r, DT_I32, cases[i].stride)), rig_int(r, DT_I32, cases[i].plus));
    uop *v = rig_load(r, rig_index(r, in, at), DT_U32, 1);
    rig_op(r, OP_STORE, DT_VOID, 1, (uarg){0}, 2, (uop *[]){rig_index(r, out, g), v});
    program *p = rig_program(r, "one");
    p->global[0] = uop_idx(r->g, 64);
    compile(p, &ptx);
    if (!has(&ptx, cases[i].load))
      fail_msg("no %s at %lld * i + %lld in %s", cases[i].load, (long long)cases[i].stride, (long long)cases[i].plus,
               str_c(&ptx));
    str_free(&ptx);
    rig_free(r);
  }
}

static void test_tiles_are_a_processors(void **state) {
  (void)state;
  rig *r = rig_new();
  error err = {0};
  str ir = {0};
  uop *out = rig_buf(r, DT_F32, 64), *end = rig_int(r, DT_I64, 64),
      *tile = rig_op(r, OP_RANGE, DT_I64, 1, (uarg){.b = AXIS_GLOBAL}, 1, &end);
  rig_op(r, OP_STORE, DT_VOID, 1, (uarg){0}, 2, (uop *[]){rig_index(r, out, tile), rig_float(r, DT_F32, 1)});
  rig_op(r, OP_END, DT_VOID, 1, (uarg){0}, 1, &tile);
  const program *p = rig_program(r, "tiles");
  assert_int_equal(render_nvptx(p, NULL, &ir, &err), -1);
  assert_string_equal(err.text, "tiles: the LLVM renderer has no RANGE.i64 of 1 lanes");
  assert_int_equal(render_llvm(p, NULL, &ir, &err), 0);
  str_free(&ir);
  rig_free(r);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_product), cmocka_unit_test(test_swaps),
                                     cmocka_unit_test(test_alignment),
                                     cmocka_unit_test(test_tiles_are_a_processors)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
