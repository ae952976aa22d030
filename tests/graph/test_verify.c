// The verifier: good graphs, kernels and programs pass, and each thing that can be wrong is refused with its reason.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include "graph/prove.h"
#include "graph/symbolic.h"
#include "graph/verify.h"

static void check_text(const char *text, enum stage stage, const char *reason) {
  graph *g = graph_new(NULL);
  error err = {0};
  str why = {0};
  uop *u = uop_parse(g, text, strlen(text), &err);
  if (!u) fail_msg("%s\n%s", err.text, text);
  size_t before = graph_size(g);
  bool ok = verify_graph_ok(g, u, stage, &why);
  if (ok != !reason) fail_msg("%s\n%s", ok ? "was accepted" : str_c(&why), text);
  if (reason && !strstr(str_c(&why), reason)) fail_msg("refused, but not for '%s': %s", reason, str_c(&why));
  assert_int_equal(graph_size(g), before);
  str_free(&why);
  graph_free(g);
}

static void tensor_graphs(void **state) {
  (void)state;
  const char *good =
    "%0 = BUFFER.f32 [1 64]\n%1 = CONST.idx 8\n%2 = RESHAPE.f32 %0 %1 %1\n%3 = REDUCE_AXIS.f32 %2 [ADD 1]\n"
    "%4 = CONST.idx 1\n%5 = EXPAND.f32 %3 %1 %1\n%6 = MUL.f32 %5 %2\n%7 = BUFFER.f32 [2 64]\n%8 = RESHAPE.f32 %7 %1 "
    "%1\n"
    "%9 = ASSIGN.f32 %8 %6\n%10 = AFTER.f32 %7 %9\n%11 = SINK %10\n";
  check_text(good, STAGE_TENSOR, NULL);
  check_text("%1 = CONST.idx 8\n%2 = RANGE %1 [0 LOOP]\n%3 = SINK %2", STAGE_TENSOR,
             "RANGE is not what the spec of a tensor graph allows");
  check_text("%1 = PARAM.f32 [0 8]\n%2 = CONST.f32 1\n%3 = ASSIGN.f32 %1 %2\n", STAGE_TENSOR, "PARAM is not what");
  check_text("%1 = CONST.f32 1\n%2 = NEG.f32 %1\n%3 = ASSIGN.f32 %2 %1", STAGE_TENSOR, "no view of a BUFFER");
  check_text("%1 = BUFFER.f32 [0 8]\n%2 = AFTER.f32 %1 %1", STAGE_TENSOR, "has no effect");
}

#define KERNEL_HEAD "%0 = PARAM.f32 [0 64]\n%1 = PARAM.f32 [1 64]\n%2 = CONST.idx 64\n%3 = RANGE %2 [0 LOOP]\n%4 = " \
  "INDEX.f32 %0 %3\n"

