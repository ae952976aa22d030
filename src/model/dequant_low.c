// Formats of two and three bits and less that need no table: Q2_K and Q3_K, and the ternary TQ1_0 and TQ2_0. See dequant.c.
#include "model/dequant_impl.h"

// Bytes of `runs` runs of 32 hold 256 codes: all runs' lowest `width` bits first, then the next ones. {16, 16}, or as a whole {256}
static tensor *planes(const blocks *b, int64_t at, int64_t runs, int64_t width) {
  int64_t n = 8 / runs;
  tensor *q = t_op2(b->g, OP_SHR, AS(b, codes(b, at, runs * 32), runs, 1, 32), steps(b, DT_U8, n, width, true));
  return AS(b, op_int(b, OP_AND, q, (1 << width) - 1), 16, 16);
}

tensor *expr_q2_k(const blocks *b) {
  tensor *s = field(b, 0, 16, 1);                                     // scale and minimum of 16 codes, four bits each
  tensor *d = AS(b, t_mul(b->g, half_at(b, 80), f32(b, bits(b, s, 0, 15))), 16, 1);
  tensor *m = AS(b, t_mul(b->g, half_at(b, 82), f32(b, bits(b, s, 4, 15))), 16, 1);
  return t_sub(b->g, t_mul(b->g, d, f32(b, planes(b, 16, 2, 2))), m);
}

tensor *expr_q3_k(const blocks *b) {
  graph *g = b->g;
  // sixteen scales of six bits: nibbles of eight bytes, and pairs of bits of four more
  tensor *low = op_int(b, OP_AND, t_op2(g, OP_SHR, AS(b, field(b, 96, 8, 1), 1, 8), steps(b, DT_U8, 2, 4, true)), 15);
  tensor *high = op_int(b, OP_AND, t_op2(g, OP_SHR, AS(b, field(b, 104, 4, 1), 1, 4), steps(b, DT_U8, 4, 2, true)), 3);
  tensor *scale = t_op2(g, OP_OR, AS(b, low, 16), AS(b, op_int(b, OP_SHL, high, 4), 16));
  tensor *q = t_op2(g, OP_OR, planes(b, 32, 2, 2), op_int(b, OP_SHL, planes(b, 0, 1, 1), 2));
  return t_mul(g, AS(b, t_mul(g, half_at(b, 108), centred(b, scale, 32)), 16, 1), centred(b, q, 4));
}

tensor *expr_tq2_0(const blocks *b) { return t_mul(b->g, AS(b, half_at(b, 64), 1, 1), centred(b, planes(b, 0, 2, 2), 1)); }

// A byte holds five digits of base 3 as a fraction of 256: times 3^i, without what overflows, is the fraction that begins at digit i.
// Digits 0 of `count` bytes come first, then digits 1, ... {digits * count}
static tensor *fractions(const blocks *b, int64_t at, int64_t count, int64_t digits) {
  tensor *power = uop_int(b->g, DT_U8, 81);                           // of digit i: 1, 3, 9, 27, 81
  for (int64_t i = 3, v = 27; i >= 0; i--, v /= 3) {
    tensor *here = t_op2(b->g, OP_CMPLT, t_iota(b->g, uop_idx(b->g, digits)), uop_idx(b->g, i + 1));
    power = t_where(b->g, here, uop_int(b->g, DT_U8, v), power);
  }
  power = t_reshape_i(b->g, power, 2, (int64_t[]){digits, 1});
  return AS(b, t_mul(b->g, AS(b, codes(b, at, count), 1, count), power), digits * count);
}

tensor *expr_tq1_0(const blocks *b) {
  tensor *f = t_cat_last(b->g, t_cat_last(b->g, fractions(b, 0, 32, 5), fractions(b, 32, 16, 5)), fractions(b, 48, 4, 4));
  tensor *digit = op_int(b, OP_SHR, op_int(b, OP_MUL, t_cast(b->g, f, DT_U16), 3), 8);
  return t_mul(b->g, half_at(b, 52), centred(b, digit, 1));
}
