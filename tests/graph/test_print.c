// The printed form: every op makes the round trip, what is written by hand reads as meant, and bad text is refused with
// the number of its line.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "graph/check.h"
#include "graph/uop.h"

static char *text_of(uop *const *roots, size_t n) {
  str s = {0};
  uop_print(&s, roots, n);
  char *t = xstrdup(str_c(&s));
  str_free(&s);
  return t;
}

static void round_trip(uop *u) {
  char *text = text_of(&u, 1);
  graph *g = graph_new(NULL);
  error err = {0};
  uop *v = uop_parse(g, text, strlen(text), &err);
  if (!v) fail_msg("%s\n%s", err.text, text);
  char *again = text_of(&v, 1);
  assert_string_equal(text, again);
  assert_int_equal(u->hash, v->hash);
  free(text); free(again);
  graph_free(g);
}

// One node of every op.  The count at the end makes sure that none is left out.
static void every_op_round_trips(void **state) {
  (void)state;
  graph *g = graph_new(NULL);
  bool seen[OP_COUNT] = {0};
  uop *made[256];
  int n = 0;
#define ARG(...) ((uarg){__VA_ARGS__})
#define MAKE(op_, dt_, lanes_, arg_, ...) \
  (made[n++] = uop_new(g, op_, dt_, lanes_, (uop *[]){__VA_ARGS__}, sizeof((uop *[]){__VA_ARGS__}) / sizeof(uop *), \
  arg_))
#define LEAF(op_, dt_, lanes_, arg_) (made[n++] = uop_new(g, op_, dt_, lanes_, NULL, 0, arg_))
  uop *i4 = uop_idx(g, 4), *i1 = uop_idx(g, 1), *i0 = uop_idx(g, 0), *i16 = uop_idx(g, 16), *i2 = uop_idx(g, 2);
  uop *var = made[n++] = uop_var(g, "pos", -3, 511), *f = made[n++] = uop_float(g, DT_F32, 1.5);
  uop *buf = LEAF(OP_BUFFER, DT_F32, 1, ARG(.a = 7, .b = 16)), *mem = LEAF(OP_PARAM, DT_F32, 1, ARG(.a = 0, .b = 4096));
  LEAF(OP_BUFFER, DT_F32, 1, ARG(.a = 8, .b = 16, .s = "weights \"a\"\n", .s_len = 12));
  for (int i = 0; i < MEMORY_KINDS; i++) LEAF(OP_PARAM, DT_U8, 1, ARG(.a = i, .b = 64, .memory = (enum memory_kind)i));
  uop *inv = LEAF(OP_INVALID, DT_IDX, 1, ARG(0));
  uop *x = MAKE(OP_RESHAPE, DT_F32, 1, ARG(0), buf, i4, i1, i4);
  MAKE(OP_PERMUTE, DT_F32, 1, ARG(.a = 0x102, .b = 3), x);
  uop *e = MAKE(OP_EXPAND, DT_F32, 1, ARG(0), x, i4, i2, i4);
  MAKE(OP_PAD, DT_F32, 1, ARG(0), x, i0, i1, i0, i0, i2, i0);
  MAKE(OP_SHRINK, DT_F32, 1, ARG(0), x, i1, i2, i0, i1, i0, i4);
  MAKE(OP_FLIP, DT_F32, 1, ARG(.a = 5), x);
  uop *iota = MAKE(OP_IOTA, DT_IDX, 1, ARG(0), i4);
  MAKE(OP_GATHER, DT_F32, 1, ARG(0), x, iota);
  MAKE(OP_REDUCE_AXIS, DT_F32, 1, ARG(.a = OP_MAX, .b = 6), e);
  uop *as = MAKE(OP_ASSIGN, DT_F32, 1, ARG(0), buf, f);
  MAKE(OP_AFTER, DT_F32, 1, ARG(0), buf, as);
  MAKE(OP_CONTIGUOUS, DT_F32, 1, ARG(.a = 3, .b = 4), e);
  MAKE(OP_STAGE, DT_F32, 1, ARG(.a = 1), e);
  MAKE(OP_STACK, DT_F32, 1, ARG(0), x, x, x);
  uop *range = made[n++] = uop_range(g, i16, 3, AXIS_REDUCE), *index = made[n++] = uop_index(g, mem, range);
  uop *load = made[n++] = uop_load(g, index, DT_F32, 1);
  MAKE(OP_LOAD, DT_U8, 64, ARG(0), index);
  uop *a = uop_cast(g, var, DT_I32), *b = uop_cast(g, range, DT_I32), *cond = uop_op2(g, OP_CMPLT, a, b);
  for (int op = 0; op < OP_COUNT; op++) {
    if (!(op_flags((enum op)op) & OPF_ELEMENTWISE)) continue;
    bool ints = op == OP_IDIV || op == OP_MOD || op == OP_CDIV || op == OP_CMOD || op == OP_AND || op == OP_OR ||
                op == OP_XOR || op == OP_SHL || op == OP_SHR;
    if (op == OP_CAST) MAKE(OP_CAST, DT_BF16, 1, ARG(0), load);
    else if (op == OP_BITCAST) MAKE(OP_BITCAST, DT_U32, 1, ARG(0), load);
    else if (op == OP_WHERE) MAKE(OP_WHERE, DT_IDX, 1, ARG(0), cond, range, inv);
    else if (op_arity((enum op)op) == 1) made[n++] = uop_op1(g, (enum op)op, load);
    else if (op_arity((enum op)op) == 2)
      made[n++] = ints ? uop_op2(g, (enum op)op, a, b) : uop_op2(g, (enum op)op, load, f);
    else made[n++] = uop_op3(g, (enum op)op, load, f, load);
  }
  uop *store = MAKE(OP_STORE, DT_VOID, 1, ARG(0), index, load, range);
  MAKE(OP_REDUCE, DT_F32, 1, ARG(.a = OP_ADD), load, range);
  MAKE(OP_REDUCE, DT_F32, 1, ARG(.a = OP_ADD, .b = 2), load, f, range);
  MAKE(OP_SINK, DT_VOID, 1, ARG(0), store, store);
  uop *lane = LEAF(OP_LANE, DT_IDX, 4, ARG(0));
  made[n++] = uop_splat(g, load, 16);
  MAKE(OP_SHUFFLE, DT_IDX, 2, ARG(.s = "\3\0\0\0", .s_len = 4), lane);
  MAKE(OP_SHUFFLE, DT_IDX, 2, ARG(.s = "\7\0\4\0", .s_len = 4), lane, uop_splat(g, range, 4));
  MAKE(OP_EXTRACT, DT_IDX, 1, ARG(.a = 3), lane);
  MAKE(OP_HREDUCE, DT_IDX, 1, ARG(.a = OP_MAX), lane);
  MAKE(OP_SWAP, DT_F32, 1, ARG(.a = 4), load);
  MAKE(OP_DOT, DT_I32, 2, ARG(0), uop_splat(g, a, 2), uop_splat(g, uop_int(g, DT_U8, 200), 8),
       uop_splat(g, uop_int(g, DT_U32, 0xff01807f), 2));
  MAKE(OP_MMLA, DT_I32, 8, ARG(0), uop_splat(g, a, 8), uop_splat(g, uop_int(g, DT_U8, 200), 32),
       uop_splat(g, uop_int(g, DT_I8, -3), 32));
  uop *codes = uop_splat(g, uop_int(g, DT_U8, 200), 4), *words = uop_int(g, DT_U32, 0xff01807f);
  MAKE(OP_MMA, DT_I32, 4, ARG(.a = 16), uop_splat(g, a, 4), codes, codes, words);
  uop *pair = uop_new(g, OP_SPLAT, DT_F16, 2, (uop *[]){uop_float(g, DT_F16, 1)}, 1, (uarg){0});
  MAKE(OP_MMA, DT_F32, 4, ARG(.a = 16, .b = DT_F16), uop_splat(g, uop_float(g, DT_F32, 0), 4), words, words, words,
       words, pair, pair);
  MAKE(OP_MMA, DT_I32, 4, ARG(.a = 32), uop_splat(g, a, 4), codes, codes, codes, codes, words, words);
  uop *acc = MAKE(OP_ACC, DT_F32, 1, ARG(.a = 2), f);
  MAKE(OP_SET, DT_VOID, 1, ARG(0), acc, load);
  MAKE(OP_END, DT_VOID, 1, ARG(0), range);
  MAKE(OP_IF, DT_VOID, 1, ARG(0), cond);
  LEAF(OP_ENDIF, DT_VOID, 1, ARG(0));
  uop *local = LEAF(OP_LOCAL, DT_F32, 1, ARG(.a = 1, .b = 64)),
      *param = uop_new(g, OP_PARAM, DT_F32, 1, NULL, 0, (uarg){.b = 64});
  uop *barrier = MAKE(OP_BARRIER, DT_VOID, 1, ARG(0), store);
  MAKE(OP_BARRIER, DT_VOID, 1, ARG(.b = 2), range, store);
  MAKE(OP_COPY, DT_VOID, 1, ARG(.a = 16), uop_index(g, local, range), uop_index(g, param, range), barrier);
  MAKE(OP_ALLGATHER, DT_VOID, 1, ARG(.a = 64), param, range, uop_idx(g, 2), uop_idx(g, 0), uop_idx(g, 64),
       uop_idx(g, 64));
  MAKE(OP_PREFETCH, DT_VOID, 1, ARG(.a = 8192, .b = 3), index);
  LEAF(OP_SPECIAL, DT_IDX, 1, ARG(.a = 0, .b = 128, .s = "g1", .s_len = 2));
  for (int i = 0; i < n; i++) {
    str why = {0};
    if (!uop_check(made[i], &why)) fail_msg("%s: %s", op_name((enum op)made[i]->op), str_c(&why));
    str_free(&why);
    round_trip(made[i]);
    seen[made[i]->op] = true;
  }
  for (int op = 0; op < OP_COUNT; op++)
    if (!seen[op]) fail_msg("%s has no example here", op_name((enum op)op));
  graph_free(g);
}

