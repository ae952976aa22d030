// PTX from the LLVM renderer: what stands in it, and what the renderer refuses. That ptxas takes it is tested with
// whole models (tests/python/test_cuda.py).
#define _GNU_SOURCE
#include "render/rig.h"
#include "codegen/codegen.h"
#include "fake_cuda/ptx.h"
#include "model/dequant.h"
#include "schedule/dots.h"
#include "graph/verify.h"
#include "schedule/schedule.h"

enum { ROWS = 256, COLS = 512 };

static void compile(const program *p, str *text) {
  error err = {0};
  str ir = {0};
  bytes object;
  if (render_nvptx(p, NULL, &ir, &err)) rig_fail("render", &err, NULL);
  if (llvm_compile_for("nvptx64-nvidia-cuda", str_c(&ir), "sm_80", "", &object, NULL, &err))
    rig_fail("llvm", &err, str_c(&ir));
  str_addn(text, (const char *)object.at, object.n);
  bytes_free(&object);
  str_free(&ir);
}

static bool has(const str *text, const char *what) { return strstr(text->at, what); }

// The product of a vector with a matrix of such weights: all of its kernels, one text. subgroup_size as in a target.
static void product(const char *format, int subgroup_size, str *text) {
  target t = render_find("nvptx")->target;
  t.subgroup_size = subgroup_size;
  graph *g = graph_new(NULL);
  schedule s;
  tensor *x = t_reshape_i(g, t_buffer(g, 0, DT_F32, COLS), 2, (int64_t[]){1, COLS}),
         *y = t_matmul(g, x, dequant(g, format_by_name(format), 1, ROWS, COLS));
  tensor *out = t_assign(g, t_buffer(g, 2, DT_F32, ROWS), t_reshape_i(g, y, 1, (int64_t[]){ROWS}));
  schedule_graph(g, integer_dots(g, uop_new(g, OP_SINK, DT_VOID, 1, &out, 1, (uarg){0}), (dots_choice){0}), &s);
  for (int i = 0; i < s.n_kernels; i++) {
    program *p = codegen(g, s.kernels[i].ast, &t, NULL);
    compile(p, text);
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
  str text = {0};
  product("Q4_0", 0, &text);
  for (size_t i = 0; i < COUNT(there); i++) if (!has(&text, there[i])) fail_msg("no %s in %s", there[i], str_c(&text));
  for (size_t i = 0; i < COUNT(nowhere); i++)
    if (has(&text, nowhere[i])) fail_msg("%s in %s", nowhere[i], str_c(&text));
  str_free(&text);
}

// Items that run in step exchange sums without memory.
static void test_swaps(void **state) {
  (void)state;
  str text = {0};
  product("Q4_0", 32, &text);
  static const char *const swaps[] = {"shfl.sync.bfly.b32", ", 1, 31, -1;", ", 2, 31, -1;", ", 4, 31, -1;",
                                      "add.rn.f32"};
  for (size_t i = 0; i < COUNT(swaps); i++) if (!has(&text, swaps[i])) fail_msg("no %s in %s", swaps[i], str_c(&text));
  static const char *const memory[] = {".shared", "bar.sync", "add.f32"};
  for (size_t i = 0; i < COUNT(memory); i++) if (has(&text, memory[i])) fail_msg("%s in %s", memory[i], str_c(&text));
  str_free(&text);
  product("Q4_0", 2, &text);                              // fewer than share a sum: through memory
  assert_true(has(&text, "bar.sync") && !has(&text, "shfl"));
  str_free(&text);
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
    str text = {0};
    uop *in = rig_buf(r, DT_U8, 4096), *out = rig_buf(r, DT_U32, 64),
        *g = rig_op(r, OP_SPECIAL, DT_I32, 1, (uarg){.b = 64, .s = "g0", .s_len = 2}, 0, NULL);
    uop *at =
      rig2(r, OP_ADD, rig2(r, OP_MUL, g, rig_int(r, DT_I32, cases[i].stride)), rig_int(r, DT_I32, cases[i].plus));
    uop *v = rig_load(r, rig_index(r, in, at), DT_U32, 1);
    rig_op(r, OP_STORE, DT_VOID, 1, (uarg){0}, 2, (uop *[]){rig_index(r, out, g), v});
    program *p = rig_program(r, "one");
    p->global[0] = uop_idx(r->g, 64);
    compile(p, &text);
    if (!has(&text, cases[i].load))
      fail_msg("no %s at %lld * i + %lld in %s", cases[i].load, (long long)cases[i].stride, (long long)cases[i].plus,
               str_c(&text));
    str_free(&text);
    rig_free(r);
  }
}

