// Formats whose codes are looked up in code books (codebook.h): IQ1 to IQ4 and the 4-bit floats. See dequant.c.
//
// All factors of the IQ1 to IQ3 formats are small: a half-precision d, an odd number up to 31, a code of at most 62.
// Products of the three are exact in F32, so the order of the multiplications and the placement of powers of two do not
// change a bit of the result.
#include "model/codebook.h"
#include "model/dequant_impl.h"

static tensor *look_up(const blocks *b, enum codebook book, tensor *codes) {
  return t_gather(b->g, codebook(b->g, book), codes);
}

// Indices of 8 + `bits` bits: low bytes, and the rest from `high`, both of the shape {rows, n, count}.
static tensor *wide_index(const blocks *b, tensor *low, tensor *high) {
  return t_op2(b->g, OP_OR, t_cast(b->g, low, DT_U16), op_int(b, OP_SHL, t_cast(b->g, high, DT_U16), 8));
}

static tensor *half_times(const blocks *b, int64_t at, double by) { return t_scale(b->g, half_at(b, at), by); }

// Magnitudes, negative where a bit is set, of the same shape
static tensor *negated_where(const blocks *b, tensor *magnitude, tensor *bit) {
  tensor *minus = t_op2(b->g, OP_CMPNE, bit, uop_int(b->g, DT_U8, 0));
  return t_where(b->g, minus, t_op1(b->g, OP_NEG, magnitude), magnitude);
}
// Magnitudes {rows, n, 256} with signs: the bits of 32 bytes {rows, n, 32} mark the negative ones.
static tensor *with_signs(const blocks *b, tensor *magnitude, tensor *signs) {
  return negated_where(b, AS(b, magnitude, 32, 8), spread(b, AS(b, signs, 32, 1), 8, 1, 1));
}

// Seven sign bits, and an eighth that makes the number of minus signs even: {rows, n, 32}
static tensor *even_signs(const blocks *b, tensor *seven) {
  tensor *s = t_cast(b->g, AS(b, seven, 32), DT_U8), *p = s;
  for (int shift = 4; shift; shift /= 2) p = t_op2(b->g, OP_XOR, p, op_int(b, OP_SHR, p, shift));
  return t_op2(b->g, OP_OR, s, op_int(b, OP_SHL, p, 7));
}

// One word per 32 weights: four times seven signs, and a scale of four bits.
static tensor *signs_and_scale(const blocks *b, tensor *word, tensor *index, enum codebook book, double unit) {
  tensor *signs = even_signs(b, spread(b, AS(b, word, 8, 1), 4, 7, 7));
  return scaled_codes(b, half_times(b, 0, unit), odd(b, AS(b, op_int(b, OP_SHR, word, 28), 8)), 8,
                      with_signs(b, look_up(b, book, index), signs));
}

tensor *expr_iq2_xxs(const blocks *b) {
  tensor *w = AS(b, words(b, DT_U32, 2, 16), 8, 2);                   // per 32 weights: four indices, signs and scale
  tensor *index = t_slice_i(b->g, AS(b, field(b, 2, 64), 8, 8), 3, 0, 4);
  return signs_and_scale(b, AS(b, t_slice_i(b->g, w, 3, 1, 1), 8), AS(b, index, 32), BOOK_IQ2_XXS, 0.125);
}

tensor *expr_iq3_xxs(const blocks *b) {
  return signs_and_scale(b, words(b, DT_U32, 66, 8), field(b, 2, 64), BOOK_IQ3_XXS, 0.25);
}

tensor *expr_iq2_xs(const blocks *b) {
  tensor *w = words(b, DT_U16, 2, 32), *scale = spread(b, AS(b, field(b, 66, 8), 8, 1), 2, 4, 4);
  tensor *code = with_signs(b, look_up(b, BOOK_IQ2_XS, bits(b, w, 0, 511)), even_signs(b, op_int(b, OP_SHR, w, 9)));
  return scaled_codes(b, half_times(b, 0, 0.125), odd(b, AS(b, scale, 16)), 16, code);
}

