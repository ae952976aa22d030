// Small tensor graphs, by what they try: see codegen/kernel_rig.h for how they are run.  Sizes are odd, or just above
// and below what fits in vectors, so that tails, padding and guards have something to do.  To add one: a function and a
// row at the end.
#ifndef WEFT_TEST_KERNEL_CASES_H
#define WEFT_TEST_KERNEL_CASES_H
#include "codegen/kernel_rig.h"

#define F32_IN(t, ...) kt_in(t, DT_F32, KT_UNIT, KT_DIMS(__VA_ARGS__))
#define IDX(t, v) uop_idx((t)->g, v)
#define UOPS(...) (int)COUNT(((uop *[]){__VA_ARGS__})), (uop *[]){__VA_ARGS__}

// ---- elementwise ----------------------------------------------------------------------------------------------------

static void k_add(kt *t) { kt_out(t, t_add(t->g, F32_IN(t, 37), F32_IN(t, 37))); }
static void k_one_element(kt *t) { kt_out(t, t_scale(t->g, F32_IN(t, 1), 3)); }
static void k_broadcast(kt *t) { kt_out(t, t_mul(t->g, F32_IN(t, 3, 1, 5), F32_IN(t, 4, 1))); }

static void k_float_ops(kt *t) {
  graph *g = t->g;
  tensor *x = kt_in(t, DT_F32, KT_POSITIVE, KT_DIMS(3, 11)), *y = kt_in(t, DT_F32, KT_POSITIVE, KT_DIMS(3, 11));
  static const enum op two[] = {OP_ADD, OP_SUB, OP_MUL, OP_FDIV, OP_MAX, OP_MIN}, one[] = {OP_NEG, OP_RECIP, OP_SQRT};
  static const enum op whole[] = {OP_TRUNC, OP_FLOOR};
  tensor *all[8];
  for (size_t i = 0; i < COUNT(two); i++) all[i] = t_op2(g, two[i], x, y);
  kt_out(t, t_stack_last(g, all, (int)COUNT(two)));
  for (size_t i = 0; i < COUNT(one); i++) all[i] = t_op1(g, one[i], x);
  for (size_t i = 0; i < COUNT(whole); i++) all[COUNT(one) + i] = t_op1(g, whole[i], t_sub(g, x, t_float(g, 2)));
  kt_out(t, t_stack_last(g, all, (int)(COUNT(one) + COUNT(whole))));
}

// The best three of 16, ties to the lower index: how many beat each, in one kernel. Both reductions could lie in lanes,
// but not at once.
static void k_best_three(kt *t) {
  graph *g = t->g;
  tensor *s = kt_in(t, DT_F32, KT_SMALL_INTS, KT_DIMS(2, 16)), *i = t_cast(g, t_iota(g, IDX(t, 16)), DT_I32);
  tensor *one = t_reshape_i(g, s, 3, (int64_t[]){2, 16, 1}), *other = t_reshape_i(g, s, 3, (int64_t[]){2, 1, 16});
  tensor *tie =
    t_op2(g, OP_AND, t_op2(g, OP_CMPEQ, one, other), t_op2(g, OP_CMPLT, i, t_reshape_i(g, i, 2, (int64_t[]){16, 1})));
  tensor *beats = t_op2(g, OP_OR, t_op2(g, OP_CMPLT, one, other), tie), *zero = uop_int(g, DT_I32, 0);
  tensor *rank =
    t_reshape_i(g, t_reduce(g, t_where(g, beats, uop_int(g, DT_I32, 1), zero), OP_ADD, 2), 3, (int64_t[]){2, 1, 16});
  tensor *k = t_reshape_i(g, t_cast(g, t_iota(g, IDX(t, 3)), DT_I32), 3, (int64_t[]){1, 3, 1});
  kt_out(
    t, t_reshape_i(g, t_reduce(g, t_where(g, t_op2(g, OP_CMPEQ, rank, k), i, zero), OP_ADD, 2), 2, (int64_t[]){2, 3}));
}

static void k_double(kt *t) {
  tensor *x = kt_in(t, DT_F64, KT_POSITIVE, KT_DIMS(19)), *y = kt_in(t, DT_F64, KT_POSITIVE, KT_DIMS(19));
  kt_out(t, t_op2(t->g, OP_FDIV, t_sub(t->g, t_mul(t->g, x, y), x), t_op1(t->g, OP_SQRT, y)));
}

static void int_ops(kt *t, enum dtype dt) {
  graph *g = t->g;
  tensor *x = kt_in(t, dt, KT_BITS, KT_DIMS(67)), *y = kt_in(t, dt, KT_BITS, KT_DIMS(67)), *all[12];
  tensor *few = t_op2(g, OP_AND, y, uop_int(g, dt, 7)), *not_zero = t_op2(g, OP_OR, few, uop_int(g, dt, 1));
  static const enum op ops[] = {OP_ADD, OP_SUB, OP_MUL, OP_MAX, OP_MIN, OP_AND, OP_OR, OP_XOR};
  size_t n = 0;
  for (; n < COUNT(ops); n++) all[n] = t_op2(g, ops[n], x, y);
  all[n++] = t_op2(g, OP_SHL, x, few);
  all[n++] = t_op2(g, OP_SHR, x, few);
  all[n++] = t_op2(g, OP_IDIV, x, not_zero);
  all[n++] = t_op2(g, OP_MOD, x, not_zero);
  kt_out(t, t_stack_last(g, all, (int)n));
}
static void k_i8(kt *t) { int_ops(t, DT_I8); }
static void k_u8(kt *t) { int_ops(t, DT_U8); }
static void k_i16(kt *t) { int_ops(t, DT_I16); }
static void k_u16(kt *t) { int_ops(t, DT_U16); }
static void k_i32(kt *t) { int_ops(t, DT_I32); }
static void k_u32(kt *t) { int_ops(t, DT_U32); }
static void k_i64(kt *t) { int_ops(t, DT_I64); }

