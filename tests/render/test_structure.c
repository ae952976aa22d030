// Loops, variables, conditions, memory and vectors in the renderers: each program is run by every back end and by the
// interpreter, and all buffers are compared afterwards.
#define _GNU_SOURCE
#include "rig.h"

static uop *cidx(rig *r, int64_t v) { return rig_int(r, DT_I64, v); }
static void open_if(rig *r, uop *cond) { rig_op(r, OP_IF, DT_VOID, 1, (uarg){0}, 1, &cond); }
static void close_if(rig *r) { rig_op(r, OP_ENDIF, DT_VOID, 1, (uarg){0}, 0, NULL); }
static uop *extract(rig *r, uop *v, int lane) {
  return rig_op(r, OP_EXTRACT, (enum dtype)v->dt, 1, (uarg){.a = lane}, 1, &v);
}
static uop *hreduce(rig *r, enum op op, uop *v) {
  return rig_op(r, OP_HREDUCE, (enum dtype)v->dt, 1, (uarg){.a = op}, 1, &v);
}
static uop *lane_numbers(rig *r, enum dtype d, int lanes) { return rig_op(r, OP_LANE, d, lanes, (uarg){0}, 0, NULL); }
// an integer buffer as floats whose sums are exact
static uop *small_float(rig *r, uop *buf, uop *i, int lanes) {
  return rig_cast(r, rig_load(r, rig_index(r, buf, i), DT_I8, lanes), DT_F32);
}

// A matrix times a vector, with the length a variable (0 included), 16 rows in a vector or one at a time.
static void test_matvec(void **state) {
  (void)state;
  for (int lanes = 1; lanes <= 16; lanes *= 16)
    for (int64_t length = 0; length <= 20; length += 10) {
      rig *r = rig_new();
      uop *w = rig_buf(r, DT_I8, 20 * 64), *x = rig_buf(r, DT_I8, 20), *out = rig_buf(r, DT_F32, 64),
          *n = rig_var(r, "n", 0, 20);
      uop *zero = rig_splat(r, rig_float(r, DT_F32, 0), lanes);
      uop *t = rig_range(r, cidx(r, 64 / lanes), AXIS_GLOBAL), *row = rig2(r, OP_MUL, t, cidx(r, lanes));
      uop *acc = rig_acc(r, zero), *i = rig_range(r, n, AXIS_REDUCE);
      uop *a = small_float(r, w, rig2(r, OP_ADD, rig2(r, OP_MUL, i, cidx(r, 64)), row), lanes);
      uop *b = rig_splat(r, small_float(r, x, i, 1), lanes);
      rig_set(r, acc, rig2(r, OP_ADD, acc, rig2(r, OP_MUL, a, b)));
      rig_end(r, i);
      rig_store(r, rig_index(r, out, row), acc);
      rig_end(r, t);
      // not the first and last tile
      rig_check(r, "matvec", &length, 1, 64 / lanes - 1, length ? RIG_ALL : RIG_CPU, 0);
      rig_free(r);
    }
}

// Two variables that depend on each other, nested loops, and a variable that is set in both.
static void test_variables(void **state) {
  (void)state;
  rig *r = rig_new();
  uop *out = rig_buf(r, DT_I64, 64), *n = rig_var(r, "count", 1, 9);
  uop *a = rig_acc(r, cidx(r, 0)), *b = rig_acc(r, cidx(r, 1)), *steps = rig_acc(r, cidx(r, 0));
  uop *i = rig_range(r, n, AXIS_LOOP);
  uop *old = rig2(r, OP_ADD, a, cidx(r, 0));                   // the value here, not the one after the SET
  uop *next = rig2(r, OP_ADD, a, b);
  rig_set(r, a, b);
  rig_set(r, b, next);
  rig_store(r, rig_index(r, out, i), old);
  uop *inner = rig_acc(r, old), *j = rig_range(r, i, AXIS_LOOP);  // runs 0 times at first
  rig_set(r, inner, rig2(r, OP_MUL, inner, cidx(r, 3)));
  rig_set(r, steps, rig2(r, OP_ADD, steps, cidx(r, 1)));
  rig_end(r, j);
  rig_store(r, rig_index(r, out, rig2(r, OP_ADD, i, cidx(r, 16))), inner);
  rig_end(r, i);
  rig_store(r, rig_index(r, out, cidx(r, 40)), steps);
  rig_store(r, rig_index(r, out, cidx(r, 41)), b);
  rig_check(r, "fibonacci", (int64_t[]){9}, 0, 0, RIG_ALL, 0);
  rig_free(r);
}

