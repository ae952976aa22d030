// Every elementwise op on every dtype it has, as a scalar and in vectors: each back end against the interpreter, which
// has been written apart from them.  Inputs are the values where arithmetic has edges, and random ones.
#define _GNU_SOURCE
// the C text may not rely on what C leaves open
#define RIG_CC_FLAGS "-fsanitize=signed-integer-overflow -fsanitize-undefined-trap-on-error"
#include "rig.h"

enum { N = 256, MAX_OUT = 64 };
static const int widths[] = {1, 4, 16};
static const enum dtype numbers[] = {DT_I8, DT_U8, DT_I16, DT_U16, DT_I32, DT_U32, DT_I64, DT_U64, DT_F32, DT_F64};

// What the stores of a program wrote: region k of the output buffer has N elements of this dtype.
typedef struct outputs {
  int n;
  struct {
    enum dtype dt;
    int64_t at;
    char what[48];
    int ulps;
  } at[MAX_OUT];
  int64_t bytes;
} outputs;

typedef struct bench {
  rig *r;
  outputs out;
  uop *out_buf, *tile, *element;           // element: number of the first element of this tile
  int lanes;
  bool fuses;                              // it has an FMA, which SPIR-V has not
} bench;

static uop *cst(bench *b, enum dtype d, int64_t v) {
  uop *u = dtype_is_float(d) ? rig_float(b->r, d, (double)v) : rig_int(b->r, d, v);
  return rig_splat(b->r, u, b->lanes);
}

static bench start(int lanes) {
  bench b = {.r = rig_new(), .lanes = lanes};
  b.out_buf = rig_buf(b.r, DT_U8, (int64_t)MAX_OUT * N * 8);
  return b;
}

static void begin_loop(bench *b) {
  rig *r = b->r;
  b->tile = rig_range(r, rig_int(r, DT_I64, N / b->lanes), AXIS_GLOBAL);
  b->element = rig2(r, OP_MUL, b->tile, rig_int(r, DT_I64, b->lanes));
}

static uop *input(bench *b, uop *buf, enum dtype d) {
  return rig_load(b->r, rig_index(b->r, buf, b->element), d, b->lanes);
}

static void keep(bench *b, uop *v, int ulps, const char *fmt, ...) {
  rig *r = b->r;
  outputs *o = &b->out;
  if (o->n == MAX_OUT) die("too many outputs");
  uop *at = rig2(r, OP_ADD, rig2(r, OP_MUL, b->element, rig_int(r, DT_I64, dtype_size((enum dtype)v->dt))),
                 rig_int(r, DT_I64, o->bytes));
  rig_store(r, rig_index(r, b->out_buf, at), v);
  o->at[o->n].dt = (enum dtype)v->dt;
  o->at[o->n].at = o->bytes;
  o->at[o->n].ulps = ulps;
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(o->at[o->n].what, sizeof o->at[o->n].what, fmt, ap);
  va_end(ap);
  o->bytes += N * dtype_size((enum dtype)v->dt);
  o->n++;
}

static void compare(const bench *b, const unsigned char *want, const unsigned char *got, const char *backend) {
  int bad = 0;
  for (int k = 0; k < b->out.n; k++) {
    enum dtype d = b->out.at[k].dt;
    int size = dtype_size(d);
    for (int i = 0; i < N && bad < 10; i++) {
      int64_t at = b->out.at[k].at + i * size;
      if (rig_same(d, want + at, got + at, b->out.at[k].ulps)) continue;
      uint64_t x = 0, y = 0;
      memcpy(&x, want + at, (size_t)size);
      memcpy(&y, got + at, (size_t)size);
      fprintf(stderr, "%s, %d lanes, %s, element %d: %llx, should be %llx\n", backend, b->lanes, b->out.at[k].what, i,
              (unsigned long long)y, (unsigned long long)x);
      bad++;
    }
  }
  assert_int_equal(bad, 0);
}