static void constants_read_back_exactly(void **state) {
  (void)state;
  graph *g = graph_new(NULL);
  const double v[] = {
    0,        -0.0,      1,   -1,    0.1,    1e-45, 3.4028234663852886e38, 1e300, 5e-324, 3.141592653589793,
    INFINITY, -INFINITY, NAN, 65504, 1.0 / 3};
  const enum dtype types[] = {DT_F16, DT_BF16, DT_F32, DT_F64};
  for (size_t i = 0; i < COUNT(v); i++)
    for (size_t j = 0; j < COUNT(types); j++) round_trip(uop_float(g, types[j], v[i]));
  round_trip(uop_new(g, OP_CONST, DT_F32, 1, NULL, 0, (uarg){.a = 0x7ff8000020000000}));      // a NaN with a payload
  round_trip(uop_new(g, OP_CONST, DT_F32, 1, NULL, 0, (uarg){.a = 0x3fb999999999999a}));      // no f32 at all
  for (int d = DT_BOOL; d <= DT_IDX; d++) {
    round_trip(uop_int(g, (enum dtype)d, dtype_min((enum dtype)d)));
    round_trip(uop_int(g, (enum dtype)d, dtype_max((enum dtype)d)));
    round_trip(uop_int(g, (enum dtype)d, -1));
  }
  graph_free(g);
}

