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

static tensor *q4_k(const blocks *b) { return k_affine(b, k_nibbles(b, 16)); }

static tensor *q5_k(const blocks *b) { return k_affine(b, k_five_bits(b, 16, 48)); }

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
  [FORMAT_Q6_0] = expr_q6_0,
  [FORMAT_IQ2_K] = expr_iq2_k,
  [FORMAT_IQ3_K] = expr_iq3_k,
  [FORMAT_IQ4_K] = expr_iq4_k,
  [FORMAT_IQ5_K] = expr_iq5_k,
  [FORMAT_IQ6_K] = expr_iq6_k,
  [FORMAT_IQ4_KS] = expr_iq4_ks,
  [FORMAT_IQ2_KS] = expr_iq2_ks,
  [FORMAT_IQ4_KSS] = expr_iq4_kss,
  [FORMAT_IQ5_KS] = expr_iq5_ks,
  [FORMAT_IQ3_KS] = expr_iq3_ks,
  [FORMAT_IQ2_KL] = expr_iq2_kl,
  [FORMAT_Q4_0_R8] = expr_q4_0_r8,
  [FORMAT_Q5_0_R4] = expr_q5_0_r4,
  [FORMAT_Q8_0_R8] = expr_q8_0_r8,
  [FORMAT_Q2_K_R4] = expr_q2_k_r4,
  [FORMAT_Q3_K_R4] = expr_q3_k_r4,
  [FORMAT_Q4_K_R4] = expr_q4_k_r4,
  [FORMAT_Q5_K_R4] = expr_q5_k_r4,
  [FORMAT_Q6_K_R4] = expr_q6_k_r4,
  [FORMAT_IQ4_NL_R4] = expr_iq4_nl_r4,
  [FORMAT_IQ4_XS_R8] = expr_iq4_xs_r8,
  [FORMAT_Q6_0_R4] = expr_q6_0_r4,
  [FORMAT_IQ2_K_R4] = expr_iq2_k_r4,
  [FORMAT_IQ3_K_R4] = expr_iq3_k_r4,
  [FORMAT_IQ4_K_R4] = expr_iq4_k_r4,
  [FORMAT_IQ5_K_R4] = expr_iq5_k_r4,
  [FORMAT_IQ4_KS_R4] = expr_iq4_ks_r4,
  [FORMAT_IQ5_KS_R4] = expr_iq5_ks_r4,
  [FORMAT_Q8_K_R8] = expr_q8_k_r8,
  [FORMAT_IQ2_BN] = expr_iq2_bn,
  [FORMAT_Q8_KV] = expr_q8_kv,
  [FORMAT_IQ2_KT] = expr_iq2_kt,
  [FORMAT_IQ3_KT] = expr_iq3_kt,
  [FORMAT_IQ4_KT] = expr_iq4_kt,
  [FORMAT_IQ1_KT] = expr_iq1_kt,
  [FORMAT_IQ2_XXS_R4] = expr_iq2_xxs_r4,
  [FORMAT_IQ2_XS_R4] = expr_iq2_xs_r4,
  [FORMAT_IQ3_XXS_R4] = expr_iq3_xxs_r4,
  [FORMAT_IQ1_S_R4] = expr_iq1_s_r4,
  [FORMAT_IQ3_S_R4] = expr_iq3_s_r4,
  [FORMAT_IQ2_S_R4] = expr_iq2_s_r4,
  [FORMAT_IQ1_M_R4] = expr_iq1_m_r4,
  [FORMAT_BF16_R16] = expr_bf16_r16,
  [FORMAT_IQ2_BN_R4] = expr_iq2_bn_r4,
  [FORMAT_MXFP4_R8] = expr_mxfp4_r8,
  [FORMAT_Q8_K_R16] = expr_q8_k_r16,
  [FORMAT_Q8_KV_R8] = expr_q8_kv_r8,
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

// The expression over rows of n blocks: {groups of rows, bytes of a group}; of these rows all but the first `skip`.
static tensor *rows_to_floats(graph *g, const struct format *f, tensor *bytes, int64_t skip, uop *rows, int64_t n) {
  int64_t head = f->head * f->rows, size = f->bytes * f->rows;
  uop *groups = bytes->shape->dim[0], *all = idx_mul(g, groups, uop_idx(g, f->rows));
  blocks b = {.g = g, .bytes = bytes, .rows = rows, .n = n, .together = f->rows, .skip = skip};
  if (head) {
    b.head = t_reshape(g, t_slice_i(g, bytes, 1, 0, head), 3, (uop *[]){all, uop_idx(g, 1), uop_idx(g, f->head)});
    b.head = t_slice(g, b.head, 0, uop_idx(g, skip), rows);
    b.bytes = t_slice_i(g, bytes, 1, head, n * size);
  }
  b.bytes = t_reshape(g, b.bytes, 3, (uop *[]){groups, uop_idx(g, n), uop_idx(g, size)});
  return expressions[f->id](&b);
}

static int64_t bytes_of_row(const struct format *f, int64_t cols) {
  uint64_t n;
  die_if(!format_row_bytes(f, (uint64_t)cols, &n), "no rows of %lld elements in %s", (long long)cols, f->name);
  return (int64_t)n;
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
  // the groups in which these rows are
  int64_t n = bytes_of_row(f, cols), t = f->rows, first = from / t, last = (from + rows + t - 1) / t;
  tensor *bytes = t_reshape_i(g, t_weight(g, id, DT_U8, all * n), 2, (int64_t[]){all / t, t * n});
  bytes = t_slice_i(g, bytes, 0, first, last - first);
  tensor *w = rows_to_floats(g, f, bytes, from - first * t, uop_idx(g, rows), cols / f->block);
  return t_reshape_i(g, w, 2, (int64_t[]){rows, cols});
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
  int64_t row = bytes_of_row(f, cols), t = f->rows;
  tensor *bytes =
    t_reshape_i(g, t_weight(g, id, DT_U8, matrices * rows * row), 3, (int64_t[]){matrices, rows / t, t * row});
  // The matrix is chosen among bytes, so that the expression is one of rows like any other.
  bytes = t_reshape(g, t_gather(g, bytes, chosen), 2, (uop *[]){idx_div(g, all, uop_idx(g, t)), uop_idx(g, t * row)});
  return t_reshape(g, rows_to_floats(g, f, bytes, 0, all, cols / f->block), n + 2, d);
}
