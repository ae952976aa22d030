// Arithmetic in SPIR-V, lane by lane: see spirv_impl.h.
//
// Floats are never contracted. Half precision is storage only: conversions are integer arithmetic, so no device needs
// half support, and subnormal halves are kept even if subnormal F32 are not. Devices that promise these properties use
// one instruction instead.
#include <math.h>
#include <string.h>
#include "graph/half.h"
#include "render/spirv_impl.h"

// is it a float type in the module?
static bool is_f(const spirv *c, enum dtype d) { return d == DT_F32 || (d == DT_F64 && !spirv_by_bits(c, d)); }
static bool is_signed(enum dtype d) { return !dtype_is_unsigned(d); }

spv_id spirv_type(spirv *c, enum dtype d) {
  return d == DT_BOOL ? spv_bool(&c->s) : is_f(c, d) ? spv_float(&c->s, dtype_size(d)) : spv_uint(&c->s, dtype_size(d));
}

static spv_id const_number(spirv *c, enum dtype d, uint64_t bits) {
  return is_f(c, d) ? spv_const_float(&c->s, dtype_size(d), bits) : spv_const(&c->s, dtype_size(d), bits);
}

spv_id spirv_literal(spirv *c, enum dtype d, const uop *u) {
  if (d == DT_BOOL) return spv_const_bool(&c->s, u->a);
  if (d == DT_F16) return spv_const(&c->s, 2, f16_from_double(uop_const_float(u)));
  if (d != DT_F32 && d != DT_F64) return spv_const(&c->s, dtype_size(d), (uint64_t)u->a);
  double v = uop_const_float(u);
  float f = (float)v;
  uint64_t bits = 0;
  memcpy(&bits, d == DT_F32 ? (const void *)&f : (const void *)&v, (size_t)dtype_size(d));
  return const_number(c, d, bits);
}

static spv_id uncontracted(spirv *c, spv_id x) {
  SPV_PUT(&c->s, SPV_DECORATIONS, SPV_DECORATE, x, SPV_NO_CONTRACTION);
  return x;
}

// ---- bits -----------------------------------------------------------------------------------------------------------

static spv_id bitcast_to(spirv *c, spv_id type, spv_id x) { return SPV_MAKE(&c->s, SPV_BITCAST, type, x); }

spv_id spirv_to_bits(spirv *c, spv_id x, enum dtype d) {
  if (d == DT_BOOL)
    return SPV_MAKE(&c->s, SPV_SELECT, spv_uint(&c->s, 1), x, spv_const(&c->s, 1, 1), spv_const(&c->s, 1, 0));
  return is_f(c, d) ? bitcast_to(c, spv_uint(&c->s, dtype_size(d)), x) : x;
}

spv_id spirv_of_bits(spirv *c, spv_id x, enum dtype d) {
  if (d == DT_BOOL) return SPV_MAKE(&c->s, SPV_I_NOT_EQUAL, spv_bool(&c->s), x, spv_const(&c->s, 1, 0));
  return is_f(c, d) ? bitcast_to(c, spirv_type(c, d), x) : x;
}

// SPIR-V integer vectors hold at most four elements: 8 bytes are split, and joined, in two steps.
const spv_id *spirv_resize(spirv *c, const spv_id *x, int n, int from, int to) {
  if (from == to) return x;
  if (from * 4 < to || to * 4 < from) return spirv_resize(c, spirv_resize(c, x, n, from, 4), n * from / 4, 4, to);
  bool split = from > to;
  int many = n * from / to, each = split ? from / to : to / from;
  spv_id *out = spirv_new_lanes(c, many), type = spv_uint(&c->s, to),
         vector = spv_vector(&c->s, split ? type : spv_uint(&c->s, from), each);
  for (int i = 0; i < (split ? n : many); i++) {
    if (!split) {
      spv_id whole = spv_make(&c->s, SPV_COMPOSITE_CONSTRUCT, vector, (size_t)each, x + i * each);
      out[i] = bitcast_to(c, type, whole);
      continue;
    }
    spv_id whole = bitcast_to(c, vector, x[i]);
    for (int j = 0; j < each; j++)
      out[i * each + j] = SPV_MAKE(&c->s, SPV_COMPOSITE_EXTRACT, type, whole, (uint32_t)j);
  }
  return out;
}

// ---- functions ------------------------------------------------------------------------------------------------------