static void odd_arguments_print_raw(void **state) {
  (void)state;
  graph *g = graph_new(NULL);
  uop *f = uop_float(g, DT_F32, 1);
  uop *u = uop_new(g, OP_NEG, DT_F32, 1, &f, 1, (uarg){.a = -4, .b = 5, .s = "\x01\xff", .s_len = 2});
  round_trip(u);
  char *text = text_of(&u, 1);
  assert_non_null(strstr(text, "[raw -4 5 \"\\x01\\xff\"]"));
  free(text);
  graph_free(g);
}

static void hand_written_text_reads(void **state) {
  (void)state;
  const char *text =
      "; a comment, then an empty line\n"
      "\n"
      "  %10 = VAR \"n;x\" 1..64   ; the dtype of an index is understood\r\n"
      "%2 = CONST.idx 4\n"
      "%3=MUL.idx %10 %2\n"
      "%4 = CAST.f32 %3\n"
      "%5 = SPLAT.f32x8 %4";
  graph *g = graph_new(NULL);
  error err = {0};
  uop *u = uop_parse(g, text, strlen(text), &err);
  assert_non_null(u);
  assert_int_equal(u->lanes, 8);
  uop *n = uop_var(g, "n;x", 1, 64);
  assert_ptr_equal(u, uop_splat(g, uop_cast(g, uop_op2(g, OP_MUL, n, uop_idx(g, 4)), DT_F32), 8));
  str s = {0};
  uop_print_expr(&s, u);
  assert_string_equal(str_c(&s), "CAST<f32>((n;x*4))");
  str_free(&s);
  graph_free(g);
}

