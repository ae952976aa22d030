// The building blocks of format expressions: the bytes of blocks as a tensor {rows, block, byte}, and slices, shifts
// and tables over them. Private to dequant.c (which has the table of expressions) and dequant_*.c.
//
// Codes and the scales of sub-blocks stay integers up to the last multiplication, which is by a float scale.
#ifndef WEFT_DEQUANT_IMPL_H
#define WEFT_DEQUANT_IMPL_H
#include "model/dequant.h"

// bytes: U8 {groups of rows, n blocks, bytes of the blocks of a group}; head: {rows, 1, bytes before a row's blocks},
// NULL: there are none; together: rows of a group; skip: rows of the groups before those that are wanted
typedef struct blocks { graph *g; tensor *bytes, *head; uop *rows; int64_t n, together, skip; } blocks;

// x as {rows, n blocks, tail...}
static inline tensor *as(const blocks *b, tensor *x, int n, const int64_t *tail) {
  uop *d[MAX_DIMS] = {b->rows, uop_idx(b->g, b->n)};
  for (int i = 0; i < n; i++) d[2 + i] = uop_idx(b->g, tail[i]);
  return t_reshape(b->g, x, 2 + n, d);
}
#define AS(b, x, ...) as(b, x, (int)COUNT(((int64_t[]){__VA_ARGS__})), (int64_t[]){__VA_ARGS__})

// Bytes at .. at + count of every block: {rows, n, count}. Rows that are stored together have each field one after the
// other, `unit` bytes of each row at a time.
static inline tensor *field_in(const blocks *b, int64_t at, int64_t count, int64_t unit) {
  graph *g = b->g;
  if (b->together == 1) return t_slice_i(g, b->bytes, 2, at, count);
  tensor *x = t_slice_i(g, b->bytes, 2, at * b->together, count * b->together);
  uop *d[] = {b->bytes->shape->dim[0], uop_idx(g, b->n), uop_idx(g, count / unit), uop_idx(g, b->together),
              uop_idx(g, unit)};
  x = t_permute(g, t_reshape(g, x, 5, d), (int[]){0, 3, 1, 2, 4});
  uop *rows[] = {idx_mul(g, d[0], d[3]), d[1], uop_idx(g, count)};
  return t_slice(g, t_reshape(g, x, 3, rows), 0, uop_idx(g, b->skip), b->rows);
}
static inline tensor *field(const blocks *b, int64_t at, int64_t count) { return field_in(b, at, count, 1); }
static inline tensor *half_at(const blocks *b, int64_t at) {
  return t_cast(b->g, t_bitcast(b->g, field_in(b, at, 2, 2), DT_F16), DT_F32);
}
static inline tensor *f32(const blocks *b, tensor *x) { return t_cast(b->g, x, DT_F32); }
// The scale of a whole row, of type dt: {rows, 1, 1}
static inline tensor *row_scale(const blocks *b, enum dtype dt) { return f32(b, t_bitcast(b->g, b->head, dt)); }

// 0, step, 2 step, ... as a tensor {count} or, with `inner`, {count, 1}
static inline tensor *steps(const blocks *b, enum dtype dt, int64_t count, int64_t step, bool inner) {
  tensor *i = t_cast(b->g, t_op2(b->g, OP_MUL, t_iota(b->g, uop_idx(b->g, count)), uop_idx(b->g, step)), dt);
  return inner ? t_reshape_i(b->g, i, 2, (int64_t[]){count, 1}) : i;
}

static inline tensor *op_int(const blocks *b, enum op op, tensor *x, int64_t k) {
  return t_op2(b->g, op, x, uop_int(b->g, (enum dtype)x->dt, k));
}
static inline tensor *bits(const blocks *b, tensor *x, int64_t shift, int64_t mask) {
  return op_int(b, OP_AND, shift ? op_int(b, OP_SHR, x, shift) : x, mask);
}

// Low nibbles of `count` bytes, then their high nibbles: {2, count}
static inline tensor *nibbles(const blocks *b, int64_t at, int64_t count) {
  return op_int(b, OP_AND, t_op2(b->g, OP_SHR, AS(b, field(b, at, count), 1, count), steps(b, DT_U8, 2, 4, true)), 15);
}

static inline tensor *centred(const blocks *b, tensor *q, int64_t zero) {
  return f32(b, op_int(b, OP_SUB, t_cast(b->g, q, DT_I8), zero));
}

