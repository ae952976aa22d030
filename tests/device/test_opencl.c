// Work-groups on OpenCL: SPECIAL, LOCAL, BARRIER, sizes in three dimensions and from variables; and the device's
// errors.
#define _GNU_SOURCE
#include <pthread.h>
#include "device/group_programs.h"

static cl *device;

static cl_code *compile(const program *p) {
  error err = {0};
  str text = {0};
  if (render_opencl(p, NULL, &text, &err)) rig_fail("render", &err, NULL);
  cl_code *k = cl_compile(device, p, str_c(&text), &err);
  if (!k) rig_fail("compile", &err, str_c(&text));
  str_free(&text);
  return k;
}

static int open_device(void **state) {
  (void)state;
  error err = {0};
  if (cl_open("", &device, &err)) rig_fail("open", &err, NULL);
  target t;
  cl_target(device, &t);
  assert_true(t.has_local && t.max_local_bytes >= 16384 && t.max_group >= 64 && t.vector_bytes == 16);
  assert_non_null(strstr(cl_name(device), ": "));
  return 0;
}

static int close_device(void **state) {
  (void)state;
  cl_close(device);
  return 0;
}

static void check_sum(cl_code *k, int64_t groups, float scale) {
  float *x = malloc((size_t)groups * 64 * 4), *out = malloc((size_t)groups * 4);
  for (int64_t i = 0; i < groups * 64; i++) x[i] = (float)(i % 37) * scale;
  error err = {0};
  if (cl_launch(k, (unsigned char *[]){(unsigned char *)x, (unsigned char *)out}, NULL, NULL, 0, 0, &err))
    rig_fail("launch", &err, NULL);
  for (int64_t g = 0; g < groups; g++) {
    float want = 0;
    for (int i = 0; i < 64; i++) want += x[g * 64 + i];        // exact: small integers
    if (out[g] != want) die("group %lld: %g, should be %g", (long long)g, (double)out[g], (double)want);
  }
  free(x);
  free(out);
}

static void test_sum(void **state) {
  (void)state;
  rig *r = rig_new();
  cl_code *k = compile(sum_program(r, 20));
  check_sum(k, 20, 1);
  check_sum(k, 20, 2);                                          // again, over other memory
  cl_code_free(k);
  rig_free(r);
}

static void test_transpose(void **state) {
  (void)state;
  rig *r = rig_new();
  cl_code *k = compile(transpose_program(r));
  int32_t in[W * H], got[W * H];
  for (int64_t n = 0; n <= H / 8; n++) {
    for (int i = 0; i < W * H; i++) { in[i] = i; got[i] = -1; }
    error err = {0};
    if (cl_launch(k, (unsigned char *[]){(unsigned char *)in, (unsigned char *)got}, NULL, &n, 0, 0, &err))
      rig_fail("launch", &err, NULL);
    for (int i = 0; i < H; i++)
      for (int j = 0; j < W; j++) assert_int_equal(got[j * H + i], i < n * 8 ? in[i * W + j] : -1);
  }
  cl_code_free(k);
  rig_free(r);
}

static void *launch_often(void *kernel) {
  for (int i = 0; i < 20; i++) check_sum(kernel, 20, (float)(i % 3 + 1));
  return NULL;
}

static void test_threads(void **state) {
  (void)state;
  rig *r = rig_new();
  cl_code *k = compile(sum_program(r, 20));
  pthread_t t[3];
  for (int i = 0; i < 3; i++) assert_int_equal(pthread_create(&t[i], NULL, launch_often, k), 0);
  for (int i = 0; i < 3; i++) pthread_join(t[i], NULL);
  cl_code_free(k);
  rig_free(r);
}

static void test_errors(void **state) {
  (void)state;
  rig *r = rig_new();
  program *p = sum_program(r, 4);
  error err = {0};
  assert_null(cl_compile(device, p, "__kernel void sum_64(__global float *x) { x[0] = no_such_name; }", &err));
  assert_non_null(strstr(err.text, "sum_64"));
  assert_non_null(strstr(err.text, "no_such_name"));
  err = (error){0};
  assert_null(cl_compile(device, p, "__kernel void other(__global float *x) { x[0] = 1; }", &err));
  assert_non_null(strstr(err.text, "sum_64"));
  err = (error){0};
  cl_code *k = cl_compile(device, p, "__kernel void sum_64(__global float *x) { x[0] = 1; }", &err);
  assert_non_null(k);
  float x[256] = {0}, out[4];
  // one argument too many
  assert_int_equal(cl_launch(k, (unsigned char *[]){(unsigned char *)x, (unsigned char *)out}, NULL, NULL, 0, 0, &err),
                   -1);
  assert_non_null(strstr(err.text, "argument"));
  cl_code_free(k);
  rig_free(r);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_sum), cmocka_unit_test(test_transpose),
                                     cmocka_unit_test(test_threads), cmocka_unit_test(test_errors)};
  return cmocka_run_group_tests(tests, open_device, close_device);
}
