// Vulkan devices: which one is opened, what is said where there is none or where a kernel asks for too much; and
// work-groups: SPECIAL, LOCAL, BARRIER, sizes in three dimensions and from variables.
#define _GNU_SOURCE
#include <pthread.h>
#include "device/group_programs.h"

static vk *device;

static int have_vulkan(void **state) {
  (void)state;
  device = rig_vulkan_device();
  return 0;
}

static void test_open(void **state) {
  (void)state;
  vk *d = NULL;
  error err = {0};
  assert_int_equal(vk_open("no such device", &d, &err), -1);
  assert_null(d);
  if (!device) { assert_non_null(strstr(err.text, "Vulkan")); skip(); }
  const char *called = strstr(vk_name(device), ": ");
  assert_non_null(called);
  assert_non_null(strstr(err.text, "DEV=VK:no such device is no device of Vulkan here"));
  assert_non_null(strstr(err.text, called + 2));
  assert_int_equal(vk_open(called + 2, &d, &err), 0);
  assert_string_equal(vk_name(d), vk_name(device));
  target t;
  vk_target(d, &t);
  assert_true(t.has_local && !t.has_fma && t.max_local_bytes >= 16384 && t.max_group >= 128);
  vk_close(d);
  assert_int_equal(vk_open("4711", &d, &err), -1);
  str all = {0};
  assert_int_equal(vk_list(&all, &err), 0);
  assert_non_null(strstr(str_c(&all), vk_name(device)));
  str_free(&all);
}

static void check_sum(vk_code *k, int64_t groups, float scale) {
  float *x = malloc((size_t)groups * 64 * 4), *out = malloc((size_t)groups * 4);
  for (int64_t i = 0; i < groups * 64; i++) x[i] = (float)(i % 37) * scale;
  error err = {0};
  if (vk_launch(k, (unsigned char *[]){(unsigned char *)x, (unsigned char *)out}, NULL, NULL, 0, 0, &err))
    rig_fail("launch", &err, NULL);
  for (int64_t g = 0; g < groups; g++) {
    float want = 0;
    for (int i = 0; i < 64; i++) want += x[g * 64 + i];        // exact: small integers
    if (out[g] != want) die("group %lld: %g, should be %g", (long long)g, (double)out[g], (double)want);
  }
  free(x);
  free(out);
}

static void *launch_often(void *kernel) {
  for (int i = 0; i < 20; i++) check_sum(kernel, 20, (float)(i % 3 + 1));
  return NULL;
}

static void test_sum(void **state) {
  (void)state;
  if (!device) skip();
  rig *r = rig_new();
  vk_code *k = rig_vulkan_compile(sum_program(r, 20));
  pthread_t t[3];
  check_sum(k, 20, 1);
  for (int i = 0; i < 3; i++) assert_int_equal(pthread_create(&t[i], NULL, launch_often, k), 0);
  for (int i = 0; i < 3; i++) pthread_join(t[i], NULL);
  vk_code_free(k);
  rig_free(r);
}

static void test_transpose(void **state) {
  (void)state;
  if (!device) skip();
  rig *r = rig_new();
  vk_code *k = rig_vulkan_compile(transpose_program(r));
  int32_t in[W * H], got[W * H];
  for (int64_t n = 0; n <= H / 8; n++) {
    for (int i = 0; i < W * H; i++) { in[i] = i; got[i] = -1; }
    error err = {0};
    if (vk_launch(k, (unsigned char *[]){(unsigned char *)in, (unsigned char *)got}, NULL, &n, 0, 0, &err))
      rig_fail("launch", &err, NULL);
    for (int i = 0; i < H; i++)
      for (int j = 0; j < W; j++) assert_int_equal(got[j * H + i], i < n * 8 ? in[i * W + j] : -1);
  }
  vk_code_free(k);
  rig_free(r);
}

