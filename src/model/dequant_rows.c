// Formats of ik_llama.cpp whose rows are stored 4, 8 or 16 together (_R4, _R8, _R16): those of other files, with four
// bytes of codes of each row at a time, and codes in another order within 32. See dequant.c.
//
// A number of a code's place has the bits (ll, h, lh, i i) in most of them: byte i of four, the low or high half of it,
// and lh and ll say which four bytes.
#include "model/dequant_impl.h"

static tensor *quads(const blocks *b, int64_t at, int64_t count) { return field_in(b, at, count, 4); }

// x {rows, n, count} shifted right by 0, step, ..: {.., count / inner, times, inner}
static tensor *shifted(const blocks *b, tensor *x, int64_t count, int64_t inner, int64_t times, int64_t step) {
  return t_op2(b->g, OP_SHR, AS(b, x, count / inner, 1, inner), steps(b, DT_U8, times, step, true));
}
static tensor *low_bits_of(const blocks *b, tensor *x, int64_t count, int64_t mask) {
  return op_int(b, OP_AND, AS(b, x, count), mask);
}
static tensor *above(const blocks *b, tensor *low, tensor *high, int64_t shift) {
  return t_op2(b->g, OP_OR, low, op_int(b, OP_SHL, high, shift));
}

// 2 count codes of four bits
static tensor *four_of(const blocks *b, int64_t at, int64_t count) {
  graph *g = b->g;
  uop *d[] = {b->rows, uop_idx(g, b->n * count / 16), uop_idx(g, 2), uop_idx(g, 2), uop_idx(g, 4)};
  tensor *q = t_permute(g, t_reshape(g, quads(b, at, count), 5, d), (int[]){0, 1, 3, 2, 4});
  return low_bits_of(b, shifted(b, AS(b, q, count), count, 8, 2, 4), 2 * count, 15);
}

// High bits of one byte for four times two codes: 8 count codes of one bit, shifted by lh, h and ll
static tensor *high_bits(const blocks *b, int64_t at, int64_t count, int64_t lh, int64_t h, int64_t ll) {
  tensor *x = shifted(b, quads(b, at, count), count, 4, 2, lh);
  return low_bits_of(b, shifted(b, shifted(b, x, 2 * count, 8, 2, h), 4 * count, 16, 2, ll), 8 * count, 1);
}
// Those of two bits: each ll has bytes of its own
static tensor *high_pairs(const blocks *b, int64_t at, int64_t count, int64_t lh, int64_t h) {
  tensor *x = shifted(b, quads(b, at, count), count, 4, 2, lh);
  return low_bits_of(b, shifted(b, x, 2 * count, 8, 2, h), 4 * count, 3);
}
static tensor *five_of(const blocks *b, int64_t low, int64_t high, int64_t lh, int64_t ll) {
  return above(b, four_of(b, low, 128), high_bits(b, high, 32, lh, 1, ll), 4);
}
static tensor *two_of(const blocks *b, int64_t at) {
  return low_bits_of(b, shifted(b, quads(b, at, 64), 64, 4, 4, 2), 256, 3);
}
static tensor *three_of(const blocks *b, int64_t low, int64_t high) {
  return above(b, two_of(b, low), low_bits_of(b, shifted(b, quads(b, high, 32), 32, 4, 8, 1), 256, 1), 2);
}

// `of` bits of 16 numbers at a time: those of numbers 0, 1, .. count - 1 are the lowest bits of count bytes
static tensor *in_turns(const blocks *b, int64_t at, int64_t count, int64_t n, int64_t of) {
  return low_bits_of(b, shifted(b, field(b, at, count), count, count, n / count, of), n, (1 << of) - 1);
}
static tensor *six_bits(const blocks *b, int64_t high, int64_t low) {
  return less(b, above(b, in_turns(b, low, 8, 16, 4), in_turns(b, high, 4, 16, 2), 4), 32);
}

static tensor *halves_times(const blocks *b, int64_t count, tensor *code, int64_t zero) {
  return t_mul(b->g, AS(b, half_at(b, 0), 1), centred(b, AS(b, code, count), zero));
}

tensor *expr_q4_0_r8(const blocks *b) {
  return halves_times(b, 32, low_bits_of(b, shifted(b, quads(b, 2, 16), 16, 16, 2, 4), 32, 15), 8);
}
tensor *expr_q5_0_r4(const blocks *b) {
  return halves_times(b, 32, above(b, four_of(b, 6, 16), high_bits(b, 2, 4, 2, 4, 1), 4), 16);
}
tensor *expr_q6_0_r4(const blocks *b) {
  return halves_times(b, 32, above(b, four_of(b, 10, 16), high_pairs(b, 2, 8, 2, 4), 4), 32);
}
tensor *expr_q8_0_r8(const blocks *b) {
  return t_mul(b->g, f32(b, t_bitcast(b->g, quads(b, 2, 32), DT_I8)), half_at(b, 0));
}
tensor *expr_q8_k_r8(const blocks *b) {
  return t_mul(b->g, f32(b, t_bitcast(b->g, quads(b, 2, 256), DT_I8)), half_at(b, 0));
}
// Codes are 128 more.
tensor *expr_q8_k_r16(const blocks *b) {
  return t_mul(b->g, half_at(b, 0), f32(b, t_bitcast(b->g, op_int(b, OP_XOR, quads(b, 2, 256), 128), DT_I8)));
}
tensor *expr_q8_kv_r8(const blocks *b) {
  return t_mul(b->g, row_scale(b, DT_F32), f32(b, t_bitcast(b->g, quads(b, 0, 32), DT_I8)));
}
tensor *expr_iq2_bn_r4(const blocks *b) {
  tensor *q = low_bits_of(b, shifted(b, quads(b, 0, 16), 16, 4, 4, 2), 64, 3);
  return t_mul(b->g, row_scale(b, DT_F32), centred(b, q, 1));
}
tensor *expr_bf16_r16(const blocks *b) { return f32(b, t_bitcast(b->g, quads(b, 0, 4), DT_BF16)); }
tensor *expr_iq4_nl_r4(const blocks *b) { return t_mul(b->g, half_at(b, 0), f32(b, iq4(b, four_of(b, 2, 16)))); }