static void k_compare(kt *t) {
  graph *g = t->g;
  tensor *x = kt_in(t, DT_F32, KT_SMALL_INTS, KT_DIMS(5, 9)), *y = kt_in(t, DT_F32, KT_SMALL_INTS, KT_DIMS(9));
  tensor *i = kt_in(t, DT_I16, KT_SMALL_INTS, KT_DIMS(5, 9)), *j = kt_in(t, DT_I16, KT_SMALL_INTS, KT_DIMS(5, 9));
  tensor *both = t_op2(g, OP_AND, t_op2(g, OP_CMPLT, x, y), t_op2(g, OP_CMPNE, i, j));
  kt_out(t, t_where(g, both, x, t_scale(g, y, 100)));
  kt_out(t, t_op2(g, OP_CMPEQ, i, j));
  kt_out(t, t_where(g, t_op2(g, OP_CMPLT, i, j), i, j));
}

static void k_infinite(kt *t) {
  graph *g = t->g;
  tensor *x = F32_IN(t, 23);
  kt_out(t, t_where(g, t_op2(g, OP_CMPLT, x, t_float(g, 0)), t_float(g, -INFINITY), x));
  kt_out(t, t_op2(g, OP_FDIV, x, t_sub(g, x, x)));
}

static void k_exp(kt *t) { kt_out(t, t_exp(t->g, t_scale(t->g, F32_IN(t, 257), 20))); }
static void k_exp2_edges(kt *t) {
  graph *g = t->g;
  tensor *i = t_cast(g, t_iota(g, IDX(t, 321)), DT_F32);
  kt_out(t, t_op1(g, OP_EXP2, t_sub(g, t_add(g, i, F32_IN(t, 321)), t_float(g, 170))));
}
static void k_log2(kt *t) { kt_out(t, t_op1(t->g, OP_LOG2, kt_in(t, DT_F32, KT_POSITIVE, KT_DIMS(129)))); }
static void k_sin(kt *t) { kt_out(t, t_op1(t->g, OP_SIN, t_scale(t->g, F32_IN(t, 257), 50))); }
static void k_sin_double(kt *t) {
  kt_out(t, t_op1(t->g, OP_SIN, t_scale(t->g, kt_in(t, DT_F64, KT_UNIT, KT_DIMS(129)), 40000)));
}
static void k_exp2_double(kt *t) {
  kt_out(t, t_op1(t->g, OP_EXP2, t_scale(t->g, kt_in(t, DT_F64, KT_UNIT, KT_DIMS(65)), 30)));
}
static void k_silu(kt *t) { kt_out(t, t_silu(t->g, t_scale(t->g, F32_IN(t, 3, 43), 10))); }

// ---- types ----------------------------------------------------------------------------------------------------------

static const enum dtype all_types[] = {DT_I8,  DT_U8,  DT_I16, DT_U16,  DT_I32, DT_U32,
                                       DT_I64, DT_U64, DT_F16, DT_BF16, DT_F32, DT_F64};

static void casts(kt *t, enum dtype to) {
  for (size_t i = 0; i < COUNT(all_types) - 2; i++) {
    if (i % 6 == 5) continue;                     // buffers are few: a case takes what is left in turns
    kt_out(t, t_cast(t->g, kt_in(t, all_types[i], KT_SMALL_INTS, KT_DIMS(21)), to));
    if (t->n_bufs + 2 > KT_BUFS) return;
  }
}
static void k_cast_i8(kt *t) { casts(t, DT_I8); }
static void k_cast_u16(kt *t) { casts(t, DT_U16); }
static void k_cast_i32(kt *t) { casts(t, DT_I32); }
static void k_cast_i64(kt *t) { casts(t, DT_I64); }
static void k_cast_f16(kt *t) { casts(t, DT_F16); }
static void k_cast_f32(kt *t) { casts(t, DT_F32); }
static void k_cast_f64(kt *t) { casts(t, DT_F64); }

static void k_cast_floats(kt *t) {                // every pair of float types
  static const enum dtype f[] = {DT_F16, DT_BF16, DT_F32, DT_F64};
  for (size_t i = 0; i < COUNT(f); i++) {
    if (t->n_bufs + 3 > KT_BUFS) return;
    tensor *x = kt_in(t, f[i], KT_WIDE, KT_DIMS(45));
    kt_out(t, t_cast(t->g, x, f[(i + 1) % 4]));
    kt_out(t, t_cast(t->g, x, f[(i + 2) % 4]));
  }
}

static void k_half_memory(kt *t) {
  tensor *x = kt_in(t, DT_F16, KT_UNIT, KT_DIMS(7, 33)), *y = kt_in(t, DT_BF16, KT_UNIT, KT_DIMS(33));
  tensor *s = t_mul(t->g, t_cast(t->g, x, DT_F32), t_cast(t->g, y, DT_F32));
  kt_out(t, s);
  kt_out(t, t_cast(t->g, s, DT_F16));
  kt_out(t, t_cast(t->g, s, DT_BF16));
}