// Bytes in a work-group's memory that are stored one by one and loaded four at a time: reversed, as words.
static void test_bytes(void **state) {
  (void)state;
  if (!device) skip();
  rig *r = rig_new();
  enum { N = 64 };
  uop *x = rig_buf(r, DT_U8, N), *out = rig_buf(r, DT_U32, N / 4), *l = special(r, "l0", N),
      *mem = local_memory(r, DT_U8, N);
  uop *mirrored = rig2(r, OP_SUB, i32(r, N - 1), l);
  uop *last = barrier(r, store(r, rig_index(r, mem, mirrored), rig_load(r, rig_index(r, x, l), DT_U8, 1)));
  open_if(r, rig2(r, OP_CMPLT, l, i32(r, N / 4)));
  uop *word = rig_op(r, OP_LOAD, DT_U32, 1, (uarg){0}, 2,
                     (uop *[]){rig_index(r, mem, rig2(r, OP_MUL, l, i32(r, 4))), last});
  store(r, rig_index(r, out, l), word);
  close_if(r);
  program *p = rig_program(r, "mirror_64");
  p->local[0] = uop_idx(r->g, N);
  vk_code *k = rig_vulkan_compile(p);
  unsigned char in[N], got[N];
  error err = {0};
  for (int i = 0; i < N; i++) in[i] = (unsigned char)(i * 5 + 1);
  if (vk_launch(k, (unsigned char *[]){in, got}, NULL, NULL, 0, 0, &err)) rig_fail("launch", &err, NULL);
  for (int i = 0; i < N; i++) assert_int_equal(got[i], in[N - 1 - i]);
  vk_code_free(k);
  rig_free(r);
}

// More work-groups than the first dimension of a device has to take, with barriers; rows of them do not come out even.
static void test_many_groups(void **state) {
  (void)state;
  if (!device) skip();
  rig *r = rig_new();
  enum { MANY = 65535 * 2 + 3 };
  vk_code *k = rig_vulkan_compile(sum_program(r, MANY));
  check_sum(k, MANY, 1);
  vk_code_free(k);
  rig_free(r);
}

// Whether compiling p fails with a sentence about this.
static void refused(const program *p, const char *what) {
  render_options o = vk_render_options(device);
  error err = {0};
  str words = {0};
  if (render_spirv(p, &o, &words, &err)) rig_fail("render", &err, NULL);
  assert_null(vk_compile(device, p, p->n_bufs, (const uint32_t *)(const void *)words.at, words.n / 4, &err));
  if (!strstr(err.text, what) || !strstr(err.text, p->name)) fail_msg("%s", err.text);
  str_free(&words);
}

static void test_limits(void **state) {
  (void)state;
  if (!device) skip();
  rig *r = rig_new();
  program *p = sum_program(r, 20);
  p->local[0] = uop_idx(r->g, 4096);
  refused(p, "work-items");
  p->local[0] = uop_idx(r->g, 64);
  vk_code *k = rig_vulkan_compile(p);
  p->global[0] = uop_idx(r->g, INT64_C(1) << 40);
  unsigned char none[20 * 64 * 4];
  error err = {0};
  assert_int_equal(vk_launch(k, (unsigned char *[]){none, none}, NULL, NULL, 0, 0, &err), -1);
  assert_non_null(strstr(err.text, "sum_64: 1099511627776 work-groups"));
  p->global[0] = uop_idx(r->g, 0);                                // nothing to do
  assert_int_equal(vk_launch(k, (unsigned char *[]){none, none}, NULL, NULL, 0, 0, &err), 0);
  vk_code_free(k);
  rig_free(r);
  r = rig_new();
  uop *mem = local_memory(r, DT_F32, 1 << 20), *x = rig_buf(r, DT_F32, 1);
  store(r, rig_index(r, mem, i32(r, 0)), rig_load(r, rig_index(r, x, i32(r, 0)), DT_F32, 1));
  refused(rig_program(r, "large"), "4194304 bytes of a work-group's memory");
  rig_free(r);
}