// --- copies to a work-group's memory ---------------------------------------------------------------------------------

enum { ITEMS = 64, FIRST = 16 /* bytes by which the buffer may begin later */ };
static _Alignas(16) unsigned char brought[2 * FIRST + 4 * ITEMS], stored[4 * ITEMS];

static bool in_or_out(uint64_t at, size_t n) {
  const unsigned char *p = (const unsigned char *)(uintptr_t)at;
  return (p >= brought && p + n <= brought + sizeof brought - FIRST) ||
         (p >= stored && p + n <= stored + sizeof stored);
}

// Items 0.. copy `size` bytes each, until all are there; then each stores the element of another one.
static void copied_text(int size, str *text) {
  rig *r = rig_new();
  int copies = 4 * ITEMS / size;
  uop *from = rig_buf(r, DT_F32, ITEMS), *to = rig_buf(r, DT_F32, ITEMS),
      *mem = rig_op(r, OP_LOCAL, DT_F32, 1, (uarg){.b = ITEMS}, 0, NULL),
      *item = rig_op(r, OP_SPECIAL, DT_I32, 1, (uarg){.b = ITEMS, .s = "l0", .s_len = 2}, 0, NULL);
  uop *some = rig2(r, OP_CMPLT, item, rig_int(r, DT_I32, copies)),
      *first = rig2(r, OP_MUL, item, rig_int(r, DT_I32, size / 4));
  uop *source = rig_index(r, from, first), *there = rig_index(r, mem, first);
  rig_op(r, OP_IF, DT_VOID, 1, (uarg){0}, 1, &some);
  rig_op(r, OP_COPY, DT_VOID, 1, (uarg){.a = size}, 2, (uop *[]){there, source});
  rig_op(r, OP_ENDIF, DT_VOID, 1, (uarg){0}, 0, NULL);
  rig_op(r, OP_BARRIER, DT_VOID, 1, (uarg){.b = BARRIER_COPIES}, 0, NULL);
  uop *other = rig2(r, OP_SUB, rig_int(r, DT_I32, ITEMS - 1), item);
  rig_store(r, rig_index(r, to, item), rig_load(r, rig_index(r, mem, other), DT_F32, 1));
  program *p = rig_program(r, "copied");
  str why = {0};
  assert_true(verify_program_ok(r->g, p->at, p->n, &why));
  p->local[0] = uop_idx(r->g, ITEMS);
  compile(p, text);
  rig_free(r);
}

// All lines with `what` leave the text.
static void without(str *text, const char *what) {
  char *at;
  while ((at = strstr(text->at, what))) {
    while (at > text->at && at[-1] != '\n') at--;
    memset(at, ' ', strcspn(at, "\n"));
  }
}

// What comes of a kernel whose buffer begins so many bytes later than a multiple of 16; "": it runs, and is right.
static void run_copied(const str *text, int first, char *why, size_t cap) {
  float want[ITEMS];
  ptx *k = ptx_read(text->at, why, cap);
  assert_non_null(k);
  for (int i = 0; i < ITEMS; i++) {
    want[ITEMS - 1 - i] = (float)i + 1;
    memcpy(brought + first + 4 * i, &want[ITEMS - 1 - i], 4);
  }
  memset(stored, 0, sizeof stored);
  uint64_t params[] = {(uint64_t)(uintptr_t)(brought + first), (uint64_t)(uintptr_t)stored};
  int r = ptx_run(k, (unsigned[]){1, 1, 1}, (unsigned[]){ITEMS, 1, 1}, params, in_or_out, why, cap);
  assert_true(r || !memcmp(want, stored, sizeof want));
  ptx_free(k);
}