static void k_bitcast_same(kt *t) {
  graph *g = t->g;
  tensor *x = F32_IN(t, 31);
  tensor *bits = t_bitcast(g, x, DT_U32);
  kt_out(t, t_op2(g, OP_AND, bits, uop_int(g, DT_U32, 0x807fffff)));
  kt_out(t, t_bitcast(g, t_op2(g, OP_XOR, bits, uop_int(g, DT_U32, 0x80000000)), DT_F32));
  kt_out(t, t_bitcast(g, kt_in(t, DT_U8, KT_BITS, KT_DIMS(31)), DT_I8));
}

static void k_bitcast_wider(kt *t) {              // bytes of records, at odd places
  graph *g = t->g;
  tensor *raw = kt_in(t, DT_U8, KT_BITS, KT_DIMS(5, 19));
  kt_out(t, t_bitcast(g, t_slice_i(g, raw, 1, 0, 2), DT_U16));
  kt_out(t, t_bitcast(g, t_slice_i(g, raw, 1, 3, 8), DT_U32));
  kt_out(t, t_bitcast(g, t_slice_i(g, raw, 1, 11, 8), DT_I64));
}

static void k_bitcast_half(kt *t) {               // a scale of two bytes before each record
  graph *g = t->g;
  tensor *raw = kt_in(t, DT_U8, KT_SMALL_INTS, KT_DIMS(6, 18));
  tensor *scale = t_cast(g, t_bitcast(g, t_slice_i(g, raw, 1, 0, 2), DT_F16), DT_F32);
  kt_out(t, t_mul(g, t_scale(g, scale, 1e4), t_cast(g, t_slice_i(g, raw, 1, 2, 16), DT_F32)));
}

static void k_bitcast_moved(kt *t) {              // bytes that do not lie side by side
  graph *g = t->g;
  tensor *raw = kt_in(t, DT_U8, KT_BITS, KT_DIMS(4, 6));
  kt_out(t, t_bitcast(g, t_swap(g, raw, 0, 1), DT_U16));
  kt_out(t, t_bitcast(g, t_flip(g, raw, 1), DT_U16));
}

// ---- movement -------------------------------------------------------------------------------------------------------

static void k_permute(kt *t) { kt_out(t, t_permute(t->g, F32_IN(t, 3, 5, 7), (int[]){2, 0, 1})); }
static void k_transpose_wide(kt *t) { kt_out(t, t_swap(t->g, F32_IN(t, 33, 48), 0, 1)); }
static void k_pad(kt *t) {
  kt_out(t, t_pad(t->g, F32_IN(t, 5, 7), 1, 2, 3));
  kt_out(t, t_pad(t->g, t_pad(t->g, F32_IN(t, 5, 16), 0, 1, 0), 1, 0, 16));
}
// what is padded with is 0, whatever the function would make of a load
static void k_pad_value(kt *t) {
  kt_out(t, t_add(t->g, t_pad(t->g, t_exp(t->g, F32_IN(t, 3, 5)), 1, 1, 2), t_float(t->g, 1)));
}
static void k_pad_of_pad(kt *t) {
  kt_out(t, t_pad(t->g, t_add(t->g, t_pad(t->g, F32_IN(t, 5), 0, 1, 1), t_float(t->g, 2)), 0, 3, 2));
}
static void k_flip(kt *t) { kt_out(t, t_flip(t->g, t_flip(t->g, F32_IN(t, 3, 5, 16), 2), 0)); }
static void k_shrink(kt *t) { kt_out(t, t_slice_i(t->g, t_slice_i(t->g, F32_IN(t, 9, 35), 0, 2, 5), 1, 3, 29)); }
static void k_reshape(kt *t) {
  kt_out(t, t_reshape_i(t->g, t_swap(t->g, F32_IN(t, 6, 10), 0, 1), 3, (int64_t[]){4, 5, 3}));
}
static void k_reshape_padded(kt *t) {
  kt_out(t, t_reshape_i(t->g, t_pad(t->g, F32_IN(t, 7, 5), 0, 0, 1), 2, (int64_t[]){10, 4}));
}
static void k_moves(kt *t) {
  graph *g = t->g;
  tensor *x = t_flip(g, t_pad(g, t_swap(g, F32_IN(t, 5, 4, 3), 0, 2), 1, 1, 1), 1);
  kt_out(t, t_slice_i(g, t_reshape_i(g, x, 2, (int64_t[]){9, 10}), 1, 1, 7));
}
static void k_cat(kt *t) { kt_out(t, t_cat_last(t->g, F32_IN(t, 3, 5), t_exp(t->g, F32_IN(t, 3, 9)))); }
static void k_cat_wide(kt *t) { kt_out(t, t_cat_last(t->g, F32_IN(t, 2, 16), F32_IN(t, 2, 32))); }
static void k_stack(kt *t) {
  tensor *x = F32_IN(t, 4, 9), *y = F32_IN(t, 4, 9);
  kt_out(t, t_stack_last(t->g, (tensor *[]){x, t_add(t->g, x, y), y}, 3));
}
static void k_window(kt *t) {                     // overlapping windows: repeat, cut, reshape
  graph *g = t->g;
  tensor *x = t_reshape_i(g, F32_IN(t, 12), 2, (int64_t[]){1, 12});
  x = t_expand(g, x, UOPS(IDX(t, 13), IDX(t, 12)));
  x = t_slice_i(g, t_reshape_i(g, x, 1, (int64_t[]){156}), 0, 0, 143);
  kt_out(t, t_reduce(g, t_slice_i(g, t_reshape_i(g, x, 2, (int64_t[]){11, 13}), 1, 0, 3), OP_ADD, 1));
}
static void k_iota(kt *t) {
  graph *g = t->g;
  tensor *i = t_reshape_i(g, t_iota(g, IDX(t, 7)), 2, (int64_t[]){7, 1}), *j = t_iota(g, IDX(t, 13));
  kt_out(t, t_cast(g, t_add(g, t_op2(g, OP_MUL, i, IDX(t, 13)), j), DT_I32));
  kt_out(t, t_where(g, t_op2(g, OP_CMPLT, i, j), t_float(g, 1), t_float(g, 2)));
  kt_out(t, t_cast(g, t_add(g, t_op2(g, OP_IDIV, j, IDX(t, 5)), t_op2(g, OP_MOD, i, IDX(t, 3))), DT_F32));
}