static void kernels(void **state) {
  (void)state;
  check_text(KERNEL_HEAD "%5 = INDEX.f32 %1 %3\n%6 = LOAD.f32 %5\n%7 = STORE %4 %6 %3\n%8 = SINK %7", STAGE_KERNEL,
             NULL);
  // a range that nobody binds
  check_text(KERNEL_HEAD "%5 = INDEX.f32 %1 %3\n%6 = LOAD.f32 %5\n%7 = STORE %4 %6\n%8 = SINK %7", STAGE_KERNEL,
             "RANGE 0 is used, and no REDUCE or STORE binds it");
  // one that only the REDUCE binds is not bound outside
  check_text(KERNEL_HEAD
             "%5 = INDEX.f32 %1 %3\n%6 = LOAD.f32 %5\n%7 = REDUCE.f32 %6 %3 [ADD]\n%8 = STORE %4 %7\n%9 = SINK %8",
             STAGE_KERNEL, "no REDUCE or STORE binds it");
  // out of bounds by one, below, and by the width of the load
  check_text(
    KERNEL_HEAD
    "%5 = CONST.idx 1\n%6 = ADD.idx %3 %5\n%7 = INDEX.f32 %1 %6\n%8 = LOAD.f32 %7\n%9 = STORE %4 %8 %3\n%10 = SINK %9",
    STAGE_KERNEL, "4 bytes at element 1..64 of PARAM 1, which has 64 elements of f32");
  check_text(
    KERNEL_HEAD
    "%5 = CONST.idx -1\n%6 = ADD.idx %3 %5\n%7 = INDEX.f32 %1 %6\n%8 = LOAD.f32 %7\n%9 = STORE %4 %8 %3\n%10 = SINK %9",
    STAGE_KERNEL, "element -1..62");
  check_text(KERNEL_HEAD "%5 = INDEX.f32 %1 %3\n%6 = LOAD.f64 %5\n%7 = CAST.f32 %6\n%8 = STORE %4 %7 %3\n%9 = SINK %8",
             STAGE_KERNEL, "8 bytes at element 0..63");
  check_text(KERNEL_HEAD "%5 = CONST.f64 1\n%7 = STORE %4 %5 %3\n%8 = SINK %7", STAGE_KERNEL,
             "8 bytes at element 0..63");
  // the same addresses where a condition holds
  check_text(KERNEL_HEAD "%5 = CONST.idx 1\n%6 = ADD.idx %3 %5\n%7 = CMPLT.bool %6 %2\n%8 = INVALID\n%9 = WHERE.idx %7 "
                         "%6 %8\n%10 = INDEX.f32 %1 %9\n%11 = LOAD.f32 %10\n"
                         "%12 = STORE %4 %11 %3\n%13 = SINK %12",
             STAGE_KERNEL, NULL);
  check_text(KERNEL_HEAD "%5 = CONST.idx 2\n%6 = ADD.idx %3 %5\n%7 = CONST.idx 63\n%8 = CMPLT.bool %3 %7\n%9 = "
                         "INVALID\n%10 = WHERE.idx %8 %6 %9\n%11 = INDEX.f32 %1 %10\n%12 = LOAD.f32 %11\n"
                         "%13 = STORE %4 %12 %3\n%14 = SINK %13",
             STAGE_KERNEL, "element 2..64");
  // an INVALID that gets into arithmetic; vectors and tensors where there are none yet
  check_text(KERNEL_HEAD "%5 = CONST.idx 1\n%7 = CMPLT.bool %3 %5\n%8 = INVALID\n%9 = WHERE.idx %7 %3 %8\n%10 = "
                         "ADD.idx %9 %5\n%11 = INDEX.f32 %1 %10\n%12 = LOAD.f32 %11\n"
                         "%13 = STORE %4 %12 %3\n%14 = SINK %13",
             STAGE_KERNEL, "may be INVALID");
  check_text(
    KERNEL_HEAD
    "%5 = LANE.idxx4\n%6 = NEG.idxx4 %5\n%7 = EXTRACT.idx %6 [0]\n%8 = CAST.f32 %7\n%9 = STORE %4 %8 %3\n%10 = SINK %9",
    STAGE_KERNEL, "not what the spec of a kernel allows");
  check_text("%0 = BUFFER.f32 [0 4]\n%1 = NEG.f32 %0\n%2 = CONST.idx 0\n%3 = INDEX.f32 %0 %2\n%4 = CONST.idx 4\n%5 = "
             "STORE %3 %1\n%6 = SINK %5",
             STAGE_KERNEL, "a tensor in a kernel");
  check_text("%0 = VAR \"n\" -1..4\n%1 = RANGE %0 [0 LOOP]\n%2 = SINK %1", STAGE_KERNEL, "may be negative");
  check_text("%0 = CONST.f32 1\n%1 = SINK %0", STAGE_KERNEL, "not in STOREs");
}

