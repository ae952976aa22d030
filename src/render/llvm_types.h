// Names of element types and instructions in LLVM IR, and the text of constants. Names are static; a type without a
// name ends the program. Look next: llvm.c, which builds vectors of them.
#ifndef WEFT_LLVM_TYPES_H
#define WEFT_LLVM_TYPES_H
#include <string.h>
#include "base/arena.h"
#include "base/str.h"
#include "graph/half.h"
#include "graph/uop.h"
#include "render/render.h"

static inline const char *scalar_type(enum dtype d) {
  static const char *const names[DT_COUNT] = {
    [DT_BOOL] = "i1",  [DT_I8] = "i8",     [DT_U8] = "i8",     [DT_I16] = "i16", [DT_U16] = "i16",
    [DT_I32] = "i32",  [DT_U32] = "i32",   [DT_I64] = "i64",   [DT_U64] = "i64", [DT_IDX] = "i64",
    [DT_F16] = "half", [DT_F32] = "float", [DT_F64] = "double"};
  die_if(!names[d], "LLVM renderer: a value of dtype %s", dtype_name(d));
  return names[d];
}

// The type in which values are written: F16 values that are only moved are integers. o may be NULL.
static inline enum dtype shown(const render_options *o, enum dtype d) {
  return d == DT_F16 && o && o->lacks_halves ? DT_U16 : d;
}

// the type of elements in memory: a BOOL is a byte, BF16 is 16 bits
static inline const char *memory_type(enum dtype d) {
  return d == DT_BOOL ? "i8" : d == DT_BF16 ? "i16" : scalar_type(d);
}

// The text of a CONST, allocated in mem. lacks_halves: F16 constants are integers with their bits.
static inline const char *constant_text(arena *mem, const uop *u, bool lacks_halves) {
  enum dtype d = (enum dtype)u->dt;
  if (d == DT_BOOL) return u->a ? "true" : "false";
  if (!dtype_is_float(d)) return arena_printf(mem, "%lld", (long long)u->a);
  double v = uop_const_float(u);
  if (d == DT_F16) return arena_printf(mem, lacks_halves ? "%u" : "0xH%04X", (unsigned)f16_from_double(v));
  if (d == DT_F32) v = (double)(float)v;
  uint64_t b;
  memcpy(&b, &v, 8);
  if (v != v) b = (b >> 63 << 63) | 0x7ff8000000000000ull;
  return arena_printf(mem, "0x%016llX", (unsigned long long)b);
}

// 0, 1, ... as a vector, without its type
static inline const char *lane_numbers(arena *mem, enum dtype d, int lanes) {
  if (lanes == 1) return "0";
  str s = {0};
  for (int i = 0; i < lanes; i++) str_addf(&s, "%s%s %d", i ? ", " : "<", scalar_type(d), i);
  str_addc(&s, '>');
  const char *r = arena_strdup(mem, str_c(&s));
  str_free(&s);
  return r;
}

// The instruction of an op whose sources and result have one type; NULL if there is none.
static inline const char *simple_name(enum op op, enum dtype d) {
  static const struct { const char *f, *s, *u;
  } simple[OP_COUNT] = {
    [OP_ADD] = {"fadd", "add", "add"},
    [OP_SUB] = {"fsub", "sub", "sub"},
    [OP_MUL] = {"fmul", "mul", "mul"},
    [OP_FDIV] = {"fdiv", NULL, NULL},
    [OP_CDIV] = {NULL, "sdiv", "udiv"},
    [OP_CMOD] = {NULL, "srem", "urem"},
    [OP_AND] = {NULL, "and", "and"},
    [OP_OR] = {NULL, "or", "or"},
    [OP_XOR] = {NULL, "xor", "xor"},
    [OP_SHL] = {NULL, "shl", "shl"},
    [OP_SHR] = {NULL, "ashr", "lshr"},
    [OP_CMPLT] = {"fcmp olt", "icmp slt", "icmp ult"},
    [OP_CMPEQ] = {"fcmp oeq", "icmp eq", "icmp eq"},
    [OP_CMPNE] = {"fcmp une", "icmp ne", "icmp ne"},
  };
  return dtype_is_float(d) ? simple[op].f : dtype_is_unsigned(d) ? simple[op].u : simple[op].s;
}
#endif