// ---- gathers --------------------------------------------------------------------------------------------------------

static void k_gather(kt *t) {
  kt_out(t, t_gather(t->g, F32_IN(t, 11, 17), kt_in(t, DT_I32, KT_SMALL_INTS, KT_DIMS(5))));
}
// rows of something as large as a cache, of which a table picks some
static void k_gather_pages(kt *t) {
  tensor *x = t_gather(t->g, F32_IN(t, 33, 8192), kt_in(t, DT_I32, KT_SMALL_INTS, KT_DIMS(5)));
  kt_out(t, t_reduce(t->g, x, OP_ADD, 1));
}
static void k_gather_clamped(kt *t) {
  kt_out(t, t_gather(t->g, F32_IN(t, 3, 16), kt_in(t, DT_I32, KT_BITS, KT_DIMS(4, 3))));
}
static void k_gather_vector(kt *t) {
  kt_out(t, t_gather(t->g, F32_IN(t, 9), kt_in(t, DT_U8, KT_SMALL_INTS, KT_DIMS(33))));
}
static void k_gather_computed(kt *t) {
  graph *g = t->g;
  tensor *x = t_exp(g, F32_IN(t, 9, 12)),
         *id = t_op2(g, OP_AND, kt_in(t, DT_U8, KT_BITS, KT_DIMS(7)), uop_int(g, DT_U8, 7));
  kt_out(t, t_reduce(g, t_gather(g, x, id), OP_ADD, 1));
}

// ---- reductions -----------------------------------------------------------------------------------------------------

static void reduces(kt *t, enum op op, enum dtype dt) {
  enum kt_fill fill = op == OP_MUL ? KT_POSITIVE : dtype_is_float(dt) ? KT_UNIT : KT_BITS;
  for (int axis = 0; axis < 3; axis++) kt_out(t, t_reduce(t->g, kt_in(t, dt, fill, KT_DIMS(6, 5, 19)), op, axis));
  kt_out(t, t_reduce(t->g, kt_in(t, dt, fill, KT_DIMS(64)), op, 0));
}
static void k_sum(kt *t) { reduces(t, OP_ADD, DT_F32); }
static void k_max(kt *t) { reduces(t, OP_MAX, DT_F32); }
static void k_min(kt *t) { reduces(t, OP_MIN, DT_F32); }
static void k_product(kt *t) { reduces(t, OP_MUL, DT_F32); }
static void k_sum_i32(kt *t) { reduces(t, OP_ADD, DT_I32); }
static void k_max_i8(kt *t) { reduces(t, OP_MAX, DT_I8); }
static void k_min_u16(kt *t) { reduces(t, OP_MIN, DT_U16); }
static void k_max_u8(kt *t) { reduces(t, OP_MAX, DT_U8); }
static void k_product_i64(kt *t) { reduces(t, OP_MUL, DT_I64); }
static void k_sum_f64(kt *t) { reduces(t, OP_ADD, DT_F64); }

static void k_reduce_two_axes(kt *t) {
  kt_out(t, t_reduce(t->g, t_reduce(t->g, F32_IN(t, 4, 6, 32), OP_ADD, 2), OP_ADD, 0));
}
static void k_reduce_mixed(kt *t) {
  kt_out(t, t_reduce(t->g, t_exp(t->g, t_reduce(t->g, F32_IN(t, 4, 6, 32), OP_MAX, 2)), OP_ADD, 1));
}
static void k_reduce_nested(kt *t) {              // both could lie in lanes, of different widths; not in one kernel
  tensor *x = t_mul(t->g, F32_IN(t, 4, 1), t_exp(t->g, F32_IN(t, 8)));
  kt_out(t, t_reduce(t->g, t_reduce(t->g, x, OP_MAX, 1), OP_ADD, 0));
  tensor *y = t_mul(t->g, F32_IN(t, 32, 1), F32_IN(t, 16));
  kt_out(t, t_reduce(t->g, t_exp(t->g, t_reduce(t->g, y, OP_ADD, 1)), OP_ADD, 0));
}
static void k_reduce_padded(kt *t) { kt_out(t, t_reduce(t->g, t_pad(t->g, F32_IN(t, 5, 13), 1, 2, 1), OP_MAX, 1)); }
static void k_reduce_const(kt *t) {
  kt_out(t, t_reduce(t->g, t_broadcast(t->g, F32_IN(t, 5, 1), t_add(t->g, F32_IN(t, 5, 9), t_float(t->g, 0))->shape),
                     OP_ADD, 1));
}
static void k_variance(kt *t) {
  graph *g = t->g;
  tensor *x = F32_IN(t, 5, 48), *mean = t_scale(g, t_reduce(g, x, OP_ADD, 1), 1 / 48.);
  tensor *d = t_sub(g, x, mean);
  kt_out(
    t, t_mul(g, d, t_op1(g, OP_RECIP, t_op1(g, OP_SQRT, t_scale(g, t_reduce(g, t_mul(g, d, d), OP_ADD, 1), 1 / 48.)))));
}
static void k_argmax(kt *t) {                     // index of the first largest
  graph *g = t->g;
  tensor *x = kt_in(t, DT_F32, KT_SMALL_INTS, KT_DIMS(6, 21)), *i = t_cast(g, t_iota(g, IDX(t, 21)), DT_I32);
  tensor *hit = t_op2(g, OP_CMPEQ, x, t_reduce(g, x, OP_MAX, 1));
  kt_out(t, t_reduce(g, t_where(g, hit, i, uop_int(g, DT_I32, 1000)), OP_MIN, 1));
}
static void k_prefix_sum(kt *t) {
  graph *g = t->g;
  tensor *x = F32_IN(t, 3, 1, 18), *i = t_iota(g, IDX(t, 18));
  tensor *seen = t_op2(g, OP_CMPLT, t_reshape_i(g, i, 2, (int64_t[]){18, 1}), i);
  kt_out(t, t_reduce(g, t_where(g, seen, t_float(g, 0), x), OP_ADD, 2));
}

