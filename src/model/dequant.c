// Formats as tensor expressions. A format is its bytes, seen as {row, block, byte}, and a formula over slices of them;
// no format has a kernel of its own. To add one: a row in format.h that says `true`, a function here, and its row in
// the table at the end.
#include "model/dequant_impl.h"

static tensor *q4_0(const blocks *b) {
  return t_mul(b->g, AS(b, half_at(b, 0), 1, 1), centred(b, nibbles(b, 2, 16), 8));
}

static tensor *q4_1(const blocks *b) {
  tensor *d = AS(b, half_at(b, 0), 1, 1), *m = AS(b, half_at(b, 2), 1, 1);
  return t_add(b->g, t_mul(b->g, d, f32(b, nibbles(b, 4, 16))), m);
}

// 32 codes of five bits: nibbles, and the fifth bits as one 32-bit number
static tensor *five_bits(const blocks *b, int64_t high, int64_t low) {
  tensor *word = AS(b, t_bitcast(b->g, field(b, high, 4), DT_U32), 1);
  tensor *bit = t_cast(b->g, op_int(b, OP_AND, t_op2(b->g, OP_SHR, word, steps(b, DT_U32, 32, 1, false)), 1), DT_U8);
  return t_op2(b->g, OP_OR, nibbles(b, low, 16), AS(b, op_int(b, OP_SHL, bit, 4), 2, 16));
}

static tensor *q5_0(const blocks *b) {
  return t_mul(b->g, AS(b, half_at(b, 0), 1, 1), centred(b, five_bits(b, 2, 6), 16));
}

static tensor *q5_1(const blocks *b) {
  tensor *d = AS(b, half_at(b, 0), 1, 1), *m = AS(b, half_at(b, 2), 1, 1);
  return t_add(b->g, t_mul(b->g, d, f32(b, five_bits(b, 4, 8))), m);
}

static tensor *q8_0(const blocks *b) {
  return t_mul(b->g, f32(b, t_bitcast(b->g, field(b, 2, 32), DT_I8)), half_at(b, 0));
}

// Eight 6-bit scales and mins in twelve bytes: four are stored whole, and the other four take their top bits from the
// bytes of the first ones.
static void scales_and_mins(const blocks *b, tensor **scale, tensor **min) {
  tensor *d = field(b, 4, 4), *m = field(b, 8, 4), *both = field(b, 12, 4);
  tensor *late_d = t_op2(b->g, OP_OR, bits(b, both, 0, 15), bits(b, d, 2, 0x30));
  tensor *late_m = t_op2(b->g, OP_OR, bits(b, both, 4, 15), bits(b, m, 2, 0x30));
  *scale = t_cat_last(b->g, bits(b, d, 0, 63), late_d);
  *min = t_cat_last(b->g, bits(b, m, 0, 63), late_m);
}

static tensor *k_affine(const blocks *b, tensor *codes) {             // codes {8, 32}
  tensor *scale, *min;
  scales_and_mins(b, &scale, &min);
  tensor *d = AS(b, t_mul(b->g, half_at(b, 0), f32(b, scale)), 8, 1),
         *dm = AS(b, t_mul(b->g, half_at(b, 2), f32(b, min)), 8, 1);
  return t_sub(b->g, t_mul(b->g, d, f32(b, codes)), dm);
}

// 128 bytes: 32 low nibbles, the high nibbles of the same bytes, then the next 32 bytes
static tensor *k_nibbles(const blocks *b, int64_t at) {
  tensor *q = t_op2(b->g, OP_SHR, AS(b, field(b, at, 128), 4, 1, 32), steps(b, DT_U8, 2, 4, true));
  return AS(b, op_int(b, OP_AND, q, 15), 8, 32);
}

static tensor *q4_k(const blocks *b) { return k_affine(b, k_nibbles(b, 16)); }

static tensor *q5_k_codes(const blocks *b) {
  tensor *bit = op_int(b, OP_AND, t_op2(b->g, OP_SHR, AS(b, field(b, 16, 32), 1, 32), steps(b, DT_U8, 8, 1, true)), 1);
  return t_op2(b->g, OP_OR, k_nibbles(b, 48), op_int(b, OP_SHL, bit, 4));
}

static tensor *q5_k(const blocks *b) { return k_affine(b, q5_k_codes(b)); }

static tensor *q6_k_codes(const blocks *b) {
  graph *g = b->g;
  // {half, nibble, 64}
  tensor *low = t_op2(g, OP_SHR, AS(b, field(b, 0, 128), 2, 1, 64), steps(b, DT_U8, 2, 4, true));
  // {half, pair, 32}
  tensor *high = t_op2(g, OP_SHR, AS(b, field(b, 128, 64), 2, 1, 32), steps(b, DT_U8, 4, 2, true));
  return t_op2(g, OP_OR, AS(b, op_int(b, OP_AND, low, 15), 16, 16),
               AS(b, op_int(b, OP_SHL, op_int(b, OP_AND, high, 3), 4), 16, 16));
}

