// Random programs from fixed seeds: the same results on all back ends and in the interpreter, bit for bit.
//
// Exactness where the interpreter computes in double precision: every result of an F32 operation goes through its bits
// (two BITCASTs, which round there and are nothing elsewhere), and sums, products, quotients and roots of floats
// rounded twice, by way of a double, are the same as rounded once.  What does not have that property (an F32
// multiply-add, a 64-bit integer to F32) is left to test_ops.
#define _GNU_SOURCE
#define RIG_CC_FLAGS \
  "-Wno-tautological-compare -Wno-unused-variable -Wno-unused-but-set-variable -fsanitize=signed-integer-overflow " \
  "-fsanitize-undefined-trap-on-error"     // programs without sense
#include "rig.h"

enum { TILES = 3, SLOTS = 24, LANES = 16, POOL = 160, PROGRAMS = 120 };
enum { IN_BYTES, IN_F32, IN_F64, OUT_BOOL, OUT_8, OUT_16, OUT_32, OUT_64, OUT_F32, OUT_F64, BUFFERS };

typedef struct fuzz {
  rig *r;
  uint64_t seed;
  bool has_fma;
  int lanes, n, slots[BUFFERS];
  uop *pool[POOL];
  uop *buf[BUFFERS], *tile;
} fuzz;

static const enum dtype types[] = {DT_I8,  DT_U8,  DT_I16, DT_U16, DT_I32, DT_U32,
                                   DT_I64, DT_U64, DT_F32, DT_F64, DT_BOOL};

static int64_t pick(fuzz *f, int64_t n) { return (int64_t)(rig_random(&f->seed) % (uint64_t)n); }
static uop *cst(fuzz *f, enum dtype d, int lanes, double v) {
  return rig_splat(f->r, dtype_is_float(d) ? rig_float(f->r, d, v) : rig_int(f->r, d, (int64_t)v), lanes);
}

// Rounds an F32 in the interpreter, too.
static uop *rounded(fuzz *f, uop *x) {
  return x->dt == DT_F32 ? rig_bitcast(f->r, rig_bitcast(f->r, x, DT_U32), DT_F32) : x;
}

static void keep(fuzz *f, uop *x) { if (f->n < POOL) f->pool[f->n++] = rounded(f, x); }

static uop *constant(fuzz *f, enum dtype d, int lanes) {
  static const double few[] = {0, 1, -1, 2, 3, 0.5, -2.75, 100, 7};
  double v = few[pick(f, COUNT(few))];
  if (d == DT_BOOL) return rig_splat(f->r, rig_int(f->r, d, pick(f, 2)), lanes);
  if (!dtype_is_float(d)) v = trunc(v);
  return cst(f, d, lanes, v);
}

// Some value of this type: from the pool if there is one.
static uop *some(fuzz *f, enum dtype d, int lanes) {
  int at = f->n ? (int)pick(f, f->n) : 0;
  for (int i = 0; i < f->n; i++) {
    uop *u = f->pool[(at + i) % f->n];
    if (u->dt == d && u->lanes == lanes) return u;
  }
  return constant(f, d, lanes);
}

static uop *index_of(fuzz *f, int64_t base, int lanes) {
  uop *i = rig2(f->r, OP_MUL, f->tile, rig_int(f->r, DT_I64, (int64_t)SLOTS * LANES));
  (void)lanes;
  return rig2(f->r, OP_ADD, i, rig_int(f->r, DT_I64, base));
}

static void load(fuzz *f, enum dtype d, int lanes) {
  rig *r = f->r;
  if (d == DT_F32 || d == DT_F64)
    keep(f,
         rig_load(r, rig_index(r, f->buf[d == DT_F32 ? IN_F32 : IN_F64], index_of(f, pick(f, 100), lanes)), d, lanes));
  else if (d == DT_BOOL) keep(f, rig2(r, OP_CMPLT, some(f, DT_I32, lanes), some(f, DT_I32, lanes)));
  else keep(f, rig_load(r, rig_index(r, f->buf[IN_BYTES], index_of(f, pick(f, 100), lanes)), d, lanes));
}

static void gather(fuzz *f, int lanes) {
  rig *r = f->r;
  uop *i = rig2(r, OP_AND, rig_cast(r, some(f, types[pick(f, 8)], lanes), DT_I64), cst(f, DT_I64, lanes, 63));
  static const struct {
    int buf;
    enum dtype d;
  } from[] = {{IN_BYTES, DT_U8}, {IN_BYTES, DT_I32}, {IN_F32, DT_F32}, {IN_F64, DT_F64}};
  int64_t k = pick(f, COUNT(from));
  keep(f, rig_load(r, rig_index(r, f->buf[from[k].buf], i), from[k].d, lanes));
}

