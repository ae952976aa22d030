// Formats as expressions, beyond the bits of their numbers (tests/python/test_formats.py): the integer
// dot product is the sum of its products, with activations rounded to 8 bits; and matrices of every format multiply on
// every target as the meaning of the graph says.
#define _GNU_SOURCE
#include "codegen/kernel_rig.h"
#include "codegen/format_blocks.h"
#include "codegen/merge_launches.h"
#include "model/dequant.h"
#include "schedule/dots.h"

enum { ROWS = 32, COLS = 1024, TOKENS = 3, MOST_TOKENS = 16 };

static int blocks_buffer(kt *t, const struct format *f) {
  enum dtype dt = dequant_buffer_dtype(f);
  int b = kt_buffer(t, dt, dt == DT_U8 ? format_bytes(f, ROWS, COLS) : ROWS * COLS, KT_UNIT);
  if (dt == DT_U8) format_blocks(f, t->bufs[b].start, ROWS, COLS, &(uint64_t){f->id + 1});
  return b;
}

static void begin(kt_run *r, const char *name) {
  *r = (kt_run){.name = name, .t = {.g = graph_new(NULL), .seed = 5, .tolerance = 1e-10}};
}
static uop *sink_of(kt_run *r) {
  return uop_new(r->t.g, OP_SINK, DT_VOID, 1, r->t.effects.at, r->t.effects.n, (uarg){0});
}
static void plan_it(kt_run *r) { schedule_graph(r->t.g, sink_of(r), &r->s); }

// What buffer `out` holds after a run on b; the caller frees it.
static unsigned char *contents(kt_run *r, const kt_backend *b, int out) {
  kt_code code[KT_KERNELS] = {{0}};
  kt_memory m;
  size_t n = (size_t)r->t.bufs[out].elems * (size_t)dtype_size(r->t.bufs[out].dt);
  for (int i = 0; i < r->s.n_kernels; i++) code[i] = kt_compile(r->t.g, r->s.kernels[i].ast, b);
  kt_memory_init(&m, &r->t, kt_arena_bytes(&r->s));
  kt_execute(r, code, (int64_t[KT_VARS]){0}, &m, false);
  unsigned char *copy = memcpy(xmalloc(n), m.at[out], n);
  kt_memory_free(&m);
  for (int i = 0; i < r->s.n_kernels; i++) kt_code_free(&code[i]);
  return copy;
}

// ---- integer dot products -------------------------------------------------------------------------------------------

// x rounded to 8 bits with a scale per group, in plain C; halves where groups are small, as the format Q8_0 has them.
static void round_activations(const float *x, int64_t group, double *out) {
  for (int64_t i = 0; i < COLS; i += group) {
    float most = 0;
    for (int64_t j = 0; j < group; j++) most = fmaxf(most, fabsf(x[i + j]));
    float by = most > 0 ? 127 / most : 0;
    double scale = (double)(most * (float)(1.0 / 127));
    if (group <= 32) scale = f16_to_double(f16_from_double(scale));
    for (int64_t j = 0; j < group; j++) out[i + j] = (double)floorf(x[i + j] * by + 0.5f) * scale;
  }
}

static void weights_of(const struct format *f, double *out) {
  if (!RIG_COMPUTES) return;
  kt_run r;
  begin(&r, "weights");
  int raw = blocks_buffer(&r.t, f);
  te e = {.mem = arena_new(), .buffer = kt_start, .ctx = &r.t};
  const te_value *v = te_eval(&e, dequant(r.t.g, f, raw, ROWS, COLS));
  for (int64_t i = 0; i < ROWS * COLS; i++) out[i] = v->v[i].f;
  map_free(&e.memo);
  arena_free(e.mem);
  kt_finish(&r);
}

static void fill_x(float *x) {
  uint64_t seed = 3;
  for (int i = 0; i < MOST_TOKENS * COLS; i++) x[i] = (float)(2 * kt_unit(&seed) - 1) * (i % 97 ? 1 : 20);
  for (int i = 0; i < 256; i++) x[i] = 0;                              // a whole group of zeros
}