// ---- products -------------------------------------------------------------------------------------------------------

static void k_matvec(kt *t) { kt_out(t, t_matmul(t->g, F32_IN(t, 1, 96), F32_IN(t, 20, 96))); }
static void k_matvec_long(kt *t) { kt_out(t, t_matmul(t->g, F32_IN(t, 1, 512), F32_IN(t, 4, 512))); }
static void k_matmul(kt *t) { kt_out(t, t_matmul(t->g, F32_IN(t, 5, 64), F32_IN(t, 12, 64))); }
static void k_matmul_odd(kt *t) { kt_out(t, t_matmul(t->g, F32_IN(t, 3, 7), F32_IN(t, 5, 7))); }
static void k_matmul_half(kt *t) {
  kt_out(t, t_matmul(t->g, F32_IN(t, 3, 32), kt_in(t, DT_F16, KT_UNIT, KT_DIMS(9, 32))));
}
static void k_matmul_bf16(kt *t) {
  kt_out(t, t_matmul(t->g, F32_IN(t, 2, 48), kt_in(t, DT_BF16, KT_UNIT, KT_DIMS(8, 48))));
}
static void k_matmul_batched(kt *t) {
  tensor *x = F32_IN(t, 3, 4, 1, 16), *w = F32_IN(t, 1, 6, 16);
  kt_out(t, t_reduce(t->g, t_mul(t->g, x, w), OP_ADD, 3));
}
static void k_matmul_transposed(kt *t) {
  kt_out(t, t_matmul(t->g, F32_IN(t, 4, 24), t_swap(t->g, F32_IN(t, 24, 16), 0, 1)));
}
static void k_matmul_bias_silu(kt *t) {
  kt_out(t, t_silu(t->g, t_add(t->g, t_matmul(t->g, F32_IN(t, 2, 32), F32_IN(t, 16, 32)), F32_IN(t, 16))));
}
static void k_norm(kt *t) { kt_out(t, t_rmsnorm(t->g, F32_IN(t, 4, 80), F32_IN(t, 80), 1e-5)); }
static void k_norm_matmul(kt *t) {
  kt_out(t, t_matmul(t->g, t_rmsnorm(t->g, F32_IN(t, 2, 64), F32_IN(t, 64), 1e-6), F32_IN(t, 32, 64)));
}
static void k_matmul_norm(kt *t) {
  kt_out(t, t_rmsnorm(t->g, t_matmul(t->g, F32_IN(t, 2, 32), F32_IN(t, 24, 32)), NULL, 1e-6));
}
static void k_two_matmuls(kt *t) {
  tensor *h = t_matmul(t->g, F32_IN(t, 2, 32), F32_IN(t, 48, 32));
  kt_out(t, t_matmul(t->g, t_contiguous(t->g, t_silu(t->g, h)), F32_IN(t, 16, 48)));
}
static void k_int_dot(kt *t) {
  tensor *x = t_cast(t->g, kt_in(t, DT_I8, KT_BITS, KT_DIMS(3, 1, 64)), DT_I32),
         *w = t_cast(t->g, kt_in(t, DT_I8, KT_BITS, KT_DIMS(8, 64)), DT_I32);
  kt_out(t, t_reduce(t->g, t_mul(t->g, x, w), OP_ADD, 2));
}
// nibbles with a scale per block of 32: the shape of a quantised product
static void k_codes_matvec(kt *t) {
  graph *g = t->g;
  tensor *raw = kt_in(t, DT_U8, KT_SMALL_INTS, KT_DIMS(12, 3, 18));
  tensor *d = t_cast(g, t_bitcast(g, t_slice_i(g, raw, 2, 0, 2), DT_F16), DT_F32);
  tensor *q = t_reshape_i(g, t_slice_i(g, raw, 2, 2, 16), 4, (int64_t[]){12, 3, 1, 16});
  tensor *shift =
    t_reshape_i(g, t_cast(g, t_op2(g, OP_MUL, t_iota(g, IDX(t, 2)), IDX(t, 2)), DT_U8), 2, (int64_t[]){2, 1});
  tensor *codes = t_op2(g, OP_AND, t_op2(g, OP_SHR, q, shift), uop_int(g, DT_U8, 3));
  tensor *w = t_mul(g, t_scale(g, t_reshape_i(g, d, 4, (int64_t[]){12, 3, 1, 1}), 1e4), t_cast(g, codes, DT_F32));
  kt_out(t, t_matmul(g, F32_IN(t, 2, 96), t_reshape_i(g, w, 2, (int64_t[]){12, 96})));
}

