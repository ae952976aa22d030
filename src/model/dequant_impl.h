// The building blocks of format expressions: the bytes of blocks as a tensor {rows, block, byte}, and slices, shifts
// and tables over them. Private to dequant.c (which has the table of expressions), dequant_low.c and dequant_iq.c.
//
// Codes and the scales of sub-blocks stay integers up to the last multiplication, which is by a float scale.
#ifndef WEFT_DEQUANT_IMPL_H
#define WEFT_DEQUANT_IMPL_H
#include "model/dequant.h"

// bytes: U8 {rows, n blocks, bytes of a block}
typedef struct blocks { graph *g; tensor *bytes; uop *rows; int64_t n; } blocks;

// x as {rows, n blocks, tail...}
static inline tensor *as(const blocks *b, tensor *x, int n, const int64_t *tail) {
  uop *d[MAX_DIMS] = {b->rows, uop_idx(b->g, b->n)};
  for (int i = 0; i < n; i++) d[2 + i] = uop_idx(b->g, tail[i]);
  return t_reshape(b->g, x, 2 + n, d);
}
#define AS(b, x, ...) as(b, x, (int)COUNT(((int64_t[]){__VA_ARGS__})), (int64_t[]){__VA_ARGS__})

// Bytes at .. at + count of every block: {rows, n, count}
static inline tensor *field(const blocks *b, int64_t at, int64_t count) {
  return t_slice_i(b->g, b->bytes, 2, at, count);
}
static inline tensor *half_at(const blocks *b, int64_t at) {
  return t_cast(b->g, t_bitcast(b->g, field(b, at, 2), DT_F16), DT_F32);
}
static inline tensor *f32(const blocks *b, tensor *x) { return t_cast(b->g, x, DT_F32); }

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

// F32, with the elements of the blocks in their order
typedef tensor *expression(const blocks *b);
expression expr_q2_k, expr_q3_k, expr_q1_0, expr_q2_0, expr_tq1_0, expr_tq2_0;        // dequant_low.c
// dequant_iq.c
expression expr_iq1_s, expr_iq1_m, expr_iq2_xxs, expr_iq2_xs, expr_iq2_s, expr_iq3_xxs, expr_iq3_s, expr_iq4_nl,
  expr_iq4_xs, expr_mxfp4, expr_nvfp4;
#endif