// x times the matrix in w, with rounded activations; the caller frees the result.
static float *check_dot(const struct format *f, const kt_backend *b, const float *x, int tokens, const double *w) {
  static double xq[MOST_TOKENS * COLS], want[MOST_TOKENS * ROWS];
  kt_run r;
  begin(&r, f->name);
  int in = kt_buffer(&r.t, DT_F32, tokens * COLS, KT_UNIT), raw = blocks_buffer(&r.t, f);
  memcpy(r.t.bufs[in].start, x, (size_t)tokens * COLS * sizeof *x);
  tensor *rows = t_reshape_i(r.t.g, t_buffer(r.t.g, in, DT_F32, tokens * COLS), 2, (int64_t[]){tokens, COLS});
  kt_out(&r.t, t_matmul(r.t.g, rows, dequant(r.t.g, f, raw, ROWS, COLS)));
  uop *sink = integer_dots(r.t.g, sink_of(&r), (dots_choice){0});
  int64_t group = te_rounded_group(sink);
  if (!group) fail_msg("%s: no integer dot product", f->name);
  memset(want, 0, sizeof want);
  for (int t = 0; RIG_COMPUTES && t < tokens; t++) round_activations(x + t * COLS, group, xq + t * COLS);
  for (int t = 0; RIG_COMPUTES && t < tokens; t++)
    for (int o = 0; o < ROWS; o++)
      for (int c = 0; c < COLS; c++) want[t * ROWS + o] += w[o * COLS + c] * xq[t * COLS + c];
  schedule_graph(r.t.g, sink, &r.s);
  // scales, codes and sums are one launch, and the products another
  if (b->way == KT_PTX) {
    merge_launches(r.t.g, &r.s, &b->t);
    assert_int_equal(r.s.n_kernels, 2);
    assert_true(is_merged(r.s.kernels[0].ast) && !is_merged(r.s.kernels[1].ast));
  }
  float *got = (float *)(void *)contents(&r, b, r.t.n_bufs - 1);
  double error2 = 0, sum2 = 0;
  for (int i = 0; i < tokens * ROWS; i++) { error2 += pow((double)got[i] - want[i], 2); sum2 += want[i] * want[i]; }
  if (RIG_COMPUTES && !(error2 <= 1e-10 * sum2))
    fail_msg("%s on %s, %d tokens: NMSE %.3g, first %.9g, should be %.9g", f->name, b->name, tokens, error2 / sum2,
             (double)got[0], want[0]);
  kt_finish(&r);
  return got;
}

static void dots_on(const kt_backend *b) {
  static float x[MOST_TOKENS * COLS];
  static double w[ROWS * COLS];
  int done = 0;
  fill_x(x);
  for (uint32_t id = 0; id < FORMAT_IDS; id++) {
    const struct format *f = format_by_id(id);
    // kernels with large code books take LLVM seconds: one stands for them, the interpreter has all
    bool book = !strncmp(f ? f->name : "", "IQ", 2) && f->name[2] < '4' && id != FORMAT_IQ2_XXS;
    bool left = book && (id < FORMAT_Q6_0 ? b->way == KT_LLVM
                                          : b->way != KT_REF && id > FORMAT_Q4_0_R8 && id < FORMAT_Q6_0_R4);
    // Mesa's compiler takes a second for each
    bool known = b->way != KT_VK || id == FORMAT_Q4_0 || id == FORMAT_Q8_0 || id == FORMAT_Q4_K || id == FORMAT_Q6_K;
    if (!f || !f->computes || f->block <= 2 || left || !known) continue;
    weights_of(f, w);
    float *few = check_dot(f, b, x, TOKENS, w), *one = check_dot(f, b, x, 1, w),
          *many = check_dot(f, b, x, MOST_TOKENS, w);
    if (RIG_COMPUTES && (memcmp(one, few, ROWS * sizeof *one) || memcmp(few, many, TOKENS * ROWS * sizeof *few)))
      fail_msg("%s on %s: a token has other bits beside others", f->name, b->name);
    free(few); free(one); free(many);
    done++;
  }
  assert_true(done >= (b->way == KT_VK ? 4 : b->way == KT_LLVM ? 57 : b->way == KT_REF ? 70 : 63));
}