// What the software device says of kernels that copy, and that forget to wait.
static void test_copies(void **state) {
  (void)state;
  char why[400] = "";
  for (int size = 4; size <= 16; size *= 2) {
    str text = {0};
    copied_text(size, &text);
    assert_true(has(&text, size == 16 ? "cp.async.cg.shared.global [" : "cp.async.ca.shared.global ["));
    assert_true(has(&text, "cp.async.wait_all;"));
    run_copied(&text, 0, why, sizeof why);
    assert_string_equal(why, "");
    if (size > 4) {
      run_copied(&text, 4, why, sizeof why);                          // another alignment
      assert_non_null(strstr(why, " bytes from 0x"));
    }
    run_copied(&text, FIRST, why, sizeof why);
    assert_string_equal(why, "");
    const char *const forgotten[] = {"cp.async.wait_all", "bar.sync"};
    for (size_t i = 0; i < COUNT(forgotten); i++) {
      str less = {0};
      str_add(&less, str_c(&text));
      without(&less, forgotten[i]);
      run_copied(&less, 0, why, sizeof why);
      assert_non_null(strstr(why, i ? "a race: items" : "where a copy is under way"));
      str_free(&less);
    }
    str_free(&text);
  }
}

// Beyond the end of either memory.
static void test_copies_in_bounds(void **state) {
  (void)state;
  char why[400] = "";
  str text = {0};
  copied_text(16, &text);
  run_copied(&text, 2 * FIRST, why, sizeof why);
  assert_non_null(strstr(why, "16 bytes from 0x"));
  str_free(&text);
}

// A number of `bits` bits, in a register of 64: with its sign, or with zeros.
static uint64_t in_register(uint64_t v, bool is_signed, int bits) {
  int cut = 64 - bits;
  return is_signed ? (uint64_t)((int64_t)(v << cut) >> cut) : v << cut >> cut;
}

static bool in_stored(uint64_t at, size_t n) { return at == (uint64_t)(uintptr_t)stored && n == 8; }

// Conversions between integers: to more bytes by the sign of what is converted, to fewer ones by cutting off.
static void test_conversions(void **state) {
  (void)state;
  static const uint64_t values[] = {0, 1, 127, 128, 200, 0xa5c3, 0x8000, 0x12345680, 0xfedcba98, 0x8000000000000080};
  for (int from = 0; from < 8; from++)
    for (int to = 0; to < 8; to++)
      for (size_t n = 0; n < COUNT(values); n++) {
        int bits = 8 << from / 2, to_bits = 8 << to / 2;
        char text[600], why[400] = "";
        snprintf(text, sizeof text,
                 ".visible .entry k(\n.param .u64 k_param_0\n)\n{\nld.param.b64 %%rd1, [k_param_0];\n"
                 "mov.b64 %%rd2, 0x%llx;\ncvt.%c%d.%c%d %%rd3, %%rd2;\nst.global.b64 [%%rd1], %%rd3;\nret;\n}\n",
                 (unsigned long long)values[n], "us"[to % 2], to_bits, "us"[from % 2], bits);
        ptx *k = ptx_read(text, why, sizeof why);
        assert_string_equal(why, "");
        uint64_t got, at = (uint64_t)(uintptr_t)stored;
        static const unsigned one[3] = {1, 1, 1};
        assert_int_equal(ptx_run(k, one, one, &at, in_stored, why, sizeof why), 0);
        memcpy(&got, stored, sizeof got);
        uint64_t want = in_register(in_register(values[n], from % 2, bits), to % 2, to_bits);
        if (got != want) fail_msg("%llx, should be %llx: %s", (unsigned long long)got, (unsigned long long)want, text);
        ptx_free(k);
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
                                     cmocka_unit_test(test_alignment), cmocka_unit_test(test_copies),
                                     cmocka_unit_test(test_copies_in_bounds), cmocka_unit_test(test_conversions),
                                     cmocka_unit_test(test_tiles_are_a_processors)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