static void k_softmax(kt *t) { kt_out(t, t_softmax(t->g, t_scale(t->g, F32_IN(t, 7, 45), 8), 1)); }
static void k_softmax_first(kt *t) { kt_out(t, t_softmax(t->g, F32_IN(t, 13, 16), 0)); }
static void k_softmax_masked(kt *t) {
  graph *g = t->g;
  tensor *i = t_iota(g, IDX(t, 20)), *later = t_op2(g, OP_CMPLT, t_reshape_i(g, i, 2, (int64_t[]){20, 1}), i);
  kt_out(t, t_softmax(g, t_where(g, later, t_float(g, -INFINITY), F32_IN(t, 3, 20, 20)), 2));
}
static void k_attention(kt *t) {
  graph *g = t->g;
  tensor *q = F32_IN(t, 4, 3, 1, 16), *k = F32_IN(t, 4, 1, 9, 16), *v = F32_IN(t, 4, 1, 9, 16);
  tensor *s = t_softmax(g, t_reduce(g, t_mul(g, q, k), OP_ADD, 3), 2);
  kt_out(t, t_reduce(g, t_mul(g, s, v), OP_ADD, 2));
}

// ---- symbolic sizes -------------------------------------------------------------------------------------------------

static void k_symbolic_rows(kt *t) {
  uop *n = kt_var(t, "n", 1, 13);
  kt_out(t, t_exp(t->g, t_slice(t->g, F32_IN(t, 13, 16), 0, IDX(t, 0), n)));
}
static void k_symbolic_columns(kt *t) {
  uop *n = kt_var(t, "n", 1, 40);
  kt_out(t, t_scale(t->g, t_slice(t->g, F32_IN(t, 3, 40), 1, IDX(t, 0), n), 2));
}
static void k_symbolic_offset(kt *t) {
  uop *pos = kt_var(t, "pos", 0, 20);
  kt_out(t, t_slice(t->g, F32_IN(t, 3, 36), 1, pos, IDX(t, 16)));
}
static void symbolic_reduce(kt *t, enum op op) {
  uop *n = kt_var(t, "n", 1, 70);
  tensor *x = F32_IN(t, 3, 70);
  kt_out(t, t_reduce(t->g, t_slice(t->g, x, 1, IDX(t, 0), n), op, 1));
  kt_out(t, t_reduce(t->g, t_slice(t->g, F32_IN(t, 70, 16), 0, IDX(t, 0), n), op, 0));
}
static void k_symbolic_sum(kt *t) { symbolic_reduce(t, OP_ADD); }
static void k_symbolic_max(kt *t) { symbolic_reduce(t, OP_MAX); }
static void k_symbolic_min(kt *t) { symbolic_reduce(t, OP_MIN); }
static void k_symbolic_product(kt *t) { symbolic_reduce(t, OP_MUL); }
static void k_symbolic_matmul(kt *t) {
  uop *n = kt_var(t, "n", 1, 9);
  kt_out(t, t_matmul(t->g, t_slice(t->g, F32_IN(t, 9, 32), 0, IDX(t, 0), n), F32_IN(t, 12, 32)));
}
static void k_symbolic_softmax(kt *t) {
  uop *n = kt_var(t, "n", 1, 128);
  kt_out(t, t_softmax(t->g, t_slice(t->g, F32_IN(t, 5, 128), 1, IDX(t, 0), n), 1));
}
static void k_symbolic_stored(kt *t) {            // an intermediate of symbolic size, read in two ways
  graph *g = t->g;
  uop *n = kt_var(t, "n", 1, 128);
  tensor *x = t_contiguous(g, t_exp(g, t_slice(g, F32_IN(t, 3, 128), 1, IDX(t, 0), n)));
  kt_out(t, t_reduce(g, x, OP_ADD, 1));
  kt_out(t, t_mul(g, x, t_scale(g, x, 2)));
}
static void k_symbolic_flip(kt *t) {
  uop *n = kt_var(t, "n", 1, 21);
  kt_out(t, t_flip(t->g, t_slice(t->g, F32_IN(t, 21, 3), 0, IDX(t, 0), n), 0));
}
static void k_symbolic_scalar(kt *t) {            // the variable as a number
  uop *pos = kt_var(t, "pos", 0, 1000);
  kt_out(t, t_mul(t->g, t_cast(t->g, t_add(t->g, t_iota(t->g, IDX(t, 9)), pos), DT_F32), F32_IN(t, 9)));
}
static void k_symbolic_two(kt *t) {               // attention's sizes: T tokens, C = pos + T positions
  graph *g = t->g;
  uop *n = kt_var(t, "n", 1, 6), *pos = kt_var(t, "pos", 0, 58), *C = idx_add(g, pos, n);
  tensor *q = t_reshape(g, t_slice(g, F32_IN(t, 6, 16), 0, IDX(t, 0), n), UOPS(n, IDX(t, 1), IDX(t, 16)));
  tensor *k = t_slice(g, F32_IN(t, 64, 16), 0, IDX(t, 0), C), *s = t_reduce(g, t_mul(g, q, k), OP_ADD, 2);
  s = t_reshape(g, s, UOPS(n, C));
  tensor *own = t_reshape(g, t_add(g, t_iota(g, n), pos), UOPS(n, IDX(t, 1)));
  s = t_where(g, t_op2(g, OP_CMPLT, own, t_iota(g, C)), t_float(g, -INFINITY), s);
  kt_out(t, t_softmax(g, s, 1));
}

