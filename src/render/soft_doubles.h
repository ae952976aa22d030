// soft_doubles: arithmetic on doubles as 64-bit integers, for C-like languages and devices without doubles: Metal, and
// OpenCL devices without cl_khr_fp64.
//
// Programs use F64 for tables of rotary angles, once per token: the angles of a deep context are large and their sines
// are small differences. Pairs of floats would be faster but have 48 of the 53 bits, and codegen takes doubles apart by
// their bits (exponents in EXP2, LOG2 and SIN), needs their range and stores them in memory. These functions follow
// IEEE 754 to the last bit, including subnormal numbers, in about fifty integer instructions each;
// tests/render/test_soft_doubles.c compares all of them with the processor's doubles.
#ifndef WEFT_RENDER_SOFT_DOUBLES_H
#define WEFT_RENDER_SOFT_DOUBLES_H
#include "render/cstyle.h"

// The function qualifier of the language, and the names that convert a float to bits and back.
struct soft_doubles_words { const char *function, *uint_of, *float_of; };
// Writes the functions f64_add and so on; they need uint, ulong and clz.
void soft_doubles_write(str *out, const struct soft_doubles_words *words);
// dialect.doubles: a call of one of these functions.
const char *soft_doubles_call(cstyle *c, enum op op, enum dtype from, enum dtype to, const char *const *x);
#endif