static void cast(fuzz *f, int lanes) {
  rig *r = f->r;
  enum dtype to = types[pick(f, COUNT(types))];
  uop *x = f->pool[pick(f, f->n)];
  if (x->lanes != lanes) return;
  enum dtype from = (enum dtype)x->dt;
  if (to == DT_F32 && (from == DT_I64 || from == DT_U64)) to = DT_F64;
  if (dtype_is_float(from) && !dtype_is_float(to) && to != DT_BOOL) {
    uop *fits = rig2(r, OP_AND, rig2(r, OP_CMPLT, x, cst(f, from, lanes, 120)),
                     rig2(r, OP_CMPLT, cst(f, from, lanes, dtype_is_unsigned(to) ? -0.5 : -120), x));
    x = rig3(r, OP_WHERE, fits, x, cst(f, from, lanes, 42));
  }
  if (from != to) keep(f, rig_cast(r, x, to));
}

static void integer_op(fuzz *f, enum dtype d, int lanes) {
  rig *r = f->r;
  static const enum op ops[] = {OP_ADD,   OP_SUB,   OP_MUL,   OP_MAX, OP_MIN, OP_AND, OP_OR,   OP_XOR,
                                OP_CMPLT, OP_CMPEQ, OP_CMPNE, OP_NEG, OP_SHL, OP_SHR, OP_CDIV, OP_CMOD};
  enum op op = ops[pick(f, COUNT(ops))];
  uop *x = some(f, d, lanes), *y = some(f, d, lanes);
  if (op == OP_NEG) { keep(f, rig1(r, op, x)); return; }
  if (op == OP_SHL || op == OP_SHR) y = rig2(r, OP_AND, y, cst(f, d, lanes, 8 * dtype_size(d) - 1));
  if (op == OP_CDIV || op == OP_CMOD) {
    y = rig3(r, OP_WHERE, rig2(r, OP_CMPEQ, y, cst(f, d, lanes, 0)), cst(f, d, lanes, 3), y);
    if (!dtype_is_unsigned(d))
      y = rig3(r, OP_WHERE, rig2(r, OP_CMPEQ, y, cst(f, d, lanes, -1)), cst(f, d, lanes, 5), y);
  }
  keep(f, rig2(r, op, x, y));
}

static void float_op(fuzz *f, enum dtype d, int lanes) {
  rig *r = f->r;
  static const enum op ops[] = {OP_ADD,   OP_SUB,   OP_MUL, OP_FDIV, OP_MAX,   OP_MIN,   OP_CMPLT,
                                OP_CMPEQ, OP_CMPNE, OP_NEG, OP_SQRT, OP_TRUNC, OP_FLOOR, OP_FMA};
  enum op op = ops[pick(f, COUNT(ops))];
  uop *x = some(f, d, lanes), *y = some(f, d, lanes);
  if (op == OP_FMA && (d == DT_F32 || !f->has_fma)) op = OP_MUL;
  keep(f, op_arity(op) == 1 ? rig1(r, op, x) : op == OP_FMA ? rig3(r, op, x, y, some(f, d, lanes)) : rig2(r, op, x, y));
}

static void vector_op(fuzz *f) {
  rig *r = f->r;
  uop *x = f->pool[pick(f, f->n)];
  enum dtype d = (enum dtype)x->dt;
  if (x->lanes == 1) { if (f->lanes > 1) keep(f, rig_splat(r, x, f->lanes)); return; }
  int n = x->lanes, which[LANES];
  switch (pick(f, 4)) {
  case 0: keep(f, rig_op(r, OP_EXTRACT, d, 1, (uarg){.a = pick(f, n)}, 1, &x)); break;
  case 1: {
    bool two = pick(f, 2);
    for (int i = 0; i < n; i++) which[i] = (int)pick(f, two ? 2 * n : n);
    keep(f, rig_shuffle(r, x, two ? some(f, d, n) : NULL, n, which));
    break;
  }
  case 2: {
    uop *s[LANES];
    for (int i = 0; i < n; i++) s[i] = some(f, d, 1);
    keep(f, rig_op(r, OP_STACK, d, n, (uarg){0}, (size_t)n, s));
    break;
  }
  default: {
    static const enum op any[] = {OP_MAX, OP_MIN, OP_ADD, OP_MUL}, logic[] = {OP_AND, OP_OR, OP_XOR};
    enum op op = d == DT_BOOL ? logic[pick(f, 3)] : any[pick(f, d == DT_F32 ? 2 : 4)];
    keep(f, rig_op(r, OP_HREDUCE, d, 1, (uarg){.a = op}, 1, &x));
  }
  }
}

static void one_op(fuzz *f) {
  int lanes = pick(f, 3) ? f->lanes : 1;
  enum dtype d = types[pick(f, COUNT(types))];
  switch (pick(f, 10)) {
  case 0: load(f, d, lanes); break;
  case 1: if (f->n) cast(f, lanes); break;
  case 2: if (f->n) vector_op(f); break;
  case 3: keep(f, rig3(f->r, OP_WHERE, some(f, DT_BOOL, lanes), some(f, d, lanes), some(f, d, lanes))); break;
  case 4: gather(f, lanes); break;
  default:
    if (d == DT_BOOL)
      keep(f, rig2(f->r, (enum op[]){OP_AND, OP_OR, OP_XOR, OP_CMPEQ, OP_CMPLT}[pick(f, 5)], some(f, d, lanes),
                   some(f, d, lanes)));
    else if (dtype_is_float(d)) float_op(f, d, lanes);
    else integer_op(f, d, lanes);
  }
}