spirv_helper spirv_begin_helper(spirv *c, spv_id result, int n, const spv_id *types) {
  spv *s = &c->s;
  spirv_helper h = {.function = spv_new(s), .before = s->at};
  SPV_PUT(s, SPV_HELPERS, SPV_FUNCTION, result, h.function, 0, spv_function_type(s, result, (size_t)n, types));
  for (int i = 0; i < n; i++) {
    h.arguments[i] = spv_new(s);
    SPV_PUT(s, SPV_HELPERS, SPV_FUNCTION_PARAMETER, types[i], h.arguments[i]);
  }
  c->helper_block = spv_new(s);
  SPV_PUT(s, SPV_HELPERS, SPV_LABEL, c->helper_block);
  s->at = SPV_HELPERS;
  return h;
}

spv_id spirv_end_helper(spirv *c, const spirv_helper *h, spv_id result) {
  SPV_PUT(&c->s, SPV_HELPERS, SPV_RETURN_VALUE, result);
  spv_put(&c->s, SPV_HELPERS, SPV_FUNCTION_END, 0, NULL);
  c->s.at = h->before;
  return h->function;
}

// ---- halves ---------------------------------------------------------------------------------------------------------

static spv_id u32_op(spirv *c, enum spv_op op, spv_id x, uint32_t y) {
  return SPV_MAKE(&c->s, op, spv_uint(&c->s, 4), x, spv_u32(&c->s, y));
}
static spv_id u32_is(spirv *c, enum spv_op op, spv_id x, uint32_t y) {
  return SPV_MAKE(&c->s, op, spv_bool(&c->s), x, spv_u32(&c->s, y));
}
static spv_id u32_choose(spirv *c, spv_id cond, spv_id x, spv_id y) {
  return SPV_MAKE(&c->s, SPV_SELECT, spv_uint(&c->s, 4), cond, x, y);
}
// x op y on floats, given and returned as their bits
static spv_id bits_op(spirv *c, enum spv_op op, spv_id x, uint32_t y) {
  spv_id f = spv_float(&c->s, 4), a = bitcast_to(c, f, x);
  return bitcast_to(c, spv_uint(&c->s, 4), uncontracted(c, SPV_MAKE(&c->s, op, f, a, spv_const_float(&c->s, 4, y))));
}

// A subnormal half m * 2^-24 equals (1 + m * 2^-10) * 2^-14 - 2^-14: no subnormal F32 occurs.
static spv_id f32_of_f16(spirv *c) {
  spv *s = &c->s;
  spv_id u32 = spv_uint(s, 4);
  spirv_helper h = spirv_begin_helper(c, spv_float(s, 4), 1, (spv_id[]){spv_uint(s, 2)});
  spv_id x = SPV_MAKE(s, SPV_U_CONVERT, u32, h.arguments[0]);
  spv_id o = u32_op(c, SPV_SHIFT_LEFT, u32_op(c, SPV_AND, x, 0x7fff), 13), e = u32_op(c, SPV_AND, o, 0x7c00 << 13);
  spv_id normal = u32_op(c, SPV_I_ADD, o, 112u << 23), most = u32_op(c, SPV_I_ADD, o, 224u << 23);
  spv_id denormal = bits_op(c, SPV_F_SUB, u32_op(c, SPV_I_ADD, o, 113u << 23), 113u << 23);
  spv_id r = u32_choose(c, u32_is(c, SPV_I_EQUAL, e, 0x7c00 << 13), most, normal);
  r = u32_choose(c, u32_is(c, SPV_I_EQUAL, e, 0), denormal, r);
  spv_id sign = u32_op(c, SPV_SHIFT_LEFT, u32_op(c, SPV_AND, x, 0x8000), 16);
  r = SPV_MAKE(s, SPV_OR, u32, r, sign);
  return spirv_end_helper(c, &h, bitcast_to(c, spv_float(s, 4), r));
}