static void test_conditions(void **state) {
  (void)state;
  rig *r = rig_new();
  uop *x = rig_buf(r, DT_I32, 64), *out = rig_buf(r, DT_I32, 64), *seven = rig_int(r, DT_I32, 7),
      *zero = rig_int(r, DT_I32, 0);
  uop *biggest = rig_acc(r, zero), *count = rig_acc(r, zero);
  uop *i = rig_range(r, cidx(r, 64), AXIS_LOOP), *v = rig_load(r, rig_index(r, x, i), DT_I32, 1);
  open_if(r, rig2(r, OP_CMPLT, biggest, v));
  rig_set(r, biggest, v);
  uop *odd = rig2(r, OP_CMPNE, rig2(r, OP_AND, v, rig_int(r, DT_I32, 1)), zero);
  open_if(r, odd);
  rig_set(r, count, rig2(r, OP_ADD, count, seven));
  rig_store(r, rig_index(r, out, i), v);
  close_if(r);
  close_if(r);
  rig_end(r, i);
  open_if(r, rig2(r, OP_CMPLT, zero, count));
  rig_store(r, rig_index(r, out, cidx(r, 3)), biggest);
  rig_store(r, rig_index(r, out, cidx(r, 4)), count);
  close_if(r);
  rig_check(r, "conditions", NULL, 0, 0, RIG_ALL, 0);
  rig_free(r);
}

// A load stays where it is although its only use comes after a store to the same place.
static void test_order_of_memory(void **state) {
  (void)state;
  rig *r = rig_new();
  uop *x = rig_buf(r, DT_I32, 64), *y = rig_buf(r, DT_I32, 64), *one = rig_var(r, "one", 0, 1);
  uop *i = rig_range(r, cidx(r, 63), AXIS_LOOP), *at = rig_index(r, x, i),
      *after = rig_index(r, x, rig2(r, OP_ADD, i, cidx(r, 1)));
  uop *here = rig_load(r, at, DT_I32, 1), *there = rig_load(r, after, DT_I32, 1);
  rig_store(r, at, rig2(r, OP_ADD, there, there));
  rig_store(r, rig_index(r, x, rig2(r, OP_ADD, i, one)), rig2(r, OP_SUB, here, rig_int(r, DT_I32, 5)));
  uop *stored = r->at.at[r->at.n - 1];
  uop *again = rig_op(r, OP_LOAD, DT_I32, 1, (uarg){0}, 2, (uop *[]){after, stored});       // what has just been stored
  rig_store(r, rig_index(r, y, i), rig2(r, OP_MUL, again, rig2(r, OP_ADD, there, rig_int(r, DT_I32, 1))));
  rig_end(r, i);
  rig_check(r, "order", (int64_t[]){1}, 0, 0, RIG_ALL, 0);
  rig_free(r);
}