static void run_all(bench *b, const enum dtype *inputs) {
  rig *r = b->r;
  rig_end(r, b->tile);
  char name[32];
  snprintf(name, sizeof name, "ops_%s_%d", dtype_name(inputs[0]), b->lanes);
  const program *p = rig_program(r, name);
  size_t total = (size_t)MAX_OUT * N * 8;
  unsigned char *bufs[RIG_BUFS], *want = calloc(1, total), *got = calloc(1, total);
  for (int i = 1; i < r->n_bufs; i++) {
    bufs[i] = malloc(N * 8);
    rig_fill(inputs[i - 1], bufs[i], N, (uint64_t)i * 1000 + inputs[i - 1]);
  }
  ref_kernel *k = ref_compile(p);
  bufs[0] = want;
  ref_run(k, bufs, NULL, 0, N / b->lanes);
  ref_free(k);
  if (!RIG_COMPUTES) {
    static const char *const names[] = {"llvm", "opencl", "metal", "gcc", "ptx", "vulkan"};
    for (size_t i = 0; i < COUNT(names) - b->fuses; i++) rig_render(p, names[i]);
    for (int i = 1; i < r->n_bufs; i++) free(bufs[i]);
    free(want);
    free(got);
    rig_free(r);
    return;
  }
  memset(got, 0, total);
  bufs[0] = got;
  rig_opencl(p, bufs, NULL, 0, N / b->lanes);
  compare(b, want, got, "opencl");
  if (b->lanes == 4) {                                         // one width
    memset(got, 0, total);
    rig_opencl_as(&(render_options){.lacks_doubles = true}, p, bufs, NULL, 0, N / b->lanes);
    compare(b, want, got, "opencl without doubles");
  }
  memset(got, 0, total);
  rig_metal(p, bufs, NULL, 0, N / b->lanes);
  compare(b, want, got, "metal");
  memset(got, 0, total);
  rig_ptx(r, p, bufs, NULL);
  compare(b, want, got, "ptx");
  if (!b->fuses && rig_vulkan_device()) {
    memset(got, 0, total);
    rig_vulkan(p, bufs, NULL, 0, N / b->lanes);
    compare(b, want, got, "vulkan");
    if (b->lanes == 4) {
      memset(got, 0, total);
      rig_vulkan_without(SPIRV_F64, p, bufs, NULL, 0, N / b->lanes);
      compare(b, want, got, "vulkan without doubles");
    }
  }
  static const char *const compilers[] = {NULL, "gcc", "clang"};
  for (size_t i = 0; i < COUNT(compilers); i++) {
    if (i == 2 && b->lanes != 4) continue;                     // one width for the second compiler
    backend_kernel kernel = compilers[i] ? rig_cc(p, compilers[i]) : rig_llvm(p);
    memset(got, 0, total);
    bufs[0] = got;
    kernel.fn(bufs, NULL, 0, N / b->lanes);
    compare(b, want, got, compilers[i] ? compilers[i] : "llvm");
    rig_drop(&kernel);
  }
  for (int i = 1; i < r->n_bufs; i++) free(bufs[i]);
  free(want);
  free(got);
  rig_free(r);
}

static void integer_ops(bench *b, enum dtype d, uop *x, uop *y) {
  rig *r = b->r;
  static const enum op plain[] = {OP_ADD, OP_SUB, OP_MUL,   OP_MAX,   OP_MIN,  OP_AND,
                                  OP_OR,  OP_XOR, OP_CMPLT, OP_CMPEQ, OP_CMPNE};
  for (size_t i = 0; i < COUNT(plain); i++)
    keep(b, rig2(r, plain[i], x, y), 0, "%s.%s", op_name(plain[i]), dtype_name(d));
  keep(b, rig1(r, OP_NEG, x), 0, "NEG.%s", dtype_name(d));
  uop *by = rig2(r, OP_AND, y, cst(b, d, 8 * dtype_size(d) - 1));
  keep(b, rig2(r, OP_SHL, x, by), 0, "SHL.%s", dtype_name(d));
  keep(b, rig2(r, OP_SHR, x, by), 0, "SHR.%s", dtype_name(d));
  uop *zero = cst(b, d, 0), *three = cst(b, d, 3), *minus = cst(b, d, -1);
  uop *safe = rig3(r, OP_WHERE, rig2(r, OP_CMPEQ, y, zero), three, y);
  safe = rig3(r, OP_WHERE, rig2(r, OP_CMPEQ, safe, minus), three, safe);
  keep(b, rig2(r, OP_CDIV, x, safe), 0, "CDIV.%s", dtype_name(d));
  keep(b, rig2(r, OP_CMOD, x, safe), 0, "CMOD.%s", dtype_name(d));
}