static void optimised_kernels(void **state) {
  (void)state;
#define VECTOR_HEAD "%0 = PARAM.f32 [0 64]\n%1 = PARAM.u8 [1 66]\n%2 = CONST.idx 4\n%3 = RANGE %2 [0 LOOP]\n%4 = " \
  "CONST.idx 16\n%5 = MUL.idx %3 %4\n%6 = INDEX.f32 %0 %5\n%7 = INDEX.u8 %1 %5\n"
  check_text(VECTOR_HEAD "%8 = LOAD.u8x16 %7\n%9 = CAST.f32x16 %8\n%10 = STORE %6 %9 %3\n%11 = SINK %10",
             STAGE_OPTIMISED, NULL);
  check_text(VECTOR_HEAD "%8 = LOAD.u8x32 %7\n%9 = CAST.f32x32 %8\n%10 = STORE %6 %9 %3\n%11 = SINK %10",
             STAGE_OPTIMISED, "32 bytes at element 0..48 of PARAM 1");
  // gather: 4*lane + r, one element each
  check_text(VECTOR_HEAD "%8 = LANE.idxx16\n%9 = SPLAT.idxx16 %2\n%10 = MUL.idxx16 %8 %9\n%11 = SPLAT.idxx16 %3\n%12 = "
                         "ADD.idxx16 %10 %11\n%13 = INDEX.u8x16 %1 %12\n%14 = LOAD.u8x16 %13\n"
                         "%15 = CAST.f32x16 %14\n%16 = STORE %6 %15 %3\n%17 = SINK %16",
             STAGE_OPTIMISED, NULL);
  check_text(VECTOR_HEAD "%8 = LANE.idxx16\n%9 = CONST.idx 5\n%18 = SPLAT.idxx16 %9\n%10 = MUL.idxx16 %8 %18\n%11 = "
                         "SPLAT.idxx16 %3\n%12 = ADD.idxx16 %10 %11\n%13 = INDEX.u8x16 %1 %12\n%14 = LOAD.u8x16 %13\n"
                         "%15 = CAST.f32x16 %14\n%16 = STORE %6 %15 %3\n%17 = SINK %16",
             STAGE_OPTIMISED, "element 0..78");
  // the same, each lane under its own condition: 5*lane + r < 66
  check_text(
    VECTOR_HEAD
    "%8 = LANE.idxx16\n%9 = CONST.idx 5\n%18 = SPLAT.idxx16 %9\n%10 = MUL.idxx16 %8 %18\n%11 = SPLAT.idxx16 %3\n%12 = "
    "ADD.idxx16 %10 %11\n"
    "%20 = CONST.idx 66\n%21 = SPLAT.idxx16 %20\n%22 = CMPLT.boolx16 %12 %21\n%23 = CONST.idx 0\n%24 = SPLAT.idxx16 "
    "%23\n%25 = WHERE.idxx16 %22 %12 %24\n"
    "%13 = INDEX.u8x16 %1 %25\n%14 = LOAD.u8x16 %13\n%15 = CAST.f32x16 %14\n%16 = STORE %6 %15 %3\n%17 = SINK %16",
    STAGE_OPTIMISED, NULL);
  // work-items are bound by the launch
  check_text("%0 = PARAM.f32 [0 4]\n%2 = CONST.idx 4\n%3 = RANGE %2 [0 GROUP]\n%4 = INDEX.f32 %0 %3\n%5 = CONST.f32 "
             "1\n%6 = STORE %4 %5\n%7 = SINK %6",
             STAGE_OPTIMISED, NULL);
}

// --- proofs ----------------------------------------------------------------------------------------------------------

static bounds prove(graph *g, uop *i, uop *cond) {
  prover p;
  prover_begin(&p, g);
  prover_assume(&p, cond);
  bounds b = prove_index(&p, i);
  prover_end(&p);
  return b;
}

static void conditions_on_parts_of_a_sum(void **state) {
  (void)state;
  graph *g = graph_new(NULL);
  uop *row = uop_range(g, uop_idx(g, 10), 0, AXIS_LOOP), *r = uop_range(g, uop_idx(g, 13), 1, AXIS_LOOP),
      *u = uop_range(g, uop_idx(g, 8), 2, AXIS_UPCAST);
  uop *col = uop_op2(g, OP_ADD, uop_op2(g, OP_MUL, r, uop_idx(g, 8)), u);
  uop *i = uop_op2(g, OP_ADD, uop_op2(g, OP_MUL, row, uop_idx(g, 100)), col);
  bounds b = prove(g, i, NULL);
  assert_int_equal(b.lo, 0); assert_int_equal(b.hi, 1003);
  b = prove(g, i, uop_op2(g, OP_CMPLT, col, uop_idx(g, 100)));         // the last block of a padded row
  assert_int_equal(b.hi, 999);
  b = prove(g, i, uop_op2(g, OP_CMPLT, uop_idx(g, 49), col));
  assert_int_equal(b.lo, 50);
  b = prove(g, uop_op2(g, OP_MUL, i, uop_idx(g, 4)), uop_op2(g, OP_CMPLT, col, uop_idx(g, 100)));
  assert_int_equal(b.hi, 3996);
  uop *n = uop_var(g, "n", 1, 100);                                    // a symbolic limit
  b = prove(g, i, uop_op2(g, OP_CMPLT, col, n));
  assert_int_equal(b.hi, 999);
  b = prove(g, uop_op2(g, OP_SUB, uop_op2(g, OP_SUB, n, uop_idx(g, 1)), col), uop_op2(g, OP_CMPLT, col, n));
  assert_int_equal(b.lo, 0);
  uop *choice = uop_op3(g, OP_WHERE, uop_op2(g, OP_CMPLT, col, uop_idx(g, 100)), col, uop_idx(g, 0));
  b = prove(g, uop_op2(g, OP_ADD, uop_op2(g, OP_MUL, row, uop_idx(g, 100)), choice), NULL);
  assert_int_equal(b.hi, 999);
  uop *never = uop_op2(g, OP_CMPLT, uop_idx(g, 5), uop_idx(g, 3));
  b = prove(g, i, never);
  assert_true(b.lo > b.hi);
  graph_free(g);
}