// Attention over whole pages of 32 positions, of which the last may be seen in part: stages, and a kernel with several
// results. What is reduced is masked, and one more term may have no value. `heads`: of keys; each is for `per` queries.
static void attention_in_pages(kt *t, int64_t heads, int64_t per, bool sink) {
  graph *g = t->g;
  uop *n = kt_var(t, "n", 1, 4), *pos = kt_var(t, "pos", 0, 92), *C = idx_add(g, pos, n), *one = IDX(t, 1);
  uop *seen = idx_mul(g, idx_div(g, idx_add(g, C, IDX(t, 31)), IDX(t, 32)), IDX(t, 32)), *h = IDX(t, heads),
      *p = IDX(t, per), *d = IDX(t, 16);
  tensor *q = t_slice(g, F32_IN(t, 4, heads, per, 16), 0, IDX(t, 0), n);
  q = t_reshape(g, t_stage(g, t_mul(g, q, t_float(g, 0.25)), false), UOPS(n, h, p, d, one));
  tensor *k = t_reshape(g, t_slice(g, F32_IN(t, heads, 16, 96), 2, IDX(t, 0), seen), UOPS(one, h, one, d, seen));
  tensor *v = t_reshape(g, t_slice(g, F32_IN(t, heads, 96, 16), 1, IDX(t, 0), seen), UOPS(one, h, one, seen, d));
  tensor *s = t_reduce(g, t_mul(g, q, k), OP_ADD, 3),
         *own = t_reshape(g, t_add(g, t_iota(g, n), pos), UOPS(n, one, one, one, one));
  s = t_where(g, t_op2(g, OP_CMPLT, own, t_iota(g, seen)), t_float(g, -INFINITY), s);
  tensor *most = t_reduce(g, s, OP_MAX, 4),
         *none = sink ? t_reshape(g, F32_IN(t, heads, per), UOPS(one, h, p, one, one)) : NULL;
  if (sink) most = t_op2(g, OP_MAX, most, none);
  tensor *e = t_exp(g, t_sub(g, s, most)), *total = t_reduce(g, e, OP_ADD, 4);
  if (sink) total = t_add(g, total, t_exp(g, t_sub(g, none, most)));
  tensor *o = t_reduce(g, t_mul(g, t_reshape(g, e, UOPS(n, h, p, seen, one)), v), OP_ADD, 3);
  o = t_reshape(g, o, UOPS(n, h, p, d));
  kt_out(t, t_op2(g, OP_FDIV, o, t_reshape(g, total, UOPS(n, h, p, one))));
}
static void k_flash(kt *t) { attention_in_pages(t, 2, 3, false); }
static void k_flash_sink(kt *t) { attention_in_pages(t, 3, 1, true); }

// ---- memory ---------------------------------------------------------------------------------------------------------

static tensor *whole_buffer(kt *t, enum dtype dt, int64_t elems) {
  return t_buffer(t->g, kt_buffer(t, dt, elems, KT_UNIT), dt, elems);
}

static void k_store_part(kt *t) {                 // what is around the view stays
  graph *g = t->g;
  tensor *view =
    t_slice_i(g, t_slice_i(g, t_reshape_i(g, whole_buffer(t, DT_F32, 63), 2, (int64_t[]){7, 9}), 0, 2, 3), 1, 1, 7);
  kt_effect(t, t_assign(g, view, t_exp(g, F32_IN(t, 3, 7))));
}
static void k_store_permuted(kt *t) {
  graph *g = t->g;
  tensor *view = t_swap(g, t_reshape_i(g, whole_buffer(t, DT_F16, 5 * 16), 2, (int64_t[]){5, 16}), 0, 1);
  kt_effect(t, t_assign(g, view, F32_IN(t, 16, 5)));
}
static void k_cache(kt *t) {                      // a row at a symbolic position, all rows so far read back
  graph *g = t->g;
  uop *pos = kt_var(t, "pos", 0, 20);
  tensor *cache = t_reshape_i(g, whole_buffer(t, DT_F16, 21 * 16), 2, (int64_t[]){21, 16});
  tensor *next = t_assign(g, t_slice(g, cache, 0, pos, IDX(t, 1)), t_exp(g, F32_IN(t, 1, 16)));
  kt_effect(t, next);
  tensor *rows = t_slice(g, t_reshape_i(g, next, 2, (int64_t[]){21, 16}), 0, IDX(t, 0), idx_add(g, pos, IDX(t, 1)));
  kt_out(t, t_reduce(g, t_cast(g, rows, DT_F32), OP_ADD, 0));
}
static void k_cache_chunk(kt *t) {                // n columns in pages, as the K cache lies
  graph *g = t->g;
  uop *n = kt_var(t, "n", 1, 5), *pos = kt_var(t, "pos", 0, 123), *C = idx_add(g, pos, n);
  tensor *cache = whole_buffer(t, DT_F16, 128 * 6);
  tensor *seen = t_reshape_i(g, t_permute(g, t_reshape_i(g, cache, 3, (int64_t[]){2, 6, 64}), (int[]){1, 0, 2}), 2,
                             (int64_t[]){6, 128});
  tensor *x = t_slice(g, F32_IN(t, 5, 6), 0, IDX(t, 0), n);
  tensor *next = t_assign(g, t_slice(g, seen, 1, pos, n), t_swap(g, x, 0, 1));
  kt_effect(t, next);
  tensor *after = t_reshape_i(g, t_permute(g, t_reshape_i(g, next, 3, (int64_t[]){2, 6, 64}), (int[]){1, 0, 2}), 2,
                              (int64_t[]){6, 128});
  tensor *k = t_reshape(g, t_cast(g, t_slice(g, after, 1, IDX(t, 0), C), DT_F32), UOPS(IDX(t, 1), IDX(t, 6), C));
  kt_out(t, t_reduce(g, t_mul(g, t_reshape(g, x, UOPS(n, IDX(t, 6), IDX(t, 1))), k), OP_ADD, 1));
}
static void k_in_place(kt *t) {                   // a value that reads what it replaces
  tensor *x = whole_buffer(t, DT_F32, 50);
  kt_effect(t, t_assign(t->g, x, t_exp(t->g, x)));
}
static void k_in_place_flip(kt *t) {              // ... at another index
  tensor *x = whole_buffer(t, DT_F32, 50);
  kt_effect(t, t_assign(t->g, x, t_flip(t->g, x, 0)));
}
static void k_shift_down(kt *t) {
  tensor *x = whole_buffer(t, DT_F32, 40);
  kt_effect(t, t_assign(t->g, t_slice_i(t->g, x, 0, 0, 39), t_slice_i(t->g, x, 0, 1, 39)));
}
static void k_read_then_store(kt *t) {            // a reader of the old contents beside the store
  tensor *x = whole_buffer(t, DT_F32, 30);
  kt_out(t, t_scale(t->g, x, 3));
  kt_effect(t, t_assign(t->g, x, F32_IN(t, 30)));
}
static void k_read_both(kt *t) {                  // old and new contents in one value
  graph *g = t->g;
  tensor *x = whole_buffer(t, DT_F32, 30), *next = t_assign(g, t_slice_i(g, x, 0, 10, 5), F32_IN(t, 5));
  kt_effect(t, next);
  kt_out(t, t_scale(g, next, 2));
}
static void k_two_stores(kt *t) {                 // one after the other, overlapping
  graph *g = t->g;
  tensor *x = whole_buffer(t, DT_F32, 30), *one = t_assign(g, t_slice_i(g, x, 0, 0, 20), F32_IN(t, 20));
  tensor *two = t_assign(g, t_slice_i(g, one, 0, 15, 15), t_slice_i(g, one, 0, 3, 15));
  kt_effect(t, two);
  kt_out(t, t_reduce(g, two, OP_ADD, 0));
  kt_out(t, t_scale(g, one, 5));
}