tensor *expr_iq2_s(const blocks *b) {
  tensor *index = wide_index(b, field(b, 2, 32), AS(b, spread(b, AS(b, field(b, 66, 8), 8, 1), 4, 2, 2), 32));
  tensor *scale = spread(b, AS(b, field(b, 74, 8), 8, 1), 2, 4, 4);
  return scaled_codes(b, half_times(b, 0, 0.125), odd(b, AS(b, scale, 16)), 16,
                      with_signs(b, look_up(b, BOOK_IQ2_S, index), field(b, 34, 32)));
}

tensor *expr_iq3_s(const blocks *b) {
  tensor *index = wide_index(b, field(b, 2, 64), AS(b, spread(b, AS(b, field(b, 66, 8), 8, 1), 8, 1, 1), 64));
  tensor *scale = spread(b, AS(b, field(b, 106, 4), 4, 1), 2, 4, 4);
  return scaled_codes(b, half_at(b, 0), odd(b, AS(b, scale, 8)), 8,
                      with_signs(b, look_up(b, BOOK_IQ3_S, index), field(b, 74, 32)));
}

// Ternary weights in eighths, as integers, each moved up by an eighth, or down where a bit says so. `down` is 0 or 1
// for each of `parts` of `each` weights.
static tensor *shifted_codes(const blocks *b, tensor *index, tensor *down, int64_t parts, int64_t each) {
  tensor *by =
    op_int(b, OP_ADD, t_op1(b->g, OP_NEG, op_int(b, OP_SHL, t_cast(b->g, AS(b, down, parts, 1), DT_I8), 1)), 1);
  return t_add(b->g, AS(b, look_up(b, BOOK_IQ1, index), parts, each), by);
}

tensor *expr_iq1_s(const blocks *b) {
  // per 32 weights: four times three bits of index, scale, direction
  tensor *h = words(b, DT_U16, 34, 8);
  tensor *index = wide_index(b, field(b, 2, 32), AS(b, spread(b, AS(b, h, 8, 1), 4, 3, 3), 32));
  return scaled_codes(b, half_times(b, 0, 0.125), odd(b, bits(b, h, 12, 7)), 8,
                      shifted_codes(b, index, op_int(b, OP_SHR, h, 15), 8, 32));
}

tensor *expr_iq1_m(const blocks *b) {
  graph *g = b->g;
  // per 8 weights: three bits of index, direction
  tensor *h = AS(b, spread(b, AS(b, field(b, 32, 16), 16, 1), 2, 4, 4), 32);
  tensor *index = wide_index(b, field(b, 0, 32), bits(b, h, 0, 7)), *s = words(b, DT_U16, 48, 4), *d = NULL;
  // four words: four scales of three bits each, and a quarter of d
  for (int i = 0; i < 4; i++) {
    tensor *quarter = op_int(b, OP_SHL, op_int(b, OP_SHR, t_slice_i(g, s, 2, i, 1), 12), 4 * i);
    d = d ? t_op2(g, OP_OR, d, quarter) : quarter;
  }
  tensor *scale = AS(b, spread(b, AS(b, s, 4, 1), 4, 3, 3), 16);
  d = t_scale(g, f32(b, t_bitcast(g, d, DT_F16)), 0.125);
  return scaled_codes(b, d, odd(b, scale), 16, shifted_codes(b, index, op_int(b, OP_SHR, h, 3), 32, 8));
}

// ---- four bits ------------------------------------------------------------------------------------------------------

tensor *expr_iq4_nl(const blocks *b) { return t_mul(b->g, half_at(b, 0), f32(b, iq4(b, nibble_pieces(b, 2, 16, 16)))); }

tensor *expr_iq4_xs(const blocks *b) {
  tensor *high = t_cast(b->g, spread(b, words(b, DT_U16, 2, 1), 8, 2, 2), DT_U8),
         *low = AS(b, spread(b, AS(b, field(b, 4, 4), 4, 1), 2, 4, 4), 8);
  tensor *scale = op_int(b, OP_SUB, t_cast(b->g, t_op2(b->g, OP_OR, low, op_int(b, OP_SHL, high, 4)), DT_I8), 32);
  return scaled_codes(b, half_at(b, 0), scale, 8, iq4(b, nibble_pieces(b, 8, 128, 16)));
}

