// Formats of up to three bits that need no table: Q2_K and Q3_K, Q1_0 and Q2_0, and the ternary TQ1_0 and TQ2_0. See
// dequant.c.
#include "model/dequant_impl.h"

tensor *expr_q2_k(const blocks *b) {
  tensor *s = field(b, 0, 16);                                     // scale and minimum of 16 codes, four bits each
  tensor *d = AS(b, t_mul(b->g, half_at(b, 80), f32(b, bits(b, s, 0, 15))), 16, 1);
  tensor *m = AS(b, t_mul(b->g, half_at(b, 82), f32(b, bits(b, s, 4, 15))), 16, 1);
  return t_sub(b->g, t_mul(b->g, d, f32(b, planes(b, 16, 2, 2))), m);
}

tensor *expr_q3_k(const blocks *b) {
  graph *g = b->g;
  // sixteen scales of six bits: nibbles of eight bytes, and pairs of bits of four more
  tensor *low = op_int(b, OP_AND, t_op2(g, OP_SHR, AS(b, field(b, 96, 8), 1, 8), steps(b, DT_U8, 2, 4, true)), 15);
  tensor *high = op_int(b, OP_AND, t_op2(g, OP_SHR, AS(b, field(b, 104, 4), 1, 4), steps(b, DT_U8, 4, 2, true)), 3);
  tensor *scale = t_op2(g, OP_OR, AS(b, low, 16), AS(b, op_int(b, OP_SHL, high, 4), 16));
  tensor *q = t_op2(g, OP_OR, planes(b, 32, 2, 2), op_int(b, OP_SHL, planes(b, 0, 1, 1), 2));
  return t_mul(g, AS(b, t_mul(g, half_at(b, 108), centred(b, scale, 32)), 16, 1), centred(b, q, 4));
}

// `count` bytes hold codes of `width` bits, the lowest ones first: {count, codes per byte}
static tensor *packed(const blocks *b, int64_t at, int64_t count, int64_t width) {
  tensor *q = t_op2(b->g, OP_SHR, AS(b, field(b, at, count), count, 1), steps(b, DT_U8, 8 / width, width, false));
  return op_int(b, OP_AND, q, (1 << width) - 1);
}

// One sign bit per weight
tensor *expr_q1_0(const blocks *b) {
  return t_mul(b->g, AS(b, half_at(b, 0), 1, 1), centred(b, op_int(b, OP_SHL, packed(b, 2, 16, 1), 1), 1));
}

// Codes for -1, 0, 1 and 2
tensor *expr_q2_0(const blocks *b) {
  return t_mul(b->g, AS(b, half_at(b, 0), 1, 1), centred(b, packed(b, 2, 16, 2), 1));
}

tensor *expr_tq2_0(const blocks *b) {
  return t_mul(b->g, AS(b, half_at(b, 64), 1, 1), centred(b, planes(b, 0, 2, 2), 1));
}

// A row of bytes of each block, repeated: {1, n} -> {times, n}
static tensor *repeat_rows(const blocks *b, tensor *t, int64_t times) {
  uop *d[MAX_DIMS];
  int n = t->shape->n;
  for (int i = 0; i < n; i++) d[i] = i == n - 2 ? uop_idx(b->g, times) : t->shape->dim[i];
  return t_expand(b->g, t, n, d);
}

// A byte holds five digits of base 3 as a fraction of 256. Multiplied by 3^i modulo 256 it is the fraction that begins
// at digit i, and the digit is the integer part of three times it. 160 weights are digits 0 of 32 bytes, then digits 1,
// ... digits 4; 80 are those of 16 more bytes; 16 are digits 0 to 3 of four bytes. Seen as 16 rows of 16 weights, a row
// belongs to one part and, except for the last row, to one digit. All parts are read for every row, so that no load
// needs a guard, and values of the other parts are dropped.
tensor *expr_tq1_0(const blocks *b) {
  graph *g = b->g;
  tensor *n = t_cast(g, t_iota(g, uop_idx(g, 16)), DT_U8), *row = t_reshape_i(g, n, 2, (int64_t[]){16, 1}),
         *column = t_reshape_i(g, n, 2, (int64_t[]){1, 16});
  tensor *first = t_op2(g, OP_CMPLT, row, uop_int(g, DT_U8, 10)),
         *last = t_op2(g, OP_CMPEQ, row, uop_int(g, DT_U8, 15));
  tensor *digit = t_where(g, first, op_int(b, OP_SHR, row, 1),
                          t_where(g, last, op_int(b, OP_SHR, column, 2), op_int(b, OP_SUB, row, 10)));
  tensor *power = uop_int(g, DT_U8, 81);
  for (int64_t i = 3, v = 27; i >= 0; i--, v /= 3)
    power = t_where(g, t_op2(g, OP_CMPEQ, digit, uop_int(g, DT_U8, i)), uop_int(g, DT_U8, v), power);
  tensor *many = AS(b, repeat_rows(b, AS(b, field(b, 0, 32), 1, 32), 8), 16, 16), *few = AS(b, field(b, 32, 16), 1, 16),
         *four = AS(b, repeat_rows(b, AS(b, field(b, 48, 4), 1, 4), 4), 1, 16);
  tensor *f = t_mul(g, t_where(g, first, many, t_where(g, last, four, few)), power);
  tensor *q = uop_int(g, DT_U8, 0);
  for (int64_t third = 85; third < 255; third += 85)
    q = t_add(g, q, t_cast(g, t_op2(g, OP_CMPLT, uop_int(g, DT_U8, third), f), DT_U8));
  return t_mul(g, AS(b, half_at(b, 52), 1, 1), centred(b, q, 1));
}