static void bad_text_is_refused(void **state) {
  (void)state;
  static const struct { const char *text, *message;
  } cases[] = {
    {"", "no node"},
    {"\n; nothing\n", "line 2: no node"},
    {"hello", "line 1: '%' expected"},
    {"%1 ADD", "line 1: '=' expected"},
    {"%1 = FOO", "unknown op 'FOO'"},
    {"%1 = CONST.f99 1", "unknown dtype 'f99'"},
    {"%1 = CONST.f32x 1", "unknown dtype"},
    {"%1 = CONST.f32x0 1", "0 lanes"},
    {"%1 = CONST.f32x99999999999999999999 1", "integer expected"},
    {"%1 = CONST.f32 abc", "not a f32"},
    {"%1 = CONST.u8 256", "does not fit"},
    {"%1 = CONST.idx 9223372036854775808", "integer expected"},
    {"%1 = CONST.idx 1\n%2 = ADD.idx %1 %3", "line 2: %3 is not defined"},
    {"%1 = CONST.idx 1\n%1 = CONST.idx 2", "line 2: %1 is defined twice"},
    {"%1 = CONST.idx 1\n%2 = ADD.idx %1", "ADD has 2 sources"},
    {"%1 = CONST.idx 1\n%2 = ADD.f32 %1 %1", "ADD.f32 of a source 0 of idx"},
    {"%1 = CONST.f32 1\n%2 = IDIV.f32 %1 %1", "IDIV of f32"},
    {"%1 = CONST.f32 1\n%2 = CMPLT.f32 %1 %1", "a comparison is bool"},
    {"%1 = CONST.f32 1\n%2 = RESHAPE.f32 %1", "RESHAPE of a scalar"},
    {"%1 = BUFFER.f32 [0 16]\n%2 = PERMUTE.f32 %1 [1]", "not a permutation"},
    {"%1 = BUFFER.f32 [0 16]\n%2 = PERMUTE.f32 %1 [0 1 2 3 4 5 6 7 0]", "more than 8"},
    {"%1 = BUFFER.f32 [0 16]\n%2 = CONST.idx 3\n%3 = RESHAPE.f32 %1 %2", "16 elements to 3"},
    {"%1 = BUFFER.f32 [0 16]\n%2 = BITCAST.f64 %1\n%3 = CONST.idx 3\n%4=SHRINK.f64 %2 %3 %3\n%5=BITCAST.f32 "
     "%4\n%6=BITCAST.f64 %5\n%7=INDEX.f32 %5 %3",
     "no memory"},
    {"%1 = CONST.f32 1\n%2 = BITCAST.f64 %1", "BITCAST of f32 to f64"},
    {"%1 = CONST.idx 4\n%2 = RANGE %1 [0 FOO]", "unknown axis kind"},
    {"%1 = CONST.idx 4\n%2 = RANGE %1", "needs its argument"},
    {"%1 = CONST.idx 4\n%2 = REDUCE.idx %1 %1 [ADD]", "should be a RANGE"},
    {"%1 = CONST.idx 4\n%2 = REDUCE.idx %1 [SUB]", "does not reduce"},
    {"%1 = CONST.idx 4\n%2 = RANGE %1 [0 LOOP]\n%3 = REDUCE.idx %1 %2 [ADD 3]", "REDUCE needs 3 sources"},
    {"%1 = CONST.idx 4\n%2 = RANGE %1 [0 LOOP]\n%3 = REDUCE.idx %1 %2 [ADD -3]", "REDUCE of -3 values"},
    {"%1 = VAR \"n\" 5..4", "bounds 5..4"},
    {"%1 = VAR \"n 5..4", "closing quote"},
    {"%1 = VAR \"n\\q\" 5..4", "unknown escape"},
    {"%1 = CONST.idx 4 4", "is too much"},
    {"%1 = INVALID\n%2 = CONST.idx 4\n%3 = ADD.idx %2 %1", "INVALID outside of"},
    {"%1 = SHUFFLE.f32x2 [0 1]", "SHUFFLE needs 1 sources"},
    {"%1 = SINK\n%2 = CAST.f32 %1", "has no value"},
    {"%99999999999999999999 = SINK", "integer expected"},
    {"%-1 = SINK", "no name of a node"},
  };
  for (size_t i = 0; i < COUNT(cases); i++) {
    graph *g = graph_new(NULL);
    error err = {0};
    uop *u = uop_parse(g, cases[i].text, strlen(cases[i].text), &err);
    if (u) fail_msg("'%s' was accepted", cases[i].text);
    if (!strstr(err.text, cases[i].message)) fail_msg("'%s' gave: %s", cases[i].text, err.text);
    graph_free(g);
  }
}