tensor *expr_iq4_xs_r8(const blocks *b) {
  tensor *scale = less(b, above(b, in_turns(b, 4, 4, 8, 4), in_turns(b, 2, 2, 8, 2), 4), 32);
  tensor *code = low_bits_of(b, shifted(b, quads(b, 8, 128), 128, 4, 2, 4), 256, 15);
  return scaled_codes(b, half_at(b, 0), scale, 8, iq4(b, code));
}

// d scale code - m min, of `subs` sub-blocks
static tensor *affine(const blocks *b, int64_t subs, tensor *scale, tensor *min, tensor *code) {
  tensor *m = t_mul(b->g, half_at(b, 2), f32(b, min));
  return t_sub(b->g, scaled_codes(b, half_at(b, 0), scale, subs, code), AS(b, m, subs, 1));
}
tensor *expr_q2_k_r4(const blocks *b) {
  tensor *s = field(b, 4, 16);
  return affine(b, 16, bits(b, s, 0, 15), bits(b, s, 4, 15), two_of(b, 20));
}
static tensor *affine_of_8(const blocks *b, tensor *code) {
  tensor *high = in_turns(b, 4, 4, 8, 4), *low = field(b, 8, 8);
  return affine(b, 8, above(b, bits(b, low, 0, 15), bits(b, high, 0, 3), 4),
                above(b, bits(b, low, 4, 15), bits(b, high, 2, 3), 4), code);
}
tensor *expr_q4_k_r4(const blocks *b) { return affine_of_8(b, four_of(b, 16, 128)); }
tensor *expr_q5_k_r4(const blocks *b) { return affine_of_8(b, five_of(b, 48, 16, 2, 4)); }

tensor *expr_q3_k_r4(const blocks *b) {
  return scaled_codes(b, half_at(b, 0), six_bits(b, 2, 6), 16, less(b, three_of(b, 46, 14), 4));
}
tensor *expr_q6_k_r4(const blocks *b) {
  tensor *code = above(b, four_of(b, 82, 128), high_pairs(b, 18, 64, 4, 2), 4);
  return scaled_codes(b, half_at(b, 0), t_bitcast(b->g, field(b, 2, 16), DT_I8), 16, less(b, code, 32));
}

// ---- with values that a bit of each sub-block moves -----------------------------------------------------------------

tensor *expr_iq2_k_r4(const blocks *b) {
  return moved_values(b, half_at(b, 0), less(b, in_turns(b, 4, 8, 16, 4), 8), 16, iq2(b, two_of(b, 12)),
                      in_turns(b, 2, 2, 16, 1), 5);
}
tensor *expr_iq3_k_r4(const blocks *b) {
  tensor *minus = t_op2(b->g, OP_CMPNE, in_turns(b, 4, 2, 16, 1), uop_int(b->g, DT_U8, 0));
  tensor *scale = t_cast(b->g, odd(b, in_turns(b, 6, 8, 16, 4)), DT_I8);
  scale = t_where(b->g, minus, t_op1(b->g, OP_NEG, scale), scale);
  return moved_values(b, half_at(b, 0), scale, 16, iq3(b, three_of(b, 14, 78)), in_turns(b, 2, 2, 16, 1), 4);
}
tensor *expr_iq4_k_r4(const blocks *b) {
  return moved_values(b, half_at(b, 0), six_bits(b, 4, 8), 16, iq4(b, four_of(b, 16, 128)), in_turns(b, 2, 2, 16, 1),
                      4);
}
tensor *expr_iq5_k_r4(const blocks *b) {
  return moved_values(b, half_at(b, 0), six_bits(b, 4, 8), 16, iq5(b, five_of(b, 16, 144, 4, 2)),
                      in_turns(b, 2, 2, 16, 1), 2);
}
tensor *expr_iq4_ks_r4(const blocks *b) { return values_of_row(b, field(b, 0, 8), iq4(b, four_of(b, 8, 128)), 4); }
tensor *expr_iq5_ks_r4(const blocks *b) {
  return values_of_row(b, field(b, 0, 8), iq5(b, five_of(b, 8, 136, 4, 2)), 2);
}
