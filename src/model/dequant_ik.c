// Formats of ik_llama.cpp: Q6_0, IQ2_K to IQ6_K, and those with a scale for the whole row (IQ2_KS to IQ5_KS, IQ4_KSS,
// IQ2_KL). See dequant.c.
//
// A code stands for one of 4 to 64 values, and a bit of each sub-block moves all of its values up by the same amount.
// So values are integers of eight bits: a table of the codes, plus that amount. IQ6_K's are ik_llama.cpp's table, by
// which its products go on all devices; its conversion to floats has a polynomial close to that instead.
#include "model/dequant_impl.h"

// Bits of `count` bytes, the lowest of the first byte first: {rows, n, 8 count}, 0 or 1
static tensor *bit_row(const blocks *b, int64_t at, int64_t count) {
  return AS(b, spread(b, AS(b, field(b, at, count), count, 1), 8, 1, 1), 8 * count);
}
// `low` with two more bits on top: `count` bytes have four such pairs each
static tensor *with_pairs(const blocks *b, tensor *low, int64_t at, int64_t count) {
  tensor *high = AS(b, spread(b, AS(b, field(b, at, count), count, 1), 4, 2, 2), 4 * count);
  return t_op2(b->g, OP_OR, low, op_int(b, OP_SHL, high, 4));
}
// The codes 0 to 7 of two rows of 16 take the low nibbles of 8 bytes as their high bits, the codes 8 to 15 the high
// ones.
tensor *expr_q6_0(const blocks *b) {
  tensor *high = t_op2(b->g, OP_SHR, AS(b, field(b, 2, 8), 1, 8), steps(b, DT_U8, 2, 4, true));
  high = op_int(b, OP_AND, t_op2(b->g, OP_SHR, AS(b, high, 1, 16), steps(b, DT_U8, 2, 2, true)), 3);
  tensor *code = t_op2(b->g, OP_OR, nibbles(b, 10, 16), op_int(b, OP_SHL, high, 4));
  return t_mul(b->g, AS(b, half_at(b, 0), 1, 1), centred(b, code, 32));
}

tensor *expr_iq2_k(const blocks *b) {
  return moved_values(b, half_at(b, 0), less(b, nibble_row(b, 4, 8), 8), 16, iq2(b, planes(b, 12, 2, 2)),
                      bit_row(b, 2, 2), 5);
}

// Two bits of each code, and the third ones
static tensor *three_bits(const blocks *b, int64_t low, int64_t high) {
  return t_op2(b->g, OP_OR, planes(b, low, 2, 2), op_int(b, OP_SHL, planes(b, high, 1, 1), 2));
}

tensor *expr_iq3_k(const blocks *b) {
  tensor *minus = t_op2(b->g, OP_CMPNE, bit_row(b, 4, 2), uop_int(b->g, DT_U8, 0));
  tensor *scale = t_cast(b->g, odd(b, nibble_row(b, 6, 8)), DT_I8);
  scale = t_where(b->g, minus, t_op1(b->g, OP_NEG, scale), scale);
  return moved_values(b, half_at(b, 0), scale, 16, iq3(b, three_bits(b, 14, 78)), bit_row(b, 2, 2), 4);
}

static tensor *six_bit_scales(const blocks *b) { return less(b, with_pairs(b, nibble_row(b, 8, 8), 4, 4), 32); }

tensor *expr_iq4_k(const blocks *b) {
  return moved_values(b, half_at(b, 0), six_bit_scales(b), 16, iq4(b, nibble_pieces(b, 16, 128, 16)), bit_row(b, 2, 2),
                      4);
}

tensor *expr_iq5_k(const blocks *b) {
  return moved_values(b, half_at(b, 0), six_bit_scales(b), 16, iq5(b, k_five_bits(b, 144, 16)), bit_row(b, 2, 2), 2);
}

tensor *expr_iq6_k(const blocks *b) {
  tensor *low = AS(b, k_nibbles(b, 20), 16, 16), *high = planes(b, 148, 2, 2);
  return moved_values(b, half_at(b, 0), t_bitcast(b->g, field(b, 4, 16), DT_I8), 16,
                      iq6(b, t_op2(b->g, OP_OR, low, op_int(b, OP_SHL, high, 4))), bit_row(b, 2, 2), 1);
}

// ---- a scale of the whole row ---------------------------------------------------------------------------------------

tensor *expr_iq4_ks(const blocks *b) {
  return values_of_row(b, field(b, 0, 8), iq4(b, nibble_pieces(b, 8, 128, 16)), 4);
}