// Codes of 4-bit floats (a sign, two bits of exponent, one of mantissa) as twice their value: 0 1 2 3 4 6 8 12 and the
// same negated
static tensor *fp4(const blocks *b, tensor *code) {
  tensor *c = t_cast(b->g, code, DT_I8), *m = op_int(b, OP_AND, c, 7);
  // steps of 2, of 4
  tensor *past4 = op_int(b, OP_SUB, op_int(b, OP_MAX, m, 4), 4), *past6 = op_int(b, OP_SUB, op_int(b, OP_MAX, m, 6), 6);
  m = t_add(b->g, t_add(b->g, m, past4), op_int(b, OP_SHL, past6, 1));
  return t_where(b->g, t_op2(b->g, OP_CMPLT, c, uop_int(b->g, DT_I8, 8)), m, t_op1(b->g, OP_NEG, m));
}

// Half of 2^(e - 127): the bits of a float with this exponent, subnormal for e = 0 and 1
static tensor *fp4_times(const blocks *b, tensor *code) {
  tensor *e = t_cast(b->g, field(b, 0, 1), DT_U32);
  tensor *normal = op_int(b, OP_SHL, op_int(b, OP_SUB, op_int(b, OP_MAX, e, 1), 1), 23);
  tensor *small = op_int(b, OP_SHL, op_int(b, OP_ADD, op_int(b, OP_MIN, e, 1), 1), 21);
  tensor *d = t_bitcast(b->g, t_op2(b->g, OP_MAX, normal, small), DT_F32);
  return t_mul(b->g, d, f32(b, fp4(b, code)));
}
tensor *expr_mxfp4(const blocks *b) { return fp4_times(b, nibble_pieces(b, 1, 16, 16)); }

// Scales of 16 weights are floats of four bits of exponent and three of mantissa; their sign is ignored, and 0x7f means
// 0. Shifted up by seven bits they are half-precision numbers 2^8 times smaller, subnormal ones included. The factor is
// half of 2^8 since codes are doubled.
tensor *expr_nvfp4(const blocks *b) {
  graph *g = b->g;
  tensor *s = field(b, 0, 4);
  s = t_where(g, t_op2(g, OP_CMPEQ, s, uop_int(g, DT_U8, 0x7f)), uop_int(g, DT_U8, 0), op_int(b, OP_AND, s, 0x7f));
  tensor *d = t_scale(g, f32(b, t_bitcast(g, op_int(b, OP_SHL, t_cast(g, s, DT_U16), 7), DT_F16)), 0x1p7);
  return t_mul(g, AS(b, d, 4, 1), f32(b, AS(b, fp4(b, nibble_pieces(b, 4, 32, 8)), 4, 16)));
}

// ---- rows that are stored together (ik_llama.cpp's _R4, _R8) --------------------------------------------------------

// The lowest bits of four bytes are a scale of 32 weights. Of the other bits, the sign of weight i is bit i (without
// the lowest) exclusive or bit i + 1.
static tensor *signs_with_scale(const blocks *b, tensor *index, enum codebook book, double unit) {
  tensor *s = AS(b, field_in(b, 2, 32, 4), 8, 4), *scale = NULL;
  for (int i = 0; i < 4; i++) {
    tensor *bit = op_int(b, OP_SHL, op_int(b, OP_AND, t_slice_i(b->g, s, 3, i, 1), 1), i);
    scale = scale ? t_op2(b->g, OP_OR, scale, bit) : bit;
  }
  s = op_int(b, OP_AND, s, 254);
  s = t_op2(b->g, OP_XOR, s, op_int(b, OP_SHR, s, 1));
  return scaled_codes(b, half_times(b, 0, unit), odd(b, AS(b, scale, 8)), 8,
                      with_signs(b, look_up(b, book, index), s));
}
tensor *expr_iq2_xxs_r4(const blocks *b) { return signs_with_scale(b, field_in(b, 34, 32, 4), BOOK_IQ2_XXS, 0.125); }
tensor *expr_iq3_xxs_r4(const blocks *b) { return signs_with_scale(b, field_in(b, 34, 64, 8), BOOK_IQ3_XXS, 0.25); }