static void dots_on_cpu(const char *name, enum kt_way way, const char *cpu) {
  kt_backend b;
  if (!kt_backend_cpu(&b, name, way, cpu)) skip();
  dots_on(&b);
}

static void test_dots_reference(void **state) { (void)state; kt_backend b = kt_backend_ref(); dots_on(&b); }
static void test_dots_native(void **state) { (void)state; dots_on_cpu("native", KT_LLVM, "native"); }
static void test_dots_ptx(void **state) { (void)state; kt_backend b = kt_backend_ptx(); dots_on(&b); }
static void test_dots_metal(void **state) {
  (void)state;
  kt_backend b = kt_backend_metal();
  dots_on(&b);
}
static void test_dots_v3(void **state) { (void)state; dots_on_cpu("x86-64-v3", KT_LLVM, "x86-64-v3"); }
static void test_dots_v2(void **state) { (void)state; dots_on_cpu("x86-64-v2", KT_LLVM, "x86-64-v2"); }

// ---- products of halves ---------------------------------------------------------------------------------------------

// Tiles of halves: the sum of products of activations that are rounded to halves (of a 64th, F16), and the same bits
// for a token alone as among others.
static float *check_halves(const struct format *f, const kt_backend *b, const float *x, int tokens, const double *w) {
  kt_run r;
  double error2 = 0, sum2 = 0;
  int made = 0;
  begin(&r, f->name);
  int raw = blocks_buffer(&r.t, f), in = kt_buffer(&r.t, DT_F32, tokens * COLS, KT_UNIT);
  memcpy(r.t.bufs[in].start, x, (size_t)tokens * COLS * sizeof *x);
  tensor *rows = t_reshape_i(r.t.g, t_buffer(r.t.g, in, DT_F32, tokens * COLS), 2, (int64_t[]){tokens, COLS});
  kt_out(&r.t, t_matmul(r.t.g, rows, dequant(r.t.g, f, raw, ROWS, COLS)));
  schedule_graph(r.t.g, half_dots(r.t.g, sink_of(&r)), &r.s);
  for (int i = 0; i < r.s.n_kernels; i++) {
    kt_code code = kt_compile(r.t.g, r.s.kernels[i].ast, b);
    for (size_t n = 0; n < code.p->n; n++) made += code.p->at[n]->op == OP_MMA;
    kt_code_free(&code);
  }
  if (!made) fail_msg("%s, %d tokens: no tiles", f->name, tokens);
  float *got = (float *)(void *)contents(&r, b, r.t.n_bufs - 1);
  for (int t = 0; RIG_COMPUTES && t < tokens; t++)
    for (int o = 0; o < ROWS; o++) {
      double want = 0;
      for (int c = 0; c < COLS; c++) {
        double v = (double)x[t * COLS + c];
        v = f->id == FORMAT_F16 ? 64 * f16_to_double(f16_from_double(v / 64)) : bf16_to_double(bf16_from_double(v));
        want += w[o * COLS + c] * v;
      }
      error2 += pow((double)got[t * ROWS + o] - want, 2);
      sum2 += want * want;
    }
  if (!(error2 <= 1e-12 * sum2)) fail_msg("%s, %d tokens: NMSE %.3g", f->name, tokens, error2 / sum2);
  kt_finish(&r);
  return got;
}