static int out_of(enum dtype d) {
  if (d == DT_BOOL) return OUT_BOOL;
  if (d == DT_F32) return OUT_F32;
  if (d == DT_F64) return OUT_F64;
  int size = dtype_size(d);
  return size == 1 ? OUT_8 : size == 2 ? OUT_16 : size == 4 ? OUT_32 : OUT_64;
}

static void store(fuzz *f, uop *x) {
  int b = out_of((enum dtype)x->dt);
  if (f->slots[b] == SLOTS) return;
  rig_store(f->r, rig_index(f->r, f->buf[b], index_of(f, (int64_t)f->slots[b]++ * LANES, x->lanes)), x);
}

// Variables that a loop and a condition change.
static void loop(fuzz *f) {
  rig *r = f->r;
  uop *acc[4];
  int n = 1 + (int)pick(f, 4), outside = f->n;
  for (int i = 0; i < n; i++) acc[i] = rig_acc(r, some(f, types[pick(f, COUNT(types))], pick(f, 2) ? f->lanes : 1));
  uop *i = rig_range(r, pick(f, 4) ? rig_int(r, DT_I64, pick(f, 5)) : f->tile, AXIS_REDUCE);
  keep(f, i);
  for (int k = 0; k < n; k++) f->pool[f->n++] = acc[k];
  for (int k = 0; k < 12; k++) one_op(f);
  rig_set(r, acc[0], some(f, (enum dtype)acc[0]->dt, acc[0]->lanes));
  uop *cond = some(f, DT_BOOL, 1);
  int before = f->n;
  rig_op(r, OP_IF, DT_VOID, 1, (uarg){0}, 1, &cond);
  for (int k = 0; k < 4; k++) one_op(f);
  rig_set(r, acc[n - 1], some(f, (enum dtype)acc[n - 1]->dt, acc[n - 1]->lanes));
  store(f, f->pool[f->n - 1]);
  f->n = before;
  rig_op(r, OP_ENDIF, DT_VOID, 1, (uarg){0}, 0, NULL);
  if (n > 2) rig_set(r, acc[1], some(f, (enum dtype)acc[1]->dt, acc[1]->lanes));
  rig_end(r, i);
  f->n = outside;
  for (int k = 0; k < n; k++) f->pool[f->n++] = acc[k];
}

static void make(fuzz *f) {
  rig *r = f->r;
  static const enum dtype mem[] = {DT_U8, DT_F32, DT_F64, DT_BOOL, DT_I8, DT_I16, DT_I32, DT_I64, DT_F32, DT_F64};
  for (int b = 0; b < BUFFERS; b++) f->buf[b] = rig_buf(r, mem[b], TILES * SLOTS * LANES + (b < OUT_BOOL ? 512 : 0));
  f->tile = rig_range(r, rig_int(r, DT_I64, TILES), AXIS_GLOBAL);
  keep(f, f->tile);
  for (size_t t = 0; t < COUNT(types); t++) { load(f, types[t], f->lanes); load(f, types[t], 1); }
  for (int k = 0; k < 20; k++) one_op(f);
  for (int k = (int)pick(f, 3); k > 0; k--) loop(f);
  for (int k = 0; k < 20; k++) one_op(f);
  for (int k = 0; k < f->n; k++) store(f, f->pool[f->n - 1 - k]);
  rig_end(r, f->tile);
}

static void test_programs(void **state) {
  (void)state;
  static const int widths[] = {1, 4, 16, 8, 2};
  bool has_fma = rig_cpu().has.fma;
  const char *only = getenv("FUZZ_ONLY"), *many = getenv("FUZZ_PROGRAMS");
  for (int i = 0; i < (many ? atoi(many) : PROGRAMS); i++) {
    if (only && atoi(only) != i) continue;
    fuzz f = {.r = rig_new(), .seed = 1000003u * (unsigned)i, .lanes = widths[i % 5],
              .has_fma = has_fma && i % 6 != 1};        // SPIR-V has none
    f.r->salted = true;
    make(&f);
    char name[32];
    snprintf(name, sizeof name, "fuzz_%d", i);
    rig_check(f.r, name, NULL, 0, TILES,
              RIG_LLVM | (i % 4 == 0 ? RIG_GCC : 0) | (i % 8 == 0 ? RIG_CLANG : 0) | (i % 6 == 0 ? RIG_CL : 0) |
                (i % 6 == 3 ? RIG_METAL : 0) | (i % 6 == 1 ? RIG_VK : 0) | (i % 6 == 5 ? RIG_PTX : 0),
              0);
    rig_free(f.r);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_programs)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