// The layer that judges modules here does: one that asks for what the device was not opened for.
static void test_layer(void **state) {
  (void)state;
  if (!device || !env_int(ENV_VK_VALIDATE)) skip();
  rig *r = rig_new();
  uop *x = rig_buf(r, DT_U8, 1);
  store(r, rig_index(r, x, i32(r, 0)), rig2(r, OP_ADD, rig_load(r, rig_index(r, x, i32(r, 0)), DT_U8, 1),
                                            rig_int(r, DT_U8, 1)));
  program *p = rig_program(r, "byte");
  vk *d;
  error err = {0};
  str words = {0};
  if (vk_open("llvmpipe", &d, &err) || render_spirv(p, NULL, &words, &err)) rig_fail("open", &err, NULL);
  uint32_t *at = (uint32_t *)(void *)words.at;
  enum { CAPABILITY = 2 << 16 | 17, STORAGE_8BIT = 4448, GEOMETRY = 2 };
  for (size_t i = 5; at[i] == CAPABILITY; i += 2) if (at[i + 1] == STORAGE_8BIT) at[i + 1] = GEOMETRY;
  print_message("a complaint is expected here:\n");
  vk_code_free(vk_compile(d, p, p->n_bufs, at, words.n / 4, &err));
  assert_true(vk_complaints(d) > 0);
  vk_close(d);
  str_free(&words);
  rig_free(r);
}

// Halves by the device's instruction, asked for although llvmpipe does not promise to keep denormals: all others, and
// floats half way between two of them.
static void test_halves(void **state) {
  (void)state;
  if (!device) skip();
  rig *r = rig_new();
  enum { N = 1 << 16, GROUP = 64 };
  uop *h = rig_buf(r, DT_F16, N), *f = rig_buf(r, DT_F32, N), *g = rig_buf(r, DT_F32, N), *back = rig_buf(r, DT_F16, N);
  uop *i = rig2(r, OP_ADD, rig2(r, OP_MUL, special(r, "g0", N / GROUP), i32(r, GROUP)), special(r, "l0", GROUP));
  store(r, rig_index(r, f, i), rig_cast(r, rig_load(r, rig_index(r, h, i), DT_F16, 1), DT_F32));
  store(r, rig_index(r, back, i), rig_cast(r, rig_load(r, rig_index(r, g, i), DT_F32, 1), DT_F16));
  program *p = rig_program(r, "halves");
  p->global[0] = uop_idx(r->g, N / GROUP);
  p->local[0] = uop_idx(r->g, GROUP);
  render_options o = vk_render_options(device);
  o.spirv |= SPIRV_F16;
  vk_code *k = rig_vulkan_compile_with(p, &o);
  static uint16_t halves[N], got_halves[N];
  static float got[N], floats[N];
  error err = {0};
  for (uint32_t v = 0; v < N; v++) {
    halves[v] = (uint16_t)v;
    uint32_t bits = 0x38800000 + v * 4096 % 0x0f000000 + (v & 1);      // from the smallest normal half on
    memcpy(&floats[v], &bits, 4);
  }
  unsigned char *bufs[] = {(unsigned char *)halves, (unsigned char *)got, (unsigned char *)floats,
                           (unsigned char *)got_halves};
  if (vk_launch(k, bufs, NULL, NULL, 0, 0, &err)) rig_fail("launch", &err, NULL);
  for (int v = 0; v < N; v++) {
    float want = (float)f16_to_double((uint16_t)v);
    if ((v & 0x7c00) && v < 0x7c00) assert_memory_equal(&got[v], &want, 4);
    assert_int_equal(got_halves[v], f16_from_double((double)floats[v]));
  }
  vk_code_free(k);
  rig_free(r);
}

// sqrt(x) / x + x, of one double.
static program *quotient_program(rig *r) {
  uop *in = rig_buf(r, DT_F64, 1), *x = rig_load(r, rig_index(r, in, i32(r, 0)), DT_F64, 1);
  uop *q = rig2(r, OP_FDIV, rig1(r, OP_SQRT, x), x);
  store(r, rig_index(r, in, i32(r, 0)), rig2(r, OP_ADD, q, x));
  return rig_program(r, "quotient");
}

