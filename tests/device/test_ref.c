// The reference interpreter: against the host's evaluation of single ops, and in what only it does: math kept as it is,
// rounding at stores alone, checks of every access.
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/wait.h>
#include "graph/eval.h"
#include "render/rig.h"

static uop *cidx(rig *r, int64_t v) { return rig_int(r, DT_I64, v); }

static void run(rig *r, unsigned char **bufs, const int64_t *vars) {
  ref_kernel *k = ref_compile(rig_program(r, "test"));
  ref_run(k, bufs, vars, 0, 1);
  ref_free(k);
}

// One op on constants in F64 or an integer type, through the interpreter.
static evalue interpret(enum op op, enum dtype dt, enum dtype src, const evalue *x, size_t n) {
  rig *r = rig_new();
  uop *out = rig_buf(r, dt, 1), *in[3], *s[3];
  unsigned char result[8] = {0}, *bufs[4] = {result};
  for (size_t i = 0; i < n; i++) {
    enum dtype d = op == OP_WHERE && !i ? DT_BOOL : src;
    in[i] = rig_buf(r, d, 1);
    bufs[i + 1] = (unsigned char *)(uintptr_t)&x[i];
    s[i] = rig_load(r, rig_index(r, in[i], cidx(r, 0)), d, 1);
  }
  rig_store(r, rig_index(r, out, cidx(r, 0)), rig_op(r, op, dt, 1, (uarg){0}, n, s));
  run(r, bufs, NULL);
  rig_free(r);
  evalue v = {.i = 0};
  memcpy(&v, result, sizeof result);
  if (!dtype_is_float(dt)) v.i = dtype_wrap(dt, v.i);
  return v;
}

static evalue random_value(enum dtype d, uint64_t *seed) {
  uint64_t v = rig_random(seed);
  if (d == DT_F64) {
    static const double few[] = {0, -0.0, 1, -1, 2.5, -3.75, 1e9, 0.001, INFINITY, -INFINITY};
    return (evalue){.f = v % 3 ? few[v / 3 % COUNT(few)] : (double)(int64_t)v * 0x1p-58};
  }
  int64_t i = v % 4 == 0   ? (int64_t)(v >> 40) % 20 - 10
              : v % 4 == 1 ? dtype_min(d) + (int64_t)(v >> 60)
              : v % 4 == 2 ? dtype_max(d) - (int64_t)(v >> 60)
                           : (int64_t)v;
  return (evalue){.i = dtype_wrap(d, i)};
}

static void test_ops(void **state) {
  (void)state;
  static const enum dtype types[] = {DT_I8,  DT_U8,  DT_I16, DT_U16,  DT_I32, DT_U32,
                                     DT_I64, DT_U64, DT_IDX, DT_BOOL, DT_F64};
  uint64_t seed = 1;
  int done = 0;
  for (int op = 0; op < OP_COUNT; op++) {
    if (!(op_flags((enum op)op) & OPF_ELEMENTWISE)) continue;
    int here = 0;
    for (size_t t = 0; t < COUNT(types); t++)
      for (size_t u = 0; u < COUNT(types); u++)
        for (int i = 0; i < 12; i++) {
          enum dtype src = types[t], dt = op == OP_CAST || op == OP_BITCAST     ? types[u]
                                          : op_flags((enum op)op) & OPF_COMPARE ? DT_BOOL
                                                                                : src;
          if (u && op != OP_CAST && op != OP_BITCAST) continue;
          if ((src == DT_BOOL || dt == DT_BOOL) && op != OP_CAST && op != OP_AND && op != OP_OR && op != OP_XOR &&
              op != OP_WHERE && !(op_flags((enum op)op) & OPF_COMPARE))
            continue;
          evalue x[3], want, got;
          for (int k = 0; k < 3; k++) x[k] = random_value(op == OP_WHERE && !k ? DT_BOOL : src, &seed);
          if (op == OP_SHL || op == OP_SHR) x[1].i &= 8 * dtype_size(src) - 1;
          size_t n = (size_t)op_arity((enum op)op);
          if (!eval_op((enum op)op, dt, src, x, n, &want)) continue;        // has no value
          got = interpret((enum op)op, dt, src, x, n);
          bool same =
            dt == DT_F64 ? (want.f != want.f && got.f != got.f) || !memcmp(&want.f, &got.f, 8) : want.i == got.i;
          if (!same)
            die("%s.%s of %s: %llx, %llx gives %llx, should be %llx", op_name((enum op)op), dtype_name(dt),
                dtype_name(src), (long long)x[0].i, (long long)x[1].i, (long long)got.i, (long long)want.i);
          done++;
          here++;
        }
    if (!here) die("%s was never run", op_name((enum op)op));
  }
  assert_true(done > 3000);
}