tensor *expr_iq5_ks(const blocks *b) {
  return values_of_row(b, field(b, 0, 8), iq5(b, k_five_bits(b, 136, 8)), 2);
}

// Of each of eight words of 16 bits, the lowest bit is one of the sub-block's scale. The others are codes of four bits,
// in which each bit but the first was combined with the one above it.
tensor *expr_iq4_kss(const blocks *b) {
  graph *g = b->g;
  tensor *w = AS(b, words(b, DT_U16, 0, 64), 8, 8), *scale = NULL;
  for (int i = 0; i < 8; i++) {
    tensor *bit = op_int(b, OP_SHL, op_int(b, OP_AND, t_slice_i(g, w, 3, i, 1), 1), i);
    scale = scale ? t_op2(g, OP_OR, scale, bit) : bit;
  }
  w = op_int(b, OP_AND, w, 0xfffe);
  w = t_op2(g, OP_XOR, w, op_int(b, OP_SHR, w, 1));
  tensor *pair = t_cast(g, spread(b, AS(b, w, 8, 8, 1), 2, 8, 8), DT_U8);
  tensor *code = op_int(b, OP_AND, t_op2(g, OP_SHR, AS(b, pair, 8, 1, 16), steps(b, DT_U8, 2, 4, true)), 15);
  return values_of_row(b, t_cast(g, AS(b, scale, 8), DT_U8), iq4(b, AS(b, code, 256)), 4);
}

// Nibbles and a fifth bit, less 16
static tensor *five_bit_scales(const blocks *b, tensor *low, tensor *high) {
  return less(b, t_op2(b->g, OP_OR, low, op_int(b, OP_SHL, high, 4)), 16);
}

tensor *expr_iq2_ks(const blocks *b) {
  tensor *scale = five_bit_scales(b, nibble_row(b, 2, 4), bit_row(b, 1, 1));
  return moved_values(b, row_scale(b, DT_F16), scale, 8, iq2(b, planes(b, 6, 2, 2)), bit_row(b, 0, 1), 5);
}

tensor *expr_iq3_ks(const blocks *b) {
  tensor *scale = five_bit_scales(b, AS(b, nibbles(b, 2, 4), 8), bit_row(b, 0, 1));
  return moved_values(b, row_scale(b, DT_F16), scale, 8, iq3(b, three_bits(b, 6, 70)), bit_row(b, 1, 1), 4);
}

// A code stands for two weights.
tensor *expr_iq2_kl(const blocks *b) {
  static const int8_t values[] = {-63, -63, -40, -40, -40, -40, -23, -23, -23, -23, -23, -10, -10, -10, -10, 1,
                                  1,   1,   1,   1,   13,  13,  13,  13,  13,  28,  28,  28,  28,  28,  47,  47,
                                  -23, 13,  -63, -10, 13,  47,  -40, -23, 1,   13,  28,  -63, 1,   13,  47,  -23,
                                  -10, 1,   13,  28,  -40, -23, -10, 1,   13,  -63, -23, 1,   28,  47,  -23, 13};
  graph *g = b->g;
  tensor *low = AS(b, nibble_pieces(b, 6, 64, 16), 8, 16);
  tensor *high = op_int(b, OP_AND, t_op2(g, OP_SHR, AS(b, field(b, 70, 16), 1, 16), steps(b, DT_U8, 8, 1, true)), 1);
  tensor *code = AS(b, t_op2(g, OP_OR, low, op_int(b, OP_SHL, high, 4)), 128, 1);
  code = t_op2(g, OP_OR, code, steps(b, DT_U8, 2, 32, false));                   // which of the two
  tensor *scale = less(b, with_pairs(b, AS(b, nibbles(b, 2, 4), 8), 0, 2), 32);
  return scaled_codes(b, row_scale(b, DT_F16), scale, 8, chosen(b, code, 6, values));
}

tensor *expr_iq2_bn(const blocks *b) {
  tensor *q = t_op2(b->g, OP_SHR, AS(b, field(b, 0, 16), 1, 16), steps(b, DT_U8, 4, 2, true));
  return t_mul(b->g, row_scale(b, DT_F32), centred(b, AS(b, op_int(b, OP_AND, q, 3), 64), 1));
}

// A row begins with its scale and, as an integer, the sum of its codes.
tensor *expr_q8_kv(const blocks *b) {
  tensor *d = t_bitcast(b->g, t_slice_i(b->g, b->head, 2, 0, 4), DT_F32);
  return t_mul(b->g, d, f32(b, t_bitcast(b->g, field(b, 0, 32), DT_I8)));
}