// Two neighbouring bytes as 16 bits, {rows, n, count}; or four as 32 bits
static inline tensor *words(const blocks *b, enum dtype dt, int64_t at, int64_t count) {
  return t_bitcast(b->g, field(b, at, count * dtype_size(dt)), dt);
}

// The `width` bits at 0, step, ... of every element (last axis 1): the last axis becomes `count`.
static inline tensor *spread(const blocks *b, tensor *x, int64_t count, int64_t step, int64_t width) {
  return op_int(b, OP_AND, t_op2(b->g, OP_SHR, x, steps(b, (enum dtype)x->dt, count, step, false)),
                (INT64_C(1) << width) - 1);
}

// Nibbles of `count` bytes, the low one of each byte first
static inline tensor *nibble_row(const blocks *b, int64_t at, int64_t count) {
  return AS(b, spread(b, AS(b, field(b, at, count), count, 1), 2, 4, 4), 2 * count);
}

// d times scales of sub-blocks {rows, n, subs} times codes {rows, n, subs, each} as small integers
static inline tensor *scaled_subs(const blocks *b, tensor *d, tensor *scale, int64_t subs, tensor *code, int64_t each) {
  return t_mul(b->g, AS(b, t_mul(b->g, d, f32(b, scale)), subs, 1), f32(b, AS(b, code, subs, each)));
}
// Those of blocks of 256 codes
static inline tensor *scaled_codes(const blocks *b, tensor *d, tensor *scale, int64_t subs, tensor *code) {
  return scaled_subs(b, d, scale, subs, code, 256 / subs);
}

// 2 x + 1
static inline tensor *odd(const blocks *b, tensor *x) { return op_int(b, OP_ADD, op_int(b, OP_SHL, x, 1), 1); }
// 256 codes in `runs` runs of 32 bytes: first the lowest `width` bits of all bytes, then the next ones. {16, 16}, or
// {256}
static inline tensor *planes(const blocks *b, int64_t at, int64_t runs, int64_t width) {
  int64_t n = 8 / runs;
  tensor *q = t_op2(b->g, OP_SHR, AS(b, field(b, at, runs * 32), runs, 1, 32), steps(b, DT_U8, n, width, true));
  return AS(b, op_int(b, OP_AND, q, (1 << width) - 1), 16, 16);
}

// 128 bytes: 32 low nibbles, the high nibbles of the same bytes, then the next 32 bytes
static inline tensor *k_nibbles(const blocks *b, int64_t at) {
  tensor *q = t_op2(b->g, OP_SHR, AS(b, field(b, at, 128), 4, 1, 32), steps(b, DT_U8, 2, 4, true));
  return AS(b, op_int(b, OP_AND, q, 15), 8, 32);
}

// Codes of five bits: the fifth ones of 32 bytes at `high`, first those of codes 0 to 31
static inline tensor *k_five_bits(const blocks *b, int64_t high, int64_t low) {
  tensor *bit =
    op_int(b, OP_AND, t_op2(b->g, OP_SHR, AS(b, field(b, high, 32), 1, 32), steps(b, DT_U8, 8, 1, true)), 1);
  return t_op2(b->g, OP_OR, k_nibbles(b, low), op_int(b, OP_SHL, bit, 4));
}

// Nibbles of `count` bytes at a time, low ones first: {rows, n, all of them}
static inline tensor *nibble_pieces(const blocks *b, int64_t at, int64_t bytes, int64_t count) {
  tensor *q = t_op2(b->g, OP_SHR, AS(b, field(b, at, bytes), bytes / count, 1, count), steps(b, DT_U8, 2, 4, true));
  return AS(b, op_int(b, OP_AND, q, 15), 2 * bytes);
}

// One of 2^n values, selected by the bits of a code: the last bit selects within pairs, the next one between pairs, and
// so on.
static inline tensor *chosen(const blocks *b, tensor *code, int n, const int8_t *value) {
  if (!n) return uop_int(b->g, DT_I8, value[0]);
  tensor *low = chosen(b, code, n - 1, value), *high = chosen(b, code, n - 1, value + (1 << (n - 1)));
  return t_where(b->g, t_op2(b->g, OP_CMPNE, op_int(b, OP_AND, code, 1 << (n - 1)), uop_int(b->g, DT_U8, 0)), high,
                 low);
}

// The values of the 4-bit codes of IQ4_NL
static inline tensor *iq4(const blocks *b, tensor *code) {
  return chosen(b, code, 4, (const int8_t[]){-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113});
}

// ---- ik_llama.cpp's ----