// Rounds to nearest, ties to even; adding 0.5 rounds results that become subnormal halves.
static spv_id f16_of_f32(spirv *c) {
  spv *s = &c->s;
  spv_id u32 = spv_uint(s, 4);
  spirv_helper h = spirv_begin_helper(c, spv_uint(s, 2), 1, (spv_id[]){spv_float(s, 4)});
  spv_id x = bitcast_to(c, u32, h.arguments[0]), a = u32_op(c, SPV_AND, x, 0x7fffffff);
  spv_id small = u32_op(c, SPV_I_SUB, bits_op(c, SPV_F_ADD, a, 0x3f000000), 0x3f000000);
  spv_id odd = u32_op(c, SPV_AND, u32_op(c, SPV_SHIFT_U, a, 13), 1);
  spv_id normal = SPV_MAKE(s, SPV_I_ADD, u32, u32_op(c, SPV_I_ADD, a, 0xc8000fff), odd);
  normal = u32_op(c, SPV_SHIFT_U, normal, 13);
  spv_id is_nan = SPV_MAKE(s, SPV_U_LESS, spv_bool(s), spv_u32(s, 0x7f800000), a);
  spv_id big = u32_choose(c, is_nan, spv_u32(s, 0x7e00), spv_u32(s, 0x7c00));
  spv_id r = u32_choose(c, u32_is(c, SPV_U_LESS, a, 0x47800000), normal, big);
  r = u32_choose(c, u32_is(c, SPV_U_LESS, a, 0x38800000), small, r);
  spv_id sign = u32_op(c, SPV_AND, u32_op(c, SPV_SHIFT_U, x, 16), 0x8000);
  r = SPV_MAKE(s, SPV_OR, u32, r, sign);
  return spirv_end_helper(c, &h, SPV_MAKE(s, SPV_U_CONVERT, spv_uint(s, 2), r));
}

static spv_id halves_to(spirv *c, spv_id x, enum dtype to) {
  if (c->o && c->o->spirv & SPIRV_F16) {
    spv_id half = spv_float(&c->s, 2);
    if (to == DT_F32) return SPV_MAKE(&c->s, SPV_F_CONVERT, spv_float(&c->s, 4), bitcast_to(c, half, x));
    return bitcast_to(c, spv_uint(&c->s, 2), SPV_MAKE(&c->s, SPV_F_CONVERT, half, x));
  }
  spv_id *f = to == DT_F32 ? &c->to_f32 : &c->to_f16;
  if (!*f) *f = to == DT_F32 ? f32_of_f16(c) : f16_of_f32(c);
  return SPV_MAKE(&c->s, SPV_FUNCTION_CALL, spirv_type(c, to), *f, x);
}

// ---- conversions ----------------------------------------------------------------------------------------------------

// Signed 64-bit integers are assembled from their halves: Mesa 22.3 compares the result of SPV_S_CONVERT from 32 bits
// with constants as if it were unsigned.
static spv_id int_to_int(spirv *c, spv_id x, enum dtype from, enum dtype to) {
  int a = dtype_size(from), b = dtype_size(to);
  bool grows = a < b && is_signed(from);
  if (a == b) return x;
  if (!grows) return SPV_MAKE(&c->s, SPV_U_CONVERT, spv_uint(&c->s, b), x);
  if (b < 8) return SPV_MAKE(&c->s, SPV_S_CONVERT, spv_uint(&c->s, b), x);
  x = int_to_int(c, x, from, DT_I32);
  return *spirv_resize(c, (spv_id[]){x, u32_op(c, SPV_SHIFT_S, x, 31)}, 2, 4, 8);
}

// Integers below 32 bits convert to and from floats through I32, which holds all of their values.
static spv_id between_kinds(spirv *c, spv_id x, enum dtype from, enum dtype to) {
  enum dtype whole = is_f(c, from) ? to : from;
  bool small = dtype_size(whole) < 4;
  if (small) whole = DT_I32;
  if (is_f(c, from)) {
    x = SPV_MAKE(&c->s, is_signed(whole) ? SPV_F_TO_S : SPV_F_TO_U, spirv_type(c, whole), x);
    return small ? int_to_int(c, x, whole, to) : x;
  }
  if (small) x = int_to_int(c, x, from, whole);
  return SPV_MAKE(&c->s, is_signed(whole) ? SPV_S_TO_F : SPV_U_TO_F, spirv_type(c, to), x);
}

static spv_id double_to(spirv *c, spv_id x, enum dtype from, enum dtype to) {
  enum dtype other = from == DT_F64 ? to : from;
  enum dtype by = other == DT_F32 || other == DT_U64 ? other : DT_I64;
  if (other == DT_BF16) return 0;
  if (to == DT_F64) return spirv_double_cast(c, by == other ? x : int_to_int(c, x, from, by), by, to);
  x = spirv_double_cast(c, x, from, by);
  return by == other ? x : int_to_int(c, x, by, to);
}