// Loads and stores of every dtype at any byte, contiguous and scattered.
static void test_memory(void **state) {
  (void)state;
  static const enum dtype types[] = {DT_BOOL, DT_I8, DT_U16, DT_I32, DT_F32, DT_U64, DT_F64};
  for (size_t t = 0; t < COUNT(types); t++)
    for (int lanes = 1; lanes <= 16; lanes *= 4) {
      enum dtype d = types[t];
      int64_t size = dtype_size(d);
      rig *r = rig_new();
      uop *bytes_in = rig_buf(r, d == DT_BOOL ? DT_BOOL : DT_U8, 1200), *typed = rig_buf(r, d, 128),
          *where = rig_buf(r, DT_U8, 128);
      uop *bytes_out = rig_buf(r, DT_U8, 1200), *out = rig_buf(r, d, 128), *u16 = rig_buf(r, DT_U16, 600);
      uop *i = rig_range(r, cidx(r, 64 / lanes), AXIS_GLOBAL), *e = rig2(r, OP_MUL, i, cidx(r, lanes));
      uop *byte = rig2(r, OP_ADD, rig2(r, OP_MUL, e, cidx(r, size)), cidx(r, 3));                  // nothing is aligned
      uop *v = rig_load(r, rig_index(r, bytes_in, byte), d, lanes);
      rig_store(r, rig_index(r, bytes_out, rig2(r, OP_ADD, byte, cidx(r, 2))), v);
      rig_store(r, rig_index(r, out, e), v);
      // element numbers from memory: 0..63, then times 1 or spread over the bytes
      uop *k = rig2(r, OP_AND, rig_cast(r, rig_load(r, rig_index(r, where, e), DT_U8, lanes), DT_I64),
                    rig_splat(r, cidx(r, 63), lanes));
      uop *g = rig_load(r, rig_index(r, typed, k), d, lanes);
      uop *even = rig2(r, OP_ADD, e, cidx(r, 64));
      rig_store(r, rig_index(r, out, even), g);
      uop *spread =
        rig2(r, OP_ADD, rig2(r, OP_MUL, k, rig_splat(r, cidx(r, size), lanes)), rig_splat(r, cidx(r, 1), lanes));
      if (d != DT_BOOL || lanes == 1) {
        uop *gb = rig_load(r, rig_index(r, bytes_in, spread), d, lanes);
        uop *to = rig2(r, OP_ADD,
                       rig2(r, OP_MUL, rig2(r, OP_ADD, rig_splat(r, e, lanes), lane_numbers(r, DT_I64, lanes)),
                            rig_splat(r, cidx(r, size), lanes)),
                       rig_splat(r, cidx(r, 600), lanes));
        // a scatter without collisions
        rig_store(r, rig_index(r, bytes_out, to), gb);
      }
      // smaller than the memory's elements
      if (size <= 2) {
        rig_store(r, rig_index(r, u16, rig2(r, OP_MUL, i, cidx(r, lanes))), v);
        rig_store(r, rig_index(r, u16, rig2(r, OP_ADD, e, cidx(r, 200))),
                  rig_load(r, rig_index(r, u16, rig2(r, OP_ADD, e, cidx(r, 400))), d, lanes));
      }
      rig_end(r, i);
      char name[40];
      snprintf(name, sizeof name, "memory_%s_%d", dtype_name(d), lanes);
      rig_check(r, name, NULL, 0, 64 / lanes, lanes == 4 ? RIG_ALL : RIG_CPU | RIG_CL, 0);
      rig_free(r);
    }
}

