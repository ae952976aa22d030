// Doubles as kernels compute them in Metal's language and in OpenCL C (render/soft_doubles.h), and in SPIR-V
// (render/spirv_doubles.c), bit by bit against this machine's: edges with edges, random numbers of all sizes, and
// numbers that nearly cancel, where rounding twice or losing a bit shows.
#define _GNU_SOURCE
#include <fenv.h>
#include "device/group_programs.h"
#include "render/soft_doubles.h"

enum { COUNT_OF = 1 << 18 };
enum what { ADD, SUB, MUL, DIV, FMA, SQRT, FLOOR, TRUNC, MAX, MIN, LESS, EQUAL, TO_FLOAT, OF_FLOAT, OF_LONG, OF_ULONG,
            TO_LONG, TO_ULONG, WHATS };
static const char *const names[WHATS] = {"add", "sub", "mul", "div", "fma", "sqrt", "floor", "trunc", "max", "min",
                                         "less", "equal", "to_float", "of_float", "of_long", "of_ulong", "to_long",
                                         "to_ulong"};
static const char *const calls[WHATS] = {
  "f64_add(x, y)",       "f64_sub(x, y)",           "f64_mul(x, y)",         "f64_div(x, y)",
  "f64_fma(x, y, z)",    "f64_sqrt(x)",             "f64_floor(x)",          "f64_trunc(x)",
  "f64_max(x, y)",       "f64_min(x, y)",           "f64_less(x, y)",        "f64_equal(x, y)",
  "F64_UINT_OF(f64_to_float(x))", "f64_of_float(F64_FLOAT_OF((uint)x))", "f64_of_long((long)x)",
  "f64_of_ulong(x)",     "(ulong)f64_to_long(x)",   "f64_to_ulong(x)"};

static double of_bits(uint64_t x) { double v; memcpy(&v, &x, 8); return v; }
static uint64_t bits_of(double v) { uint64_t x; memcpy(&x, &v, 8); return x; }
static uint32_t float_bits(float v) { uint32_t x; memcpy(&x, &v, 4); return x; }

static uint64_t expected(enum what w, uint64_t a, uint64_t b, uint64_t c) {
  double x = of_bits(a), y = of_bits(b), z = of_bits(c);
  float f;
  switch (w) {
  case ADD: return bits_of(x + y);
  case SUB: return bits_of(x - y);
  case MUL: return bits_of(x * y);
  case DIV: return bits_of(x / y);
  case FMA: return bits_of(fma(x, y, z));
  case SQRT: return bits_of(sqrt(x));
  case FLOOR: return bits_of(floor(x));
  case TRUNC: return bits_of(trunc(x));
  case MAX: return x < y ? b : a;
  case MIN: return y < x ? b : a;
  case LESS: return x < y;
  case EQUAL: return x == y;
  case TO_FLOAT: return float_bits((float)x);
  case OF_FLOAT: memcpy(&f, &a, 4); return bits_of((double)f);
  case OF_LONG: return bits_of((double)(int64_t)a);
  case OF_ULONG: return bits_of((double)a);
  case TO_LONG: return fabs(x) < 0x1p63 ? (uint64_t)(int64_t)x : 0;
  case TO_ULONG: return x > -1 && x < 0x1p64 ? (uint64_t)x : 0;
  case WHATS: break;
  }
  return 0;
}

// any value will do there
static bool left_open(enum what w, uint64_t a) {
  double x = of_bits(a);
  return (w == TO_LONG && !(fabs(x) < 0x1p63)) || (w == TO_ULONG && !(x > -1 && x < 0x1p64));
}

// Either number may come out: graphs exchange what MAX and MIN are of.
static bool either(enum what w, uint64_t a, uint64_t b, uint64_t got) {
  double x = of_bits(a), y = of_bits(b);
  return (w == MAX || w == MIN) && !(x < y) && !(y < x) && (got == a || got == b);
}

static bool is_nan_of(enum what w, uint64_t x) {
  if (w == TO_FLOAT) return (x & 0x7fffffff) > 0x7f800000;
  return w < LESS || (w > TO_FLOAT && w < TO_LONG) ? of_bits(x) != of_bits(x) : false;
}

static uint64_t some(uint64_t *seed, int kind) {
  static const uint64_t edges[] = {0, 1, 2, 0xfffffffffffff, 0x10000000000000, 0x10000000000001, 0x3ff0000000000000,
                                   0x3ff0000000000001, 0x3fefffffffffffff, 0x3fe0000000000000, 0x4340000000000000,
                                   0x7fefffffffffffff, 0x7ff0000000000000, 0x7ff8000000000000, 0x47efffffe0000000,
                                   0x47efffffefffffff, 0x47effffff0000000, 0x36a0000000000000, 0x3690000000000000,
                                   0x380fffffffffffff, 0x43e0000000000000, 0x43dfffffffffffff, 0x7ca0000000000000};
  uint64_t v = rig_random(seed), sign = v << 63, whole = v >> 12;
  switch (kind) {
  case 0: return edges[v / 2 % COUNT(edges)] | sign;
  case 1: return v;                                                            // any size
  case 2: return sign | (1003 + (v >> 1) % 40) << 52 | whole;                  // near one
  case 3: return sign | (v >> 1) % 8 << 52 | whole;                            // hardly normal, and smaller
  case 4: return sign | (1003 + (v >> 1) % 40) << 52 | (whole & 0xfffff00000000);  // few bits: ties
  default: return v >> (v & 63);                                               // whole numbers, for conversions
  }
}