spv_id spirv_cast(spirv *c, spv_id x, enum dtype from, enum dtype to) {
  if (from == to) return x;
  if (from == DT_F16 || to == DT_F16) return from == DT_F32 || to == DT_F32 ? halves_to(c, x, to) : 0;
  spv_id type = spirv_type(c, to);
  if (from == DT_BOOL) {
    uint64_t one = to == DT_F32 ? 0x3f800000 : to == DT_F64 ? 0x3ff0000000000000 : 1;
    return SPV_MAKE(&c->s, SPV_SELECT, type, x, const_number(c, to, one), const_number(c, to, 0));
  }
  if (to == DT_BOOL) {
    spv_id zero = const_number(c, from, 0);
    if (spirv_by_bits(c, from)) return spirv_double_op(c, OP_CMPNE, (spv_id[]){x, zero});
    return SPV_MAKE(&c->s, is_f(c, from) ? SPV_F_NOT_EQUAL : SPV_I_NOT_EQUAL, type, x, zero);
  }
  if (spirv_by_bits(c, from) || spirv_by_bits(c, to)) return double_to(c, x, from, to);
  if (is_f(c, from) && is_f(c, to)) return SPV_MAKE(&c->s, SPV_F_CONVERT, type, x);
  return is_f(c, from) || is_f(c, to) ? between_kinds(c, x, from, to) : int_to_int(c, x, from, to);
}

// ---- elementwise ----------------------------------------------------------------------------------------------------

// Instructions for an op by the type of its sources; 0 if there is none.
typedef struct spirv_row { enum spv_op f, s, u, b; } spirv_row;
static const spirv_row rows[OP_COUNT] = {
  [OP_ADD] = {SPV_F_ADD, SPV_I_ADD, SPV_I_ADD, 0},
  [OP_SUB] = {SPV_F_SUB, SPV_I_SUB, SPV_I_SUB, 0},
  [OP_MUL] = {SPV_F_MUL, SPV_I_MUL, SPV_I_MUL, 0},
  [OP_FDIV] = {SPV_F_DIV, 0, 0, 0},
  [OP_CDIV] = {0, SPV_S_DIV, SPV_U_DIV, 0},
  [OP_CMOD] = {0, SPV_S_REM, SPV_U_MOD, 0},
  [OP_AND] = {0, SPV_AND, SPV_AND, SPV_LOGICAL_AND},
  [OP_OR] = {0, SPV_OR, SPV_OR, SPV_LOGICAL_OR},
  [OP_XOR] = {0, SPV_XOR, SPV_XOR, SPV_LOGICAL_NOT_EQUAL},
  [OP_SHL] = {0, SPV_SHIFT_LEFT, SPV_SHIFT_LEFT, 0},
  [OP_SHR] = {0, SPV_SHIFT_S, SPV_SHIFT_U, 0},
  [OP_CMPLT] = {SPV_F_LESS, SPV_S_LESS, SPV_U_LESS, 0},
  [OP_CMPEQ] = {SPV_F_EQUAL, SPV_I_EQUAL, SPV_I_EQUAL, SPV_LOGICAL_EQUAL},
  [OP_CMPNE] = {SPV_F_NOT_EQUAL, SPV_I_NOT_EQUAL, SPV_I_NOT_EQUAL, SPV_LOGICAL_NOT_EQUAL},
};

static spv_id larger_or_smaller(spirv *c, enum op op, enum dtype d, spv_id x, spv_id y) {
  if (d == DT_BOOL) return SPV_MAKE(&c->s, op == OP_MAX ? SPV_LOGICAL_OR : SPV_LOGICAL_AND, spv_bool(&c->s), x, y);
  spv_id less = op == OP_MAX ? spirv_binary(c, OP_CMPLT, d, x, y) : spirv_binary(c, OP_CMPLT, d, y, x);
  return less ? SPV_MAKE(&c->s, SPV_SELECT, spirv_type(c, d), less, y, x) : 0;
}