// ---- the table ------------------------------------------------------------------------------------------------------

#define K(name) {#name, k_##name, 0}
static const kt_case kt_cases[] = {
  K(add),
  K(one_element),
  K(broadcast),
  K(float_ops),
  K(double),
  K(i8),
  K(u8),
  K(i16),
  K(u16),
  K(i32),
  K(u32),
  K(i64),
  K(compare),
  K(infinite),
  K(exp),
  K(exp2_edges),
  K(log2),
  K(sin),
  K(sin_double),
  K(exp2_double),
  K(silu),
  K(cast_i8),
  K(cast_u16),
  K(cast_i32),
  K(cast_i64),
  K(cast_f16),
  K(cast_f32),
  K(cast_f64),
  K(cast_floats),
  K(half_memory),
  K(bitcast_same),
  K(bitcast_wider),
  K(bitcast_half),
  K(bitcast_moved),
  K(permute),
  K(transpose_wide),
  K(pad),
  K(pad_value),
  K(pad_of_pad),
  K(flip),
  K(shrink),
  K(reshape),
  K(reshape_padded),
  K(moves),
  K(cat),
  K(cat_wide),
  K(stack),
  K(window),
  K(iota),
  K(gather),
  K(gather_pages),
  K(gather_clamped),
  K(gather_vector),
  K(gather_computed),
  K(sum),
  K(max),
  K(min),
  K(product),
  K(sum_i32),
  K(max_i8),
  K(min_u16),
  K(max_u8),
  K(product_i64),
  K(sum_f64),
  K(reduce_two_axes),
  K(reduce_mixed),
  K(reduce_nested),
  K(reduce_padded),
  K(reduce_const),
  K(variance),
  K(argmax),
  K(best_three),
  K(prefix_sum),
  K(matvec),
  K(matvec_long),
  K(matmul),
  K(matmul_odd),
  K(matmul_half),
  K(matmul_bf16),
  K(matmul_batched),
  K(matmul_transposed),
  K(matmul_bias_silu),
  K(norm),
  K(norm_matmul),
  K(matmul_norm),
  K(two_matmuls),
  K(int_dot),
  K(codes_matvec),
  K(softmax),
  K(softmax_first),
  K(softmax_masked),
  K(attention),
  K(symbolic_rows),
  K(symbolic_columns),
  K(symbolic_offset),
  K(symbolic_sum),
  K(symbolic_max),
  K(symbolic_min),
  K(symbolic_product),
  K(symbolic_matmul),
  K(symbolic_softmax),
  K(symbolic_stored),
  K(symbolic_flip),
  K(symbolic_scalar),
  K(symbolic_two),
  K(flash),
  K(flash_sink),
  K(store_part),
  K(store_permuted),
  K(cache),
  K(cache_chunk),
  K(in_place),
  K(in_place_flip),
  K(shift_down),
  K(read_then_store),
  K(read_both),
  K(two_stores),
};
#undef K

static inline const kt_case *kt_find(const char *name) {
  for (size_t i = 0; i < COUNT(kt_cases); i++) if (!strcmp(kt_cases[i].name, name)) return &kt_cases[i];
  die("no case %s", name);
}
#endif