static void expressions_for_people_are_limited(void **state) {
  (void)state;
  graph *g = graph_new(NULL);
  uop *u = uop_var(g, "n", 0, 1);
  for (int i = 0; i < 200; i++) u = uop_op2(g, OP_XOR, u, uop_op1(g, OP_NEG, u));       // 2^200 leaves as a tree
  str s = {0};
  uop_print_expr(&s, u);
  assert_true(s.n < 4000);
  assert_non_null(strstr(str_c(&s), "..."));
  str_free(&s);
  uop *r = uop_range(g, uop_idx(g, 16), 0, AXIS_LOOP),
      *p = uop_new(g, OP_PARAM, DT_F32, 1, NULL, 0, (uarg){.a = 1, .b = 64});
  uop *l =
    uop_load(g, uop_index(g, p, uop_op2(g, OP_ADD, uop_op2(g, OP_MUL, r, uop_idx(g, 4)), uop_idx(g, 3))), DT_F32, 1);
  uop_print_expr(&s, uop_op2(g, OP_MAX, l, uop_float(g, DT_F32, 0)));
  assert_string_equal(str_c(&s), "MAX(p1[((r0_16*4)+3)], 0.0)");
  str_free(&s);
  graph_free(g);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_op_round_trips),
      cmocka_unit_test(constants_read_back_exactly),
      cmocka_unit_test(odd_arguments_print_raw),
      cmocka_unit_test(hand_written_text_reads),
      cmocka_unit_test(bad_text_is_refused),
      cmocka_unit_test(expressions_for_people_are_limited),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