static void test_halves_ptx(void **state) {
  (void)state;
  static float x[MOST_TOKENS * COLS];
  static double w[ROWS * COLS];
  kt_backend b = kt_backend_ptx();
  fill_x(x);
  x[300] = 1e6f;                                                       // more than a half can be
  for (int i = 0; i < 2; i++) {
    const struct format *f = format_by_id(i ? FORMAT_BF16 : FORMAT_F16);
    weights_of(f, w);
    float *few = check_halves(f, &b, x, TOKENS, w), *one = check_halves(f, &b, x, 1, w),
          *many = check_halves(f, &b, x, MOST_TOKENS, w);
    if (RIG_COMPUTES && (memcmp(one, few, ROWS * sizeof *one) || memcmp(few, many, TOKENS * ROWS * sizeof *few)))
      fail_msg("%s: a token has other bits beside others", f->name);
    free(few); free(one); free(many);
  }
}

// ---- products in floats ---------------------------------------------------------------------------------------------

static void products_on(const kt_backend *b) {
  int failed = 0;
  for (uint32_t id = 0; id < FORMAT_IDS; id++) {
    const struct format *f = format_by_id(id);
    if (!f || !f->computes) continue;
    kt_run r;
    kt_wants want = {0};
    begin(&r, f->name);
    int w = blocks_buffer(&r.t, f);
    kt_out(&r.t, t_matmul(r.t.g, kt_in(&r.t, DT_F32, KT_UNIT, KT_DIMS(1, COLS)), dequant(r.t.g, f, w, ROWS, COLS)));
    kt_out(&r.t, t_gather(r.t.g, dequant(r.t.g, f, w, ROWS, COLS), kt_in(&r.t, DT_I32, KT_SMALL_INTS, KT_DIMS(2))));
    plan_it(&r);
    failed += !kt_guard(&r, b, &want);
    kt_wants_free(&want);
    kt_finish(&r);
  }
  if (failed) fail_msg("%s: %d formats", b->name, failed);
}

static void products_on_cpu(const char *name, enum kt_way way, const char *cpu) {
  kt_backend b;
  if (!kt_backend_cpu(&b, name, way, cpu)) skip();
  products_on(&b);
}

static void test_products_native(void **state) { (void)state; products_on_cpu("native", KT_LLVM, "native"); }
static void test_products_v2(void **state) { (void)state; products_on_cpu("x86-64-v2", KT_LLVM, "x86-64-v2"); }
static void test_products_interpreted(void **state) {
  (void)state;
  products_on_cpu("interpreter, optimised", KT_REF, "native");
}
static void test_products_opencl(void **state) {
  (void)state;
  kt_backend b = {.name = "OpenCL", .way = KT_CL};
  cl_target(kt_cl(), &b.t);
  products_on(&b);
}

// With rows of weights laid side by side, and tiles of tokens by mma.
static void test_products_ptx(void **state) {
  (void)state;
  kt_backend b = kt_backend_ptx();
  products_on(&b);
}

// The same for Apple's.
static void test_products_metal(void **state) {
  (void)state;
  kt_backend b = kt_backend_metal();
  products_on(&b);
}

static void test_products_vulkan(void **state) {
  (void)state;
  kt_backend b;
  if (!kt_backend_vulkan(&b)) skip();
  products_on(&b);
}

static void test_dots_vulkan(void **state) {
  (void)state;
  kt_backend b;
  if (!kt_backend_vulkan(&b)) skip();
  dots_on(&b);
}

int main(void) {
  env_set(ENV_SPEC, "1");
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_dots_reference),
    cmocka_unit_test(test_dots_native),
    cmocka_unit_test(test_dots_v3),
    cmocka_unit_test(test_dots_v2),
    cmocka_unit_test(test_dots_ptx),
    cmocka_unit_test(test_dots_metal),
    cmocka_unit_test(test_dots_vulkan),
    cmocka_unit_test(test_halves_ptx),
    cmocka_unit_test(test_products_native),
    cmocka_unit_test(test_products_v2),
    cmocka_unit_test(test_products_interpreted),
    cmocka_unit_test(test_products_opencl),
    cmocka_unit_test(test_products_ptx),
    cmocka_unit_test(test_products_metal),
    cmocka_unit_test(test_products_vulkan),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