static void test_vectors(void **state) {
  (void)state;
  static const enum dtype types[] = {DT_I8, DT_I32, DT_F32, DT_BOOL, DT_F64};
  for (size_t t = 0; t < COUNT(types); t++) {
    enum dtype d = types[t];
    rig *r = rig_new();
    uop *x = rig_buf(r, d, 64), *out = rig_buf(r, d, 256);
    uop *a = rig_load(r, rig_index(r, x, cidx(r, 0)), d, 16), *b = rig_load(r, rig_index(r, x, cidx(r, 16)), d, 16);
    static const int reverse[] = {15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0}, some[] = {0, 31, 5, 16},
                     even[] = {0, 2, 4, 6, 8, 10, 12, 14};
    static const int twice[] = {0, 0, 1, 1, 2, 2, 3, 3}, one[] = {9}, pair[] = {3, 17};
    rig_store(r, rig_index(r, out, cidx(r, 0)), rig_shuffle(r, a, NULL, 16, reverse));
    rig_store(r, rig_index(r, out, cidx(r, 16)), rig_shuffle(r, a, b, 4, some));
    uop *evens = rig_shuffle(r, b, NULL, 8, even);
    rig_store(r, rig_index(r, out, cidx(r, 24)), evens);
    rig_store(r, rig_index(r, out, cidx(r, 32)), rig_shuffle(r, evens, NULL, 8, twice));
    rig_store(r, rig_index(r, out, cidx(r, 40)), rig_shuffle(r, a, NULL, 1, one));
    rig_store(r, rig_index(r, out, cidx(r, 42)), rig_shuffle(r, a, b, 2, pair));
    uop *e3 = extract(r, a, 3), *e15 = extract(r, b, 15);
    rig_store(r, rig_index(r, out, cidx(r, 50)), e3);
    rig_store(r, rig_index(r, out, cidx(r, 52)),
              rig_op(r, OP_STACK, d, 4, (uarg){0}, 4, (uop *[]){e15, e3, e3, d == DT_BOOL ? rig_int(r, d, 1) : e15}));
    rig_store(r, rig_index(r, out, cidx(r, 56)), rig_splat(r, e15, 8));
    uop *c[4];
    for (int i = 0; i < 4; i++)
      c[i] = dtype_is_float(d) ? rig_float(r, d, i - 1.5) : rig_int(r, d, d == DT_BOOL ? i & 1 : i - 2);
    rig_store(r, rig_index(r, out, cidx(r, 64)), rig_op(r, OP_STACK, d, 4, (uarg){0}, 4, c));
    rig_store(r, rig_index(r, out, cidx(r, 68)), rig_splat(r, c[1], 4));
    if (d != DT_BOOL) {
      int at = 80;
      static const enum op ops[] = {OP_ADD, OP_MUL, OP_MAX, OP_MIN};
      for (size_t o = 0; o < COUNT(ops); o++) rig_store(r, rig_index(r, out, cidx(r, at++)), hreduce(r, ops[o], a));
      rig_store(r, rig_index(r, out, cidx(r, at++)), hreduce(r, OP_ADD, rig_shuffle(r, a, b, 2, pair)));
    } else {
      rig_store(r, rig_index(r, out, cidx(r, 80)), hreduce(r, OP_AND, a));
      rig_store(r, rig_index(r, out, cidx(r, 81)), hreduce(r, OP_OR, a));
    }
    rig_check(r, "vectors", NULL, 0, 0, RIG_ALL, d == DT_F32);
    rig_free(r);
  }
}

// Vectors wider than any machine's.
static void test_wide(void **state) {
  (void)state;
  for (int lanes = 32; lanes <= 128; lanes *= 2) {
    rig *r = rig_new();
    uop *x = rig_buf(r, DT_U8, 256), *out = rig_buf(r, DT_I32, 256), *mask_out = rig_buf(r, DT_BOOL, 256);
    uop *v = rig_cast(r, rig_load(r, rig_index(r, x, cidx(r, 5)), DT_U8, lanes), DT_I32);
    uop *big = rig2(r, OP_CMPLT, rig_splat(r, rig_int(r, DT_I32, 100), lanes), v);
    uop *w = rig3(r, OP_WHERE, big, v, lane_numbers(r, DT_I32, lanes));
    rig_store(r, rig_index(r, out, cidx(r, 0)), w);
    rig_store(r, rig_index(r, mask_out, cidx(r, 0)), big);
    rig_store(r, rig_index(r, out, cidx(r, 200)), hreduce(r, OP_ADD, w));
    rig_check(r, "wide", NULL, 0, 0, RIG_CPU | RIG_CLANG, 0);
    rig_free(r);
  }
}