// What decompose makes of an index: I64, shifts and masks, C's division, vectors and their lanes.
static void machine_arithmetic_is_read_back(void **state) {
  (void)state;
  graph *g = graph_new(NULL);
  uop *end = uop_int(g, DT_I64, 100), *r = uop_new(g, OP_RANGE, DT_I64, 1, &end, 1, (uarg){.b = AXIS_LOOP}),
      *c7 = uop_int(g, DT_I64, 7), *c3 = uop_int(g, DT_I64, 3);
  uop *hi = uop_op2(g, OP_SHL, uop_op2(g, OP_SHR, r, c3), c3), *lo = uop_op2(g, OP_AND, r, c7);
  uop *whole = uop_op2(g, OP_ADD, hi, lo);                             // r again: 96 + 7 by intervals
  bounds b = prove(g, whole, NULL);
  assert_int_equal(b.lo, 0); assert_int_equal(b.hi, 99);
  uop *q = uop_op2(g, OP_ADD, uop_op2(g, OP_MUL, uop_op2(g, OP_CDIV, r, c7), c7), uop_op2(g, OP_CMOD, r, c7));
  b = prove(g, q, NULL);
  assert_int_equal(b.hi, 99);
  uop *lane = uop_new(g, OP_LANE, DT_I64, 8, NULL, 0, (uarg){0});
  uop *v = uop_op2(g, OP_ADD, uop_op2(g, OP_MUL, r, uop_int(g, DT_I64, 8)), lane);
  uop *limit = uop_splat(g, uop_int(g, DT_I64, 500), 8), *cond = uop_op2(g, OP_CMPLT, v, limit);
  b = prove(g, uop_op2(g, OP_ADD, v, uop_splat(g, uop_int(g, DT_I64, 1), 8)), cond);
  assert_int_equal(b.hi, 500);
  uop *v3 = uop_new(g, OP_EXTRACT, DT_I64, 1, &v, 1, (uarg){.a = 3}),
      *cond3 = uop_new(g, OP_EXTRACT, DT_BOOL, 1, &cond, 1, (uarg){.a = 3});
  uop *cond4 = uop_new(g, OP_EXTRACT, DT_BOOL, 1, &cond, 1, (uarg){.a = 4});
  b = prove(g, v3, cond3);
  assert_true(b.lo == 3 && b.hi == 499 - 499 % 8 + 3 - (499 % 8 < 3 ? 8 : 0));      // 8 r + 3 < 500
  // another lane's condition says something, through r
  b = prove(g, v3, cond4);
  assert_true(b.hi < 803);
  uop *wraps = uop_op2(g, OP_ADD, uop_new(g, OP_VAR, DT_I32, 1, NULL, 0, (uarg){.b = INT32_MAX, .s = "n", .s_len = 1}),
                       uop_int(g, DT_I32, 1));
  b = prove(g, wraps, NULL);
  assert_true(b.lo <= INT32_MIN && b.hi >= INT32_MAX);
  uop *mem = uop_new(g, OP_PARAM, DT_U8, 1, NULL, 0, (uarg){.a = 0, .b = 8});
  uop *id = uop_cast(g, uop_load(g, uop_index(g, mem, uop_idx(g, 0)), DT_U8, 1), DT_I64);
  b = prove(g, id, NULL);
  assert_true(b.lo == 0 && b.hi == 255);
  b = prove(g, id, uop_op2(g, OP_CMPLT, id, uop_int(g, DT_I64, 10)));
  assert_int_equal(b.hi, 9);
  graph_free(g);
}

// --- programs --------------------------------------------------------------------------------------------------------

// Each line of the text is one entry; "= %n" alone repeats node n.
static void check_program(const char *text, const char *order, const char *reason) {
  graph *g = graph_new(NULL);
  uop *at[64];
  size_t n = 0;
  for (const char *p = order; *p;) {                     // numbers of lines (from 0), in program order
    char *end;
    long line = strtol(p, &end, 10);
    const char *e = text;
    for (long k = 0; k <= line; k++) e = strchr(e, '\n') + 1;
    error err = {0};
    at[n] = uop_parse(g, text, (size_t)(e - text), &err);
    if (!at[n]) fail_msg("%s", err.text);
    n++;
    p = end;
    while (*p == ' ') p++;
  }
  str why = {0};
  bool ok = verify_program_ok(g, at, n, &why);
  if (ok != !reason) fail_msg("%s\n%s [%s]", ok ? "was accepted" : str_c(&why), text, order);
  if (reason && !strstr(str_c(&why), reason)) fail_msg("refused, but not for '%s': %s", reason, str_c(&why));
  str_free(&why);
  graph_free(g);
}

