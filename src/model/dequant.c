// Formats as expressions. A format is its bytes, seen as {row, block, byte}, and a formula over slices of them; no format has a
// kernel. To add one: a row in format.h that says `true`, a function here, and its row in the table at the end.
#include "model/dequant_impl.h"

static tensor *q4_0(const blocks *b) { return t_mul(b->g, AS(b, half_at(b, 0), 1, 1), centred(b, nibbles(b, 2, 16), 8)); }

static tensor *q4_1(const blocks *b) {
  tensor *d = AS(b, half_at(b, 0), 1, 1), *m = AS(b, half_at(b, 2), 1, 1);
  return t_add(b->g, t_mul(b->g, d, f32(b, nibbles(b, 4, 16))), m);
}

// 32 codes of five bits: nibbles, and the fifth bits as one 32-bit number
static tensor *five_bits(const blocks *b, int64_t high, int64_t low) {
  tensor *word = AS(b, t_bitcast(b->g, codes(b, high, 4), DT_U32), 1);
  tensor *bit = t_cast(b->g, op_int(b, OP_AND, t_op2(b->g, OP_SHR, word, steps(b, DT_U32, 32, 1, false)), 1), DT_U8);
  return t_op2(b->g, OP_OR, nibbles(b, low, 16), AS(b, op_int(b, OP_SHL, bit, 4), 2, 16));
}

static tensor *q5_0(const blocks *b) { return t_mul(b->g, AS(b, half_at(b, 0), 1, 1), centred(b, five_bits(b, 2, 6), 16)); }

static tensor *q5_1(const blocks *b) {
  tensor *d = AS(b, half_at(b, 0), 1, 1), *m = AS(b, half_at(b, 2), 1, 1);
  return t_add(b->g, t_mul(b->g, d, f32(b, five_bits(b, 4, 8))), m);
}

static tensor *q8_0(const blocks *b) { return t_mul(b->g, f32(b, t_bitcast(b->g, codes(b, 2, 32), DT_I8)), half_at(b, 0)); }

// Eight 6-bit scales and mins in twelve bytes: four whole ones each, and four that borrow their top bits from those.
static void scales_and_mins(const blocks *b, tensor **scale, tensor **min) {
  tensor *d = field(b, 4, 4, 1), *m = field(b, 8, 4, 1), *both = field(b, 12, 4, 1);
  tensor *late_d = t_op2(b->g, OP_OR, bits(b, both, 0, 15), bits(b, d, 2, 0x30));
  tensor *late_m = t_op2(b->g, OP_OR, bits(b, both, 4, 15), bits(b, m, 2, 0x30));
  *scale = t_cat_last(b->g, bits(b, d, 0, 63), late_d);
  *min = t_cat_last(b->g, bits(b, m, 0, 63), late_m);
}

static tensor *k_affine(const blocks *b, tensor *codes) {             // codes {8, 32}
  tensor *scale, *min;
  scales_and_mins(b, &scale, &min);
  tensor *d = AS(b, t_mul(b->g, half_at(b, 0), f32(b, scale)), 8, 1), *dm = AS(b, t_mul(b->g, half_at(b, 2), f32(b, min)), 8, 1);
  return t_sub(b->g, t_mul(b->g, d, f32(b, codes)), dm);
}

// 128 bytes: 32 low nibbles, the same bytes' high nibbles, the next 32 bytes
static tensor *k_nibbles(const blocks *b, int64_t at) {
  tensor *q = t_op2(b->g, OP_SHR, AS(b, codes(b, at, 128), 4, 1, 32), steps(b, DT_U8, 2, 4, true));
  return AS(b, op_int(b, OP_AND, q, 15), 8, 32);
}

static tensor *q4_k(const blocks *b) { return k_affine(b, k_nibbles(b, 16)); }

static tensor *q5_k_codes(const blocks *b) {
  tensor *bit = op_int(b, OP_AND, t_op2(b->g, OP_SHR, AS(b, codes(b, 16, 32), 1, 32), steps(b, DT_U8, 8, 1, true)), 1);
  return t_op2(b->g, OP_OR, k_nibbles(b, 48), op_int(b, OP_SHL, bit, 4));
}

static tensor *q5_k(const blocks *b) { return k_affine(b, q5_k_codes(b)); }

