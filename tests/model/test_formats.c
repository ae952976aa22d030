// Formats as expressions, beyond the bits of their numbers (tests/python/test_formats.py): weights in tiles are the same weights;
// the integer dot product is the sum of its products, with activations rounded as the header says; and matrices of every
// format multiply on every target as the meaning of the graph says.
#define _GNU_SOURCE
#include "codegen/kernel_rig.h"
#include "codegen/format_blocks.h"
#include "model/dequant.h"

enum { ROWS = 32, COLS = 1024, TOKENS = 3, MAX_STORES = 8 };

static int blocks_buffer(kt *t, const struct format *f) {
  enum dtype dt = dequant_buffer_dtype(f);
  int b = kt_buffer(t, dt, dt == DT_U8 ? (int64_t)ROWS * COLS / f->block * f->bytes : ROWS * COLS, KT_UNIT);
  if (dt == DT_U8) format_blocks(f, t->bufs[b].start, (int64_t)ROWS * COLS / f->block, &(uint64_t){f->id + 1});
  return b;
}

static void begin(kt_run *r, const char *name) { *r = (kt_run){.name = name, .t = {.g = graph_new(NULL), .seed = 5, .tolerance = 1e-10}}; }
static void plan_it(kt_run *r) { schedule_graph(r->t.g, uop_new(r->t.g, OP_SINK, DT_VOID, 1, r->t.effects.at, r->t.effects.n, (uarg){0}), &r->s); }

// What buffer `out` holds after a run on b; the caller frees it.
static unsigned char *contents(kt_run *r, const kt_backend *b, int out) {
  kt_code code[KT_KERNELS] = {{0}};
  kt_memory m;
  size_t n = (size_t)r->t.bufs[out].elems * (size_t)dtype_size(r->t.bufs[out].dt);
  for (int i = 0; i < r->s.n_kernels; i++) code[i] = kt_compile(r->t.g, r->s.kernels[i].ast, b);
  kt_memory_init(&m, &r->t, r->s.arena_bytes);
  kt_execute(r, code, (int64_t[KT_VARS]){0}, &m, false);
  unsigned char *copy = memcpy(xmalloc(n), m.at[out], n);
  kt_memory_free(&m);
  for (int i = 0; i < r->s.n_kernels; i++) kt_code_free(&code[i]);
  return copy;
}

// The bytes of blocks_buffer in tiles.
static unsigned char *tiles_of(const struct format *f, const kt_backend *b) {
  kt_run r;
  uop *stores[MAX_STORES];
  begin(&r, "tiles");
  int raw = blocks_buffer(&r.t, f), tiled = kt_buffer(&r.t, DT_U8, r.t.bufs[raw].elems, KT_UNIT);
  int n = dequant_retile(r.t.g, f, raw, tiled, ROWS, COLS, stores, MAX_STORES);
  for (int i = 0; i < n; i++) vec_push(&r.t.effects, stores[i]);
  plan_it(&r);
  unsigned char *at = contents(&r, b, tiled);
  kt_finish(&r);
  return at;
}

// Every byte of the file is in the tiles as often as it is in the file.
static void test_tiles_are_a_permutation(void **state) {
  (void)state;
  kt_backend b = kt_backend_ref();
  int done = 0;
  for (uint32_t id = 0; id < 64; id++) {
    const struct format *f = format_by_id(id);
    if (!f || !f->computes || !dequant_can_tile(f, ROWS)) continue;
    int64_t n = (int64_t)ROWS * COLS / f->block * f->bytes, times[256] = {0};
    unsigned char *tiles = tiles_of(f, &b), *raw = xcalloc((size_t)n, 1);
    format_blocks(f, raw, n / f->bytes, &(uint64_t){f->id + 1});
    for (int64_t i = 0; i < n; i++) { times[raw[i]]++; times[tiles[i]]--; }
    for (int i = 0; i < 256; i++) if (times[i]) fail_msg("%s: byte %d", f->name, i);
    assert_memory_not_equal(raw, tiles, (size_t)n);
    free(raw);
    free(tiles);
    done++;
  }
  assert_true(done >= 6);
  assert_false(dequant_can_tile(format_by_name("q4_0"), 24));          // not whole tiles of rows
  assert_false(dequant_can_tile(format_by_name("f16"), ROWS));
}

// ---- integer dot products -----------------------------------------------------------------------------------------------

// x rounded to 8 bits with a scale per group, as dequant_dot's comment says, in plain C.
static void round_activations(const float *x, int64_t group, double *out) {
  for (int64_t i = 0; i < COLS; i += group) {
    float most = 0;
    for (int64_t j = 0; j < group; j++) most = fmaxf(most, fabsf(x[i + j]));
    float by = most > 0 ? 127 / most : 0;
    double scale = (double)(most * (float)(1.0 / 127));
    if (group == 32) scale = f16_to_double(f16_from_double(scale));
    for (int64_t j = 0; j < group; j++) out[i + j] = (double)floorf(x[i + j] * by + 0.5f) * scale;
  }
}

static void weights_of(const struct format *f, double *out) {
  kt_run r;
  begin(&r, "weights");
  int raw = blocks_buffer(&r.t, f);
  te e = {.mem = arena_new(), .buffer = kt_start, .ctx = &r.t};
  const te_value *v = te_eval(&e, dequant(r.t.g, f, raw, ROWS, COLS, false));
  for (int64_t i = 0; i < ROWS * COLS; i++) out[i] = v->v[i].f;
  map_free(&e.memo);
  arena_free(e.mem);
  kt_finish(&r);
}