static void fill(uint64_t *a, uint64_t *b, uint64_t *c) {
  uint64_t seed = 5;
  for (int i = 0; i < COUNT_OF; i++) {
    int kind = (int)(rig_random(&seed) % 8);
    a[i] = some(&seed, kind % 6);
    b[i] = some(&seed, kind < 4 ? kind : (int)(rig_random(&seed) % 6));
    c[i] = some(&seed, kind < 5 ? kind : (int)(rig_random(&seed) % 6));
    if (kind == 6) c[i] = bits_of(-of_bits(a[i]) * of_bits(b[i])) + rig_random(&seed) % 3 - 1;
    if (kind == 7) b[i] = (a[i] ^ 1ull << 63) + rig_random(&seed) % 5 - 2;
  }
}

// Results of one operation beside this machine's; how many differ, the first of them printed.
static int compare(enum what w, uint64_t *const a[4]) {
  int bad = 0;
  for (int i = 0; i < COUNT_OF && bad < 20; i++) {
    uint64_t want = expected(w, a[0][i], a[1][i], a[2][i]), got = a[3][i];
    if (got == want || left_open(w, a[0][i]) || either(w, a[0][i], a[1][i], got)) continue;
    if (is_nan_of(w, want) && is_nan_of(w, got)) continue;
    fprintf(stderr, "%s(%016llx, %016llx, %016llx): %016llx, should be %016llx\n", names[w],
            (unsigned long long)a[0][i], (unsigned long long)a[1][i], (unsigned long long)a[2][i],
            (unsigned long long)got, (unsigned long long)want);
    bad++;
  }
  return bad;
}

static void write_body(str *text, const char *number, const char *operation) {
  str_addf(text, "  ulong x = a[%s], y = b[%s], z = c[%s];\n  switch (%s) {\n", number, number, number, operation);
  for (int w = 0; w < WHATS; w++) str_addf(text, "  case %d: out[%s] = %s; break;\n", w, number, calls[w]);
  str_add(text, "  }\n");
}

static void make_numbers(uint64_t *a[4]) {
  for (int i = 0; i < 4; i++) a[i] = xcalloc(COUNT_OF, sizeof **a);
  fill(a[0], a[1], a[2]);
  assert_int_equal(fegetround(), FE_TONEAREST);
}

static void test_metal(void **state) {
  (void)state;
  str text = {0};
  char why[600] = "";
  uint64_t *a[4];
  str_add(&text, "#include <metal_stdlib>\nusing namespace metal;\n");
  soft_doubles_write(&text, &(struct soft_doubles_words){"inline", "as_type<uint>", "as_type<float>"});
  str_add(&text, "kernel void all(device const ulong *a [[buffer(0)]], device const ulong *b [[buffer(1)]], device "
                 "const ulong *c [[buffer(2)]], device ulong *out [[buffer(3)]], constant long *vars [[buffer(4)]], "
                 "uint3 group [[threadgroup_position_in_grid]], uint3 item [[thread_position_in_threadgroup]]) {\n");
  write_body(&text, "group.x", "vars[0]");
  str_add(&text, "  (void)z;\n  (void)item;\n}\n");
  metal_kernel *k = metal_compile(str_c(&text), "all", 4, 1, why, sizeof why);
  if (!k) fail_msg("%s", why);
  make_numbers(a);
  int bad = 0;
  for (int w = 0; w < WHATS; w++) {
    const unsigned grid[3] = {COUNT_OF, 1, 1}, one[3] = {1, 1, 1};
    assert_int_equal(metal_run(k, grid, one, (void **)a, &(int64_t){w}, false, why, sizeof why), 0);
    bad += compare((enum what)w, a);
  }
  assert_int_equal(bad, 0);
  metal_kernel_free(k);
  for (int i = 0; i < 4; i++) free(a[i]);
  str_free(&text);
}

