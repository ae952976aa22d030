// Formats of ik_llama.cpp whose codes are starts of a sequence (trellis): IQ1_KT to IQ4_KT. See dequant.c.
//
// A start of 13 to 16 bits is a state of 32 bits, which a multiplication by STEP leads to the next one, and so on: of
// each state one weight is made, by the sum of the low six bits of its four bytes, less 126. So weights are integers of
// eight bits, times the scales of 32 and that of the row.
#include "model/dequant_impl.h"

enum { FIRST = 4096 };         // what is added to a start
static const uint32_t STEP = 0xcbac1fed;

// STEP, STEP^2, .. STEP^count: {count}, of at most eight
static tensor *step_powers(const blocks *b, int64_t count) {
  graph *g = b->g;
  tensor *i = t_cast(g, t_iota(g, uop_idx(g, count)), DT_U32), *p = uop_int(g, DT_U32, STEP);
  uint32_t by = STEP;
  for (int64_t bit = 1; bit < count; bit *= 2, by *= by) {
    tensor *set = t_op2(g, OP_CMPNE, op_int(b, OP_AND, i, bit), uop_int(g, DT_U32, 0));
    p = t_mul(g, p, t_where(g, set, uop_int(g, DT_U32, by), uop_int(g, DT_U32, 1)));
  }
  return p;
}

// Starts (U32, of `each` weights) as those weights, from -126 to 126: I16 {256}
static tensor *walks(const blocks *b, tensor *start, int64_t each) {
  tensor *x = t_mul(b->g, AS(b, start, 256 / each, 1), step_powers(b, each));
  x = op_int(b, OP_SHR, op_int(b, OP_MUL, op_int(b, OP_AND, x, 0x3f3f3f3f), 0x01010101), 24);
  return op_int(b, OP_SUB, t_cast(b->g, AS(b, op_int(b, OP_MIN, x, 252), 256), DT_I16), 126);
}
static tensor *from(const blocks *b, tensor *x) { return op_int(b, OP_ADD, t_cast(b->g, x, DT_U32), FIRST); }
static tensor *times_row(const blocks *b, tensor *scale, tensor *code) {
  return scaled_codes(b, row_scale(b, DT_F32), scale, 8, code);
}
static tensor *high_to(const blocks *b, tensor *low, tensor *high, int64_t shift) {
  return t_op2(b->g, OP_OR, low, op_int(b, OP_SHL, t_cast(b->g, high, DT_U16), shift));
}
// Eight nibbles: the low ones of four bytes, then the high ones
static tensor *eight_nibbles(const blocks *b) { return AS(b, nibbles(b, 0, 4), 8); }

tensor *expr_iq1_kt(const blocks *b) {
  tensor *s = field(b, 0, 8), *x = t_cast(b->g, field(b, 8, 32), DT_U16);
  x = high_to(b, x, AS(b, nibbles(b, 40, 16), 32), 8);
  x = high_to(b, x, AS(b, spread(b, AS(b, op_int(b, OP_SHR, s, 4), 8, 1), 4, 1, 1), 32), 12);
  return times_row(b, iq4(b, op_int(b, OP_AND, s, 15)), walks(b, from(b, x), 8));
}

tensor *expr_iq2_kt(const blocks *b) {
  return times_row(b, iq4(b, eight_nibbles(b)), walks(b, from(b, words(b, DT_U16, 4, 32)), 8));
}

// Magnitudes of the walk, with a sign for each
tensor *expr_iq3_kt(const blocks *b) {
  tensor *w = walks(b, from(b, words(b, DT_U16, 4, 32)), 8), *less_than_0 = t_op1(b->g, OP_NEG, w);
  tensor *minus = t_op2(b->g, OP_CMPNE, AS(b, planes(b, 68, 1, 1), 256), uop_int(b->g, DT_U8, 0));
  w = t_op2(b->g, OP_MAX, w, less_than_0);
  return times_row(b, eight_nibbles(b), t_where(b->g, minus, t_op1(b->g, OP_NEG, w), w));
}

// Words of 32 weights: a bit that is one more of their starts, seven of a scale, and three for each of eight starts
tensor *expr_iq4_kt(const blocks *b) {
  graph *g = b->g;
  tensor *s = words(b, DT_U32, 0, 8), *x = t_cast(g, field(b, 32, 64), DT_U16);
  x = high_to(b, x, AS(b, nibbles(b, 96, 32), 64), 8);
  x = high_to(b, x, AS(b, spread(b, AS(b, op_int(b, OP_SHR, s, 8), 8, 1), 8, 3, 3), 64), 12);
  tensor *most = op_int(b, OP_SHL, op_int(b, OP_AND, s, 1), 15);
  x = t_add(g, AS(b, from(b, x), 8, 8), AS(b, most, 8, 1));
  return times_row(b, op_int(b, OP_SUB, t_cast(g, bits(b, s, 1, 127), DT_I8), 64), walks(b, x, 4));
}