static inline tensor *less(const blocks *b, tensor *x, int64_t zero) {
  return op_int(b, OP_SUB, t_cast(b->g, x, DT_I8), zero);
}

// d times the scales of `subs` sub-blocks times values of codes (I8), which the bits `up` of sub-blocks move by `by`
static inline tensor *moved_values(const blocks *b, tensor *d, tensor *scale, int64_t subs, tensor *value, tensor *up,
                            int64_t by) {
  tensor *more = op_int(b, OP_MUL, t_cast(b->g, AS(b, up, subs, 1), DT_I8), by);
  return scaled_codes(b, d, scale, subs, t_add(b->g, AS(b, value, subs, 256 / subs), more));
}

static inline tensor *iq2(const blocks *b, tensor *code) {
  return chosen(b, code, 2, (const int8_t[]){-31, -13, 1, 17});
}
static inline tensor *iq3(const blocks *b, tensor *code) {
  return chosen(b, code, 3, (const int8_t[]){-63, -40, -23, -10, 1, 13, 28, 47});
}
static inline tensor *iq5(const blocks *b, tensor *code) {
  return chosen(b, code, 5, (const int8_t[]){-126, -114, -103, -92, -83, -74, -65, -57, -50, -43, -36,
                                             -30,  -24,  -18,  -12, -6,  -1,  5,   11,  17,  23,  29,
                                             36,   43,   51,   59,  68,  77,  87,  97,  109, 121});
}
static inline tensor *iq6(const blocks *b, tensor *code) {
  return chosen(b, code, 6,
                (const int8_t[]){-127, -121, -115, -109, -104, -98, -93, -88, -84, -79, -74, -70, -66, -62, -58, -54,
                                 -51,  -47,  -44,  -40,  -37,  -34, -31, -28, -25, -22, -19, -16, -13, -11, -8,  -5,
                                 -2,   0,    3,    6,    9,    12,  14,  17,  20,  23,  27,  30,  33,  36,  40,  44,
                                 47,   51,   55,   59,   63,   68,  72,  77,  82,  87,  92,  98,  103, 109, 115, 121});
}

// Scales of eight sub-blocks, from -127 to 127. The lowest bit of each says whether values are moved.
static inline tensor *values_of_row(const blocks *b, tensor *scales, tensor *value, int64_t by) {
  tensor *scale = op_int(b, OP_SUB, t_cast(b->g, op_int(b, OP_AND, scales, 254), DT_I16), 127);
  return moved_values(b, row_scale(b, DT_F32), scale, 8, value, op_int(b, OP_AND, scales, 1), by);
}

// F32, with the elements of the blocks in their order
typedef tensor *expression(const blocks *b);
expression expr_q2_k, expr_q3_k, expr_q1_0, expr_q2_0, expr_tq1_0, expr_tq2_0;        // dequant_low.c
// dequant_iq.c
expression expr_iq1_s, expr_iq1_m, expr_iq2_xxs, expr_iq2_xs, expr_iq2_s, expr_iq3_xxs, expr_iq3_s, expr_iq4_nl,
  expr_iq4_xs, expr_mxfp4, expr_nvfp4, expr_iq1_s_r4, expr_iq1_m_r4, expr_iq2_xxs_r4, expr_iq2_xs_r4, expr_iq2_s_r4,
  expr_iq3_xxs_r4, expr_iq3_s_r4, expr_mxfp4_r8;
// dequant_ik.c
expression expr_q6_0, expr_iq2_k, expr_iq3_k, expr_iq4_k, expr_iq5_k, expr_iq6_k, expr_iq2_ks, expr_iq3_ks, expr_iq4_ks,
  expr_iq4_kss, expr_iq5_ks, expr_iq2_kl, expr_iq2_bn, expr_q8_kv;
// dequant_kt.c
expression expr_iq1_kt, expr_iq2_kt, expr_iq3_kt, expr_iq4_kt;
// dequant_rows.c
expression expr_q4_0_r8, expr_q5_0_r4, expr_q8_0_r8, expr_q2_k_r4, expr_q3_k_r4, expr_q4_k_r4, expr_q5_k_r4,
  expr_q6_k_r4, expr_iq4_nl_r4, expr_iq4_xs_r8, expr_q6_0_r4, expr_iq2_k_r4, expr_iq3_k_r4, expr_iq4_k_r4,
  expr_iq5_k_r4, expr_iq4_ks_r4, expr_iq5_ks_r4, expr_q8_k_r8, expr_q8_k_r16, expr_q8_kv_r8, expr_iq2_bn_r4,
  expr_bf16_r16;
#endif