// Values are doubles until they are stored, except that a CAST to a type for storage rounds to it, stored or not.
static void test_rounding(void **state) {
  (void)state;
  rig *r = rig_new();
  static const enum dtype types[] = {DT_F16, DT_BF16, DT_F32, DT_F64};
  uop *in = rig_buf(r, DT_F64, 1), *x = rig_load(r, rig_index(r, in, cidx(r, 0)), DT_F64, 1), *out[4],
      *back = rig_buf(r, DT_F64, 4);
  for (int i = 0; i < 4; i++) {
    out[i] = rig_buf(r, types[i], 1);
    uop *v = rig_cast(r, x, types[i]);
    rig_store(r, rig_index(r, out[i], cidx(r, 0)), v);
    rig_store(r, rig_index(r, back, cidx(r, i)), rig_cast(r, v, DT_F64));
  }
  double third = 1.0 / 3, wide[4], f64 = 0;
  uint16_t f16 = 0, bf16 = 0;
  float f32 = 0;
  run(r,
      (unsigned char *[]){(unsigned char *)&third, (unsigned char *)wide, (unsigned char *)&f16, (unsigned char *)&bf16,
                          (unsigned char *)&f32, (unsigned char *)&f64},
      NULL);
  assert_int_equal(f16, 0x3555);
  assert_int_equal(bf16, 0x3eab);
  assert_true(f32 == (float)third && f64 == third);
  assert_true(wide[0] == f16_to_double(f16) && wide[1] == bf16_to_double(bf16));
  assert_true(wide[2] == third && wide[3] == third);                    // an F32 is rounded by its STORE alone
  rig_free(r);
}

static void test_half_loads(void **state) {
  (void)state;
  rig *r = rig_new();
  uop *h = rig_buf(r, DT_F16, 65536), *b = rig_buf(r, DT_BF16, 65536), *out = rig_buf(r, DT_F64, 65536),
      *outb = rig_buf(r, DT_F64, 65536);
  uop *i = rig_range(r, cidx(r, 65536), AXIS_LOOP);
  rig_store(r, rig_index(r, out, i), rig_cast(r, rig_load(r, rig_index(r, h, i), DT_F16, 1), DT_F64));
  rig_store(r, rig_index(r, outb, i), rig_cast(r, rig_load(r, rig_index(r, b, i), DT_BF16, 1), DT_F64));
  rig_end(r, i);
  uint16_t *bits = malloc(65536 * 2);
  double *f = malloc(65536 * 8), *g = malloc(65536 * 8);
  for (int k = 0; k < 65536; k++) bits[k] = (uint16_t)k;
  run(r, (unsigned char *[]){(unsigned char *)bits, (unsigned char *)bits, (unsigned char *)f, (unsigned char *)g},
      NULL);
  for (int k = 0; k < 65536; k++) {
    double want = f16_to_double((uint16_t)k), wantb = bf16_to_double((uint16_t)k);
    if (!(want == f[k] || (want != want && f[k] != f[k])) || signbit(want) != signbit(f[k]))
      die("f16 %x: %g, should be %g", k, f[k], want);
    if (!(wantb == g[k] || (wantb != wantb && g[k] != g[k]))) die("bf16 %x: %g, should be %g", k, g[k], wantb);
  }
  free(bits); free(f); free(g);
  rig_free(r);
}

// A value that is only passed on stays what it is when a variable changes, and so does one that goes to a variable.
static void test_passing_on(void **state) {
  (void)state;
  rig *r = rig_new();
  uop *in = rig_buf(r, DT_I32, 2), *out = rig_buf(r, DT_I64, 4), *seven = rig_int(r, DT_I32, 7);
  uop *acc = rig_acc(r, seven), *wide = rig_acc(r, cidx(r, 0));
  uop *old = rig_cast(r, acc, DT_I64);
  rig_set(r, acc, rig2(r, OP_ADD, acc, seven));
  uop *sum = rig2(r, OP_ADD, rig_load(r, rig_index(r, in, cidx(r, 0)), DT_I32, 1),
                  rig_load(r, rig_index(r, in, cidx(r, 1)), DT_I32, 1));
  rig_set(r, wide, rig_cast(r, sum, DT_I64));
  rig_set(r, wide, rig2(r, OP_MUL, wide, cidx(r, 2)));
  rig_store(r, rig_index(r, out, cidx(r, 0)), old);
  rig_store(r, rig_index(r, out, cidx(r, 1)), rig_cast(r, rig2(r, OP_MUL, sum, rig_int(r, DT_I32, 3)), DT_I64));
  rig_store(r, rig_index(r, out, cidx(r, 2)), wide);
  rig_store(r, rig_index(r, out, cidx(r, 3)), rig_cast(r, acc, DT_I64));
  int32_t x[] = {30, 12};
  int64_t got[4];
  run(r, (unsigned char *[]){(unsigned char *)x, (unsigned char *)got}, NULL);
  assert_int_equal(got[0], 7);
  assert_int_equal(got[1], 126);
  assert_int_equal(got[2], 84);
  rig_free(r);
}

// ---- what ends the process ------------------------------------------------------------------------------------------