static void programs(void **state) {
  (void)state;
  const char *sum =
    // 0-4
    "%0 = PARAM.f32 [0 64]\n%1 = PARAM.f32 [1 64]\n%2 = CONST.i64 64\n%3 = CONST.f32 0\n%4 = ACC.f32 %3 [0]\n"
    // 5-9
    "%5 = RANGE.i64 %2 [0 REDUCE]\n%6 = INDEX.f32 %0 %5\n%7 = LOAD.f32 %6\n%8 = ADD.f32 %4 %7\n%9 = SET %4 %8\n"
    // 10-15
    "%10 = END %5\n%11 = CONST.i64 0\n%12 = INDEX.f32 %1 %11\n%13 = STORE %12 %4\n%14 = INDEX.f32 %1 %5\n%15 = STORE "
    "%14 %7\n";
  check_program(sum, "0 1 2 3 4 5 6 7 8 9 10 11 12 13", NULL);
  check_program(sum, "0 1 2 3 4 6 7 8 9 5 10 11 12 13", "a source comes later");
  check_program(sum, "0 1 2 3 4 5 6 7 8 9 11 12 13", "never closed");
  check_program(sum, "0 1 2 3 4 5 6 7 8 9 10 10 11 12 13", "stands twice");
  check_program(sum, "0 1 2 3 4 5 6 7 8 9 10 5 10 11 12 13", "opened twice");
  check_program(sum, "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15", "is closed");
  check_program(sum, "0 1 2 10 5", "later");
  const char *guarded =
    // 0-5
    "%0 = PARAM.f32 [0 64]\n%1 = CONST.i64 65\n%2 = CONST.f32 0\n%3 = RANGE.i64 %1 [0 LOOP]\n%4 = INDEX.f32 %0 %3\n%5 "
    "= CONST.i64 64\n"
    // 6-13
    "%6 = CMPLT.bool %3 %5\n%7 = IF %6\n%8 = STORE %4 %2\n%9 = ENDIF\n%10 = END %3\n%11 = BITCAST.u32 %2\n%12 = "
    "CMPLT.bool %1 %5\n%13 = IF %12\n";
  check_program(guarded, "0 1 2 3 4 5 6 7 8 9 10", NULL);
  const char *swapped = "%0 = SPECIAL.i32 \"l0\" 32\n%1 = CONST.i32 2\n%2 = CMPLT.bool %0 %1\n%3 = SWAP.i32 %0 [4]\n"
                        "%4 = IF %2\n%5 = ENDIF\n";
  check_program(swapped, "0 1 2 3 4 5", NULL);
  check_program(swapped, "0 1 2 4 3 5", "not all items get there");
  const char *together = "%0 = SPECIAL.i32 \"g0\" 32\n%1 = CONST.i32 2\n%2 = CMPLT.bool %0 %1\n%3 = SWAP.i32 %0 [4]\n"
                         "%4 = IF %2\n%5 = ENDIF\n";
  check_program(together, "0 1 2 4 3 5", NULL);         // all items of a work-group, or none
  check_program(guarded, "0 1 2 3 4 5 6 8 10", "not proven in bounds");
  check_program(guarded, "0 1 2 3 4 5 6 7 9 8 10", "not proven in bounds");
  check_program(guarded, "0 1 2 3 4 5 6 7 8 10", "another scope is open");
  check_program(guarded, "0 1 2 3 4 5 6 8 9 10", "not proven");
  check_program(guarded, "0 1 2 3 4 5 9 10", "no IF");
  check_program(guarded, "0 1 2 5 12 13 3 4 8 10 9", NULL);           // never true: nothing in it happens
  const char *types = "%0 = CONST.f32 0\n%1 = CAST.bf16 %0\n%2 = CONST.idx 0\n%3 = REDUCE.f32 %0 [ADD]\n";
  check_program(types, "0 1", "BF16 in a program");
  check_program(types, "0 1 2", NULL);                                // the interpreter's
  check_program(types, "0 3", "REDUCE is not what the spec of a linear program allows");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(tensor_graphs),
      cmocka_unit_test(kernels),
      cmocka_unit_test(optimised_kernels),
      cmocka_unit_test(conditions_on_parts_of_a_sum),
      cmocka_unit_test(machine_arithmetic_is_read_back),
      cmocka_unit_test(programs),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