// Mesa's compiler for AMD's GPUs takes kernels for one that is not here: with a barrier and the group's memory, in two
// dimensions, and with doubles, by the device's and by their bits.
static void test_radv(void **state) {
  (void)state;
  vk *d = NULL;
  error err = {0};
  if (!RIG_COMPUTES) skip();
  setenv("RADV_FORCE_FAMILY", "gfx1100", 1);
  int bad = vk_open("radv", &d, &err);
  unsetenv("RADV_FORCE_FAMILY");
  if (bad) { print_message("without RADV: %s\n", err.text); skip(); }
  for (int i = 0; i < 4; i++) {
    rig *r = rig_new();
    render_options o = vk_render_options(d);
    str words = {0};
    const program *p = i == 0 ? sum_program(r, 20) : i == 1 ? transpose_program(r) : quotient_program(r);
    if (i == 3) o.spirv &= ~(unsigned)SPIRV_F64;
    if (render_spirv(p, &o, &words, &err)) rig_fail("render", &err, NULL);
    vk_code *k = vk_compile(d, p, p->n_bufs, (const uint32_t *)(const void *)words.at, words.n / 4, &err);
    if (!k) rig_fail("RADV", &err, NULL);
    vk_code_free(k);
    str_free(&words);
    rig_free(r);
  }
  vk_close(d);
}

// Numbers of 64 bits that were made of 32, beside constants.
static void test_converted(void **state) {
  (void)state;
  if (!device) skip();
  enum { N = 64 };
  static const int64_t edges[] = {-1000, -50, 0, 1, 100};
  rig *r = rig_new();
  uop *in = rig_buf(r, DT_I32, N), *out = rig_buf(r, DT_I64, N * COUNT(edges)), *l = special(r, "l0", N);
  uop *x = rig_cast(r, rig_load(r, rig_index(r, in, l), DT_I32, 1), DT_I64);
  for (size_t i = 0; i < COUNT(edges); i++) {
    uop *less = rig2(r, OP_CMPLT, x, rig_int(r, DT_I64, edges[i]));
    store(r, rig_index(r, out, rig2(r, OP_ADD, l, i32(r, (int64_t)i * N))), rig_cast(r, less, DT_I64));
  }
  program *p = rig_program(r, "converted");
  p->local[0] = uop_idx(r->g, N);
  vk_code *k = rig_vulkan_compile(p);
  int32_t from[N];
  int64_t got[N * COUNT(edges)];
  error err = {0};
  for (int i = 0; i < N; i++) from[i] = i * 7 - 100;
  if (vk_launch(k, (unsigned char *[]){(unsigned char *)from, (unsigned char *)got}, NULL, NULL, 0, 0, &err))
    rig_fail("launch", &err, NULL);
  for (size_t j = 0; j < COUNT(edges); j++)
    for (int i = 0; i < N; i++) assert_int_equal(got[j * N + (size_t)i], from[i] < edges[j]);
  vk_code_free(k);
  rig_free(r);
}

// A device without doubles gets no module that has any.
static void test_no_doubles(void **state) {
  (void)state;
  rig *r = rig_new();
  uop *x = rig_buf(r, DT_F64, 1);
  store(r, rig_index(r, x, i32(r, 0)), rig2(r, OP_ADD, rig_load(r, rig_index(r, x, i32(r, 0)), DT_F64, 1),
                                            rig_float(r, DT_F64, 1)));
  program *p = rig_program(r, "double");
  enum { CAPABILITY = 2 << 16 | 17, FLOAT64 = 10 };
  for (int has = 0; has < 2; has++) {
    error err = {0};
    str words = {0};
    bool asks = false;
    const render_options o = {.spirv = has ? SPIRV_F64 : 0};
    assert_int_equal(render_text(render_spirv, p, &o, &words, &err), 0);
    const uint32_t *at = (const uint32_t *)(const void *)words.at;
    for (size_t i = 5; at[i] == CAPABILITY; i += 2) asks |= at[i + 1] == FLOAT64;
    assert_int_equal(asks, has);
    str_free(&words);
  }
  rig_free(r);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_open),      cmocka_unit_test(test_sum),
                                     cmocka_unit_test(test_transpose), cmocka_unit_test(test_bytes),
                                     cmocka_unit_test(test_limits),    cmocka_unit_test(test_layer),
                                     cmocka_unit_test(test_halves),    cmocka_unit_test(test_no_doubles),
                                     cmocka_unit_test(test_converted), cmocka_unit_test(test_many_groups),
                                     cmocka_unit_test(test_radv)};
  return cmocka_run_group_tests(tests, have_vulkan, NULL);
}