// Runs fn in a child; its exit must be by abort, and what it says on stderr must contain `text`.
static void assert_dies(void (*fn)(int), int arg, const char *text) {
  int fd[2];
  assert_int_equal(pipe(fd), 0);
  fflush(NULL);
  pid_t child = fork();
  if (!child) {
    dup2(fd[1], 2);
    signal(SIGABRT, SIG_DFL);
    fn(arg);
    _exit(0);
  }
  close(fd[1]);
  char said[4096];
  size_t n = 0;
  for (ssize_t k; n < sizeof said - 1 && (k = read(fd[0], said + n, sizeof said - 1 - n)) > 0;) n += (size_t)k;
  said[n] = 0;
  close(fd[0]);
  int status;
  waitpid(child, &status, 0);
  assert_true(!WIFEXITED(status) || WEXITSTATUS(status));
  if (!strstr(said, text)) die("'%s' lacks '%s'", said, text);
}

static void access_memory(int which) {
  rig *r = rig_new();
  unsigned char mem[64] = {0}, out[64];
  int64_t at[] = {10, -1, 8, 1, 3, INT64_MAX / 2};
  uop *x = rig_buf(r, DT_F32, 10), *y = rig_buf(r, DT_F32, 16), *i = rig_var(r, "i", -100, INT64_MAX);
  uop *good = rig_index(r, y, cidx(r, 0));
  if (which == 3)
    rig_store(r,
              rig_index(r, x,
                        rig_op(r, OP_ADD, DT_I64, 4, (uarg){0}, 2,
                               (uop *[]){rig_splat(r, rig2(r, OP_MUL, i, cidx(r, 7)), 4),
                                         rig_op(r, OP_LANE, DT_I64, 4, (uarg){0}, 0, NULL)})),
              rig_splat(r, rig_float(r, DT_F32, 1), 4));
  else if (which == 4) rig_store(r, rig_index(r, x, i), rig_splat(r, rig_float(r, DT_F32, 1), 8));
  else rig_store(r, good, rig_load(r, rig_index(r, x, i), DT_F32, which == 2 ? 4 : 1));
  run(r, (unsigned char *[]){mem, out}, &at[which]);
}

static void divide(int op) {
  rig *r = rig_new();
  int64_t out;
  uop *y = rig_buf(r, DT_I64, 1), *i = rig_var(r, "i", -100, 100);
  rig_store(r, rig_index(r, y, cidx(r, 0)), rig2(r, (enum op)op, cidx(r, 5), i));
  run(r, (unsigned char *[]){(unsigned char *)&out}, (int64_t[]){0});
}

static void test_checks(void **state) {
  (void)state;
  assert_dies(access_memory, 0, "element 10 of buffer 0, which has 10: LOAD.f32");
  assert_dies(access_memory, 1, "element -1 of buffer 0");
  assert_dies(access_memory, 2, "16 bytes at element 8 of buffer 0");
  assert_dies(access_memory, 3, "element 10 of buffer 0");
  assert_dies(access_memory, 4, "32 bytes at element 3 of buffer 0");
  assert_dies(access_memory, 5, "of buffer 0");
  static const enum op ops[] = {OP_IDIV, OP_MOD, OP_CDIV, OP_CMOD};
  for (size_t i = 0; i < COUNT(ops); i++) assert_dies(divide, ops[i], "division by zero");
}

// ---- several threads, one kernel ------------------------------------------------------------------------------------

typedef struct part { const ref_kernel *k; unsigned char **bufs; int64_t lo, hi; } part;
static void *run_part(void *p) {
  const part *q = p;
  ref_run(q->k, q->bufs, NULL, q->lo, q->hi);
  return NULL;
}

static void test_threads(void **state) {
  (void)state;
  rig *r = rig_new();
  uop *out = rig_buf(r, DT_I64, 1000), *t = rig_range(r, cidx(r, 1000), AXIS_GLOBAL), *acc = rig_acc(r, cidx(r, 0)),
      *i = rig_range(r, t, AXIS_REDUCE);
  rig_set(r, acc, rig2(r, OP_ADD, acc, i));
  rig_end(r, i);
  rig_store(r, rig_index(r, out, t), acc);
  rig_end(r, t);
  ref_kernel *k = ref_compile(rig_program(r, "sums"));
  int64_t *got = calloc(1000, 8);
  unsigned char *bufs[] = {(unsigned char *)got};
  part parts[4];
  pthread_t threads[4];
  for (int n = 0; n < 4; n++) {
    parts[n] = (part){k, bufs, n * 250, n * 250 + 250};
    assert_int_equal(pthread_create(&threads[n], NULL, run_part, &parts[n]), 0);
  }
  for (int n = 0; n < 4; n++) pthread_join(threads[n], NULL);
  for (int64_t n = 0; n < 1000; n++) assert_int_equal(got[n], n * (n - 1) / 2);
  ref_free(k);
  free(got);
  rig_free(r);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_ops),        cmocka_unit_test(test_rounding),
                                     cmocka_unit_test(test_half_loads), cmocka_unit_test(test_passing_on),
                                     cmocka_unit_test(test_checks),     cmocka_unit_test(test_threads)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