static tensor *q6_k(const blocks *b) {
  tensor *scale = f32(b, t_bitcast(b->g, field(b, 192, 16), DT_I8));
  return t_mul(b->g, AS(b, t_mul(b->g, half_at(b, 208), scale), 16, 1), centred(b, q6_k_codes(b), 32));
}

static expression *const expressions[] = {
  [FORMAT_Q4_0] = q4_0,
  [FORMAT_Q4_1] = q4_1,
  [FORMAT_Q5_0] = q5_0,
  [FORMAT_Q5_1] = q5_1,
  [FORMAT_Q8_0] = q8_0,
  [FORMAT_Q4_K] = q4_k,
  [FORMAT_Q5_K] = q5_k,
  [FORMAT_Q6_K] = q6_k,
  [FORMAT_Q2_K] = expr_q2_k,
  [FORMAT_Q3_K] = expr_q3_k,
  [FORMAT_Q1_0] = expr_q1_0,
  [FORMAT_Q2_0] = expr_q2_0,
  [FORMAT_TQ1_0] = expr_tq1_0,
  [FORMAT_TQ2_0] = expr_tq2_0,
  [FORMAT_IQ1_S] = expr_iq1_s,
  [FORMAT_IQ1_M] = expr_iq1_m,
  [FORMAT_IQ2_XXS] = expr_iq2_xxs,
  [FORMAT_IQ2_XS] = expr_iq2_xs,
  [FORMAT_IQ2_S] = expr_iq2_s,
  [FORMAT_IQ3_XXS] = expr_iq3_xxs,
  [FORMAT_IQ3_S] = expr_iq3_s,
  [FORMAT_IQ4_NL] = expr_iq4_nl,
  [FORMAT_IQ4_XS] = expr_iq4_xs,
  [FORMAT_MXFP4] = expr_mxfp4,
  [FORMAT_NVFP4] = expr_nvfp4,
};

enum dtype dequant_buffer_dtype(const struct format *f) {
  switch (f->id) {
  case FORMAT_F32: return DT_F32;
  case FORMAT_F16: return DT_F16;
  case FORMAT_BF16: return DT_BF16;
  case FORMAT_I32: return DT_I32;
  default: return DT_U8;
  }
}

// The expression over blocks {rows, n, bytes of a block}.
static tensor *blocks_to_floats(graph *g, const struct format *f, tensor *bytes) {
  blocks b = {.g = g, .bytes = bytes, .rows = bytes->shape->dim[0], .n = bytes->shape->dim[1]->a};
  return expressions[f->id](&b);
}

static void check_format(const struct format *f, int64_t cols) {
  die_if(dequant_buffer_dtype(f) == DT_U8 && (f->id >= COUNT(expressions) || !expressions[f->id] || cols % f->block),
         "format %s has no expression for rows of %lld", f->name, (long long)cols);
}

tensor *dequant(graph *g, const struct format *f, int64_t id, int64_t rows, int64_t cols) {
  return dequant_rows(g, f, id, rows, 0, rows, cols);
}

tensor *dequant_rows(graph *g, const struct format *f, int64_t id, int64_t all, int64_t from, int64_t rows,
                     int64_t cols) {
  enum dtype dt = dequant_buffer_dtype(f);
  check_format(f, cols);
  if (dt != DT_U8) {
    tensor *plain = t_reshape_i(g, t_weight(g, id, dt, all * cols), 2, (int64_t[]){all, cols});
    return t_cast(g, t_slice_i(g, plain, 0, from, rows), DT_F32);
  }
  int64_t n = cols / f->block;
  tensor *bytes = t_reshape_i(g, t_weight(g, id, DT_U8, all * n * f->bytes), 3, (int64_t[]){all, n, f->bytes});
  return t_reshape_i(g, blocks_to_floats(g, f, t_slice_i(g, bytes, 0, from, rows)), 2, (int64_t[]){rows, cols});
}

tensor *dequant_chosen(graph *g, const struct format *f, int64_t id, int64_t matrices, int64_t rows, int64_t cols,
                       tensor *chosen) {
  enum dtype dt = dequant_buffer_dtype(f);
  uop *d[MAX_DIMS], *all = uop_idx(g, rows);
  int n = chosen->shape->n;
  check_format(f, cols);
  for (int i = 0; i < n; i++) all = idx_mul(g, d[i] = chosen->shape->dim[i], all);
  d[n] = uop_idx(g, rows); d[n + 1] = uop_idx(g, cols);
  if (dt != DT_U8)
    return t_cast(
      g,
      t_gather(g, t_reshape_i(g, t_weight(g, id, dt, matrices * rows * cols), 3, (int64_t[]){matrices, rows, cols}),
               chosen),
      DT_F32);
  int64_t per_row = cols / f->block;
  tensor *bytes = t_reshape_i(g, t_weight(g, id, DT_U8, matrices * rows * per_row * f->bytes), 4,
                              (int64_t[]){matrices, rows, per_row, f->bytes});
  // The matrix is chosen among bytes, so that the expression is one of rows like any other.
  bytes = t_reshape(g, t_gather(g, bytes, chosen), 3, (uop *[]){all, uop_idx(g, per_row), uop_idx(g, f->bytes)});
  return t_reshape(g, blocks_to_floats(g, f, bytes), n + 2, d);
}