// The arguments are those of a program with four buffers and a variable, as render/opencl.c has them.
static void test_opencl(void **state) {
  (void)state;
  cl *device = NULL;
  error err = {0};
  str text = {0};
  uint64_t *a[4];
  graph *g = graph_new(NULL);
  struct program_buf bufs[4];
  uop *var = uop_var(g, "what", 0, WHATS - 1);
  program p = {.name = "bits", .bufs = bufs, .n_bufs = 4, .vars = &var, .n_vars = 1, .graph = g};
  p.global[0] = uop_idx(g, COUNT_OF / 64);
  p.local[0] = uop_idx(g, 64);
  for (int i = 0; i < 4; i++) bufs[i] = (struct program_buf){.dt = DT_U64, .elems = COUNT_OF, .written = i == 3};
  soft_doubles_write(&text, &(struct soft_doubles_words){"static", "as_uint", "as_float"});
  str_add(&text,
          "__kernel void bits(__global const ulong *a, __global const ulong *b, __global const ulong *c, __global "
          "ulong *out, long o0, long o1, long o2, long o3, long what) {\n");
  write_body(&text, "get_global_id(0)", "what");
  str_add(&text, "}\n");
  if (cl_open("", &device, &err)) rig_fail("open", &err, NULL);
  cl_code *k = cl_compile(device, &p, str_c(&text), &err);
  if (!k) rig_fail("compile", &err, str_c(&text));
  make_numbers(a);
  int bad = 0;
  for (int w = 0; w < WHATS; w++) {
    if (cl_launch(k, (unsigned char **)a, NULL, &(int64_t){w}, 0, 0, &err)) rig_fail("launch", &err, NULL);
    bad += compare((enum what)w, a);
  }
  assert_int_equal(bad, 0);
  cl_code_free(k);
  cl_close(device);
  graph_free(g);
  for (int i = 0; i < 4; i++) free(a[i]);
  str_free(&text);
}

// One operation over elements of the buffers; its bits.
static uop *value_of(rig *r, enum what w, uop *x, uop *y, uop *z) {
  static const enum op ops[] = {[ADD] = OP_ADD, [SUB] = OP_SUB, [MUL] = OP_MUL, [DIV] = OP_FDIV, [MAX] = OP_MAX,
                                [MIN] = OP_MIN, [LESS] = OP_CMPLT, [EQUAL] = OP_CMPEQ, [SQRT] = OP_SQRT,
                                [FLOOR] = OP_FLOOR, [TRUNC] = OP_TRUNC};
  uop *bits = rig_bitcast(r, x, DT_U64);
  switch (w) {
  case FMA: return rig3(r, OP_FMA, x, y, z);
  case SQRT: case FLOOR: case TRUNC: return rig1(r, ops[w], x);
  case TO_FLOAT: return rig_cast(r, rig_bitcast(r, rig_cast(r, x, DT_F32), DT_U32), DT_U64);
  case OF_FLOAT: return rig_cast(r, rig_bitcast(r, rig_cast(r, bits, DT_U32), DT_F32), DT_F64);
  case OF_LONG: return rig_cast(r, rig_bitcast(r, bits, DT_I64), DT_F64);
  case OF_ULONG: return rig_cast(r, bits, DT_F64);
  case TO_LONG: return rig_cast(r, rig_cast(r, x, DT_I64), DT_U64);
  case TO_ULONG: return rig_cast(r, x, DT_U64);
  default: return rig_cast(r, rig2(r, ops[w], x, y), w == LESS || w == EQUAL ? DT_U64 : DT_F64);
  }
}

static void test_spirv(void **state) {
  (void)state;
  vk *device = rig_vulkan_device();
  if (!device) skip();
  render_options o = vk_render_options(device);
  uint64_t *a[4];
  int bad = 0;
  o.spirv &= ~(unsigned)SPIRV_F64;
  make_numbers(a);
  for (int w = 0; w < WHATS; w++) {
    rig *r = rig_new();
    uop *in[3], *to = NULL;
    for (int i = 0; i < 4; i++) *(i < 3 ? &in[i] : &to) = rig_buf(r, i < 3 ? DT_F64 : DT_U64, COUNT_OF);
    uop *at = rig2(r, OP_ADD, rig2(r, OP_MUL, special(r, "g0", COUNT_OF / 64), i32(r, 64)), special(r, "l0", 64));
    for (int i = 0; i < 3; i++) in[i] = rig_load(r, rig_index(r, in[i], at), DT_F64, 1);
    store(r, rig_index(r, to, at), rig_bitcast(r, value_of(r, (enum what)w, in[0], in[1], in[2]), DT_U64));
    program *p = rig_program(r, names[w]);
    p->global[0] = uop_idx(r->g, COUNT_OF / 64);
    p->local[0] = uop_idx(r->g, 64);
    error err = {0};
    vk_code *k = rig_vulkan_compile_with(p, &o);
    if (vk_launch(k, (unsigned char **)a, NULL, NULL, 0, 0, &err)) rig_fail("launch", &err, NULL);
    bad += compare((enum what)w, a);
    vk_code_free(k);
    rig_free(r);
  }
  assert_int_equal(bad, 0);
  for (int i = 0; i < 4; i++) free(a[i]);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_metal), cmocka_unit_test(test_opencl),
                                     cmocka_unit_test(test_spirv)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