static void float_ops(bench *b, enum dtype d, uop *x, uop *y) {
  rig *r = b->r;
  static const enum op two[] = {OP_ADD, OP_SUB, OP_MUL, OP_FDIV, OP_MAX, OP_MIN, OP_CMPLT, OP_CMPEQ, OP_CMPNE};
  static const enum op one[] = {OP_NEG, OP_SQRT, OP_TRUNC, OP_FLOOR};
  for (size_t i = 0; i < COUNT(two); i++) keep(b, rig2(r, two[i], x, y), 0, "%s.%s", op_name(two[i]), dtype_name(d));
  for (size_t i = 0; i < COUNT(one); i++) keep(b, rig1(r, one[i], x), 0, "%s.%s", op_name(one[i]), dtype_name(d));
}

static void test_arithmetic(void **state) {
  (void)state;
  for (size_t t = 0; t < COUNT(numbers); t++)
    for (size_t w = 0; w < COUNT(widths); w++) {
      enum dtype d = numbers[t], in[] = {d, d, d, DT_BOOL, DT_BOOL};
      bench b = start(widths[w]);
      uop *bufs[5];
      for (int i = 0; i < 5; i++) bufs[i] = rig_buf(b.r, in[i], N);
      begin_loop(&b);
      uop *x = input(&b, bufs[0], d), *y = input(&b, bufs[1], d), *z = input(&b, bufs[2], d);
      uop *p = input(&b, bufs[3], DT_BOOL), *q = input(&b, bufs[4], DT_BOOL);
      if (dtype_is_float(d)) float_ops(&b, d, x, y);
      else integer_ops(&b, d, x, y);
      keep(&b, rig3(b.r, OP_WHERE, p, x, y), 0, "WHERE.%s", dtype_name(d));
      uop *both = rig2(b.r, OP_AND, p, rig2(b.r, OP_CMPLT, x, y));
      keep(&b, rig3(b.r, OP_WHERE, both, x, z), 0, "WHERE of AND.%s", dtype_name(d));
      if (t == 0)
        for (size_t i = 0; i < 6; i++) {
          static const enum op logic[] = {OP_AND, OP_OR, OP_XOR, OP_CMPLT, OP_CMPEQ, OP_CMPNE};
          keep(&b, rig2(b.r, logic[i], p, q), 0, "%s.bool", op_name(logic[i]));
        }
      run_all(&b, in);
    }
}

static void test_fused(void **state) {
  (void)state;
  if (!rig_cpu().has.fma) skip();
  for (int t = 0; t < 2; t++)
    for (size_t w = 0; w < COUNT(widths); w++) {
      enum dtype d = t ? DT_F64 : DT_F32, in[] = {d, d, d};
      bench b = start(widths[w]);
      uop *bufs[3], *x[3];
      b.fuses = true;
      for (int i = 0; i < 3; i++) bufs[i] = rig_buf(b.r, d, N);
      begin_loop(&b);
      for (int i = 0; i < 3; i++) x[i] = input(&b, bufs[i], d);
      // the interpreter rounds an F32 twice
      keep(&b, rig3(b.r, OP_FMA, x[0], x[1], x[2]), d == DT_F32, "FMA.%s", dtype_name(d));
      run_all(&b, in);
    }
}