// Unsigned bytes times signed bytes, four to a sum, that may wrap; in vectors of one register and of others.
static void test_dot(void **state) {
  (void)state;
  for (int lanes = 1; lanes <= 32; lanes *= 2) {
    rig *r = rig_new();
    uop *a = rig_buf(r, DT_U8, 1024), *b = rig_buf(r, DT_U32, 256), *start = rig_buf(r, DT_I32, 64),
        *out = rig_buf(r, DT_I32, 64);
    uop *acc = rig_acc(r, rig_load(r, rig_index(r, start, cidx(r, 0)), DT_I32, lanes)),
        *i = rig_range(r, cidx(r, 7), AXIS_REDUCE);
    uop *at = rig2(r, OP_MUL, i, cidx(r, lanes));
    uop *x = rig_load(r, rig_index(r, a, rig2(r, OP_MUL, at, cidx(r, 4))), DT_U8, 4 * lanes),
        *y = rig_load(r, rig_index(r, b, at), DT_U32, lanes);
    rig_set(r, acc, rig_op(r, OP_DOT, DT_I32, lanes, (uarg){0}, 3, (uop *[]){acc, x, y}));
    rig_end(r, i);
    rig_store(r, rig_index(r, out, cidx(r, 0)), acc);
    rig_check(r, "dot", NULL, 0, 0, RIG_CPU | RIG_CLANG, 0);
    rig_free(r);
  }
}

// BF16 between 1/2 and 2, of either sign, two to a sum: no sum of them needs rounding.
static void test_dot_of_brains(void **state) {
  (void)state;
  for (int lanes = 1; lanes <= 32; lanes *= 2) {
    rig *r = rig_new();
    uop *a = rig_buf(r, DT_U16, 512), *b = rig_buf(r, DT_U32, 256), *out = rig_buf(r, DT_F32, 64);
    uop *acc = rig_acc(r, rig_splat(r, rig_float(r, DT_F32, 0.75), lanes)), *i = rig_range(r, cidx(r, 7), AXIS_REDUCE),
        *at = rig2(r, OP_MUL, i, cidx(r, lanes));
    uop *x = rig_load(r, rig_index(r, a, rig2(r, OP_MUL, at, cidx(r, 2))), DT_U16, 2 * lanes),
        *y = rig_load(r, rig_index(r, b, at), DT_U32, lanes);
    x = rig2(r, OP_OR, rig2(r, OP_AND, x, rig_splat(r, rig_int(r, DT_U16, 0x80ff), 2 * lanes)),
             rig_splat(r, rig_int(r, DT_U16, 0x3f00), 2 * lanes));
    y = rig2(r, OP_OR, rig2(r, OP_AND, y, rig_splat(r, rig_int(r, DT_U32, 0x80ff80ff), lanes)),
             rig_splat(r, rig_int(r, DT_U32, 0x3f003f00), lanes));
    rig_set(r, acc, rig_op(r, OP_DOT, DT_F32, lanes, (uarg){0}, 3, (uop *[]){acc, x, y}));
    rig_end(r, i);
    rig_store(r, rig_index(r, out, cidx(r, 0)), acc);
    rig_check(r, "brains", NULL, 0, 0, RIG_CPU | RIG_CLANG, 0);
    rig_free(r);
  }
}

static void test_bits(void **state) {
  (void)state;
  rig *r = rig_new();
  uop *x = rig_buf(r, DT_U8, 64), *out = rig_buf(r, DT_U8, 256);
  uop *v = rig_load(r, rig_index(r, x, cidx(r, 0)), DT_U8, 8);
  int64_t at = 0;
  static const struct {
    enum dtype d;
    int lanes;
  } as[] = {{DT_U64, 1}, {DT_I32, 2}, {DT_U16, 4}, {DT_I8, 8}, {DT_F64, 1}};
  for (size_t i = 0; i < COUNT(as); i++, at += 16) {
    uop *w = rig_op(r, OP_BITCAST, as[i].d, as[i].lanes, (uarg){0}, 1, &v);
    rig_store(r, rig_index(r, out, cidx(r, at)), w);
    uop *back = rig_op(r, OP_BITCAST, DT_U8, 8, (uarg){0}, 1, &w);
    rig_store(r, rig_index(r, out, cidx(r, at + 8)), back);
  }
  rig_check(r, "bits", NULL, 0, 0, RIG_ALL, 0);
  rig_free(r);
}

