// Work-groups on OpenCL: SPECIAL, LOCAL, BARRIER, sizes in three dimensions and from variables; and the device's
// errors.
#define _GNU_SOURCE
#include <pthread.h>
#include "render/rig.h"

static cl *device;

static uop *i32(rig *r, int64_t v) { return rig_int(r, DT_I32, v); }
static uop *special(rig *r, const char *name, int64_t bound) {
  return rig_op(r, OP_SPECIAL, DT_I32, 1, (uarg){.b = bound, .s = name, .s_len = 2}, 0, NULL);
}
static uop *local_memory(rig *r, enum dtype d, int64_t elems) {
  return rig_op(r, OP_LOCAL, d, 1, (uarg){.a = 0, .b = elems}, 0, NULL);
}
static uop *barrier(rig *r, uop *after) { return rig_op(r, OP_BARRIER, DT_VOID, 1, (uarg){0}, 1, &after); }
static uop *store(rig *r, uop *index, uop *v) {
  return rig_op(r, OP_STORE, DT_VOID, 1, (uarg){0}, 2, (uop *[]){index, v});
}
static uop *load_after(rig *r, uop *index, uop *effect) {
  return rig_op(r, OP_LOAD, (enum dtype)index->dt, 1, (uarg){0}, 2, (uop *[]){index, effect});
}
static void open_if(rig *r, uop *cond) { rig_op(r, OP_IF, DT_VOID, 1, (uarg){0}, 1, &cond); }
static void close_if(rig *r) { rig_op(r, OP_ENDIF, DT_VOID, 1, (uarg){0}, 0, NULL); }

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

// out[g] = sum of 64 elements, by halves through the memory of the work-group.
static program *sum_program(rig *r, int64_t groups) {
  uop *x = rig_buf(r, DT_F32, groups * 64), *out = rig_buf(r, DT_F32, groups), *g = special(r, "g0", groups),
      *l = special(r, "l0", 64);
  uop *mem = local_memory(r, DT_F32, 64), *mine = rig_index(r, mem, l);
  uop *v = rig_load(r, rig_index(r, x, rig2(r, OP_ADD, rig2(r, OP_MUL, g, i32(r, 64)), l)), DT_F32, 1);
  uop *last = barrier(r, store(r, mine, v));
  for (int half = 32; half; half /= 2) {
    open_if(r, rig2(r, OP_CMPLT, l, i32(r, half)));
    uop *other = load_after(r, rig_index(r, mem, rig2(r, OP_ADD, l, i32(r, half))), last);
    uop *stored = store(r, mine, rig2(r, OP_ADD, load_after(r, mine, last), other));
    close_if(r);
    last = barrier(r, stored);
  }
  open_if(r, rig2(r, OP_CMPEQ, l, i32(r, 0)));
  store(r, rig_index(r, out, g), load_after(r, rig_index(r, mem, i32(r, 0)), last));
  close_if(r);
  program *p = rig_program(r, "sum_64");
  p->global[0] = uop_idx(r->g, groups);
  p->local[0] = uop_idx(r->g, 64);
  return p;
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

// A transpose by 8 x 8 tiles, two dimensions of groups and of items, the number of rows of tiles from a variable.
static void test_transpose(void **state) {
  (void)state;
  rig *r = rig_new();
  enum { W = 32, H = 24 };
  uop *x = rig_buf(r, DT_I32, W * H), *out = rig_buf(r, DT_I32, W * H), *g0 = special(r, "g0", W / 8),
      *g1 = special(r, "g1", H / 8);
  uop *l0 = special(r, "l0", 8), *l1 = special(r, "l1", 8), *mem = local_memory(r, DT_I32, 64);
  uop *rows = rig_var(r, "rows", 0, H / 8);
  uop *col = rig2(r, OP_ADD, rig2(r, OP_MUL, g0, i32(r, 8)), l0),
      *row = rig2(r, OP_ADD, rig2(r, OP_MUL, g1, i32(r, 8)), l1);
  uop *v = rig_load(r, rig_index(r, x, rig2(r, OP_ADD, rig2(r, OP_MUL, row, i32(r, W)), col)), DT_I32, 1);
  uop *bar = barrier(r, store(r, rig_index(r, mem, rig2(r, OP_ADD, rig2(r, OP_MUL, l1, i32(r, 8)), l0)), v));
  uop *t = load_after(r, rig_index(r, mem, rig2(r, OP_ADD, rig2(r, OP_MUL, l0, i32(r, 8)), l1)), bar);
  uop *to_row = rig2(r, OP_ADD, rig2(r, OP_MUL, g0, i32(r, 8)), l1),
      *to_col = rig2(r, OP_ADD, rig2(r, OP_MUL, g1, i32(r, 8)), l0);
  store(r, rig_index(r, out, rig2(r, OP_ADD, rig2(r, OP_MUL, to_row, i32(r, H)), to_col)), t);
  program *p = rig_program(r, "transpose");
  p->global[0] = uop_idx(r->g, W / 8);
  p->global[1] = rows;
  p->local[0] = p->local[1] = uop_idx(r->g, 8);
  cl_code *k = compile(p);
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