static void fill_x(float *x) {
  uint64_t seed = 3;
  for (int i = 0; i < TOKENS * COLS; i++) x[i] = (float)(2 * kt_unit(&seed) - 1) * (i % 97 ? 1 : 20);
  for (int i = 0; i < 256; i++) x[i] = 0;                              // a whole group of zeros
}

static void check_dot(const struct format *f, const kt_backend *b, const float *x, const double *want, bool tiled) {
  kt_run r;
  begin(&r, f->name);
  int in = kt_buffer(&r.t, DT_F32, TOKENS * COLS, KT_UNIT), w = blocks_buffer(&r.t, f);
  memcpy(r.t.bufs[in].start, x, TOKENS * COLS * sizeof *x);
  if (tiled) { free(r.t.bufs[w].start); r.t.bufs[w].start = tiles_of(f, b); }
  tensor *rows = t_reshape_i(r.t.g, t_buffer(r.t.g, in, DT_F32, TOKENS * COLS), 2, (int64_t[]){TOKENS, COLS});
  kt_out(&r.t, dequant_dot(r.t.g, f, w, ROWS, COLS, tiled, rows));
  plan_it(&r);
  float *got = (float *)(void *)contents(&r, b, r.t.n_bufs - 1);
  double error2 = 0, sum2 = 0;
  for (int i = 0; i < TOKENS * ROWS; i++) { error2 += pow((double)got[i] - want[i], 2); sum2 += want[i] * want[i]; }
  if (!(error2 <= 1e-10 * sum2)) fail_msg("%s%s on %s: NMSE %.3g, first %.9g, should be %.9g", f->name, tiled ? ", tiled" : "", b->name, error2 / sum2, (double)got[0], want[0]);
  free(got);
  kt_finish(&r);
}

static void dots_on(const kt_backend *b) {
  static float x[TOKENS * COLS];
  static double w[ROWS * COLS], xq[TOKENS * COLS], want[TOKENS * ROWS];
  int done = 0;
  fill_x(x);
  for (uint32_t id = 0; id < 64; id++) {
    const struct format *f = format_by_id(id);
    if (!f || !f->computes || !dequant_group(f)) continue;
    assert_true(dequant_group(f) == 32 || dequant_group(f) == 256);
    weights_of(f, w);
    for (int t = 0; t < TOKENS; t++) round_activations(x + t * COLS, dequant_group(f), xq + t * COLS);
    memset(want, 0, sizeof want);
    for (int t = 0; t < TOKENS; t++)
      for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLS; c++) want[t * ROWS + r] += w[r * COLS + c] * xq[t * COLS + c];
    check_dot(f, b, x, want, false);
    check_dot(f, b, x, want, true);
    done++;
  }
  assert_true(done >= 6);
}

static void dots_on_cpu(const char *name, enum kt_way way, const char *cpu) {
  kt_backend b;
  if (!kt_backend_cpu(&b, name, way, cpu)) skip();
  dots_on(&b);
}

static void test_dots_reference(void **state) { (void)state; kt_backend b = kt_backend_ref(); dots_on(&b); }
static void test_dots_native(void **state) { (void)state; dots_on_cpu("native", KT_LLVM, "native"); }
static void test_dots_v3(void **state) { (void)state; dots_on_cpu("x86-64-v3", KT_LLVM, "x86-64-v3"); }
static void test_dots_v2(void **state) { (void)state; dots_on_cpu("x86-64-v2", KT_LLVM, "x86-64-v2"); }

// ---- products in floats -------------------------------------------------------------------------------------------------

static void products_on(const kt_backend *b) {
  int failed = 0;
  for (uint32_t id = 0; id < 64; id++) {
    const struct format *f = format_by_id(id);
    if (!f || !f->computes) continue;
    kt_run r;
    kt_wants want = {0};
    begin(&r, f->name);
    int w = blocks_buffer(&r.t, f);
    kt_out(&r.t, t_matmul(r.t.g, kt_in(&r.t, DT_F32, KT_UNIT, KT_DIMS(1, COLS)), dequant(r.t.g, f, w, ROWS, COLS, false)));
    kt_out(&r.t, t_gather(r.t.g, dequant(r.t.g, f, w, ROWS, COLS, false), kt_in(&r.t, DT_I32, KT_SMALL_INTS, KT_DIMS(2))));
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
static void test_products_interpreted(void **state) { (void)state; products_on_cpu("interpreter, optimised", KT_REF, "native"); }
static void test_products_opencl(void **state) {
  (void)state;
  kt_backend b = {.name = "OpenCL", .way = KT_CL};
  cl_target(kt_cl(), &b.t);
  products_on(&b);
}

int main(void) {
  env_set(ENV_SPEC, "1");
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_tiles_are_a_permutation), cmocka_unit_test(test_dots_reference), cmocka_unit_test(test_dots_native), cmocka_unit_test(test_dots_v3),
    cmocka_unit_test(test_dots_v2), cmocka_unit_test(test_products_native), cmocka_unit_test(test_products_v2), cmocka_unit_test(test_products_interpreted),
    cmocka_unit_test(test_products_opencl),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