spv_id spirv_binary(spirv *c, enum op op, enum dtype d, spv_id x, spv_id y) {
  if (d == DT_F16 || d == DT_BF16) return 0;
  if (spirv_by_bits(c, d)) return spirv_double_op(c, op, (spv_id[]){x, y});
  if (op == OP_MAX || op == OP_MIN) return larger_or_smaller(c, op, d, x, y);
  if (op == OP_CMPLT && d == DT_BOOL) {
    x = SPV_MAKE(&c->s, SPV_LOGICAL_NOT, spv_bool(&c->s), x);
    op = OP_AND;
  }
  const spirv_row *r = &rows[op];
  enum spv_op how = d == DT_BOOL ? r->b : is_f(c, d) ? r->f : is_signed(d) ? r->s : r->u;
  if (!how) return 0;
  spv_id v = SPV_MAKE(&c->s, how, op_flags(op) & OPF_COMPARE ? spv_bool(&c->s) : spirv_type(c, d), x, y);
  return is_f(c, d) && (op == OP_ADD || op == OP_SUB || op == OP_MUL) ? uncontracted(c, v) : v;
}

// The module does not require drivers to keep the sign of zero, and Mesa's llvmpipe loses it in doubles on some
// processors (Zen 3): a result of zero gets the sign of x.
static spv_id truncated_float(spirv *c, enum dtype d, spv_id x) {
  spv *s = &c->s;
  spv_id v = spv_ext(s, SPV_EXT_TRUNC, spirv_type(c, d), x), bits = spv_uint(s, 8);
  if (d != DT_F64) return v;
  spv_id sign = SPV_MAKE(s, SPV_AND, bits, spirv_to_bits(c, x, d), spv_const(s, 8, (uint64_t)1 << 63));
  return spirv_of_bits(c, SPV_MAKE(s, SPV_OR, bits, spirv_to_bits(c, v, d), sign), d);
}

spv_id spirv_lane(spirv *c, const uop *u, const spv_id *x) {
  enum dtype d = (enum dtype)u->dt, ds = (enum dtype)u->src[0]->dt;
  spv_id type = spirv_type(c, d);
  if (spirv_by_bits(c, ds) && u->op != OP_CAST) return spirv_double_op(c, (enum op)u->op, x);
  switch (u->op) {
  case OP_CAST: return spirv_cast(c, x[0], ds, d);
  case OP_NEG:
    return d == DT_BOOL || d == DT_F16 ? 0 : SPV_MAKE(&c->s, is_f(c, d) ? SPV_F_NEGATE : SPV_S_NEGATE, type, x[0]);
  case OP_WHERE: return SPV_MAKE(&c->s, SPV_SELECT, type, x[0], x[1], x[2]);
  case OP_TRUNC:
  case OP_FLOOR:
    if (!is_f(c, d)) return d == DT_F16 ? 0 : x[0];
    return u->op == OP_TRUNC ? truncated_float(c, d, x[0]) : spv_ext(&c->s, SPV_EXT_FLOOR, type, x[0]);
  case OP_SQRT: return is_f(c, d) ? spv_ext(&c->s, SPV_EXT_SQRT, type, x[0]) : 0;
  default: return u->nsrc == 2 ? spirv_binary(c, (enum op)u->op, ds, x[0], x[1]) : 0;
  }
}

// ---- dot products ---------------------------------------------------------------------------------------------------

enum { PACKED_4X8 = 0 };

const spv_id *spirv_dots(spirv *c, const uop *u) {
  spv *s = &c->s;
  if (u->dt != DT_I32 || (c->o && !(c->o->spirv & SPIRV_DOTS))) return NULL;
  const spv_id *acc = spirv_lanes(c, u->src[0]), *codes = spirv_lanes(c, u->src[2]),
               *parts = spirv_resize(c, spirv_lanes(c, u->src[1]), 4 * u->lanes, 1, 4);
  spv_id *out = spirv_new_lanes(c, u->lanes), u32 = spv_uint(s, 4);
  if (spv_can(s, SPV_CAN_DOT))
    spv_put_text(s, SPV_EXTENSIONS, SPV_EXTENSION, 0, NULL, "SPV_KHR_integer_dot_product", 0, NULL);
  spv_can(s, SPV_CAN_DOT_PACKED);
  for (int i = 0; i < u->lanes; i++) {
    spv_id sum = SPV_MAKE(s, SPV_SU_DOT, u32, codes[i], parts[i], PACKED_4X8);
    out[i] = SPV_MAKE(s, SPV_I_ADD, u32, acc[i], sum);
  }
  return out;
}