static tensor *q6_k_codes(const blocks *b) {
  graph *g = b->g;
  tensor *low = t_op2(g, OP_SHR, AS(b, codes(b, 0, 128), 2, 1, 64), steps(b, DT_U8, 2, 4, true));              // {half, nibble, 64}
  tensor *high = t_op2(g, OP_SHR, AS(b, codes(b, 128, 64), 2, 1, 32), steps(b, DT_U8, 4, 2, true));            // {half, pair, 32}
  return t_op2(g, OP_OR, AS(b, op_int(b, OP_AND, low, 15), 16, 16), AS(b, op_int(b, OP_SHL, op_int(b, OP_AND, high, 3), 4), 16, 16));
}

static tensor *q6_k(const blocks *b) {
  tensor *scale = f32(b, t_bitcast(b->g, field(b, 192, 16, 1), DT_I8));
  return t_mul(b->g, AS(b, t_mul(b->g, half_at(b, 208), scale), 16, 1), centred(b, q6_k_codes(b), 32));
}

// --- integer forms ----------------------------------------------------------------------------------------------------
//
// Every format here is w = d * scale * (q - zero) + m * min, with unsigned codes q, integers scale and min per sub-block, floats d and m
// per block. So the dot product with x = s * xq (integers xq, one s per block) is, by distributing and factoring out,
//   sum over blocks of s * (d * sum_sub scale * (sum q * xq - zero * sum xq) + m * sum_sub min * sum xq)
// whose inner sums are integers that fit in 32 bits, and whose sums of xq know nothing of the rows.

typedef struct affine {
  int64_t subs, zero;        // sub-blocks of a block
  tensor *q;                 // U8 {rows, n, subs, block / subs}
  tensor *d, *m;             // F32 {rows, n, 1}; m NULL: no minimum
  tensor *scale, *min;       // I32 {rows, n, subs}; NULL: 1
} affine;

static tensor *i32(const blocks *b, tensor *x) { return t_cast(b->g, x, DT_I32); }

static affine q4_0_affine(const blocks *b) { return (affine){1, 8, AS(b, nibbles(b, 2, 16), 1, 32), half_at(b, 0), NULL, NULL, NULL}; }
static affine q4_1_affine(const blocks *b) { return (affine){1, 0, AS(b, nibbles(b, 4, 16), 1, 32), half_at(b, 0), half_at(b, 2), NULL, NULL}; }
static affine q8_0_affine(const blocks *b) {                           // signed codes, moved up to be unsigned
  return (affine){1, 128, AS(b, op_int(b, OP_XOR, codes(b, 2, 32), 128), 1, 32), half_at(b, 0), NULL, NULL, NULL};
}
static affine k_affine_form(const blocks *b, tensor *q) {
  tensor *scale, *min;
  scales_and_mins(b, &scale, &min);
  return (affine){8, 0, q, half_at(b, 0), t_op1(b->g, OP_NEG, half_at(b, 2)), i32(b, scale), i32(b, min)};
}
static affine q4_k_affine(const blocks *b) { return k_affine_form(b, k_nibbles(b, 16)); }
static affine q5_k_affine(const blocks *b) { return k_affine_form(b, q5_k_codes(b)); }
static affine q6_k_affine(const blocks *b) {
  return (affine){16, 32, q6_k_codes(b), half_at(b, 208), NULL, i32(b, t_bitcast(b->g, field(b, 192, 16, 1), DT_I8)), NULL};
}

typedef struct segment { int at, count, unit; } segment;
static const struct form {
  affine (*affine)(const blocks *);
  segment part[5];           // how the bytes of a block are tiled
} forms[] = {
  [FORMAT_Q4_0] = {q4_0_affine, {{0, 2, 2}, {2, 16, 4}}},
  [FORMAT_Q4_1] = {q4_1_affine, {{0, 2, 2}, {2, 2, 2}, {4, 16, 4}}},
  [FORMAT_Q8_0] = {q8_0_affine, {{0, 2, 2}, {2, 32, 4}}},
  [FORMAT_Q4_K] = {q4_k_affine, {{0, 2, 2}, {2, 2, 2}, {4, 12, 1}, {16, 128, 4}}},
  [FORMAT_Q5_K] = {q5_k_affine, {{0, 2, 2}, {2, 2, 2}, {4, 12, 1}, {16, 32, 4}, {48, 128, 4}}},
  [FORMAT_Q6_K] = {q6_k_affine, {{0, 128, 4}, {128, 64, 4}, {192, 16, 1}, {208, 2, 2}}},
};