// A value that the target type can hold, whatever the input.
static uop *tame(bench *b, uop *x, enum dtype from, enum dtype to) {
  rig *r = b->r;
  if (!dtype_is_float(from) || dtype_is_float(to) || to == DT_BOOL) return x;
  uop *in = rig2(r, OP_AND, rig2(r, OP_CMPLT, x, cst(b, from, 100)),
                 rig2(r, OP_CMPLT, cst(b, from, dtype_is_unsigned(to) ? 0 : -100), x));
  return rig3(r, OP_WHERE, in, x, cst(b, from, 42));
}

static void test_casts(void **state) {
  (void)state;
  static const enum dtype all[] = {DT_BOOL, DT_I8,  DT_U8,  DT_I16, DT_U16, DT_I32,
                                   DT_U32,  DT_I64, DT_U64, DT_F32, DT_F64};
  for (size_t t = 0; t < COUNT(all); t++)
    for (size_t w = 0; w < COUNT(widths); w++) {
      bench b = start(widths[w]);
      uop *buf = rig_buf(b.r, all[t], N);
      begin_loop(&b);
      uop *x = input(&b, buf, all[t]);
      for (size_t i = 0; i < COUNT(all); i++) {
        enum dtype from = all[t], to = all[i];
        // a 64-bit integer to F32 by way of a double is rounded twice in the interpreter
        int ulps = to == DT_F32 && (from == DT_I64 || from == DT_U64);
        keep(&b, rig_cast(b.r, tame(&b, x, from, to), to), ulps, "%s to %s", dtype_name(from), dtype_name(to));
        if (from != DT_BOOL && to != DT_BOOL && dtype_size(from) == dtype_size(to))
          keep(&b, rig_bitcast(b.r, x, to), 0, "%s bits as %s", dtype_name(from), dtype_name(to));
      }
      run_all(&b, (const enum dtype[]){all[t]});
    }
}

// F16 is for loading, storing, bits, and casts from and to F32.
static void test_half(void **state) {
  (void)state;
  cpu_target cpu = rig_cpu();
  if (!cpu.has.f16c) skip();
  for (size_t w = 0; w < COUNT(widths); w++) {
    bench b = start(widths[w]);
    uop *h = rig_buf(b.r, DT_F16, N), *f = rig_buf(b.r, DT_F32, N), *u = rig_buf(b.r, DT_U16, N);
    begin_loop(&b);
    uop *x = input(&b, h, DT_F16), *y = input(&b, f, DT_F32), *z = input(&b, u, DT_U16);
    keep(&b, rig_cast(b.r, x, DT_F32), 0, "f16 to f32");
    keep(&b, rig_cast(b.r, y, DT_F16), 0, "f32 to f16");
    keep(&b, x, 0, "f16");
    keep(&b, rig_bitcast(b.r, x, DT_U16), 0, "f16 bits");
    uop *single = rig_cast(b.r, rig_bitcast(b.r, rig2(b.r, OP_AND, z, cst(&b, DT_U16, 0xbfff)), DT_F16), DT_F32);
    keep(&b, single, 0, "bits as f16, to f32");
    uop *tie = rig_bitcast(b.r, rig2(b.r, OP_OR, rig_bitcast(b.r, single, DT_U32), cst(&b, DT_U32, 0x1000)), DT_F32);
    keep(&b, rig_cast(b.r, tie, DT_F16), 0, "half way between two f16");
    // which NaN becomes which is open
    uop *number = rig3(b.r, OP_WHERE, rig2(b.r, OP_CMPEQ, y, y), y, cst(&b, DT_F32, 1));
    keep(&b, rig_bitcast(b.r, rig_cast(b.r, number, DT_F16), DT_I16), 0, "bits of f32 as f16");
    run_all(&b, (const enum dtype[]){DT_F16, DT_F32, DT_U16});
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_arithmetic), cmocka_unit_test(test_fused),
                                     cmocka_unit_test(test_casts), cmocka_unit_test(test_half)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