static void test_literals(void **state) {
  (void)state;
  static const double floats[] = {0.0,     -0.0,    1,        -1,        0.1, 1e-45, 3.4028234663852886e38,
                                  1e300,   -5e-324, INFINITY, -INFINITY, NAN, 1e15,  123456789,
                                  0x1p-149};
  rig *r = rig_new();
  uop *f32 = rig_buf(r, DT_F32, 32), *f64 = rig_buf(r, DT_F64, 32), *f16 = rig_buf(r, DT_F16, 32),
      *i64 = rig_buf(r, DT_I64, 64), *u32 = rig_buf(r, DT_U32, 16), *i8 = rig_buf(r, DT_I8, 16);
  for (int i = 0; i < (int)COUNT(floats); i++) {
    rig_store(r, rig_index(r, f32, cidx(r, i)), rig_float(r, DT_F32, floats[i]));
    rig_store(r, rig_index(r, f64, cidx(r, i)), rig_float(r, DT_F64, floats[i]));
    rig_store(r, rig_index(r, f16, cidx(r, i)), rig_float(r, DT_F16, floats[i]));
  }
  static const int64_t ints[] = {0,         -1,        INT32_MAX, INT32_MIN, (int64_t)INT32_MAX + 1,
                                 INT64_MAX, INT64_MIN, 255,       -128,      65535};
  for (int i = 0; i < (int)COUNT(ints); i++) {
    rig_store(r, rig_index(r, i64, cidx(r, i)), rig_int(r, DT_I64, ints[i]));
    rig_store(r, rig_index(r, u32, cidx(r, i)), rig_int(r, DT_U32, ints[i]));
    rig_store(r, rig_index(r, i8, cidx(r, i)), rig_int(r, DT_I8, ints[i]));
    uop *u = rig_int(r, DT_U64, ints[i]), *s = rig_int(r, DT_I32, ints[i]);
    rig_store(r, rig_index(r, i64, cidx(r, i + 16)), rig2(r, OP_SUB, rig_int(r, DT_U64, 5), u));
    rig_store(r, rig_index(r, i64, cidx(r, i + 32)), rig_cast(r, s, DT_I64));
  }
  rig_check(r, "literals", NULL, 0, 0, RIG_ALL, 0);
  rig_free(r);
}

// 32-bit counters, indices and variables.
static void test_index32(void **state) {
  (void)state;
  rig *r = rig_new();
  uop *x = rig_buf(r, DT_F32, 100), *out = rig_buf(r, DT_F32, 100);
  uop *n = rig_op(r, OP_VAR, DT_I32, 1, (uarg){.b = 50, .s = "n", .s_len = 1}, 0, NULL);
  r->vars[r->n_vars++] = n;
  uop *i = rig_range(r, n, AXIS_LOOP), *j = rig2(r, OP_SUB, rig_int(r, DT_I32, 99), i);
  rig_store(r, rig_index(r, out, j), rig_load(r, rig_index(r, x, i), DT_F32, 1));
  rig_store(r, rig_index(r, out, i), rig_load(r, rig_index(r, x, rig_cast(r, j, DT_U32)), DT_F32, 1));
  rig_end(r, i);
  rig_check(r, "index32", (int64_t[]){50}, 0, 0, RIG_ALL, 0);
  rig_free(r);
}

// ---- what a renderer refuses, and what its text is ------------------------------------------------------------------