int dequant_group(const struct format *f) { return f->id < COUNT(forms) && forms[f->id].affine ? (int)f->block : 0; }
bool dequant_can_tile(const struct format *f, int64_t rows) { return dequant_group(f) && rows % TILE_ROWS == 0; }

static blocks blocks_of(graph *g, const struct format *f, int64_t id, int64_t rows, int64_t cols, bool tiled) {
  blocks b = {.g = g, .rows = rows, .n = cols / f->block, .tiled = tiled};
  tensor *raw = t_weight(g, id, DT_U8, rows * b.n * f->bytes);
  b.bytes = tiled ? t_reshape_i(g, raw, 3, (int64_t[]){rows / TILE_ROWS, b.n, TILE_ROWS * f->bytes}) : t_reshape_i(g, raw, 3, (int64_t[]){rows, b.n, f->bytes});
  return b;
}

int dequant_retile(graph *g, const struct format *f, int64_t raw, int64_t tiled, int64_t rows, int64_t cols, uop **effects, int max) {
  blocks b = blocks_of(g, f, raw, rows, cols, false);
  int n = 0;
  for (const segment *s = forms[f->id].part; s < forms[f->id].part + COUNT(forms[0].part) && s->count; s++) {
    enum dtype dt = s->unit == 4 ? DT_U32 : s->unit == 2 ? DT_U16 : DT_U8;
    int64_t units = s->count / s->unit;
    tensor *from = t_bitcast(g, t_slice_i(g, b.bytes, 2, s->at, s->count), dt);
    tensor *to = t_reshape_i(g, t_buffer(g, tiled, dt, rows * b.n * f->bytes / s->unit), 3, (int64_t[]){rows / TILE_ROWS, b.n, TILE_ROWS * f->bytes / s->unit});
    to = t_reshape_i(g, t_slice_i(g, to, 2, TILE_ROWS * s->at / s->unit, TILE_ROWS * units), 4, (int64_t[]){rows / TILE_ROWS, b.n, units, TILE_ROWS});
    from = t_permute(g, t_reshape_i(g, from, 4, (int64_t[]){rows / TILE_ROWS, TILE_ROWS, b.n, units}), (int[]){0, 2, 3, 1});
    if (n == max) die("dequant_retile: more than %d stores", max);
    effects[n++] = t_assign(g, to, from);
  }
  return n;
}

// x {T, n * group} as integers xq {T, n, group} and scales {T, n, 1} with x = s * xq, |xq| <= 127
static void to_int8(graph *g, tensor *x, int64_t n, int64_t group, tensor **xq, tensor **scale) {
  uop *T = x->shape->dim[0];
  x = t_reshape(g, x, 3, (uop *[]){T, uop_idx(g, n), uop_idx(g, group)});
  tensor *most = t_reduce(g, t_op2(g, OP_MAX, x, t_op1(g, OP_NEG, x)), OP_MAX, 2);
  tensor *by = t_where(g, t_op2(g, OP_CMPLT, t_float(g, 0), most), t_op2(g, OP_FDIV, t_float(g, 127), most), t_float(g, 0));
  *xq = t_cast(g, t_op1(g, OP_FLOOR, t_add(g, t_mul(g, x, by), t_float(g, 0.5))), DT_I8);
  *scale = t_scale(g, most, 1.0 / 127);
  if (group == 32) *scale = t_cast(g, t_cast(g, *scale, DT_F16), DT_F32);
}

