// soft_doubles: arithmetic on doubles as their 64 bits, for C-like languages and devices that have none: Metal's, and
// OpenCL's devices without cl_khr_fp64.
//
// Programs compute in F64 where tables of rotary angles are made, once for each token: angles of a deep context are
// large, and their sines are small differences. Pairs of floats would be faster and give 48 bits of the 53, but codegen
// takes doubles apart by their bits (exponents in EXP2, LOG2 and SIN), their range is that of floats, and memory holds
// doubles. So here they are done as IEEE 754 has them, to the last bit, denormal numbers included, in some fifty
// integer instructions each; tests/render/test_soft_doubles.c compares all of it with this machine's doubles.
#ifndef WEFT_RENDER_SOFT_DOUBLES_H
#define WEFT_RENDER_SOFT_DOUBLES_H
#include "render/cstyle.h"

// What stands before a function, and the names that take a float's bits and make a float of bits.
struct soft_doubles_words { const char *function, *uint_of, *float_of; };
// The functions, f64_add and so on, which need uint, ulong and clz.
void soft_doubles_write(str *out, const struct soft_doubles_words *words);
// As dialect.doubles: a call of one of them.
const char *soft_doubles_call(cstyle *c, enum op op, enum dtype from, enum dtype to, const char *const *x);
#endif