tensor *expr_iq2_xs_r4(const blocks *b) {
  tensor *w = t_bitcast(b->g, field_in(b, 2, 64, 8), DT_U16);
  tensor *s = t_cast(b->g, op_int(b, OP_SHR, w, 9), DT_U8);
  s = t_op2(b->g, OP_XOR, s, op_int(b, OP_SHL, s, 1));
  return scaled_codes(b, half_times(b, 0, 0.125), odd(b, nibble_row(b, 66, 8)), 16,
                      with_signs(b, look_up(b, BOOK_IQ2_XS, bits(b, w, 0, 511)), s));
}

tensor *expr_iq2_s_r4(const blocks *b) {
  tensor *high = AS(b, spread(b, AS(b, field(b, 34, 8), 8, 1), 4, 2, 2), 32);
  tensor *index = wide_index(b, field_in(b, 2, 32, 4), high);
  return scaled_codes(b, half_times(b, 0, 0.125), odd(b, nibble_row(b, 74, 8)), 16,
                      with_signs(b, look_up(b, BOOK_IQ2_S, index), field_in(b, 42, 32, 4)));
}

// Of 32 weights, indices of fours 0, 4, 1, 5, .. follow each other, but their high bits are in order; and a byte has
// the signs of weights 0, 4, 8, ..
tensor *expr_iq3_s_r4(const blocks *b) {
  graph *g = b->g;
  tensor *low = AS(b, t_permute(g, AS(b, field(b, 2, 64), 8, 4, 2), (int[]){0, 1, 2, 4, 3}), 64);
  tensor *index = wide_index(b, low, AS(b, spread(b, AS(b, field(b, 66, 8), 8, 1), 8, 1, 1), 64));
  tensor *sign = t_op2(g, OP_SHR, AS(b, field_in(b, 74, 32, 4), 8, 1, 4), steps(b, DT_U8, 8, 1, true));
  tensor *code = negated_where(b, AS(b, look_up(b, BOOK_IQ3_S, index), 8, 8, 4), op_int(b, OP_AND, sign, 1));
  return scaled_codes(b, half_at(b, 0), odd(b, AS(b, nibbles(b, 106, 4), 8)), 8, code);
}

// Blocks of 32 weights, and one scale for the whole row
tensor *expr_iq1_s_r4(const blocks *b) {
  tensor *h = t_bitcast(b->g, field_in(b, 4, 2, 2), DT_U16);
  tensor *index = wide_index(b, field(b, 0, 4), spread(b, AS(b, h, 1), 4, 3, 3));
  tensor *code = shifted_codes(b, index, op_int(b, OP_SHR, h, 15), 1, 32);
  return scaled_subs(b, t_scale(b->g, row_scale(b, DT_F16), 0.125), odd(b, bits(b, h, 12, 7)), 1, code, 32);
}
tensor *expr_iq1_m_r4(const blocks *b) {
  tensor *h = nibble_row(b, 4, 2);
  tensor *code = shifted_codes(b, wide_index(b, field(b, 0, 4), bits(b, h, 0, 7)), op_int(b, OP_SHR, h, 3), 4, 8);
  return scaled_subs(b, t_scale(b->g, row_scale(b, DT_F16), 0.125), nibble_row(b, 6, 1), 2, code, 16);
}

tensor *expr_mxfp4_r8(const blocks *b) {
  tensor *code = t_op2(b->g, OP_SHR, AS(b, field_in(b, 1, 16, 4), 1, 16), steps(b, DT_U8, 2, 4, true));
  return fp4_times(b, AS(b, op_int(b, OP_AND, code, 15), 32));
}