static void test_errors(void **state) {
  (void)state;
  for (int which = 0; which < 4; which++)
    for (size_t i = 0; render_at(i); i++) {
      rig *r = rig_new();
      uop *x = rig_buf(r, DT_F32, 8), *at = rig_index(r, x, cidx(r, 0)), *v = rig_load(r, at, DT_F32, 1);
      if (which == 0) rig_store(r, at, rig1(r, OP_EXP2, v));
      if (which == 1) rig_range(r, cidx(r, 5), AXIS_LOOP);
      if (which == 2) close_if(r);
      if (which == 3) rig_store(r, at, rig2(r, OP_MOD, rig_cast(r, v, DT_I32), rig_int(r, DT_I32, 3)));
      str text = {0};
      error err = {0};
      assert_int_equal(render_at(i)->render(rig_program(r, "bad"), NULL, &text, &err), -1);
      assert_non_null(strstr(err.text, "bad"));
      if (which == 0) assert_non_null(strstr(err.text, "EXP2.f32"));
      str_free(&text);
      rig_free(r);
    }
  assert_null(render_find("fortran"));
  assert_string_equal(render_find("c")->suffix, ".c");
}

// Many accesses near one address share a register for it, in a loop and under a condition inside of it; few do not.
static void test_near_addresses(void **state) {
  (void)state;
  for (int uses = 7; uses <= 8; uses++) {
    rig *r = rig_new();
    str text = {0};
    error err = {0};
    uop *x = rig_buf(r, DT_I8, 16 * 16), *y = rig_buf(r, DT_F32, 16), *z = rig_buf(r, DT_F32, 16);
    uop *t = rig_range(r, cidx(r, 16), AXIS_GLOBAL), *near = rig2(r, OP_MUL, t, cidx(r, 16)),
        *sum = small_float(r, x, near, 1);
    rig_store(r, rig_index(r, z, t), sum);
    open_if(r, rig2(r, OP_CMPLT, t, cidx(r, 9)));
    for (int i = 1; i < uses; i++)
      sum = rig2(r, OP_ADD, sum, small_float(r, x, rig2(r, OP_ADD, near, cidx(r, 2 * i)), 1));
    rig_store(r, rig_index(r, y, t), sum);
    close_if(r);
    rig_end(r, t);
    rig_check(r, "near", NULL, 0, 16, RIG_ALL, 0);
    assert_int_equal(render_find("llvm")->render(rig_program(r, "near"), NULL, &text, &err), 0);
    assert_int_equal(strstr(str_c(&text), "asm") != NULL, uses == 8);
    str_free(&text);
    rig_free(r);
  }
}

// Equal programs give equal text, whatever was built before in the process.
static void test_same_text(void **state) {
  (void)state;
  str text[2][3] = {0};
  for (int n = 0; n < 2; n++) {
    rig *r = rig_new();
    uop *x = rig_buf(r, DT_F32, 64), *y = rig_buf(r, DT_F32, 64);
    if (n) { uop_int(r->g, DT_I32, 12345); uop_float(r->g, DT_F32, 3); }
    uop *i = rig_range(r, cidx(r, 16), AXIS_GLOBAL), *e = rig2(r, OP_MUL, i, cidx(r, 4));
    rig_store(r, rig_index(r, y, e), rig1(r, OP_SQRT, rig_load(r, rig_index(r, x, e), DT_F32, 4)));
    rig_end(r, i);
    for (size_t k = 0; k < 3; k++)
      assert_int_equal(render_at(k)->render(rig_program(r, "same"), NULL, &text[n][k], NULL), 0);
    rig_free(r);
  }
  for (size_t k = 0; k < 3; k++) {
    assert_string_equal(str_c(&text[0][k]), str_c(&text[1][k]));
    for (int n = 0; n < 2; n++) str_free(&text[n][k]);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_matvec),        cmocka_unit_test(test_variables),
                                     cmocka_unit_test(test_conditions),    cmocka_unit_test(test_order_of_memory),
                                     cmocka_unit_test(test_memory),        cmocka_unit_test(test_vectors),
                                     cmocka_unit_test(test_wide),          cmocka_unit_test(test_dot),
                                     cmocka_unit_test(test_dot_of_brains), cmocka_unit_test(test_bits),
                                     cmocka_unit_test(test_literals),      cmocka_unit_test(test_index32),
                                     cmocka_unit_test(test_errors),        cmocka_unit_test(test_near_addresses),
                                     cmocka_unit_test(test_same_text)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