tensor *dequant_dot(graph *g, const struct format *f, int64_t id, int64_t rows, int64_t cols, bool tiled, tensor *x) {
  blocks b = blocks_of(g, f, id, rows, cols, tiled);
  affine w = forms[f->id].affine(&b);
  uop *T = x->shape->dim[0], *one = uop_idx(g, 1), *R = uop_idx(g, rows), *n = uop_idx(g, b.n), *subs = uop_idx(g, w.subs), *len = uop_idx(g, f->block / w.subs);
  tensor *xq, *s;
  to_int8(g, x, b.n, f->block, &xq, &s);
  // {T, rows, n, subs, len}, reduced from the inside out
  tensor *codes_of_x = t_reshape(g, t_contiguous(g, xq), 5, (uop *[]){T, one, n, subs, len});
  tensor *dot = t_reduce(g, t_mul(g, t_reshape(g, i32(&b, w.q), 5, (uop *[]){one, R, n, subs, len}), i32(&b, codes_of_x)), OP_ADD, 4);
  tensor *sum = t_contiguous(g, t_reduce(g, t_reshape(g, i32(&b, xq), 5, (uop *[]){T, one, n, subs, len}), OP_ADD, 4));
  if (w.zero) dot = t_sub(g, dot, t_op2(g, OP_MUL, sum, uop_int(g, DT_I32, w.zero)));
  if (w.scale) dot = t_mul(g, dot, t_reshape(g, w.scale, 5, (uop *[]){one, R, n, subs, one}));
  dot = t_reduce(g, dot, OP_ADD, 3);
  tensor *sx = t_reshape(g, t_contiguous(g, s), 5, (uop *[]){T, one, n, one, one});
  tensor *y = t_mul(g, f32(&b, dot), t_mul(g, t_reshape(g, w.d, 5, (uop *[]){one, R, n, one, one}), sx));
  if (w.m) {
    tensor *low = w.min ? t_reduce(g, t_mul(g, sum, t_reshape(g, w.min, 5, (uop *[]){one, R, n, subs, one})), OP_ADD, 3) : sum;
    y = t_add(g, y, t_mul(g, f32(&b, low), t_mul(g, t_reshape(g, w.m, 5, (uop *[]){one, R, n, one, one}), sx)));
  }
  return t_reshape(g, t_reduce(g, y, OP_ADD, 2), 2, (uop *[]){T, R});
}

static expression *const expressions[] = {
  [FORMAT_Q4_0] = q4_0, [FORMAT_Q4_1] = q4_1, [FORMAT_Q5_0] = q5_0, [FORMAT_Q5_1] = q5_1, [FORMAT_Q8_0] = q8_0,
  [FORMAT_Q4_K] = q4_k, [FORMAT_Q5_K] = q5_k, [FORMAT_Q6_K] = q6_k,
  [FORMAT_Q2_K] = expr_q2_k, [FORMAT_Q3_K] = expr_q3_k, [FORMAT_TQ1_0] = expr_tq1_0, [FORMAT_TQ2_0] = expr_tq2_0,
  [FORMAT_IQ1_S] = expr_iq1_s, [FORMAT_IQ1_M] = expr_iq1_m, [FORMAT_IQ2_XXS] = expr_iq2_xxs, [FORMAT_IQ2_XS] = expr_iq2_xs, [FORMAT_IQ2_S] = expr_iq2_s,
  [FORMAT_IQ3_XXS] = expr_iq3_xxs, [FORMAT_IQ3_S] = expr_iq3_s, [FORMAT_IQ4_NL] = expr_iq4_nl, [FORMAT_IQ4_XS] = expr_iq4_xs,
  [FORMAT_MXFP4] = expr_mxfp4, [FORMAT_NVFP4] = expr_nvfp4,
};

enum dtype dequant_buffer_dtype(const struct format *f) {
  switch (f->id) {
  case FORMAT_F32: return DT_F32;
  case FORMAT_F16: return DT_F16;
  case FORMAT_BF16: return DT_BF16;
  default: return DT_U8;
  }
}

tensor *dequant(graph *g, const struct format *f, int64_t id, int64_t rows, int64_t cols, bool tiled) {
  enum dtype dt = dequant_buffer_dtype(f);
  if (dt != DT_U8) return t_cast(g, t_reshape_i(g, t_weight(g, id, dt, rows * cols), 2, (int64_t[]){rows, cols}), DT_F32);
  if (f->id >= COUNT(expressions) || !expressions[f->id] || cols % f->block) die("format %s has no expression for rows of %lld", f->name, (long long)cols);
  blocks b = blocks_of(g, f, id, rows, cols, tiled);
  return t_reshape_i(g, expressions[f->id](&b), 2, (int64_t[]){rows, cols});
}
